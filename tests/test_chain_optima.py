"""Which optima of a chain are about as good, and how sure each is of its labels."""

import numpy as np
import pytest

from latentens.methods.top_down_mle import ChainOptimum, about_as_good, surest_consensus

GENERATOR = np.random.default_rng(0)
LIKELIHOOD = GENERATOR.normal(-3, 1, 400)
NOISE = GENERATOR.normal(0, 1, 400)
NOISE -= NOISE.mean()


def optimum(size, likelihood, sure):
    probs = np.tile([sure, 1 - sure], (len(likelihood), 1))
    return ChainOptimum(size, {}, 10 * size, likelihood, probs)


def test_optima_that_are_clearly_behind_are_set_aside():
    """A total of 400 differences of standard deviation 1 has a standard error of 20."""
    best = optimum(3, LIKELIHOOD, 0.6)
    close, behind = (optimum(3, LIKELIHOOD + NOISE - gap / 400, 0.9) for gap in (35, 45))
    larger = optimum(4, LIKELIHOOD + NOISE - 35 / 400, 0.9)  # and ten more parameters
    assert about_as_good([behind, close, best, larger]) == [close, best]


def test_criteria_and_entropy():
    found = optimum(3, LIKELIHOOD, 0.9)
    assert found.aic == pytest.approx(60 - 2 * LIKELIHOOD.sum())
    assert found.bic == pytest.approx(30 * np.log(400) - 2 * LIKELIHOOD.sum())
    assert found.entropy == pytest.approx(-0.9 * np.log(0.9) - 0.1 * np.log(0.1))
    assert set(found.labels) == {0}


def test_consensus_of_the_surest_quarter():
    """Eight unsure optima agree with each other; of the three surest the odd one is passed over."""
    unsure = [optimum(3, LIKELIHOOD, 0.4) for _ in range(8)]
    odd, sure, surer = optimum(3, LIKELIHOOD, 0.03), optimum(4, LIKELIHOOD, 0.95), optimum(5, LIKELIHOOD, 0.96)
    assert surest_consensus([*unsure, odd, sure, surer]) in (sure, surer)
    assert surest_consensus([odd, sure]) is odd
