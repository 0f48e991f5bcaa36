"""Which parts a chapter has, in their order."""

from collections.abc import Mapping, Sequence

from latentens.reporting.check_part import check_part
from latentens.reporting.dependence_part import dependence_part
from latentens.reporting.drawing import style
from latentens.reporting.items_part import items_part
from latentens.reporting.parts import MakePart, Part
from latentens.reporting.prediction_part import prediction_part
from latentens.reporting.recommendation_part import recommendation_part
from latentens.reporting.signal_part import signal_part
from latentens.reporting.view import View
from latentens.reporting.voters_part import voters_part
from latentens.reporting.worth_part import worth_part

FIRST: tuple[MakePart, ...] = (recommendation_part, signal_part)
"""Parts that answer a question of the reader: before the figures."""

LATER: tuple[MakePart, ...] = (items_part, voters_part, dependence_part, worth_part, prediction_part, check_part)
"""Parts to look things up in: after the figures, before the scores."""


def make_parts(makers: Sequence[MakePart], view: View, colour: Mapping[str, str]) -> list[Part]:
    """The parts that have something to say."""
    with style():
        made = [make(view, colour) for make in makers]
    return [part for part in made if part is not None]
