"""Starts are draws from the priors of a program."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from latentens import GenerativeModel
from latentens.models import Confounder, HierarchicalDawidSkene, LayeredGraph, Tree
from latentens.programs.contract import structure_of
from latentens.programs.parameters import draw_params, draw_shares, normal_point, transform_of, unflatten
from latentens.runtime.numerics import double_precision, key_from


@double_precision
def test_draws_have_the_distributions_of_the_priors():
    model, generator = Confounder(4, num_classes=3), np.random.default_rng(0)
    drawn = [unflatten(draw_params(model, generator), structure_of(model).parameter_shapes) for _ in range(300)]
    loading = (1 + np.array([params["loading"] for params in drawn])) / 2
    assert stats.kstest(loading.ravel(), stats.beta(*model.loading_prior).cdf).pvalue > 1e-3
    shares = np.array([params["prevalence"] for params in drawn])
    assert stats.kstest(shares[:, 0], stats.beta(2.0, 4.0).cdf).pvalue > 1e-3
    model = HierarchicalDawidSkene(4)
    spread = [
        unflatten(draw_params(model, generator), structure_of(model).parameter_shapes)["spread"] for _ in range(300)
    ]
    assert stats.kstest(np.ravel(spread), stats.halfnorm.cdf).pvalue > 1e-3


@double_precision
@pytest.mark.parametrize("model", [Tree((0, 0, 1, 1)), LayeredGraph(4, (2, 2))], ids=str)
def test_the_generator_decides(model):
    first, again = (draw_params(model, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    size = sum(int(np.prod(shape)) for shape in transform_of(model).point_shapes.values())
    assert normal_point(model, np.random.default_rng(0)).size == size


def test_keys_drawn_by_numpy_are_keys():
    first, second = (key_from(np.random.default_rng(seed)) for seed in (0, 1))
    assert jax.random.normal(first) != jax.random.normal(second)


def pooled(num_items, votes=None):
    """Rates around a mean of their own."""
    mean = numpyro.sample("mean", dist.Normal(3.0, 0.5))
    with numpyro.plate("voter", 400):
        logit = numpyro.sample("logit", dist.Normal(mean, 0.1))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(0.5))
        numpyro.sample("vote", dist.Bernoulli(logits=jnp.where(label[..., None] == 1, logit, -logit)).to_event(1))


@double_precision
def test_priors_may_depend_on_other_parameters():
    model, generator = GenerativeModel.from_program(pooled), np.random.default_rng(0)
    drawn = [unflatten(draw_params(model, generator), structure_of(model).parameter_shapes) for _ in range(2)]
    assert drawn[0]["mean"] != drawn[1]["mean"]
    for params in drawn:
        assert stats.kstest(params["logit"], stats.norm(params["mean"], 0.1).cdf).pvalue > 1e-3


def test_small_concentrations_are_shares_still():
    found = draw_shares(np.random.default_rng(0), np.full((1000, 2), 1e-4))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert ((found > 0) & (found < 1)).all()
    assert abs((found[:, 0] > 0.5).mean() - 0.5) < 0.06
