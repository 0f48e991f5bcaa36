import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.datasets import simulate_paper
from latentens.inference.identification import NEAR, Labelling, fits_about_as_well, label_change, label_warnings
from latentens.methods import DawidSkeneEM, MaximumLikelihood
from latentens.models import TopDown

KEY = jax.random.key(0)


def test_near_is_within_two_bootstrap_errors():
    generator = np.random.default_rng(0)
    counts = generator.integers(1, 4, 200)
    best = generator.normal(-5, 1, 200)
    noise = generator.normal(0, 0.3, 200)
    items = np.repeat(noise, counts)
    resampled = [items[generator.integers(len(items), size=len(items))].sum() for _ in range(4000)]
    error = np.std(resampled)
    for gap, near in ((0.8 * NEAR * error, True), (1.2 * NEAR * error, False)):
        behind = noise - items.mean() + gap / len(items)  # this far behind in all
        assert fits_about_as_well(best, best - behind, counts) == near
    level = best - (noise - items.mean())
    extra = round(NEAR * error)
    assert fits_about_as_well(best, level, counts, extra - 2)
    assert not fits_about_as_well(best, level, counts, extra + 2)


def test_the_best_itself_fits_as_well():
    values = np.linspace(-3, -1, 5)
    assert fits_about_as_well(values, values, np.ones(5))
    assert not fits_about_as_well(values, values - 1, np.ones(5))  # the same for every item: no error at all


def test_words():
    assert label_warnings(0.02) == []
    assert "12% of them change" in label_warnings(0.12)[0]


def test_labels_that_the_votes_do_not_determine_are_reported():
    """Hidden units that hardly depend on the label leave optima of about the same height with different labels."""
    model = TopDown(6, 3)
    params = model.example_params(jax.random.key(1)) | {"label_weights": np.full(3, 0.3), "hidden_bias": np.zeros(3)}
    votes = simulate(model, 400, key=KEY, params=params).votes
    fit = MaximumLikelihood(model, starts=4, warm=(), use_prior=True, max_iterations=200).fit(votes, key=KEY)
    assert fit.diagnostics.label_change > 0.05
    assert any("weakly identified" in words for words in fit.diagnostics.all_warnings)
    assert len(fit.diagnostics["optima"]) > 1
    assert sum(optimum["starts"] for optimum in fit.diagnostics["optima"]) == 4
    assert fit.diagnostics.log_likelihood == pytest.approx(fit.log_likelihood(votes).sum())


def test_change_counts_items_of_rows_with_other_labels():
    """Four items of three rows, two of which change; nothing counts at an optimum that is clearly behind."""
    counts, log_likelihood = np.array([1, 2, 1]), np.array([-1.0, -2.0, -3.0])
    best, other = (Labelling(log_likelihood, np.array(labels)) for labels in ([0, 1, 1], [0, 0, 1]))
    assert label_change(best, other, counts) == 0.5
    assert label_change(best, other, counts, penalty=1.0) == 0.0


def two_juries(seed, num_items=300, accuracies=(0.8, 0.8)):
    """Six voters on one question, and six on another that has nothing to do with it."""
    generator = np.random.default_rng(seed)
    answers = generator.integers(2, size=(2, num_items))
    correct = [generator.random((num_items, 6)) < accuracy for accuracy in accuracies]
    parts = [np.where(right, own[:, None], 1 - own[:, None]) for right, own in zip(correct, answers, strict=True)]
    return Votes.from_matrix(np.hstack(parts)), answers


@pytest.mark.parametrize("seed", range(3))
def test_dawid_skene_reports_that_either_jury_may_be_right(seed):
    votes, answers = two_juries(seed)
    fit = DawidSkeneEM().fit(votes, key=KEY)
    assert 0.3 < fit.diagnostics.label_change < 0.7
    assert any("weakly identified" in words for words in fit.diagnostics.all_warnings)
    known = np.where(np.arange(len(answers[0])) < 60, answers[1], -1)  # some labels say which question is meant
    told = DawidSkeneEM().fit(votes, key=KEY, gold=known)
    assert told.diagnostics.label_change == 0.0
    assert np.mean(told.codes == answers[1]) > 0.9


def test_dawid_skene_trusts_the_better_jury():
    votes, answers = two_juries(0, 2000, (0.85, 0.82))
    fit = DawidSkeneEM().fit(votes, key=KEY)
    assert len(fit.diagnostics["optima"]) > 1
    assert fit.diagnostics.label_change == 0.0
    assert np.mean(fit.codes == answers[0]) > 0.9


@pytest.mark.parametrize("number", range(3))
def test_labels_of_independent_voters_are_identified(number):
    fit = DawidSkeneEM().fit(simulate_paper("condInd", number, 500).votes, key=KEY)
    assert fit.diagnostics.label_change < 0.01
