"""The page of results says what the files of results say."""

import importlib
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[1] / "analyses"


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    import pages

    return pages


def texts(pages):
    return [page.read_text(encoding="utf-8") for page in pages.PAGES]


def test_pages_have_the_figures_of_the_files(pages):
    assert all(re.findall(r"<!-- table ([\w ]+) -->", text) for text in texts(pages))
    assert pages.outdated() == [], "run python analyses/pages.py"


def test_a_changed_figure_is_noticed(pages):
    page, *_ = texts(pages)
    first = re.search(r"<!-- table table 1 -->.*?(\d\d\.\d\d)", page, re.DOTALL)
    damaged = page[: first.start(1)] + "12.34" + page[first.end(1) :]
    assert pages.written(damaged) == page


def test_every_file_of_results_is_shown(pages):
    shown = {pages.TABLES[name][0] for name in re.findall(r"<!-- table ([\w ]+) -->", "".join(texts(pages)))}
    assert shown >= {path.stem for path in (FOLDER / "results").glob("*.csv")}


def test_accuracies_stand_beside_the_papers(pages):
    table = pd.DataFrame(
        {"family": ["Tree", "TG"], "estimator": ["Vote", "SML"], "balanced_accuracy": [93.456, 80.0]}
        | {"deviation": [0.123, None], "paper": [93.4, None]}
    )
    assert pages.accuracies(table).splitlines()[2:] == [
        "| Vote | 93.46 ± 0.12 | 93.40 | – | – |",
        "| SML | – | – | 80.00 | – |",
    ]


def test_one_command_runs_whatever_the_page_shows(pages, monkeypatch, tmp_path):
    everything = importlib.import_module("all")
    assert all(file.startswith(everything.ANALYSES) for file, _ in pages.TABLES.values())
    assert all((FOLDER / f"{name}.py").is_file() for name in everything.ANALYSES)
    monkeypatch.setattr(everything, "publish", lambda names, out: None)
    table = everything.main(None, tmp_path, 0, only=("table_2",))  # which cannot be run without data
    assert table.loc["table_2", "exit"] == 2
    assert (tmp_path / "runs.csv").is_file()
