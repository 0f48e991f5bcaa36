"""Is there a signal at all? Said on the page, since estimated labels look certain even where there is none."""

from collections.abc import Mapping

import jax

from latentens.errors import VotesError
from latentens.evaluation.signal import check_signal
from latentens.reporting.parts import Part
from latentens.reporting.view import View


def signal_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """Whether voters agree more than by chance."""
    del colour
    try:
        found = check_signal(view.votes, key=jax.random.key(0))
    except VotesError:  # nobody can agree with anybody
        return None
    return Part("signal", "Do the voters agree more than by chance?", (found.summary,))
