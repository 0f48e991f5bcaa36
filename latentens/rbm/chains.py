"""Samples of a machine: Gibbs chains, jumps between its modes, and exact samples of a small machine."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from latentens.rbm.machine import Machine, free_energy, hidden_probs, hidden_states, visible_probs


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
