"""Numbers and names as people read them."""

import re
from collections.abc import Sequence

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
"""Control characters except tabs and line breaks, and marks that change the direction of text."""


def printable(text: str) -> str:
    r"""Text whose control characters are written out, such as \x1b for the one that begins a terminal's commands."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def probability_text(p_value: float) -> str:
    """A p-value."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def percent(share: float, digits: int = 0) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}\u00a0%"


def listing(names: Sequence[str]) -> str:
    """Names as a sentence lists them."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def rounds_to_nothing(text: str) -> bool:
    """Whether all digits of a number are zeros as it is printed."""
    return not any(digit in text for digit in "123456789")


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; a difference that rounds to zero has none."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if rounds_to_nothing(text) else text
