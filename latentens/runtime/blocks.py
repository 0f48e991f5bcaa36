"""Rows in blocks, which bound memory, and rows on several devices."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from latentens.runtime.parallel import available_cores

BLOCK_ELEMENTS = 2**20
"""Size of the arrays of a block: 8 MiB of floats, about the cache of a core."""

SMALL_ROWS = 256
"""Up to this number of rows padding is essentially free."""

COPIES = 6
"""Arrays of a block's size in memory at a time, those of a gradient included."""


def row_blocks(num_rows: int, elements_per_row: float, block_elements: int = BLOCK_ELEMENTS) -> list[slice]:
    """Blocks of neighbouring rows.

    Args:
        num_rows: Number of rows.
        elements_per_row: Size of the arrays of a row.
        block_elements: Size of the arrays of a block; a block has at least one row.
    """
    size = max(1, int(block_elements / max(elements_per_row, 1)))
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def few_lengths(
    num_rows: int,
    elements_per_row: float,
    possible: int = SMALL_ROWS,
    digits: int = 4,
    small_elements: int = 2**16,
) -> int:
    """A number of rows to pad to, one of few, so that data of about the same size share compiled programs.

    Small data are padded to one size, which costs less than the overhead of a call, unless the arrays of a row are
    large.

    Args:
        num_rows: Number of rows.
        elements_per_row: Size of the arrays of a row.
        possible: The most rows that such data can have; they are not padded beyond it.
        digits: Larger numbers have this many leading binary digits, and zeros after them.
        small_elements: Arrays up to this size are small.
    """
    small = min(SMALL_ROWS, possible)
    if num_rows <= small and small * elements_per_row <= small_elements:
        return small
    step = 2 ** max(0, num_rows.bit_length() - digits)
    return -(-num_rows // step) * step


@lru_cache(maxsize=1)
def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("row",))


def shard_rows(array: np.ndarray) -> Array:
    """Share an array among the devices by rows.

    Args:
        array: The whole array, the same in every process; the last axis has the rows, as many as from `round_up`.
    """
    if jax.device_count() == 1:
        return jnp.asarray(array)
    array = np.asarray(array, dtype=jax.dtypes.canonicalize_dtype(array.dtype))
    sharding = NamedSharding(_mesh(), PartitionSpec(*[None] * (array.ndim - 1), "row"))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def round_up(num_rows: int) -> int:
    """The least number of rows, not below the given one, that can be shared evenly."""
    return -(-num_rows // jax.device_count()) * jax.device_count()


def fetch(arrays: PyTree) -> PyTree:
    """Whole arrays in NumPy, wherever their parts are."""

    def whole(array: Array) -> Array:
        if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
            return array
        return jax.jit(lambda x: x, out_shardings=NamedSharding(_mesh(), PartitionSpec()))(array)

    return jax.device_get(jax.tree.map(whole, arrays))


def num_workers() -> int:
    """Number of threads that may run compiled programs at a time.

    One if there are several devices: two programs that both span them could wait for each other forever.
    """
    return available_cores() if jax.device_count() == 1 else 1


def map_row_blocks(function: Callable[[Any], Array], rows: PyTree[Array], num_blocks: int) -> Array:
    """The result of a function for each row, computed block by block while it is being compiled.

    Args:
        function: Takes arrays with some of the rows, along the last axis, as its result has them.
        rows: Arrays with all rows.
        num_blocks: Number of blocks, as from `count_row_blocks`.
    """
    if num_blocks == 1:
        return function(rows)

    def split(array: Array) -> Array:  # neighbours go to different blocks, so that devices share every block
        return jnp.moveaxis(array.reshape(*array.shape[:-1], -1, num_blocks), -1, 0)

    # blocks are computed again in the gradient, not stored
    parts = jax.lax.map(jax.checkpoint(function), jax.tree.map(split, rows))
    return jnp.moveaxis(parts, 0, -1).reshape(*parts.shape[1:-1], -1)


def count_row_blocks(num_rows: int, elements_per_row: int, block_elements: int = BLOCK_ELEMENTS) -> int:
    """The least power of two that makes blocks small enough, or the largest that divides the rows of each device."""
    wanted = 2 ** math.ceil(math.log2(max(1.0, num_rows * elements_per_row / block_elements)))
    return math.gcd(wanted, num_rows // jax.device_count())
