"""What checks of a fitted program share: its states, items drawn from it, and the scores of rows of votes.

Parameters that were fitted to the same votes pull every statistic of the votes towards the data. Statistics are
therefore made orthogonal to the score (Neyman's C(α) test): with g the deviation of an item's statistic and s the score
of the item, what is judged is the total of `g − B s`, where `B s` is the regression of g on s under the model. To first
order it does not matter then how the parameters were estimated, and nothing has to be refitted.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigh

from latentens.programs.marginal import unpack
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.row_layout import DenseRows
from latentens.programs.row_sums import Tables, row_log_likelihood
from latentens.programs.tables import build_tables
from latentens.programs.transforms import to_point
from latentens.votes import Votes
from latentens.votes.labels import MISSING, code_type

POOL_ITEMS = 10_000
"""Items that are simulated to estimate variances under the model."""

MAX_PARAMETERS = POOL_ITEMS // 4
"""With more parameters than this the simulated items would be too few."""

FREE_SHARE = 1e-6
"""A statistic with less than this share of its variance left is fitted by the parameters whatever it is."""

SMALLEST_INFORMATION = 1e-9
"""Directions of the parameters with less than this share of the largest information are taken as unidentified."""

SCORE_ROWS = 256
"""Rows whose scores are computed at a time."""


class States(NamedTuple):
    """A program at given parameters: the states on which votes depend, with the votes' distribution in each."""

    share: Float[np.ndarray, " state"]
    emission: Float[np.ndarray, "state voter vote"]

    @property
    def margin(self) -> Float[np.ndarray, "voter vote"]:
        """The distribution of each voter's votes."""
        return np.tensordot(self.share, self.emission, axes=1)

    @property
    def variance(self) -> Float[np.ndarray, " voter"]:
        """The variance of each voter's votes as indicators."""
        return 1 - (self.margin**2).sum(axis=1)

    @property
    def covariance(self) -> Float[np.ndarray, "voter voter"]:
        """`Σ_a Cov(1{x_i = a}, 1{x_j = a})` of each pair of voters; on the diagonal as if a voter voted twice."""
        deviation = self.emission - self.margin
        weighted = deviation * self.share[:, None, None]
        return np.einsum("sia,sja->ij", weighted, deviation, optimize=True)


def states_of(tables: Tables) -> States:
    """The states of a program's tables, one for each label if votes depend on the label directly."""
    share, emission = np.exp(tables.log_prior), np.exp(tables.log_emission)
    share = (share.sum(axis=0) if len(emission) == 1 else share).ravel()
    return States(share / share.sum(), emission.reshape(len(share), *emission.shape[2:]))


def draw_pool(states: States, votes: Votes, generator: np.random.Generator) -> Votes:
    """Items drawn from the model, with the gaps and repetitions of the votes."""
    like = np.resize(generator.permutation(votes.num_items), POOL_ITEMS)
    return draw_votes(states, votes.take(like), generator)


def draw_votes(states: States, pattern: Votes, generator: np.random.Generator) -> Votes:
    """Votes drawn from the model, in a given pattern of who voted on what and how often."""
    state = generator.choice(len(states.share), pattern.num_items, p=states.share)
    thresholds = states.emission.cumsum(axis=2)
    num_classes = states.emission.shape[2]
    if isinstance(pattern.storage, np.ndarray):
        uniform = generator.random(pattern.shape)
        drawn = np.zeros(pattern.shape, dtype=code_type(num_classes))
        for vote in range(num_classes - 1):
            drawn += uniform > thresholds[state, :, vote]
        drawn[pattern.storage == MISSING] = MISSING
        return Votes(drawn, *pattern.shape, num_classes)
    item, voter, _ = pattern.storage
    cumulative = thresholds[state[item], voter, : num_classes - 1]
    drawn = (generator.random((len(item), 1)) > cumulative).sum(axis=1, dtype=code_type(num_classes))
    return Votes(pattern.storage._replace(vote=drawn).in_order(), *pattern.shape, num_classes)


def row_scores(
    model: GenerativeModel, params: Params, counts: Float[np.ndarray, "row voter_vote"]
) -> Float[np.ndarray, "row parameter"]:
    """The derivative of each row's log-likelihood by the parameters in unconstrained space.

    Args:
        model: The generative model.
        params: Its parameters.
        counts: How often each voter cast each vote.
    """
    point = to_point(model, params)
    padded = np.pad(counts, ((0, -len(counts) % SCORE_ROWS), (0, 0)))  # blocks of one size compile once
    blocks = [_block_scores(model, point, block) for block in np.split(padded, len(padded) // SCORE_ROWS)]
    return np.concatenate(blocks)[: len(counts)]


@partial(jax.jit, static_argnums=0)
def _block_scores(
    model: GenerativeModel, point: dict[str, Array], counts: Float[Array, "row voter_vote"]
) -> Float[Array, "row parameter"]:
    def log_likelihood(point: dict[str, Array], row: Array) -> Array:
        tables = build_tables(model, unpack(model, point).params)
        return row_log_likelihood(tables, DenseRows(row[:, None]))[0]

    scores = jax.vmap(jax.grad(log_likelihood), in_axes=(None, 0))(point, counts)
    return jnp.concatenate([score.reshape(SCORE_ROWS, -1) for score in scores.values()], axis=1)


def score_basis(
    scores: Float[np.ndarray, "row parameter"], counts: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "parameter direction"]:
    """Combinations of the scores that are orthonormal over some rows; unidentified directions are left out."""
    information = (scores * counts[:, None]).T @ scores
    size = np.sqrt(np.diag(information))
    size = np.where(size > 0, size, 1.0)
    values, vectors = eigh(information / np.outer(size, size))
    kept = values > SMALLEST_INFORMATION * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
