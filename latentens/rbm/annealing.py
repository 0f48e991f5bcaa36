"""Annealed importance sampling of the log partition function (Salakhutdinov & Murray 2008)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from latentens.rbm.energy import Machine, free_energy, hidden_probs, visible_probs


class PartitionEstimate(NamedTuple):
    """An estimate of `log Z`.

    Attributes:
        log_partition: The estimate.
        standard_error: Its standard error, from the spread of the chains' weights.
        effective_chains: How many equally weighted chains the weighted ones are worth; where they are few, the error
            is underestimated.
    """

    log_partition: Float[Array, ""]
    standard_error: Float[Array, ""]
    effective_chains: Float[Array, ""]


@partial(jax.jit, static_argnames=("num_chains", "num_temperatures"))
def estimate_log_partition(
    machine: Machine,
    base_bias: Float[Array, " visible"],
    *,
    key: jax.Array,
    num_chains: int = 128,
    num_temperatures: int = 1000,
) -> PartitionEstimate:
    """Carry samples of an independent machine over to the machine, through ever colder machines in between.

    Args:
        machine: The machine.
        base_bias: Visible bias of the independent machine: the log-odds of the data's means serve best.
        key: Random key.
        num_chains: Number of independent chains.
        num_temperatures: Number of steps from the independent machine to the machine.
    """
    first_key, chain_key = jax.random.split(key)
    start = jax.random.bernoulli(first_key, jax.nn.sigmoid(base_bias), (num_chains, len(base_bias))).astype(float)
    inverse_temperatures = jnp.linspace(0.0, 1.0, num_temperatures + 1)

    def step(carry: tuple[Array, Array], scanned: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        visible, log_weight = carry
        warmer, colder, step_key = scanned
        log_weight += free_energy(_tempered(machine, base_bias, warmer), visible)
        log_weight -= free_energy(_tempered(machine, base_bias, colder), visible)
        return (gibbs_sweep(_tempered(machine, base_bias, colder), visible, step_key), log_weight), None

    keys = jax.random.split(chain_key, num_temperatures)
    scanned = inverse_temperatures[:-1], inverse_temperatures[1:], keys
    (_, log_weight), _ = jax.lax.scan(step, (start, jnp.zeros(num_chains)), scanned)
    base = jax.nn.softplus(base_bias).sum() + len(machine.hidden_bias) * jnp.log(2.0)
    relative = jnp.exp(log_weight - jax.nn.logsumexp(log_weight)) * num_chains  # weights with mean one
    error = jnp.std(relative, ddof=1) / jnp.sqrt(num_chains)
    effective = num_chains**2 / jnp.sum(relative**2)
    return PartitionEstimate(base + jax.nn.logsumexp(log_weight) - jnp.log(num_chains), error, effective)


def gibbs_sweep(
    machine: Machine, visible: Float[Array, "chain visible"], key: jax.Array
) -> Float[Array, "chain visible"]:
    """Draw the hidden units given the visible ones, then the visible ones given the hidden."""
    hidden_key, visible_key = jax.random.split(key)
    hidden = jax.random.bernoulli(hidden_key, hidden_probs(machine, visible)).astype(visible.dtype)
    return jax.random.bernoulli(visible_key, visible_probs(machine, hidden)).astype(visible.dtype)


def _tempered(machine: Machine, base_bias: Float[Array, " visible"], inverse_temperature: Float[Array, ""]) -> Machine:
    warm = jax.tree.map(lambda part: inverse_temperature * part, machine)
    return warm._replace(visible_bias=warm.visible_bias + (1 - inverse_temperature) * base_bias)
