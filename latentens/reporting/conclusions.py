"""Conclusions of a comparison, in numbers and words: the best method, those not clearly worse, overconfident ones."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from latentens.checks import label_dependence
from latentens.checks.dependence import MAX_VOTERS
from latentens.comparison import EXACT, DatasetResult, Outcome
from latentens.recommendation.recommend import GROUP
from latentens.reporting.tables import Means, Pairs, agreement, ranked
from latentens.runtime.text import listing, percent, probability_text, rounds_to_nothing
from latentens.scores import CONFIDENT
from latentens.scores.scores import find_score

SIGNIFICANCE = 0.05
LEAST_KNOWN, LEAST_OF_CLASS = 50, 10
"""Minimum number of known labels, in total and of each class, to judge methods and voters by."""


LEADING = {"balanced_accuracy": "labels", "log_score": "stated probabilities"}
"""The scores by which methods are compared in words, and what each of them judges."""

NOT_DIFFERENT = "not significantly different"
"""What sentences say of methods that are tied: with few labels, they may be far apart."""


class Leader(NamedTuple):
    """The best method by one score.

    Attributes:
        method: Its name.
        tied: Methods that do not differ significantly from it, or whose difference is printed as zero.
        behind: The others, best first: those that are significantly worse.
    """

    method: str
    tied: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """All other methods."""
        return (*self.tied, *self.behind)


class Findings(NamedTuple):
    """Conclusions on one data set.

    Attributes:
        leaders: The best method by each of `LEADING`; none where no label is known.
        gaps: Mean stated confidence minus accuracy, of the methods where it is clear, largest first.
        impossible: Number of items whose true label a method practically ruled out, by method, where there are any.
        scarce: Whether the known labels are too few to say which method to trust.
    """

    leaders: Mapping[str, Leader]
    gaps: Mapping[str, float]
    impossible: Mapping[str, int]
    scarce: bool


def find(data: DatasetResult, means: Means, pairs: Pairs) -> Findings:
    """Draw conclusions on one data set.

    Args:
        data: The data set.
        means: Scores by method and score.
        pairs: Differences by score, method and other method.
    """
    known = data.labels >= 0
    counts = np.bincount(data.labels[known].astype(int), minlength=len(data.class_names))
    scarce = bool(counts.sum() < LEAST_KNOWN or counts.min() < LEAST_OF_CLASS)
    if not known.any() or not data.estimates:
        return Findings({}, {}, {}, scarce)
    truth, gaps, impossible = data.labels[known].astype(int), dict[str, float](), dict[str, int]()
    for method, posterior in data.scored_estimates.items():
        probs, interval = posterior[known], means.get((method, "confidence_gap"))
        excess = probs.max(axis=1) - (probs.argmax(axis=1) == truth)
        gap, error = float(excess.mean()), float(excess.std() / np.sqrt(len(excess)))
        # clear in standard errors, and by an interval made for few labels
        is_open = interval is not None and interval.low <= 0 <= interval.high
        if abs(gap) > max(0.02, 3 * error) and not is_open:
            gaps[method] = gap
        if count := int(np.sum(np.take_along_axis(probs, truth[:, None], axis=1) < 1e-12)):
            impossible[method] = count
    return Findings(
        {score: _leader(data, means, pairs, score) for score in LEADING},
        dict(sorted(gaps.items(), key=lambda item: -item[1])),
        impossible,
        scarce,
    )


def _leader(data: DatasetResult, means: Means, pairs: Pairs, score: str) -> Leader:
    """The best method by a score, and those that are significantly worse by the same score."""
    best, *others = ranked(find_score(score), {method: means[method, score] for method in data.estimates})
    sign = 1 if find_score(score).better == "larger" else -1
    tied, behind = list[str](), list[str]()
    for other in others:
        found = pairs[score, best, other]
        shown = not rounds_to_nothing(gap_text(score, found.difference))
        is_behind = found.p_value < SIGNIFICANCE and sign * found.difference > 0 and shown
        (behind if is_behind else tied).append(other)
    return Leader(best, tuple(tied), tuple(behind))


def gap_text(score: str, difference: float) -> str:
    """The size of a difference in a score, as sentences print it."""
    size = abs(difference)
    return f"{100 * size:.1f} points" if find_score(score).unit == "%" else f"{size:.2f} nats"


class Reason(NamedTuple):
    """A sentence or two, and perhaps examples."""

    text: str
    examples: tuple[str, ...] = ()


class Summary(NamedTuple):
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
    """Conclusions on one data set in words; the arguments are those of `find` and its result."""
    if not data.estimates:
        return Summary("Every method failed.", (), _warnings(data))
    headline = str(data.groups[GROUP]["sentence"].values[0]) if GROUP in data.groups else ""  # recommended from twins
    if not findings.leaders:
        reasons = [*map(Reason, _unlabelled_reasons(data, means, bool(headline)))]
        headline = headline or (
            "No labels are known, so methods can only be compared with each other. To find out which of them to trust, "
            "run latentens recommend."
        )
    else:
        headline = headline or _headline(data, means, findings)
        reasons = [
            Reason(_label_reason(data, means, pairs, findings.leaders["balanced_accuracy"])),
            Reason(_probability_reason(data, means, pairs, findings.leaders["log_score"])),
            *_confidence_reasons(data, means, findings),
        ]
    return Summary(headline, tuple(reasons), _warnings(data))


def summarise_all(found: dict[str, Findings]) -> list[str]:
    """Conclusions over several data sets, whose findings are given by name."""
    judged = {name: findings for name, findings in found.items() if findings.leaders}
    if len(judged) < 2:
        return []
    words = []
    for score, what in LEADING.items():
        wins: dict[str, list[str]] = {}
        for name, findings in judged.items():
            leader = findings.leaders[score]
            for method in (leader.method, *leader.tied):
                wins.setdefault(method, []).append(name)
        best = max(wins, key=lambda method: len(wins[method]))
        words.append(
            f"By {what}, {best} is the best method or {NOT_DIFFERENT} from the best on "
            f"{len(wins[best])} of {len(judged)} data sets ({listing(wins[best])})."
        )
    if sure := [name for name, findings in judged.items() if any(gap > 0 for gap in findings.gaps.values())]:
        words.append(f"Some methods are overconfident on {listing(sure)}: see their sections.")
    return words


def _headline(data: DatasetResult, means: Means, findings: Findings, off: float = 0.03) -> str:
    """Which method to trust, if any: only with enough labels to show that its accuracy is not poor."""
    labels, probabilities = findings.leaders["balanced_accuracy"], findings.leaders["log_score"]
    trusted, by_gold = probabilities.method, data.is_scored_by_gold
    here = f" on your {data.num_known:,} gold labels" if by_gold else " on these items"
    known, best = "gold labels" if by_gold else "labels", means[labels.method, "balanced_accuracy"]
    poor = (1 + 1 / len(data.class_names)) / 2  # half way from chance to perfect
    if not labels.others:
        return f"Only {trusted} gave a result: there is no other method to compare it with."
    if findings.scarce:
        words = f"Too few {known} are known ({data.num_known:,}) to say which method to trust."
    elif best.high < poor:
        words = f"Trust none of the methods{here}: even the best labels, those of {labels.method}, are poor."
    elif best.low < poor:
        words = (
            f"{data.num_known:,} {known} cannot show that the labels of any method are good: the balanced accuracy of "
            f"the best, those of {labels.method}, may be as low as {percent(best.low)}."
        )
    elif not labels.behind and not probabilities.behind:
        words = f"The methods are {NOT_DIFFERENT}{here}. {trusted} has the best log score."
    elif trusted == labels.method and not labels.tied and not probabilities.tied:
        words = f"Trust {trusted}: its labels and its probabilities are the best{here}."
    elif trusted == labels.method or trusted in labels.tied:
        words = f"Trust {trusted}: no method has significantly better labels or probabilities{here}."
    else:
        words = f"Take the labels from {labels.method} and the probabilities from {trusted}."
    error = means.get((trusted, "calibration_error_debiased"))
    if max(0.0 if error is None else error.low, findings.gaps.get(trusted, 0.0)) > off:  # gaps are clear ones
        words += f" Do not take the probabilities of {trusted} at face value."
    return words


def _label_reason(data: DatasetResult, means: Means, pairs: Pairs, leader: Leader) -> str:
    mean = means[leader.method, "balanced_accuracy"]
    reached = _with_ends(percent(mean.value, 1), mean.ends(1, 100.0))
    on = f" on {data.labels_text}" if data.is_scored_by_gold else ""
    words = f"Labels: {leader.method} reaches a balanced accuracy of {reached}{on}"
    if data.exact is not None:
        words += f"; the best possible with these votes is {percent(means[EXACT, 'balanced_accuracy'].value, 1)}"
    if leader.others:
        few = f"{data.num_known:,} {'gold labels' if data.is_scored_by_gold else 'labelled items'}"
        words += f". With {few}, {_standing(pairs, leader, 'balanced_accuracy')}"
    return f"{words}."


def _with_ends(value: str, ends: str) -> str:
    return f"{value} (95\u00a0% interval {ends})" if ends else value


def _standing(pairs: Pairs, leader: Leader, score: str) -> str:
    """The methods that do not differ significantly from the best by a score, and those that are worse."""
    parts = list[str]()
    if leader.tied:
        parts.append(f"{listing(leader.tied)} {'is' if len(leader.tied) == 1 else 'are'} {NOT_DIFFERENT} from it")
    if leader.behind:
        nearest = leader.behind[0]
        pair = pairs[score, leader.method, nearest]
        others = "; the others are worse still" if len(leader.behind) > 1 else ""
        gap = f"{gap_text(score, pair.difference)} ({probability_text(pair.p_value)})"
        parts.append(f"{nearest} is significantly worse, by {gap}{others}")
    return "; ".join(parts)


def _probability_reason(data: DatasetResult, means: Means, pairs: Pairs, leader: Leader) -> str:
    mean, error = means[leader.method, "log_score"], means.get((leader.method, "calibration_error"))
    on = f" on the {data.num_known:,} gold labels" if data.is_scored_by_gold else ""
    reached = _with_ends(f"{mean.value:.2f} nats", mean.ends())
    words = f"Probabilities: {leader.method} has the best log score{on}, {reached}"
    if data.exact is not None:
        words += f"; that of the exact posterior is {means[EXACT, 'log_score'].value:.2f}"
    if leader.others:
        words += f". By that score, {_standing(pairs, leader, 'log_score')}"
    off = "" if error is None else f" Its stated confidence is off by {100 * error.value:.1f} points on average."
    return f"{words}.{off}"


def _confidence_reasons(data: DatasetResult, means: Means, findings: Findings, most: int = 4) -> Iterable[Reason]:
    """Methods that are overconfident, underconfident, or rule out the truth."""
    sure = [method for method, gap in findings.gaps.items() if gap > 0]
    modest = [f"{method} ({-100 * gap:.0f} points)" for method, gap in findings.gaps.items() if gap < 0]
    by_gold, number = data.is_scored_by_gold, f"the {data.num_known:,} gold labels"
    if sure:
        by = f", by {number}" if by_gold else ""
        words = f"Overconfidence: {listing(sure)} {'is' if len(sure) == 1 else 'are'} overconfident{by}."
        yield Reason(words + _dependence(data), tuple(_sure_example(data, means, method) for method in sure[:most]))
    if modest:
        known = f"of {number} more" if by_gold else "more labels"
        yield Reason(f"Underconfident: {known} are right than the stated confidence suggests, for {listing(modest)}.")
    for method, count in findings.impossible.items():
        yield Reason(
            f"{method} practically ruled out the true label of {count:,} of the {data.num_known:,} labelled items, "
            "with a probability below one in a trillion. Such items dominate its log score."
        )


def _dependence(data: DatasetResult) -> str:
    """Voters that depend on each other given the true label; empty if none do or if this is unknown."""
    if data.votes.is_sparse or data.num_known < 2 or data.votes.num_voters > MAX_VOTERS:
        return ""
    found = label_dependence(data.votes.matrix, data.labels, len(data.class_names))
    pairs = found.dependent(SIGNIFICANCE)
    if not pairs:
        return ""
    first, second = (data.voter_names[voter] for voter in pairs[0])
    return (
        f" A likely reason: voters depend on each other. Among items with the same true label, {len(pairs):,} of "
        f"{np.triu(found.checked).sum():,} pairs of voters still agree more than by chance; the strongest correlation "
        f"is {found.correlation[pairs[0]]:.2f}, between {first} and {second}. A method that assumes independent voters "
        "counts the same evidence several times."
    )


def _sure_example(data: DatasetResult, means: Means, method: str) -> str:
    share, wrong = means[method, "confident_share"].value, means.get((method, "confident_wrong"))
    words = f"{method} puts {percent(share)} of the items above {CONFIDENT:g}"
    if data.exact is not None:
        words += f", the exact posterior {percent(means[EXACT, 'confident_share'].value)}"
    if wrong is not None:
        whose, ends = ("gold labels", wrong.ends(0, 100.0)) if data.is_scored_by_gold else ("labels", "")
        found = _with_ends(percent(wrong.value, 1), ends)
        words += f"; {found} of those {whose} are wrong, where at most {percent(1 - CONFIDENT)} should be"
    return f"{words}. Its log score is {means[method, 'log_score'].value:.2f}."


def _unlabelled_reasons(data: DatasetResult, means: Means, is_recommended: bool) -> Iterable[str]:
    if same := agreement(data):
        most, least = max(same, key=lambda pair: same[pair]), min(same, key=lambda pair: same[pair])
        labels = np.array([probs.argmax(axis=1) for probs in data.posteriors.values()])
        everywhere = float((labels == labels[0]).all(axis=0).mean())
        yield (
            f"All {len(labels)} methods give the same label to {percent(everywhere, 1)} of the items. Most similar are "
            f"{listing(most)} ({percent(same[most], 1)}), least similar {listing(least)} ({percent(same[least], 1)})."
            if everywhere < 1
            else f"All {len(labels)} methods give the same label to every item."
        )
    sure = {method: means[method, "confident_share"].value for method in data.posteriors}
    shares = [f"{method} {percent(share)}" for method, share in sorted(sure.items(), key=lambda item: -item[1])]
    yield (
        f"Share of items labelled with a probability above {CONFIDENT:g}: {', '.join(shares)}. More confident does not "
        "mean more often right: where voters depend on each other, methods that assume independent voters are "
        "overconfident."
    )
    if not is_recommended:
        yield (
            "To find out which method to trust, run latentens recommend, which scores every method on simulated twins "
            "of the votes. Or label a few hundred items drawn at random and compare again."
        )
    if data.exact is not None:
        best = min(data.estimates, key=lambda method: means[method, "mean_kl"].value)
        divergence = f"{means[best, 'mean_kl'].value:.3f}"
        yield f"The exact posterior is known: {best} comes closest to it, with a mean divergence of {divergence} nats."


def _warnings(data: DatasetResult) -> tuple[str, ...]:
    """Errors, fallbacks and warnings, each once however many repetitions have it."""
    counts = Counter(words for (_, method), fit in data.fits.items() for words in _fit_warnings(method, fit))
    return tuple(words if count == 1 else f"{words} (in {count} repetitions)" for words, count in counts.items())


def _fit_warnings(method: str, fit: Outcome) -> Iterable[str]:
    diagnostics = fit.diagnostics
    if fit.error:
        yield f"{method} failed: {fit.error}"
    if diagnostics.fallback:
        yield f"{method} fell back: {diagnostics.fallback}"
    yield from (f"{method} warns: {warning}" for warning in diagnostics.all_warnings)
    yield from (f"{method} notes: {note}" for note in diagnostics.notes)
    if diagnostics.converged is False and not diagnostics.all_warnings:
        yield f"{method} did not converge"
    if diagnostics.extra.get("tree_supported") is False:
        yield f"{method} notes: {diagnostics.extra['structure']}"
