"""Log-likelihoods of items in the tree of a comparison, as ArviZ reads them, and the table of predictions."""

import arviz_stats
import jax
import numpy as np
import pytest
import xarray as xr

from latentens import Dataset, compare, load_comparison, save_comparison, simulate
from latentens.checks import held_out_log_likelihood
from latentens.cli.printing import prediction_tables
from latentens.comparison import data_trees, from_tree
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.reporting.parts import check_part, prediction_part, signal_part
from tests.reference import SIX_VOTERS_SAMPLED, two_class

KEY = jax.random.key(0)
MODEL = SIX_VOTERS_SAMPLED.model
TRUTH = two_class(0.4, np.full(6, 0.8), np.linspace(0.6, 0.85, 6))
METHODS = {
    "sampled": SIX_VOTERS_SAMPLED,
    "point": DawidSkeneEM(random_starts=0),
    "vote": MajorityVote(),
}


@pytest.fixture(scope="module")
def dataset():
    drawn = simulate(MODEL, 150, key=KEY, params=TRUTH)
    return Dataset("drawn", drawn.votes, drawn.labels)


@pytest.fixture(scope="module")
def tree(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("tree") / "tree.nc"
    save_comparison(compare(dataset, METHODS, key=KEY, resamples=20), path)
    return load_comparison(path)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # ArviZ's own, with pandas 3.1
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # of a hundred draws
def test_arviz_judges_sampled_fits_unmodified(tree):
    node = data_trees(tree)["drawn"]["fits/sampled/0"]
    assert node["log_likelihood"]["votes"].dims == ("chain", "draw", "item")
    ours = data_trees(tree)["drawn"]["predictions"]["log_density"].sel(estimator="sampled")
    np.testing.assert_allclose(arviz_stats.loo(node).elpd, float(ours.sum()), rtol=1e-3)
    groups = {name: node[name].to_dataset() for name in ("posterior", "log_likelihood")}
    worse = groups | {"log_likelihood": groups["log_likelihood"] - 0.1}
    ranked = arviz_stats.compare({"sampled": node, "worse": xr.DataTree.from_dict(worse)})
    assert list(ranked.index) == ["sampled", "worse"]


def test_point_estimates_count_their_parameters(dataset, tree):
    node = data_trees(tree)["drawn"]
    values = node["fits/point/0/log_likelihood"]["votes"]
    assert values.sizes == {"chain": 1, "draw": 1, "item": 150}
    density = node["predictions"]["log_density"].sel(estimator="point")
    np.testing.assert_allclose(density, values[0, 0] - 13 / 150)
    assert "log_likelihood" not in node["fits/vote/0"].children
    assert list(node["predictions"]["estimator"].values) == ["sampled", "point"]


def test_folds_are_those_of_held_out_items(dataset, tmp_path):
    method = DawidSkeneEM(random_starts=0)
    for _ in range(2):  # fitted, then from the store
        tree = compare(dataset, {"point": method}, key=KEY, folds=3, resamples=20, folder=tmp_path)
        found = data_trees(tree)["drawn"]["predictions"]
        assert found["by"].item() == "3 folds"
        assert found["log_density"].sum() < tree["drawn/fits/point/0/log_likelihood/votes"].sum()
    assert len(held_out_log_likelihood(method, dataset.votes, key=KEY, folds=3)) == 150


def test_the_page_ranks_models_and_warns(tree):
    (data,) = from_tree(tree).datasets
    part = prediction_part(data)
    assert list(part.tables["predictions"].columns)[:2] == ["model", "elpd"]
    assert len(part.tables["predictions"]) == 2
    assert "need not be the best" in " ".join(part.words)
    assert "leaving one item out" in [row[-1] for row in part.body[0].rows]
    assert "more than by chance" in signal_part(data).words[0]


def test_a_comparison_without_models_has_no_ranking(dataset):
    (data,) = from_tree(compare(dataset, {"vote": MajorityVote()}, key=KEY, resamples=20)).datasets
    assert prediction_part(data) is None


def test_the_page_says_whether_models_reproduce_the_votes(dataset):
    methods = {"point": DawidSkeneEM(random_starts=0), "vote": MajorityVote()}
    (data,) = from_tree(compare(dataset, methods, key=KEY, resamples=20, checks=True)).datasets
    part = check_part(data, {"point": "#0072b2"})
    assert "reproduces the votes" in part.words[0]
    assert list(part.tables["checks"]["method"]) == ["point"]
    assert part.pictures[0].png.startswith(b"\x89PNG")


def test_the_command_prints_the_ranking(tree):
    *tables, warning = prediction_tables(from_tree(tree))
    assert [table.row_count for table in tables] == [2]
    assert "need not be the best" in warning
