"""Adding a score takes one function and one record: everything else finds it there."""

import io

import numpy as np
import pytest
from rich.console import Console

import latentens
from latentens import Dataset
from latentens.cli.printing import score_tables
from latentens.methods import MajorityVote
from latentens.reporting import report
from latentens.scores import averaged, intervals, scores
from tests.reference import KEY, independent_votes


@averaged
def largest_error(items):
    happened = items.labels[:, None] == np.arange(items.probs.shape[1])
    return np.where(items.known, np.abs(items.probs - happened).max(axis=1), np.nan)


@pytest.fixture
def new_score(monkeypatch):
    record = scores.Score("largest_error", "How far the worst is off", "Probabilities", largest_error, heading="worst")
    monkeypatch.setattr(scores, "SCORES", (*scores.SCORES, record))
    return record


def test_a_score_is_one_record_and_one_function(new_score, tmp_path):
    votes, labels = independent_votes(60, np.full(5, 0.8), np.full(5, 0.8))
    fit = MajorityVote().fit(votes, key=KEY)
    expected = np.mean(np.abs(fit.label_probs - np.eye(2)[labels]).max(axis=1))
    assert scores.evaluate(labels, fit.label_probs)["largest_error"] == pytest.approx(expected)
    low, high = intervals(labels, fit.label_probs, key=KEY, resamples=50)["largest_error"]
    assert low < expected < high
    tree = latentens.compare(Dataset("made", votes, labels), [MajorityVote()], key=KEY, resamples=20)
    assert tree["scores/largest_error"].sel(estimator="MajorityVote").item() == pytest.approx(expected)
    assert tree["intervals/largest_error"].dims[-1] == "bound"
    page = report(tree, tmp_path).read_text(encoding="utf-8")
    assert "largest error" in page
    assert "How far the worst is off" in page
    assert "largest_error" in (tmp_path / "scores.csv").read_text()
    Console(file=(shown := io.StringIO()), width=100).print(next(score_tables(tree)))
    assert "worst" in shown.getvalue()
    assert f"{expected:.3f}" in shown.getvalue()
