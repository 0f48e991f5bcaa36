"""Approximate Bayesian inference of any generative program: Laplace's approximation and variational inference."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from latentens.inference.approximation import (
    Mode,
    find_mode,
    flat_words,
    importance_weights,
    pareto_words,
    resample,
)
from latentens.inference.density import constrain, densities_at
from latentens.inference.variational import Ascent, Guide, elbo_gain
from latentens.methods.base import Arrays, Diagnostics, GoldCodes
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.sampled import SampledMethod
from latentens.programs.likelihood import Observations, observe
from latentens.programs.parameters import flatten, to_point, transform_of
from latentens.programs.rows import Rows
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count, CountOrZero, Positive
from latentens.votes import Votes

LEAST_DECREMENT = 1e-3
"""A mode has been found when a Newton step would gain less than this, in nats."""


@dataclass(frozen=True)
class _Approximation(SampledMethod):
    """An approximation around the posterior mode, checked and if wanted corrected by importance weights."""

    num_draws: Count = 1000
    resample: bool = False
    starts: CountOrZero = 4
    max_iterations: Count = 2000

    @abstractmethod
    def _approximate(
        self, observations: Observations, mode: Mode, key: jax.Array
    ) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], dict[str, Any]]:
        """Draws in unconstrained space, the approximation's log density of each, and diagnostics."""

    def draw(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> tuple[Arrays, Diagnostics]:
        """Find the mode, approximate the posterior around it and weight the draws."""
        climb_key, own_key, resample_key = jax.random.split(key, 3)
        observations, _ = observe(self.model, votes, gold)
        rows = Rows.of(self.model, votes, gold)
        climb = MaximumLikelihood(
            self.model, starts=self.starts, use_prior=True, tolerance=1e-5, max_iterations=self.max_iterations
        )
        optima = climb.climb(votes, rows, climb_key, gold)
        transform = transform_of(self.model)
        start = flatten(to_point(self.model, optima.point(optima.best)), transform.point_shapes)
        mode = find_mode(self.model, observations, start, max_iterations=self.max_iterations)
        points, log_proposal, found = self._approximate(observations, mode, own_key)
        log_density = np.asarray(densities_at(self.model, observations, points))
        weights = importance_weights(log_density, log_proposal)
        if self.resample:
            chosen = resample(weights.weights, len(points), numpy_generator(resample_key))
            points, log_density = points[chosen], log_density[chosen]
        change = climb.label_change(optima, votes, rows, gold)
        words = [
            *_mode_words(mode),
            *flat_words(self.model, mode.flat),
            *found.pop("warnings", []),
            *pareto_words(weights.pareto_k),
        ]
        converged = mode.decrement < LEAST_DECREMENT and not len(mode.flat) and found.pop("converged", True)
        diagnostics = Diagnostics(
            iterations=mode.iterations, converged=converged, label_change=change, warnings=words
        ).updated(
            mode_log_density=mode.log_density,
            pareto_k=weights.pareto_k,
            elbo=weights.elbo,
            effective_draws=float(1 / (weights.weights**2).sum()),
            sample_stats={"lp": log_density[None]},
            **found,
        )
        return jax.device_get(constrain(self.model, points)), diagnostics


@dataclass(frozen=True)
class Laplace(_Approximation):
    """A normal approximation of the posterior at its mode, by the exact Hessian of the log density.

    Labels and hidden units are summed out, and the mode and the Hessian are those in unconstrained space. The labels'
    posterior is averaged over draws of the approximation, so it allows for what is not known about the parameters. It
    costs little more than finding the mode. Pareto's k̂ of the draws' importance weights says how far the approximation
    is from the posterior: above 0.7 use `Nuts`.

    Attributes:
        model: The generative model.
        num_draws: Number of draws.
        resample: Whether to resample the draws by their Pareto-smoothed importance weights, which corrects the
            approximation as long as k̂ is below 0.7.
        starts: Number of starts of the climb to the mode at draws from the priors, besides those from cheaper methods.
        max_iterations: Limit on the iterations of each climb.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Laplace(le.models.OneCoin(5), num_draws=100).fit(votes, key=jax.random.key(0))
        >>> fit.draws["accuracy"].shape
        (1, 100, 5)
    """

    def _approximate(
        self, observations: Observations, mode: Mode, key: jax.Array
    ) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], dict[str, Any]]:
        del observations
        points, log_proposal = mode.draw(numpy_generator(key), self.num_draws)
        return points, log_proposal, {}


@dataclass(frozen=True)
class Variational(_Approximation):
    """Variational inference by one of NumPyro's automatic guides, started at the posterior mode.

    The ELBO of the marginal program, which has no discrete variable left, is maximised by Adam; a full-rank guide and
    a flow start from Laplace's approximation. Pareto's k̂ of the draws' importance weights says how far the guide is
    from the posterior: above 0.7 use `Nuts`.

    Attributes:
        model: The generative model.
        num_draws: Number of draws of the fitted guide.
        resample: Whether to resample the draws by their Pareto-smoothed importance weights, which corrects the guide
            as long as k̂ is below 0.7.
        starts: Number of starts of the climb to the mode at draws from the priors, besides those from cheaper methods.
        max_iterations: Limit on the iterations of each climb.
        guide: `normal` has no correlations and is too narrow where parameters are correlated; `multivariate` has all
            of them, `low_rank` some; `flow` is an inverse autoregressive flow, for posteriors that are not normal.
        num_steps: Steps of Adam, rounded up to a multiple of 50.
        num_particles: Draws by which the ELBO's gradient is estimated at each step.
        learning_rate: Learning rate of the first step, in units of posterior deviations; it falls to zero along a
            cosine.
        tolerance: The ELBO has converged if it gained no more than this, in nats, over the last tenth of the steps.
    """

    guide: Guide = "multivariate"
    num_steps: Count = 1000
    num_particles: Count = 8
    learning_rate: Positive = 0.02
    tolerance: Positive = 0.1

    def _approximate(
        self, observations: Observations, mode: Mode, key: jax.Array
    ) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], dict[str, Any]]:
        ascent = Ascent(self.model, self.guide, self.num_steps, self.num_particles, self.learning_rate)
        points, log_proposal, curve = ascent.run(observations, mode, key, self.num_draws)
        gain, error = elbo_gain(curve)
        converged = bool(gain <= self.tolerance + 2 * error)
        words = [] if converged else [f"not converged: the ELBO still rose by {gain:.2f} nats; take more steps"]
        return points, log_proposal, {"curve": curve, "converged": converged, "warnings": words}


def _mode_words(mode: Mode) -> list[str]:
    if mode.decrement < LEAST_DECREMENT:
        return []
    return [f"the climb to the mode has not converged: a Newton step would gain {mode.decrement:.2g} nats"]
