"""Starts are the draws that the program itself would make, whether or not anything is compiled for them."""

import jax
import numpy as np
import pytest

from latentens.models import Confounder, DawidSkene, LayeredGraph, OneCoin, TopDown, Tree, TruncatedGaussian
from latentens.programs import start_points
from latentens.programs.marginal import unconstrain
from latentens.runtime.precision import double_precision

KEY = jax.random.key(3)
ALONE = DawidSkene(4), DawidSkene(4, 3), TopDown(4, 3), Tree((0, 0, 1, 1)), OneCoin(4), TruncatedGaussian(4)


@double_precision
@pytest.mark.parametrize("model", [*ALONE, LayeredGraph(4, (2, 2))], ids=str)
def test_priors_that_stand_alone_are_drawn_as_the_program_draws_them(model):
    assert start_points._prior_sites(model).alone
    drawn, by_program = start_points._draw(model, KEY), start_points._draw_together(model, KEY)
    assert drawn.keys() == by_program.keys()
    for name, value in by_program.items():
        np.testing.assert_array_equal(drawn[name], value)
    shapes = jax.eval_shape(lambda params: unconstrain(model, params), by_program)
    normal = start_points.normal_start(model, KEY)
    assert {name: value.shape for name, value in normal.items()} == {name: s.shape for name, s in shapes.items()}


@double_precision
def test_priors_that_depend_on_one_another_are_drawn_by_the_program():
    model = Confounder(4)
    assert not start_points._prior_sites(model).alone
    assert start_points.draw_starts(model, KEY, 2)[0].keys() == start_points.normal_start(model, KEY).keys()
