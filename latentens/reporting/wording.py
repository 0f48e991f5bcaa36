"""The summary of a report in plain language."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from latentens.comparison import EXACT
from latentens.evaluation.statistics import CONFIDENT
from latentens.reporting.findings import Findings, Leader
from latentens.reporting.score_tables import Means, Pairs, agreement
from latentens.reporting.view import FitRecord, View

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
        headline = "No label is known here: no score can tell which method is right, only how far the methods agree."
        return Summary(headline, (*_unlabelled_reasons(view, means), *_distance_reasons(view, means)), _troubles(view))
    reasons = (
        _label_reason(view, means, pairs, findings.labels),
        _probability_reason(view, means, findings.probabilities),
        *_sureness_reasons(view, means, findings),
        *_modesty_reasons(findings),
        *_impossible_reasons(findings),
    )
    return Summary(_headline(means, findings.labels, findings.probabilities), reasons, _troubles(view))


def summarise_all(found: dict[str, Findings]) -> list[str]:
    """What holds over several data sets, whose findings are given by name."""
    judged = {name: findings for name, findings in found.items() if findings.labels is not None}
    if len(judged) < 2:
        return []
    words = [
        _winner(f"By its {what}", {name: getattr(findings, attribute) for name, findings in judged.items()})
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
        f"{opening}, {best} is the best method, or cannot be told apart from the best, on {len(wins[best])} of "
        f"{len(leaders)} data sets ({listing(wins[best])})."
    )


def listing(names: Iterable[str]) -> str:
    """Names as a sentence lists them."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}\u00a0%"


def probability_text(p_value: float) -> str:
    """A p-value as people write it."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _headline(means: Means, labels: Leader, probabilities: Leader) -> str:
    trusted = probabilities.method
    if not labels.others:
        words = f"Only {trusted} gave a result here: there is no other method to compare it with."
    elif not labels.behind and not probabilities.behind:
        words = f"No method wins: these items cannot tell the methods apart. {trusted} has the best log score."
    elif trusted == labels.method:
        words = f"Trust {trusted}: both its labels and its probabilities are the best of the methods here."
    elif trusted in labels.tied:
        words = (
            f"Trust {trusted}: its probabilities are the best, and its labels cannot be told apart from the best ones "
            f"({labels.method})."
        )
    else:
        words = f"Take the labels from {labels.method}, but the probabilities from {trusted}."
    if means[trusted, "calibration_error_debiased"].low > TRUSTWORTHY:
        words += " But do not take its probabilities at face value."
    return words


def _label_reason(view: View, means: Means, pairs: Pairs, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "balanced_accuracy")
    words = f"Labels: {leader.method} reaches a balanced accuracy of {reached}"
    if view.exact is not None:
        words += f"; the best that these votes allow is {percent(means[EXACT, 'balanced_accuracy'].value, 1)}"
    if leader.tied:
        tied = listing(leader.tied)
        words += f". With {view.num_known:,} labelled items it cannot be told apart from {tied} (McNemar's test)"
    if leader.behind:
        difference = pairs["accuracy", leader.method, leader.behind[0]].difference
        behind = f"{leader.behind[0]} gets {100 * difference:.1f} points fewer of the items right"
        words += f". {behind}, more than chance explains"
    return Reason(words + ".")


def _probability_reason(view: View, means: Means, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "log_score")
    words = f"Probabilities: {leader.method} has the best log score, {reached} nats"
    if view.exact is not None:
        words += f", where the exact posterior has {means[EXACT, 'log_score'].value:.2f}"
    if leader.tied:
        words += f"; {listing(leader.tied)} cannot be told apart from it"
    error = means[leader.method, "calibration_error"].value
    return Reason(
        f"{words}. Its stated confidence misses the share of right labels by {100 * error:.1f} points on average."
    )


def _with_interval(means: Means, method: str, score: str) -> str:
    value, low, high, _ = means[method, score]
    if score == "balanced_accuracy":
        return f"{percent(value, 1)} (95\u00a0% interval {100 * low:.1f} to {100 * high:.1f})"
    return f"{value:.2f} (95\u00a0% interval {low:.2f} to {high:.2f})"


def _sureness_reasons(view: View, means: Means, findings: Findings) -> list[Reason]:
    sure = [method for method, gap in findings.gaps.items() if gap > 0]
    if not sure:
        return []
    words = f"Overconfidence: {listing(sure)} {'is' if len(sure) == 1 else 'are'} too sure."
    if findings.dependent:
        words += (
            " The likely reason: these voters depend on each other. Among items with the same true label, the votes of "
            f"two voters still correlate by {findings.dependence:.2f} on average (by chance: "
            f"{findings.chance_dependence:.2f}), and a method that takes voters as independent counts the same "
            "evidence several times."
        )
    return [Reason(words, tuple(_sure_example(view, means, method) for method in sure[:MOST_EXAMPLES]))]


def _sure_example(view: View, means: Means, method: str) -> str:
    share, wrong = means[method, "confident_share"].value, means.get((method, "confident_wrong"))
    words = f"{method} puts {percent(share)} of the items above {CONFIDENT:g}"
    if view.exact is not None:
        words += f", the exact posterior {percent(means[EXACT, 'confident_share'].value)}"
    if wrong is not None:
        words += f"; {percent(wrong.value, 1)} of those labels are wrong, where {percent(1 - CONFIDENT)} would be many"
    return f"{words}. Its log score is {means[method, 'log_score'].value:.2f}."


def _modesty_reasons(findings: Findings) -> list[Reason]:
    modest = [f"{method} ({-100 * gap:.0f} points)" for method, gap in findings.gaps.items() if gap < 0]
    if not modest:
        return []
    return [Reason(f"Too modest: more labels are right than the stated confidence says for {listing(modest)}.")]


def _impossible_reasons(findings: Findings) -> list[Reason]:
    return [
        Reason(
            f"{method} gave the true label of {count:,} items a probability of zero, which alone ruins its log score."
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
        )
    sure = {method: means[method, "confident_share"].value for method in view.posteriors}
    shares = [f"{method} {percent(share)}" for method, share in sorted(sure.items(), key=lambda item: -item[1])]
    reasons.append(
        f"Items above {CONFIDENT:g}: {', '.join(shares)}. A method that is surer need not be right more often: where "
        "voters depend on each other, methods that take them as independent are far too sure."
    )
    reasons.append(
        "To learn which method to trust, label some hundred items drawn at random and compare again with these."
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
    for warning in diagnostics.get("warnings", ()):
        yield f"{fit.method} warns: {warning}"
    if diagnostics.get("converged") is False and not diagnostics.get("warnings"):
        yield f"{fit.method} did not converge"
    if diagnostics.get("tree_supported") is False:
        yield f"{fit.method} notes: {diagnostics['structure']}"
