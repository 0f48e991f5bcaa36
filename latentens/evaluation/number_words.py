"""Numbers as people write them."""


def probability_text(p_value: float) -> str:
    """A p-value."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]
