"""What a fit says of itself at a glance."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from latentens.methods.base import Fit


def fit_text(fit: "Fit") -> str:
    """In a line."""
    return f"Fit({', '.join(f'{name}: {text}' for name, text in _summary(fit).items())})"


def fit_html(fit: "Fit") -> str:
    """As a table for notebooks."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _summary(fit).items())
    return f"<table>{''.join(rows)}</table>"


def _summary(fit: "Fit") -> dict[str, str]:
    """What is worth knowing."""
    shares = np.bincount(fit.codes, minlength=len(fit.class_names)) / len(fit.codes)
    found = {
        "method": repr(fit.method),
        "items": f"{len(fit.label_probs):,}",
        "voters": f"{len(fit.voter_names):,}",
        "labels": " ".join(f"{name} {share:.0%}" for name, share in zip(fit.class_names, shares, strict=True)),
        "mean confidence": f"{fit.label_probs.max(axis=1).mean():.3f}",
    }
    about = fit.diagnostics
    for name in ("log_likelihood", "converged", "fallback", "all_warnings", "notes"):
        if (value := getattr(about, name)) is not None and value != [] and value != ():
            text = f"{value:,.2f}" if isinstance(value, float) else str(value)
            found[name.removeprefix("all_").replace("_", " ")] = text
    return found
