"""Seconds of every aggregator on DREAM S1, and of crowd-kit's Dawid–Skene at equal log-likelihood.

Run: python analyses/speed_aggregators.py DATA --out out/speed_aggregators.csv
DATA is the folder of the authors' files. Everything runs on one thread, so that the figures do not depend on how busy
the machine is otherwise.
"""

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import typer
from crowdkit.aggregation import DawidSkene as CrowdKitDawidSkene
from rich.console import Console
from threadpoolctl import threadpool_limits

from latentens.datasets import load
from latentens.inference.independent import log_likelihoods
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    LatentSpectral,
    MajorityVote,
    RestrictedLikelihood,
    SpectralMetaLearner,
)
from latentens.votes import Votes
from latentens.votes.layout import vote_indicator

METHODS = (
    MajorityVote(),
    SpectralMetaLearner(),
    RestrictedLikelihood(),
    IterativeMaximumLikelihood(),
    DawidSkeneEM(),
    LatentSpectral(),
    Ebcc(),
    Glad(),
    Cubam(),
)


class CrowdShape(NamedTuple):
    """Sizes of a crowd-sourced data set."""

    items: int
    voters: int
    votes: int
    classes: int


SHAPES = (
    CrowdShape(20_232, 766, 96_883, 4),
    CrowdShape(19_033, 762, 88_385, 2),
    CrowdShape(11_040, 825, 89_799, 4),
    CrowdShape(42_624, 57, 214_915, 3),
    CrowdShape(2_665, 177, 15_567, 5),
)
"""Shapes of public crowds; those in `../shared/data/crowds` are smaller."""


def simulated_crowd(shape: CrowdShape, seed: int, skill: float = 4.0) -> Votes:
    """Voters of very different diligence who know the label with a probability from Beta(skill, 4) and else guess."""
    rng = np.random.default_rng(seed)
    diligence = rng.lognormal(0.0, 1.5, shape.voters)
    labels = rng.choice(shape.classes, shape.items, p=rng.dirichlet(np.full(shape.classes, 5.0)))
    knows = rng.beta(skill, 4.0, shape.voters)
    guess = rng.dirichlet(np.ones(shape.classes), (shape.voters, shape.classes))
    votes_of_item = np.full(shape.items, shape.votes // shape.items)
    votes_of_item[: shape.votes - votes_of_item.sum()] += 1
    item, voter = np.repeat(np.arange(shape.items), votes_of_item), []
    for number in votes_of_item:  # the most willing of all voters, at random
        willing = np.log(diligence) + rng.gumbel(size=shape.voters)
        voter.append(np.argpartition(-willing, number - 1)[:number])
    voter = np.concatenate(voter)
    guesses = (rng.random(len(item))[:, None] > guess[voter, labels[item]].cumsum(axis=1)[:, :-1]).sum(axis=1)
    vote = np.where(rng.random(len(item)) < knows[voter], labels[item], guesses)
    return Votes.from_long({"item": item, "voter": voter, "vote": vote})


def main(data: Path, out: Path = Path("speed_aggregators.csv"), name: str = "S1", seed: int = 0) -> None:
    votes = load(name, root=data).votes
    with threadpool_limits(1):
        rows = [fit_seconds(method, votes, jax.random.key(seed)) for method in METHODS]
        rows += compare_with_crowdkit(votes, jax.random.key(seed))
    table = pd.DataFrame(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False)
    Console(soft_wrap=True).print(f"{votes}\n{table.to_string(index=False)}", highlight=False)


def fit_seconds(method: Any, votes: Votes, key: jax.Array) -> dict[str, Any]:
    """A row for one method; the distinct rows of the votes are found anew, as in a first fit."""
    diagnostics = method.fit(Votes(votes.storage, *votes.shape, votes.num_classes), key=key).diagnostics
    return {
        "method": type(method).__name__,
        "seconds": diagnostics["seconds"],
        "log_likelihood": diagnostics.get("log_likelihood", np.nan),
    }


def compare_with_crowdkit(votes: Votes, key: jax.Array) -> list[dict[str, Any]]:
    """EM from vote shares in both, for as many rounds as ours needs, so that both end at the same likelihood.

    crowd-kit does not count its first maximisation, and keeps probabilities above 1e-10, as our pseudo-counts do.
    """
    single = DawidSkeneEM(diagonal=1e-10, off_diagonal=1e-10, random_starts=0)
    first = single.fit(Votes(votes.storage, *votes.shape, votes.num_classes), key=key).diagnostics
    ours = fit_seconds(single, votes, key)
    ours |= {"method": "DawidSkeneEM, no random starts", "cold_seconds": first["seconds"]}
    return [ours, crowdkit_seconds(votes, first["iterations"] - 1)]


def crowdkit_seconds(votes: Votes, rounds: int) -> dict[str, Any]:
    """What that many rounds of crowd-kit take, and where they end."""
    table = pd.DataFrame(dict(zip(("task", "worker", "label"), votes.triplets, strict=True)))
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = CrowdKitDawidSkene(n_iter=rounds, tol=-np.inf).fit(table)
    seconds = time.perf_counter() - start
    return {
        "method": f"crowd-kit DawidSkene, {rounds} rounds",
        "seconds": seconds,
        "log_likelihood": crowdkit_log_likelihood(fitted, votes),
    }


def crowdkit_log_likelihood(fitted: CrowdKitDawidSkene, votes: Votes) -> float:
    """The log-likelihood of the votes at crowd-kit's estimates."""
    confusion = np.zeros((votes.num_voters, votes.num_classes, votes.num_classes))
    errors = fitted.errors_.reset_index()
    for label in range(votes.num_classes):
        confusion[errors["worker"], label, errors["label"]] = errors[label]
    shares = fitted.priors_.reindex(range(votes.num_classes)).to_numpy()
    given_label = log_likelihoods(vote_indicator(votes.patterns.votes, votes.num_classes), confusion)
    return float(votes.patterns.counts @ np.logaddexp.reduce(np.log(shares) + given_label, axis=1))


if __name__ == "__main__":
    typer.run(main)
