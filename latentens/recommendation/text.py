"""A recommendation in plain words: the answer first, then its reasons, then the open questions.

Which sentences there are depends on whether a model is plausible, so that there are twins to expect an accuracy from,
and on whether there are gold labels. With gold labels, the first accuracy stated is the one on them.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import xarray as xr

from latentens.recommendation import decision
from latentens.recommendation.candidates import SAFEST
from latentens.recommendation.decision import Choice, GoldScores, Interval, Recommendation
from latentens.runtime.text import listing, percent

NO_MODEL = "no candidate model both describes them and identifies the label"

CAVEAT = (
    "None of this proves the labels right: a model's label is whatever explains the votes best, which may differ from "
    "the label you have in mind."
)

GOLD_CAVEAT = "Scores on gold labels hold for items like those that have one, so these should be drawn at random."


def sentences(found: Recommendation) -> list[str]:
    """The answer, then its reasons; each a sentence or a few."""
    if not found.signal.found:
        return [f"There is nothing to find. {found.signal.summary}", *_sample(found)]
    limits = [*_left_out(found), *_sample(found), *_caveat(found)]
    if found.choice is None:
        answer = (
            "No method can be recommended: none of those tried identifies the label of these votes "
            f"({listing([*found.unidentified])})."
        )
        return [answer, *_models(found), *limits]
    reasons = [*_gold(found, found.choice), *_overconfidence(found, found.choice), *_models(found)]
    return [_answer(found, found.choice), *reasons, *_open_questions(found, found.choice), *limits]


def _answer(found: Recommendation, choice: Choice) -> str:
    if found.gold is not None:
        return _gold_answer(found, choice, found.gold)
    return _twin_answer(found, choice) if found.twins else _fallback_answer(found, choice)


def _gold_answer(found: Recommendation, choice: Choice, gold: GoldScores) -> str:
    seen, best = gold.accuracy[choice.method], gold.accuracy[gold.best]
    words = (
        f"Use {choice.method}: on your {gold.number:,} gold labels, each predicted by a fit that has not seen it, its "
        f"balanced accuracy is {percent(seen.value, 1)} (95\u00a0% interval {span(seen)})"
    )
    if seen.low <= 1 / found.dataset.votes.num_classes:
        words += ", which may be no better than guessing"
    if seen.value < best.value:
        words += f"; that of {gold.best} is {percent(best.value, 1)}, not a significant difference."
    else:
        beaten = any(gold.accuracy[name].value > seen.value for name in found.unidentified if name in gold.accuracy)
        words += f", and no {'eligible' if beaten else 'other'} method is more accurate."
    if found.twins:
        expected = found.expected("balanced_accuracy", choice.method)
        return f"{words} Simulated twins of the votes predict {span(expected)}, which is consistent with this."
    return f"{words} The votes alone do not settle it: {NO_MODEL}."


def _twin_answer(found: Recommendation, choice: Choice, near_chance: float = 0.02) -> str:
    expected = found.expected("balanced_accuracy", choice.method)
    words = f"Use {choice.method}: on votes like these its expected balanced accuracy is {span(expected)}"
    if choice.worst_model is None or choice.loss < 0.0005:
        words += ", and no other method is better under any plausible model."
    else:
        words += f", at most {points(choice.loss)} below the best method under any plausible model"
        words += f" ({choice.worst_model})."
    if expected.low < 1 / found.dataset.votes.num_classes + near_chance:
        return f"There may be little or nothing to find. Otherwise {words[0].lower()}{words[1:]}"
    return words


def _fallback_answer(found: Recommendation, choice: Choice) -> str:
    """The safest method, and how many gold labels would measure its accuracy: two standard errors are 1 / √n."""
    numbers = {margin: np.ceil(margin**-2) for margin in (0.1, 0.05)}
    texts = [
        f"about {_rounded(number):,} to within {100 * margin:.0f} points"
        for margin, number in numbers.items()
        if number <= found.dataset.votes.num_items
    ]
    needed = (
        f"Gold labels of items drawn at random would measure the accuracy: {' and '.join(texts)}."
        if texts
        else "Measuring the accuracy would take gold labels of most of the items."
    )
    excluded = any(name in found.unidentified for name in SAFEST)
    safest = "The remaining choice is" if excluded else "The safest choice is"
    why = f": {SAFEST[choice.method]}" if choice.method in SAFEST else ""
    return f"The votes cannot tell how accurate any method is: {NO_MODEL}. {safest} {choice.method}{why}. {needed}"


def _gold(found: Recommendation, choice: Choice) -> Iterable[str]:
    """The other methods on the gold labels, all by balanced accuracy."""
    if (gold := found.gold) is None:
        return
    labels = f"the {gold.number:,} gold labels"
    rest = [name for name in gold.accuracy if name not in {*gold.worse, *found.unidentified, choice.method}]
    if gold.worse:
        worse = (f"{name} ({percent(gold.accuracy[name].value, 1)})" for name in gold.worse)
        yield f"Significantly worse on {labels}, by a paired test: {', '.join(worse)}."
    if rest:
        yield f"Not significantly different from {choice.method} on {labels}: {', '.join(rest)}."
    if rest and choice.worst_model is not None:
        yield (
            f"Among the methods that are tied on {labels}, {choice.method} has the smallest worst-case loss over the "
            f"plausible models: {points(choice.loss)}."
        )
    elif len(gold.tied) > 1 and choice.method in SAFEST:
        yield (
            f"{listing(gold.tied)} are tied on {labels}, in labels and in log score. Of these, {choice.method} is the "
            f"safest: {SAFEST[choice.method]}."
        )
    elif len(choice.tied) > 1:
        yield (
            f"Among the methods whose labels are tied on {labels}, {choice.method} has the best log score: "
            f"{gold.log_score[choice.method]:.2f}."
        )


def _overconfidence(found: Recommendation, choice: Choice, nats: float = 0.1) -> Iterable[str]:
    """Whether probabilities can be trusted: by gold labels, or else by twins."""
    if found.gold is not None:
        gap = found.gold.gap[choice.method]
        if not gap.low <= 0 <= gap.high:
            kind, side = ("overconfident", "above") if gap.value > 0 else ("underconfident", "below")
            low, high = sorted((100 * abs(gap.low), 100 * abs(gap.high)))
            yield (
                f"The probabilities of {choice.method} are {kind}: on the {found.gold.number:,} gold labels its mean "
                f"confidence is {points(abs(gap.value))} {side} its accuracy ({low:.0f} to {high:.0f})."
            )
        return
    for method in dict.fromkeys((choice.method, "DawidSkeneEM")) if found.twins else ():
        if all(method in part.methods for part in found.twins):
            score, best = (found.expected("log_score", name).value for name in (method, None))
            if score - best > nats:
                yield (
                    f"The probabilities of {method} should not be trusted: their expected log score is {score:.2f}, "
                    f"that of the exact posterior {best:.2f}."
                )


def _models(found: Recommendation) -> Iterable[str]:
    plausible = [model.name for model in found.plausible]
    if plausible:
        yield f"Plausible models: {', '.join(plausible)}."
    for model in found.models:
        if model.ruled_out:
            details = f" {model.check_summary}" if model.is_contradicted() and not plausible else ""
            yield f"Ruled out: {model.name}, which {model.ruled_out}.{details}"
    for name, reason in found.not_fitted.items():
        yield f"Not used: {name}; {reason}."


def _open_questions(
    found: Recommendation, choice: Choice, loss: float = 0.01, disagreement: float = 0.05, unreached: float = 0.03
) -> Iterable[str]:
    """What the plausible models do not settle, and how many gold labels would, if that is more than there are.

    Args:
        found: The recommendation.
        choice: The chosen method.
        loss: A loss of balanced accuracy above this leaves open which method to use.
        disagreement: Models whose labels differ on a larger share of the items disagree.
        unreached: A smallest distance of all methods from the exact posterior above this is mentioned.
    """
    num_items, given = found.dataset.votes.num_items, 0 if found.gold is None else found.gold.number
    by_model = {part.model: part for part in found.twins}
    if choice.worst_model is not None and choice.loss > loss:
        part = by_model[choice.worst_model]
        losses = part.losses("balanced_accuracy", part.methods)
        best = min(losses, key=lambda name: losses[name])
        number = decision.labels_to_separate_methods(part, best, choice.method)
        if number > given:
            yield (
                f"Under {part.model}, {best} has better labels than {choice.method}: "
                f"{gold_text(number, num_items)} would tell which of the two to use."
            )
    if (pair := found.disagreement) is not None and pair[0] > disagreement:
        share, first, second = pair
        number = decision.labels_to_separate_models(first.posterior, second.posterior)
        if number > given:
            yield (
                f"{first.name} and {second.name} explain the votes about equally well but give different labels to "
                f"{percent(share)} of the items: {gold_text(number, num_items)} would tell which is right."
            )
    for part in found.twins:
        gap = min(part.gain("balanced_accuracy", None, method) for method in part.methods)
        if gap > unreached:
            yield (
                f"If {part.model} is right, every method is {points(gap)} or more below the exact posterior, which the "
                "votes alone do not reveal. Gold labels would help."
            )


def _left_out(found: Recommendation) -> Iterable[str]:
    gold = found.gold
    for method, reason in found.unidentified.items():
        seen = f" ({percent(gold.accuracy[method].value, 1)} on the {gold.number:,} gold labels)" if gold else ""
        yield f"Not eligible: {method}{seen}, because {reason}."
    for method, reason in found.failed.items():
        yield f"{method} failed and was left out: {reason}."


def _sample(found: Recommendation) -> Iterable[str]:
    used = found.dataset.votes.num_items
    if used < found.num_items:
        yield f"All this is based on a sample of {used:,} of the {found.num_items:,} items."


def _caveat(found: Recommendation) -> Iterable[str]:
    if found.gold is not None:
        yield GOLD_CAVEAT
    elif found.twins and found.choice is not None:
        expected = found.expected("balanced_accuracy", found.choice.method)
        words = gold_text(decision.labels_to_check_accuracy(expected.value), found.dataset.votes.num_items)
        yield f"{CAVEAT} {words[0].upper()}{words[1:]} would show whether the accuracy is 10 points lower."
    else:
        yield CAVEAT


def gold_text(number: float, num_items: int) -> str:
    """A number of gold labels, for the beginning or the middle of a sentence."""
    if not np.isfinite(number) or number > num_items:
        return "more gold labels than there are items"
    return f"about {_rounded(number):,} gold labels of items drawn at random"


def _rounded(number: float) -> int:
    """Rounded up to two digits."""
    step = 10 ** max(int(np.floor(np.log10(max(number, 1)))) - 1, 0)
    return int(np.ceil(number / step) * step)


def span(interval: Interval) -> str:
    """An interval of a share, in percent."""
    low, high = (f"{100 * value:.0f}" for value in (interval.low, interval.high))
    return f"{low}\u00a0%" if low == high else f"{low}–{high}\u00a0%"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:.1f} points"


def briefly(group: xr.Dataset, short: Mapping[str, str]) -> xr.Dataset:
    """A recommendation with short names of methods."""
    group = group.copy()
    texts = [with_short_names(str(text), short) for text in group["sentence"].values]
    group["sentence"] = group["sentence"].dims, texts
    group.attrs["recommended"] = short.get(group.attrs["recommended"], group.attrs["recommended"])
    if "estimator" in group.coords:
        group = group.assign_coords(estimator=[short.get(str(name), str(name)) for name in group["estimator"].values])
    return group


def with_short_names(text: str, short: Mapping[str, str]) -> str:
    """A text with each full name replaced by its short one."""
    for name in sorted(short, key=len, reverse=True):
        text = text.replace(name, short[name])
    return text
