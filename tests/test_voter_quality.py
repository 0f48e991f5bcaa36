"""What a fit tells of items and voters: tables with names, rates, intervals and flags."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest

import latentens as le
from latentens import Dataset, Votes
from latentens.inference.skill import (
    CHANCE,
    INFORMATION,
    REVERSED,
    SILENT,
    WORSE,
    count_by_label,
    lay_out,
    skills_of,
    without_intervals,
)
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.votes import Triplets
from tests.reference import KEY, votes_of_classes

NAMES = ["good", "fair", "coin", "liar", "silent"]


def crowd(num_items=600, seed=0):
    """Two good voters, one who tosses a coin, one who says the opposite, and one who never votes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, num_items)
    rates = np.array([0.95, 0.9, 0.5, 0.15, 0.5])
    matrix = np.where(rng.random((num_items, 5)) < rates, labels[:, None], 1 - labels[:, None])
    matrix[rng.random(matrix.shape) < 0.2] = -1
    matrix[:, 4] = -1
    words = np.array(["no", "yes", None], dtype=object)
    return pd.DataFrame(words[matrix], columns=NAMES, index=[f"q{i}" for i in range(num_items)]), labels


@pytest.fixture(scope="module")
def fitted():
    table, _ = crowd(seed=1)
    return table, DawidSkeneEM(random_starts=1).fit(Votes.from_matrix(table), key=KEY)


def test_items_stand_under_their_names_with_label_confidence_and_votes(fitted):
    table, fit = fitted
    frame = fit.to_frame()
    assert list(frame) == ["item", "label", "confidence", "votes", "prob_no", "prob_yes"]
    assert list(frame["item"]) == list(table.index)
    np.testing.assert_array_equal(frame["votes"], table.notna().sum(axis=1))
    np.testing.assert_allclose(frame["confidence"], frame[["prob_no", "prob_yes"]].max(axis=1))
    assert (frame["label"] == np.where(frame["prob_yes"] > frame["prob_no"], "yes", "no")).all()


def test_voters_are_flagged(fitted):
    table, fit = fitted
    voters = fit.voters.set_index("voter")
    assert dict(voters["flag"]) == {"good": "", "fair": "", "coin": CHANCE, "liar": REVERSED, "silent": SILENT}
    np.testing.assert_array_equal(voters["votes"], table.notna().sum())
    assert voters.loc["good", "says_yes_if_yes"] == fit.sensitivity[0]
    assert voters.loc["liar", "says_yes_if_no"] == fit.params["confusion"][3, 0, 1]
    seen = voters.drop("silent")
    for name in ("accuracy", "balanced_accuracy"):
        assert (seen[f"{name}_low"] <= seen[name]).all()
        assert (seen[name] <= seen[f"{name}_high"]).all()
    assert voters.loc["silent", ["accuracy", "accuracy_low"]].isna().all()
    assert set(voters["intervals"]) == {INFORMATION}
    skill = fit.voter_skill(Votes.from_matrix(table))
    np.testing.assert_array_equal(voters["accuracy_low"], skill.accuracy_low)


@pytest.mark.parametrize("storage", ["matrix", "triplets", "repeats"])
def test_counts_are_those_of_a_loop(storage):
    votes, _ = votes_of_classes(3, num_items=40, num_voters=4, missing=0.3)
    item, voter, vote = votes.triplets
    if storage == "repeats":
        order = np.sort(np.concatenate([np.arange(len(item)), np.arange(5)]))
        item, voter, vote = item[order], voter[order], vote[order]
    if storage != "matrix":
        votes = Votes(Triplets(item, voter, vote), 40, 4, 3)
    probs = np.random.default_rng(1).dirichlet(np.ones(3), 40)
    expected = np.zeros((4, 3, 3))
    for i, v, x in zip(item, voter, vote, strict=True):
        expected[v, :, x] += probs[i]
    np.testing.assert_allclose(count_by_label(votes, probs), expected)


def test_without_a_confusion_matrix_votes_are_counted_with_the_posterior_as_weights():
    table, _ = crowd(seed=1)
    votes = Votes.from_matrix(table)
    fit = MajorityVote().fit(votes, key=KEY)
    counts, shares = count_by_label(votes, fit.label_probs)[0], fit.label_probs.mean(axis=0)
    right = np.diag(counts) / counts.sum(axis=1)
    row = fit.voters.iloc[0]
    assert row["accuracy"] == pytest.approx(right @ shares)
    assert row["balanced_accuracy"] == pytest.approx(right.mean())
    assert row["says_no_if_yes"] == pytest.approx(counts[1, 0] / counts[1].sum())
    assert row[["accuracy_low", "balanced_accuracy_high"]].isna().all()
    assert row["intervals"] == "not known"


def test_intervals_cover_the_true_rates():
    """Nominal 95 %, of balanced accuracies, over 20 sets whose labels are not known."""
    inside = []
    for seed in range(20):
        votes = Votes.from_matrix(crowd(600, seed)[0])
        found = DawidSkeneEM(random_starts=0).fit(votes, key=KEY).voters[:4]
        truth = [0.95, 0.9, 0.5, 0.15]
        inside += list((found["balanced_accuracy_low"] <= truth) & (found["balanced_accuracy_high"] >= truth))
    assert np.mean(inside) > 0.88


def test_chance_does_not_depend_on_how_often_a_vote_is_cast():
    def flags(confusion, error):
        sizes, num_labels = np.full(len(confusion), 300), len(confusion[0])
        found = skills_of(np.full(num_labels, 1 / num_labels), np.array(confusion), np.eye(num_labels))
        errors = np.full(found.size, error)
        return lay_out(found, errors, sizes, 0.95, INFORMATION, num_labels=num_labels).flags

    assert flags([[[0.9, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.1, 0.9]]], 0.01) == [CHANCE, ""]
    assert flags([[[0.02, 0.49, 0.49], [0.49, 0.02, 0.49], [0.49, 0.49, 0.02]]], 0.01) == [WORSE]


def test_without_intervals_the_estimate_decides():
    confusion = np.array([[[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]], [[0.2, 0.8], [0.8, 0.2]]])
    assert without_intervals(skills_of(np.array([0.5, 0.5]), confusion, np.eye(2)), np.array([9, 9, 9]), 2).flags == [
        "",
        CHANCE,
        CHANCE,
    ]


def test_tables_survive_a_file_and_a_journey(fitted, tmp_path):
    _, fit = fitted
    fit.save(tmp_path / "fit.nc")
    for copy in (le.load_fit(tmp_path / "fit.nc"), pickle.loads(pickle.dumps(fit))):
        pd.testing.assert_frame_equal(copy.to_frame(), fit.to_frame())
        pd.testing.assert_frame_equal(copy.voters, fit.voters)


def test_comparison_writes_labels_of_all_methods_and_voters(tmp_path):
    table, labels = crowd(150)
    data = Dataset("mine", Votes.from_matrix(table), np.where(np.arange(150) < 60, labels, -1))
    methods = [MajorityVote(), DawidSkeneEM(random_starts=1)]
    tree = le.compare(data, methods, key=jax.random.key(0), resamples=5)
    folder = le.report(tree, tmp_path).parent
    found = pd.read_csv(folder / "labels.csv")
    probs = tree["mine/estimates/label_prob"].sel(estimator="DawidSkeneEM(random_starts=1)")[0].to_numpy()
    np.testing.assert_array_equal(found["DawidSkeneEM(random_starts=1)"], np.array(["no", "yes"])[probs.argmax(1)])
    agree = found["MajorityVote"] == found["DawidSkeneEM(random_starts=1)"]
    assert (found.loc[agree, "consensus"] == found.loc[agree, "MajorityVote"]).all()
    assert (found.loc[agree, "methods_agreeing"] == 2).all()
    assert (found.loc[~agree, "methods_agreeing"] == 1).all()
    voters = pd.read_csv(folder / "voters.csv")
    assert len(voters) == 2 * 5
    assert list(voters["voter"][:5]) == NAMES
