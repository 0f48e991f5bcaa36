"""A score test of any statistic of the votes: is the statistic as far from its expectation as a fitted program allows?

Parameters that were fitted to the same votes pull every statistic towards the data. Statistics are therefore made
orthogonal to the score (Neyman's C(α) test): with g the deviation of an item's statistic from its expectation and s the
score of the item, the test is about the total of `g − B s`, where `B s` is the regression of g on s under the program.
To first order it then does not matter how the parameters were estimated, and nothing has to be refitted.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentens.checks.statistics import PairCovariance, States, Statistic, VoteRows, draw_votes
from latentens.inference.skill import scaled_spectrum
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import DenseRows, row_log_likelihood
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import num_parameters, to_point, unpack
from latentens.programs.tables import build_tables
from latentens.votes import Votes

POOL_ITEMS = 10_000
"""The default number of items simulated to estimate regressions and variances under the program."""


def max_parameters(pool_items: int = POOL_ITEMS) -> int:
    """With more parameters the simulated items would be too few for the regression."""
    return pool_items // 4


PerCell = Float[np.ndarray, " cell"]


class Residuals(NamedTuple):
    """A statistic after its regression on the score was subtracted.

    Attributes:
        observed: The observed total of each cell.
        implied: Its expectation at the estimated parameters.
        expected: Its expectation, adjusted for the fit of the parameters.
        deviation: Standard deviation of observed minus expected under the program.
        free: Whether the parameters leave any variance; other cells they fit whatever the votes are.
        simulated: The residuals of simulated rows (or data sets).
    """

    observed: PerCell
    implied: PerCell
    expected: PerCell
    deviation: PerCell
    free: Bool[np.ndarray, " cell"]
    simulated: Float[np.ndarray, "row cell"]


class ScoreTest:
    """A program at estimated parameters, ready to test statistics of the votes.

    The null distribution is that of data drawn from the simulated items, each of them a Poisson number of times (or a
    normal one with the same mean and variance).

    Attributes:
        states: The program at these parameters.
        sample: The votes.
        pool: Simulated items.
        allows_for_fit: Whether scores were computed; not if the program has too many parameters for that.
        sample_score: Total score of the votes; directions are orthonormal over the pool.
        pool_scores: Scores of the rows of the pool.
        noise: For each draw, by how many items it exceeds the expected number of each row of the pool.
    """

    def __init__(
        self,
        model: GenerativeModel,
        params: Params,
        states: States,
        votes: Votes,
        num_draws: int,
        generator: np.random.Generator,
        normal: bool = False,
        pool_items: int = POOL_ITEMS,
    ) -> None:
        """Simulate items, and compute the scores of rows.

        Args:
            model: The generative model.
            params: Its parameters, estimated from the votes.
            states: The program at these parameters.
            votes: The votes.
            num_draws: Number of draws from the null distribution.
            generator: Random numbers.
            normal: Whether the statistics are sums of enough items for normal noise, which is drawn faster.
            pool_items: Number of simulated items.
        """
        self.states, self.sample = states, VoteRows.of(votes, structure_of(model).num_vote_classes)
        like = np.resize(generator.permutation(votes.num_items), pool_items)  # with the same missing and repeated votes
        self.pool = VoteRows.of(draw_votes(states, votes.take(like), generator), self.sample.num_classes)
        self.allows_for_fit = num_parameters(model) <= max_parameters(pool_items)
        self.sample_score, self.pool_scores = np.zeros(0), np.zeros((len(self.pool.weights), 0))
        if self.allows_for_fit:
            of_sample, of_pool = (rows.map(partial(row_scores, model, params)) for rows in (self.sample, self.pool))
            basis = score_basis(of_pool, self.pool.weights)
            self.sample_score, self.pool_scores = self.sample.weights @ of_sample @ basis, of_pool @ basis
        rate = self.pool.weights * (votes.num_items / pool_items)
        if normal:
            self.noise = generator.standard_normal((num_draws, len(rate)), dtype=np.float32)
            self.noise *= np.sqrt(rate, dtype=np.float32)
        else:
            self.noise = (generator.poisson(rate, (num_draws, len(rate))) - rate).astype(np.float32)

    @property
    def _degrees_of_freedom(self) -> int:
        return int(self.pool.weights.sum()) - self.pool_scores.shape[1]

    def residuals(self, statistic: Statistic | PairCovariance, least_share: float = 1e-6) -> Residuals:
        """Subtract from a statistic its regression on the score.

        Args:
            statistic: The statistic.
            least_share: A cell with less than this share of its variance left is not free.
        """
        observed = self.sample.total(statistic.values)
        implied = self.sample.total(lambda counts: statistic.expected(self.states, counts))
        moments = self.pool.map(lambda counts: statistic.values(counts) - statistic.expected(self.states, counts))
        slope = self.pool_scores.T @ (moments * self.pool.weights[:, None])  # the scores are orthonormal
        left = moments - self.pool_scores @ slope
        squares, before = (self.pool.weights @ part**2 for part in (left, moments))
        variance = squares * self.sample.weights.sum() / self._degrees_of_freedom
        expected = implied + self.sample_score @ slope
        return Residuals(observed, implied, expected, np.sqrt(variance), squares > least_share * before, left)

    def largest(self, residuals: Residuals, cells: Bool[np.ndarray, " cell"]) -> Float[np.ndarray, " draw"]:
        """Draws of the largest distance from the expectation among some cells, in standard deviations.

        The regression on d directions took up d of the N squared lengths of the simulated residuals, so that their
        total has a variance of (N − d) / N times `deviation²`, which allows for that: draws are scaled up to it.
        """
        scale = np.sqrt(self.pool.weights.sum() / self._degrees_of_freedom)
        scaled = residuals.simulated[:, cells] * (scale / residuals.deviation[cells])
        return np.abs(self.noise @ scaled.astype(np.float32)).max(axis=1, initial=0.0)


def adjusted_p_values(
    distance: Float[np.ndarray, "*cell"], largest: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, "*cell"]:
    """p-values that allow for the number of cells: how often the largest distance of a draw is at least as large."""
    as_large = len(largest) - np.searchsorted(np.sort(largest), distance)
    return (1 + as_large) / (1 + len(largest))


def row_scores(
    model: GenerativeModel, params: Params, counts: Float[np.ndarray, "row voter vote"], block_rows: int = 256
) -> Float[np.ndarray, "row parameter"]:
    """The derivative of each row's log-likelihood by the parameters in unconstrained space.

    Args:
        model: The generative model.
        params: Its parameters.
        counts: How often each voter cast each vote.
        block_rows: Number of rows whose scores are computed at a time; blocks of one size compile once.
    """
    point, flat = to_point(model, params), counts.reshape(len(counts), -1)
    padded = np.pad(flat, ((0, -len(flat) % block_rows), (0, 0)))
    blocks = [_block_scores(model, point, block) for block in np.split(padded, len(padded) // block_rows)]
    return np.concatenate(blocks)[: len(flat)]


@partial(jax.jit, static_argnums=0)
def _block_scores(
    model: GenerativeModel, point: dict[str, Array], counts: Float[Array, "row voter_vote"]
) -> Float[Array, "row parameter"]:
    def log_likelihood(point: dict[str, Array], row: Array) -> Array:
        tables = build_tables(model, unpack(model, point).params)
        return row_log_likelihood(tables, DenseRows(row[:, None]))[0]

    scores = jax.vmap(jax.grad(log_likelihood), in_axes=(None, 0))(point, counts)
    return jnp.concatenate([score.reshape(len(counts), -1) for score in scores.values()], axis=1)


def score_basis(
    scores: Float[np.ndarray, "row parameter"], counts: Int[np.ndarray, " row"], least_information: float = 1e-9
) -> Float[np.ndarray, "parameter direction"]:
    """Combinations of the scores that are orthonormal over some rows.

    Directions with less than `least_information` of the largest information are unidentified and left out.
    """
    information = (scores * counts[:, None]).T @ scores
    values, vectors, size = scaled_spectrum(information)
    kept = values > least_information * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
