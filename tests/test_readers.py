"""Votes from files of other tools. The files were written by the tools themselves (see data/readers/README.md)."""

from pathlib import Path

import pytest

from latentens.errors import LatentensWarning, VotesError
from latentens.votes import Votes
from latentens.votes.readers import READERS

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


def test_promptfoo_assertions_vote_on_outputs():
    with pytest.warns(LatentensWarning, match="not read as votes: 2 outputs without grades$"):
        votes = Votes.from_tool(FOLDER / "promptfoo.json", "promptfoo")
    grader = "llm-rubric by file://grader.js"
    assert set(votes.voter_names) == {"brief", "contains", grader, f"{grader} #2"}
    assert votes.num_items == 8
    assert votes.class_names == ("False", "True")
    by_item = votes_of(votes, "contains")
    assert by_item["france / bold"] == ["True", "True"]  # run twice
    assert by_item["country=Italy, capital=Rome / shy"] == ["False", "False"]
    assert "country=Spain, capital=Madrid / shy" in list(votes.item_names)
    assert "country=Spain, capital=Madrid / shy" not in by_item


@pytest.mark.parametrize("name", ["deepeval.json", "deepeval_result.json"])
def test_deepeval_metrics_vote_on_cases(name):
    with pytest.warns(LatentensWarning, match="not read as votes: 1 errors of metrics$"):
        votes = Votes.from_tool(FOLDER / name, "deepeval")
    assert votes.voter_names == ("Contains", "Exact", "Fragile")
    assert votes.num_items == 5
    assert votes_of(votes, "Exact")["italy"] == ["False"]
    assert votes_of(votes, "Contains")["italy"] == ["True"]
    assert "italy" not in votes_of(votes, "Fragile")


@pytest.mark.filterwarnings("ignore:.*the filter calls")
def test_lm_eval_models_vote_on_documents():
    votes = Votes.from_tool(FOLDER / "lm_eval", "lm-eval", only={"task": "colours"})
    assert votes.voter_names == ("mock/a", "mock/b", "mock/c")
    assert votes.class_names == (0, 1, 2)
    right = Votes.from_tool(FOLDER / "lm_eval", "lm-eval", only={"task": "colours"}, vote="acc").to_long()
    answers = votes.to_long()
    targets = {f"colours/{k}": answer for k, answer in enumerate([0, 1, 2, 0, 2, 1])}
    assert ((answers["item"].map(targets) == answers["vote"]) == (right["vote"] == 1)).all()


@pytest.mark.filterwarnings("ignore:.*the filter calls")
def test_lm_eval_filters_are_not_mixed():
    with pytest.raises(VotesError, match="more than one filter .*: choose by only="):
        Votes.from_tool(FOLDER / "lm_eval", "lm-eval")


@pytest.mark.filterwarnings("ignore:.*not read as votes")
def test_label_studio_annotators_vote_on_tasks():
    path = FOLDER / "label_studio.json"
    with pytest.raises(VotesError, match="more than one question"):
        Votes.from_tool(path, "label-studio")
    with pytest.warns(LatentensWarning, match="1 predictions, 1 skipped annotations, 1 answers that"):
        votes = Votes.from_tool(path, "label-studio", only={"question": "sentiment"})
    assert votes.shape == (5, 3)
    assert votes.class_names == ("Negative", "Positive", "Tie")
    assert sorted(votes_of(votes, 1)[1]) == ["Positive", "Tie"]  # annotated twice
    assert 4 not in votes_of(votes, 2)  # skipped
    assert Votes.from_tool(path, "label-studio", only={"question": "stars"}).class_names == (1, 2, 3, 4, 5)


def test_argilla_users_vote_on_records():
    with pytest.warns(LatentensWarning, match="3 suggestions, 1 answers that are not one value$"):
        votes = Votes.from_tool(FOLDER / "argilla.json", "argilla", only={"question": "sentiment"})
    assert votes.shape == (3, 3)
    assert list(votes.item_names) == ["r0", "r1", "r2"]
    assert votes.class_names == ("neg", "pos")
    assert votes.num_missing == 1


def test_files_of_another_layout_are_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}')
    for tool in READERS:
        with pytest.raises(VotesError, match="x.json"):
            Votes.from_tool(tmp_path / "x.json", tool)
    with pytest.raises(VotesError, match="did you mean 'inspect'"):
        Votes.from_tool(tmp_path / "x.json", "inspct")
