"""Dependence that the label leaves, layer by layer: total correlation given the label, in nats.

    python analyses/decorrelation.py [--data FOLDER] --out DIR [--seed 0] [--items 10000]

`C(X | Y) = Σ_y p(y) [Σ_i H(X_i | y) − H(X | y)]` is zero if the units of a layer are independent given the label. Where
the model of a set is known and has few enough voters, all rows of votes are enumerated with their probabilities, so
that votes and hidden layers are exact. Elsewhere the rows at hand stand for all, which overstates the dependence of the
votes by far: what is left once votes are shuffled among the items of a label, so that they depend on nothing else, is
taken off, which overdoes it a little. The column `at_hand` has this estimate for all sets, beside the exact value where
there is one.
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

MOST_ROWS = 2**18
"""All rows of votes are enumerated if there are at most this many."""

SHUFFLES = 5


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
    at_hand = shuffled_away(dataset.votes, dataset.labels, seed)
    exact = is_enumerable(dataset)
    about["rows"] = "all" if exact else "at hand"
    nats = total_correlation(layer) if exact else at_hand
    records: list[dict[str, object]] = [{**about, "layer": "votes", "nats": nats, "at_hand": at_hand}]
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
    if not is_enumerable(dataset):
        return at_hand(votes, dataset.labels)
    assert dataset.model is not None
    assert dataset.params is not None
    codes = np.indices((votes.num_classes,) * votes.num_voters).reshape(votes.num_voters, -1).T
    every = Votes.from_matrix(codes, num_classes=votes.num_classes)
    likelihood = np.exp(pointwise_log_likelihood(dataset.model, dataset.params, every))
    return Layer(codes, likelihood[:, None] * bayes_posterior(dataset.model, dataset.params, every))


def is_enumerable(dataset: Dataset) -> bool:
    """Whether the probability of every row of votes is known and can be written down."""
    return dataset.params is not None and dataset.votes.num_classes**dataset.votes.num_voters <= MOST_ROWS


def at_hand(votes: Votes, labels: Int[np.ndarray, " item"]) -> Layer:
    """The rows of votes that were cast, with their shares."""
    shares = np.zeros((len(votes.patterns.counts), votes.num_classes))
    np.add.at(shares, (votes.patterns.inverse, labels), 1 / votes.num_items)
    return Layer(votes.patterns.votes.matrix, shares)


def shuffled_away(votes: Votes, labels: Int[np.ndarray, " item"], seed: int) -> float:
    """The total correlation of the rows at hand, less what is left of it once votes are shuffled within labels."""
    generator, left = np.random.default_rng(seed), []
    for _ in range(SHUFFLES):
        matrix = votes.matrix.copy()
        for label in np.unique(labels):
            items = np.flatnonzero(labels == label)
            matrix[items] = generator.permuted(matrix[items], axis=0)
        left.append(total_correlation(at_hand(Votes.from_matrix(matrix, num_classes=votes.num_classes), labels)))
    return total_correlation(at_hand(votes, labels)) - float(np.mean(left))


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
