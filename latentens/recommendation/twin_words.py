"""What a recommendation says, in plain words: the answer first, then what it rests on, then what it cannot tell.

Which sentences there are depends on two things: whether some world is left, so that there are twins to expect an
accuracy from, and whether there are gold labels. An accuracy is stated from twins only if a world is left, and where
there are gold labels the first one stated is theirs.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from latentens.recommendation.catalogue import SAFEST
from latentens.recommendation.evidence import Evidence
from latentens.recommendation.expected_scores import Estimated
from latentens.recommendation.gold_numbers import (
    to_check_accuracy,
    to_measure_accuracy,
    to_tell_methods,
    to_tell_worlds,
)
from latentens.recommendation.gold_verdict import GoldVerdict
from latentens.recommendation.minimax import Choice

OPEN = 0.01
"""A loss of balanced accuracy above this leaves open which method to use."""

DISAGREE = 0.05
"""Worlds whose labels differ on more of the items than this disagree."""

UNREACHED = 0.03
"""It is worth a sentence if every method stays this far below the exact posterior."""

TOO_SURE = 0.1
"""A log score so much above that of the exact posterior is worth a sentence, in nats."""

NEAR_CHANCE = 0.02

UNSEEN = "each predicted by a fit that has not seen it"

NO_PROGRAM = "no program that was tried both describes them and identifies the label"

CAVEAT = (
    "None of this proves the labels right. What a program calls the label is whatever explains the votes best, and "
    "that may be something other than what you mean by it."
)

GOLD_CAVEAT = "Scores on gold labels hold for items like those that have one; they should be drawn at random."


def sentences(found: Evidence) -> list[str]:
    """The answer, then its reasons; each a sentence or a few."""
    if not found.signal.found:
        return [f"There is nothing to find. {found.signal.summary}", *_sample(found)]
    return [
        _answer(found),
        *_gold(found),
        *_sureness(found),
        *_worlds(found),
        *_open_questions(found),
        *_left_out(found),
        *_sample(found),
        *_last(found),
    ]


def _answer(found: Evidence) -> str:
    if found.choice is None:
        return (
            "No method can be recommended: none that was tried determines the label of these votes "
            f"({listing([*found.open_labels])})."
        )
    if found.gold is not None:
        return _gold_answer(found, found.choice, found.gold)
    if not found.scores:
        return _default_answer(found, found.choice)
    return _twin_answer(found, found.choice)


def _gold_answer(found: Evidence, choice: Choice, gold: GoldVerdict) -> str:
    """What the method does on gold labels, and whether that is what twins expect."""
    seen, best = gold.accuracy[choice.method], gold.accuracy[gold.best]
    words = (
        f"Use {choice.method}: of your {gold.number:,} gold labels, {UNSEEN}, it gets {percent(seen.value, 1)} right "
        f"(balanced accuracy; 95\u00a0% interval {span(seen)})"
    )
    if seen.low <= 1 / found.dataset.votes.num_classes:
        words += ", which may be no better than guessing"
    if seen.value < best.value:
        words += f"; {gold.best} gets {percent(best.value, 1)} right, a difference that they do not make clear."
    else:
        beaten = any(gold.accuracy[name].value > seen.value for name in found.open_labels if name in gold.accuracy)
        words += f", and no method {'that can be recommended ' if beaten else ''}gets more right."
    if found.scores:
        expected = found.expected("balanced_accuracy", choice.method)
        return (
            f"{words} Twins of the votes lead one to expect {span(expected)}, which the gold labels do not contradict."
        )
    return f"{words} Votes alone could not tell: {NO_PROGRAM}."


def _default_answer(found: Evidence, choice: Choice) -> str:
    most, why = found.dataset.votes.num_items, SAFEST.get(choice.method)
    numbers = [(to_measure_accuracy(margin), f"to within {100 * margin:.0f} points") for margin in (0.1, 0.05)]
    told = [f"{_rounded(number):,} {to}" for number, to in numbers if number <= most]
    needed = (
        f"Gold labels of items drawn at random would tell the accuracy: about {' and about '.join(told)}."
        if told
        else "Only gold labels of most of the items would tell."
    )
    better = [name for name in SAFEST if name in found.open_labels]
    safest = f"What is left is {choice.method}" if better else f"The safest choice is then {choice.method}"
    words = f"The votes cannot tell how accurate any method is: {NO_PROGRAM}. {safest}"
    return f"{words}{f': {why}' if why else ''}. {needed}"


def _twin_answer(found: Evidence, choice: Choice) -> str:
    method, chance = choice.method, 1 / found.dataset.votes.num_classes
    expected = found.expected("balanced_accuracy", method)
    words = f"Use {method}: on votes like these it is expected to label {span(expected)} of the items correctly"
    words += " (balanced accuracy)"
    if choice.worst is None or choice.loss < 0.0005:
        words += ", and no method does better in any world that is not ruled out."
    else:
        loss, where = points(choice.loss), choice.worst.name
        words += f", and it loses at most {loss} against the best method in any world that is not ruled out ({where})."
    if expected.low < chance + NEAR_CHANCE:
        return f"There may be little or nothing to find. If at all, {words[0].lower()}{words[1:]}"
    return words


def _gold(found: Evidence) -> Iterable[str]:
    """What else gold labels say about methods; all by one score, the balanced accuracy on the same labels."""
    gold, choice = found.gold, found.choice
    if gold is None or choice is None:
        return
    worse = [f"{name} ({_right(gold, name)})" for name in gold.worse]
    aside = {*gold.worse, *found.open_labels, choice.method}
    rest = [name for name in gold.accuracy if name not in aside]
    if worse:
        yield f"Clearly worse on the {gold.number:,} gold labels, by a paired test: {', '.join(worse)}."
    if rest:
        yield f"Not clearly better or worse than {choice.method} on the {gold.number:,} gold labels: {', '.join(rest)}."
    if rest and choice.worst is not None:
        yield (
            f"Among methods that the {gold.number:,} gold labels leave level, {choice.method} loses least in the worst "
            f"of the worlds: {points(choice.loss)}."
        )
    elif len(gold.level) > 1 and choice.method in SAFEST:
        yield (
            f"The {gold.number:,} gold labels leave {listing(gold.level)} level, by labels and by log score. Of these "
            f"{choice.method} is the safest: {SAFEST[choice.method]}."
        )
    elif len(choice.equals) > 1:
        yield (
            f"Among methods whose labels the {gold.number:,} gold labels leave level, {choice.method} has the best log "
            f"score on them: {gold.log_score[choice.method]:.2f}."
        )


def _right(gold: GoldVerdict, method: str) -> str:
    return percent(gold.accuracy[method].value, 1)


def _sureness(found: Evidence) -> Iterable[str]:
    """Whether probabilities can be taken at face value: by gold labels, or else by twins."""
    choice = found.choice
    if choice is None:
        return
    if found.gold is not None:
        gap = found.gold.gap[choice.method]
        if not gap.low <= 0 <= gap.high:
            kind = "overconfident" if gap.value > 0 else "too modest"
            low, high = sorted((100 * abs(gap.low), 100 * abs(gap.high)))
            yield (
                f"The probabilities of {choice.method} are {kind}: on the {found.gold.number:,} gold labels its mean "
                f"confidence is {points(abs(gap.value))} {'above' if gap.value > 0 else 'below'} its accuracy "
                f"({low:.0f} to {high:.0f})."
            )
        return
    if not found.scores:
        return
    possible = found.expected("log_score", None)
    for method in dict.fromkeys((choice.method, "DawidSkeneEM")):
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
    if kept:
        yield f"Worlds that are not ruled out: {', '.join(kept)}."
    for world in found.worlds:
        words = found.verdicts[world.name].ruled_out
        if words:
            check = f" {world.check_words}" if world.contradicted and not kept else ""
            yield f"Ruled out: {world.name}, which {words}.{check}"
    for name, reason in found.absent.items():
        yield f"Left out: {name}; {reason}."


def _open_questions(found: Evidence) -> Iterable[str]:
    """What the worlds that are left do not settle, and how many gold labels would, if there are not as many already."""
    choice, votes = found.choice, found.dataset.votes
    if choice is None:
        return
    given = 0 if found.gold is None else found.gold.number
    by_world = {part.world: part for part in found.scores}
    if choice.worst is not None and choice.loss > OPEN:
        number = to_tell_methods(by_world[choice.worst.name], choice.worst.best, choice.method)
        if number > given:
            yield (
                f"In the world {choice.worst.name} {choice.worst.best} has better labels than {choice.method}: "
                f"{gold_text(number, votes.num_items)} would tell which of the two to use."
            )
    if (pair := found.disagreement) is not None and pair[0] > DISAGREE:
        share, first, second = pair
        number = to_tell_worlds(first.posterior, second.posterior)
        if number > given:
            yield (
                f"{first.name} and {second.name} explain the votes about equally well but give different labels to "
                f"{percent(share)} of the items: {gold_text(number, votes.num_items)} would tell which to believe."
            )
    for part in found.scores:
        gap = part.gain("balanced_accuracy", None, part.best("balanced_accuracy", part.methods))
        if gap.mean > UNREACHED:
            yield (
                f"If the world is {part.world}, every method stays {points(gap.mean)} or more below what is possible: "
                "the votes alone do not show where the exact posterior lies. Gold labels would."
            )


def _left_out(found: Evidence) -> Iterable[str]:
    gold = found.gold
    for method, words in found.open_labels.items():
        right = f" ({_right(gold, method)} of the {gold.number:,} gold labels)" if gold is not None else ""
        yield f"Not recommended: {method}{right}, since {words}."
    for method, reason in found.failed.items():
        yield f"{method} failed and was left out: {reason}."


def _sample(found: Evidence) -> Iterable[str]:
    used = found.dataset.votes.num_items
    if used < found.num_items:
        yield f"All this rests on a sample of {used:,} of the {found.num_items:,} items."


def _last(found: Evidence) -> Iterable[str]:
    if found.gold is not None:
        yield GOLD_CAVEAT
    elif found.scores and found.choice is not None:
        expected = found.expected("balanced_accuracy", found.choice.method)
        words = gold_text(to_check_accuracy(expected.value), found.dataset.votes.num_items)
        yield f"{CAVEAT} {words[0].upper()}{words[1:]} would show whether the accuracy is 10 points lower."
    else:
        yield CAVEAT


def listing(names: Sequence[str]) -> str:
    """Names as a sentence lists them."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


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


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}\u00a0%"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:.1f} points"
