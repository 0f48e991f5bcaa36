"""Whether voters err independently, put on record in a comparison, so that its report can draw it.

Under the name of a data set, `independence` holds
    residual[voter, other_voter]  correlation of two voters' votes less what independent voters would have
    p_value[voter, other_voter]   of each pair, allowing for the number of pairs; 1 where a pair was not checked
    group[voter]                  number of the group of dependent voters, −1 for none
with `p_value` and `summary` of the whole as attributes; `worth` has attributes only: how many independent voters these
are worth, `by_information` with `low` and `high` at a `level`, `by_correlation`, the `model`, and a `summary`.
"""

from collections.abc import Iterable

import jax
import numpy as np
import xarray as xr

from latentens.checks import ModelCheck, check_independence
from latentens.checks.effective_voters import effective_voters
from latentens.comparison.data_tree import data_trees
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError, VotesError
from latentens.methods.datatree import coordinate
from latentens.votes import Votes

GROUP = "independence"
WORTH = "worth"


def add_independence(tree: xr.DataTree, datasets: Iterable[Dataset], *, key: jax.Array) -> None:
    """Check the voters of some data sets of a comparison, and put the result into its tree.

    Votes that cannot be checked, such as those of hundreds of voters or of too few, are left out.

    Args:
        tree: What `latentens.compare` returned; it is changed.
        datasets: Data sets of the comparison.
        key: Random key; the same key gives the same result.
    """
    nodes = data_trees(tree)
    for dataset in datasets:
        try:
            found = check_independence(dataset.votes, key=key)
        except VotesError:
            continue
        nodes[dataset.name][GROUP] = xr.DataTree(_laid_out(found))


def add_worth(tree: xr.DataTree, datasets: Iterable[Dataset], *, key: jax.Array, resamples: int = 20) -> None:
    """Ask how many independent voters those of some data sets are worth, and put the answer into the tree.

    Args:
        tree: What `latentens.compare` returned; it is changed.
        datasets: Data sets of the comparison.
        key: Random key; the same key gives the same result.
        resamples: Number of bootstrap resamples behind the interval.
    """
    nodes = data_trees(tree)
    for dataset in datasets:
        nodes[dataset.name][WORTH] = xr.DataTree(xr.Dataset(attrs=_worth(dataset.votes, key, resamples)))


def _worth(votes: Votes, key: jax.Array, resamples: int) -> dict[str, float | str]:
    try:
        found = effective_voters(votes, key=key, resamples=resamples)
    except LatentensError as error:
        return {"summary": f"What the voters are worth cannot be told: {error}."}
    figures = {"low": found.low, "high": found.high, "level": found.level, "model": repr(found.model)}
    return {"summary": found.summary, **found.number._asdict(), **figures}


def _laid_out(found: ModelCheck) -> xr.Dataset:
    names = coordinate(found.voter_names)
    group = np.full(len(names), -1)
    for number, members in enumerate(found.groups):
        group[list(members)] = number
    both = ("voter", "other_voter")
    return xr.Dataset(
        {
            "residual": (both, found.residual),
            "p_value": (both, found.adjusted_p_values),
            "group": ("voter", group),
        },
        {"voter": names, "other_voter": names},
        {"p_value": found.p_value, "level": found.level, "summary": found.summary},
    )
