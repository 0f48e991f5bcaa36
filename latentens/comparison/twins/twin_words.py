"""What a recommendation says, in plain words: the answer first, then what it rests on, then what it cannot tell."""

from collections.abc import Iterable

import numpy as np

from latentens.comparison.twins.evidence import Evidence
from latentens.comparison.twins.expected_scores import Estimated
from latentens.comparison.twins.gold_numbers import to_check_accuracy, to_tell_methods, to_tell_worlds
from latentens.comparison.twins.minimax import GOLD

OPEN = 0.01
"""A loss of balanced accuracy above this leaves open which method to use."""

DISAGREE = 0.05
"""Worlds whose labels differ on more of the items than this disagree."""

UNIDENTIFIED = 0.03
"""Votes do not determine the label where every method stays this far below the exact posterior."""

TOO_SURE = 0.1
"""A log score so much above that of the exact posterior is worth a sentence, in nats."""

NEAR_CHANCE = 0.02

CAVEAT = (
    "None of this proves the labels right. What a program calls the label is whatever explains the votes best, and "
    "that may be something other than what you mean by it."
)


def sentences(found: Evidence) -> list[str]:
    """The answer, then its reasons; each a sentence or a few."""
    if found.choice is None:
        return [f"There is nothing to find. {found.signal.summary}", *_sample(found)]
    return [
        _answer(found),
        *_sureness(found),
        *_worlds(found),
        *_misfit(found),
        *_open_questions(found),
        *_gold(found),
        *_failures(found),
        *_sample(found),
        f"{CAVEAT} {_check_number(found)}",
    ]


def _answer(found: Evidence) -> str:
    assert found.choice is not None
    method, chance = found.choice.method, 1 / found.dataset.votes.num_classes
    expected = found.expected("balanced_accuracy", method)
    words = f"Use {method}: on votes like these it is expected to label {span(expected)} of the items correctly"
    words += " (balanced accuracy)"
    if found.choice.loss.mean < 0.0005:
        words += ", and no method does better in any world that is not ruled out."
    else:
        loss, where = points(found.choice.loss.mean), found.choice.worst.name
        words += f", and it loses at most {loss} against the best method in any world that is not ruled out ({where})."
    if found.contradicted:
        words = f"No program that was tried describes these votes, so this is a guess: {words[0].lower()}{words[1:]}"
    if expected.low < chance + NEAR_CHANCE:
        return f"There may be little or nothing to find. If at all, {words[0].lower()}{words[1:]}"
    return words


def _sureness(found: Evidence) -> Iterable[str]:
    assert found.choice is not None
    possible = found.expected("log_score", None)
    for method in dict.fromkeys((found.choice.method, "DawidSkeneEM")):
        if any(method not in part.methods for part in found.scores):
            continue
        score, right = found.expected("log_score", method), found.expected("balanced_accuracy", method)
        if score.value - possible.value > TOO_SURE:
            yield (
                f"{method} is expected to be right on {span(right)}, but its probabilities cannot be taken at face "
                f"value: their log score is about {score.value:.2f} where {possible.value:.2f} is possible."
            )


def _worlds(found: Evidence) -> Iterable[str]:
    kept = [world.name for world in found.kept]
    yield f"Worlds that are not ruled out: {', '.join(kept)}."
    for name, verdict in found.verdicts.items():
        if verdict.ruled_out:
            yield f"Ruled out: {name}, which {verdict.ruled_out}."
    for name, reason in found.absent.items():
        yield f"Left out: {name}; {reason}."


def _misfit(found: Evidence) -> Iterable[str]:
    if found.contradicted:
        yield (
            "The votes contradict every program that was tried, the best of them too, and true figures can lie outside "
            f"the intervals above. {found.kept[0].check_words}"
        )


def _open_questions(found: Evidence) -> Iterable[str]:
    choice, most = found.choice, found.dataset.votes.num_items
    assert choice is not None
    by_world = {part.world: part for part in found.scores}
    if choice.loss.mean > OPEN and choice.worst.name != GOLD:
        number = to_tell_methods(by_world[choice.worst.name], choice.worst.best, choice.method)
        yield (
            f"In the world {choice.worst.name} {choice.worst.best} has better labels than {choice.method}: "
            f"{gold_text(number, most)} would tell which of the two to use."
        )
    if (pair := found.disagreement) is not None and pair[0] > DISAGREE:
        share, first, second = pair
        number = to_tell_worlds(first.posterior, second.posterior)
        yield (
            f"{first.name} and {second.name} explain the votes about equally well but give different labels to "
            f"{percent(share)} of the items: {gold_text(number, most)} would tell which of them to believe."
        )
    for world in found.kept:
        part = by_world[world.name]
        gap = part.gain("balanced_accuracy", None, part.best("balanced_accuracy", part.methods))
        if gap.mean > UNIDENTIFIED or world.label_change > DISAGREE:
            yield (
                f"If the world is {world.name}, the votes do not determine the label: every method stays "
                f"{points(gap.mean)} or more below what is possible, and other fits that are about as good change "
                f"{percent(world.label_change)} of the labels. Only gold labels can settle this."
            )


def _gold(found: Evidence) -> Iterable[str]:
    number = int((found.dataset.labels >= 0).sum())
    if number == 0 or found.choice is None:
        return
    column = next(part for part in found.columns["balanced_accuracy"] if part.name == GOLD)
    proven = [method for method, loss in column.losses.items() if loss.mean > 0]
    words = f"On your {number:,} gold labels {column.best} is best"
    yield f"{words}; clearly worse there: {', '.join(proven)}." if proven else f"{words}, but no method clearly worse."


def _failures(found: Evidence) -> Iterable[str]:
    for method, reason in found.failed.items():
        yield f"{method} failed and was left out: {reason}."


def _sample(found: Evidence) -> Iterable[str]:
    used = found.dataset.votes.num_items
    if used < found.num_items:
        yield f"All this rests on a sample of {used:,} of the {found.num_items:,} items."


def _check_number(found: Evidence) -> str:
    assert found.choice is not None
    expected = found.expected("balanced_accuracy", found.choice.method)
    words = gold_text(to_check_accuracy(expected.value), found.dataset.votes.num_items)
    return f"{words[0].upper()}{words[1:]} would show whether the accuracy is 10 points lower."


def gold_text(number: float, most: int) -> str:
    """A number of gold labels as the beginning or the middle of a sentence."""
    if not np.isfinite(number) or number > most:
        return "more gold labels than there are items"
    return f"about {_rounded(number):,} gold labels of items drawn at random"


def _rounded(number: float) -> int:
    """Two digits are enough, rounded up."""
    step = 10 ** max(int(np.floor(np.log10(max(number, 1)))) - 1, 0)
    return int(np.ceil(number / step) * step)


def span(estimate: Estimated) -> str:
    """An interval of a share, in percent."""
    low, high = (f"{100 * value:.0f}" for value in (estimate.low, estimate.high))
    return f"{low}\u00a0%" if low == high else f"{low}–{high}\u00a0%"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.0f}\u00a0%"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:.1f} points"
