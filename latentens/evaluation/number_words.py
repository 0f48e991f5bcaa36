"""Numbers as people write them."""


def probability_text(p_value: float) -> str:
    """A p-value."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def rounds_to_nothing(text: str) -> bool:
    """Whether a number, as it is printed, has no digit but zeros: such a difference is not called clear."""
    return not any(digit in text for digit in "123456789")


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if rounds_to_nothing(text) else text
