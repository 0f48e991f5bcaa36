"""Votes from files of other tools. The files were written by the tools themselves (see data/readers/README.md)."""

from pathlib import Path

import pytest

from latentens.errors import LatentensWarning
from latentens.votes import Votes

FOLDER = Path(__file__).parent / "data" / "readers"


def votes_of(votes, voter):
    """The votes of one voter by item, repeated ones in a list."""
    frame = votes.to_long()
    return frame[frame["voter"] == voter].groupby("item")["vote"].agg(list).to_dict()


@pytest.mark.parametrize("name", ["inspect.eval", "inspect.json"])
def test_inspect_scorers_vote_and_epochs_repeat(name):
    with pytest.warns(LatentensWarning, match=f"{name}: not read as votes: 2 empty scores, 1 samples without scores$"):
        votes = Votes.from_tool(FOLDER / name, "inspect", only={"scorer": ["match", "includes", "careful"]})
    assert votes.voter_names == ("careful", "includes", "match")
    assert list(votes.item_names) == ["q1", "q2", "q3", "q4", "q5", "q6"]
    assert votes.class_names == ("C", "I", "N")
    assert votes_of(votes, "match") == {
        "q1": ["C", "I"],
        "q2": ["I"] * 2,
        "q3": ["C", "I"],
        "q4": ["C"] * 2,
        "q5": ["I"] * 2,
        "q6": ["C"],
    }
    assert votes_of(votes, "careful") == {
        "q1": ["C", "N"],
        "q2": ["C"] * 2,
        "q3": ["C", "N"],
        "q4": ["C"] * 2,
        "q6": ["C"],
    }


@pytest.mark.filterwarnings("ignore:.*not read as votes")
def test_inspect_columns_can_be_chosen():
    style = Votes.from_tool(FOLDER / "inspect.eval", "inspect", only={"scorer": ["style.brief", "style.polite"]})
    assert style.class_names == (0, 1)
    by_epoch = Votes.from_tool(FOLDER / "inspect.eval", "inspect", only={"scorer": "match"}, item="attempt")
    assert by_epoch.num_items == 12
    assert not by_epoch.has_repeats
    assert by_epoch.num_missing == 1  # the sample that ended with an error
