"""The conclusions of a report in words."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from latentens.comparison import EXACT, DatasetResult, Outcome
from latentens.recommendation.recommend import GROUP
from latentens.reporting.conclusions import Findings, Leader, gap_text
from latentens.reporting.tables import Means, Pairs, agreement
from latentens.runtime.text import listing, percent, probability_text
from latentens.scores import CONFIDENT


@dataclass(frozen=True)
class Reason:
    """A sentence or two, and perhaps examples."""

    text: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """The conclusions on a data set.

    Attributes:
        headline: Which method to trust, in a sentence or two.
        reasons: Why.
        warnings: Fits that failed or warn.
    """

    headline: str
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]


def summarise(data: DatasetResult, means: Means, pairs: Pairs, findings: Findings) -> Summary:
    """Conclusions on one data set in words; the arguments are those of `conclusions.find` and its result."""
    if not data.estimates:
        return Summary("Every method failed.", (), _warnings(data))
    if findings.labels is None or findings.probabilities is None:
        headline = _recommended(data) or (
            "No labels are known, so methods can only be compared with each other. To find out which of them to trust, "
            "run latentens recommend."
        )
        return Summary(headline, (*_unlabelled_reasons(data, means), *_distance_reasons(data, means)), _warnings(data))
    reasons = (
        _label_reason(data, means, pairs, findings.labels),
        _probability_reason(data, means, pairs, findings.probabilities),
        *_sureness_reasons(data, means, findings),
        *_modesty_reasons(data, findings),
        *_impossible_reasons(data, findings),
    )
    headline = _recommended(data) or _headline(data, means, findings, findings.labels, findings.probabilities)
    return Summary(headline, reasons, _warnings(data))


def _recommended(data: DatasetResult) -> str:
    """The answer of a recommendation from twins of the votes; empty if there is none."""
    return str(data.groups[GROUP]["sentence"].values[0]) if GROUP in data.groups else ""


def summarise_all(found: dict[str, Findings]) -> list[str]:
    """Conclusions over several data sets, whose findings are given by name."""
    judged = {name: findings for name, findings in found.items() if findings.labels is not None}
    if len(judged) < 2:
        return []
    words = [
        _winner(f"By {what}", {name: getattr(findings, attribute) for name, findings in judged.items()})
        for what, attribute in (("labels", "labels"), ("stated probabilities", "probabilities"))
    ]
    sure = [name for name, findings in judged.items() if any(gap > 0 for gap in findings.gaps.values())]
    if sure:
        words.append(f"Some methods are overconfident on {listing(sure)}: see their sections.")
    return words


def _winner(opening: str, leaders: dict[str, Leader]) -> str:
    wins: dict[str, list[str]] = {}
    for name, leader in leaders.items():
        for method in (leader.method, *leader.tied):
            wins.setdefault(method, []).append(name)
    best = max(wins, key=lambda method: len(wins[method]))
    return (
        f"{opening}, {best} is the best method or tied with the best on {len(wins[best])} of "
        f"{len(leaders)} data sets ({listing(wins[best])})."
    )


def _headline(
    data: DatasetResult,
    means: Means,
    findings: Findings,
    labels: Leader,
    probabilities: Leader,
    trustworthy: float = 0.03,
) -> str:
    """Which method to trust, if any: only with enough labels and an accuracy that is not poor."""
    trusted = probabilities.method
    known = "gold labels" if data.is_scored_by_gold else "labels"
    here = f" on your {data.num_known:,} gold labels" if data.is_scored_by_gold else " on these items"
    if not labels.others:
        words = f"Only {trusted} gave a result: there is no other method to compare it with."
    elif findings.scarce:
        words = f"Too few {known} are known ({data.num_known:,}) to say which method to trust."
    elif means[labels.method, "balanced_accuracy"].low < _poor(data):
        words = f"Trust none of the methods{here}: even the best labels, those of {labels.method}, are poor."
    elif not labels.behind and not probabilities.behind:
        words = f"The methods are statistically tied{here}. {trusted} has the best log score."
    elif trusted == labels.method and not labels.tied and not probabilities.tied:
        words = f"Trust {trusted}: its labels and its probabilities are the best{here}."
    elif trusted == labels.method or trusted in labels.tied:
        words = f"Trust {trusted}: no method has significantly better labels or probabilities{here}."
    else:
        words = f"Take the labels from {labels.method} and the probabilities from {trusted}."
    error = means.get((trusted, "calibration_error_debiased"))
    off = max(0.0 if error is None else error.low, findings.gaps.get(trusted, 0.0))  # gaps are clear ones
    if labels.others and off > trustworthy:
        words += f" Do not take the probabilities of {trusted} at face value."
    return words


def _poor(data: DatasetResult) -> float:
    """Half way from chance to perfect: balanced accuracies below are called poor."""
    return (1 + 1 / len(data.class_names)) / 2


def _label_reason(data: DatasetResult, means: Means, pairs: Pairs, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "balanced_accuracy")
    on = f" on {data.labels_text}" if data.is_scored_by_gold else ""
    words = f"Labels: {leader.method} reaches a balanced accuracy of {reached}{on}"
    if data.exact is not None:
        words += f"; the best possible with these votes is {percent(means[EXACT, 'balanced_accuracy'].value, 1)}"
    if leader.others:
        few = f"{data.num_known:,} {'gold labels' if data.is_scored_by_gold else 'labelled items'}"
        words += f". With {few}, {_standing(pairs, leader, 'balanced_accuracy')}"
    return Reason(words + ".")


def _standing(pairs: Pairs, leader: Leader, score: str) -> str:
    """The methods that are tied with the best by a score, and those that are significantly worse."""
    parts = [f"{listing(leader.tied)} {'is' if len(leader.tied) == 1 else 'are'} tied with it"] if leader.tied else []
    if leader.behind:
        nearest = leader.behind[0]
        pair = pairs[score, leader.method, nearest]
        gap = gap_text(score, pair.difference)
        others = "; the others are worse still" if len(leader.behind) > 1 else ""
        parts.append(f"{nearest} is significantly worse, by {gap} ({probability_text(pair.p_value)}){others}")
    return "; ".join(parts)


def _probability_reason(data: DatasetResult, means: Means, pairs: Pairs, leader: Leader) -> Reason:
    reached = _with_interval(means, leader.method, "log_score")
    on = f" on the {data.num_known:,} gold labels" if data.is_scored_by_gold else ""
    words = f"Probabilities: {leader.method} has the best log score{on}, {reached}"
    if data.exact is not None:
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


def _sureness_reasons(data: DatasetResult, means: Means, findings: Findings, most: int = 4) -> list[Reason]:
    sure = [method for method, gap in findings.gaps.items() if gap > 0]
    if not sure:
        return []
    by = f", by the {data.num_known:,} gold labels" if data.is_scored_by_gold else ""
    words = f"Overconfidence: {listing(sure)} {'is' if len(sure) == 1 else 'are'} overconfident{by}."
    if (found := findings.dependence) is not None and found.strongest is not None:
        first, second = (data.voter_names[voter] for voter in found.strongest)
        words += (
            f" A likely reason: voters depend on each other. Among items with the same true label, "
            f"{found.num_dependent:,} of {found.num_checked:,} pairs of voters still agree more than by chance; the "
            f"strongest correlation is {found.correlation:.2f}, between {first} and {second}. A method that assumes "
            "independent voters counts the same evidence several times."
        )
    return [Reason(words, tuple(_sure_example(data, means, method) for method in sure[:most]))]


def _sure_example(data: DatasetResult, means: Means, method: str) -> str:
    share, wrong = means[method, "confident_share"].value, means.get((method, "confident_wrong"))
    words = f"{method} puts {percent(share)} of the items above {CONFIDENT:g}"
    if data.exact is not None:
        words += f", the exact posterior {percent(means[EXACT, 'confident_share'].value)}"
    if wrong is not None:
        whose = "gold labels" if data.is_scored_by_gold else "labels"
        ends = f" (95\u00a0% interval {wrong.ends(0, 100.0)})" * (data.is_scored_by_gold and bool(wrong.ends()))
        words += (
            f"; {percent(wrong.value, 1)}{ends} of those {whose} are wrong, where at most {percent(1 - CONFIDENT)} "
            "should be"
        )
    return f"{words}. Its log score is {means[method, 'log_score'].value:.2f}."


def _modesty_reasons(data: DatasetResult, findings: Findings) -> list[Reason]:
    modest = [f"{method} ({-100 * gap:.0f} points)" for method, gap in findings.gaps.items() if gap < 0]
    if not modest:
        return []
    known = f"of the {data.num_known:,} gold labels more" if data.is_scored_by_gold else "more labels"
    return [Reason(f"Underconfident: {known} are right than the stated confidence suggests, for {listing(modest)}.")]


def _impossible_reasons(data: DatasetResult, findings: Findings) -> list[Reason]:
    return [
        Reason(
            f"{method} practically ruled out the true label of {count:,} of the {data.num_known:,} labelled items, "
            "with a probability below one in a trillion. Such items dominate its log score."
        )
        for method, count in findings.impossible.items()
    ]


def _unlabelled_reasons(data: DatasetResult, means: Means) -> list[Reason]:
    same, reasons = agreement(data), []
    if same:
        most, least = max(same, key=lambda pair: same[pair]), min(same, key=lambda pair: same[pair])
        labels = np.array([probs.argmax(axis=1) for probs in data.posteriors.values()])
        everywhere = float((labels == labels[0]).all(axis=0).mean())
        reasons.append(
            f"All {len(labels)} methods give the same label to {percent(everywhere, 1)} of the items. Most similar are "
            f"{listing(most)} ({percent(same[most], 1)}), least similar {listing(least)} ({percent(same[least], 1)})."
            if everywhere < 1
            else f"All {len(labels)} methods give the same label to every item."
        )
    sure = {method: means[method, "confident_share"].value for method in data.posteriors}
    shares = [f"{method} {percent(share)}" for method, share in sorted(sure.items(), key=lambda item: -item[1])]
    reasons.append(
        f"Share of items labelled with a probability above {CONFIDENT:g}: {', '.join(shares)}. More confident does not "
        "mean more often right: where voters depend on each other, methods that assume independent voters are "
        "overconfident."
    )
    if not _recommended(data):
        reasons.append(
            "To find out which method to trust, run latentens recommend, which scores every method on simulated twins "
            "of the votes. Or label a few hundred items drawn at random and compare again."
        )
    return [Reason(words) for words in reasons]


def _distance_reasons(data: DatasetResult, means: Means) -> list[Reason]:
    if data.exact is None:
        return []
    divergence = {method: means[method, "mean_kl"].value for method in data.estimates}
    best = min(divergence, key=lambda method: divergence[method])
    words = (
        f"The exact posterior is known: {best} comes closest to it, with a mean divergence of {divergence[best]:.3f}"
    )
    return [Reason(f"{words} nats.")]


def _warnings(data: DatasetResult) -> tuple[str, ...]:
    """Errors, fallbacks and warnings, each once however many repetitions have it."""
    counts: dict[str, int] = {}
    for (_, method), fit in data.fits.items():
        for words in _fit_warnings(method, fit):
            counts[words] = counts.get(words, 0) + 1
    return tuple(words if count == 1 else f"{words} (in {count} repetitions)" for words, count in counts.items())


def _fit_warnings(method: str, fit: Outcome) -> Iterable[str]:
    diagnostics = fit.diagnostics
    if fit.error:
        yield f"{method} failed: {fit.error}"
    if diagnostics.fallback:
        yield f"{method} fell back: {diagnostics.fallback}"
    for warning in diagnostics.all_warnings:
        yield f"{method} warns: {warning}"
    for note in diagnostics.notes:
        yield f"{method} notes: {note}"
    if diagnostics.converged is False and not diagnostics.all_warnings:
        yield f"{method} did not converge"
    if diagnostics.extra.get("tree_supported") is False:
        yield f"{method} notes: {diagnostics.extra['structure']}"
