"""No-U-turn sampling of a marginal program: chains in threads, one compiled program for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro.infer.hmc import HMCState, hmc

from latentens.inference.optimise import in_parallel, stack
from latentens.programs.marginal import Observations, marginal_log_likelihood, unpack
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import build_tables
from latentens.runtime.devices import fetch
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import Advance, task

CHUNK = 50
"""Steps of a chain between two returns to Python."""


@dataclass(frozen=True)
class Sampler:
    """NUTS for one program; its settings are those of `latentens.methods.Nuts`."""

    model: GenerativeModel
    num_warmup: int
    num_samples: int
    dense_mass: bool
    target_accept: float
    max_tree_depth: int

    def run(
        self, observations: Observations, starts: Sequence[dict[str, np.ndarray]], key: Array
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run a chain from each start.

        Returns:
            Draws of the parameters and statistics of the sampler, by name, with leading axes (chain, draw).
        """
        keys = jax.random.split(key, len(starts))
        # each program is waited for: two at a time that span several devices could wait for each other
        states = [
            jax.block_until_ready(_begin(self, observations, start, chain_key))
            for start, chain_key in zip(starts, keys, strict=True)
        ]
        jax.block_until_ready(_advance(self, observations, states[0]))  # compiles
        with task(f"Sampling {len(states)} chains", len(states) * self._num_chunks) as advance:
            chains = in_parallel(partial(self._run_chain, observations, advance), states, "")
        points, statistics = zip(*chains, strict=True)
        params = jax.device_get(_constrain_draws(self.model, stack(points)))
        return params, stack(statistics)

    @property
    def _num_chunks(self) -> int:
        return -(-(self.num_warmup + self.num_samples) // CHUNK)

    def _run_chain(self, observations: Observations, advance: Advance, state: HMCState) -> tuple[Any, Any]:
        kept = []
        for _ in range(self._num_chunks):
            stop_if_asked()
            state, chunk = _advance(self, observations, state)
            kept.append(fetch(chunk))
            advance("")
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
        return jax.tree.map(lambda leaf: leaf[self.num_warmup : self.num_warmup + self.num_samples], whole)


def log_density(model: GenerativeModel, observations: Observations, point: dict[str, Array]) -> Float[Array, ""]:
    """Log posterior density of a point of unconstrained space, up to a constant."""
    unpacked = unpack(model, point)
    likelihood = marginal_log_likelihood(build_tables(model, unpacked.params), observations)
    return likelihood + unpacked.log_prior + unpacked.log_volume


def _kernel(sampler: Sampler, observations: Observations, start: Any, key: Array) -> tuple[HMCState, Any]:
    """The initial state and the step of a chain; NumPyro's step knows its settings only after the state is made."""
    initial, step = hmc(potential_fn=lambda point: -log_density(sampler.model, observations, point), algo="NUTS")
    state = initial(
        start,
        sampler.num_warmup,
        dense_mass=sampler.dense_mass,
        target_accept_prob=sampler.target_accept,
        max_tree_depth=sampler.max_tree_depth,
        rng_key=key,
    )
    return state, step


@partial(jax.jit, static_argnums=0)
def _begin(sampler: Sampler, observations: Observations, start: Any, key: Array) -> HMCState:
    return _kernel(sampler, observations, start, key)[0]


@partial(jax.jit, static_argnums=0)
def _advance(sampler: Sampler, observations: Observations, state: HMCState) -> tuple[HMCState, Any]:
    _, step = _kernel(sampler, observations, state.z, state.rng_key)

    def advance(state: HMCState, _: None) -> tuple[HMCState, Any]:
        state = step(state)
        statistics = {
            "lp": -state.potential_energy,
            "diverging": state.diverging,
            "n_steps": state.num_steps,
            "acceptance_rate": state.accept_prob,
            "energy": state.energy,
            "step_size": state.adapt_state.step_size,
        }
        return state, (state.z, statistics)

    return jax.lax.scan(advance, state, length=CHUNK)


@partial(jax.jit, static_argnums=0)
def _constrain_draws(model: GenerativeModel, points: dict[str, Array]) -> dict[str, Array]:
    return jax.vmap(jax.vmap(lambda point: unpack(model, point).params))(points)
