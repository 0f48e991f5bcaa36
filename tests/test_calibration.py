from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import binom
from sklearn.isotonic import IsotonicRegression

from latentens import GenerativeModel, simulate
from latentens.checks import posterior_sbc, sbc, simulation_based_calibration
from latentens.checks.sbc import uniformity
from latentens.errors import LatentensError
from latentens.methods import MajorityVote, Nuts
from latentens.models import DawidSkene, GradedResponse
from latentens.runtime.numerics import numpy_generator
from latentens.scores.reliability import reliabilities, reliability
from tests.reference import as_triplets
from tests.test_scores import calibrated, overconfident

KEY = jax.random.key(2)


def outside(curve):
    """Share of the points at which the curve leaves its band."""
    seen = np.isfinite(curve.observed)
    return np.mean(((curve.observed < curve.low) | (curve.observed > curve.high))[seen])


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_exact_posterior_is_reliable_and_doubled_logits_leave_the_band(num_classes):
    labels, exact = calibrated(3000, num_classes, seed=1)
    honest, boastful = (reliability(labels, probs, key=KEY, resamples=200) for probs in (exact, overconfident(exact)))
    assert outside(honest) < 0.25 < 0.5 < outside(boastful)
    assert boastful.p_value < 0.01 < 0.05 < honest.p_value


def test_p_values_of_reliability_are_uniform_for_the_exact_posterior():
    p_values = [
        reliability(*calibrated(150, 2, seed), key=jax.random.key(seed), resamples=40, points=2).p_value
        for seed in range(60)
    ]
    assert np.mean(p_values) == pytest.approx(0.5, abs=4 / np.sqrt(12 * 60))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_curve_and_band_by_loops(num_classes):
    labels, probs = calibrated(200, num_classes, seed=3)
    labels[::9] = -1
    result = reliability(labels, probs, key=KEY, level=0.8, resamples=300, points=51)
    known = [i for i in range(200) if labels[i] >= 0]
    stated = np.array([probs[i, 1] if num_classes == 2 else max(probs[i]) for i in known])
    happened = [labels[i] == (1 if num_classes == 2 else probs[i].argmax()) for i in known]

    def curve(events):
        regression = IsotonicRegression(out_of_bounds="nan").fit(stated, events)
        return np.interp(result.stated, np.unique(stated), regression.predict(np.unique(stated)), np.nan, np.nan)

    np.testing.assert_allclose(result.observed, curve(happened), atol=1e-12)
    rng = np.random.default_rng(4)
    drawn = [curve(rng.random(len(stated)) < stated) for _ in range(300)]
    low, high = np.quantile(drawn, [0.1, 0.9], axis=0)
    np.testing.assert_allclose(result.low, low, atol=0.12)
    np.testing.assert_allclose(result.high, high, atol=0.12)
    assert np.nanmean(np.abs(result.low - low)) < 0.02
    assert np.nanmean(np.abs(result.high - high)) < 0.02


def test_posteriors_are_judged_together_as_they_are_one_by_one():
    labels, exact = calibrated(150, 3, seed=9)
    labels[::5] = -1
    posteriors = [exact, overconfident(exact)]
    for together, probs in zip(reliabilities(labels, posteriors, key=KEY, resamples=20), posteriors, strict=True):
        for part, alone in zip(together, reliability(labels, probs, key=KEY, resamples=20), strict=True):
            np.testing.assert_array_equal(part, alone)


def test_reliability_needs_labels():
    with pytest.raises(LatentensError, match="known label"):
        reliability(np.full(5, -1), np.full((5, 2), 0.5), key=KEY)


@dataclass(frozen=True)
class OneSkill(GenerativeModel):
    """Three equally skilled voters; with the labels the other way round, the skill is one minus itself."""

    def program(self, num_items, votes=None):
        skill = numpyro.sample("skill", dist.Beta(3.0, 2.0))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(0.5))
            says_one = jnp.where(label[..., None] == 1, skill, 1 - skill) * jnp.ones(3)
            numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)

    def permute(self, params, order):
        return {"skill": 1 - params["skill"]}


def by_grid(votes, key):
    """Draws of the exact posterior: both modes in their right proportion, folded to the side of the majority."""
    grid = (np.arange(2000) + 0.5) / 2000
    ones = votes.matrix.sum(axis=1)[:, None]
    likelihood = np.prod(grid**ones * (1 - grid) ** (3 - ones) + (1 - grid) ** ones * grid ** (3 - ones), axis=0)
    weights = likelihood * grid**2 * (1 - grid)
    skill = numpy_generator(key).choice(grid, size=99, p=weights / weights.sum())
    return {"skill": np.maximum(skill, 1 - skill)}


def too_narrow(votes, key):
    draws = by_grid(votes, key)["skill"]
    return {"skill": (draws + draws.mean()) / 2}


@pytest.mark.slow
def test_right_draws_pass_and_too_narrow_ones_fail():
    settings = {"num_simulations": 100, "num_items": 4, "key": KEY}
    right, wrong = (simulation_based_calibration(OneSkill(), sampler, **settings) for sampler in (by_grid, too_narrow))
    assert right.names == ("skill",)
    assert right.ranks.shape == right.uniforms.shape == (100, 1)
    assert (right.ranks == np.floor(right.uniforms * 100)).all()
    assert right.p_value > 0.05
    assert wrong.p_value < 0.01


def test_the_truth_is_oriented_as_the_draws_are(monkeypatch):
    settings = {"num_simulations": 100, "num_items": 4, "key": KEY}
    assert simulation_based_calibration(OneSkill(), by_grid, **settings).p_value > 0.05
    monkeypatch.setattr(sbc, "_oriented", lambda model, params, votes: params)
    assert simulation_based_calibration(OneSkill(), by_grid, **settings).p_value < 0.01


def test_ties_are_broken_at_random():
    truth = []

    def always_the_truth(votes, key):
        return {"skill": np.full(9, truth.pop())}

    original = sbc._oriented

    def remember(*args):
        params = original(*args)
        truth.append(params["skill"])
        return params

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sbc, "_oriented", remember)
        result = simulation_based_calibration(
            OneSkill(), always_the_truth, num_simulations=60, num_items=4, key=KEY, num_draws=9
        )
    assert set(result.ranks.ravel()) >= {0, 3, 6, 9}
    assert result.p_value > 0.01


def test_a_run_resumes_where_it_was_interrupted(tmp_path):
    calls = []

    def sampler(votes, key):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(votes)
        return by_grid(votes, key)

    settings = {"num_simulations": 5, "num_items": 4, "key": KEY}
    with pytest.raises(KeyboardInterrupt):
        simulation_based_calibration(OneSkill(), sampler, **settings, folder=tmp_path / "ranks")
    calls = []
    resumed = simulation_based_calibration(OneSkill(), sampler, **settings, folder=tmp_path / "ranks")
    assert len(calls) == 2
    np.testing.assert_array_equal(resumed.ranks, simulation_based_calibration(OneSkill(), by_grid, **settings).ranks)
    calls = []
    with pytest.raises(KeyboardInterrupt):  # other settings have other simulations, of which none is done
        simulation_based_calibration(OneSkill(), sampler, **settings | {"num_items": 5}, folder=tmp_path / "ranks")
    assert len(calls) == 3


def test_uniformity_is_the_simultaneous_band_of_the_distribution_function():
    rng = np.random.default_rng(5)
    values = rng.random((40, 3)) ** [1.0, 1.2, 2.0]

    def least_tail(sample):
        tails = []
        for i in range(1, 40):
            below = sum(value <= i / 40 for value in sample)
            tails += [binom.cdf(below, 40, i / 40), binom.sf(below - 1, 40, i / 40)]
        return min(tails)

    np.testing.assert_allclose(sbc._least_tails(values), [least_tail(sample) for sample in values.T])
    p_values = uniformity(values, rng)
    assert p_values[0] > 0.05
    assert p_values[2] < 0.01
    assert np.mean(uniformity(rng.random((40, 1000)), rng) < 0.1) == pytest.approx(0.1, abs=0.05)


def test_refusals():
    settings = {"num_items": 4, "key": KEY}
    with pytest.raises(LatentensError, match="no posterior draws"):
        simulation_based_calibration(OneSkill(), MajorityVote(), num_simulations=2, **settings)
    with pytest.raises(LatentensError, match="fewer than num_draws=200"):
        simulation_based_calibration(OneSkill(), by_grid, num_simulations=2, num_draws=200, **settings)
    with pytest.raises(LatentensError, match="at least 2"):
        simulation_based_calibration(OneSkill(), by_grid, num_simulations=1, **settings)


@pytest.mark.slow
def test_nuts_is_calibrated_on_dawid_skene():
    model = DawidSkene(4)
    method = Nuts(model, num_chains=2, num_warmup=300, num_samples=500)
    result = simulation_based_calibration(model, method, num_simulations=60, num_items=40, key=KEY)
    assert result.names == (
        *(f"prevalence[{label}]" for label in range(2)),
        *(f"confusion[{voter}, {label}, {vote}]" for voter, label, vote in np.ndindex(4, 2, 2)),
    )
    assert result.p_value > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("model", [DawidSkene(4, num_categories=3), GradedResponse(4, 2, 4)], ids=["ties", "grades"])
def test_nuts_is_calibrated_where_votes_are_not_labels(model):
    method = Nuts(model, num_chains=2, num_warmup=300, num_samples=500)
    assert simulation_based_calibration(model, method, num_simulations=60, num_items=40, key=KEY).p_value > 0.01


def test_labels_have_ranks_too_and_coverage_follows_from_ranks():
    settings = {"num_simulations": 60, "num_items": 12, "key": KEY, "labels": True}
    right = simulation_based_calibration(OneSkill(), by_grid, **settings)
    assert right.names == ("skill", "label of the first item", "number of label 1", "log probability of all labels")
    assert right.p_value > 0.05
    coverage = right.coverage(np.array([0.5, 0.9]))
    assert coverage.shape == (2, 4)
    assert (np.abs(coverage - [[0.5], [0.9]]) < 4 * np.sqrt(0.25 / 60)).all()

    def sure(votes, key):
        return {"skill": np.full(99, 0.999)}  # labels are those of the majority

    wrong = simulation_based_calibration(OneSkill(), sure, **settings)
    assert wrong.p_values[2] < 0.01
    assert wrong.p_values[3] < 0.01


def test_calibration_given_ones_own_votes():
    votes = simulate(OneSkill(), 15, key=KEY, params={"skill": 0.8}).votes
    settings = {"num_simulations": 60, "key": KEY, "labels": True}
    right, wrong = (posterior_sbc(OneSkill(), votes, sampler, **settings) for sampler in (by_grid, too_narrow))
    assert right.ranks.shape == (60, 4)
    assert right.p_value > 0.05
    sparse = posterior_sbc(OneSkill(), as_triplets(votes), by_grid, **settings)
    assert np.array_equal(sparse.ranks, right.ranks)
    with pytest.raises(LatentensError, match="99 draws are fewer than num_simulations=100"):
        posterior_sbc(OneSkill(), votes, by_grid, num_simulations=100, key=KEY)
    assert wrong.p_values[0] < right.p_values[0]
