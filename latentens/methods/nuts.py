"""Bayesian inference of any generative program by Hamiltonian Monte Carlo."""

from dataclasses import dataclass
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Array

from latentens.inference.nuts_chains import Sampler
from latentens.methods.base import Arrays, Diagnostics, GoldCodes
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.sampled import SampledMethod
from latentens.programs.likelihood import observe
from latentens.programs.parameters import to_point
from latentens.programs.rows import Rows
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count, above, below
from latentens.votes import Votes


@dataclass(frozen=True)
class Nuts(SampledMethod):
    """Posterior draws of a program's parameters, and the posterior of the labels averaged exactly over them.

    Labels and hidden units are summed out, so the sampler moves in the continuous parameters alone. The labels of each
    draw are put in the order that agrees best with the votes; with gold labels, which are part of the likelihood, these
    and the priors decide. Sampling that is estimated to take more than four hours, or more than LATENTENS_SECONDS, is
    refused up front.

    Attributes:
        model: The generative model.
        num_chains: Number of chains; each starts near the end of another climb to a posterior mode.
        num_warmup: Steps of adaptation of each chain.
        num_samples: Draws kept of each chain.
        dense_mass: Whether the mass matrix has correlations.
        target_accept: Acceptance rate that the step size is adapted to.
        max_tree_depth: Trajectories have at most 2 to the power of this many steps.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> nuts = le.methods.Nuts(le.models.OneCoin(5), num_warmup=100, num_samples=100, num_chains=2)
        >>> fit = nuts.fit(votes, key=jax.random.key(0))
        >>> fit.draws["accuracy"].shape
        (2, 100, 5)
    """

    num_chains: Count = 4
    num_warmup: Count = 500
    num_samples: Count = 500
    dense_mass: bool = False
    target_accept: Annotated[float, above(0), below(1)] = 0.8
    max_tree_depth: Count = 10

    def draw(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> tuple[Arrays, Diagnostics]:
        """Run the chains."""
        start_key, sample_key = jax.random.split(key)
        observations, _ = observe(self.model, votes, gold)
        sampler = Sampler(
            self.model, self.num_warmup, self.num_samples, self.dense_mass, self.target_accept, self.max_tree_depth
        )
        sampler.check_cost(observations, self.num_chains)
        starts, modes = self._starts(votes, start_key, gold)
        draws, statistics = sampler.run(observations, starts, sample_key)
        diverging = np.asarray(statistics["diverging"])
        about = Diagnostics(warnings=_divergence_words(diverging))
        return draws, about.updated(modes=modes, sample_stats=statistics, divergences=int(diverging.sum()))

    def _starts(self, votes: Votes, key: Array, gold: GoldCodes | None) -> tuple[list[dict[str, np.ndarray]], list]:
        """Points near posterior modes that are not hopelessly worse than the best one."""
        climb_key, jitter_key = jax.random.split(key)
        climb = MaximumLikelihood(self.model, starts=self.num_chains + 2, use_prior=True, tolerance=1e-4)
        optima = climb.climb(votes, Rows.of(self.model, votes, gold), climb_key, gold)
        objectives = -votes.num_items * optima.losses
        size = sum(np.size(leaf[0]) for leaf in optima.points.values())
        good = np.flatnonzero(objectives > objectives.max() - 10 - size)
        starts = []
        for chain, chain_key in enumerate(jax.random.split(jitter_key, self.num_chains)):
            params = optima.point(int(good[chain % len(good)]))
            point, noise = to_point(self.model, params), numpy_generator(chain_key)
            starts.append({name: value + 0.01 * noise.normal(size=value.shape) for name, value in point.items()})
        return starts, sorted(objectives.round(2).tolist(), reverse=True)


def _divergence_words(diverging: np.ndarray) -> list[str]:
    if not diverging.any():
        return []
    return [f"{diverging.sum()} of {diverging.size} draws ended in a divergence: raise target_accept"]
