"""Adding a score takes one function and one record: everything else finds it there."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from latentens import Dataset, compare, load_comparison, save_comparison
from latentens.cli.printing import score_tables
from latentens.comparison import from_tree
from latentens.errors import LatentensError
from latentens.methods import MajorityVote
from latentens.reporting import report
from latentens.scores import averaged, intervals
from latentens.scores.scores import Score, evaluate
from tests.reference import KEY, independent_votes


@averaged
def largest_error(items):
    happened = items.labels[:, None] == np.arange(items.probs.shape[1])
    return np.where(items.known, np.abs(items.probs - happened).max(axis=1), np.nan)


MINE = Score("largest_error", "How far the worst is off", "Probabilities", largest_error, heading="worst")


def test_a_score_is_one_record_and_one_function(tmp_path):
    votes, labels = independent_votes(60, np.full(5, 0.8), np.full(5, 0.8))
    fit = MajorityVote().fit(votes, key=KEY)
    expected = np.mean(np.abs(fit.label_probs - np.eye(2)[labels]).max(axis=1))
    assert evaluate(labels, fit.label_probs, scores=[MINE])["largest_error"] == pytest.approx(expected)
    low, high = intervals(labels, fit.label_probs, key=KEY, resamples=50, scores=[MINE])["largest_error"]
    assert low < expected < high
    dataset = Dataset("made", votes, labels)
    save_comparison(compare(dataset, [MajorityVote()], key=KEY, resamples=20, scores=[MINE]), tmp_path / "tree.nc")
    tree = load_comparison(tmp_path / "tree.nc")
    assert tree["scores/largest_error"].sel(estimator="MajorityVote").item() == pytest.approx(expected)
    assert tree["intervals/largest_error"].dims[-1] == "bound"
    page = report(tree, tmp_path).read_text(encoding="utf-8")
    assert "largest error" in page
    assert "How far the worst is off" in page
    assert "largest_error" in (tmp_path / "scores.csv").read_text()
    Console(file=(shown := io.StringIO()), width=100).print(next(score_tables(from_tree(tree))))
    assert "worst" in shown.getvalue()
    assert f"{expected:.3f}" in shown.getvalue()


def test_a_score_with_a_taken_name_is_refused():
    votes, labels = independent_votes(20, np.full(3, 0.8), np.full(3, 0.8))
    for scores in ([replace(MINE, name="accuracy")], [MINE, MINE]):
        with pytest.raises(LatentensError, match="already a score named"):
            compare(Dataset("made", votes, labels), [MajorityVote()], key=KEY, scores=scores)
