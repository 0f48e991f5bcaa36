"""Samples of a machine: Gibbs chains, jumps between its modes, and annealed estimates of its partition function."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from latentens.rbm.machine import Machine, free_energy, hidden_probs, hidden_states, log_partition, visible_probs


def gibbs_sweep(
    machine: Machine, visible: Float[Array, "chain visible"], key: jax.Array
) -> Float[Array, "chain visible"]:
    """Draw the hidden units given the visible ones, then the visible ones given the hidden."""
    hidden_key, visible_key = jax.random.split(key)
    hidden = machine.hidden_units.draw(hidden_key, hidden_probs(machine, visible))
    return machine.visible_units.draw(visible_key, visible_probs(machine, hidden))


def run_chains(
    machine: Machine, chains: Float[Array, "chain visible"], key: jax.Array, num_sweeps: int
) -> Float[Array, "chain visible"]:
    """Gibbs chains after some more sweeps."""
    keys = jax.random.split(key, num_sweeps)
    return jax.lax.scan(lambda state, sweep_key: (gibbs_sweep(machine, state, sweep_key), None), chains, keys)[0]


def jump(
    machine: Machine, base: Machine, chains: Float[Array, "chain visible"], key: jax.Array
) -> Float[Array, "chain visible"]:
    """Offer each chain an exact sample of a small machine, by a Metropolis–Hastings step that keeps `machine`'s law."""
    offer_key, accept_key = jax.random.split(key)
    offers = sample_exactly(base, len(chains), offer_key)
    log_gain = free_energy(machine, chains) - free_energy(machine, offers)
    log_bias = free_energy(base, chains) - free_energy(base, offers)
    accepted = jnp.log(jax.random.uniform(accept_key, (len(chains),))) < log_gain - log_bias
    return jnp.where(accepted[:, None], offers, chains)


def sample_exactly(machine: Machine, num_samples: int, key: jax.Array) -> Float[Array, "sample visible"]:
    """Independent samples: a hidden state from its exact distribution, then the visible units."""
    hidden_key, visible_key = jax.random.split(key)
    states = hidden_states(machine)
    log_mass = -free_energy(machine.transposed, states)
    chosen = jnp.asarray(states)[jax.random.categorical(hidden_key, log_mass, shape=(num_samples,))]
    return machine.visible_units.draw(visible_key, visible_probs(machine, chosen))


@partial(jax.jit, static_argnames="num_sweeps")
def fill_gaps(
    machine: Machine,
    visible: Float[Array, "row visible"],
    observed: Bool[Array, "row unit"],
    key: jax.Array,
    num_sweeps: int = 10,
) -> Float[Array, "row visible"]:
    """Draw the unobserved visible units given the observed ones, by Gibbs sweeps that leave these as they are."""
    start_key, key = jax.random.split(key)
    units = machine.visible_units
    start = units.draw(start_key, jnp.broadcast_to(units.probs(machine.visible_bias), visible.shape))
    known = jnp.repeat(observed, units.width, axis=1)

    def sweep(filled: Float[Array, "row visible"], sweep_key: jax.Array) -> tuple[Float[Array, "row visible"], None]:
        return jnp.where(known, visible, gibbs_sweep(machine, filled, sweep_key)), None

    return jax.lax.scan(sweep, jnp.where(known, visible, start), jax.random.split(key, num_sweeps))[0]


class PartitionEstimate(NamedTuple):
    """An estimate of `log Z`.

    Attributes:
        log_partition: The estimate.
        standard_error: Its standard error, from the spread of the chains' weights.
        effective_chains: Effective sample size of the weighted chains; where it is small, the error is
            underestimated.
    """

    log_partition: Float[Array, ""]
    standard_error: Float[Array, ""]
    effective_chains: Float[Array, ""]


@partial(jax.jit, static_argnames=("num_chains", "num_temperatures"))
def estimate_log_partition(
    machine: Machine, base: Machine, *, key: jax.Array, num_chains: int = 128, num_temperatures: int = 1000
) -> PartitionEstimate:
    """Annealed importance sampling (Salakhutdinov & Murray 2008): exact samples of a small machine are carried over.

    At inverse temperature β the machine in between has the hidden units of both, those of the base scaled by 1 − β
    and those of the machine by β.

    Args:
        machine: The machine.
        base: A machine with few hidden units on the same visible ones. Votes have two far-off modes, one for each
            label, and chains hardly ever change between them: a base with one unit, fitted to the data, starts chains
            in both, in the right proportion.
        key: Random key.
        num_chains: Number of independent chains.
        num_temperatures: Number of steps from the base to the machine.
    """
    first_key, chain_key = jax.random.split(key)
    start = sample_exactly(base, num_chains, first_key)
    inverse_temperatures = jnp.linspace(0.0, 1.0, num_temperatures + 1)

    def step(carry: tuple[Array, Array], scanned: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        visible, log_weight = carry
        warmer, colder, step_key = scanned
        cold_machine = _between(base, machine, colder)
        log_weight += free_energy(_between(base, machine, warmer), visible) - free_energy(cold_machine, visible)
        return (gibbs_sweep(cold_machine, visible, step_key), log_weight), None

    scanned = inverse_temperatures[:-1], inverse_temperatures[1:], jax.random.split(chain_key, num_temperatures)
    (_, log_weight), _ = jax.lax.scan(step, (start, jnp.zeros(num_chains)), scanned)
    relative = jnp.exp(log_weight - jax.nn.logsumexp(log_weight)) * num_chains  # weights with mean one
    # units scaled to nothing are free: each multiplies the sum by the number of its states, the machine's at the start
    # and the base's at the end
    free_units = machine.num_hidden - base.num_hidden
    log_ratio = jax.nn.logsumexp(log_weight) - jnp.log(num_chains)
    return PartitionEstimate(
        log_partition(base) + free_units * jnp.log(float(machine.hidden_units.num_states)) + log_ratio,
        jnp.std(relative, ddof=1) / jnp.sqrt(num_chains),
        num_chains**2 / jnp.sum(relative**2),
    )


def _between(base: Machine, machine: Machine, inverse_temperature: Float[Array, ""]) -> Machine:
    warm = jax.tree.map(lambda part: (1 - inverse_temperature) * part, base)
    cold = jax.tree.map(lambda part: inverse_temperature * part, machine)
    return Machine(
        jnp.concatenate([warm.weights, cold.weights], axis=1),
        warm.visible_bias + cold.visible_bias,
        jnp.concatenate([warm.hidden_bias, cold.hidden_bias]),
        machine.visible_units,
        machine.hidden_units,
    )
