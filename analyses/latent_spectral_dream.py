"""L-SML on DREAM by the number of groups and by how the share of the classes is estimated.

    python analyses/latent_spectral_dream.py --data ROOT [--out DIR] [--sizes 3 6 13 24 48]

Balanced accuracy of the tree with so many groups and with each voter alone, and the class imbalance b that it rests on.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import find, run, write

from latentens.datasets import Dataset
from latentens.methods.groups import candidate_groups, group_residual, group_scores
from latentens.methods.latent_spectral import TreeEstimates, estimate_tree, tree_log_likelihoods
from latentens.methods.moments import vote_moments
from latentens.runtime.numerics import numpy_generator
from latentens.scores.scores import balanced_accuracy
from latentens.votes.layout import vote_indicator

IMBALANCES = ("likelihood", "tensor", "published")


def accuracy(dataset: Dataset, tree: TreeEstimates) -> float:
    """Of labels by maximum likelihood."""
    rows, _, inverse = dataset.votes.patterns
    given_label = tree_log_likelihoods(vote_indicator(rows, 2), tree.groups, tree.hidden, tree.voter)
    return 100 * balanced_accuracy(dataset.labels, given_label.argmax(axis=1)[inverse])


def main(data: Path | None, out: Path, seed: int, sizes: tuple[int, ...] = (3, 6, 13, 24, 48)) -> pd.DataFrame:
    rows = []
    for dataset in find(["S1", "S3"], data):
        votes, generator = dataset.votes, numpy_generator(jax.random.key(seed))
        moments = vote_moments(votes)
        found = candidate_groups(group_scores(moments.covariance, generator), max(sizes), 5, generator)
        for groups in found:
            if len(np.unique(groups)) not in (*sizes, votes.num_voters):
                continue
            row = {"set": dataset.name, "groups": len(np.unique(groups)), "largest": np.bincount(groups).max()}
            row["residual"] = group_residual(moments.covariance, groups)
            for imbalance in IMBALANCES:
                tree = estimate_tree(votes, moments, groups, imbalance=imbalance)
                row |= {imbalance: accuracy(dataset, tree), f"b_{imbalance}": tree.imbalance}
            rows.append(row)
            print(row, flush=True)
    table = pd.DataFrame(rows).set_index(["set", "groups"])
    write(out, "latent_spectral_dream", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
