import jax
import numpy as np
import pytest

from latentens import simulate
from latentens.inference.stability import NEAR, fits_about_as_well, label_warnings
from latentens.methods import MaximumLikelihood
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
    assert fit.diagnostics["label_change"] > 0.05
    assert any("weakly identified" in words for words in fit.diagnostics["warnings"])
    assert len(fit.diagnostics["optima"]) > 1
    assert sum(optimum["starts"] for optimum in fit.diagnostics["optima"]) == 4
    assert fit.diagnostics["log_likelihood"] == pytest.approx(fit.log_likelihood(votes).sum())
