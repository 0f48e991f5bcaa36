"""Published analyses of two classic sets of votes, done again: every figure beside the one in print.

    python analyses/published.py [--out out] [--seed 0] [--fits …] [--random-starts 1000] [--draws 1000]

Fits, all of them by default:
    em                Dawid–Skene on the anaesthetists of Dawid & Skene (1979), at the maximum to which vote shares
                      lead and at the best of many starts
    caries            Dawid–Skene at its maximum on the dentists of Espeland & Handelman (1989)
    anesthesia_bayes  the anaesthetists by NUTS, with the priors of the R package rater (Pullin, Gurrin & Vukcevic 2023)
    caries_bayes      the dentists by NUTS, without and with a difficulty of each X-ray (Carpenter's case study)

`tolerance` is half a unit of the last digit in print and, for draws, four standard errors of the Monte Carlo method,
ours and as large ones for theirs. What rater prints about patients 3, 4 and 7 and about observer 1 does not follow from
the table of 1979, but does if one vote of observer 1 on patient 7 is another; the 1979 estimate for patient 7, .98,
follows from the table.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from common import run, write
from numpyro.diagnostics import effective_sample_size
from scipy.special import softmax

from latentens.datasets import load
from latentens.methods import DawidSkeneEM, MaximumLikelihood, Nuts
from latentens.methods.base import Fit
from latentens.models import DawidSkene, ItemDifficulty
from latentens.votes import Votes

LOCAL_MAXIMUM = {
    "log-likelihood": -192.8909,
    "prevalence": [0.40, 0.42, 0.11, 0.07],
    "confusion of observer 1": [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]],
    "confusion of observer 2": [[0.83, 0.17, 0, 0], [0.05, 0.63, 0.31, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    "patient 7": [0.98, 0.02, 0, 0],
    "patient 35": [0, 0.95, 0.05, 0],
}
"""Dawid & Skene (1979), tables 2 to 4, and the log-likelihood at those figures."""

BEST_KNOWN = -191.5689
"""Log-likelihood of the best maximum that many random starts find."""

RATER = {
    "prevalence": [0.374, 0.407, 0.144, 0.075],
    "prevalence: 90 %": [[0.27, 0.48], [0.30, 0.51], [0.07, 0.23], [0.03, 0.14]],
    "observer 1, class 1, vote 1": 0.86,
    "observer 1, class 1, vote 1: 90 %": [0.78, 0.93],
    "patient 2": [1.6e-7, 2.3e-5, 0.977, 0.023],
    "patient 3": [0.398, 0.601, 1e-4, 6e-4],
}
"""Posterior means, 90 % intervals and label probabilities of the package rater, R Journal RJ-2023-064."""

CARIES_MAXIMUM = {
    "log-likelihood": -7465.385,
    "prevalence": 0.196,
    "sensitivity": [0.403, 0.713, 0.598, 0.489, 0.915],
    "specificity": [0.989, 0.898, 0.986, 0.968, 0.695],
    "G squared": 129.8,
}
"""Latent class analysis of the caries data; G squared is the deviance from the saturated model."""

CARIES_BAYES = {"prevalence": 0.1957, "prevalence with difficulty": 0.2059}
"""Posterior means of Carpenter's case study of the caries data."""

NO_DIFFICULTY = 1e-6
"""A standard deviation of the difficulty that makes no difference: Dawid & Skene's model with priors on log-odds."""


class Figure(NamedTuple):
    """One number here and in print."""

    fit: str
    quantity: str
    here: float
    published: float
    tolerance: float


def beside(fit: str, quantity: str, here: Any, published: Any, digit: float, error: Any = 0.0) -> Iterator[Figure]:
    """Numbers beside their published counterparts; `error` is their Monte Carlo error."""
    here, error = np.asarray(here), np.broadcast_to(error, np.shape(here))
    for place in np.ndindex(here.shape):
        name = f"{quantity} {[index + 1 for index in place]}" if place else quantity
        tolerance = digit / 2 + 4 * np.sqrt(2) * error[place]
        yield Figure(fit, name, float(here[place]), float(np.asarray(published)[place]), float(tolerance))


def anesthesia_em(key: jax.Array, random_starts: int) -> Iterator[Figure]:
    votes = load("anesthesia").votes
    plain = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0, random_starts=0, tolerance=1e-13, max_iterations=20_000)
    fit = plain.fit(votes, key=key)
    found = {
        "log-likelihood": fit.diagnostics.log_likelihood,
        "prevalence": fit.params["prevalence"],
        "confusion of observer 1": fit.params["confusion"][0],
        "confusion of observer 2": fit.params["confusion"][1],
        "patient 7": fit.label_probs[6],
        "patient 35": fit.label_probs[34],
    }
    for name, value in found.items():
        yield from beside(
            "EM from vote shares", name, value, LOCAL_MAXIMUM[name], 1e-4 if np.ndim(value) == 0 else 0.01
        )
    many = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0, random_starts=random_starts, tolerance=1e-12).fit(
        votes, key=key
    )
    print("\n".join(many.diagnostics.all_warnings))
    yield from beside("EM, best of many starts", "log-likelihood", many.diagnostics.log_likelihood, BEST_KNOWN, 1e-4)


def caries_maximum(key: jax.Array) -> Iterator[Figure]:
    votes = load("caries").votes
    fit = MaximumLikelihood(DawidSkene(5)).fit(votes, key=key)
    counts, likelihood = votes.patterns.counts, fit.diagnostics.log_likelihood
    found = {"log-likelihood": likelihood, "prevalence": fit.params["prevalence"][1]}
    found |= {"sensitivity": fit.sensitivity, "specificity": fit.specificity}
    found["G squared"] = 2 * (counts @ np.log(counts / votes.num_items) - likelihood)
    for name, published in CARIES_MAXIMUM.items():
        yield from beside("maximum likelihood", name, found[name], published, 0.1 if name == "G squared" else 0.001)


def anesthesia_bayes(key: jax.Array, draws: int) -> Iterator[Figure]:
    right = np.eye(4, dtype=bool)
    model = DawidSkene(5, 4, prevalence_prior=3.0, confusion_prior=np.where(right, 8 * 0.6, 8 * 0.4 / 3))
    method, votes = Nuts(model, num_warmup=1000, num_samples=draws), load("anesthesia").votes
    for name, data in (("rater's copy", rater_copy(votes)), ("table of 1979", votes)):
        yield from rater_figures(f"NUTS, {name}", method.fit(data, key=key), data)


def rater_copy(votes: Votes) -> Votes:
    """The data with a vote 1 for one of the two votes 2 of observer 1 on patient 7."""
    table = votes.to_long()
    seventh = (table["item"] == 7) & (table["voter"] == 1) & (table["vote"] == 2)
    table.loc[seventh.idxmax(), "vote"] = 1
    return Votes.from_long(table, duplicates="keep")


def rater_figures(name: str, fit: Fit, votes: Votes) -> Iterator[Figure]:
    assert fit.draws is not None
    parts = {"prevalence": fit.draws["prevalence"], "observer 1, class 1, vote 1": fit.draws["confusion"][..., 0, 0, 0]}
    for quantity, part in parts.items():
        error = monte_carlo_error(part)
        yield from beside(name, quantity, part.mean(axis=(0, 1)), RATER[quantity], 0.001 if error.ndim else 0.01, error)
        bounds = np.moveaxis(np.quantile(part, [0.05, 0.95], axis=(0, 1)), 0, -1)
        # the standard error of a normal variable's 5 % quantile is 2.1 times that of its mean
        yield from beside(name, f"{quantity}: 90 %", bounds, RATER[f"{quantity}: 90 %"], 0.01, 2.1 * error[..., None])
    for patient in (2, 3):
        error = monte_carlo_error(label_draws(fit.draws, votes.between(patient - 1, patient)))
        quantity = f"patient {patient}"
        yield from beside(name, quantity, fit.label_probs[patient - 1], RATER[quantity], 0.001, error)


def label_draws(draws: Mapping[str, np.ndarray], item: Votes) -> np.ndarray:
    """The posterior of one item's label at each draw of Dawid & Skene's parameters."""
    log_joint = np.log(draws["prevalence"])
    for _, voter, vote in zip(*item.triplets, strict=True):
        log_joint = log_joint + np.log(draws["confusion"][..., voter, :, vote])
    return softmax(log_joint, axis=-1)


def monte_carlo_error(draws: np.ndarray) -> np.ndarray:
    """The standard error of the mean over (chain, draw)."""
    return draws.std(axis=(0, 1)) / np.sqrt(effective_sample_size(draws))


def caries_bayes(key: jax.Array, draws: int) -> Iterator[Figure]:
    votes = load("caries").votes
    for quantity, scale in (("prevalence", NO_DIFFICULTY), ("prevalence with difficulty", 1.0)):
        model = ItemDifficulty(5, difficulty_scale=scale, ability_prior=((2.0, 2.0), (1.0, 2.0)))
        fit = Nuts(model, num_warmup=1000, num_samples=draws).fit(votes, key=key)
        assert fit.draws is not None
        part = fit.draws["prevalence"][..., 1]
        yield from beside("NUTS", quantity, part.mean(), CARIES_BAYES[quantity], 1e-4, monte_carlo_error(part))


FITS = ("em", "caries", "anesthesia_bayes", "caries_bayes")


def main(
    data: Path | None,
    out: Path,
    seed: int,
    fits: tuple[str, ...] = FITS,
    random_starts: int = 1000,
    draws: int = 1000,
) -> pd.DataFrame:
    del data  # the tables come with the package
    key = jax.random.key(seed)
    work = {
        "em": lambda: anesthesia_em(key, random_starts),
        "caries": lambda: caries_maximum(key),
        "anesthesia_bayes": lambda: anesthesia_bayes(key, draws),
        "caries_bayes": lambda: caries_bayes(key, draws),
    }
    table = pd.DataFrame([figure for name in fits for figure in work[name]()]).set_index(["fit", "quantity"])
    table["agrees"] = (table["here"] - table["published"]).abs() <= table["tolerance"]
    write(out, "published", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
