"""The summary of a report in plain language."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from latentens.comparison import EXACT
from latentens.recommendation.recommend import GROUP
from latentens.recommendation.text import listing
from latentens.reporting.findings import Findings, Leader, gap_text
from latentens.reporting.tables import Means, Pairs, agreement
from latentens.reporting.view import FitRecord, View
from latentens.runtime.text import probability_text
from latentens.scores import CONFIDENT

MOST_EXAMPLES = 4
TRUSTWORTHY = 0.03
"""Probabilities whose debiased calibration error is surely above this cannot be taken at face value."""


@dataclass(frozen=True)
class Reason:
    """A sentence or two, and perhaps examples."""

    text: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What to make of a data set.

    Attributes:
        headline: Which method to trust, in a sentence or two.
        reasons: Why.
        troubles: Fits that failed or warn.
    """

    headline: str
    reasons: tuple[Reason, ...]
    troubles: tuple[str, ...]


def summarise(view: View, means: Means, pairs: Pairs, findings: Findings) -> Summary:
    """Say what was found on one data set; the arguments are those of `findings.find` and its result."""
    if not view.estimates:
        return Summary("Every method failed here.", (), _troubles(view))
    if findings.labels is None or findings.probabilities is None:
        headline = _recommended(view) or (
            "No label is known here, so methods can only be compared with each other. Which of them to trust on votes "
            "like these, latentens recommend can say."
        )
        return Summary(headline, (*_unlabelled_reasons(view, means), *_distance_reasons(view, means)), _troubles(view))
    reasons = (
        _label_reason(view, means, pairs, findings.labels),
        _probability_reason(view, means, pairs, findings.probabilities),
        *_sureness_reasons(view, means, findings),
        *_modesty_reasons(view, findings),
        *_impossible_reasons(view, findings),
    )
    headline = _recommended(view) or _headline(view, means, findings, findings.labels, findings.probabilities)
    return Summary(headline, reasons, _troubles(view))


def _recommended(view: View) -> str:
    """The answer of a recommendation from twins of the votes; empty if there is none."""
    if GROUP not in view.node.children:
        return ""
    return str(json.loads(view.node[GROUP].attrs["sentences"])[0])


def summarise_all(found: dict[str, Findings]) -> list[str]:
    """What holds over several data sets, whose findings are given by name."""
    judged = {name: findings for name, findings in found.items() if findings.labels is not None}
    if len(judged) < 2:
        return []
    words = [
        _winner(f"By {what}", {name: getattr(findings, attribute) for name, findings in judged.items()})
        for what, attribute in (("labels", "labels"), ("stated probabilities", "probabilities"))
    ]
    sure = [name for name, findings in judged.items() if any(gap > 0 for gap in findings.gaps.values())]
    if sure:
        words.append(
            f"Some methods are far too sure of themselves on {listing(sure)}: their sections say which and why."
        )
    return words


def _winner(opening: str, leaders: dict[str, Leader]) -> str:
    wins: dict[str, list[str]] = {}
    for name, leader in leaders.items():
        for method in (leader.method, *leader.tied):
            wins.setdefault(method, []).append(name)
    best = max(wins, key=lambda method: len(wins[method]))
    return (
        f"{opening}, {best} is the best method or level with the best on {len(wins[best])} of "
        f"{len(leaders)} data sets ({listing(wins[best])})."
    )


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}\u00a0%"


def _headline(view: View, means: Means, findings: Findings, labels: Leader, probabilities: Leader) -> str:
    """What to do, in a sentence or two; "trust" only where there are labels enough and the accuracy is not poor."""
    trusted = probabilities.method
    known = "gold labels" if view.is_scored_by_gold else "labels"
    here = f" on your {view.num_known:,} gold labels" if view.is_scored_by_gold else " here"
    if not labels.others:
        words = f"Only {trusted} gave a result here: there is no other method to compare it with."
    elif findings.scarce:
        words = f"Too few {known} are known here ({view.num_known:,}) to say which method to trust."
    elif means[labels.method, "balanced_accuracy"].low < _poor(view):
        words = f"Trust none of the methods{here}: even the best labels, those of {labels.method}, are poor."
    elif not labels.behind and not probabilities.behind:
        words = f"The methods are level: no difference between them is clear{here}. {trusted} has the best log score."
    elif trusted == labels.method and not labels.tied and not probabilities.tied:
        words = f"Trust {trusted}: its labels and its probabilities are the best{here}."
    elif trusted == labels.method or trusted in labels.tied:
        words = f"Trust {trusted}: no method{here} has clearly better labels or clearly better probabilities."
    else:
        words = f"Take the labels from {labels.method} and the probabilities from {trusted}."
    error = means.get((trusted, "calibration_error_debiased"))
    off = max(0.0 if error is None else error.low, findings.gaps.get(trusted, 0.0))  # gaps are clear ones
    if labels.others and off > TRUSTWORTHY:
        words += f" Do not take the probabilities of {trusted} at face value."
    return words


def _poor(view: View) -> float:
    """Half way from guessing to knowing: balanced accuracies below are called poor."""
    return (1 + 1 / len(view.class_names)) / 2


def _label_reason(view: View, means: Means, pairs: Pairs, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "balanced_accuracy")
    on = f" on {view.labels_text}" if view.is_scored_by_gold else ""
    words = f"Labels: {leader.method} reaches a balanced accuracy of {reached}{on}"
    if view.exact is not None:
        words += f"; the best these votes allow is {percent(means[EXACT, 'balanced_accuracy'].value, 1)}"
    if leader.others:
        few = f"{view.num_known:,} {'gold labels' if view.is_scored_by_gold else 'labelled items'}"
        words += f". With {few}, {_standing(pairs, leader, 'balanced_accuracy')}"
    return Reason(words + ".")


def _standing(pairs: Pairs, leader: Leader, score: str) -> str:
    """Who is level with the leader by a score, and who is clearly behind."""
    parts = [f"{listing(leader.tied)} {'is' if len(leader.tied) == 1 else 'are'} level with it"] if leader.tied else []
    if leader.behind:
        nearest = leader.behind[0]
        pair = pairs[score, leader.method, nearest]
        gap = gap_text(score, pair.difference)
        others = " and the others further still" if len(leader.behind) > 1 else ""
        parts.append(f"{nearest} is clearly behind, by {gap} ({probability_text(pair.p_value)}){others}")
    return "; ".join(parts)


def _probability_reason(view: View, means: Means, pairs: Pairs, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "log_score")
    on = f" on the {view.num_known:,} gold labels" if view.is_scored_by_gold else ""
    words = f"Probabilities: {leader.method} has the best log score{on}, {reached}"
    if view.exact is not None:
        words += f"; that of the exact posterior is {means[EXACT, 'log_score'].value:.2f}"
    if leader.others:
        words += f". By that score, {_standing(pairs, leader, 'log_score')}"
    error = means.get((leader.method, "calibration_error"))
    off = "" if error is None else f" Its stated confidence is off by {100 * error.value:.1f} points on average."
    return Reason(f"{words}.{off}")


def _with_interval(means: Means, method: str, score: str) -> str:
    mean, in_percent = means[method, score], score == "balanced_accuracy"
    reached = percent(mean.value, 1) if in_percent else f"{mean.value:.2f} nats"
    ends = mean.ends(1, 100.0) if in_percent else mean.ends()
    return f"{reached} (95\u00a0% interval {ends})" if ends else reached


def _sureness_reasons(view: View, means: Means, findings: Findings) -> list[Reason]:
    sure = [method for method, gap in findings.gaps.items() if gap > 0]
    if not sure:
        return []
    by = f", by the {view.num_known:,} gold labels" if view.is_scored_by_gold else ""
    words = f"Overconfidence: {listing(sure)} {'is' if len(sure) == 1 else 'are'} too sure{by}."
    if (found := findings.dependence) is not None and found.strongest is not None:
        first, second = (view.voter_names[voter] for voter in found.strongest)
        words += (
            f" A likely reason: voters depend on each other. Among items with the same true label, "
            f"{found.num_dependent:,} of {found.num_checked:,} pairs of voters still agree more than chance explains; "
            f"the strongest correlation is {found.correlation:.2f}, between {first} and {second}. A method that takes "
            "voters to be independent counts the same evidence several times."
        )
    return [Reason(words, tuple(_sure_example(view, means, method) for method in sure[:MOST_EXAMPLES]))]


def _sure_example(view: View, means: Means, method: str) -> str:
    share, wrong = means[method, "confident_share"].value, means.get((method, "confident_wrong"))
    words = f"{method} puts {percent(share)} of the items above {CONFIDENT:g}"
    if view.exact is not None:
        words += f", the exact posterior {percent(means[EXACT, 'confident_share'].value)}"
    if wrong is not None:
        whose = "gold labels" if view.is_scored_by_gold else "labels"
        ends = f" (95\u00a0% interval {wrong.ends(0, 100.0)})" * (view.is_scored_by_gold and bool(wrong.ends()))
        words += (
            f"; {percent(wrong.value, 1)}{ends} of those {whose} are wrong, and at most {percent(1 - CONFIDENT)} "
            "should be"
        )
    return f"{words}. Its log score is {means[method, 'log_score'].value:.2f}."


def _modesty_reasons(view: View, findings: Findings) -> list[Reason]:
    modest = [f"{method} ({-100 * gap:.0f} points)" for method, gap in findings.gaps.items() if gap < 0]
    if not modest:
        return []
    known = f"of the {view.num_known:,} gold labels more" if view.is_scored_by_gold else "more labels"
    return [Reason(f"Too modest: {known} are right than the stated confidence suggests, for {listing(modest)}.")]


def _impossible_reasons(view: View, findings: Findings) -> list[Reason]:
    return [
        Reason(
            f"{method} all but ruled out the true label of {count:,} of the {view.num_known:,} labelled items, stating "
            "a probability below one in a trillion. Such items weigh heavily on its log score."
        )
        for method, count in findings.impossible.items()
    ]


def _unlabelled_reasons(view: View, means: Means) -> list[Reason]:
    same, reasons = agreement(view), []
    if same:
        most, least = max(same, key=lambda pair: same[pair]), min(same, key=lambda pair: same[pair])
        labels = np.array([probs.argmax(axis=1) for probs in view.posteriors.values()])
        everywhere = float((labels == labels[0]).all(axis=0).mean())
        reasons.append(
            f"All {len(labels)} methods give the same label to {percent(everywhere, 1)} of the items. Most alike are "
            f"{listing(most)} ({percent(same[most], 1)}), least alike {listing(least)} ({percent(same[least], 1)})."
            if everywhere < 1
            else f"All {len(labels)} methods give the same label to every item."
        )
    sure = {method: means[method, "confident_share"].value for method in view.posteriors}
    shares = [f"{method} {percent(share)}" for method, share in sorted(sure.items(), key=lambda item: -item[1])]
    reasons.append(
        f"Share of items labelled with a probability above {CONFIDENT:g}: {', '.join(shares)}. A method that is surer "
        "need not be right more often: where voters depend on each other, methods that take them to be independent are "
        "far too sure."
    )
    if not _recommended(view):
        reasons.append(
            "To learn which method to trust, run latentens recommend on the votes: it scores every method on simulated "
            "twins of them. Or label a few hundred items drawn at random and compare again."
        )
    return [Reason(words) for words in reasons]


def _distance_reasons(view: View, means: Means) -> list[Reason]:
    if view.exact is None:
        return []
    divergence = {method: means[method, "mean_kl"].value for method in view.estimates}
    best = min(divergence, key=lambda method: divergence[method])
    words = (
        f"The exact posterior is known: {best} comes closest to it, with a mean divergence of {divergence[best]:.3f}"
    )
    return [Reason(f"{words} nats.")]


def _troubles(view: View) -> tuple[str, ...]:
    """Errors, fallbacks and warnings, each said once however many repetitions have it."""
    said: dict[str, int] = {}
    for fit in view.fits:
        for words in _fit_troubles(fit):
            said[words] = said.get(words, 0) + 1
    return tuple(words if count == 1 else f"{words} (in {count} repetitions)" for words, count in said.items())


def _fit_troubles(fit: FitRecord) -> Iterable[str]:
    diagnostics = fit.diagnostics
    if fit.error:
        yield f"{fit.method} failed: {fit.error}"
    if diagnostics.get("fallback"):
        yield f"{fit.method} fell back: {diagnostics['fallback']}"
    warnings = [*diagnostics.get("warnings", ()), *diagnostics.get("label_doubts", ())]
    for warning in warnings:
        yield f"{fit.method} warns: {warning}"
    for note in diagnostics.get("notes", ()):
        yield f"{fit.method} notes: {note}"
    if diagnostics.get("converged") is False and not warnings:
        yield f"{fit.method} did not converge"
    if diagnostics.get("tree_supported") is False:
        yield f"{fit.method} notes: {diagnostics['structure']}"
