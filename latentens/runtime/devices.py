"""All of JAX's devices as one: rows of data are shared out to them, everything else is on each of them.

A program compiled for rows shared out in this way adds up its sums across devices by itself. The same code serves
one device, the devices of one machine, and those of several processes that were joined by `jax.distributed`; all of
these must run it with the same data. With one device nothing is shared out and nothing is added.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from latentens.runtime.threads import available_cores


@lru_cache(maxsize=1)
def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("row",))


def shard_rows(array: np.ndarray, axis: int = -1) -> Array:
    """Hand an array to the devices, each of them getting its part of the rows, which are as in `round_up`.

    Args:
        array: The whole array; every process has it.
        axis: The axis of the rows.
    """
    if jax.device_count() == 1:
        return jnp.asarray(array)
    parts: list[str | None] = [None] * array.ndim
    parts[axis] = "row"
    array = np.asarray(array, dtype=jax.dtypes.canonicalize_dtype(array.dtype))
    sharding = NamedSharding(_mesh(), PartitionSpec(*parts))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def round_up(num_rows: int) -> int:
    """The least number of rows, not below the given one, that can be shared out evenly."""
    return -(-num_rows // jax.device_count()) * jax.device_count()


def fetch(arrays: PyTree) -> PyTree:
    """Whole arrays in NumPy, wherever their parts are."""

    def whole(array: Array) -> Array:
        if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
            return array
        return _on_each_device(array)

    return jax.device_get(jax.tree.map(whole, arrays))


def _on_each_device(array: Array) -> Array:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(_mesh(), PartitionSpec()))(array)


def num_workers() -> int:
    """How many threads may run compiled programs at a time.

    One if there are several devices: two programs that both span them could wait for each other for ever.
    """
    return available_cores() if jax.device_count() == 1 else 1
