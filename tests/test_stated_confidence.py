"""Stated confidence: against loops and a numerical maximum, and recovery of temperatures."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from latentens.methods import DawidSkeneEM, MajorityVote, StatedConfidence
from latentens.methods.stated_confidence import fit_voters, smallest_stated, stated_votes
from latentens.votes import Votes

KEY = jax.random.key(0)


def statements(temperatures, num_items=400, num_classes=2, missing=0.1, seed=0):
    """Probabilities stated by voters of the model, and the labels."""
    generator = np.random.default_rng(seed)
    temperatures = np.asarray(temperatures)
    labels = generator.integers(num_classes, size=num_items)
    information = np.linspace(0.5, 1.5, len(temperatures))
    means = information[:, None] * np.eye(num_classes)[labels][:, None]
    shape = num_items, len(temperatures), num_classes
    logits = temperatures[:, None] * generator.normal(means, np.sqrt(information)[:, None], shape)
    probs = np.exp(logits - logits.max(axis=2, keepdims=True))
    probs /= probs.sum(axis=2, keepdims=True)
    probs[generator.random(shape[:2]) < missing] = np.nan
    return probs, labels


def log_normal(values, mean, variance):
    """Density of centred values whose centred noise has a variance, up to a constant, by loops."""
    square = sum((value - centre) ** 2 for value, centre in zip(values, mean, strict=True))
    return -0.5 * (square / variance + (len(values) - 1) * np.log(variance))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_posterior_is_that_of_loops(num_classes):
    probs, _ = statements([1.0, 2.0, 4.0], 60, num_classes)
    fit = StatedConfidence().fit(Votes.from_soft(probs), key=KEY)
    temperature, information = 1 / fit.params["weight"], fit.params["information"]
    for item, row in enumerate(probs):
        joint = np.log(fit.params["prevalence"])
        for voter, stated in enumerate(row):
            if not np.isnan(stated).any():
                ratio = np.log(stated) - np.log(stated).mean()
                for k in range(num_classes):
                    apart = np.eye(num_classes)[k] - 1 / num_classes
                    mean = fit.params["bias"][voter] + temperature[voter] * information[voter] * apart
                    joint[k] += log_normal(ratio, mean, temperature[voter] ** 2 * information[voter])
        expected = np.exp(joint - joint.max())
        np.testing.assert_allclose(fit.label_probs[item], expected / expected.sum(), atol=1e-10)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_voters_are_at_the_maximum(temperature):
    probs, labels = statements([temperature], 200, 3, missing=0.0)
    votes = Votes.from_soft(probs)
    stated = stated_votes(votes, smallest_stated(votes))
    soft_labels = 0.9 * np.eye(3)[labels] + 0.1 / 3
    slope, spread, bias = (part[0] for part in fit_voters(stated, soft_labels, 1))

    def loss(point):
        weight, logarithm, first, second = point
        variance = np.exp(logarithm)
        offset = np.array([first, second, -first - second])
        apart = np.eye(3) - 1 / 3
        means = offset + weight * variance * apart
        squares = ((stated.log_ratio[:, None] - means) ** 2).sum(axis=2)
        return np.mean((soft_labels * (0.5 * squares / variance)).sum(axis=1)) + np.log(variance)

    bounds = [(-1, 1), (None, None), (None, None), (None, None)]
    best = minimize(loss, [0.5, 0.0, 0.0, 0.0], bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
    assert loss([slope / spread, np.log(spread), *bias[:2]]) <= best.fun + 1e-10
    assert abs(slope / spread) <= 1 + 1e-12


def test_temperatures_are_recovered_and_used():
    true = np.array([1.0, 1.5, 3.0, 6.0])
    probs, labels = statements(true, 20_000, missing=0.3)
    fit = StatedConfidence().fit(Votes.from_soft(probs), key=KEY)
    np.testing.assert_allclose(1 / fit.params["weight"], true, rtol=0.1)
    np.testing.assert_allclose(fit.params["information"], np.linspace(0.5, 1.5, 4), rtol=0.1)
    confident = fit.label_probs.max(axis=1)
    assert np.mean(fit.codes == labels) == pytest.approx(confident.mean(), abs=0.01)
    assert fit.diagnostics.converged


def test_it_beats_fractions_and_hard_votes_of_its_own_voters():
    probs, labels = statements([1.0, 2.0, 3.0, 5.0, 8.0], 1000)
    votes = Votes.from_soft(probs)
    accuracy = {
        name: np.mean(method.fit(given, key=KEY).codes == labels)
        for name, method, given in (
            ("own", StatedConfidence(), votes),
            ("fractions", DawidSkeneEM(), votes),
            ("mean", MajorityVote(), votes),
            ("hard", DawidSkeneEM(), votes.to_hard()),
        )
    }
    assert accuracy["own"] >= max(accuracy.values())


def test_gold_labels_adversaries_and_certain_votes():
    probs, labels = statements([1.0, 1.0, 2.0, 2.0], 300)
    probs[:, 3] = 1 - probs[:, 3]
    probs[:100, 0] = np.where(np.isnan(probs[:100, 0]), np.nan, (probs[:100, 0] > 0.5).astype(float))
    votes = Votes.from_soft(probs)
    fit = StatedConfidence().fit(votes, key=KEY, gold=np.where(np.arange(300) < 50, labels, -1))
    assert -1 < fit.params["weight"][3] < 0
    assert (fit.codes[:50] == labels[:50]).all()
    np.testing.assert_allclose(fit.predict(votes)[50:], fit.label_probs[50:], atol=1e-10)
    hard = StatedConfidence().fit(votes.to_hard(), key=KEY)
    assert "not probabilities" in hard.diagnostics.notes[0]
    assert np.mean(hard.codes == labels) > 0.6
