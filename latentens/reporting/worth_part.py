"""What the voters are worth: how many independent ones would say as much about the label."""

from collections.abc import Mapping
from typing import Any

from latentens.comparison.dependence import WORTH
from latentens.reporting.parts import Part
from latentens.reporting.view import View

NOT_ASKED = (
    "This was not computed, since it takes longer than most methods. The option --checks of latentens compare puts it "
    "on this page; latentens check --worth prints it."
)


def worth_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """How many independent voters these are worth; without labels, where nobody asked, how to ask."""
    del colour
    if WORTH in view.node.children:
        found = view.node[WORTH].attrs
        words = [str(found["summary"]), *_by_correlation(found)]
    elif view.num_known == 0 and not view.is_simulated:
        words = [NOT_ASKED]
    else:
        return None
    return Part("worth", "How many independent voters are these worth?", words)


def _by_correlation(found: Mapping[Any, Any]) -> list[str]:
    if "by_correlation" not in found:
        return []
    return [
        "So many independent voters of the same quality would have as much information about the label. By the mean "
        f"correlation of two voters' errors alone, the design effect, it would be {found['by_correlation']:.1f}."
    ]
