"""Maximum likelihood for Dawid & Skene (1979) by expectation–maximisation."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from latentens.errors import LatentensError
from latentens.fit import Fit, Method, Posterior
from latentens.methods.conditional_independence import named_params, posterior, safe_log
from latentens.methods.imbalance import third_moment_imbalance
from latentens.methods.moments import rates_at
from latentens.methods.rows import Indicator, row_predictor, vote_indicator
from latentens.methods.spectral import independent_posterior, rank_one_structure, spectral_score
from latentens.orient import orientation, vote_shares
from latentens.randomness import numpy_generator
from latentens.votes import Votes

Responsibilities = Float[np.ndarray, "row start label"]

SPECTRAL_VOTERS = 2000
"""With more voters than this the spectral starts cost more than all iterations and are left out."""


class Estimates(NamedTuple):
    """Parameters of several starts side by side."""

    shares: Float[np.ndarray, "start label"]
    confusion: Float[np.ndarray, "voter vote start label"]


class Optimum(NamedTuple):
    """Where the iterations of each start ended."""

    estimates: Estimates
    log_likelihood: Float[np.ndarray, " start"]
    objective: Float[np.ndarray, " start"]
    """Log-likelihood plus the pseudo-counts' share: what EM maximises."""
    iterations: Int[np.ndarray, " start"]
    converged: np.ndarray


@dataclass(frozen=True)
class DawidSkeneEM(Method):
    """Class shares and a confusion matrix for each voter, at the best of several maxima of the likelihood.

    Starts are the vote shares, for two classes what SML and RL say, and random confusion matrices; all run side by
    side. The probabilities are the exact posterior at the estimates.

    Attributes:
        pseudo_count: Added to each cell of the confusion matrices' counts; zero gives the plain likelihood.
        random_starts: Number of random starts.
        tolerance: A start has converged when an iteration gains less than this in mean log-likelihood.
        max_iterations: Stop after so many iterations in any case.
    """

    pseudo_count: float = 0.01
    random_starts: int = 10
    tolerance: float = 1e-9
    max_iterations: int = 2000

    def __post_init__(self) -> None:
        if self.pseudo_count < 0 or self.random_starts < 0 or self.tolerance <= 0 or self.max_iterations < 1:
            raise LatentensError(
                f"{self} is impossible: counts must not be negative, tolerance and max_iterations must be positive"
            )

    def _fit(self, votes: Votes, key: jax.Array) -> Fit:
        indicator = vote_indicator(votes.patterns.votes, votes.num_classes)
        optimum = self._maximise(indicator, votes.patterns.counts, self._starts(votes, indicator, key))
        best = int(np.argmax(optimum.objective))
        shares = optimum.estimates.shares[best]
        confusion = optimum.estimates.confusion[:, :, best].transpose(0, 2, 1)
        probs = posterior(indicator, shares, confusion)[votes.patterns.inverse]
        order = orientation(probs, votes)
        shares, confusion = shares[order], confusion[:, order]

        def label_probs(rows: Votes) -> Posterior:
            return posterior(vote_indicator(rows, votes.num_classes), shares, confusion)

        diagnostics: dict[str, Any] = {
            "label_probs": "exact posterior at the estimated parameters",
            "log_likelihood": float(optimum.log_likelihood[best]),
            "iterations": int(optimum.iterations[best]),
            "converged": bool(optimum.converged[best]),
            "flipped": not np.array_equal(order, np.arange(len(order))),
            "start_log_likelihoods": optimum.log_likelihood,
        }
        predictor = row_predictor(label_probs, votes)
        return Fit(predictor(votes), predictor, named_params(shares, confusion), diagnostics)

    def _starts(self, votes: Votes, indicator: Indicator, key: jax.Array) -> Responsibilities:
        starts = [vote_shares(votes.patterns.votes)]
        if votes.num_classes == 2 and votes.num_voters <= SPECTRAL_VOTERS:
            starts += _spectral_starts(votes)
        drawn = random_estimates(numpy_generator(key), self.random_starts, votes.num_voters, votes.num_classes)
        return np.concatenate([np.stack(starts, axis=1), expectation(indicator, drawn)[0]], axis=1)

    def _maximise(
        self, indicator: Indicator, counts: Int[np.ndarray, " row"], responsibilities: Responsibilities
    ) -> Optimum:
        """Iterate all starts, setting aside those that have converged."""
        num_starts, items = responsibilities.shape[1], counts.sum()
        running = np.arange(num_starts)
        optimum = _empty_optimum(indicator.shape[1], num_starts, responsibilities.shape[2])
        for iteration in range(1, self.max_iterations + 1):
            estimates = maximisation(indicator, counts, responsibilities, self.pseudo_count)
            responsibilities, log_rows = expectation(indicator, estimates)
            log_likelihood = counts @ log_rows
            objective = log_likelihood + self.pseudo_count * safe_log(estimates.confusion).sum(axis=(0, 1, 3))
            gain = (objective - optimum.objective[running]) / items
            _record(optimum, running, estimates, log_likelihood, objective, iteration)
            optimum.converged[running] = gain < self.tolerance
            going = gain >= self.tolerance
            running, responsibilities = running[going], responsibilities[:, going]
            if not len(running):
                break
        return optimum


def _spectral_starts(votes: Votes) -> list[Posterior]:
    """The score of SML as log-odds, and the posterior of RL with the imbalance from third moments."""
    rank_one, rows = rank_one_structure(votes), votes.patterns.votes
    if rank_one.scale <= 0:
        return []
    mean, vector = rank_one.moments.mean, rank_one.vector
    of_one = expit(spectral_score(rows, vector))
    imbalance = third_moment_imbalance(votes, mean, vector, np.arange(votes.num_voters))
    return [
        np.stack([1 - of_one, of_one], axis=1),
        independent_posterior(rows, imbalance, rates_at(imbalance, mean, vector)),
    ]


def maximisation(
    indicator: Indicator, counts: Int[np.ndarray, " row"], responsibilities: Responsibilities, pseudo_count: float
) -> Estimates:
    """Shares and confusion matrices that maximise the expected log-likelihood; even where a voter has no counts."""
    weighted = responsibilities * counts[:, None, None]
    num_classes = responsibilities.shape[2]
    totals = indicator.T @ weighted.reshape(len(counts), -1)
    votes = totals.reshape(-1, num_classes, *responsibilities.shape[1:]) + pseudo_count
    total = votes.sum(axis=1, keepdims=True)
    confusion = np.where(total > 0, votes / np.where(total > 0, total, 1.0), 1 / num_classes)
    return Estimates(weighted.sum(axis=0) / counts.sum(), confusion)


def expectation(indicator: Indicator, estimates: Estimates) -> tuple[Responsibilities, Float[np.ndarray, "row start"]]:
    """`p(label | votes)` and `log p(votes)` of each row."""
    num_starts, num_classes = estimates.shares.shape
    table = safe_log(estimates.confusion).reshape(indicator.shape[1], num_starts * num_classes)
    log_joint = (indicator @ table + safe_log(estimates.shares).ravel()).reshape(
        indicator.shape[0], num_starts, num_classes
    )
    highest = log_joint.max(axis=2, keepdims=True)
    joint = np.exp(log_joint - highest)
    total = joint.sum(axis=2, keepdims=True)
    return joint / total, (np.log(total) + highest)[:, :, 0]


def random_estimates(generator: np.random.Generator, num_starts: int, num_voters: int, num_classes: int) -> Estimates:
    """Equal shares and, for each start, voters who are more often right than wrong."""
    concentration = 1.0 + num_classes * np.eye(num_classes)
    drawn = [generator.dirichlet(row, (num_starts, num_voters)) for row in concentration]
    confusion = np.stack(drawn, axis=-1).transpose(1, 2, 0, 3)  # voter, vote, start, label
    return Estimates(np.full((num_starts, num_classes), 1 / num_classes), confusion)


def _empty_optimum(width: int, num_starts: int, num_classes: int) -> Optimum:
    estimates = Estimates(
        np.empty((num_starts, num_classes)), np.empty((width // num_classes, num_classes, num_starts, num_classes))
    )
    worst = np.full(num_starts, -np.inf)
    return Optimum(estimates, worst, worst.copy(), np.zeros(num_starts, dtype=int), np.zeros(num_starts, dtype=bool))


def _record(
    optimum: Optimum,
    starts: Int[np.ndarray, " running"],
    estimates: Estimates,
    log_likelihood: Float[np.ndarray, " running"],
    objective: Float[np.ndarray, " running"],
    iteration: int,
) -> None:
    optimum.estimates.shares[starts] = estimates.shares
    optimum.estimates.confusion[:, :, starts] = estimates.confusion
    optimum.log_likelihood[starts] = log_likelihood
    optimum.objective[starts] = objective
    optimum.iterations[starts] = iteration
