"""Ordered votes: grades such as scores from 0 to 9, read, fitted by cut-points, and used by every method."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag

import latentens as le
from latentens.datasets import simulate
from latentens.errors import VotesError
from latentens.inference.skill import says_of, skills, skills_of
from latentens.methods import DawidSkeneEM, Ebcc, Glad, Laplace, MajorityVote, MaximumLikelihood
from latentens.models import DawidSkene, GradedResponse
from latentens.programs.likelihood import bayes_posterior, log_likelihood
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from tests import oracles
from tests.conftest import arbitrary_params

KEY = jax.random.key(0)
CLASSES = ("No", "Yes")
MODEL = GradedResponse(6, 2, 5)


def judged(num_items=400, seed=0):
    """Scores 0 to 9 of six judges as text, some missing, and the labels."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=num_items)
    skill, shift = generator.uniform(1, 3, 6), generator.uniform(-2, 2, 6)
    scores = 4.5 + shift + (2 * truth[:, None] - 1) * skill + 2 * generator.normal(size=(num_items, 6))
    words = np.clip(np.round(scores), 0, 9).astype(int).astype(str).astype(object)
    words[generator.random(words.shape) < 0.1] = ""
    return words, truth


@pytest.mark.parametrize("sizes", [(2, 5, False), (3, 7, False), (4, 3, False), (2, 4, True)])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_posterior_is_that_of_loops(sizes, repeated):
    num_classes, num_grades, factor = sizes
    model = GradedResponse(4, num_classes, num_grades, item_factor=factor)
    params = arbitrary_params(model, 1)
    made = simulate(model, 30, key=KEY, params=params)
    assert (made.votes.num_classes, made.votes.num_categories) == (num_classes, num_grades)
    frame = made.votes.to_long().sample(frac=0.8, random_state=0)
    frame = frame.iloc[np.r_[: len(frame), :20]] if repeated else frame
    grades = tuple(range(num_grades))
    votes = Votes.from_long(frame, classes=num_classes, ordered=grades, duplicates="keep")
    assert votes.has_repeats == repeated
    counts = np.zeros((votes.num_items, 4, num_grades))
    np.add.at(counts, tuple(votes.triplets), 1)
    joint = oracles.graded_response(model, params, counts)
    posterior = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(bayes_posterior(model, params, votes), posterior, atol=1e-10)
    assert log_likelihood(model, params, votes) == pytest.approx(np.log(joint.sum(axis=1)).sum(), rel=1e-10)


def test_tails_are_accurate():
    params = {"prevalence": [0.5, 0.5], "slope": [30.0], "grade_share": [[1e-12, 1 - 3e-12, 1e-12, 1e-12]]}
    emission = np.exp(double_precision(checked_tables)(GradedResponse(1, 2, 4), params).log_emission)
    np.testing.assert_allclose(emission.sum(axis=-1), 1.0, rtol=1e-12)
    assert (emission > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 3])
def test_recovery(num_classes):
    model = GradedResponse(6, num_classes, 6)
    params = model.example_params(jax.random.key(3))
    made = simulate(model, 100_000, key=KEY, params=params)
    fit = MaximumLikelihood(model, starts=2).fit(made.votes, key=KEY)
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value, atol=0.03 * (1 + np.max(value)), err_msg=name)


def test_readers_sort_numbers_and_keep_classes_apart(tmp_path):
    words, _ = judged(60)
    path = tmp_path / "scores.csv"
    path.write_text("a,b,c,d,e,f\n" + "\n".join(map(",".join, words)))
    frame = pd.DataFrame(words).rename_axis("item").reset_index().melt("item", var_name="voter", value_name="vote")
    made = [
        Votes.from_matrix(words, classes=CLASSES, ordered=True),
        Votes.from_csv(path, classes=CLASSES, ordered=True),
        Votes.from_long(frame, classes=CLASSES, ordered=True),
    ]
    for votes in made:
        assert (votes.class_names, votes.grade_names, votes.num_categories) == (CLASSES, tuple(range(10)), 10)
        assert votes.num_missing == (words == "").sum()
        assert votes.to_frame().astype(object).fillna("").astype(str).to_numpy().tolist() == words.tolist()
        assert votes.without_other_votes().matrix.tolist() == [[int(w) // 5 if w else -1 for w in row] for row in words]
        assert votes.as_categories().as_ordered().matrix.tolist() == votes.matrix.tolist()
        assert (votes.tally.sum(axis=1) == votes.cast_by_item).all()
    votes = Votes.from_matrix([["-1.5", "10"], ["2", "-0.5"], ["", "2.0"]], 2, ordered=True)
    assert votes.grade_names == ("-1.5", "-0.5", "2", "10")
    assert votes.matrix.tolist() == [[0, 3], [2, 1], [-1, 2]]
    assert votes.class_names == (0, 1)
    votes = Votes.from_matrix([["good", "bad"], ["ok", "ok"]], ordered=("bad", "ok", "good"))
    assert votes.class_names == votes.grade_names == ("bad", "ok", "good")
    assert votes.without_other_votes().matrix.tolist() == [[2, 0], [1, 1]]


def test_many_scores_are_sorted_into_bins():
    scores = np.random.default_rng(0).normal(size=(100, 4)).round(4)
    votes = Votes.from_matrix(scores, classes=CLASSES, ordered=True, bins=8)
    assert votes.num_categories == 8
    assert (np.bincount(votes.matrix.ravel()) == 50).all()
    order = np.argsort(scores.ravel(), kind="stable")
    assert (np.diff(votes.matrix.ravel()[order]) >= 0).all()
    votes = Votes.from_matrix(scores, classes=CLASSES, ordered=True, bins=(-0.5, 0.5))
    assert votes.grade_names == ("<-0.5", "-0.5–0.5", "≥0.5")
    np.testing.assert_array_equal(votes.matrix, (scores >= -0.5).astype(int) + (scores >= 0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Votes.from_matrix(SCORES.astype(str)), "if they are scores, give ordered=True"),
        (lambda: Votes.from_matrix(SCORES.astype(str), classes=CLASSES), "no vote is for .* give ordered=True if"),
        (lambda: Votes.from_matrix(SCORES, ordered=True), "400 different scores are sorted into 10 bins.* classes="),
        (
            lambda: Votes.from_matrix(SCORES, 2, ordered=True, bins=(0.5, -0.5)),
            "must be strictly increasing finite numbers",
        ),
        (lambda: Votes.from_matrix(SCORES, 2, ordered=True, bins=1), "bins=1 must be between 2 and"),
        (lambda: Votes.from_matrix([["1", "x"]], ordered=True), "ordered votes are numbers, but 'x' is not one"),
        (lambda: Votes.from_matrix([["a", "x"]], ordered=("a", "b")), "vote 'x' is not one of the grades"),
        (lambda: Votes.from_matrix([["1", "1"]], ordered=True), "ordered votes have 1 grade"),
        (lambda: Votes.from_matrix([["1", "2"]], classes=2), "classes=2 is a number"),
    ],
)
def test_errors_name_the_remedy(make, message):
    with pytest.raises(VotesError, match=message):
        make()


SCORES = np.linspace(-1, 1, 400).reshape(100, 4)


@pytest.mark.parametrize("classes", [None, CLASSES])
def test_a_file_of_scores_asks_for_their_order(classes, file):
    path = file("item,a,b,c,d\n" + "\n".join(f"q{i}," + ",".join(map(str, row)) for i, row in enumerate(SCORES)))
    with pytest.raises(VotesError, match="if they are scores, give ordered=True, and the labels by classes"):
        Votes.from_csv(path, classes=classes)
    assert Votes.from_csv(path, classes=CLASSES, ordered=True).num_categories == 10


def test_every_kind_of_method_takes_them(tmp_path):
    words, truth = judged()
    votes = Votes.from_matrix(words, classes=CLASSES, ordered=True)
    methods = MaximumLikelihood(GradedResponse(6, 2, 10), starts=2), DawidSkeneEM(), Ebcc(2, 1), Glad(), MajorityVote()
    fits = [method.fit(votes, key=KEY) for method in methods]
    for fit in fits:
        assert np.mean(fit.codes == truth) > 0.85
        np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-8)
        fit.save(tmp_path / "fit.nc")
        np.testing.assert_allclose(le.load_fit(tmp_path / "fit.nc").predict(votes), fit.label_probs, atol=1e-8)
        assert (fit.voters["balanced_accuracy"] > 0.6).all()
    assert "says_9_if_Yes" in fits[0].voters
    noted = ["grades count as votes for classes: 'No' from 0 on, 'Yes' from 5 on" in f.diagnostics.notes for f in fits]
    assert noted == [False, False, False, True, True]
    with pytest.raises(VotesError, match="read these votes with ordered=True"):
        fits[0].predict(votes.without_other_votes())
    with pytest.raises(VotesError, match="give num_classes=2 and num_grades=10"):
        MaximumLikelihood(GradedResponse(6, 3, 10)).fit(votes, key=KEY)
    drawn = Laplace(GradedResponse(6, 2, 10), num_draws=50).fit(votes, key=KEY)
    assert np.mean(drawn.codes == truth) > 0.85


def test_an_unsure_voter_is_not_worse_than_chance():
    generator = np.random.default_rng(0)
    truth = generator.integers(2, size=3000)
    rows = np.where(generator.random((3000, 5)) < 0.85, truth[:, None], 1 - truth[:, None])
    rows[:, 0][generator.random(3000) < 0.6] = 2  # whatever the label is
    votes = Votes.from_matrix(np.array(["No", "Yes", "Unsure"])[rows], classes=CLASSES)
    for method in (DawidSkeneEM(), MaximumLikelihood(DawidSkene(5, num_categories=3), starts=1)):
        voters = method.fit(votes, key=KEY).voters
        assert voters["flag"].tolist() == [""] * 5
        assert voters["accuracy"][0] == pytest.approx(0.85, abs=0.04)
        assert voters["balanced_accuracy_low"][0] < 0.85 < voters["balanced_accuracy_high"][0]


def test_errors_of_accuracies_among_votes_for_classes_are_their_slopes():
    from latentens.inference.skill import _skill_derivatives

    generator = np.random.default_rng(1)
    shares, logits = np.array([0.3, 0.7]), generator.normal(size=(3, 2, 4))  # voter, label, vote
    says = np.array([[1.0, 0], [0, 1], [0, 0], [0, 1]])

    def found(point):
        of_shares, confusion = np.exp(point[:2]), np.exp(point[2:].reshape(3, 2, 4))
        return skills_of(of_shares / of_shares.sum(), confusion / confusion.sum(axis=2, keepdims=True), says)

    point, step = np.concatenate([np.log(shares), logits.ravel()]), 1e-6
    numeric = [(found(point + step * e) - found(point - step * e)) / (2 * step) for e in np.eye(len(point))]
    confusion = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    rows = [shares, *confusion.reshape(-1, 4)]
    curvature = block_diag(*(np.diag(row) - np.outer(row, row) for row in rows))
    slopes = np.asarray(_skill_derivatives(shares, confusion, says) @ curvature)
    np.testing.assert_allclose(slopes, np.transpose(numeric), atol=1e-8)


def test_skills_of_tables_and_of_matrices_agree():
    made = simulate(MODEL, 5, key=KEY)
    says = says_of(made.votes)
    tables = double_precision(checked_tables)(MODEL, made.params)
    confusion = np.exp(np.asarray(tables.log_emission)).reshape(2, 6, 5).transpose(1, 0, 2)
    in_program = double_precision(lambda order: np.asarray(skills(tables, order, says)))(np.arange(2))
    np.testing.assert_allclose(in_program, skills_of(made.params["prevalence"], confusion, says), atol=1e-10)


def test_commands_take_them(invoke, tmp_path):
    words, truth = judged(150)
    rows = [f"q{i}," + ",".join(row) for i, row in enumerate(words)]
    (tmp_path / "scores.csv").write_text("item,a,b,c,d,e,f\n" + "\n".join(rows))
    (tmp_path / "truth.csv").write_text("item,truth\n" + "\n".join(f"q{i},{CLASSES[k]}" for i, k in enumerate(truth)))
    options = "--ordered", "--classes", "No,Yes"
    out = "--out", "labels.csv", "--voters", "voters.csv"
    code, shown, error = invoke("fit", "scores.csv", *out, *options, cwd=tmp_path)
    assert code == 0, error
    assert "ordered votes (10 grades, 0 … 9)" in shown + error
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert np.mean(labels["label"].to_numpy() == np.array(CLASSES)[truth]) > 0.85
    assert "says_9_if_Yes" in pd.read_csv(tmp_path / "voters.csv")
    code, shown, error = invoke("check", "scores.csv", *options, cwd=tmp_path)
    assert code == 0, error
    methods = "-m", "MaximumLikelihood(GradedResponse, starts=1)", "-m", "DawidSkeneEM", "-m", "MajorityVote"
    files = "--votes", "scores.csv", "--truth", "truth.csv", "--out", "result"
    code, _, error = invoke("compare", *files, *methods, *options, cwd=tmp_path)
    assert code == 0, error
    code, _, error = invoke("report", "result/tree.nc", cwd=tmp_path)
    assert code == 0, error
    code, _, error = invoke("simulate", "GradedResponse(4, 2, 5)", "--items", "50", "--out", "made.csv", cwd=tmp_path)
    assert code == 0, error
    code, _, error = invoke("fit", "scores.csv", *out, "--classes", "No,Yes", cwd=tmp_path)
    assert code == 2
    assert "--ordered" in error
