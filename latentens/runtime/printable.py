"""Names from users' files as they may be shown: nothing in them moves a cursor or turns the direction of writing."""

import re

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tabs and line breaks, and signs that turn the direction of what follows them."""


def printable(text: str) -> str:
    r"""Text whose control characters are written out, such as \x1b for the one that begins a terminal's commands."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
