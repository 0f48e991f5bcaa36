"""Dependence that the label leaves, layer by layer: total correlation given the label, in nats.

    python analyses/decorrelation.py [--data FOLDER] --out DIR [--seed 0] [--items 10000]

`C(X | Y) = Σ_y p(y) [Σ_i H(X_i | y) − H(X | y)]` is zero if the units of a layer are independent given the label. Where
the model of a set is known, all rows of votes are enumerated with their probabilities, so that votes and hidden layers
are exact; elsewhere the rows at hand stand for all, which overstates the dependence of the votes.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from common import paper_sets, plt, run, write
from jaxtyping import Float, Int

from latentens import bayes_posterior, pointwise_log_likelihood
from latentens.datasets import PAPER_ITEMS, PAPER_MODELS, Dataset
from latentens.methods import RBMStack
from latentens.methods.rbm_stack import stack_machines
from latentens.rbm import rows_from_votes, state_posterior
from latentens.votes import Votes


class Layer(NamedTuple):
    """States of a layer's units, and the joint probability of each state and label."""

    codes: Int[np.ndarray, "state unit"]
    probs: Float[np.ndarray, "state label"]


def main(
    data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS, families: tuple[str, ...] = tuple(PAPER_MODELS)
) -> pd.DataFrame:
    records = []
    for dataset in (found for family in families for found in paper_sets(family, data, 1, items)):
        records += measure(dataset, seed)
        print(records[-1]["set"], flush=True)
    table = pd.DataFrame(records)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name, part in table.groupby("set", sort=False):
        axes.plot(part["layer"], part["nats"], "o-", label=f"{name}: {part['sizes'].iloc[0]}")
    axes.set(ylabel="total correlation given the label (nats)", ylim=(0, None))
    axes.legend(frameon=False, fontsize="small")
    write(out, "decorrelation", tree=table.to_xarray(), table=table, figure=figure)
    return table


def measure(dataset: Dataset, seed: int) -> list[dict[str, object]]:
    """The total correlation of the votes and of each hidden layer given the label."""
    fit = RBMStack().fit(dataset.votes, key=jax.random.key(seed))
    layer = of_votes(dataset)
    about = {"set": dataset.name, "sizes": "-".join(map(str, fit.diagnostics["architecture"]))}
    about["rows"] = "at hand" if dataset.params is None else "all"
    records: list[dict[str, object]] = [{**about, "layer": "votes", "nats": total_correlation(layer)}]
    for number, machine in enumerate(stack_machines(fit.params), start=1):
        votes = Votes.from_matrix(layer.codes, num_classes=machine.visible_units.num_states)
        rows = rows_from_votes(votes)
        posterior = state_posterior(machine, np.asarray(rows.visible), rows.observed)[votes.patterns.inverse]
        states = itertools.product(range(machine.hidden_units.num_states), repeat=machine.num_hidden)
        layer = Layer(np.array(list(states)), posterior.T @ layer.probs)
        records.append({**about, "layer": f"layer {number}", "nats": total_correlation(layer)})
    return records


def of_votes(dataset: Dataset) -> Layer:
    """The votes and the label: all rows with their probabilities, or the rows at hand with their shares."""
    votes = dataset.votes
    if dataset.model is None or dataset.params is None:
        shares = np.zeros((len(votes.patterns.counts), votes.num_classes))
        np.add.at(shares, (votes.patterns.inverse, dataset.labels), 1 / votes.num_items)
        return Layer(votes.patterns.rows, shares)
    codes = np.indices((votes.num_classes,) * votes.num_voters).reshape(votes.num_voters, -1).T
    every = Votes.from_matrix(codes, num_classes=votes.num_classes)
    likelihood = np.exp(pointwise_log_likelihood(dataset.model, dataset.params, every))
    return Layer(codes, likelihood[:, None] * bayes_posterior(dataset.model, dataset.params, every))


def total_correlation(layer: Layer) -> float:
    """`Σ_y p(y) [Σ_i H(X_i | y) − H(X | y)]`."""
    total = 0.0
    for weights in layer.probs.T:
        share = weights.sum()
        alone = sum(entropy(np.bincount(column, weights) / share) for column in layer.codes.T)
        total += share * (alone - entropy(weights / share))
    return float(total)


def entropy(probs: Float[np.ndarray, " state"]) -> float:
    positive = probs[probs > 0]
    return float(-np.sum(positive * np.log(positive)))


if __name__ == "__main__":
    run(main, __doc__)
