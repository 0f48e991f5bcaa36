"""Units with any number of states: all that makes a machine of many classes differ from a binary one.

A unit with K states is K − 1 indicators: state 0 has none, and so neither bias nor weights. This is the gauge of
every machine. A layer's indicators lie side by side, those of the first unit first. Binary units are the case of one
indicator each, for which softmax and log-sum-exp are sigmoid and softplus.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from latentens.errors import LatentensError
from latentens.runtime.settings import Settings, at_least

AnyArray = Array | np.ndarray
"""Arrays of JAX or NumPy: every function takes either."""

MOST_STATES = 2**20
"""The largest layer whose states are enumerated has this many."""


MOST_EXACT_STATES = 2**12
"""Expectations over the states of a layer are exact up to this many, sampled above."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Units(Settings):
    """The kind of a layer's units: part of the structure of a machine or its rows, not of their data.

    Attributes:
        num_states: Number of states K of each unit.
    """

    num_states: Annotated[int, at_least(2)] = 2

    @property
    def width(self) -> int:
        """Number of indicators of a unit."""
        return self.num_states - 1

    def count(self, indicators: AnyArray) -> int:
        """Number of units to which the indicators along the last axis belong."""
        return int(indicators.shape[-1]) // self.width

    def by_unit(self, indicators: AnyArray, axis: int = -1) -> Any:
        """Reshape to one axis for the units and one, after it, for their indicators."""
        axis %= indicators.ndim
        shape = indicators.shape
        return indicators.reshape(*shape[:axis], -1, self.width, *shape[axis + 1 :])

    def with_state_zero(self, probs: Float[AnyArray, "*row indicator"]) -> Float[AnyArray, "*row unit state"]:
        """The probabilities of all states from those of the indicators."""
        others = self.by_unit(probs)
        return jnp.concatenate([1 - others.sum(axis=-1, keepdims=True), others], axis=-1)

    def probs(self, logits: Float[AnyArray, "*row indicator"]) -> Float[Array, "*row indicator"]:
        """The probability of each indicator, from the log-odds of its state against state 0."""
        if self.width == 1:
            return jax.nn.sigmoid(logits)
        tables = jnp.pad(self.by_unit(logits), [(0, 0)] * logits.ndim + [(1, 0)])
        return jax.nn.softmax(tables, axis=-1)[..., 1:].reshape(logits.shape)

    def log_normalisers(self, logits: Float[AnyArray, "indicator *row"]) -> Float[Array, "unit *row"]:
        """`log(1 + Σ_s exp(logit_s))` of each unit."""
        if self.width == 1:
            return jax.nn.softplus(logits)
        tables = self.by_unit(logits, axis=0)
        return jax.nn.logsumexp(jnp.pad(tables, [(0, 0), (1, 0), *((0, 0) for _ in logits.shape[1:])]), axis=1)

    def states(self, num_units: int, part: slice = slice(None)) -> Float[np.ndarray, "state indicator"]:
        """All states of a layer, or part of them, the last unit changing fastest; refuses a layer that is too large."""
        if self.num_states**num_units > MOST_STATES:
            raise LatentensError(
                f"a layer of {num_units} units has too many states to enumerate, {self.num_states}^{num_units}; "
                f"have at most {MOST_STATES:,}, or sample"
            )
        start, stop, _ = part.indices(self.num_states**num_units)
        return _states(self.num_states, num_units, start, stop)

    def indicators(self, codes: Int[AnyArray, "*row unit"]) -> Float[Array, "*row indicator"]:
        """The indicators of units whose states are given by their codes."""
        found = jnp.asarray(codes)[..., None] == jnp.arange(1, self.num_states)
        return found.reshape(*codes.shape[:-1], -1).astype(float)

    def codes(self, indicators: Float[AnyArray, "*row indicator"]) -> Int[Array, "*row unit"]:
        """The inverse of `indicators`."""
        return (self.by_unit(indicators) @ jnp.arange(1.0, self.num_states)).astype(int)

    def draw(self, key: jax.Array, probs: Float[AnyArray, "*row indicator"]) -> Float[Array, "*row indicator"]:
        """A random state of each unit."""
        upper = jnp.cumsum(self.by_unit(probs)[..., ::-1], axis=-1)[..., ::-1]  # P(state ≥ s)
        below = jax.random.uniform(key, upper.shape[:-1])[..., None] < upper
        return self.indicators(below.sum(axis=-1))

    def most_probable(self, probs: Float[AnyArray, "*row indicator"]) -> Float[Array, "*row indicator"]:
        """The most probable state of each unit."""
        return self.indicators(self.with_state_zero(probs).argmax(axis=-1))


@lru_cache(maxsize=8)  # training needs them again and again
def _states(num_states: int, num_units: int, start: int, stop: int) -> Float[np.ndarray, "state indicator"]:
    digits = np.stack(np.unravel_index(np.arange(start, stop), (num_states,) * num_units), axis=-1)
    states = (digits[..., None] == np.arange(1, num_states)).reshape(stop - start, -1).astype(float)
    states.flags.writeable = False
    return states
