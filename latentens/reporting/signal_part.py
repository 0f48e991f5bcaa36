"""Is there a signal at all? Said on the page, since estimated labels look certain even where there is none."""

from collections.abc import Mapping

from latentens.reporting.parts import Part
from latentens.reporting.view import View


def signal_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """Whether voters agree more than by chance, as the comparison has it on record."""
    del colour
    words = view.node["observed_data"].attrs.get("signal")  # older comparisons have none
    return Part("signal", "Do the voters agree more than by chance?", (words,)) if words else None
