"""Going through many rows in blocks, which bounds the memory of what is made of them.

`compiled_blocks` does the same inside compiled code.
"""

BLOCK_ELEMENTS = 2**20
"""What is made of a block has about this many elements: 8 MiB of floats, near what a core's cache holds."""

SMALL_ROWS = 256
SMALL_ELEMENTS = 2**16
"""What is made of so many rows costs next to nothing if it has at most so many elements."""

COPIES = 6
"""Arrays of that size that are in memory at a time, those of a gradient included."""


def row_blocks(num_rows: int, elements_per_row: float, block_elements: int = BLOCK_ELEMENTS) -> list[slice]:
    """Blocks of neighbouring rows.

    Args:
        num_rows: Number of rows.
        elements_per_row: Number of elements of what is made of a row.
        block_elements: Number of elements of what is made of a block; a block has at least one row.
    """
    size = max(1, int(block_elements / max(elements_per_row, 1)))
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def few_lengths(num_rows: int, elements_per_row: float, possible: int = SMALL_ROWS, digits: int = 4) -> int:
    """A number of rows to fill up to, one of few: data of about the same size share compiled programs.

    Small data are filled up to one size, which costs less than the overhead of a call, unless much is made of a row.

    Args:
        num_rows: Number of rows.
        elements_per_row: Number of elements of what is made of a row.
        possible: Such data never have more rows than this, and are not filled up beyond it.
        digits: Larger numbers have so many leading binary digits and zeros after them.
    """
    small = min(SMALL_ROWS, possible)
    if num_rows <= small and small * elements_per_row <= SMALL_ELEMENTS:
        return small
    step = 2 ** max(0, num_rows.bit_length() - digits)
    return -(-num_rows // step) * step
