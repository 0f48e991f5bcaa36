"""Scores of estimated posteriors. Items with an unknown label (−1) do not count.

A score is one `Score` record and one function. `SCORES` lists the package's own; `evaluate`, `intervals` and
`latentens.compare` take others as `scores=`.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import isotonic_regression
from scipy.sparse import csr_array

from latentens.errors import LatentensError, in_one_line
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.numerics import fault_of, numpy_generator, safe_log
from latentens.runtime.parallel import one_blas_thread
from latentens.scores import interval_rules as rules
from latentens.scores import paired
from latentens.scores.interval_rules import Estimate, Interval, Resampled
from latentens.scores.paired import Labels, PairedDifference, Posterior, log_losses
from latentens.votes.matching import checked_codes

Group = Literal["Labels", "Probabilities", "Distance from the exact posterior", "Cost"]
Unit = Literal["", "%", "nats", "s", "MB"]
EXACT: Group = "Distance from the exact posterior"

AXES = ("dataset", "repetition", "estimator", "other", "bound", "error")
"""Names in the tables of scores that no score can have."""

CONFIDENT = 0.99
"""A posterior above this is called confident."""

Values = Float[np.ndarray, " item"]
Weights = Float[np.ndarray, "item resample"]
Scored = Float[np.ndarray, " resample"] | Resampled


class Items:
    """The items that a posterior is scored on, sorted by confidence. Identical ones are pooled, with a count.

    `known`, `predicted`, `correct` and `confidence` are derived from the attributes below.

    Attributes:
        labels: The true labels, −1 where unknown.
        probs: The estimated posterior.
        exact: The exact posterior, where known.
        counts: The number of identical items.
        place: The position of each original item.
    """

    def __init__(self, labels: Labels, probs: Posterior, exact: Posterior | None = None) -> None:
        columns = [probs.max(axis=1), labels, *probs.T, *(() if exact is None else exact.T)]
        code = np.zeros(len(labels), dtype=np.int64)
        for column in columns:  # sorts by the first column; much faster than np.unique(axis=0)
            values, rank = np.unique(column, return_inverse=True)
            _, first, code, counts = np.unique(
                code * len(values) + rank, return_index=True, return_inverse=True, return_counts=True
            )
        self.labels: Labels = labels[first]
        self.probs: Posterior = probs[first]
        self.exact: Posterior | None = None if exact is None else exact[first]
        self.counts: Values = counts.astype(np.float64)
        self.place: Int[np.ndarray, " original"] = code

    @cached_property
    def known(self) -> Bool[np.ndarray, " item"]:
        """Whether the label is known."""
        return self.labels >= 0

    @cached_property
    def predicted(self) -> Int[np.ndarray, " item"]:
        """The most probable label."""
        return self.probs.argmax(axis=1)

    @cached_property
    def correct(self) -> Bool[np.ndarray, " item"]:
        """Whether that is the true label."""
        return self.predicted == self.labels

    @cached_property
    def confidence(self) -> Values:
        """The probability of the most probable label."""
        return self.probs.max(axis=1)

    @cached_property
    def by_class(self) -> csr_array:
        """Sums weights over the wrongly labelled items of each class that occurs, then over the others of each."""
        classes, rank = np.unique(self.labels[self.known], return_inverse=True)
        group = rank + len(classes) * self.correct[self.known]
        return _summing(group, np.flatnonzero(self.known), 2 * len(classes), len(self.labels))

    @cached_property
    def events(self) -> list[csr_array]:
        """Sums weights over runs of increasing probability of class 1, or of each of more than two classes.

        Runs without the event come first, then those with it. Neighbouring probabilities at all of which the event
        happened, or at none of which it did, are one run: whatever the weights, that changes neither the area under
        the curve nor an isotonic regression.
        """
        found = []
        item = np.flatnonzero(self.known)
        for label in range(self.probs.shape[1]) if self.probs.shape[1] > 2 else [1]:
            happened = self.labels[item] == label
            values, tie = np.unique(self.probs[item, label], return_inverse=True)
            share = np.bincount(tie, happened, len(values)) / np.bincount(tie, minlength=len(values))
            begins = (np.diff(share, prepend=-1) != 0) | ((share > 0) & (share < 1))
            run, number = np.cumsum(begins) - 1, int(begins.sum())
            found.append(_summing(run[tie] + number * happened, item, 2 * number, len(self.labels)))
        return found if len(item) else []

    @cached_property
    def bins(self) -> list[slice]:
        """Up to 15 bins of confidence with equal numbers of known items, at least 10 in each; ties stay together."""
        counts = self.counts * self.known
        _, tie = np.unique(self.confidence, return_inverse=True)
        in_tie = np.bincount(tie, counts)
        rank = (np.cumsum(in_tie) - in_tie / 2)[tie]  # mean rank of the items with this confidence
        number = np.clip(counts.sum() // 10, 1, 15)
        starts = np.flatnonzero(np.diff(rank * number // max(counts.sum(), 1.0), prepend=-1.0))
        return [slice(*ends) for ends in zip(starts, [*starts[1:], len(rank)], strict=True)]


def _summing(group: Int[np.ndarray, " entry"], item: Int[np.ndarray, " entry"], groups: int, items: int) -> csr_array:
    """The matrix that sums over the items of each group."""
    return csr_array((np.ones(len(item)), (group, item)), shape=(groups, items))


class Sample:
    """Items under weights: how often each resample has drawn each item. Scores are functions of it.

    Attributes:
        items: The items.
        weights: The weights; by default those of the original sample, as a single resample.
    """

    def __init__(self, items: Items, weights: Weights | None = None) -> None:
        self.items = items
        self.weights: Weights = items.counts[:, None] if weights is None else weights

    def mean(self, values: Values) -> Float[np.ndarray, " resample"]:
        """The mean of a value per item in each resample; items where it is NaN do not count."""
        counted = ~np.isnan(values)
        # two products with vectors take a third of the time of one with a matrix of two rows
        return ratio(np.where(counted, values, 0.0) @ self.weights, counted.astype(np.float64) @ self.weights)

    @cached_property
    def wrong_and_correct(self) -> tuple[Resampled, Resampled]:
        """The numbers of wrong and of correct labels of each class that occurs in the sample."""
        wrong, correct = np.split(self.items.by_class @ self.weights, 2)
        return wrong, correct

    @cached_property
    def events(self) -> list[tuple[Resampled, Resampled]]:
        """For each of `Items.events`, the numbers of items in each run where it happened, and where it did not."""
        halves = (np.split(event @ self.weights, 2) for event in self.items.events)
        return [(happened, others) for others, happened in halves]

    @cached_property
    def refinement(self) -> Float[np.ndarray, " resample"]:
        """The Brier score after isotonic recalibration of each event."""
        if not self.events:
            return np.full(self.weights.shape[1], np.nan)
        return np.sum([_isotonic_loss(*event) for event in self.events], axis=0) / min(2, len(self.events))


def _isotonic_loss(happened: Resampled, others: Resampled) -> Float[np.ndarray, " resample"]:
    """Mean squared error of the best increasing function f of the stated probability.

    On each block of equal f the mean of the events is f, so that Σ (happened − f)² = Σ happened − Σ_blocks weight · f².
    All resamples are fitted in one regression, end to end and each raised above the one before, so that no block
    extends over two.
    """
    happened, total = np.ascontiguousarray(happened.T), np.ascontiguousarray((happened + others).T)
    drawn = np.flatnonzero(total)
    if not len(drawn):
        return np.full(len(total), np.nan)
    resample, hits, counts = drawn // total.shape[1], happened.ravel()[drawn], total.ravel()[drawn]
    starts = isotonic_regression(hits / counts + 2.0 * resample, weights=counts).blocks[:-1]
    hits, counts = np.add.reduceat(hits, starts), np.add.reduceat(counts, starts)
    explained = np.bincount(resample[starts], hits**2 / counts, minlength=len(total))
    return ratio(np.maximum(happened.sum(axis=1) - explained, 0.0), total.sum(axis=1))


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The quotient, NaN where the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)


def averaged(values: Callable[[Items], Values]) -> Callable[[Sample], Scored]:
    """Make a score's function of a value per item: its mean over the items where it is not NaN."""

    def mean(sample: Sample) -> Scored:
        found, shape = values(sample.items), sample.items.labels.shape
        if np.shape(found) != shape:
            raise LatentensError(
                f"the function in averaged must return a value per item, an array of shape {shape}, "
                f"not {np.shape(found)}"
            )
        return sample.mean(found)

    return mean


def _mean_where_defined(rows: Resampled) -> Float[np.ndarray, " resample"]:
    return ratio(np.nansum(rows, axis=0), (~np.isnan(rows)).sum(axis=0))


def accuracies(sample: Sample) -> Scored:
    """The accuracy, and the numbers of wrong and of correct labels."""
    wrong, correct = (counts.sum(axis=0) for counts in sample.wrong_and_correct)
    return np.stack([ratio(correct, wrong + correct), wrong, correct])


def balanced_accuracies(sample: Sample) -> Scored:
    """The mean accuracy over the classes that occur, and the numbers of wrong and of correct labels of each class."""
    wrong, correct = sample.wrong_and_correct
    mean = _mean_where_defined(ratio(correct, wrong + correct))
    return np.concatenate([mean[None], wrong, correct])


def areas_under_curve(sample: Sample) -> Scored:
    """Probability that an item with the event ranks above one without (ties count one half), averaged over events."""
    areas = np.full((max(len(sample.events), 1), sample.weights.shape[1]), np.nan)
    for area, (happened, others) in zip(areas, sample.events, strict=False):
        below = np.cumsum(others, axis=0) - others / 2
        area[:] = ratio(np.einsum("tr,tr->r", happened, below), happened.sum(axis=0) * others.sum(axis=0))
    return _mean_where_defined(areas)


def losses(sample: Sample) -> Scored:
    """The mean log loss, and the numbers that `loss_interval` needs.

    By its own probabilities a posterior errs on an item with probability r, that of all labels but the most probable
    one, and its loss is then −log r or more: the expected loss of an error is E[−r log r] / E[r].
    """
    items = sample.items
    loss = log_losses(items.labels, items.probs)
    by_correctness = np.where(items.correct, loss, np.nan), np.where(items.correct, np.nan, loss)
    risk_of = np.where(items.known, np.sort(items.probs, axis=1)[:, :-1].sum(axis=1), np.nan)
    *means, risk, cost = map(sample.mean, (loss, *by_correctness, risk_of, -risk_of * safe_log(risk_of)))
    stated = np.where(risk > 0, ratio(cost, risk), -safe_log(np.zeros(1)))
    _, wrong, correct = accuracies(sample)
    return np.stack([*means, stated, wrong, correct])


@averaged
def square_loss(items: Items) -> Values:
    """½ Σ_k (p_k − 1{y = k})²."""
    happened = items.labels[:, None] == np.arange(items.probs.shape[1])
    return np.where(items.known, ((items.probs - happened) ** 2).sum(axis=1) / 2, np.nan)


def miscalibration(sample: Sample) -> Scored:
    """The part of the Brier score that isotonic recalibration removes."""
    return square_loss(sample) - sample.refinement


def confidence_gaps(sample: Sample) -> Scored:
    """Mean confidence minus accuracy, the numbers of wrong and of correct labels, and the mean confidence."""
    accuracy, wrong, correct = accuracies(sample)
    confidence = sample.mean(np.where(sample.items.known, sample.items.confidence, np.nan))
    return np.stack([confidence - accuracy, wrong, correct, confidence])


def calibration_sums(sample: Sample, least_known: int = 50) -> Float[np.ndarray, "3 bin resample"]:
    """The number of items in each bin of confidence, and the sums of their residuals and of the squares of these.

    The residual of an item is its correctness minus its confidence. With fewer known labels than `least_known`,
    calibration errors are mostly noise, and the sums are NaN.
    """
    items = sample.items
    if items.counts @ items.known < least_known:
        return np.full((3, 1, sample.weights.shape[1]), np.nan)
    residual = np.where(items.known, items.correct - items.confidence, 0.0)
    powers = np.stack([items.known, residual, residual**2])
    return np.stack([powers[:, run] @ sample.weights[run] for run in items.bins], axis=1)


def calibration_errors(sample: Sample) -> Scored:
    """Mean absolute gap over the bins, and the gap of each bin times its share of the items."""
    counts, sums, _ = calibration_sums(sample)
    gaps = ratio(sums, np.broadcast_to(counts.sum(axis=0), sums.shape))
    return np.concatenate([np.abs(gaps).sum(axis=0)[None], gaps])


def debiased_errors(sample: Sample) -> Scored:
    """Root of the unbiased estimate of the mean squared gap; the plain mean square, and the unbiased one."""
    counts, sums, squares = calibration_sums(sample)
    plain = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0)
    unbiased = np.divide(sums**2 - squares, counts - 1, out=np.zeros_like(sums), where=counts > 1)
    plain, unbiased = (ratio(part.sum(axis=0), counts.sum(axis=0)) for part in (plain, unbiased))
    return np.stack([np.sqrt(np.maximum(unbiased, 0.0)), plain, unbiased])


@averaged
def confident(items: Items) -> Values:
    """Whether the label is stated with confidence."""
    return (items.confidence > CONFIDENT).astype(np.float64)


def confidently_wrong(sample: Sample) -> Scored:
    """The share of wrong labels among those stated with confidence, and the numbers of correct and of wrong ones."""
    items = sample.items
    chosen = items.known & (items.confidence > CONFIDENT)
    correct, wrong = ((chosen & kind).astype(np.float64) @ sample.weights for kind in (items.correct, ~items.correct))
    return np.stack([ratio(wrong, correct + wrong), correct, wrong])


@averaged
def divergence(items: Items) -> Values:
    """Kullback–Leibler divergence from the exact posterior."""
    return np.sum(_exact(items) * (safe_log(_exact(items)) - safe_log(items.probs)), axis=1)


@averaged
def total_variation(items: Items) -> Values:
    """Total variation distance from the exact posterior."""
    return np.abs(items.probs - _exact(items)).sum(axis=1) / 2


@averaged
def square_difference(items: Items) -> Values:
    """Mean square difference from the probabilities of the exact posterior."""
    return ((items.probs - _exact(items)) ** 2).mean(axis=1)


@averaged
def regret(items: Items) -> Values:
    """Probability lost by choosing the label of this posterior instead of that of the exact one."""
    exact = _exact(items)
    return exact.max(axis=1) - np.take_along_axis(exact, items.predicted[:, None], axis=1)[:, 0]


def _exact(items: Items) -> Posterior:
    assert items.exact is not None, "distances are computed only where the exact posterior is known"
    return items.exact


@dataclass(frozen=True)
class Score:
    """A score: its meaning, its function and its display.

    Attributes:
        name: Its name in trees and tables.
        meaning: One-line description.
        group: The kind of score. Distances are computed only where the exact posterior is known.
        function: From a `Sample` to the score in each resample. It may return several rows: the first one is the score,
            the others are for its interval. None for a cost, which is measured during the fit.
        interval: The rule of its interval, one of `latentens.scores.interval_rules`.
        paired: The difference between two posteriors on the same items, with its test.
        better: Which direction is better; None where it depends.
        unit: `%` for a share, which is shown in percent, or `nats`, `s`, `MB`.
        heading: Its heading in the printed table of main scores; empty where it is not printed.
        title: Its name in prose; by default its name with spaces.
    """

    name: str
    meaning: str
    group: Group = "Probabilities"
    function: Callable[[Sample], Scored] | None = None
    interval: Callable[[Estimate, Resampled, float], Interval] = rules.quantiles
    paired: Callable[[Labels, Posterior, Posterior], PairedDifference] | None = None
    better: Literal["larger", "smaller"] | None = "smaller"
    unit: Unit = ""
    heading: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name.strip() or "/" in name or not name.isprintable() or name in AXES:
            axes = ", ".join(map(repr, AXES))
            raise LatentensError(f"score {name!r}: its name must be a text without a slash, and none of {axes}")
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))
        for name, choices in (("group", Group), ("better", Literal["larger", "smaller", None]), ("unit", Unit)):
            if (value := getattr(self, name)) not in get_args(choices):
                known = ", ".join(map(repr, get_args(choices)))
                raise LatentensError(f"score {self.name!r}: {name} must be one of {known}, not {value!r}")

    def text(self, value: float, digits: int | None = None) -> str:
        """A value as it is shown, without its unit."""
        scale, usual = {"%": (100.0, 2), "MB": (2.0**-20, 0), "s": (1.0, 2)}.get(self.unit, (1.0, 3))
        return f"{scale * value:.{usual if digits is None else digits}f}"

    def of(self, sample: Sample) -> Resampled:
        """The rows that the function returns; the first one is the score."""
        assert self.function is not None, "a cost is not computed"
        return np.atleast_2d(self.function(sample))


SCORES: tuple[Score, ...] = (
    Score(
        "balanced_accuracy",
        "Share of items labelled correctly, averaged over the true classes",
        "Labels",
        balanced_accuracies,
        interval=rules.mean_share_interval,
        paired=paired.compare_balanced_accuracy,
        better="larger",
        unit="%",
        heading="balanced\nacc. %",
    ),
    Score(
        "accuracy",
        "Share of items labelled correctly",
        "Labels",
        accuracies,
        interval=rules.share_interval,
        paired=paired.compare_accuracy,
        better="larger",
        unit="%",
    ),
    Score(
        "area_under_curve",
        "Chance that an item of a class is given a higher probability of that class than an item of another class",
        "Labels",
        areas_under_curve,
        better="larger",
    ),
    Score(
        "log_score",
        "Mean surprise at the true label: minus the logarithm of its stated probability, in nats",
        function=losses,
        interval=rules.loss_interval,
        paired=paired.compare_log_scores,
        unit="nats",
        heading="log\nscore",
    ),
    Score(
        "brier_score",
        "Mean squared distance between the stated probabilities and the truth, from 0 to 1",
        function=square_loss,
        title="Brier score",
    ),
    Score(
        "brier_calibration",
        "The part of the Brier score that stating the same ranking with better probabilities would remove",
        function=miscalibration,
        interval=rules.reflected_below,
        title="Brier calibration",
    ),
    Score(
        "brier_refinement",
        "The part of the Brier score that remains however well the same ranking is stated",
        function=lambda sample: sample.refinement,
        interval=rules.reflected_above,
        title="Brier refinement",
    ),
    Score(
        "confidence_gap",
        "Mean stated confidence minus the share of items labelled correctly; positive where a method is overconfident",
        function=confidence_gaps,
        interval=rules.gap_interval,
        better=None,
        unit="%",
        title="confidence minus accuracy",
    ),
    Score(
        "calibration_error",
        "Mean gap between stated confidence and accuracy, over bins with equal numbers of items",
        function=calibration_errors,
        interval=rules.calibration_interval,
    ),
    Score(
        "calibration_error_debiased",
        "Root mean square of that gap, less the part that chance alone would cause",
        function=debiased_errors,
        interval=rules.debiased_interval,
        title="calibration error, debiased",
    ),
    Score(
        "confident_share",
        f"Share of items whose label is stated with a probability above {CONFIDENT}",
        function=confident,
        better=None,
        unit="%",
        heading="above\n.99 %",
        title=f"share above {CONFIDENT}",
    ),
    Score(
        "confident_wrong",
        f"Share of wrong labels among those stated with a probability above {CONFIDENT}",
        function=confidently_wrong,
        interval=rules.share_interval,
        unit="%",
        title=f"wrong above {CONFIDENT}",
    ),
    Score(
        "mean_kl",
        "Mean Kullback–Leibler divergence from the exact posterior, in nats",
        EXACT,
        divergence,
        unit="nats",
        heading="KL from\nBayes",
        title="mean KL divergence",
    ),
    Score(
        "total_variation",
        "Mean total variation distance from the exact posterior, from 0 to 1",
        EXACT,
        total_variation,
    ),
    Score(
        "root_mean_square_difference",
        "Root mean square difference from the probabilities of the exact posterior",
        EXACT,
        lambda sample: np.sqrt(square_difference(sample)),
    ),
    Score(
        "accuracy_regret",
        "Expected accuracy lost by choosing labels by this posterior instead of the exact one",
        EXACT,
        regret,
        unit="%",
    ),
    Score(
        "seconds",
        "Time the fit took, in seconds; the first fit of a kind includes compilation",
        "Cost",
        unit="s",
        heading="seconds",
    ),
    Score(
        "peak_memory",
        "Most memory the fit took beyond what was in use before, in megabytes",
        "Cost",
        unit="MB",
    ),
)
"""The scores, in the order of tables."""


def find_score(name: str) -> Score:
    """The record of a score."""
    return next(score for score in SCORES if score.name == name)


def check_scores(scores: Sequence[Score], num_classes: int, has_exact: bool) -> None:
    """Try scores that are not the package's own on five items, so that mistakes in them are found before any fit.

    Args:
        scores: The scores.
        num_classes: Number of classes.
        has_exact: Whether the exact posterior is known.
    """
    own = [score for score in scores if score not in SCORES and (has_exact or score.group != EXACT)]
    if not own:
        return
    first = np.array([0.9, 0.2, 0.6, 0.4, 0.7])[:, None]
    others = np.broadcast_to((1 - first) / (num_classes - 1), (len(first), num_classes - 1))
    probs, labels = np.concatenate([first, others], axis=1), np.array([0, 1, 0, 1, -1])
    items = Items(labels, probs, probs if has_exact else None)
    sample = Sample(items, np.ones((len(items.labels), 3)))
    for score in own:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                fault = _fault_of(score, sample)
                if score.paired is not None:
                    score.paired(labels, probs, probs)
            except Exception as error:  # of a user's function
                fault = in_one_line(error)
        if fault:
            raise LatentensError(f"score {score.name!r}: {fault}")


def _fault_of(score: Score, sample: Sample) -> str:
    """The fault of a score's function and its remedy; "" if there is none."""
    if score.function is None:
        return "it has no function"
    shape = sample.weights.shape[1:]
    fault = f"its function must return a value per resample, an array of shape {shape}, not "
    try:
        found = score.of(sample)
        if found.shape[1:] == shape:
            score.interval(found[:, 0], found, 0.95)
            return ""
        fault += str(np.shape(score.function(sample)))
    except Exception as error:  # of a user's function
        fault = in_one_line(error)
    with suppress(Exception):  # not a function of items either
        if np.shape(score.function(sample.items)) == sample.items.labels.shape:  # type: ignore[arg-type]
            return "wrap its function in averaged, since it returns a value per item"
    return fault


def _computed(scores: Sequence[Score], exact: Posterior | None) -> list[Score]:
    return [score for score in scores if score.function and (exact is not None or score.group != EXACT)]


def _checked(labels: Labels, probs: Posterior, exact: Posterior | None, scores: Sequence[Score]) -> Labels:
    """The labels as codes; refuses posteriors that are none, and scores that do not work."""
    shape = np.shape(probs)
    if len(shape) != 2 or shape[1] < 2:
        raise LatentensError(f"a posterior has a row per item and a column per class, not the shape {shape}")
    for name, posterior in {"the posterior": probs, "the exact posterior": exact}.items():
        # probabilities that were rounded to three decimals are good enough
        if posterior is not None and (fault := fault_of(posterior, shape, rounding=1e-3)):
            raise LatentensError(f"{name} {fault}")
    check_scores(scores, shape[1], exact is not None)
    return checked_codes(labels, shape)


@one_blas_thread()
def evaluate(
    labels: Labels, probs: Posterior, exact: Posterior | None = None, *, scores: Sequence[Score] = SCORES
) -> dict[str, float]:
    """The scores of a posterior, by name and in the order given; undefined ones are NaN.

    * `area_under_curve`: for two classes that of class 1; for more, the mean over the classes that occur of one
      class against the rest.
    * `brier_score`: mean of ½ Σ_k (p_k − 1{y = k})², which is (p_1 − y)² for two classes.
    * `brier_refinement`: the Brier score after the probabilities of each class were recalibrated by isotonic
      regression on these very labels; `brier_calibration` is the rest. Regression fits noise too: a perfectly
      calibrated posterior has a calibration part of the order n^(−2/3), not zero.
    * `calibration_error`: the confidence is the probability of the most probable class; bins hold equal numbers of
      items, ties together. The mean of absolute values is biased upwards by noise.
    * `calibration_error_debiased`: √ Σ_b share_b · gap_b², each square replaced by its unbiased estimate, the mean over
      pairs of different items of the product of their residuals (as Kumar et al. 2019, who subtract the variance of
      a bin's mean); zero where the sum is negative.
    * `accuracy_regret`: mean of max(exact) − exact[most probable class of the estimate].

    Args:
        labels: The true label of each item, −1 where unknown.
        probs: The estimated posterior.
        exact: The exact posterior, where known; without it, the four distances from it are left out.
        scores: The scores.
    """
    labels = _checked(labels, probs, exact, scores)
    sample = Sample(Items(labels, probs, exact))
    return {score.name: float(score.of(sample)[0, 0]) for score in _computed(scores, exact)}


@one_blas_thread()
def intervals(
    labels: Labels,
    probs: Posterior,
    exact: Posterior | None = None,
    *,
    key: jax.Array,
    resamples: int = 1000,
    level: float = 0.95,
    scores: Sequence[Score] = SCORES,
    block_elements: int = BLOCK_ELEMENTS,
) -> dict[str, Interval]:
    """Intervals over items of the scores of `evaluate`, most of them by the bootstrap.

    Most scores get the quantiles of their resampled values. These cannot reflect errors that a small sample happens
    not to contain: every resample of twenty correct labels is correct, too. Accuracies, log score, confidence
    minus accuracy and the share of wrong labels among confident ones therefore get Wilson's interval of a proportion,
    or one derived from it.

    Scores that noise biases need other rules, since resampling adds as much noise again:

    * The parts of the Brier score, on the side where the bias is too optimistic, get the quantile reflected at the
      estimate. For a calibrated posterior the lower end of the calibration part can stay a little above zero; the
      p-value of `latentens.scores.reliability` is the test of that.
    * The calibration error differs from the truth by at most Σ_b |noise of bin b|: its lower end is the estimate minus
      the quantile of that sum. Bins are those of the original sample.
    * The debiased error is squared: its square is moved by the deviations of the resampled squares from the square
      that they estimate, which is that of the original sample with its noise.

    Args:
        labels: The true label of each item, −1 where unknown.
        probs: The estimated posterior.
        exact: The exact posterior, where known.
        key: Random key; the same key gives the same resamples, whatever the posterior.
        resamples: Number of bootstrap resamples.
        level: Coverage of each interval.
        scores: The scores.
        block_elements: Resamples are processed in blocks of about this many items.

    Returns:
        The ends of each score's interval, NaN where the score is undefined.
    """
    labels = _checked(labels, probs, exact, scores)
    items, computed = Items(labels, probs, exact), _computed(scores, exact)
    blocks = []
    for weights in _resampled_weights(items, resamples, block_elements, key):
        sample = Sample(items, weights)
        blocks.append([score.of(sample) for score in computed])
    original, found = Sample(items), {}
    for score, parts in zip(computed, zip(*blocks, strict=True), strict=True):
        found[score.name] = score.interval(score.of(original)[:, 0], np.concatenate(parts, axis=1), level)
    return found


def _resampled_weights(items: Items, resamples: int, block_elements: int, key: jax.Array) -> Iterator[Weights]:
    generator, size = numpy_generator(key), len(items.place)
    for block in row_blocks(resamples, size, block_elements):
        number = block.stop - block.start
        drawn = generator.integers(size, size=(number, size), dtype=np.int32)
        cell = (items.place * number)[drawn]  # of a table of items by resamples
        cell += np.arange(number)[:, None]
        times = np.bincount(cell.ravel(), minlength=len(items.counts) * number)
        yield times.reshape(len(items.counts), number).astype(np.float64)


def balanced_accuracy(labels: Labels, predicted: Labels) -> float:
    """Mean over the classes that occur of the share of their items that are predicted correctly."""
    classes = np.unique(labels[labels >= 0])
    shares = [np.mean(predicted[labels == label] == label) for label in classes]
    return float(np.mean(shares)) if shares else np.nan


def mean_kl(exact: Posterior, probs: Posterior) -> float:
    """Mean over items of the Kullback–Leibler divergence of an estimate from the exact posterior, in nats."""
    return float(np.mean(np.sum(exact * (safe_log(exact) - safe_log(probs)), axis=1)))
