"""Bayesian inference of any generative program by Hamiltonian Monte Carlo."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from latentens.inference.nuts_chains import Sampler
from latentens.inference.orient import best_order, order_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.programs.marginal import Observations, label_log_joint, observe
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.rows import Rows
from latentens.programs.tables import build_tables
from latentens.programs.transforms import to_point
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count, above, below
from latentens.votes import Votes

COMMON_ROWS = 20
"""So many of the commonest rows of votes are watched for convergence of their labels' posteriors."""

DRAWS_AT_ONCE = 25
PREDICTION_DRAWS = 200
"""Number of draws, about, by which new items are predicted."""

CONVERGED = 1.01
CLEARLY_APART = 1.1


@dataclass(frozen=True)
class Nuts(Method):
    """Posterior draws of a program's parameters, and the posterior of the labels averaged exactly over them.

    Labels and hidden units are summed out, so the sampler moves in the continuous parameters alone. The labels of each
    draw are put in the order that the votes say; with gold labels, which are part of the likelihood, that which these
    and the priors say. What is estimated to take more than four hours, or than the limit of
    LATENTENS_SECONDS, is refused in front.

    Attributes:
        model: The generative model.
        num_chains: Number of chains; each starts near the end of another climb to a posterior mode.
        num_warmup: Steps of adaptation of each chain.
        num_samples: Draws kept of each chain.
        dense_mass: Whether the mass matrix has correlations.
        target_accept: Acceptance rate that the step size is adapted to.
        max_tree_depth: Trajectories have at most 2 to the power of this many steps.
    """

    model: GenerativeModel
    num_chains: Count = 4
    num_warmup: Count = 500
    num_samples: Count = 500
    dense_mass: bool = False
    target_accept: Annotated[float, above(0), below(1)] = 0.8
    max_tree_depth: Count = 10

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        start_key, sample_key = jax.random.split(key)
        observations, inverse = observe(self.model, votes, gold)
        sampler = Sampler(
            self.model, self.num_warmup, self.num_samples, self.dense_mass, self.target_accept, self.max_tree_depth
        )
        sampler.check_cost(observations, self.num_chains)
        starts, modes = self._starts(votes, start_key, gold)
        draws, statistics = sampler.run(observations, starts, sample_key)
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
        size = len(observations.counts)
        totals = np.stack([np.bincount(inverse, share, minlength=size) for share in order_shares(votes).T])
        fixed = gold is not None or self.model.anchored
        probs, orders, watched = _average(self.model, flat, observations, None if fixed else totals)
        relabelled, remaining = _relabel(self.model, flat, orders)
        shaped = {name: value.reshape(self.num_chains, -1, *value.shape[1:]) for name, value in relabelled.items()}
        watched = watched.reshape(self.num_chains, -1, *watched.shape[1:])
        means = {name: value.mean(axis=0) for name, value in relabelled.items()}
        diagnostics = _judge(shaped, statistics, watched).updated(modes=modes, sample_stats=statistics)
        return Estimate(means, diagnostics, shaped, {"label_orders": remaining}, probs[inverse])

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        assert estimate.draws is not None, "a sampled fit has draws"
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in estimate.draws.items()}
        thin = max(1, len(estimate.state["label_orders"]) // PREDICTION_DRAWS)
        orders = estimate.state["label_orders"][::thin]
        observations, inverse = observe(self.model, votes)
        probs = fetch(_label_probs(self.model, {name: value[::thin] for name, value in flat.items()}, observations))
        return np.take_along_axis(probs, orders[:, :, None], axis=1).mean(axis=0).T[inverse]

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Labels are oriented draw by draw."""
        del estimate
        return True

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The model that was fitted."""
        del estimate
        return self.model

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


def _average(
    model: GenerativeModel, draws: Params, observations: Observations, totals: Float[np.ndarray, "label row"] | None
) -> tuple[Posterior, Int[np.ndarray, "draw label"], Float[np.ndarray, "draw watched"]]:
    """The mean over draws of the exact posterior, each draw's labels put in order first.

    Returns:
        The mean, the order of each draw's labels, and the posterior of the last label of the commonest rows by draw.
    """
    number = len(next(iter(draws.values())))
    common = np.argsort(-fetch(observations.counts), kind="stable")[:COMMON_ROWS]
    mean, orders, watched = 0.0, [], []
    for first in range(0, number, DRAWS_AT_ONCE):
        part = {name: value[first : first + DRAWS_AT_ONCE] for name, value in draws.items()}
        for probs in fetch(_label_probs(model, part, observations)):
            order = np.arange(len(probs)) if totals is None else best_order(totals @ probs.T)
            mean = mean + probs[order].T / number
            orders.append(order)
            watched.append(probs[order][-1, common])
    return np.asarray(mean), np.stack(orders), np.stack(watched)


def _relabel(
    model: GenerativeModel, draws: Params, orders: Int[np.ndarray, "draw label"]
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, "draw label"]]:
    """Draws with their labels in order, and the order that is still to be applied to posteriors under each."""
    relabelled = {name: np.array(value) for name, value in draws.items()}
    remaining = orders.copy()
    for order in np.unique(orders, axis=0):
        chosen = (orders == order).all(axis=1)
        moved = model.relabel({name: value[chosen] for name, value in draws.items()}, order)
        if moved is not None:
            remaining[chosen] = np.arange(len(order))
            for name, value in moved.items():
                relabelled[name][chosen] = value
    return relabelled, remaining


def _judge(draws: Params, statistics: Params, watched: Float[np.ndarray, "chain draw watched"]) -> Diagnostics:
    """r_hat, effective sample size and divergences, and what they mean in words."""
    invariant = {"log density": statistics["lp"], "labels of common rows": watched}
    r_hat = {name: _worst_r_hat(value) for name, value in (*invariant.items(), *draws.items())}
    ess = {name: _least_ess(value) for name, value in (*invariant.items(), *draws.items())}
    diverging = np.asarray(statistics["diverging"])
    words = [
        *_divergence_words(diverging),
        *_convergence_words({k: r_hat[k] for k in invariant}, {k: r_hat[k] for k in draws}),
    ]
    return Diagnostics(
        "exact posterior averaged over the draws",
        converged=not words,
        warnings=words,
        extra={"r_hat": r_hat, "ess": ess, "divergences": int(diverging.sum())},
    )


def _divergence_words(diverging: np.ndarray) -> list[str]:
    if not diverging.any():
        return []
    return [f"{diverging.sum()} of {diverging.size} draws ended in a divergence: raise target_accept"]


def _convergence_words(invariant: dict[str, float], params: dict[str, float]) -> list[str]:
    """What r_hat says, judged first on what does not change when hidden units change places."""
    name, worst = max(invariant.items(), key=lambda pair: pair[1])
    if worst > CLEARLY_APART:
        return [f"the chains disagree (r_hat {worst:.2f} for the {name}): the posterior looks multimodal"]
    if worst > CONVERGED:
        return [f"not converged: r_hat is {worst:.3f} for the {name}; take more draws"]
    name, worst = max(params.items(), key=lambda pair: pair[1], default=("", 1.0))
    if worst > CLEARLY_APART:
        return [f"the chains agree on labels but not on {name} (r_hat {worst:.2f}): hidden units changed places"]
    return [f"not converged: r_hat is {worst:.3f} for {name}; take more draws"] if worst > CONVERGED else []


def _worst_r_hat(values: Float[np.ndarray, "chain draw ..."]) -> float:
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return 1.0
    return float(np.nanmax(split_gelman_rubin(values), initial=1.0))


def _least_ess(values: Float[np.ndarray, "chain draw ..."]) -> float:
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return float(values.shape[0] * values.shape[1])
    return float(np.nanmin(effective_sample_size(values)))


@partial(jax.jit, static_argnums=0)
def _label_probs(model: GenerativeModel, draws: Any, observations: Observations) -> Float[Array, "draw label row"]:
    def of_one(params: Any) -> Float[Array, "label row"]:
        return jax.nn.softmax(label_log_joint(build_tables(model, params), observations), axis=0)

    return jax.lax.map(of_one, draws)
