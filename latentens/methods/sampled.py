"""Methods whose estimate is a set of posterior draws: NUTS, Laplace, variational inference, draws from elsewhere."""

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from latentens.inference.approximation import (
    Ascent,
    Guide,
    Mode,
    elbo_gain,
    find_mode,
    flat_words,
    importance_weights,
    pareto_words,
    resample,
)
from latentens.inference.density import constrain, densities_at, flat_draws, judge_chains, label_draws, label_posteriors
from latentens.inference.nuts_chains import Sampler
from latentens.methods.base import Arrays, Diagnostics, Estimate, Fit, GoldCodes, Method, Posterior, finished
from latentens.methods.maximum_likelihood import MaximumLikelihood, ModelPredictor
from latentens.programs.likelihood import Observations, observe
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import flatten, to_point, transform_of
from latentens.programs.rows import Rows
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.settings import Count, CountOrZero, Positive, above, below
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes


@dataclass(frozen=True)
class DrawsPredictor(ModelPredictor):
    """Predicts labels by draws of a model's parameters from any sampler.

    Attributes:
        model: The generative model.
    """

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        """The posterior of the labels averaged over some of the draws."""
        assert estimate.draws is not None, "a sampled fit has draws"
        flat, _ = flat_draws(self.model, estimate.draws)
        thin = max(1, len(estimate.state["label_orders"]) // 200)  # about 200 draws are enough
        orders = estimate.state["label_orders"][::thin]
        rows = Rows.of(self.model, votes)
        drawn = label_posteriors(self.model, {name: value[::thin] for name, value in flat.items()}, rows)
        return np.mean([probs[order] for probs, order in zip(drawn, orders, strict=True)], axis=0).T[rows.inverse]

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Labels are oriented draw by draw."""
        del estimate
        return True


@dataclass(frozen=True)
class SampledMethod(DrawsPredictor, Method):
    """A method that draws from the posterior of a model's parameters; subclasses implement `draw`.

    Attributes:
        model: The generative model.
    """

    @abstractmethod
    def draw(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> tuple[Arrays, Diagnostics]:
        """Draw from the posterior: the extension point. It runs in double precision.

        Args:
            votes: The votes.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.

        Returns:
            Draws of each parameter with leading axes (draw) or (chain, draw), their labels in any order, and how the
            sampling went. Where that does not say whether it converged, several chains are judged by their R̂, and so
            is a single one with `sample_stats`.
        """

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        """The draws with their labels in order, and the labels' posterior averaged over them."""
        draws, diagnostics = self.draw(votes, key, gold)
        return summarise(self.model, draws, votes, gold, diagnostics)


def summarise(
    model: GenerativeModel,
    draws: Mapping[str, Any],
    votes: Votes,
    gold: GoldCodes | None,
    diagnostics: Diagnostics,
) -> Estimate:
    """The estimate that draws of a model's parameters amount to; chains, if there are several, are compared."""
    flat, chains = flat_draws(model, draws)
    found = label_draws(model, flat, votes, gold)
    shaped = {name: value.reshape(*chains, *value.shape[1:]) for name, value in found.draws.items()}
    means = {name: value.mean(axis=0) for name, value in found.draws.items()}
    diagnostics = diagnostics.updated(label_probs="exact posterior averaged over the draws")
    statistics = diagnostics.get("sample_stats")
    if diagnostics.converged is None and (chains[0] > 1 or statistics is not None):
        invariant = {"log density": statistics["lp"]} if statistics else {}
        invariant["labels of frequent vote patterns"] = found.watched.reshape(*chains, -1)
        judged, words = judge_chains(shaped, invariant)
        words = [*diagnostics.warnings, *words]
        diagnostics = diagnostics.updated(**judged, converged=not words, warnings=words)
    return Estimate(means, diagnostics, shaped, {"label_orders": found.label_orders}, found.label_probs)


@double_precision
def fit_from_draws(model: GenerativeModel, votes: Votes, draws: Mapping[str, Any], gold: Gold | None = None) -> Fit:
    """A fit from posterior draws that another sampler made, for example by `log_density`.

    The labels of each draw are put in order and the exact posterior of the labels is averaged over the draws, as for
    `Nuts`. To run a sampler of your own in a comparison, write a `SampledMethod`.

    Args:
        model: The generative model.
        votes: The votes.
        draws: Draws of each parameter by name, with leading axes (draw) or (chain, draw).
        gold: True labels of some items, as in `Method.fit`, if the draws were made with them.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> model = le.models.OneCoin(5)
        >>> fit = le.methods.MaximumLikelihood(model).fit(votes, key=jax.random.key(0))
        >>> draws = {name: value[None] for name, value in fit.params.items()}  # one draw; yours come from a sampler
        >>> le.fit_from_draws(model, votes, draws).label_probs.shape
        (3869, 2)
    """
    start = time.perf_counter()
    codes = None if gold is None else gold_codes(votes, gold)
    return finished(DrawsPredictor(model), summarise(model, draws, votes, codes, Diagnostics()), votes, start, codes)


@dataclass(frozen=True)
class Nuts(SampledMethod):
    """Posterior draws of a program's parameters, and the posterior of the labels averaged exactly over them.

    Labels and hidden units are summed out, so the sampler moves in the continuous parameters alone. The labels of each
    draw are put in the order that agrees best with the votes; with gold labels, which are part of the likelihood, these
    and the priors decide.

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
        sampler.check_memory(self.num_chains)
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


Approximation = tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], dict[str, Any]]
"""Draws in unconstrained space, the approximation's log density of each, and diagnostics."""

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
    def _approximate(self, observations: Observations, mode: Mode, key: jax.Array) -> Approximation:
        """Approximate the posterior around its mode."""

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
        words = [*flat_words(self.model, mode.flat), *found.pop("warnings", []), *pareto_words(weights.pareto_k)]
        at_mode = mode.decrement < LEAST_DECREMENT
        if not at_mode:
            gain = f"a Newton step would gain {mode.decrement:.2g} nats"
            words.insert(0, f"the climb to the mode has not converged: {gain}")
        converged = at_mode and not len(mode.flat) and found.pop("converged", True)
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

    def _approximate(self, observations: Observations, mode: Mode, key: jax.Array) -> Approximation:
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

    def _approximate(self, observations: Observations, mode: Mode, key: jax.Array) -> Approximation:
        ascent = Ascent(self.model, self.guide, self.num_steps, self.num_particles, self.learning_rate)
        points, log_proposal, curve = ascent.run(observations, mode, key, self.num_draws)
        gain, error = elbo_gain(curve)
        converged = bool(gain <= self.tolerance + 2 * error)
        words = [] if converged else [f"not converged: the ELBO still rose by {gain:.2f} nats; take more steps"]
        return points, log_proposal, {"curve": curve, "converged": converged, "warnings": words}
