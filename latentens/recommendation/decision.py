"""Twins, data simulated from fitted models in the pattern of the votes, and the decision by scores on them.

Gold labels come first, then the worst case over models, and else the safest method. Also how many gold labels would
settle a question that the votes leave open.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from latentens.checks import SignalCheck
from latentens.comparison.cell import Cell
from latentens.comparison.data_tree import Address
from latentens.comparison.result import Outcome
from latentens.comparison.sweep import MethodFactory, cells_of
from latentens.datasets.dataset import Dataset, simulate_like
from latentens.errors import LatentensError
from latentens.methods.base import Method
from latentens.programs.likelihood import bayes_posterior
from latentens.recommendation.candidates import SAFEST, FittedModel, model_of
from latentens.runtime.numerics import entropy, safe_log
from latentens.scores import Labels, Posterior, compare_balanced_accuracy, compare_log_scores, holm
from latentens.scores.scores import evaluate, intervals

ScoreName = Literal["balanced_accuracy", "log_score"]
SCORES: tuple[ScoreName, ...] = ("balanced_accuracy", "log_score")
REFIT = "refit"
"""Name of the fit of a model to its own twin, among the methods."""


class Interval(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


class Twin(NamedTuple):
    """One twin and the posteriors of its labels, without the items whose labels methods were given.

    Attributes:
        labels: The true labels.
        exact: The exact posterior.
        posteriors: The posterior of each method.
        refitted: The exact posterior of a twin of the twin, from the model refitted to the twin; None if that failed.
    """

    labels: Labels
    exact: Posterior
    posteriors: Mapping[str, Posterior]
    refitted: Posterior | None

    def posterior(self, method: str | None) -> Posterior:
        """The posterior of a method; None stands for the exact one."""
        return self.exact if method is None else self.posteriors[method]


@dataclass(frozen=True, eq=False)
class TwinScores:
    """Scores of methods on the twins of one model.

    Attributes:
        model: Name of the model.
        twins: The twins.
    """

    model: str
    twins: Sequence[Twin]

    @property
    def methods(self) -> list[str]:
        """The methods: those that gave a result on every twin."""
        return [*self.twins[0].posteriors]

    def scores(self, score: ScoreName, method: str | None) -> Float[np.ndarray, " twin"]:
        """A method's expected score on each twin, given its votes; None stands for the exact posterior."""
        return np.array([contributions(score, twin.exact, twin.posterior(method)).sum() for twin in self.twins])

    def expected(self, score: ScoreName, method: str | None, level: float = 0.9) -> Interval:
        """The score to expect on the user's votes if the model is right, with an interval.

        Twins are drawn from fitted parameters instead of the true ones. The error of that is estimated one step
        further: parameters fitted to a twin differ from those it was drawn from as the latter differ from the true
        ones. The mean change in the score of the exact posterior is subtracted, and its variance is added.
        """
        values = self.scores(score, method)
        pairs = [(twin.refitted, twin.exact) for twin in self.twins if twin.refitted is not None]
        shifts = np.array([self_assessed(score, refitted) - self_assessed(score, exact) for refitted, exact in pairs])
        noise = np.mean([_label_variance(score, twin, twin.posterior(method)) for twin in self.twins])
        number = len(values)
        variance = max(float(np.var(values, ddof=1)) if number > 1 else 0.0, float(noise))
        centre = float(values.mean())
        if len(shifts):
            variance += float(np.var(shifts, ddof=1)) if len(shifts) > 1 else float(shifts[0] ** 2)
            centre -= float(shifts.mean())
        margin = float(stdtrit(max(number - 1, 3), (1 + level) / 2)) * np.sqrt(variance * (1 + 1 / number))
        most = 1.0 if score == "balanced_accuracy" else np.inf
        return Interval(*(float(np.clip(value, 0, most)) for value in (centre, centre - margin, centre + margin)))

    def gain(self, score: ScoreName, first: str | None, second: str | None) -> float:
        """How much better the first method scores than the second, mean over twins; None is the exact posterior."""
        sign = 1 if score == "balanced_accuracy" else -1
        return sign * float(np.mean(self.scores(score, first) - self.scores(score, second)))

    def losses(self, score: ScoreName, methods: Sequence[str]) -> dict[str, float]:
        """The loss of each method against the best of them."""
        gains = {method: self.gain(score, method, None) for method in methods}
        return {method: max(gains.values()) - gain for method, gain in gains.items()}


def contributions(score: ScoreName, truth: Posterior, probs: Posterior) -> Float[np.ndarray, " item"]:
    """The contribution of each item to a score.

    Args:
        score: The score.
        truth: The probability of each label; a row of zeros where the label is unknown.
        probs: The posterior that is scored.
    """
    if score == "log_score":
        return -(truth * safe_log(probs)).sum(axis=1) / truth.sum()
    sizes, chosen = truth.sum(axis=0), probs.argmax(axis=1)
    weights = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0) / (sizes > 0).sum()
    return truth[np.arange(len(truth)), chosen] * weights[chosen]


def self_assessed(score: ScoreName, exact: Posterior) -> float:
    """The score that an exact posterior expects of itself."""
    if score == "log_score":
        return float(entropy(exact).mean())
    chosen = exact.argmax(axis=1)
    shares = [exact[chosen == label, label].sum() / exact[:, label].sum() for label in range(exact.shape[1])]
    return float(np.mean(shares))


def _label_variance(score: ScoreName, twin: Twin, probs: Posterior) -> float:
    """The variance of a score over sets of items like this twin's, with as many of each class for the accuracy."""
    truth = np.equal.outer(twin.labels, np.arange(probs.shape[1])).astype(np.float64)
    values = contributions(score, truth, probs)
    strata = twin.labels if score == "balanced_accuracy" else np.zeros_like(twin.labels)
    parts = [values[strata == stratum] for stratum in np.unique(strata)]
    return sum(len(part) * float(np.var(part, ddof=1)) if len(part) > 1 else float(part[0] ** 2) for part in parts)


def draw_twins(fitted: FittedModel, like: Dataset, key: jax.Array, number: int) -> list[Dataset]:
    """Simulate data with the same items, voters, pattern of who voted on what, and items with gold labels."""
    key = jax.random.fold_in(key, zlib.crc32(fitted.name.encode()))
    found = []
    for twin in range(number):
        drawn = simulate_like(fitted.model, like.votes, key=jax.random.fold_in(key, twin), params=fitted.params)
        gold = None if like.gold is None else np.where(like.gold >= 0, drawn.labels, -1)
        found.append(replace(drawn, name=f"{fitted.name}, twin {twin}", gold=gold))
    return found


def without_gold(dataset: Dataset) -> Dataset:
    """The data set without gold labels, under another name if it had any."""
    return dataset if dataset.gold is None else replace(dataset, name=f"{dataset.name}, no gold labels", gold=None)


def twin_cells(
    fitted: FittedModel, twins: Sequence[Dataset], methods: Mapping[str, Method | MethodFactory], key: jax.Array
) -> list[Cell]:
    """Every method on every twin, and the model refitted to each without gold labels."""
    cells = [cell for twin in twins for cell in cells_of(twin, methods, key)]
    return cells + [cell for twin in twins for cell in cells_of(without_gold(twin), {REFIT: fitted.refit}, key)]


def score_twins(
    fitted: FittedModel,
    twins: Sequence[Dataset],
    methods: Sequence[str],
    outcomes: Mapping[Address, Outcome],
    key: jax.Array,
) -> TwinScores:
    """Collect the outcomes of `twin_cells`."""
    scored = []
    for number, twin in enumerate(twins):
        exact = twin.bayes_posterior()
        assert exact is not None, "twins come with their model"
        used = np.ones(len(exact), bool) if twin.gold is None else twin.gold < 0
        found = {name: outcomes[twin.name, 0, name].label_probs for name in methods}
        posteriors = {name: probs[used] for name, probs in found.items() if probs is not None}
        try:
            model, params = model_of(fitted.refit, outcomes[without_gold(twin).name, 0, REFIT])
            drawn = simulate_like(model, twin.votes, key=jax.random.fold_in(key, number), params=params)
            refitted = bayes_posterior(model, params, drawn.votes)[used]
        except LatentensError:
            refitted = None
        scored.append(Twin(twin.labels[used], exact[used], posteriors, refitted))
    return TwinScores(fitted.name, scored)


Losses = Mapping[str, Mapping[str, float]]
"""The loss of each method against the best one, by model and method."""


@dataclass(frozen=True, eq=False)
class GoldScores:
    """Scores of the methods on gold labels, each predicted by a fit that has not seen it.

    Attributes:
        number: Number of gold labels.
        accuracy: Balanced accuracy by method, with 95 % intervals.
        log_score: Log score by method.
        gap: Mean confidence minus accuracy by method, with 95 % intervals.
        best: The eligible method with the largest balanced accuracy; if tied, the one with the smallest log score.
        close: Eligible methods whose balanced accuracy is at most one standard error of the difference below the best.
        tied: Those of the close ones whose log score is at most one standard error above the smallest of theirs.
        worse: Eligible methods with significantly worse labels than the best: paired tests, adjusted for all pairs.
    """

    number: int
    accuracy: Mapping[str, Interval]
    log_score: Mapping[str, float]
    gap: Mapping[str, Interval]
    best: str
    close: tuple[str, ...]
    tied: tuple[str, ...]
    worse: tuple[str, ...]


def score_on_gold(
    labels: Labels,
    posteriors: Mapping[str, Posterior],
    key: jax.Array,
    excluded: Collection[str] = (),
    level: float = 0.95,
    resamples: int = 1000,
) -> GoldScores:
    """Score the methods on the items whose label is known.

    Args:
        labels: The gold labels, −1 for other items.
        posteriors: The posterior of each method, for gold labels by a fit that has not seen them.
        key: Random key of the intervals.
        excluded: Methods that may not be recommended; they are scored, but not compared with the others.
        level: Coverage of the intervals; the paired tests have level 1 − `level`.
        resamples: Bootstrap samples behind the intervals.
    """
    known = labels >= 0
    truth, probs = labels[known], {name: found[known] for name, found in posteriors.items()}
    scores = {name: evaluate(truth, found) for name, found in probs.items()}
    ends = {name: intervals(truth, found, key=key, resamples=resamples, level=level) for name, found in probs.items()}
    accuracy, gap = (
        {name: Interval(scores[name][score], *ends[name][score]) for name in probs}
        for score in ("balanced_accuracy", "confidence_gap")
    )
    log_score = {name: scores[name]["log_score"] for name in probs}
    probs = {name: found for name, found in probs.items() if name not in excluded}
    best = max(probs, key=lambda name: (accuracy[name].value, -log_score[name]))

    # the standard errors of differences follow from the width of their intervals
    behind = {name: compare_balanced_accuracy(truth, probs[best], probs[name], level=level) for name in probs}
    width = 2 * ndtri((1 + level) / 2)
    close = tuple(name for name, found in behind.items() if found.difference <= (found.high - found.low) / width)
    surest = min(close, key=lambda name: log_score[name])
    lags = {name: compare_log_scores(truth, probs[name], probs[surest], level=level) for name in close}
    log_width = 2 * stdtrit(len(truth) - 1, (1 + level) / 2) if len(truth) > 1 else np.nan
    tied = tuple(
        name for name, lag in lags.items() if name == surest or lag.difference <= (lag.high - lag.low) / log_width
    )

    pairs = list(combinations(probs, 2))
    p_values = [compare_balanced_accuracy(truth, probs[one], probs[two]).p_value for one, two in pairs]
    adjusted = {frozenset(pair): p_value for pair, p_value in zip(pairs, holm(p_values), strict=True)}
    others = (name for name in probs if name not in close)
    worse = tuple(name for name in others if adjusted[frozenset((best, name))] < 1 - level)
    return GoldScores(len(truth), accuracy, log_score, gap, best, close, tied, worse)


class Choice(NamedTuple):
    """The chosen method.

    Attributes:
        method: Its name.
        worst_model: The plausible model under which it loses most; None if there is no such model.
        loss: Its loss of balanced accuracy there.
        tied: Methods whose labels are as good.
    """

    method: str
    worst_model: str | None
    loss: float
    tied: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The decision and everything it rests on.

    Attributes:
        dataset: The votes, perhaps with gold labels.
        num_items: Number of items before a sample was taken.
        signal: Whether the voters agree more than by chance.
        models: The fitted candidate models.
        not_fitted: Why other candidates could not be fitted.
        twins: Scores on the twins of each plausible model.
        posteriors: The posterior of each method on the votes.
        gold: Scores on gold labels; None without gold labels.
        choice: The chosen method; None without a signal, or if no method can be recommended.
        failed: Methods that failed on the votes or on a twin, and why.
        unidentified: Methods whose fit to the votes does not identify the label, and why.
    """

    dataset: Dataset
    num_items: int
    signal: SignalCheck
    models: Sequence[FittedModel] = ()
    not_fitted: Mapping[str, str] = field(default_factory=dict)
    twins: Sequence[TwinScores] = ()
    posteriors: Mapping[str, Posterior] = field(default_factory=dict)
    gold: GoldScores | None = None
    choice: Choice | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    unidentified: Mapping[str, str] = field(default_factory=dict)

    @property
    def plausible(self) -> list[FittedModel]:
        """The models that are not ruled out."""
        return [model for model in self.models if not model.ruled_out]

    def expected(self, score: ScoreName, method: str | None) -> Interval:
        """A score over all plausible models: the weighted mean, and the lowest and highest end of their intervals."""
        weights = {model.name: model.weight for model in self.models}
        found = [(weights[part.model], part.expected(score, method)) for part in self.twins]
        value = sum(weight * estimate.value for weight, estimate in found)
        return Interval(value, min(e.low for _, e in found), max(e.high for _, e in found))

    @property
    def disagreement(self) -> tuple[float, FittedModel, FittedModel] | None:
        """The two plausible models whose labels differ most, after the share of items on which they differ."""
        pairs = [
            (float(np.mean(first.posterior.argmax(axis=1) != second.posterior.argmax(axis=1))), first, second)
            for first, second in combinations(self.plausible, 2)
        ]
        return max(pairs, key=lambda pair: pair[0]) if pairs else None


def choose(losses: Mapping[ScoreName, Losses], methods: Sequence[str], gold: GoldScores | None = None) -> Choice:
    """Choose a method.

    With gold labels, only methods whose labels are within a standard error of the best on them are considered. Of
    these, the one with the smallest worst-case loss of balanced accuracy over the plausible models is chosen; if tied,
    the one with the smallest worst-case loss of log score; if tied again, the first. Without a plausible model it is
    the safest method of those that are tied on the gold labels, or of all.

    Args:
        losses: Losses of each score, by plausible model and method.
        methods: The methods to choose from, the cheaper ones first.
        gold: Scores on gold labels, if there are any.
    """
    if gold is not None:
        methods = [name for name in methods if name in gold.close]
    labels = losses["balanced_accuracy"]
    if labels:
        tied = _smallest_worst_loss(labels, methods, 0.001)
        chosen = _smallest_worst_loss(losses["log_score"], tied, 0.005)[0]
        worst = max(labels, key=lambda model: labels[model][chosen])
        return Choice(chosen, worst, labels[worst][chosen], tuple(tied))
    if gold is None:
        return Choice(next((name for name in SAFEST if name in methods), methods[0]), None, 0.0, tuple(methods))
    tied = [name for name in methods if name in gold.tied]
    chosen = next((name for name in SAFEST if name in tied), min(tied, key=lambda name: gold.log_score[name]))
    return Choice(chosen, None, 0.0, tuple(methods))


def _smallest_worst_loss(losses: Losses, methods: Sequence[str], tolerance: float) -> list[str]:
    """The methods whose worst loss over models is the smallest up to a tolerance, in the order given."""
    worst = {method: max(by_method[method] for by_method in losses.values()) for method in methods}
    return [method for method, loss in worst.items() if loss <= min(worst.values()) + tolerance]


def labels_to_separate_methods(twins: TwinScores, better: str, worse: str) -> float:
    """Gold labels until McNemar's test finds that a method labels better than another, if the model is right."""
    only_better, only_worse = [], []
    for twin in twins.twins:
        right, other = (twin.posteriors[name].argmax(axis=1) == twin.labels for name in (better, worse))
        only_better.append(np.mean(right & ~other))
        only_worse.append(np.mean(other & ~right))
    return mcnemar_sample_size(float(np.mean(only_better)), float(np.mean(only_worse)))


def mcnemar_sample_size(only_better: float, only_worse: float) -> float:
    """Items that McNemar's test needs, from the shares on which just one of two methods is right (Miettinen 1968)."""
    discordant, gain = only_better + only_worse, only_better - only_worse
    return _sample_size(gain, np.sqrt(discordant), np.sqrt(max(discordant - gain**2, 0.0)), level=0.025)


def _sample_size(effect: float, spread_without: float, spread: float, level: float = 0.05, power: float = 0.8) -> float:
    """Items until a one-sided normal test of a mean finds an effect.

    Args:
        effect: The mean; the null hypothesis is 0.
        spread_without: Standard deviation of one item under the null hypothesis.
        spread: Standard deviation of one item if there is the effect.
        level: Level of the test; half of it for a two-sided one.
        power: Probability to find the effect.
    """
    if effect == 0:
        return np.inf
    return float(np.ceil(((ndtri(1 - level) * spread_without + ndtri(power) * spread) / effect) ** 2))


def labels_to_separate_models(first: Posterior, second: Posterior, least_prob: float = 1e-6) -> float:
    """Gold labels until one of two posteriors of the same items is found to predict them better, whichever is right.

    If p is right, an item's label y ~ p has the log-likelihood ratio log p(y) / q(y), and the sum of n of these is
    about normal; n is such that it is clear of zero. The result is the larger of both cases. Posteriors are kept away
    from zero by `least_prob`, so that no single label settles everything.
    """
    numbers = []
    for right, wrong in ((first, second), (second, first)):
        right, wrong = (np.clip(probs, least_prob, 1.0) for probs in (right, wrong))
        ratio = safe_log(right) - safe_log(wrong)
        mean = float((right * ratio).sum(axis=1).mean())
        spread = np.sqrt(max(float((right * ratio**2).sum(axis=1).mean()) - mean**2, 0.0))
        numbers.append(_sample_size(max(mean, 0.0), spread, spread, level=0.025))
    return max(numbers)


def labels_to_check_accuracy(expected: float, drop: float = 0.1) -> float:
    """Gold labels until an accuracy that is lower than expected by `drop` is detected."""
    spread_without, spread = (np.sqrt(share * (1 - share)) for share in (expected, max(expected - drop, 1e-3)))
    return _sample_size(drop, spread_without, spread)
