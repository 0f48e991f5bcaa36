"""A fit as text, and its voters as a table."""

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentens.inference.skill import VoterSkill
from latentens.votes.labels import Names

if TYPE_CHECKING:
    from latentens.methods.base import Fit

MOST_CLASSES = 8
"""Tables show whole confusion matrices up to this many classes."""


def fit_text(fit: "Fit") -> str:
    """One line."""
    return f"Fit({', '.join(f'{name}: {text}' for name, text in _summary(fit).items())})"


def fit_html(fit: "Fit") -> str:
    """A table for notebooks."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _summary(fit).items())
    return f"<table>{''.join(rows)}</table>"


def _summary(fit: "Fit") -> dict[str, str]:
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


def voter_table(skill: VoterSkill, voter_names: Names, class_names: Names, category_names: Names) -> pd.DataFrame:
    """One row per voter: votes, accuracies with intervals, a flag, what intervals rest on, the confusion matrix.

    Confusion matrices of more than `MOST_CLASSES` are left out.
    """
    columns: dict[str, Any] = {"voter": voter_names, "votes": skill.votes}
    for name in ("accuracy", "balanced_accuracy"):
        for part in (name, f"{name}_low", f"{name}_high"):
            columns[part] = getattr(skill, part)
    columns["flag"], columns["intervals"] = skill.flags, skill.intervals
    if len(class_names) <= MOST_CLASSES:
        for label, truth in enumerate(class_names):
            for vote, said in enumerate(category_names[: skill.confusion.shape[2]]):
                columns[f"says_{said}_if_{truth}"] = skill.confusion[:, label, vote]
    return pd.DataFrame(columns)
