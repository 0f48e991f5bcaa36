"""Calibrated confidence without labels: a posterior is tempered until it predicts hidden votes best."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from latentens.errors import LatentensError, VotesError
from latentens.methods.base import Estimate, Fit, GoldCodes, Method, Posterior, nested_fit, posterior_of
from latentens.runtime.numerics import numpy_generator, safe_log
from latentens.runtime.settings import at_least
from latentens.votes import Votes
from latentens.votes.labels import MISSING

TEMPERATURES = np.array([0.0, *2.0 ** np.arange(-6.0, 3.0)])
"""The temperatures tried first; at 0 the posterior is the base."""

TRACE = 1e-6
"""Used instead of the temperature 0, so that the most probable label remains so."""

Score = Callable[[float], Float[np.ndarray, " item"]]
"""The score of each item at a temperature."""


class Temperature(NamedTuple):
    """The best temperature, and how scores depend on it.

    Attributes:
        value: The best temperature.
        standard_error: Its standard error, items being independent of each other; NaN at 0 and where there is no peak.
        tried: All temperatures that were tried, in increasing order.
        curve: The mean score of an item at each of them.
    """

    value: float
    standard_error: float
    tried: Float[np.ndarray, " temperature"]
    curve: Float[np.ndarray, " temperature"]


def temper(probs: Posterior, temperature: float, base: Float[np.ndarray, " label"] | None = None) -> Posterior:
    """The posterior p_τ(y) ∝ b(y)^(1 − τ) p(y)^τ: less confident for τ below 1, more confident above.

    The base b is the distribution of an item's label before its votes, and the result at τ = 0; for τ above 1 it is
    ignored. The most probable label stays so: where the base would change that, it is raised to a tie.

    Args:
        probs: The posterior p.
        temperature: The temperature τ.
        base: The base b; uniform by default.
    """
    logs = max(temperature, TRACE) * safe_log(probs)
    if base is None or temperature >= 1:
        return softmax(logs, axis=1)
    tempered = softmax(logs + (1 - max(temperature, TRACE)) * np.log(base), axis=1)
    best = probs.argmax(axis=1)
    changed = np.flatnonzero(tempered.argmax(axis=1) != best)
    tempered[changed] = _leading(tempered[changed], best[changed])
    return tempered


def _leading(probs: Posterior, label: Int[np.ndarray, " item"]) -> Posterior:
    """The nearest probabilities at which a given label is the most probable, tied with those that were above it."""
    items = np.arange(len(label))
    own = probs[items, label]
    rest = probs.copy()
    rest[items, label] = -1.0
    rest = -np.sort(-rest, axis=1)[:, :-1]
    levels = (own[:, None] + rest.cumsum(axis=1)) / np.arange(2, probs.shape[1] + 1)
    enough = levels >= np.pad(rest[:, 1:], ((0, 0), (0, 1)), constant_values=-1.0)
    level = levels[items, enough.argmax(axis=1)]
    leading = np.minimum(probs, level[:, None])
    leading[items, label] = np.nextafter(level, 1.0)
    return leading


def usual_shares(votes: Votes) -> Float[np.ndarray, " label"]:
    """The share of each class in all votes, one vote added to each: the prior of an item before its votes."""
    cast = votes.tally.sum(axis=0) + 1.0
    return cast / cast.sum()


def best_temperature(
    score: Score, *, by_labels: bool = False, less: float = 1.0, more: float = 2.0, fewest_items: int = 50
) -> Temperature:
    """The temperature with the highest mean score, if the evidence is sufficient; otherwise 1, or 0.

    Args:
        score: The score of each item at a temperature.
        by_labels: Whether items are scored by their labels. Only labels can raise τ above 1: hidden votes do not show
            the errors that voters share.
        less: τ < 1 must beat τ = 1 by this many standard errors of the difference, and every τ must beat τ = 0, where
            nothing is known.
        more: The same for τ > 1.
        fewest_items: With fewer items the standard error is too rough for τ > 1.
    """
    scores: dict[float, Float[np.ndarray, " item"]] = {}

    def mean(temperature: float) -> float:
        if temperature not in scores:
            scores[temperature] = score(temperature)
        return float(scores[temperature].mean())

    value = _highest(mean)
    if value != 1 and not _is_evident(scores[value] - scores[1.0], more if value > 1 else less):
        value = 1.0
    if value > 1 and (not by_labels or len(scores[1.0]) < fewest_items):
        value = 1.0
    if value > 0 and np.ptp(scores[value] - scores[0.0]) > 0 and not _is_evident(scores[value] - scores[0.0], less):
        value = 0.0
    tried = np.array(sorted(scores))
    curve = np.array([mean(temperature) for temperature in tried])
    return Temperature(value, _standard_error(score, value), tried, curve)


def _highest(mean: Callable[[float], float], negligible: float = 1e-7) -> float:
    """The maximum of a curve: the best of `TEMPERATURES`, then between its neighbours; ties go to the nearest to 1."""
    curve = np.array([mean(float(temperature)) for temperature in TEMPERATURES])
    equal = np.flatnonzero(curve > curve.max() - negligible)
    best = equal[np.argmin(np.abs(np.log(np.maximum(TEMPERATURES[equal], TEMPERATURES[1] / 2))))]
    if best == 0:
        return 0.0
    low, high = np.log(TEMPERATURES[[max(best - 1, 1), min(best + 1, len(curve) - 1)]])
    found = minimize_scalar(
        lambda log: -mean(float(np.exp(log))), bounds=(low, high), method="bounded", options={"xatol": 0.05}
    )
    return float(np.exp(found.x)) if -found.fun > curve[best] + negligible else float(TEMPERATURES[best])


def _is_evident(gains: Float[np.ndarray, " item"], times: float) -> bool:
    return bool(gains.mean() > times * gains.std() / np.sqrt(len(gains)))


def _standard_error(score: Score, value: float, step: float = 0.2) -> float:
    """That of an M-estimator, `√Σ g² / |h|`: g is the slope of an item's score in log τ, h the bend of their sum."""
    if value == 0:
        return np.nan
    below, here, above = (score(value * float(np.exp(move))) for move in (-step, 0.0, step))
    slopes, bend = (above - below) / (2 * step), float((above + below - 2 * here).sum()) / step**2
    return value * float(np.sqrt(np.sum((slopes - slopes.mean()) ** 2))) / -bend if bend < 0 else np.nan


MOST_HIDDEN = 2**14
"""Largest number of hidden votes; of more votes a random sample is taken."""


NO_PAIRS = (
    "Tempered predicts hidden votes from the votes of other voters on the same item, but no item has votes from two "
    "voters: collect more votes on some items, or use the method without tempering"
)


Base = Float[np.ndarray, " label"]
Counts = Float[np.ndarray, "label voter vote"]
ByLabel = Float[np.ndarray, "label hidden"]


class HiddenVotes(NamedTuple):
    """Votes that were hidden one at a time.

    Attributes:
        item: The item of each hidden vote, as a place among the items in question.
        voter: Its voter.
        vote: The vote.
        label_probs: The posterior of the item's label given the other voters' votes.
        shape: Number of voters and of different votes.
        weight: The probability that the voter gave to the vote, if votes are soft, else 1.
    """

    item: Int[np.ndarray, " hidden"]
    voter: Int[np.ndarray, " hidden"]
    vote: Int[np.ndarray, " hidden"]
    label_probs: Float[np.ndarray, "hidden label"]
    shape: tuple[int, int]
    weight: Float[np.ndarray, " hidden"] | float = 1.0

    def score(self, probs: ByLabel, confusion: Counts) -> Float[np.ndarray, " item"]:
        """The log-probability of each item's hidden votes, given its label's tempered posterior."""
        predicted = (probs * confusion[:, self.voter, self.vote]).sum(axis=0)
        return np.bincount(np.unique(self.item, return_inverse=True)[1], self.weight * np.log(predicted))

    def counts(self, probs: ByLabel, tolerance: float = 1e-5, max_rounds: int = 20) -> Counts:
        """How often each voter cast each vote on each label, where the confusion matrices predict these votes best."""
        cell = self.voter.astype(np.int64) * self.shape[1] + self.vote

        def count(weights: ByLabel) -> Counts:
            counted = [np.bincount(cell, self.weight * part, self.shape[0] * self.shape[1]) for part in weights]
            return np.stack(counted).reshape(-1, *self.shape)

        # expectation–maximisation, the posterior of the label given the other votes being the prior
        own, before = probs, -np.inf
        for _ in range(max_rounds):
            joint = probs * smoothed_confusion(count(own)).reshape(len(probs), -1)[:, cell]
            total = joint.sum(axis=0)
            own = joint / total
            score = float((self.weight * np.log(total)).mean())
            if score - before < tolerance:
                break
            before = score
        return count(own)


class HiddenLabels(NamedTuple):
    """True labels withheld from a fit.

    Attributes:
        label: The true label of each item.
        label_probs: The posterior of the item's label given its votes, by a fit without the item.
    """

    label: Int[np.ndarray, " item"]
    label_probs: Posterior


class HeldOut(NamedTuple):
    """Hidden votes and labels with their predictions, one entry per fold.

    Attributes:
        votes: Votes on items that the fit has not seen.
        seen: Votes on the items that it was fitted to, each hidden in turn; the fit itself has seen it.
        labels: True labels of items that the fit has not seen.
    """

    votes: list[HiddenVotes]
    seen: list[HiddenVotes]
    labels: list[HiddenLabels]


def hold_out(method: Method, votes: Votes, folds: int, key: jax.Array, gold: GoldCodes | None) -> HeldOut:
    """Fit a method without the items of one fold and predict their votes and labels, for each fold in turn.

    Args:
        method: The method.
        votes: The votes.
        folds: Number of folds.
        key: Random key.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
    """
    generator = numpy_generator(key)
    fold = generator.permutation(votes.num_items) % folds
    items = _asked_items(votes, generator)
    asked, place = votes.take(items), fold[items]
    hidden = _hidden_entries(asked, generator)
    held = HeldOut([], [], [])
    for number in range(folds):
        others = np.flatnonzero(fold != number)
        known = None if gold is None else gold[others]
        fitted = nested_fit(method, votes.take(others), jax.random.fold_in(key, number), known)
        inside = place[asked.triplets.item[hidden]] == number
        if inside.any() and not inside.all():
            held.votes.append(_ask_about_votes(fitted, asked, hidden[inside]))
            held.seen.append(_ask_about_votes(fitted, asked, hidden[~inside]))
        if gold is not None and (told := np.flatnonzero((fold == number) & (gold >= 0))).size:
            probs = posterior_of(method, fitted, votes.take(told))
            held.labels.append(HiddenLabels(gold[told], probs))
    return held


def without_voter(votes: Votes, item: Int[np.ndarray, " row"], voter: Int[np.ndarray, " row"]) -> Votes:
    """One row of votes for each item given, without the votes of the voter given with it."""
    rows = votes.take(item)
    if isinstance(rows.storage, np.ndarray):
        matrix = rows.storage.copy()
        matrix[np.arange(len(item)), voter] = MISSING
        return replace(rows, storage=matrix)
    return rows.at_entries(rows.storage.voter != voter[rows.storage.item])


def _asked_items(votes: Votes, generator: np.random.Generator) -> Int[np.ndarray, " asked"]:
    """The items with two votes at least, or a sample of them."""
    items = np.flatnonzero(votes.cast_by_item > 1)
    if not len(items):
        raise VotesError(NO_PAIRS)
    return items if len(items) <= MOST_HIDDEN else np.sort(generator.choice(items, MOST_HIDDEN, replace=False))


def _hidden_entries(votes: Votes, generator: np.random.Generator) -> Int[np.ndarray, " hidden"]:
    """The votes on items with votes of another voter, or a sample of them."""
    item = votes.triplets.item
    voters = np.bincount(item[~votes.triplets.repeated], minlength=votes.num_items)
    entries = np.flatnonzero(voters[item] > 1)
    if not len(entries):
        raise VotesError(NO_PAIRS)
    if len(np.unique(item[entries])) < 2:
        raise VotesError("Tempered needs votes of two voters on two items at least, but only one item has them")
    return entries if len(entries) <= MOST_HIDDEN else np.sort(generator.choice(entries, MOST_HIDDEN, replace=False))


def _ask_about_votes(fitted: Fit, votes: Votes, entries: Int[np.ndarray, " hidden"]) -> HiddenVotes:
    item, voter, vote = votes.triplets.at(entries)
    probs = posterior_of(fitted.method, fitted, without_voter(votes, item, voter))
    shape = votes.num_voters, votes.num_categories
    return HiddenVotes(item, voter, vote, probs, shape, 1.0 if votes.weights is None else votes.weights[entries])


def vote_scores(held: HeldOut, base: Base | None, temperature: float) -> Float[np.ndarray, " item"]:
    """The mean log-probability of each item's hidden votes at a temperature, fold by fold.

    A hidden vote x of voter j has probability Σ_y p_τ(y | other votes) θ_j(x | y). At each temperature the confusion
    matrices θ are those that best predict the votes on other items, shrunk to their mean over voters. Two such matrices
    are learnt, and the score is the mean of both log-probabilities: one from the items that the fit has seen, and one
    from the hidden votes of the other folds, which other fits were asked about. The second rewards a posterior only if
    its labels mean the same in a fit to other items.
    """

    def tempered(part: HiddenVotes) -> ByLabel:
        return temper(part.label_probs, temperature, base).T.copy()

    counts, scores = [part.counts(tempered(part)) for part in held.votes], []
    for fold, (part, seen) in enumerate(zip(held.votes, held.seen, strict=True)):
        elsewhere = [other for number, other in enumerate(counts) if number != fold]
        learnt = [seen.counts(tempered(seen)), *([sum(elsewhere[1:], start=elsewhere[0])] if elsewhere else [])]
        scores.append(np.mean([part.score(tempered(part), smoothed_confusion(each)) for each in learnt], axis=0))
    return np.concatenate(scores)


def smoothed_confusion(counts: Counts, pooling: float = 3.0, right: float = 0.6, wrong: float = 0.1) -> Counts:
    """Confusion matrices by counts, shrunk to that of all voters.

    Args:
        counts: How often each voter cast each vote on each label.
        pooling: Votes added to each voter's row, divided as the votes of all voters are.
        right: Pseudo-count of right votes in the matrix of all voters.
        wrong: Pseudo-count of each wrong vote in it.
    """
    together = counts.sum(axis=1) + wrong + (right - wrong) * np.eye(len(counts), counts.shape[2])
    counts = counts + pooling * (together / together.sum(axis=1, keepdims=True))[:, None]
    return counts / counts.sum(axis=2, keepdims=True)


@dataclass(frozen=True)
class Tempered(Method):
    """A method whose posterior is raised to the power τ that best predicts hidden votes.

    Methods that assume independent voters are overconfident where voters err together. This can be detected without
    labels: the method is fitted without some of the items, each vote on these is hidden and predicted from the other
    votes, and the τ ≤ 1 with the best predictions is applied to the fit to all items. The most probable labels do not
    change, and an item without votes keeps its posterior. True labels, if given, choose τ in the same way: each is
    predicted by a fit without its item.

    Notes:
        A hidden vote x of voter j is predicted by Σ_y p_τ(y | others) θ_j(x | y) with p_τ ∝ b^(1 − τ) p^τ, where b has
        the shares of the classes in all votes, and with confusion matrices θ that were learnt at the same τ from the
        votes on other items (see `vote_scores`). τ differs from 1 only if there is evidence for it (see
        `best_temperature`).

        What τ estimates: by Gibbs' inequality no prediction has a higher expected log-probability than p(x_j | others)
        itself. If voters are independent given the label and p(y | others) is exact, that is the prediction at τ = 1
        with the true θ, so τ = 1 is the maximum in expectation. In general τ minimises the Kullback–Leibler divergence
        of such predictions from p(x_j | others). Where votes repeat each other they say less about the next vote than
        they would if they were independent, and τ is below 1; it is also where parameters rest on few votes. Votes that
        ignore the items cannot be predicted, so τ goes to 0, where all items have the usual shares.

        What it does not estimate: the label gets the confidence of one more vote. Where a vote is harder to predict
        than the label, because voters err together on hard items or in groups, τ is too low, and the posterior can end
        up underconfident. Votes cannot tell copies from confirmations either: if fits to different items all take the
        opinion of the same group of copyists for the label, it remains overconfident.

        Extra diagnostics: `temperature`, its `temperature_error` (standard error), `temperatures` and
        `temperature_curve` (the mean score of an item at each); with true labels also `temperature_by_votes`, the
        choice without them.

    Attributes:
        method: The method to temper.
        folds: Number of parts of the items; the method is fitted once more without each part. By default two where the
            votes are many, which takes about as long as the fit to all items, else five: where voters have few votes, a
            fit to half of the items knows less than the fit to all, and τ would be too low.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Tempered(le.methods.DawidSkeneEM()).fit(votes, key=jax.random.key(0))
        >>> fit.label_probs[:2].round(2)
        array([[0.99, 0.01],
               [0.99, 0.01]])
    """

    takes_other_votes = True
    takes_soft_votes = True

    method: Method
    folds: Annotated[int, at_least(2)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.method, Tempered):
            raise LatentensError(f"{self.method} is tempered already")

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        folds = choose_folds(self.folds, votes)
        held = hold_out(self.method, votes, folds, jax.random.fold_in(key, 0), gold)
        base = usual_shares(votes)
        found, by_votes = find_temperature(held, base)
        fitted = nested_fit(self.method, votes, key, gold)
        return Estimate(
            {**fitted.params, "temperature": np.array(found.value)},
            fitted.diagnostics.updated(**temperature_diagnostics(found, by_votes)),
            fitted.draws,
            {**fitted.state, "usual_shares": base},
            temper_voted(fitted.label_probs, votes, found.value, base),
        )

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        temperature, base = float(estimate.params["temperature"]), estimate.state["usual_shares"]
        return temper_voted(self.method.posterior(estimate, votes), votes, temperature, base)


def choose_folds(wanted: int | None, votes: Votes, many: int = 2**17) -> int:
    """The number of folds: as wanted, or two if there are `many` votes and five if not."""
    if votes.num_items < (wanted or 2):
        raise VotesError(f"{wanted or 2} folds need as many items, but there are {votes.num_items}")
    return wanted or (2 if votes.tally.sum() > many else min(5, votes.num_items))


def find_temperature(held: HeldOut, base: Float[np.ndarray, " label"]) -> tuple[Temperature, Temperature]:
    """The temperature chosen by hidden labels, if there are any, else by hidden votes; and the one by hidden votes."""
    by_votes = best_temperature(partial(vote_scores, held, base))
    if not held.labels:
        return by_votes, by_votes

    def by_labels(temperature: float) -> Float[np.ndarray, " item"]:
        """The log-probability of each true label."""
        stated = [temper(probs, temperature, base)[np.arange(len(label)), label] for label, probs in held.labels]
        return safe_log(np.concatenate(stated))

    return best_temperature(by_labels, by_labels=True), by_votes


def temper_voted(probs: Posterior, votes: Votes, temperature: float, base: Float[np.ndarray, " label"]) -> Posterior:
    """Tempered where there are votes; without any, the posterior is not overconfident."""
    return np.where((votes.cast_by_item > 0)[:, None], temper(probs, temperature, base), probs)


def temperature_diagnostics(found: Temperature, by_votes: Temperature) -> dict[str, Any]:
    """Diagnostics: the temperature, and the one that hidden votes alone would have chosen."""
    by_labels = {} if found is by_votes else {"temperature_by_votes": by_votes.value}
    return {
        "label_probs": f"tempered posterior, chosen by {'true labels' if by_labels else 'hidden votes'}",
        "temperature": found.value,
        "temperature_error": found.standard_error,
        "temperatures": found.tried,
        "temperature_curve": found.curve,
        **by_labels,
    }
