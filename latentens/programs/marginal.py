"""The marginal program: parameters in unconstrained space, labels and hidden units summed out by the tables."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from latentens.errors import ContractError
from latentens.programs.contract import inspect, run_alone
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.row_layout import EncodedRows, can_part, encode, possible_rows
from latentens.programs.row_sums import Tables, log_joint, row_log_likelihood
from latentens.programs.tables import check_form, fixed_hidden, prior_density
from latentens.runtime.blocks import (
    BLOCK_ELEMENTS,
    COPIES,
    count_row_blocks,
    few_lengths,
    map_row_blocks,
    round_up,
    shard_rows,
)
from latentens.runtime.limits import check_memory
from latentens.runtime.numerics import some_key
from latentens.votes import Votes

FARTHEST = 15.0
"""Parameters given at a bound start this far out in unconstrained space."""


class Observations(NamedTuple):
    """Distinct rows of votes with their counts and, where some items' labels are known, what those labels exclude."""

    rows: EncodedRows
    counts: Float[Array, " row"]
    log_allowed: Float[Array, "label row"] | None

    @property
    def num_items(self) -> Float[Array, ""]:
        """Number of items."""
        return self.counts.sum()


class Unpacked(NamedTuple):
    """Parameters in their own space, their log prior density, and the log volume change of the transform."""

    params: dict[str, Array]
    log_prior: Float[Array, ""]
    log_volume: Float[Array, ""]


def observe(
    model: GenerativeModel, votes: Votes, gold: Int[np.ndarray, " item"] | None = None
) -> tuple[Observations, Int[np.ndarray, " item"]]:
    """Lay out votes, and known labels if there are any, for fitting a model.

    Returns:
        The observations and the row of each item.
    """
    structure = check_form(model, votes)
    if not structure.label_informs_votes:
        raise ContractError(
            f"{model}: site 'label' is no ancestor of 'vote', so votes say nothing about how the label comes about; "
            "use simulate and bayes_posterior with known parameters, or a model whose votes depend on the label"
        )
    patterns = votes.patterns
    if gold is None:
        rows, counts, log_allowed, inverse = patterns.votes, patterns.counts, None, patterns.inverse
    else:
        pairs = patterns.inverse * (structure.num_labels + 1) + gold + 1
        _, first, inverse, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
        excluded = (gold[first] >= 0) & (gold[first] != np.arange(structure.num_labels)[:, None])
        rows, log_allowed = votes.take(first), np.where(excluded, -np.inf, 0.0)
    elements_per_row = math.prod(len(structure.hidden[name].support) for name in structure.vote_parents | {"label"})
    possible = possible_rows(votes) * (1 if gold is None else structure.num_labels + 1)
    num_rows = round_up(few_lengths(len(counts), elements_per_row, possible))
    check_memory(
        COPIES * 8.0 * elements_per_row * num_rows / count_row_blocks(num_rows, elements_per_row),
        f"fitting {model} to {len(counts):,} distinct rows of votes",
        "use fewer hidden units, or fit a sample of the items by votes.take",
    )
    laid_out = encode(rows, structure.num_vote_classes, num_rows)
    spare = num_rows - len(counts)
    allowed = None if log_allowed is None else shard_rows(np.pad(log_allowed, ((0, 0), (0, spare))))
    return Observations(laid_out, shard_rows(np.pad(counts, (0, spare)).astype(float)), allowed), inverse


def label_log_joint(
    tables: Tables, observations: Observations, *, block_elements: int = BLOCK_ELEMENTS
) -> Float[Array, "label row"]:
    """`log p(label, votes)` of each row, −∞ for a label that is known to be another."""

    def of_block(tables: Tables, block: Observations) -> Float[Array, "label row"]:
        joint = log_joint(tables, block.rows)
        return joint if block.log_allowed is None else joint + block.log_allowed

    return by_row_blocks(of_block, tables, observations, block_elements=block_elements)


def marginal_log_likelihood(
    tables: Tables, observations: Observations, *, block_elements: int = BLOCK_ELEMENTS
) -> Float[Array, ""]:
    """The log-likelihood of all votes and known labels."""

    def of_block(tables: Tables, block: Observations) -> Float[Array, " row"]:
        if block.log_allowed is None:
            return row_log_likelihood(tables, block.rows)
        return logsumexp(log_joint(tables, block.rows) + block.log_allowed, axis=0)

    return observations.counts @ by_row_blocks(of_block, tables, observations, block_elements=block_elements)


def by_row_blocks(
    function: Callable[[Tables, Observations], Float[Array, "*value row"]],
    tables: Tables,
    observations: Observations,
    *,
    block_elements: int = BLOCK_ELEMENTS,
) -> Float[Array, "*value row"]:
    """What a function says about each row, asked about some rows at a time where all at once would take much memory."""
    num_rows, elements_per_row = len(observations.counts), tables.log_prior.size
    parted = can_part(observations.rows)
    num_blocks = count_row_blocks(num_rows, elements_per_row, block_elements) if parted else 1
    return map_row_blocks(partial(function, tables), observations, num_blocks, axis=-1)


def unpack(model: GenerativeModel, point: dict[str, Array]) -> Unpacked:
    """Parameters at a point of unconstrained space."""

    def constrain(site: dict[str, Any]) -> Array | None:
        if site["type"] != "sample" or site["name"] not in point:
            return None
        return biject_to(site["fn"].support)(point[site["name"]])

    trace = trace_parameters(model, handlers.substitute(substitute_fn=constrain))
    params = {name: trace[name]["value"] for name in point}
    log_prior = prior_density(trace, params)
    log_volume = jnp.array(0.0)
    for name, value in params.items():
        transform = biject_to(trace[name]["fn"].support)
        log_volume += jnp.sum(transform.log_abs_det_jacobian(point[name], value))
    return Unpacked(params, log_prior, log_volume)


def unconstrain(model: GenerativeModel, params: Params) -> dict[str, Array]:
    """The point of unconstrained space that stands for some parameters; values at a bound are moved a little inside."""
    trace = trace_parameters(model, handlers.substitute(data=dict(params)))

    def of_site(name: str) -> Array:
        point = biject_to(trace[name]["fn"].support).inv(params[name])
        if _support_of_elements(trace[name]) is constraints.real:
            return point  # without bounds, a large value is only large
        return jnp.nan_to_num(point).clip(-FARTHEST, FARTHEST)

    return {name: of_site(name) for name in params}


@lru_cache(maxsize=256)
def parameter_supports(model: GenerativeModel) -> dict[str, constraints.Constraint]:
    """The range of each parameter, element by element."""
    supports: dict[str, constraints.Constraint] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        for name in inspect(model).parameter_shapes:
            supports[name] = _support_of_elements(trace[name])

    jax.eval_shape(run, some_key())
    return supports


def _support_of_elements(site: dict[str, Any]) -> constraints.Constraint:
    support = site["fn"].support
    while hasattr(support, "base_constraint"):  # a vector of independent elements
        support = support.base_constraint
    return support


def trace_parameters(model: GenerativeModel, handler: Any) -> dict[str, Any]:
    """Run the program under a handler, with something for each site inside the plate of one item."""
    hidden = fixed_hidden(inspect(model))  # outside the trace: a first inspection runs the program as well
    with run_alone(), handlers.trace() as trace, handlers.substitute(data=hidden), handler:
        model.program(1)
    return trace
