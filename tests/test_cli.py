import json
import re
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest

from latentens import Votes, bayes_posterior
from latentens.checks import check_signal
from latentens.cli import io
from latentens.cli.methods import default_methods
from latentens.comparison import load_comparison
from latentens.datasets import PAPER_MODELS, simulate_paper
from latentens.datasets import load as load_dataset
from latentens.errors import LatentensError
from latentens.methods import Consensus, DawidSkeneEM
from latentens.models import Tree
from tests.conftest import run_command
from tests.reference import besides_signal, votes_of_classes

METHODS = ("-m", "MajorityVote", "-m", "DawidSkeneEM")


@pytest.fixture(scope="module")
def tree_folder(tmp_path_factory):
    """Votes of a tree in a file, with the truth."""
    folder = tmp_path_factory.mktemp("tree")
    arguments = ("simulate", "tree", "--items", "400", "--seed", "3", "--out", "t.csv")
    with pytest.MonkeyPatch.context() as patch:
        assert run_command(patch, *arguments, cwd=folder) == 0
    return folder


def test_compare_shows_exact_bayes_above_every_method(invoke, tmp_path):
    code, shown, _ = invoke("compare", "--items", "2000", "--model", "Tree", *METHODS, cwd=tmp_path)
    assert code == 0
    rows = re.findall(r" (exact Bayes|[A-Z]\w+) +([\d.]+) +([\d.]+) +[\d.]+ +([\d.]+)", shown)
    (name, best, score, divergence), *others = rows
    assert name == "exact Bayes"
    assert [name for name, *_ in others] == ["MajorityVote", "DawidSkeneEM"]
    assert float(divergence) == 0
    assert all(float(other[1]) < float(best) + 1 for other in others)
    assert all(float(other[2]) > float(score) - 0.01 for other in others)


def test_compare_of_a_users_votes_writes_tree_and_report_and_goes_on(invoke, tree_folder):
    arguments = ("compare", "--votes", "t.csv", "--truth", "t.truth.csv", *METHODS, "--out", "results")
    code, _, errors = invoke(*arguments, "-m", "Nuts(DeepBeliefNet)", cwd=tree_folder)
    assert code == 1, "one method cannot be fitted"
    signal, independence, failure = errors.splitlines()[:3]
    assert signal.startswith("t: The voters agree more than by chance: ")
    assert independence.startswith("t: The votes are not independent given the label")
    assert failure.startswith("Nuts(DeepBeliefNet) failed on t: ")
    truth = pd.read_csv(tree_folder / "t.truth.csv")["truth"].to_numpy()
    tree = load_comparison(tree_folder / "results" / "tree.nc")
    assert list(tree["scores"]["estimator"].values[:2]) == ["MajorityVote", "DawidSkeneEM"]
    probs = tree["t/estimates/label_prob"].sel(estimator="DawidSkeneEM", repetition=0).to_numpy()
    accuracy = tree["scores/accuracy"].sel(estimator="DawidSkeneEM").item()
    assert accuracy == pytest.approx(np.mean(probs.argmax(axis=1) == truth))
    assert list((tree_folder / "results").glob("*.html"))
    assert invoke("report", "results/tree.nc", "--out", "page", cwd=tree_folder)[0] == 0
    assert list((tree_folder / "page").glob("*.html"))


def test_terminal_and_page_say_the_same_of_the_signal(invoke, tmp_path):
    """By permutations, whose p-value depends on the key: of tossed votes it has three digits."""
    votes = Votes.from_matrix(np.random.default_rng(4).integers(2, size=(60, 5)))
    votes.to_frame().rename_axis("item").to_csv(tmp_path / "coins.csv")
    arguments = ("compare", "--votes", "coins.csv", "-m", "MajorityVote", "--seed", "5", "--out", "results")
    _, _, errors = invoke(*arguments, cwd=tmp_path)
    said = re.search(r"by chance: (.*?p = [\d.]+)", errors.replace("\n", " ")).group(1)
    (page,) = (tmp_path / "results").glob("*.html")
    assert said in page.read_text()
    assert check_signal(votes, key=jax.random.key(5)) != check_signal(votes, key=jax.random.key(0))


def test_fit_writes_labels_and_voters(invoke, tree_folder):
    arguments = ("fit", "DawidSkeneEM(random_starts=2)", "t.csv", "--out", "posterior.csv", "--voters", "voters.csv")
    assert invoke(*arguments, cwd=tree_folder)[0] == 0
    written = pd.read_csv(tree_folder / "posterior.csv", index_col="item")
    votes = Votes.from_csv(tree_folder / "t.csv")
    fit = DawidSkeneEM(random_starts=2).fit(votes, key=jax.random.key(1))
    np.testing.assert_allclose(written[["prob_0", "prob_1"]], fit.label_probs, atol=1e-12)
    assert written["label"].tolist() == fit.labels.tolist()
    assert list(pd.read_csv(tree_folder / "voters.csv")) == list(fit.voters)


def test_votes_may_come_as_parquet(invoke, tree_folder):
    pd.read_csv(tree_folder / "t.csv").to_parquet(tree_folder / "t.parquet", index=False)
    arguments = ("fit", "DawidSkeneEM(random_starts=2)", "t.parquet", "--out", "again.csv")
    assert invoke(*arguments, cwd=tree_folder)[0] == 0
    assert invoke("fit", "DawidSkeneEM(random_starts=2)", "t.csv", "--out", "once.csv", cwd=tree_folder)[0] == 0
    assert (tree_folder / "again.csv").read_text() == (tree_folder / "once.csv").read_text()


def test_check_tells_that_voters_depend_on_each_other(invoke, tree_folder):
    code, shown, _ = invoke("check", "t.csv", "--out", "pairs.csv", cwd=tree_folder)
    assert code == 0
    assert shown.startswith("t.csv: 400 items × 15 voters, 2 classes (0, 1), 0.0% missing\n")
    assert "The voters agree more than by chance" in shown
    assert "not independent given the label" in shown
    assert len(pd.read_csv(tree_folder / "pairs.csv")) == 15 * 14 / 2


def test_simulate_writes_votes_truth_and_parameters(tree_folder):
    votes = Votes.from_csv(tree_folder / "t.csv")
    assert votes.shape == (400, 15)
    truth = pd.read_csv(tree_folder / "t.truth.csv")
    params = json.loads((tree_folder / "t.params.json").read_text())["params"]
    exact = bayes_posterior(Tree(), params, votes)
    assert truth["bayes_prob_1"].to_numpy() == pytest.approx(exact[:, 1], abs=1e-12)
    assert set(truth["truth"]) == {0, 1}


def test_simulate_takes_a_users_file(invoke, tmp_path):
    program = "\n".join(
        [
            "import jax.numpy as jnp, numpyro, numpyro.distributions as dist",
            "def coins(num_items, votes=None):",
            "    with numpyro.plate('item', num_items):",
            "        label = numpyro.sample('label', dist.Bernoulli(0.5))",
            "        numpyro.sample('vote', dist.Bernoulli(0.2 + 0.6 * label[..., None] * jnp.ones(3)).to_event(1))",
        ]
    )
    (tmp_path / "mine.py").write_text(program)
    assert invoke("simulate", "mine.py:coins", "--items", "9", "--out", "coins.csv", cwd=tmp_path)[0] == 0
    assert Votes.from_csv(tmp_path / "coins.csv").shape == (9, 3)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("models", ("DawidSkene", "Tree", "LayeredGraph", "TruncatedGaussian", "DeepBeliefNet", "TopDown")),
        ("methods", ("MajorityVote", "RBMStack", "Nuts")),
        ("--help", ("compare", "fit", "check", "report", "simulate")),
    ],
)
def test_lists(invoke, tmp_path, command, names):
    code, shown, _ = invoke(command, cwd=tmp_path)
    assert code == 0
    for name in names:
        assert name in shown


OWN = """
from dataclasses import dataclass
import latentens as le

@dataclass(frozen=True)
class Raises(le.Method):
    def estimate(self, votes, key, gold=None):
        return 1 / 0

    def posterior(self, estimate, votes):
        return 1 / 0

@dataclass(frozen=True)
class Warns(le.methods.MajorityVote):
    def estimate(self, votes, key, gold=None):
        return le.Estimate(diagnostics=le.methods.Diagnostics(warnings=["accuracy is at its bound"]))
"""


def test_an_error_in_a_users_method_is_one_line(invoke, tree_folder, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    words = "ZeroDivisionError: division by zero (own.py, line 8)"
    votes = str(tree_folder / "t.csv")
    code, _, error = invoke("fit", "own.py:Raises", votes, "--out", "x.csv", cwd=tmp_path)
    assert code == 2
    assert error == f"latentens: {words}\n"
    methods = ("-m", "MajorityVote", "-m", "own.py:Raises", "-m", "own.py:Warns")
    code, _, error = invoke("compare", "--votes", votes, *methods, cwd=tmp_path)
    assert code == 1
    assert error.count("failed on t") == 1
    assert f"own.py:Raises failed on t: {words}\n" in error
    assert "t, own.py:Warns: accuracy is at its bound\n" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "Forest", "--out", "x.csv"), "there is no model 'Forest'; available are ClassConditional"),
        (("simulate", "DawidSkenEM", "--out", "x.csv"), "there is no model 'DawidSkenEM'; did you mean DawidSkene?"),
        (("simulate", "Tree", "--out", "x.txt"), "x.txt does not end in .csv"),
        (("simulate", "none.py:Model", "--out", "x.csv"), "none.py: no such file"),
        (("simulate", "empty.py:Model", "--out", "x.csv"), "empty.py has no model or program 'Model'"),
        (
            ("fit", "Oracle", "good.csv", "--out", "x.csv"),
            "there is no method or model 'Oracle'; available are Consensus",
        ),
        (("fit", "Tree", "good.csv", "--out", "x.csv"), "'Tree' is a model; fit it by 'MaximumLikelihood(Tree)'"),
        (("fit", "Cubam(", "good.csv", "--out", "x.csv"), "'Cubam(' is not a method; write NAME"),
        (
            ("fit", "Cubam(speed=3)", "good.csv", "--out", "x.csv"),
            "Cubam has no setting 'speed'; its settings are",
        ),
        (("fit", "Cubam(rounds=open('x'))", "good.csv", "--out", "x.csv"), "no method or model 'open'"),
        (("fit", "MajorityVote", "nowhere.csv", "--out", "x.csv"), "nowhere.csv: no such file"),
        (("compare", "--truth", "good.csv"), "--truth needs --votes"),
        (
            ("compare", "--votes", "good.csv", "--truth", "good.csv"),
            "which of the columns 'voter', 'vote' holds the tr",
        ),
        (("compare", "--data", "S1"), "S1 is read from files"),
        (("report", "good.csv"), "good.csv is not a readable netCDF file"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(invoke, tmp_path, arguments, message):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "good.csv").write_text("item,voter,vote\n1,a,0\n1,b,1\n2,a,1\n2,b,1\n")
    assert_refused(invoke, tmp_path, arguments, message)


def test_repeated_votes_are_counted_or_refused(invoke, tmp_path):
    votes = load_dataset("anesthesia").votes
    votes.to_long().to_csv(tmp_path / "votes.csv", index=False)
    arguments = ("votes.csv", "--duplicates", "keep", "--out", "x.csv")
    assert_refused(invoke, tmp_path, ("check", *arguments), "read the votes with --duplicates last")
    assert invoke("fit", "DawidSkeneEM", *arguments, cwd=tmp_path)[0] == 0
    written = pd.read_csv(tmp_path / "x.csv", index_col="item")
    fit = DawidSkeneEM().fit(votes, key=jax.random.key(1))
    np.testing.assert_allclose(written[[f"prob_{k}" for k in (1, 2, 3, 4)]], fit.label_probs, atol=1e-12)


def test_compare_on_a_published_table_needs_no_file(invoke, tmp_path):
    code, shown, _ = invoke("compare", "--data", "anesthesia", *METHODS, cwd=tmp_path)
    assert code == 0
    assert "DawidSkeneEM" in shown


BAD_FILES = {
    "missing column": (b"item,voter\n1,a\n2,b\n", "is named like the votes"),
    "empty file": (b"", "is empty"),
    "header only": (b"item,voter,vote\n", "there is a header but no rows"),
    "mixed labels": (b"item,voter,vote\n1,a,0\n1,b,yes\n2,a,1\n", "the labels mix numbers and text"),
    "duplicates": (
        b"item,voter,vote\n1,a,0\n1,a,1\n2,b,1\n",
        "take one of them by --duplicates last, or count them all by --duplicates keep",
    ),
    "one item": (b"item,voter,vote\n1,a,0\n1,b,1\n", "votes of only one item"),
    "one voter": (b"item,voter,vote\n1,a,0\n2,a,1\n", "votes of only one voter"),
    "garbage": (bytes(range(256)) * 8, "is not UTF-8"),
}


@pytest.mark.parametrize("command", [("compare", "--votes"), ("fit", "MajorityVote"), ("check",)], ids=lambda c: c[0])
@pytest.mark.parametrize("content", BAD_FILES)
def test_bad_files_of_votes_are_one_sentence_and_exit_code_2(invoke, tmp_path, command, content):
    text, message = BAD_FILES[content]
    (tmp_path / "bad.csv").write_bytes(text)
    arguments = (*command, "bad.csv", "--out", "x.csv")
    assert_refused(invoke, tmp_path, arguments, message)


def assert_refused(invoke, folder, arguments, message):
    """The command ends with one sentence and code 2, and leaves nothing behind."""
    code, _, error = invoke(*arguments, cwd=folder)
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not list(folder.glob("x.*"))


def test_methods_are_looked_at_before_any_work(invoke, tmp_path):
    arguments = ("compare", "--votes", "nowhere.csv", "-m", "MajorityVote", "-m", "Nuts(MajorityVote)")
    code, _, error = invoke(*arguments, cwd=tmp_path)
    assert code == 2
    assert error.strip() == "latentens: Nuts: model must be a GenerativeModel, not MajorityVote()"


def test_a_fit_without_a_method_is_the_consensus(invoke, tmp_path):
    votes, _ = votes_of_classes(2, num_items=40, num_voters=5)
    votes.to_frame().to_csv(tmp_path / "v.csv")
    code, shown, error = invoke("fit", "v.csv", "--out", "labels.csv", "--voters", "voters.csv", cwd=tmp_path)
    assert code == 0, error
    assert "method: Consensus\n" in shown
    assert re.search(r"^fitted in \d+[.]\d s$", shown, re.MULTILINE)
    fit = Consensus().fit(Votes.from_csv(tmp_path / "v.csv"), key=jax.random.key(1))
    written = pd.read_csv(tmp_path / "labels.csv")
    np.testing.assert_allclose(written["confidence"], fit.label_probs.max(axis=1), atol=1e-6)
    assert len(pd.read_csv(tmp_path / "voters.csv")) == 5
    code, _, error = invoke("fit", "DawidSkeneEM", "--out", "labels.csv", cwd=tmp_path)
    assert code == 2  # the only argument is the file
    assert "DawidSkeneEM" in error
    code, _, error = invoke("fit", "--out", "labels.csv", cwd=tmp_path)
    assert (code, error.strip()) == (2, "latentens: fit needs a file of votes")
    _, shown, _ = invoke("fit", "--help", cwd=tmp_path)
    assert "fit [OPTIONS] [METHOD] VOTES " in shown


def test_default_methods_suit_the_number_of_classes(invoke, tmp_path):
    votes, _ = votes_of_classes(3, num_items=60, num_voters=5)
    votes.to_frame().to_csv(tmp_path / "three.csv")
    code, shown, error = invoke("compare", "--votes", "three.csv", cwd=tmp_path)
    assert (code, besides_signal(error)) == (0, "")
    assert all(name in shown for name in ("Consensus", "MajorityVote", "DawidSkeneEM", "Glad", "Ebcc"))


def test_without_arguments_the_papers_sets_are_compared_into_a_folder(invoke, tmp_path):
    code, shown, said = invoke("compare", "--items", "60", "-m", "MajorityVote", cwd=tmp_path)
    assert code == 0
    assert all(f"{family}/1" in shown for family in PAPER_MODELS)
    (page,) = (tmp_path / "latentens-results").glob("*.html")
    assert (shown + said).split()[-1].endswith(f"latentens-results/{page.name}")


def test_the_papers_sets_are_shown_with_the_best_methods():
    """The program of each family's own is fitted to it; groups of a tree are found from the votes."""
    sets = [simulate_paper(family, 1, num_items=3) for family in PAPER_MODELS]
    chosen = default_methods(sets, showcase=True)
    own = [type(chosen["own program"](dataset.votes)).__name__ for dataset in sets]
    assert own == ["MaximumLikelihood", "TreeMLE", "LayeredGraphMLE", "MaximumLikelihood"]
    assert "own program" not in default_methods(sets, showcase=False)
    with pytest.raises(LatentensError, match="the model of these votes is not known"):
        chosen["own program"](Votes.from_matrix(np.zeros((2, 15), dtype=int), num_classes=2))


def test_options_out_of_range_exit_with_2(invoke, tmp_path):
    code, _, error = invoke("compare", "--items", "0", cwd=tmp_path)
    assert code == 2
    assert "--items" in error


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("latentens.cli.app", {"jax", "pandas", "xarray"}),
        ("latentens.cli.io, latentens.cli.methods, latentens.checks", {"matplotlib", "optax", "scipy.stats", "xarray"}),
    ],
    ids=["help", "fit"],
)
def test_a_command_does_not_wait_for_what_others_need(module, slow):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not slow & set(done.stdout.split())


def test_the_package_is_a_command():
    done = subprocess.run([sys.executable, "-m", "latentens", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("latentens ")


def test_many_votes_are_fitted_one_by_one(monkeypatch):
    monkeypatch.setattr(io, "available_cores", lambda: 4)
    few, many = (Votes.from_matrix(np.zeros((size, 1), dtype=np.int8)) for size in (10, 200_001))
    assert io.fits_at_a_time(None, [few]) == 4
    assert io.fits_at_a_time(None, [few, many]) == 1
    assert io.fits_at_a_time(3, [many]) == 3
