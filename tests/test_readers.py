"""Votes from files of other tools. The files were written by the tools themselves (see data/readers/README.md)."""

from pathlib import Path

import pandas as pd
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


LONG = {
    "task": ["q1", "q1", "q2", "q2", "q10", "q10"],
    "worker": ["ann", "bob", "ann", "bob", "ann", "ann"],
    "label": ["yes", "tie", "no", None, "yes", "no"],
}
WIDE = {"item": ["q1", "q2", "q10"], "ann": ["yes", "no", "tie"], "bob": ["yes", None, "no"]}


def hugging_face(columns):
    """A dataset whose labels are codes of named classes."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["yes", "tie", "no"])
    kinds = {name: datasets.Value("string") for name in columns} | {
        name: label for name in ("label", "ann", "bob") if name in columns
    }
    coded = {
        name: [value if kinds[name] is not label or value is None else label.str2int(value) for value in column]
        for name, column in columns.items()
    }
    return datasets.Dataset.from_dict(coded, datasets.Features(kinds))


def duckdb_relation(columns):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(pytest.importorskip("pyarrow").table(columns))


ARROW = {
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "duckdb": duckdb_relation,
    "pyarrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
    "stream": lambda columns: pytest.importorskip("pyarrow").table(columns).to_reader(),
    "pandas": pd.DataFrame,
    "datasets": hugging_face,
}


@pytest.mark.parametrize("tool", ARROW)
def test_arrow_tables_are_read_long_and_wide(tool):
    long = Votes.from_arrow(ARROW[tool](LONG), classes=("no", "yes"), duplicates="keep")
    assert sorted(long.item_names) == ["q1", "q10", "q2"]
    assert long.voter_names == ("ann", "bob")
    assert long.other_names == ("tie",)
    assert votes_of(long, "ann") == {"q1": ["yes"], "q2": ["no"], "q10": ["no", "yes"]}
    assert votes_of(long, "bob") == {"q1": ["tie"]}
    wide = Votes.from_arrow(ARROW[tool](WIDE))
    assert list(wide.item_names) == ["q1", "q2", "q10"]
    assert wide.class_names == ("no", "tie", "yes")
    assert votes_of(wide, "bob") == {"q1": ["yes"], "q10": ["no"]}


def test_what_is_not_arrow_and_arrow_elsewhere_are_refused_with_the_remedy():
    with pytest.raises(VotesError, match="^builtins.dict does not export Arrow data: convert it"):
        Votes.from_arrow(LONG)
    table = pytest.importorskip("pyarrow").table(WIDE)
    for read in (Votes.from_matrix, Votes.from_long):
        with pytest.raises(VotesError, match="^pyarrow.Table holds Arrow data: read it by Votes.from_arrow"):
            read(table)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*inplace")
def test_frames_of_crowd_kit_are_read_as_they_are():
    frame = pd.DataFrame(LONG).dropna().drop_duplicates(["task", "worker"])
    votes = Votes.from_long(frame)
    kit = pytest.importorskip("crowdkit.aggregation").MajorityVote().fit_predict(frame)
    assert set(kit.index) == set(votes.item_names)
    assert votes.voter_names == ("ann", "bob")
    with pytest.raises(VotesError, match="no column 'voter'"):
        Votes.from_long(frame.rename(columns={"worker": "who"}))
