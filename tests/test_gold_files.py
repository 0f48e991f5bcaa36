"""Labels that are known for some items, from a file: used by methods that can, and never scored."""

import sys

import jax
import numpy as np
import pandas as pd
import pytest

from latentens import Dataset, Votes, compare
from latentens.cli import main
from latentens.methods import DawidSkeneEM, MajorityVote
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


def test_what_methods_were_told_is_not_scored():
    votes, labels = independent_votes(60, RATES, RATES)
    gold = np.where(np.arange(60) < 20, 1 - labels, -1)  # wrong on purpose: each would cost accuracy if it counted
    methods = [DawidSkeneEM(random_starts=0), MajorityVote()]
    tree = compare(Dataset("d", votes, labels, gold=gold), methods, key=jax.random.key(0), resamples=5)
    probs = np.concatenate([node["label_prob"].to_numpy().ravel() for node in tree.subtree if "label_prob" in node])
    fit = methods[0].fit(votes, key=jax.random.key(0), gold=gold)
    accuracy = np.mean((fit.labels == labels)[20:])
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
