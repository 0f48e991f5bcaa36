"""Limits on memory and time: a step that would exceed them is refused before the machine swaps or stalls."""

import os
import re

import psutil

from latentens.errors import LimitError

MEMORY_VARIABLE = "LATENTENS_MEMORY"
"""The variable with the most memory that one step may take, such as `4GiB`."""

TIME_VARIABLE = "LATENTENS_SECONDS"
"""The variable with the most seconds that one step may take; no limit if unset."""

UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def memory_limit(available_share: float = 0.8) -> float:
    """Bytes that one step may take; by default a share of the memory that is available."""
    given = os.environ.get(MEMORY_VARIABLE)
    if given is None:
        return available_share * psutil.virtual_memory().available
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(\w*)", given.strip())
    if match is None or match.group(2) not in UNITS:
        raise LimitError(f"{MEMORY_VARIABLE}={given} is not a valid memory size (example: 4GiB)")
    return float(match.group(1)) * UNITS[match.group(2)]


def time_limit() -> float:
    """Seconds that one step may take; infinite if no limit is set."""
    given = os.environ.get(TIME_VARIABLE, "inf")
    try:
        limit = float(given)
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise LimitError(f"{TIME_VARIABLE}={given} is not a valid number of seconds (example: 600)")
    return limit


def check_memory(size: float, purpose: str, remedy: str) -> None:
    """Refuse a step that would take too much memory.

    Args:
        size: Its estimate, in bytes.
        purpose: The step, as the subject of a sentence.
        remedy: What to do instead.
    """
    if size > (limit := memory_limit()):
        raise LimitError(
            f"{purpose} would take about {readable_size(size)} of memory, more than the limit of "
            f"{readable_size(limit)}; {remedy}, or raise the limit by {MEMORY_VARIABLE}"
        )


def readable_size(size: float) -> str:
    """A number of bytes with its unit."""
    unit = next((name for name in ("TiB", "GiB", "MiB") if size >= UNITS[name]), "KiB")
    return f"{size / UNITS[unit]:.1f} {unit}"
