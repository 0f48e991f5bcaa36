"""All optima that the starts of a chain reach, and what each says about the labels."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax

from latentens.inference.optima import group_starts
from latentens.inference.orient import orientation
from latentens.inference.stability import fits_about_as_well
from latentens.methods.base import GoldCodes, Posterior
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.programs.model import Params
from latentens.programs.rows import Rows
from latentens.runtime.numerics import entropy
from latentens.votes import Votes


class ChainOptimum(NamedTuple):
    """Where some starts of a chain end.

    Attributes:
        size: Number of hidden units.
        params: The parameters.
        num_parameters: How many there are.
        log_likelihood: That of each item.
        label_probs: The posterior of each item's label, in the order that the votes say.
    """

    size: int
    params: Params
    num_parameters: int
    log_likelihood: Float[np.ndarray, " item"]
    label_probs: Posterior

    def criterion(self, penalty: float) -> float:
        """Twice the negative log-likelihood, and a penalty for each parameter."""
        return penalty * self.num_parameters - 2 * float(self.log_likelihood.sum())

    @property
    def aic(self) -> float:
        """Akaike's criterion: what the chain is expected to lose on new items."""
        return self.criterion(2.0)

    @property
    def bic(self) -> float:
        """Schwarz's criterion."""
        return self.criterion(np.log(len(self.log_likelihood)))

    @property
    def hannan_quinn(self) -> float:
        """The criterion of Hannan and Quinn: the least penalty that finds the true size as items grow in number."""
        return self.criterion(2 * np.log(np.log(max(len(self.log_likelihood), 3))))

    @property
    def labels(self) -> Int[np.ndarray, " item"]:
        """The most probable labels."""
        return self.label_probs.argmax(axis=1)

    @property
    def entropy(self) -> float:
        """How unsure the labels are, in nats per item."""
        return float(entropy(self.label_probs).mean())


def chain_optima(
    climb: MaximumLikelihood, size: int, votes: Votes, key: jax.Array, gold: GoldCodes | None = None
) -> list[ChainOptimum]:
    """The distinct optima that the starts of a climb reach.

    Args:
        climb: The climb.
        size: Number of hidden units of its model.
        votes: The votes.
        key: Random key of its starts.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
    """
    rows = Rows.of(climb.model, votes, gold)
    ends = climb.climb(votes, rows, key, gold)
    found = []
    for start, *_ in group_starts(-votes.num_items * ends.losses):
        params = ends.point(start)
        joint = climb.log_joint(params, rows)
        probs, likelihood = softmax(joint, axis=0).T[rows.inverse], logsumexp(joint, axis=0)[rows.inverse]
        number = sum(np.size(value) for value in params.values())
        found.append(ChainOptimum(size, params, number, likelihood, probs[:, orientation(probs, votes, gold)]))
    return found


def about_as_good(chains: Sequence[ChainOptimum]) -> list[ChainOptimum]:
    """Those that are not clearly behind the one with the lowest BIC: they are expected to predict about as well."""
    best = min(chains, key=lambda chain: chain.bic)
    counts = np.ones(len(best.log_likelihood))
    return [
        chain
        for chain in chains
        if fits_about_as_well(
            best.log_likelihood, chain.log_likelihood, counts, chain.num_parameters - best.num_parameters
        )
    ]


def surest_consensus(chains: Sequence[ChainOptimum]) -> ChainOptimum:
    """Of the surest quarter the one whose labels agree most with those of the others in it."""
    surest = sorted(chains, key=lambda chain: chain.entropy)[: math.ceil(len(chains) / 4)]
    return max(surest, key=lambda chain: sum(float(np.mean(chain.labels == other.labels)) for other in surest))
