"""Starts are draws from the priors of a program."""

import jax
import numpy as np
import pytest
from scipy import stats

from latentens.models import Confounder, HierarchicalDawidSkene, LayeredGraph, Tree
from latentens.programs.contract import inspect
from latentens.programs.start_points import draw_params, normal_point
from latentens.programs.transforms import transform_of, unflatten
from latentens.runtime.numerics import double_precision, key_from


@double_precision
def test_draws_have_the_distributions_of_the_priors():
    model, generator = Confounder(4, num_classes=3), np.random.default_rng(0)
    drawn = [unflatten(draw_params(model, generator), inspect(model).parameter_shapes) for _ in range(300)]
    loading = (1 + np.array([params["loading"] for params in drawn])) / 2
    assert stats.kstest(loading.ravel(), stats.beta(*model.loading_prior).cdf).pvalue > 1e-3
    shares = np.array([params["prevalence"] for params in drawn])
    assert stats.kstest(shares[:, 0], stats.beta(2.0, 4.0).cdf).pvalue > 1e-3
    model = HierarchicalDawidSkene(4)
    spread = [unflatten(draw_params(model, generator), inspect(model).parameter_shapes)["spread"] for _ in range(300)]
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
