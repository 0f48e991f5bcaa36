"""The commands `estimate` and `next`, from files to files."""

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from latentens.cli.estimate_command import LEAST_WIDTH
from latentens.cli.printing import estimates_tables
from tests.test_estimate import simulated, some_gold


@pytest.fixture
def files(tmp_path):
    """Votes of four judges on 300 items, 60 gold labels, and what is known about the items."""
    votes, labels = simulated(300)
    names = [f"q{item}" for item in range(300)]
    words = np.array(["fail", "pass"])
    frame = pd.DataFrame(words[votes.matrix], columns=["ann", "bob", "cat", "dan"], index=pd.Index(names, name="item"))
    frame.to_csv(tmp_path / "votes.csv")
    known = np.flatnonzero(some_gold(labels, 60) >= 0)
    gold = pd.DataFrame({"item": np.array(names)[known], "gold": words[labels[known]], "weight": 5.0})
    gold.to_csv(tmp_path / "gold.csv", index=False)
    pd.DataFrame({"item": names, "topic": ["x", "y", "z"] * 100}).to_csv(tmp_path / "items.csv", index=False)
    return tmp_path


def test_estimate(invoke, files):
    code, printed, _ = invoke("estimate", "votes.csv", "--gold", "gold.csv", "--out", "table.csv", cwd=files)
    assert code == 0
    table = pd.read_csv(files / "table.csv").set_index(["quantity", "of"])
    assert table.loc[("prevalence", "pass"), "low"] < 0.3 < table.loc[("prevalence", "pass"), "high"]
    assert table.loc[("accuracy", "ann"), "labels"] == 60
    assert "are as precise as from" in " ".join(printed.split())


@pytest.mark.parametrize("width", [80, 120])
def test_names_and_numbers_are_whole_at_usual_widths(width):
    names = ["ChatGPT/Metrics_Reference/plain", "ChatGPT/Metrics_Reference/swap"]
    found = pd.DataFrame({"quantity": ["accuracy", "sensitivity"] * 2, "of": np.repeat(names, 2)})
    numbers = ("label_free", "gold_only", "gold_low", "gold_high", "estimate", "low", "high")
    found = found.assign(**dict.fromkeys(numbers, 0.123), labels=60, worth_labels=80.0)
    with (console := Console(width=width)).capture() as captured:
        for table in estimates_tables(found, 0.9, with_gold_only=width >= LEAST_WIDTH):
            console.print(table)
    lines = captured.get().splitlines()
    assert [line.split(",")[0] for line in lines if "90% intervals" in line] == ["accuracy", "sensitivity"]
    for name in names:
        rows = [line for line in lines if f" {name} " in line]
        assert [row.count("0.123 (0.123–0.123)") for row in rows] == [1 if width < LEAST_WIDTH else 2] * 2
        assert all(row.split()[-2:] == ["60", "80"] for row in rows)


def test_estimate_with_everything(invoke, files):
    options = ["--compare", "ann", "dan", "--by", "topic", "--about", "items.csv", "--weights", "weight", "--beyond"]
    code, printed, _ = invoke(
        "estimate", "votes.csv", "--gold", "gold.csv", "--out", "t.csv", "--half-width", "0.05", *options, cwd=files
    )
    assert code == 0
    table = pd.read_csv(files / "t.csv")
    rows = table[table["quantity"] == "difference"].set_index("segment")
    assert rows.index.tolist() == ["all", "x", "y", "z"]
    assert rows.loc["all", "p_value"] < 0.05
    assert (table["labels_needed"].dropna() > table.loc[table["labels_needed"].notna(), "labels"]).mean() > 0.5
    assert "difference" in printed
    code, *_ = invoke(
        "estimate", "votes.csv", "--gold", "gold.csv", "--cluster", "topic", "--about", "items.csv", cwd=files
    )
    assert code == 0


def test_check_says_what_each_voter_is_worth(invoke, files):
    options = "check", "votes.csv", "--gold", "gold.csv", "--voters", "worth.csv"
    code, printed, _ = invoke(*options, cwd=files)
    assert code == 0
    assert "4 judges carry as much information as" in " ".join(printed.split())
    table = pd.read_csv(files / "worth.csv").set_index("judge")
    assert table["log_score_added"].idxmax() == "ann"
    assert sorted(table["rank"]) == [1, 2, 3, 4]
    assert "contribution" in printed.lower()
    code, _, message = invoke("check", "votes.csv", "--voters", "worth.csv", cwd=files)
    assert code != 0
    assert "--voters needs --gold" in message


def test_next_labels_and_votes(invoke, files):
    code, printed, _ = invoke(
        "next", "votes.csv", "--budget", "30", "--out", "ask.csv", "--gold", "gold.csv", cwd=files
    )
    assert code == 0
    asked = pd.read_csv(files / "ask.csv")
    assert asked["ask"].sum() == 30
    assert len(asked) == 90
    assert "30 items to label" in printed
    votes = pd.read_csv(files / "votes.csv")
    votes.loc[:99, "ann"] = ""
    votes.to_csv(files / "votes.csv", index=False)
    code, printed, _ = invoke("next", "votes.csv", "--budget", "20", "--for", "votes", "--out", "whom.csv", cwd=files)
    assert code == 0
    whom = pd.read_csv(files / "whom.csv")
    assert len(whom) == 20
    assert set(whom["voter"]) == {"ann"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "topic"], "gold.csv has no column 'topic', which --by needs"),
        (["--compare", "ann", "eve"], "must be two voters or two classes"),
        (["--weights", "gold"], "at least 1"),
        (["--folds", "1"], "folds=1"),
    ],
)
def test_bad_input_ends_in_a_sentence(invoke, files, arguments, words):
    code, _, errors = invoke("estimate", "votes.csv", "--gold", "gold.csv", *arguments, cwd=files)
    assert code == 2
    assert words in " ".join(errors.split())
