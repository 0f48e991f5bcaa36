"""No-U-turn sampling of a marginal program: chains in threads, one compiled program for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro.infer.hmc import HMCState, hmc

from latentens.inference.density import density_by_name
from latentens.inference.optimise import in_parallel, stack
from latentens.programs.likelihood import Observations
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import flatten, num_parameters, transform_of, unflatten, unpack
from latentens.runtime.blocks import fetch
from latentens.runtime.limits import check_memory
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
        flat = [flatten(start, _shapes(self.model)) for start in starts]
        # each program is waited for: two at a time that span several devices could wait for each other
        begun = [
            _Chain(jax.block_until_ready(_begin(self, observations, start, chain_key)), 0, [])
            for start, chain_key in zip(flat, keys, strict=True)
        ]
        with task(f"Sampling {len(begun)} chains", len(begun) * self._num_chunks) as advance:
            extend = partial(self._extend, observations, advance)
            begun[0] = extend(begun[0], 1)  # compiles
            chains = in_parallel(partial(extend, num_chunks=self._num_chunks), begun, "")
        drawn = [jax.tree.map(lambda *parts: np.concatenate(parts), *chain.kept) for chain in chains]
        points, statistics = stack(drawn)
        return jax.device_get(_constrain_draws(self.model, points)), statistics

    def check_memory(self, num_chains: int, copies: int = 4) -> None:
        """Refuse draws that would take too much memory.

        There are copies in unconstrained space, as parameters, with their labels in order, and while they are joined.
        """
        size = num_parameters(self.model)
        what = f"sampling {num_chains} chains of {size:,} parameters"
        check_memory(8.0 * copies * num_chains * self.num_samples * size, what, "keep fewer draws or leave voters out")

    @property
    def _num_chunks(self) -> int:
        return -(-(self.num_warmup + self.num_samples) // CHUNK)

    def _extend(self, observations: Observations, advance: Advance, chain: "_Chain", num_chunks: int) -> "_Chain":
        """A chain extended to a number of chunks."""
        state, kept = chain.state, list(chain.kept)
        for number in range(chain.num_chunks, num_chunks):
            stop_if_asked()
            state, chunk = _advance(self, observations, state)
            kept += self._kept(number, chunk)
            advance("")
        return _Chain(state, num_chunks, kept)

    def _kept(self, number: int, chunk: Any) -> list[Any]:
        """The draws of a chunk without steps of adaptation, which would fill the memory if parameters are many."""
        first, last = self.num_warmup, self.num_warmup + self.num_samples
        begin, end = (min(max(step - number * CHUNK, 0), CHUNK) for step in (first, last))
        return [jax.tree.map(lambda leaf: leaf[begin:end], fetch(chunk))] if begin < end else []


class _Chain(NamedTuple):
    """The state of a chain after some chunks, with the points and statistics of its draws."""

    state: HMCState
    num_chunks: int
    kept: list[Any]


def _shapes(model: GenerativeModel) -> dict[str, tuple[int, ...]]:
    """The layout of a point as one vector, by name: a tree of the sampler costs as much again for each array."""
    return dict(sorted(transform_of(model).point_shapes.items()))


def _kernel(sampler: Sampler, observations: Observations, start: Array, key: Array) -> tuple[HMCState, Any]:
    """The initial state and the step of a chain; NumPyro's step knows its settings only after the state is made."""
    model, shapes = sampler.model, _shapes(sampler.model)
    initial, step = hmc(
        potential_fn=lambda flat: -density_by_name(model, observations, unflatten(flat, shapes)), algo="NUTS"
    )
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
def _begin(sampler: Sampler, observations: Observations, start: Array, key: Array) -> HMCState:
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
def _constrain_draws(model: GenerativeModel, points: Float[Array, "chain draw coordinate"]) -> dict[str, Array]:
    return jax.vmap(jax.vmap(lambda flat: unpack(model, unflatten(flat, _shapes(model))).params))(points)
