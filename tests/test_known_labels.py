"""What known labels add to a report: the voters' true quality, who votes like whom, and whether hopes came true."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import latentens as le
from latentens import Dataset, Votes
from latentens.cli.app import print_next_command
from latentens.comparison import add_independence, from_tree
from latentens.comparison.result import short_names
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.recommendation.text import briefly
from latentens.reporting.voters import by_known_labels, dependence_part, voters_part

NAMES = ["first", "copy", "other", "fourth", "fifth", "silent"]


def jury():
    """Voters of whom the second copies the first; the last one votes where no label is known only."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 240)
    votes = np.where(rng.random((240, 6)) < 0.75, truth[:, None], 1 - truth[:, None])
    votes[:, 1] = np.where(rng.random(240) < 0.9, votes[:, 0], votes[:, 1])
    votes[:120, 5] = -1
    return votes, truth


@pytest.fixture(scope="module")
def view():
    votes, truth = jury()
    table = pd.DataFrame(votes, columns=NAMES).where(votes >= 0)
    dataset = Dataset("jury", Votes.from_matrix(table), np.where(np.arange(240) < 120, truth, -1))
    tree = le.compare(dataset, [MajorityVote(), DawidSkeneEM()], key=jax.random.key(0), resamples=5)
    add_independence(tree, [dataset], key=jax.random.key(1))
    return from_tree(tree).datasets[0]


def test_voters_are_judged_by_the_known_labels(view):
    votes, truth = jury()
    found = by_known_labels(view)
    for voter in range(5):
        right = [votes[:120, voter][truth[:120] == label] == label for label in (0, 1)]
        half_a_vote_more = np.mean([(part.sum() + 0.5) / (len(part) + 1) for part in right])
        assert found.balanced_accuracy[voter] == pytest.approx(half_a_vote_more)
        assert found.balanced_accuracy_low[voter] < half_a_vote_more < found.balanced_accuracy_high[voter]
    assert np.isnan(found.balanced_accuracy[5])
    part = voters_part(view)
    assert "by known labels, %" in part.beside.headings
    assert "120 known labels" in " ".join(part.words)


def test_known_labels_show_who_votes_like_whom(view):
    part = dependence_part(view)
    assert "first and copy" in part.words[-1]
    known, alone = part.pictures
    assert any(words.startswith("first and copy: +0.") for _, _, words in known.spots)
    assert (known.name, alone.name) == ("dependence-known", "dependence")


def test_recommendations_have_short_names():
    full = "MaximumLikelihood(Confounder, starts=0, tolerance=1e-5)"
    group = xr.Dataset(
        {"sentence": ("line", [f"Use {full}."])},
        {"estimator": ["exact Bayes", "DawidSkeneEM", full]},
        {"recommended": full},
    )
    short = short_names({"DawidSkeneEM": "DawidSkeneEM", full: "MaximumLikelihood(Confounder)"})
    brief = briefly(group, short)
    assert brief.attrs["recommended"] == "MaximumLikelihood(Confounder)" == brief["estimator"].values[-1]
    assert brief["sentence"].item() == "Use MaximumLikelihood(Confounder)."


def test_short_names_are_distinct():
    kinds = {"Nuts(Tree, a=1)": "Nuts(Tree)", "Nuts(Tree, a=2)": "Nuts(Tree)", "my " + 50 * "x": "Nuts(Tree)"}
    assert list(short_names(kinds).values()) == ["Nuts(Tree) 1", "Nuts(Tree) 2", "my " + 26 * "x" + "…"]


@pytest.mark.parametrize(
    ("method", "command"),
    [
        ("DawidSkeneEM", "latentens fit DawidSkeneEM 'my votes.csv' --item 'the id' --missing NA --gold g.csv --out"),
        ("Cubam", "latentens fit Cubam 'my votes.csv' --item 'the id' --missing NA --gold g.csv --out"),
        ("Nuts(Tree)", "latentens fit 'Nuts(Tree)' "),
        ("mine", ""),
        ("", ""),
    ],
)
def test_the_command_to_go_on_with(method, command, capsys):
    reading = {"item": "the id", "missing": ["NA"]}
    print_next_command(method, Path("my votes.csv"), Path("g.csv"), reading)
    shown = capsys.readouterr().out
    assert command in shown
    assert bool(command) == bool(shown)
