"""Labels that are known for some items, from a file: used by methods that can, and never scored."""

import re
import sys

import jax
import numpy as np
import pandas as pd
import pytest

from latentens import Dataset, Votes, compare
from latentens.cli import main
from latentens.datasets import read_labels
from latentens.errors import LatentensWarning, VotesError
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.votes.matching import gold_codes, named_labels
from tests.reference import KEY, independent_votes

RATES = np.linspace(0.6, 0.8, 5)


@pytest.fixture
def folder(tmp_path):
    votes, labels = independent_votes(40, RATES, RATES)
    words = np.array(["no", "yes"])
    items = [f"q{i}" for i in range(40)]
    pd.DataFrame(words[votes.matrix], columns=list("abcde"), index=pd.Index(items, name="item")).to_csv(
        tmp_path / "votes.csv"
    )
    known = pd.DataFrame({"item": items[10:13], "gold": words[1 - labels[10:13]]})  # against the truth, to be seen
    known.to_csv(tmp_path / "gold.csv", index=False)
    pd.DataFrame({"item": items, "truth": words[labels]}).to_csv(tmp_path / "truth.csv", index=False)
    return tmp_path


def run(monkeypatch, capsys, folder, *arguments):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["latentens", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


def test_fit_takes_gold_labels_by_item(monkeypatch, capsys, folder):
    arguments = ("votes.csv", "--gold", "gold.csv", "--out", "out.csv")
    code, _ = run(monkeypatch, capsys, folder, "fit", "DawidSkeneEM(random_starts=0)", *arguments)
    assert code == 0
    found = pd.read_csv(folder / "out.csv", index_col="item")
    known = pd.read_csv(folder / "gold.csv", index_col="item")["gold"]
    assert (found.loc[known.index, "label"] == known).all()
    assert (found.loc[known.index, ["prob_no", "prob_yes"]].max(axis=1) == 1).all()


def test_gold_labels_of_other_items_or_classes_are_refused(monkeypatch, capsys, folder):
    for table, words in (("item,gold\nq99,yes\n", "'q99'"), ("item,gold\nq1,Yes\n", "did you mean 'yes'?")):
        (folder / "gold.csv").write_text(table)
        arguments = ("fit", "DawidSkeneEM", "votes.csv", "--gold", "gold.csv", "--out", "out.csv")
        code, shown = run(monkeypatch, capsys, folder, *arguments)
        assert code == 2
        assert words in " ".join(shown.err.split())


NAMED = Votes.from_matrix(pd.DataFrame([["no", "yes"], ["yes", "yes"], [None, None]], index=["q1", "q2", "q3"]))


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        ("item,gold\nq1,no\nq2,yes\n", [0, 1, -1]),
        ("item,gold\nq3,no\n", [-1, -1, 0]),
        ("item,gold\nq1,no\nq2,yes\nq1,no\nq1,\n", [0, 1, -1]),
        ("item,gold\nq1,yes\nq2,yes\n", [1, 1, -1]),
    ],
    ids=["plain", "an item that nobody voted on", "the same twice", "one class"],
)
def test_gold_labels_that_are_accepted(file, table, codes):
    assert gold_codes(NAMED, read_labels(file(table, "gold.csv"))).tolist() == codes


def test_the_same_number_written_in_two_ways_is_no_contradiction(file):
    assert read_labels(file("item,gold\nq1,1\nq1,1.0\n", "gold.csv")) == {"q1": 1}


def test_gold_labels_of_items_without_votes_are_ignored_aloud(file):
    labels = read_labels(file("item,gold\nq1,no\nq8,yes\nq9,never heard of\n", "gold.csv"))
    with pytest.warns(LatentensWarning, match="^2 of 3 items with a gold label have no votes: they are ignored$"):
        assert gold_codes(NAMED, labels).tolist() == [0, -1, -1]


@pytest.mark.parametrize(
    ("gold", "words"),
    [
        ({"q8": "yes"}, "none of the items with a gold label ('q8', …) is an item of the votes ('q1', …)"),
        (
            {"q1": "maybe"},
            "the gold labels 'maybe' are not among the classes of the votes: the classes are 'no', 'yes'",
        ),
        (pd.Series(["no", "yes"], ["q1", "q1"]), "item 'q1' has more than one gold label, 'no', 'yes': keep one"),
    ],
    ids=["other items", "other classes", "contradictions"],
)
def test_bad_gold_labels_are_refused_in_one_sentence(gold, words):
    with pytest.raises(VotesError, match=f"^{re.escape(words)}$"):
        gold_codes(NAMED, gold)


def test_names_that_read_alike_are_one_item():
    votes = Votes.from_matrix([[0, 1], [1, 1]])
    assert gold_codes(votes, {1: 0, "1": 0}).tolist() == [-1, 0]
    with pytest.raises(VotesError, match="item 1 has more than one gold label, 0, 1"):
        gold_codes(votes, {1: 0, "1": 1})
    repeated = pd.Series(["no", "no", None], ["q1", "q1", "q1"])
    assert gold_codes(NAMED, repeated).tolist() == [0, -1, -1]


def test_contradictory_rows_of_a_file_name_the_item_and_both_labels(file):
    path = file("item,gold\nq1,no\nq2,yes\nq1,yes\n", "gold.csv")
    with pytest.raises(VotesError, match=r"gold.csv: item 'q1' has more than one true label, 'no', 'yes': keep one$"):
        read_labels(path)


def test_gold_labels_of_one_class_are_used_and_said_to_be_so(monkeypatch, capsys, folder):
    arguments = ("fit", "DawidSkeneEM(random_starts=0)", "votes.csv", "--gold", "gold.csv", "--out", "out.csv")
    words = "latentens: all 3 gold labels are 'yes', so they do not show how voters vote on items of other classes"
    for table, said in (("q1,yes\nq2,yes\nq3,yes\n", True), ("q1,yes\nq2,no\n", False), ("q1,yes\n", False)):
        (folder / "gold.csv").write_text(f"item,gold\n{table}")
        code, shown = run(monkeypatch, capsys, folder, *arguments)
        assert code == 0
        assert (words in " ".join(shown.err.split())) == said


def test_codes_of_classes_called_by_numbers_keep_their_meaning():
    votes = Votes.from_matrix(np.array([["1", "2", "3"], ["2", "2", "1"], ["3", "3", "3"]], dtype=object))
    codes = np.array([1, 2, -1])
    np.testing.assert_array_equal(gold_codes(votes, named_labels(votes, codes)), codes)


def test_what_methods_were_told_is_not_scored():
    votes, labels = independent_votes(60, RATES, RATES)
    gold = np.where(np.arange(60) < 20, 1 - labels, -1)  # wrong on purpose: each would cost accuracy if it counted
    methods = [DawidSkeneEM(random_starts=0), MajorityVote()]
    tree = compare(Dataset("d", votes, labels, gold=gold), methods, key=jax.random.key(0), resamples=5)
    probs = np.concatenate([node["label_prob"].to_numpy().ravel() for node in tree.subtree if "label_prob" in node])
    fit = methods[0].fit(votes, key=jax.random.key(0), gold=gold)
    accuracy = np.mean((fit.codes == labels)[20:])
    assert np.isclose(tree["scores/accuracy"].to_numpy(), accuracy).any()
    assert (probs == 1).any()


def test_codes_are_not_read_as_names_of_classes():
    """Code 1 of the classes "1" and "2" is "2", although there is a class called "1"."""
    votes, labels = independent_votes(30, RATES, RATES)
    named = Votes.from_matrix(np.array(["1", "2"])[votes.matrix])
    gold = np.where(np.arange(30) < 3, 1, -1)
    tree = compare(Dataset("d", named, labels, gold=gold), [DawidSkeneEM(random_starts=0)], key=KEY, resamples=5)
    probs = tree["d/estimates/label_prob"].to_numpy().reshape(30, 2)
    np.testing.assert_array_equal(probs[:3], [[0, 1]] * 3)


def test_comparing_tells_where_the_label_is_not_sure(monkeypatch, capsys, tmp_path):
    """Half of the voters say the opposite of the others: standard error says so, once for all methods."""
    rates = np.array([0.85, 0.85, 0.85, 0.15, 0.15, 0.16])
    votes, _ = independent_votes(600, rates, rates, seed=4)
    votes.to_frame().to_csv(tmp_path / "votes.csv")
    arguments = ("compare", "--votes", "votes.csv", "-m", "DawidSkeneEM", "-m", "SpectralMetaLearner")
    code, shown = run(monkeypatch, capsys, tmp_path, *arguments)
    said = " ".join(shown.err.split())
    assert code == 0
    assert said.count("the order of the labels '0' and '1' is nearly tied") >= 1
    assert "DawidSkeneEM" in said
    code, shown = run(monkeypatch, capsys, tmp_path, *arguments, "--anchor", "0", "--anchor", "1", "--anchor", "2")
    assert "nearly tied" not in shown.err
