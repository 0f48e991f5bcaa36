"""The scores of estimated posteriors. Items whose label is −1 (unknown) do not count.

To add a score, write its statistic, a function of `Draws`, and append a record to `SCORES`: scoring, intervals, tables,
the page of the report and the command line all read the records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import UInt8

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.numerics import key_words
from latentens.runtime.parallel import one_blas_thread
from latentens.scores import statistics
from latentens.scores.items import (
    Draws,
    Interval,
    Items,
    Labels,
    Posterior,
    Resampled,
    Statistic,
    calibration_interval,
    debiased_interval,
    gap_interval,
    loss_interval,
    mean_share_interval,
    quantiles,
    ratio,
    reflected_above,
    reflected_below,
    share_interval,
    summing,
)
from latentens.scores.statistics import (
    CONFIDENT,
    PairedDifference,
    compare_accuracy,
    compare_balanced_accuracy,
    compare_log_scores,
    log_losses,
)

Group = Literal["Labels", "Probabilities", "Distance from the exact posterior", "Cost"]

MEGABYTE = 2.0**20


@dataclass(frozen=True)
class Score:
    """What a score says, how it is computed and how it is shown.

    Attributes:
        name: Its name in trees and tables.
        meaning: What it says, in one line.
        group: What it judges.
        statistic: What is computed from items under weights; None for a cost, which is measured during the fit.
        value: The score, from the statistic.
        interval: The ends of its interval, from the statistic, its resampled values and the coverage.
        paired: The difference between two posteriors on the same items, with its test.
        better: Which way is better; None where it depends.
        unit: `%` for a share, which is shown in percent, or `nats`, `s`, `MB`.
        needs_exact: Whether it needs the exact posterior.
        heading: Its heading in the printed table of main scores; empty where it is not printed.
        title: Its name in prose; by default its name with spaces.
    """

    name: str
    meaning: str
    group: Group
    statistic: Callable[[Draws], Statistic] | None = None
    value: Callable[[Statistic], Resampled] = np.asarray
    interval: Callable[[Statistic, Statistic, float], Interval] = quantiles
    paired: Callable[[Labels, Posterior, Posterior], PairedDifference] | None = None
    better: Literal["larger", "smaller"] | None = "smaller"
    unit: Literal["", "%", "nats", "s", "MB"] = ""
    needs_exact: bool = False
    heading: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))

    def text(self, value: float, digits: int | None = None) -> str:
        """A value as it is shown, without its unit."""
        scale, usual = {"%": (100.0, 2), "MB": (1 / MEGABYTE, 0), "s": (1.0, 2)}.get(self.unit, (1.0, 3))
        return f"{scale * value:.{usual if digits is None else digits}f}"


def _share(counts: Statistic) -> Resampled:
    """The share of items that the second half of the columns counts: of correct labels for `class_counts`."""
    wrong, right = np.split(counts, 2, axis=1)
    return ratio(right.sum(axis=1), (wrong + right).sum(axis=1))


def _mean_share(counts: Statistic) -> Resampled:
    """The mean over the classes that occur of the share of correct labels, from the statistic `class_counts`."""
    wrong, right = np.split(counts, 2, axis=1)
    shares = ratio(right, wrong + right)
    return ratio(np.nansum(shares, axis=1), (~np.isnan(shares)).sum(axis=1))


SCORES: tuple[Score, ...] = (
    Score(
        "balanced_accuracy",
        "Share of items labelled correctly, averaged over the true classes",
        "Labels",
        statistics.class_counts,
        value=_mean_share,
        interval=mean_share_interval,
        paired=compare_balanced_accuracy,
        better="larger",
        unit="%",
        heading="balanced\nacc. %",
    ),
    Score(
        "accuracy",
        "Share of items labelled correctly",
        "Labels",
        statistics.class_counts,
        value=_share,
        interval=share_interval,
        paired=compare_accuracy,
        better="larger",
        unit="%",
    ),
    Score(
        "area_under_curve",
        "Chance that an item of a class is given a higher probability of that class than an item of another class",
        "Labels",
        statistics.curve_areas,
        better="larger",
    ),
    Score(
        "log_score",
        "Mean surprise at the true label: minus the logarithm of its stated probability, in nats",
        "Probabilities",
        statistics.losses_and_errors,
        value=lambda parts: parts[:, 0],
        interval=loss_interval,
        paired=compare_log_scores,
        unit="nats",
        heading="log\nscore",
    ),
    Score(
        "brier_score",
        "Mean squared distance between the stated probabilities and the truth, from 0 to 1",
        "Probabilities",
        statistics.square_loss,
        title="Brier score",
    ),
    Score(
        "brier_calibration",
        "The part of the Brier score that stating the same ranking with better probabilities would remove",
        "Probabilities",
        statistics.miscalibration,
        interval=reflected_below,
        title="Brier calibration",
    ),
    Score(
        "brier_refinement",
        "The part of the Brier score that remains however well the same ranking is stated",
        "Probabilities",
        statistics.refinement,
        interval=reflected_above,
        title="Brier refinement",
    ),
    Score(
        "confidence_gap",
        "Mean stated confidence minus the share of items labelled correctly; positive where a method is overconfident",
        "Probabilities",
        statistics.counts_and_confidence,
        value=lambda parts: parts[:, 2] - ratio(parts[:, 1], parts[:, 0] + parts[:, 1]),
        interval=gap_interval,
        better=None,
        unit="%",
        title="confidence minus accuracy",
    ),
    Score(
        "calibration_error",
        "Mean gap between stated confidence and accuracy, over bins with equal numbers of items",
        "Probabilities",
        statistics.bin_gaps,
        value=lambda gaps: np.abs(gaps).sum(axis=1),
        interval=calibration_interval,
    ),
    Score(
        "calibration_error_debiased",
        "Root mean square of that gap, less the part that chance alone would cause",
        "Probabilities",
        statistics.bin_squares,
        value=lambda squares: np.sqrt(np.maximum(squares[:, 1], 0.0)),
        interval=debiased_interval,
        title="calibration error, debiased",
    ),
    Score(
        "confident_share",
        f"Share of items whose label is stated with a probability above {CONFIDENT}",
        "Probabilities",
        statistics.confident,
        better=None,
        unit="%",
        heading="above\n.99 %",
        title=f"share above {CONFIDENT}",
    ),
    Score(
        "confident_wrong",
        f"Share of wrong labels among those stated with a probability above {CONFIDENT}",
        "Probabilities",
        statistics.confident_counts,
        value=_share,
        interval=share_interval,
        unit="%",
        title=f"wrong above {CONFIDENT}",
    ),
    Score(
        "mean_kl",
        "Mean Kullback–Leibler divergence from the exact posterior, in nats",
        "Distance from the exact posterior",
        statistics.divergence,
        unit="nats",
        needs_exact=True,
        heading="KL from\nBayes",
        title="mean KL divergence",
    ),
    Score(
        "total_variation",
        "Mean total variation distance from the exact posterior, from 0 to 1",
        "Distance from the exact posterior",
        statistics.total_variation,
        needs_exact=True,
    ),
    Score(
        "root_mean_square_difference",
        "Root mean square difference from the probabilities of the exact posterior",
        "Distance from the exact posterior",
        statistics.square_difference,
        value=np.sqrt,
        interval=lambda estimate, resampled, level: quantiles(estimate, np.sqrt(resampled), level),
        needs_exact=True,
    ),
    Score(
        "accuracy_regret",
        "Expected accuracy lost by choosing labels by this posterior instead of the exact one",
        "Distance from the exact posterior",
        statistics.regret,
        unit="%",
        needs_exact=True,
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
"""Every score, in the order of tables."""


def find_score(name: str) -> Score:
    """The record of a score."""
    return next(score for score in SCORES if score.name == name)


def computed_scores(
    scores: Sequence[Score] | None, exact: Posterior | None
) -> list[tuple[Score, Callable[[Draws], Statistic]]]:
    """The scores of a posterior with their statistics: no costs, and distances only where the exact one is known."""
    return [
        (score, score.statistic)
        for score in (SCORES if scores is None else scores)
        if score.statistic is not None and (exact is not None or not score.needs_exact)
    ]


@one_blas_thread()
def evaluate(
    labels: Labels, probs: Posterior, exact: Posterior | None = None, *, scores: Sequence[Score] | None = None
) -> dict[str, float]:
    """The scores of a posterior, by name and in the order given; undefined ones are NaN.

    * `area_under_curve`: for two classes that of class 1; for more, the mean over the classes that occur of one
      class against the rest.
    * `brier_score`: mean of ½ Σ_k (p_k − 1{y = k})², which is (p_1 − y)² for two classes.
    * `brier_refinement`: the Brier score of the same probabilities after each class's were recalibrated by isotonic
      regression on these very labels; `brier_calibration` is the rest. Regression fits noise too: a perfectly
      calibrated posterior has a calibration part of the order n^(−2/3), not zero.
    * `calibration_error`: the stated confidence is the probability of the most probable class; bins hold equally many
      items, ties together. The mean of absolute values is biased upwards by noise.
    * `calibration_error_debiased`: √ Σ_b share_b · gap_b², each square replaced by its unbiased estimate, the mean over
      pairs of different items of the product of their residuals (as Kumar et al. 2019, who subtract the variance of
      a bin's mean); zero where the sum is negative.
    * `accuracy_regret`: mean of max(exact) − exact[most probable class of the estimate].

    Args:
        labels: The true label of each item, −1 where it is not known.
        probs: The estimated posterior.
        exact: The exact posterior, where known; without it, the four distances from it are left out.
        scores: The scores; by default `SCORES`. A score of your own is one more `Score`: `(*SCORES, mine)`.
    """
    draws = Draws(Items(labels, probs, exact))
    return {score.name: float(score.value(statistic(draws))[0]) for score, statistic in computed_scores(scores, exact)}


def balanced_accuracy(labels: Labels, predicted: Labels) -> float:
    """Mean over the classes that occur of the share of their items that are predicted correctly."""
    classes = np.unique(labels[labels >= 0])
    shares = [np.mean(predicted[labels == label] == label) for label in classes]
    return float(np.mean(shares)) if shares else np.nan


def log_score(labels: Labels, probs: Posterior) -> float:
    """Mean of −log p(true label), in nats; zero is best."""
    return float(np.nanmean(log_losses(labels, probs)))


def mean_kl(exact: Posterior, probs: Posterior) -> float:
    """Mean over items of the Kullback–Leibler divergence of an estimate from the exact posterior, in nats."""
    return float(np.mean(statistics.divergences(exact, probs)))


Times = UInt8[np.ndarray, "item resample"]
"""How often each item is drawn; 256 times has a probability below 10⁻⁵⁰⁰ however many items there are."""

MOST_KEPT = 2**25
"""So many of these numbers are kept for the next posterior, since methods are compared on the same resamples."""


@one_blas_thread()
def intervals(
    labels: Labels,
    probs: Posterior,
    exact: Posterior | None = None,
    *,
    key: jax.Array,
    resamples: int = 1000,
    level: float = 0.95,
    scores: Sequence[Score] | None = None,
    block_elements: int = BLOCK_ELEMENTS,
) -> dict[str, Interval]:
    """Intervals over items of all scores of `latentens.scores.scores.evaluate`, most of them by the bootstrap.

    Most scores get the quantiles of their resampled values. These are blind to errors that a small sample does not
    have: twenty correct labels of twenty resample to nothing else. Accuracies, log score, confidence minus accuracy and
    the share of wrong labels among confident ones therefore get Wilson's interval of a share, or what follows from it.

    Four others do not get quantiles, since resampling adds as much noise as the sample already has, which shifts what
    is biased by noise a second time:

    * The parts of the Brier score, on the side that the shift makes too optimistic, get the quantile reflected at the
      estimate. For a calibrated posterior the lower end of the calibration part can stay a little above zero; the
      p-value of `latentens.scores.reliability.reliability` is the test of that.
    * The calibration error is at most Σ_b |noise of bin b| from the truth: its lower end is the estimate minus the
      quantile of that sum. Bins are those of the original sample.
    * The debiased error is squared: its square is moved by the deviations of the resampled squares from the square
      that they estimate, which is that of the original sample with its noise.

    Args:
        labels: The true label of each item, −1 where it is not known.
        probs: The estimated posterior.
        exact: The exact posterior, where known.
        key: Random key; the same key gives the same intervals.
        resamples: Number of bootstrap resamples.
        level: Coverage of each interval.
        scores: The scores; by default `SCORES`.
        block_elements: Resamples are weighed in blocks of about this many items.

    Returns:
        The ends of each score's interval, nan where the score is undefined.
    """
    items, computed = Items(labels, probs, exact), computed_scores(scores, exact)
    whole = Draws(items)
    estimates = {score.name: statistic(whole) for score, statistic in computed}
    resampled: dict[str, list[np.ndarray]] = {score.name: [] for score, _ in computed}
    pool = summing(items.kinds, len(items.counts))
    for times in _resampled(len(labels), resamples, block_elements, key):
        draws = Draws(items, (pool @ times).T)
        for score, statistic in computed:
            resampled[score.name].append(statistic(draws))
    return {
        score.name: score.interval(estimates[score.name], np.concatenate(resampled[score.name]), level)
        for score, _ in computed
    }


def _resampled(num_items: int, resamples: int, block_elements: int, key: jax.Array) -> Iterable[Times]:
    """How often each item is drawn, for one block of resamples after the other."""
    draw = _drawn if num_items * resamples > MOST_KEPT else _drawn_once
    return draw(num_items, resamples, block_elements, key_words(key))


def _drawn(num_items: int, resamples: int, block_elements: int, words: tuple[int, ...]) -> Iterator[Times]:
    generator = np.random.default_rng(words)
    for block in row_blocks(resamples, num_items, block_elements):
        drawn = generator.integers(num_items, size=(block.stop - block.start, num_items))
        times = np.empty(drawn.shape, dtype=np.uint8)
        for row, items in zip(times, drawn, strict=True):
            row[:] = np.bincount(items, minlength=num_items)
        yield np.ascontiguousarray(times.T)


@lru_cache(maxsize=1)
def _drawn_once(*arguments: Any) -> tuple[Times, ...]:
    return tuple(_drawn(*arguments))
