"""Going through many rows in blocks inside compiled code, on all devices."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from latentens.runtime.blocks import BLOCK_ELEMENTS


def map_row_blocks(function: Callable[[Any], Array], rows: PyTree[Array], num_blocks: int, *, axis: int) -> Array:
    """What a function that is being compiled makes of each row, computed block by block.

    Args:
        function: Takes arrays with some of the rows; its result has these rows along the same axis.
        rows: Arrays with all rows.
        num_blocks: Number of blocks, as from `count_row_blocks`.
        axis: The axis of the rows, 0 or −1.
    """
    if num_blocks == 1:
        return function(rows)
    # what a block holds is computed again in the gradient, not stored
    parts = jax.lax.map(jax.checkpoint(function), split_rows(rows, num_blocks, axis=axis))
    if axis == 0:
        return jnp.moveaxis(parts, 0, 1).reshape(-1, *parts.shape[2:])
    return jnp.moveaxis(parts, 0, -1).reshape(*parts.shape[1:-1], -1)


def split_rows(rows: PyTree[Array], num_blocks: int, *, axis: int) -> PyTree[Array]:
    """The rows with a leading axis of blocks; neighbours go to different blocks, so that devices share every block."""

    def split(array: Array) -> Array:
        if axis == 0:
            return jnp.moveaxis(array.reshape(-1, num_blocks, *array.shape[1:]), 1, 0)
        return jnp.moveaxis(array.reshape(*array.shape[:-1], -1, num_blocks), -1, 0)

    return jax.tree.map(split, rows)


def count_row_blocks(num_rows: int, elements_per_row: int, block_elements: int = BLOCK_ELEMENTS) -> int:
    """The least power of two that makes blocks small enough, or the largest that divides the rows of each device."""
    wanted = 2 ** math.ceil(math.log2(max(1.0, num_rows * elements_per_row / block_elements)))
    return math.gcd(wanted, num_rows // jax.device_count())
