"""The log posterior density of a program's parameters, labels and hidden units summed out, and draws from it.

The density is what every sampler needs. Of draws, wherever they come from, the labels are put in order, their posterior
is averaged over the draws, and chains are judged by their agreement.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from scipy.special import softmax

from latentens.errors import ParameterError
from latentens.inference.modes import label_point
from latentens.inference.orient import best_order, order_shares, vote_shares
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import Observations, marginal_log_likelihood, observe
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import (
    flatten,
    num_parameters,
    to_point,
    transform_of,
    unflatten,
    unpack,
)
from latentens.programs.rows import Rows, tables_at_draws
from latentens.programs.tables import build_tables, checked_params
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes

Point = Float[Array, " coordinate"]
Points = Float[Array, "*draw coordinate"]


@dataclass(frozen=True, eq=False)
class LogDensity:
    """The log posterior density of a model's parameters as a function of a vector in unconstrained space.

    Call it with a vector. The value is exact, normalised priors and the log Jacobian of the transform included, and
    the function can be compiled, differentiated and mapped by JAX. It has the precision that JAX is set to: switch
    64 bits on around your sampler (`with jax.enable_x64(True):`).

    Attributes:
        model: The generative model.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        observations: The distinct rows of votes as arrays.
    """

    model: GenerativeModel
    votes: Votes
    gold: np.ndarray | None
    observations: Observations

    def __call__(self, point: Point) -> Float[Array, ""]:
        """The log density at a point."""
        return density_at(self.model, jax.tree.map(jnp.asarray, self.observations), point)

    @cached_property
    def dimension(self) -> int:
        """Length of the vector."""
        return num_parameters(self.model)

    @double_precision
    def ravel(self, params: Params) -> Float[np.ndarray, " coordinate"]:
        """The vector of some parameters, given by name."""
        transform = transform_of(self.model)
        return flatten(to_point(self.model, checked_params(self.model, params)), transform.point_shapes)

    def unravel(self, points: Points) -> dict[str, Float[Array, "..."]]:
        """The parameters at a point by name. Leading axes, such as chains and draws, are kept."""
        points = jnp.asarray(points)
        flat = constrain(self.model, points.reshape(-1, self.dimension))
        return {name: value.reshape(*points.shape[:-1], *value.shape[1:]) for name, value in flat.items()}

    @double_precision
    def start(self, key: jax.Array) -> Float[np.ndarray, " coordinate"]:
        """A point to start a chain from: parameters that suit the vote shares. Other keys give other points."""
        rows, generator = Rows.of(self.model, self.votes, self.gold), numpy_generator(key)
        labels = structure_of(self.model).num_labels
        shares = vote_shares(self.votes)[:, :labels]
        shares = np.pad(shares, ((0, 0), (0, labels - shares.shape[1])), constant_values=1 / labels)
        return label_point(self.model, rows, shares, generator)


@double_precision
def log_density(model: GenerativeModel, votes: Votes, gold: Gold | None = None) -> LogDensity:
    """The log posterior density of a model's parameters given votes, for a sampler of your own.

    It has no discrete variable: labels and hidden units are summed out exactly. That is all that blackjax, nutpie,
    flowMC or Pathfinder need; `fit_from_draws` turns their draws into a `Fit`.

    Args:
        model: The generative model.
        votes: The votes.
        gold: True labels of some items, as in `Method.fit`.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> density = le.log_density(le.models.OneCoin(5), votes)
        >>> density.dimension
        6
        >>> density.start(jax.random.key(0)).shape
        (6,)
    """
    codes = None if gold is None else gold_codes(votes, gold)
    observations, _ = observe(model, votes, codes)
    return LogDensity(model, votes, codes, fetch(observations))


def density_by_name(model: GenerativeModel, observations: Observations, point: dict[str, Array]) -> Float[Array, ""]:
    """The log posterior density at a point of unconstrained space: marginal likelihood, priors and log Jacobian."""
    unpacked = unpack(model, point)
    likelihood = marginal_log_likelihood(build_tables(model, unpacked.params), observations)
    return likelihood + unpacked.log_prior + unpacked.log_volume


def density_at(model: GenerativeModel, observations: Observations, point: Point) -> Float[Array, ""]:
    """The log posterior density at a point that is given as one vector."""
    return density_by_name(model, observations, unflatten(point, transform_of(model).point_shapes))


@partial(jax.jit, static_argnums=0)
def densities_at(
    model: GenerativeModel, observations: Observations, points: Float[Array, "draw coordinate"]
) -> Float[Array, " draw"]:
    """The log posterior density at each of many points."""
    return jax.lax.map(partial(density_at, model, observations), points, batch_size=16)  # bounds the memory


@partial(jax.jit, static_argnums=0)
def constrain(model: GenerativeModel, points: Float[Array, "draw coordinate"]) -> dict[str, Float[Array, "draw ..."]]:
    """The parameters at each of many points."""
    shapes = transform_of(model).point_shapes
    return jax.vmap(lambda point: unpack(model, unflatten(point, shapes)).params)(points)


def flat_draws(model: GenerativeModel, draws: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], tuple[int, int]]:
    """Draws of a model's parameters on one leading axis, and the numbers of chains and of draws in each.

    Args:
        model: The generative model.
        draws: Values of each parameter with leading axes (draw) or (chain, draw).
    """
    shapes = transform_of(model).shapes
    if missing := [name for name in shapes if name not in draws]:
        raise ParameterError(f"draws of {', '.join(missing)} are missing: {model} has {', '.join(shapes)}")
    arrays = {name: np.asarray(draws[name], dtype=np.float64) for name in shapes}
    leading = {name: value.shape[: value.ndim - len(shapes[name])] for name, value in arrays.items()}
    first = next(iter(leading.values()))
    for name, value in arrays.items():
        if leading[name] != first or len(first) not in (1, 2) or value.shape[len(first) :] != shapes[name]:
            raise ParameterError(
                f"draws of {name} have the shape {value.shape}; needed are (draw, …) or (chain, draw, …) followed by "
                f"{shapes[name]}, with as many draws for each parameter"
            )
        if not np.isfinite(value).all():
            raise ParameterError(f"draws of {name} hold NaN or infinity")
    chains = (1, *first) if len(first) == 1 else first
    return {name: value.reshape(-1, *shapes[name]) for name, value in arrays.items()}, (chains[0], chains[1])


CONVERGED = 1.01
CLEARLY_APART = 1.1


class LabelledDraws(NamedTuple):
    """Draws with their labels in order.

    Attributes:
        draws: The draws of each parameter, relabelled where the model says how.
        label_orders: The order that is still to be applied to the posterior under each draw.
        label_probs: The posterior of each item's label, averaged over the draws.
        watched: The posterior of the last label of the commonest rows, by draw.
    """

    draws: dict[str, Float[np.ndarray, "draw ..."]]
    label_orders: Int[np.ndarray, "draw label"]
    label_probs: Float[np.ndarray, "item label"]
    watched: Float[np.ndarray, "draw row"]


def label_draws(
    model: GenerativeModel,
    draws: Mapping[str, Float[np.ndarray, "draw ..."]],
    votes: Votes,
    gold: Int[np.ndarray, " item"] | None = None,
    num_watched: int = 20,
) -> LabelledDraws:
    """Average the exact posterior of the labels over draws, each draw's labels put in order first.

    The order of the labels is the one that the votes say. With gold labels, which are part of the likelihood, or in a
    model that ties labels to votes, the draws have their order already.

    Args:
        model: The generative model.
        draws: Draws of each parameter.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        num_watched: Number of the commonest rows whose labels' posteriors are watched for convergence.
    """
    rows = Rows.of(model, votes, gold)
    totals = None
    if gold is None and not model.anchored:
        shares = order_shares(votes)[:, : structure_of(model).num_labels]
        totals = np.stack([np.bincount(rows.inverse, share, minlength=len(rows.counts)) for share in shares.T])
    # the mean of the posteriors of rows, each draw's labels put in order first
    common = np.argsort(-rows.counts, kind="stable")[:num_watched]
    mean, orders, watched = np.zeros((len(rows.counts), 1)), [], []
    for probs in label_posteriors(model, draws, rows):
        order = np.arange(len(probs)) if totals is None else best_order(totals @ probs.T)
        mean = mean + probs[order].T
        orders.append(order)
        watched.append(probs[order][-1, common])
    relabelled, remaining = relabel_draws(model, draws, np.stack(orders))
    return LabelledDraws(relabelled, remaining, (mean / len(orders))[rows.inverse], np.stack(watched))


def label_posteriors(model: GenerativeModel, draws: Params, rows: Rows) -> Iterator[Float[np.ndarray, "label row"]]:
    """The exact posterior of the label of each row at each draw."""
    for tables in tables_at_draws(model, draws):
        yield softmax(rows.label_log_joint(tables), axis=0)


def relabel_draws(
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


def judge_chains(
    draws: Params, invariant: Mapping[str, Float[np.ndarray, "chain draw *value"]]
) -> tuple[dict[str, Any], list[str]]:
    """R̂ and effective sample sizes, with warnings.

    Args:
        draws: The draws of each parameter, (chain, draw, …).
        invariant: Quantities that do not change when hidden units are permuted; they are judged first.
    """
    values = {**invariant, **draws}
    r_hat = {name: _worst_r_hat(value) for name, value in values.items()}
    ess = {name: _least_ess(value) for name, value in values.items()}
    words = convergence_words({name: r_hat[name] for name in invariant}, {name: r_hat[name] for name in draws})
    return {"r_hat": r_hat, "ess": ess}, words


def convergence_words(invariant: dict[str, float], params: dict[str, float]) -> list[str]:
    """Warnings by R̂, first of quantities that do not change when hidden units are permuted."""
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
