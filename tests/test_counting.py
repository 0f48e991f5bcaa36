"""Votes that are only counted: files read once, fits of distinct rows, labels written in a second pass."""

import jax
import numpy as np
import pandas as pd
import pytest

from latentens.errors import LatentensError, LimitError, VotesError
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    MajorityVote,
    MaximumLikelihood,
    SpectralMetaLearner,
)
from latentens.methods.maximum_likelihood import kept_back
from latentens.methods.persistence import write_labels
from latentens.models import DawidSkene
from latentens.programs.likelihood import pointwise_log_likelihood
from latentens.runtime.limits import MEMORY_VARIABLE
from latentens.runtime.numerics import key_from, numpy_generator
from latentens.votes import CountedVotes, Votes, count_votes_in
from tests.reference import KEY, votes_of_classes

pytest.importorskip("pyarrow")


def frame_of(votes: Votes, words=("no", "yes", "maybe")) -> pd.DataFrame:
    """A wide table of labels as text, empty where a vote is missing."""
    labels = np.array([*words[: votes.num_classes], None], dtype=object)
    return pd.DataFrame(labels[votes.matrix], columns=[f"v{i}" for i in range(votes.num_voters)])


MANY_CHUNKS = {"chunk_cells": 200, "pending_rows": 30}


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_streamed_counts_are_those_of_all_rows(tmp_path, num_classes, suffix):
    votes, _ = votes_of_classes(num_classes, num_items=700, missing=0.3)
    frame = frame_of(votes)
    for number, part in enumerate(np.array_split(np.arange(700), 3)):
        path = tmp_path / f"part{number}.{suffix}"
        frame.iloc[part].to_parquet(path) if suffix == "parquet" else frame.iloc[part].to_csv(path, index=False)
    paths = tmp_path if suffix == "parquet" else sorted(tmp_path.iterdir())
    counted = count_votes_in(paths, **MANY_CHUNKS)
    as_read = Votes.from_matrix(frame)
    expected, counts = np.unique(as_read.matrix, axis=0, return_counts=True)
    order = np.lexsort(counted.rows.matrix.T[::-1])
    np.testing.assert_array_equal(counted.rows.matrix[order], expected)
    np.testing.assert_array_equal(counted.counts[order], counts)
    assert counted.num_items == 700
    assert counted.rows.class_names == as_read.class_names
    assert counted.rows.voter_names == as_read.voter_names


def test_labels_that_mean_a_missing_vote_become_one_row(tmp_path):
    path = tmp_path / "votes.csv"
    pd.DataFrame({"a": [0, 1, "NA", "-", 1], "b": [1, 1, 0, 0, 1]}).to_csv(path, index=False)
    counted = count_votes_in(path, missing=("NA", "-"))
    assert sorted(zip(counted.rows.matrix.tolist(), counted.counts.tolist(), strict=True)) == [
        ([-1, 0], 2),
        ([0, 1], 1),
        ([1, 1], 2),
    ]


METHODS = {
    "majority": MajorityVote(),
    "em": DawidSkeneEM(),
    "likelihood": MaximumLikelihood(DawidSkene(6), starts=2),
    "spectral": SpectralMetaLearner(),
    "ebcc": Ebcc(restarts=2),
    "glad": Glad(),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_fit_of_counted_rows_is_the_fit_of_all_items(name):
    votes, _ = votes_of_classes(2, num_voters=6, num_items=900, missing=0.1)
    rows, counts, inverse = votes.patterns
    whole = METHODS[name].fit(votes, key=KEY)
    counted = METHODS[name].fit(CountedVotes(rows, counts), key=KEY)
    np.testing.assert_allclose(counted.label_probs[inverse], whole.label_probs, atol=1e-6)
    for param in set(whole.params) - {"ease"}:
        np.testing.assert_allclose(counted.params[param], whole.params[param], atol=1e-6)
    for number in {"log_likelihood", "bic", "evidence_bound", "log_posterior"} & set(whole.diagnostics):
        assert counted.diagnostics[number] == pytest.approx(whole.diagnostics[number], rel=1e-8)
    assert len(counted.to_frame()) == len(counts)


def test_parts_of_counted_votes_keep_their_counts():
    votes, _ = votes_of_classes(2, num_voters=6, num_items=900, missing=0.1)
    counted = CountedVotes(*votes.patterns[:2]).weighted
    np.testing.assert_array_equal(counted.take(np.array([7, 2])).counts, counted.counts[[7, 2]])
    np.testing.assert_array_equal(counted.between(3, 9).counts, counted.counts[3:9])
    assert votes.take(np.array([7, 2])).counts is votes.between(3, 9).counts is None


def test_held_out_likelihood_of_counted_votes_is_that_of_their_items():
    votes, _ = votes_of_classes(2, num_voters=6, num_items=900, missing=0.1)
    counted = CountedVotes(*votes.patterns[:2]).weighted
    method = MaximumLikelihood(DawidSkene(6), starts=0, held_out=0.2)
    generator = numpy_generator(jax.random.key(8))
    chosen, fit_key = kept_back(counted, 0.2, generator), key_from(generator)
    assert chosen.sum() == 180
    assert ((chosen >= 0) & (chosen <= counted.counts)).all()
    used, unseen = (Votes.from_patterns(counted.matrix, part) for part in (counted.counts - chosen, chosen))
    params = MaximumLikelihood(DawidSkene(6), starts=0).fit(used, key=fit_key).params
    expected = np.mean(pointwise_log_likelihood(DawidSkene(6), params, unseen))
    found = method._held_out(counted, None, jax.random.key(8))["held_out_log_likelihood"]
    assert found == pytest.approx(expected, abs=1e-6)
    assert found == pytest.approx(method.fit(votes, key=KEY).diagnostics["held_out_log_likelihood"], abs=0.2)


def test_what_counted_rows_cannot_do_is_refused(tmp_path, monkeypatch):
    votes, _ = votes_of_classes(2, num_items=300)
    counted = CountedVotes(*votes.patterns[:2])
    assert "300 items; distinct rows" in repr(counted)
    with pytest.raises(VotesError, match="Cubam does not take counted rows"):
        Cubam().fit(counted, key=KEY)
    with pytest.raises(VotesError, match="Cubam does not take counted rows"):
        MaximumLikelihood(DawidSkene(5), starts=0, warm=(Cubam(),)).fit(counted, key=KEY)
    with pytest.raises(VotesError, match="known labels cannot be used with counted rows"):
        DawidSkeneEM().fit(counted, key=KEY, gold={0: 1})
    with pytest.raises(LatentensError, match="voters cannot be judged by counted rows"):
        _ = MajorityVote().fit(counted, key=KEY).voters
    votes.to_long().to_csv(tmp_path / "long.csv", index=False)
    with pytest.raises(VotesError, match=r"long.csv: only tables with one column per voter can be counted"):
        count_votes_in(tmp_path / "long.csv")
    with pytest.raises(VotesError, match="no Parquet files"):
        count_votes_in(tmp_path)
    frame = frame_of(votes)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.drop(columns="v0").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(VotesError, match=r"b.parquet: its voters differ from those of the previous files"):
        count_votes_in(tmp_path)
    monkeypatch.setenv(MEMORY_VARIABLE, "0.1KiB")
    with pytest.raises(LimitError, match="distinct rows of votes would take about .* fit a sample"):
        count_votes_in(tmp_path / "a.parquet", **MANY_CHUNKS)


def test_labels_are_written_for_every_item_in_a_second_pass(tmp_path):
    votes, _ = votes_of_classes(3, num_items=500, missing=0.2)
    frame = frame_of(votes)
    frame.insert(0, "item", [f"q{i}" for i in range(500)])
    frame.to_parquet(tmp_path / "votes.parquet", index=False)
    fit = DawidSkeneEM().fit(count_votes_in(tmp_path / "votes.parquet", **MANY_CHUNKS), key=KEY)
    written = tmp_path / "labels.parquet"
    write_labels(fit, tmp_path / "votes.parquet", written, chunk_cells=200)
    found = pd.read_parquet(written)
    whole = DawidSkeneEM().fit(Votes.from_parquet(tmp_path / "votes.parquet"), key=KEY).to_frame()
    assert found["item"].tolist() == whole["item"].tolist()
    assert found["label"].tolist() == whole["label"].tolist()
    probs = [f"prob_{name}" for name in fit.class_names]
    np.testing.assert_allclose(found[probs], whole[probs], atol=1e-6)
