"""The pages say what the files of results say, and every file says which code it comes from."""

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
    assert pages.outdated() == [], "run python analyses/pages.py"


def test_a_changed_figure_is_noticed(pages):
    page, *_ = texts(pages)
    first = re.search(r"<!-- table table 1 -->.*?(\d\d\.\d\d)", page, re.DOTALL)
    damaged = page[: first.start(1)] + "12.34" + page[first.end(1) :]
    assert pages.written(damaged) == page


def test_a_value_stands_in_a_sentence(pages, monkeypatch):
    table = pd.DataFrame({"family": ["Tree", "TG"], "share": [0.1234, 0.5], "sets": [3, 4]})
    monkeypatch.setattr(pages, "result", lambda name: table if name == "some" else None)
    text = "<!-- value some / share / .2f / family=Tree -->9<!-- end --> of "
    text += "<!-- value some / sum sets / d -->?<!-- end -->"
    assert re.sub("<!--.*?-->", "", pages.written(text)) == "0.12 of 7"
    assert "not measured" in pages.written("<!-- value none / share / .2f -->9<!-- end -->")
    assert pages.MISSING in pages.written("<!-- value some / share / .2f -->9<!-- end -->")
    assert not any(pages.MISSING in text for text in texts(pages))


def test_a_figure_stands_where_it_was_drawn(pages):
    text = "<!-- figure figures/{}.png / Words -->\n<!-- end -->"
    assert "![Words](figures/table_1.png)" in pages.written(text.format("table_1"))
    assert "![" not in pages.written(text.format("none"))
    assert "Not measured yet." in pages.written(text.format("none"))


def test_every_file_of_results_is_shown(pages):
    shown = pages.shown()
    assert shown.keys() >= {path.name for path in (FOLDER / "results").glob("*.csv")}
    assert shown.keys() >= {path.name for path in (FOLDER / "figures").glob("*.png")}


def test_accuracies_stand_beside_the_papers(pages):
    table = pd.DataFrame(
        {"family": ["Tree", "TG"], "estimator": ["Vote", "SML"], "balanced_accuracy": [93.456, 80.0]}
        | {"deviation": [0.123, None], "paper": [93.4, None]}
    )
    assert pages.accuracies(table).splitlines()[2:] == [
        "| Vote | 93.46 ± 0.12 | 93.40 | – | – |",
        "| SML | – | – | 80.00 | – |",
    ]


@pytest.fixture
def everything(pages):
    return importlib.import_module("all")


def test_one_command_runs_whatever_a_page_shows(pages, everything):
    assert [file for file in pages.shown() if not everything.owner_of(file)] == list(everything.BY_HAND)
    assert all(everything.script_of(name).is_file() for name in everything.ANALYSES)


def test_files_are_those_that_were_recorded(everything):
    """A table that was edited, or measured besides `all.py`, is not what its record says."""
    entries = everything.recorded()
    assert set(entries) <= {*everything.ANALYSES}
    for entry in entries.values():
        assert [file for file, digest in entry["files"].items() if not everything.matches(file, digest)] == []


def test_a_failed_analysis_is_reported_and_the_others_continue(everything, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(everything, "SCRIPTS", {name: tmp_path / f"{name}.py" for name in ("good", "bad")})
    monkeypatch.setattr(everything, "ANALYSES", {"bad": "", "good": ""})
    monkeypatch.setattr(everything, "PROVENANCE", tmp_path / "provenance.json")
    monkeypatch.setattr(everything.pages, "shown", lambda: {})
    monkeypatch.setattr(everything.pages, "rewrite", lambda: None)
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    good = tmp_path / "good.py"
    good.write_text("import sys, pathlib\npathlib.Path(sys.argv[2], 'ran').write_text('yes')\n")
    out = ["--out", str(tmp_path / "out")]
    assert everything.main(out) == 1
    assert (tmp_path / "out" / "good" / "ran").read_text() == "yes"
    assert "FAILED" in capsys.readouterr().out
    assert everything.recorded()["good"]["cores"] == 1
    everything.code_of.cache_clear()
    good.write_text("import sys, pathlib  # the same\npathlib.Path(sys.argv[2], 'ran').write_text('yes')\n")
    assert not everything.changes("good", everything.recorded()["good"])
    everything.code_of.cache_clear()
    good.write_text("import sys, pathlib\npathlib.Path(sys.argv[2], 'ran').write_text('other')\n")
    assert everything.changes("good", everything.recorded()["good"]) == ["good"]
    assert everything.main(["--check", *out]) == 1
    assert "good: good; shown in no page" in capsys.readouterr().out
    everything.main(out)
    assert (tmp_path / "out" / "good" / "ran").read_text() == "other"


def test_code_counts_where_it_is_used_and_not_how_it_is_written(pages, tmp_path):
    """Only what a script reaches counts, without comments, docstrings and annotations."""
    sources = importlib.import_module("sources")
    script = tmp_path / "script.py"
    script.write_text("from latentens.models import Mace\ndef main() -> None:\n    return Mace(3)\n")
    reached = sources.code_of(script)
    assert {"latentens.models.mace", "latentens.programs.model"} <= reached.keys()
    assert not {"latentens.models.tree", "latentens.methods.ebcc"} & reached.keys()
    script.write_text("from latentens.models import Mace\ndef main():\n    'Says.'\n    return Mace(3)  # why\n")
    assert sources.code_of(script) == reached
    script.write_text("from latentens.models import Mace\ndef main():\n    return Mace(4)\n")
    assert [name for name, digest in sources.code_of(script).items() if reached[name] != digest] == ["script"]
