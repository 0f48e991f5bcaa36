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
from latentens.comparison import add_independence
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.reporting.dependence_part import dependence_part
from latentens.reporting.recommendation_part import briefly
from latentens.reporting.view import views, with_short_names
from latentens.reporting.voters_part import by_known_labels, voters_part

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
    return views(tree)[0]


def test_voters_are_judged_by_the_known_labels(view):
    votes, truth = jury()
    found = by_known_labels(view)
    for voter in range(5):
        right = [votes[:120, voter][truth[:120] == label] == label for label in (0, 1)]
        half_a_vote_more = np.mean([(part.sum() + 0.5) / (len(part) + 1) for part in right])
        assert found.balanced_accuracy[voter] == pytest.approx(half_a_vote_more)
        assert found.balanced_accuracy_low[voter] < half_a_vote_more < found.balanced_accuracy_high[voter]
    assert np.isnan(found.balanced_accuracy[5])
    part = voters_part(view, {})
    assert "known labels" in part.beside
    assert "120 known labels" in " ".join(part.words)


def test_known_labels_show_who_votes_like_whom(view):
    part = dependence_part(view, {})
    assert "first and copy" in part.words[-1]
    known, alone = part.pictures
    assert any(words.startswith("first and copy: +0.") for _, _, words in known.spots)
    assert (known.name, alone.name) == ("dependence-known", "dependence")


def recommendation(low, high):
    names = ["exact Bayes", "DawidSkeneEM", "MajorityVote"]
    expected = {
        f"balanced_accuracy_{end}": (("model", "estimator"), [[value] * 3] * 2)
        for end, value in [("low", low), ("high", high)]
    }
    models = {"ruled_out": ("model", ["", "too bad"])}
    return xr.Dataset(expected | models, {"model": ["A", "B"], "estimator": names}, {"recommended": "DawidSkeneEM"})


def test_recommendations_have_short_names():
    full = "MaximumLikelihood(Confounder, starts=0, tolerance=1e-5)"
    found = recommendation(0.8, 0.9).assign_coords(estimator=["exact Bayes", "DawidSkeneEM", full])
    found.attrs["recommended"] = full
    brief, short = briefly(found)
    assert brief.attrs["recommended"] == "MaximumLikelihood(Confounder)" == short[full]
    assert with_short_names(f"Use {full}.", short) == "Use MaximumLikelihood(Confounder)."


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
