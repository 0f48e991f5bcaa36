"""Models of the catalogue are recovered from many votes, and published figures are met."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from latentens import simulate
from latentens.datasets import load
from latentens.methods import MaximumLikelihood
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    HierarchicalDawidSkene,
    ItemDifficulty,
    Mace,
    OneCoin,
)
from tests.reference import KEY


@pytest.mark.slow
@pytest.mark.parametrize("model", [OneCoin, ClassConditional, Mace], ids=lambda model: model.__name__)
def test_parameters_are_recovered_from_many_votes(model):
    """From starts that know nothing of the truth."""
    three_classes = model(5, num_classes=3)
    drawn = simulate(three_classes, 100_000, key=KEY, params=three_classes.example_params(jax.random.key(3)))
    fit = MaximumLikelihood(three_classes, starts=2).fit(drawn.votes, key=KEY)
    for name, truth in drawn.params.items():
        np.testing.assert_allclose(fit.params[name], truth, atol=0.05, err_msg=name)


def identified(model, params):
    """What votes determine of the parameters."""
    if isinstance(model, HierarchicalDawidSkene):  # the confusion matrices; what voters share is a matter of the priors
        logits = params["population"] + params["spread"] * params["deviation"]
        return {"prevalence": params["prevalence"], "confusion": softmax(logits, axis=-1)}
    if isinstance(model, Confounder):  # all loadings can change sign
        return {**params, "loading": params["loading"] * np.sign(params["loading"].sum())}
    return params


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "tolerance"),
    [(HierarchicalDawidSkene(5, num_classes=3), 0.02), (ItemDifficulty(7), 0.1), (Confounder(7), 0.05)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_identified_is_recovered_from_many_votes(model, tolerance):
    drawn = simulate(model, 100_000, key=KEY, params=model.example_params(jax.random.key(3)))
    found = identified(model, MaximumLikelihood(model, starts=2).fit(drawn.votes, key=KEY).params)
    for name, truth in identified(model, drawn.params).items():
        np.testing.assert_allclose(found[name], truth, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    "model",
    [DawidSkene(5), pytest.param(ClassConditional(5), marks=pytest.mark.slow)],
    ids=lambda model: type(model).__name__,
)
def test_caries_has_its_published_maximum(model):
    fit = MaximumLikelihood(model, starts=0).fit(load("caries").votes, key=KEY)
    assert fit.diagnostics.log_likelihood == pytest.approx(-7465.385, abs=1e-3)
    assert fit.params["prevalence"][1] == pytest.approx(0.196, abs=5e-4)
