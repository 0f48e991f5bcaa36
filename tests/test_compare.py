"""A comparison: its layout, what becomes of failures, and going on after an interruption."""

import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import arviz_plots
import arviz_stats
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import latentens
from latentens import Dataset, Votes, compare
from latentens.comparison import EXACT, data_trees, from_tree, load_comparison, save_comparison, to_tree
from latentens.comparison.cell import Cell, describe, settings_of
from latentens.comparison.sweep import OUTSIDE_KEY, TRUTH_OUTSIDE_KEY, _work_keys
from latentens.errors import FailedFitWarning, LatentensError, LatentensWarning
from latentens.inference.orient import vote_shares
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood, Nuts, RBMStack
from latentens.methods.base import Diagnostics, Estimate, Method
from latentens.methods.persistence import axis_names
from latentens.models import DawidSkene, LayeredGraph, Tree
from latentens.programs.contract import structure_of
from latentens.runtime.store import Store
from latentens.scores import Score, averaged
from latentens.scores.scores import evaluate
from tests.reference import KEY, independent_votes, two_class

RATES = np.linspace(0.6, 0.9, 6)
PARAMS = two_class(0.5, RATES, RATES[::-1])
TIMED = ["seconds", "peak_memory"]


@dataclasses.dataclass(frozen=True)
class Broken(Method):
    def estimate(self, votes, key, gold=None):
        raise ZeroDivisionError("no luck today")

    def posterior(self, estimate, votes):
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Draws(Method):
    """Stands for a sampler: cheap draws in the form that Nuts gives."""

    pause: float = 0.0
    number: int = 0

    def estimate(self, votes, key, gold=None):
        time.sleep(self.pause)
        uniform = np.asarray(jax.random.uniform(key, (2, 50, 6)))
        draws = {"scale": uniform[..., 0], "ability": uniform}
        diagnostics = Diagnostics(warnings=["none"], extra={"sample_stats": {"lp": np.log(uniform[..., 0])}})
        return Estimate({"scale": np.array(0.5)}, diagnostics, draws)

    def posterior(self, estimate, votes):
        return vote_shares(votes)


def sweep(folder, client=None):
    """A sweep of sixteen cells, each of which takes a while."""
    methods = [*(Draws(0.05, number) for number in range(6)), Broken(), MajorityVote()]
    sets = [dataset("a"), dataset("b/1", seed=1)]
    return compare(sets, methods, key=jax.random.key(3), folder=folder, resamples=10, client=client)


def dataset(name, seed=0, num_items=60, known=True):
    votes, labels = independent_votes(num_items, RATES, RATES[::-1], seed=seed)
    return Dataset(name, votes, labels, *((DawidSkene(6), PARAMS) if known else ()))


def without_times(tree):
    return tree.map_over_datasets(lambda group: group.drop_vars(TIMED, errors="ignore"))


@pytest.fixture(scope="module")
def sets():
    return [dataset("made/1"), dataset("made/2", seed=1, known=False)]


@pytest.fixture(scope="module")
def tree(sets):
    return compare(sets, [MajorityVote(), DawidSkeneEM(), Draws(), Broken()], key=KEY, resamples=50)


def test_scores_are_those_of_the_estimates_beside_the_exact_posterior(sets, tree):
    scores = tree["scores"].to_dataset()
    assert list(scores["estimator"].values) == [EXACT, "MajorityVote", "DawidSkeneEM", "Draws", "Broken"]
    for data in sets:
        exact = data.bayes_posterior()
        part = data_trees(tree)[data.name]
        for name in ("MajorityVote", "DawidSkeneEM"):
            probs = part["estimates/label_prob"].sel(estimator=name, repetition=0).to_numpy()
            for score, value in evaluate(data.labels, probs, exact).items():
                assert scores[score].sel({"dataset": data.name, "estimator": name}).item() == pytest.approx(value)
        perfect = scores.sel({"dataset": data.name, "estimator": EXACT})
        if exact is None:
            assert np.isnan(perfect["log_score"])
        else:
            assert perfect["mean_kl"] == perfect["accuracy_regret"] == 0


def test_what_methods_were_told_is_not_compared(sets):
    gold = np.where(np.arange(60) < 20, sets[0].labels, -1)
    tree = compare(dataclasses.replace(sets[0], gold=gold), [MajorityVote(), DawidSkeneEM()], key=KEY, resamples=5)
    np.testing.assert_array_equal(tree["made/1/truth/gold"], gold)
    probs = tree["made/1/estimates/label_prob"].sel(repetition=0)
    right = (probs.argmax("label").values == sets[0].labels)[:, 20:].mean(axis=1)
    names = {"estimator": "MajorityVote", "other": "DawidSkeneEM"}
    assert tree["pairs/accuracy_difference"].sel(names).item() == pytest.approx(right[0] - right[1])
    (data,) = from_tree(tree).datasets
    np.testing.assert_array_equal(data.labels >= 0, np.arange(60) >= 20)


def test_a_failing_method_is_named_in_a_warning(sets):
    with pytest.warns(FailedFitWarning, match="Broken failed on made/1: ZeroDivisionError: no luck today") as found:
        compare(sets[0], {"a": MajorityVote(), "Broken": Broken()}, key=KEY, resamples=0, repetitions=2)
    assert len(found) == 1


def test_a_failing_method_is_recorded_and_the_others_go_on(tree):
    scores = tree["scores"].to_dataset()
    assert (
        scores["error"]
        .sel({"estimator": "Broken"})
        .str.match(r"ZeroDivisionError: no luck today \(.*test_compare.py, ")
        .all()
    )
    assert (scores["error"].sel({"estimator": "DawidSkeneEM"}) == "").all()
    assert scores["balanced_accuracy"].sel({"estimator": "Broken"}).isnull().all()
    assert tree["made/1/estimates/label_prob"].sel({"estimator": "Broken"}).isnull().all()


def test_groups_hold_votes_truth_parameters_and_settings(sets, tree):
    part = data_trees(tree)["made/1"]
    np.testing.assert_array_equal(part["observed_data/vote"], sets[0].votes.matrix)
    np.testing.assert_array_equal(part["truth/true_label"], sets[0].labels)
    np.testing.assert_allclose(part["truth/bayes_prob"], sets[0].bayes_posterior())
    np.testing.assert_allclose(part["truth/confusion"].values[:, 1, 1], RATES)
    assert json.loads(part["fits/DawidSkeneEM/0"].attrs["settings"])["class"] == "DawidSkeneEM"
    assert part["fits/DawidSkeneEM/0/params/confusion"].dims == ("voter", "true_class", "vote_class")
    assert "bayes_prob" not in data_trees(tree)["made/2"]["truth"]
    assert tree.attrs["version_latentens"]
    assert list(tree.attrs["key"]) == np.asarray(jax.random.key_data(KEY)).tolist()


def shape_of(tree):
    """Every variable with its dimensions, the data set's name aside."""
    name = next(iter(data_trees(tree)))
    return {
        f"{node.path}/{key}".replace(f"/{name}/", "/NAME/"): variable.dims
        for node in tree.subtree
        for key, variable in node.data_vars.items()
        if not any(f"/{other}/" in f"{node.path}/" for other in list(data_trees(tree))[1:])
    }


def test_one_data_set_is_laid_out_as_many_are(sets):
    one, many = (compare(chosen, [Draws(), Broken()], key=KEY, resamples=5) for chosen in (sets[0], sets))
    repeated = compare(sets[0], [Draws(), Broken()], key=KEY, resamples=5, repetitions=2)
    assert shape_of(one) == shape_of(many)
    assert shape_of(one).items() < shape_of(repeated).items()
    assert one["scores/log_score"].dims == ("dataset", "repetition", "estimator")
    assert one["pairs/accuracy_difference"].dims == ("dataset", "repetition", "estimator", "other")
    assert one["made/1/estimates/label_prob"].dims == ("repetition", "estimator", "item", "label")


def named_dataset():
    """Three classes with names, voters with names, and the program that the votes come from."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 90)
    votes = np.where(rng.random((90, 4)) < 0.8, labels[:, None], rng.integers(0, 3, (90, 4)))
    words = np.array(["cat", "dog", "emu"])
    items, voters = [f"q{item}" for item in range(90)], ["ann", "bob", "cyd", "dee"]
    confusion = np.full((4, 3, 3), 0.1) + 0.7 * np.eye(3)
    params = {"prevalence": np.full(3, 1 / 3), "confusion": confusion}
    frame = pd.DataFrame(words[votes], items, voters)
    return Dataset("pets", Votes.from_matrix(frame, classes=tuple(words)), labels, DawidSkene(4, 3), params)


def test_the_obvious_selection_is_the_right_one(tmp_path):
    data = named_dataset()
    near = MaximumLikelihood(data.model, starts=0, warm=(), initial=(data.params,), max_iterations=5)
    methods = {"em": DawidSkeneEM(random_starts=1), "fixed": near}
    save_comparison(compare(data, methods, key=KEY, resamples=5), tmp_path / "tree.nc")
    tree = load_comparison(tmp_path / "tree.nc")
    part = tree["pets"]
    exact = data.bayes_posterior()
    np.testing.assert_allclose(part["truth/bayes_prob"].sel(label="dog"), exact[:, 1])
    np.testing.assert_allclose(part["truth"].sel(item="q7")["bayes_prob"], exact[7])
    assert part["truth"].sel(item="q7")["true_label"] == data.labels[7]
    assert part["observed_data/vote"].sel(item="q7", voter="cyd") == data.votes.matrix[7, 2]
    assert part["truth/confusion"].sel(voter="bob", true_class="cat", vote_class="cat") == pytest.approx(0.8)
    assert part["estimates/label_prob"].sel(estimator="em", repetition=0, item="q7").sum() == pytest.approx(1)
    for name in methods:
        params = part[f"fits/{name}/0/params"]
        assert params["confusion"].dims == ("voter", "true_class", "vote_class")
        assert params["prevalence"].dims == ("true_class",)
        np.testing.assert_allclose(params["confusion"].sel(voter="bob", true_class="dog").sum(), 1)
    scores = tree["scores"].to_dataset()
    right = scores.sel(dataset="pets", estimator="em", repetition=0)["accuracy"]
    probs = part["estimates/label_prob"].sel(estimator="em", repetition=0)
    assert right == np.mean(probs.argmax("label").values == data.labels)


def test_axes_of_programs_are_called_after_their_plates():
    votes, _ = independent_votes(40, RATES, RATES)
    shapes = {"voter_confusion": (6, 2, 2), "hidden_confusion": (2, 2, 2), "prevalence": (2,)}
    expected = {
        "voter_confusion": ("voter", "true_class", "vote_class"),
        "hidden_confusion": ("group", "true_class", "hidden_confusion_dim_2"),
        "prevalence": ("true_class",),
    }
    assert axis_names(shapes, votes, Tree((0, 0, 0, 1, 1, 1))) == expected
    graph = LayeredGraph(6, (6,))  # as many hidden units as voters
    named = axis_names(structure_of(graph).parameter_shapes, votes, graph)
    assert named["vote_sensitivity"] == ("voter", "vote_parent")
    assert named["hidden_1_sensitivity"] == ("hidden_1_node", "hidden_1_parent")
    assert axis_names({"confusion": (9, 2, 2), "mine": (6,)}, votes) == {
        "confusion": ("confusion_dim_0", "true_class", "vote_class"),
        "mine": ("mine_dim_0",),
    }


def test_the_node_of_a_sampled_fit_opens_in_arviz(tmp_path):
    save_comparison(compare(dataset("made/1"), [Draws(), Draws(number=1)], key=KEY, resamples=20), tmp_path / "tree.nc")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as opened:
        for name in ("Draws", "Draws(number=1)"):
            fit = opened[f"made/1/fits/{name}/0"]
            assert fit.attrs["estimator"] == name
            assert fit["posterior/ability"].dims == ("chain", "draw", "voter")
            table = arviz_stats.summary(fit)
            means = fit["posterior/ability"].mean(("chain", "draw"))
            assert len(table) == 7
            assert float(table.loc["ability[2]", "mean"]) == pytest.approx(float(means[2]), abs=0.01)
            plot = arviz_plots.plot_dist(fit, var_names=["scale"], backend="matplotlib")
            assert plot.viz["figure"].item().axes
            plt.close("all")


@pytest.mark.slow
def test_names_that_differ_in_a_slash_only_have_nodes_of_their_own(tmp_path):
    odd = ["a/b", "a_b", "/", "..", "a/b/", "a//b", " ", "tab\t", "params", "é"]
    sets = [dataset(name, num_items=20) for name in ["x", "x/truth", "x_truth", "scores", "scores/y", "../z", ""]]
    methods = {name: Draws(number=number) for number, name in enumerate(odd)}
    save_comparison(compare(sets, methods, key=KEY, resamples=2), tmp_path / "tree.nc")
    tree = load_comparison(tmp_path / "tree.nc")
    assert list(data_trees(tree)) == [data.name for data in sets]
    for data in sets:
        part = data_trees(tree)[data.name]
        nodes = {node.attrs["estimator"]: node["0"] for node in part["fits"].children.values()}
        settings = {name: json.loads(node.attrs["settings"]) for name, node in nodes.items()}
        assert settings == {name: settings_of(method) for name, method in methods.items()}
        np.testing.assert_array_equal(part["observed_data/vote"], data.votes.matrix)
    assert tree["scores/accuracy"].sizes == {"dataset": len(sets), "repetition": 1, "estimator": len(odd) + 1}
    assert json.loads(tree["x/fits/a_b/0"].attrs["settings"]) == settings_of(methods["a_b"]), (
        "a name that can be a node is one"
    )


def test_a_method_may_be_made_for_each_data_set():
    wide, narrow = dataset("wide"), Dataset("narrow", *independent_votes(30, RATES[:3], RATES[:3]))
    methods = {"sized": lambda votes: Draws(number=votes.num_voters), "vote": MajorityVote()}
    tree = compare([wide, narrow], methods, key=KEY, resamples=10)
    numbers = {data.name: data.fits[0, "sized"].settings["number"] for data in from_tree(tree).datasets}
    assert numbers == {"wide": "6", "narrow": "3"}


def test_a_tree_that_cannot_be_saved_leaves_nothing(tree, tmp_path, monkeypatch):
    def full(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_comparison(tree, tmp_path / "tree.nc")
    assert not list(tmp_path.iterdir())


def test_a_saved_tree_comes_back_the_same(tree, tmp_path):
    save_comparison(tree, tmp_path / "tree.nc")
    loaded = load_comparison(tmp_path / "tree.nc")
    xr.testing.assert_identical(loaded, tree)
    xr.testing.assert_identical(to_tree(from_tree(loaded)), tree)
    for content in (b"", b"\x89garbage\x00\x01"):
        (tmp_path / "odd.nc").write_bytes(content)
        with pytest.raises(LatentensError, match="odd.nc is not a readable netCDF file"):
            load_comparison(tmp_path / "odd.nc")
    for attributes, words in (({}, "no comparison"), ({"datasets": "[]"}, "a comparison of another version")):
        xr.Dataset({"a": 1}, attrs=attributes).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
        with pytest.raises(LatentensError, match=f"holds {words}"):
            load_comparison(tmp_path / "other.nc")
    with pytest.raises(LatentensError, match="there is no file"):
        load_comparison(tmp_path / "none.nc")


def test_repetitions_differ_by_key_and_do_not_depend_on_what_else_is_compared(sets):
    several = compare(sets, [Draws(), MajorityVote()], key=KEY, repetitions=2, resamples=10)
    alone = compare(sets[1], {"Draws": Draws()}, key=KEY, repetitions=2, resamples=10)
    first = several["made/2/fits/Draws/0/posterior/scale"]
    np.testing.assert_array_equal(first, alone["made/2/fits/Draws/0/posterior/scale"])
    assert not np.array_equal(first, several["made/2/fits/Draws/1/posterior/scale"])
    assert not np.array_equal(first, several["made/1/fits/Draws/0/posterior/scale"])


def test_cells_side_by_side_give_the_same_tree(sets):
    fits = [DawidSkeneEM(), *(MaximumLikelihood(DawidSkene(6), starts=starts) for starts in (1, 2, 3)), Broken()]
    one_by_one, side_by_side = (compare(sets, fits, key=KEY, resamples=20, workers=workers) for workers in (1, 3))
    xr.testing.assert_identical(without_times(side_by_side), without_times(one_by_one))
    assert np.isnan(side_by_side["scores/peak_memory"]).all()


def test_paired_differences_are_antisymmetric_and_of_accuracies(tree):
    pairs, scores = tree["pairs"].to_dataset(), tree["scores"].to_dataset()
    at = {"dataset": "made/1", "repetition": 0}
    forth = pairs["accuracy_difference"].sel(at | {"estimator": EXACT, "other": "MajorityVote"}).item()
    back = pairs["accuracy_difference"].sel(at | {"estimator": "MajorityVote", "other": EXACT}).item()
    accuracy = scores["accuracy"].sel(at)
    expected = accuracy.sel({"estimator": EXACT}).item() - accuracy.sel({"estimator": "MajorityVote"}).item()
    assert forth == -back == pytest.approx(expected)


def test_finished_cells_are_not_run_again(tmp_path, sets):
    counts = tmp_path / "runs"

    @dataclasses.dataclass(frozen=True)
    class Counted(Method):
        weight: float = 1.0

        def estimate(self, votes, key, gold=None):
            with counts.open("a") as file:
                file.write("x")
            return MajorityVote().estimate(votes, key)

        def posterior(self, estimate, votes):
            return vote_shares(votes)

    def run(*methods, **options):
        return compare(sets, methods, key=KEY, folder=tmp_path / "cells", resamples=10, **options)

    first = run(Counted(), Draws())
    again = run(Counted(), Draws())
    xr.testing.assert_identical(first, again)
    assert counts.read_text() == "x" * 2
    run(Counted(), Counted(weight=2.0), Draws(), Broken())
    assert counts.read_text() == "x" * 4
    run(Counted(), repetitions=2)
    assert counts.read_text() == "x" * 6
    compare([dataset("made/1", seed=5)], [Counted()], key=KEY, folder=tmp_path / "cells", resamples=10)
    assert counts.read_text() == "x" * 7


def test_checks_that_are_asked_for_later_are_made(tmp_path):
    options = {"key": KEY, "folder": tmp_path, "resamples": 5}
    kept = {}
    for checks in (False, True):
        tree = compare(dataset("made"), {"em": DawidSkeneEM(random_starts=0)}, checks=checks, **options)
        kept[checks] = from_tree(tree).datasets[0].fits[0, "em"].check
    assert kept[False] is None
    assert "reproduce" in kept[True].summary


CHANGED_FIELDS = {
    "dataset": lambda cell: dataset(cell.dataset.name, seed=9),
    "exact": lambda cell: None,
    "method": lambda cell: MajorityVote(),
    "key_data": lambda cell: cell.key_data + 1,
    "resamples": lambda cell: cell.resamples + 1,
    "folds": lambda cell: 3,
    "checks": lambda cell: True,
    "gold_folds": lambda cell: 3,
    "name": lambda cell: "another name",
    "repetition": lambda cell: 7,
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Cell)])
def test_every_field_of_a_cell_changes_its_place_in_the_store(tmp_path, field):
    cell = Cell(dataset("made"), np.full((60, 2), 0.5), "em", DawidSkeneEM(), 0, np.zeros(2, np.uint32), 5)
    other = dataclasses.replace(cell, **{field: CHANGED_FIELDS[field](cell)})
    keys = [*_work_keys([cell], Store(tmp_path)).values(), *_work_keys([other], Store(tmp_path)).values()]
    assert (keys[0] == keys[1]) == (field in OUTSIDE_KEY)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Dataset)])
def test_every_field_of_a_data_set_changes_its_place_in_the_store(tmp_path, field):
    data = dataset("made")
    others = {
        "name": "other",
        "votes": dataset("made", seed=1).votes,
        "labels": 1 - data.labels,
        "model": DawidSkene(5),
        "params": {**PARAMS, "prevalence": np.array([0.6, 0.4])},
        "gold": data.labels,
    }
    cell = Cell(data, None, "em", DawidSkeneEM(), 0, np.zeros(2, np.uint32), 5)
    other = dataclasses.replace(cell, dataset=dataclasses.replace(data, **{field: others[field]}))
    keys = [*_work_keys([cell], Store(tmp_path)).values(), *_work_keys([other], Store(tmp_path)).values()]
    assert (keys[0] == keys[1]) == (field in TRUTH_OUTSIDE_KEY)


@pytest.mark.slow
def test_a_killed_sweep_resumes_to_the_same_tree(tmp_path):
    root, cells = Path(__file__).parents[1], tmp_path / "cells"
    code = "import sys; from tests.test_compare import sweep; sweep(sys.argv[1])"
    killed = subprocess.Popen([sys.executable, "-c", code, cells], cwd=root)
    wanted = 5
    while len(list(cells.glob("*.npz"))) < wanted:
        assert killed.poll() is None
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.npz")}
    assert wanted <= len(kept) < 14
    resumed = sweep(cells)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    xr.testing.assert_identical(without_times(resumed), without_times(sweep(tmp_path / "whole")))


@dataclasses.dataclass(frozen=True)
class Weighted(Method):
    """Shares of votes, weighted by whatever the settings hold."""

    weights: object = None

    def estimate(self, votes, key, gold=None):
        weights = self.weights() if callable(self.weights) else self.weights
        weights = sum(weights.values()) if isinstance(weights, dict) else weights
        return Estimate({"weights": np.asarray(weights)[:6]})

    def posterior(self, estimate, votes):
        ones = (votes.matrix * estimate.params["weights"]).sum(axis=1) / estimate.params["weights"].sum()
        return np.stack([1 - ones, ones], axis=1)


def made(rates):
    return lambda: rates


def long_weights(first):
    """A thousand and more numbers: `repr` shows the outer ones only."""
    weights = np.ones(2000)
    weights[3] = first
    return weights


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (long_weights(2.0), long_weights(9.0)),
        ({"a": long_weights(2.0)}, {"a": long_weights(9.0)}),
        (made(long_weights(2.0)), made(long_weights(9.0))),
    ],
    ids=["arrays", "dicts of arrays", "closures"],
)
def test_a_fit_of_other_settings_is_never_served(tmp_path, first, second):
    for weights in (first, second, first):
        options = {"key": KEY, "folder": tmp_path, "resamples": 5}
        tree = compare(dataset("made"), {"mine": Weighted(weights)}, **options)
        shown = tree["made/fits/mine/0/params/weights"]
        expected = Weighted(weights).estimate(None, None).params["weights"]
        np.testing.assert_array_equal(shown, expected)
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_a_damaged_or_foreign_cell_is_set_aside_and_fitted_again(tmp_path, sets):
    options = {"key": KEY, "folder": tmp_path, "resamples": 5}
    whole = compare(sets, [MajorityVote(), Draws()], **options)
    kept = sorted(tmp_path.glob("*.npz"))
    assert len(kept) == 4
    kept[0].write_bytes(b"\x89HDF garbage")
    kept[1].write_bytes(kept[2].read_bytes())
    with pytest.warns(UserWarning, match="set aside|was renamed to") as said:
        again = compare(sets, [MajorityVote(), Draws()], **options)
    assert len(said) == 2
    xr.testing.assert_identical(without_times(again), without_times(whole))
    assert len(list(tmp_path.glob("*.damaged"))) == 2
    compare(sets, [MajorityVote(), Draws()], **options)


def test_what_failed_is_tried_again(tmp_path):
    flag = tmp_path / "mended"

    @dataclasses.dataclass(frozen=True)
    class Mended(Draws):
        def estimate(self, votes, key, gold=None):
            if not flag.exists():
                raise OSError("the network is down")
            return super().estimate(votes, key)

    trees = []
    for _ in range(2):
        trees.append(compare(dataset("made"), [Mended()], key=KEY, folder=tmp_path / "cells", resamples=5))
        flag.touch()
    assert "network is down" in str(trees[0]["scores/error"].values)
    assert "network is down" not in str(trees[1]["scores/error"].values)


def test_scores_of_ones_own_need_no_new_fit_and_cannot_lose_one(tmp_path):
    """The second score works on the few items on which it is tried, but not on the data."""
    data, progress = dataset("made", known=False), []
    mean = Score("mean", "Mean confidence", function=averaged(lambda items: items.confidence))
    fails = Score(
        "fails", "Fails on more than 5 items", function=averaged(lambda items: np.ones(5)[: len(items.labels)])
    )
    options = {"key": KEY, "folder": tmp_path, "resamples": 5}
    compare(data, Draws(), **options)
    with pytest.warns(LatentensWarning, match="score 'fails' of Draws on made failed: the function in averaged must"):
        tree = compare(data, Draws(), scores=[mean, fails], on_progress=lambda *done: progress.append(done), **options)
    assert progress == [(1, 1)], "the fit was kept"
    scores = tree["scores"].to_dataset().sel(estimator="Draws").squeeze()
    probs = tree["made/estimates/label_prob"].sel(estimator="Draws").to_numpy()
    assert scores["mean"].item() == pytest.approx(probs.max(axis=-1).mean())
    assert np.isnan(scores["fails"])
    assert np.isfinite(scores["accuracy"])
    assert np.isfinite(tree["intervals/mean"].sel(estimator="Draws")).all()


def test_settings_without_content_are_refused_before_any_work(tmp_path):
    with pytest.raises(LatentensError, match="fits of mine cannot be kept in .*cannot be hashed by content"):
        compare(dataset("made"), {"mine": Weighted(threading.Lock())}, key=KEY, folder=tmp_path)


def test_a_method_whose_result_cannot_be_scored_is_recorded(sets):
    @dataclasses.dataclass(frozen=True)
    class Ragged(Draws):
        def estimate(self, votes, key, gold=None):
            return Estimate({"parts": np.array([[1], [2, 3]], dtype=object)})

    tree = compare(sets, [Ragged(), MajorityVote()], key=KEY, resamples=5)
    scores = tree["scores"].to_dataset()
    assert (scores["error"].isel({"estimator": -2}) != "").all()
    assert scores["accuracy"].sel({"estimator": "MajorityVote"}).notnull().all()


def test_names_tell_what_differs_from_the_defaults():
    assert describe(Weighted(np.ones(2))) == "Weighted(weights=array([1., 1.]))"
    assert describe(RBMStack()) == "RBMStack"
    assert describe(RBMStack(hidden=(3, 1), prediction="map")) == "RBMStack(hidden=(3, 1), prediction='map')"
    assert describe(Nuts(DawidSkene(6))) == "Nuts(DawidSkene(num_voters=6))"


@pytest.mark.parametrize(
    ("datasets", "methods", "words"),
    [
        ([], [MajorityVote()], "at least one data set"),
        ([dataset("a")], [], "at least one data set, one method"),
        ([dataset("a"), dataset("a", seed=1)], [MajorityVote()], "two data sets are called 'a'"),
        ([dataset("a")], [MajorityVote(), MajorityVote()], "MajorityVote appears twice"),
        ([dataset("a")], {EXACT: MajorityVote()}, "'exact Bayes' is reserved"),
    ],
)
def test_bad_requests_are_refused_before_any_work(datasets, methods, words):
    with pytest.raises(LatentensError, match=words):
        compare(datasets, methods, key=KEY)


def test_compare_is_a_function_whatever_was_imported_before():
    code = "import latentens.comparison.data_tree, latentens.reporting; from latentens import *; print(compare, report)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<function compare")
    assert "<function report" in done.stdout
    assert latentens.compare is compare
    with pytest.raises(AttributeError, match="attribute '?oracle"):
        _ = latentens.oracle
