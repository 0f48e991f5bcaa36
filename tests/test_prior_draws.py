"""Draws from priors in NumPy have the distributions that the program says."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

from latentens.programs.prior_draws import numpy_draws, shares
from latentens.runtime.numerics import double_precision

KEY = jax.random.key(0)
SIZE = 4000


def program():
    mean = numpyro.sample("mean", dist.Normal(3.0, 0.5).expand((SIZE,)).to_event(1))
    with numpyro.plate("voter", SIZE):
        numpyro.sample("rate", dist.Beta(4.0, 2.0))
        numpyro.sample("around", dist.Normal(mean, 2.0))
        numpyro.sample("row", dist.Dirichlet(np.array([0.5, 1.0, 6.0])))
    numpyro.sample("scale", dist.HalfNormal(1.0))  # drawn as ever
    numpyro.sample("known", dist.Beta(2.0, 2.0), obs=0.25)


@jax.jit
def draw(key):
    with handlers.trace() as trace, numpy_draws(), handlers.seed(rng_seed=key):
        program()
    return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}


@pytest.fixture(scope="module")
def drawn():
    return {name: np.asarray(value) for name, value in double_precision(draw)(KEY).items()}


def test_draws_have_their_distributions(drawn):
    wanted = {
        "mean": (drawn["mean"], stats.norm(3, 0.5)),
        "rate": (drawn["rate"], stats.beta(4, 2)),
        "around": (drawn["around"] - drawn["mean"], stats.norm(0, 2)),
        "first of row": (drawn["row"][:, 0], stats.beta(0.5, 7)),
        "last of row": (drawn["row"][:, 2], stats.beta(6, 1.5)),
    }
    for name, (values, distribution) in wanted.items():
        assert values.dtype == np.float64
        assert stats.kstest(values, distribution.cdf).pvalue > 1e-3, name
    np.testing.assert_allclose(drawn["row"].sum(axis=1), 1)
    assert abs(np.corrcoef(drawn["rate"], drawn["around"])[0, 1]) < 0.06
    assert drawn["known"] == 0.25
    assert drawn["scale"] > 0


@double_precision
def test_the_key_decides_and_many_keys_may_be_drawn_at_once(drawn):
    again, other = (np.asarray(draw(key)["rate"]) for key in (KEY, jax.random.key(1)))
    np.testing.assert_array_equal(again, drawn["rate"])
    assert not np.isin(other, again).any()
    together = jax.vmap(draw)(jax.random.split(KEY, 2))["rate"]
    assert together.shape == (2, SIZE)
    assert not np.isin(together[0], together[1]).any()


def test_single_precision_stays_single():
    assert draw(KEY)["rate"].dtype == np.float32


def test_small_concentrations_are_shares_still():
    found = shares(np.random.default_rng(0), np.full((1000, 2), 1e-4))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert ((found > 0) & (found < 1)).all()
    assert abs((found[:, 0] > 0.5).mean() - 0.5) < 0.06
