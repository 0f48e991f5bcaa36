import jax
import numpy as np
import pytest

from latentens import log_likelihood, simulate
from latentens.methods import LayeredGraphMLE
from latentens.methods.top_down_mle import UNDETERMINED, _linear_mixture, chain_start
from latentens.models import LayeredGraph, TopDown
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from tests.reference import KEY

GRAPH = LayeredGraph(8, (3, 3))


def test_edges_mix_into_the_linear_function():
    """Against the sum over edges, state by state; the little that keeps every edge alive is the difference."""
    generator = np.random.default_rng(0)
    slopes = generator.uniform(-0.25, 0.25, (6, 3))
    intercepts = 0.5 - slopes.sum(axis=1) / 2
    sensitivity, specificity, weight = _linear_mixture(intercepts, slopes)
    np.testing.assert_allclose(weight.sum(axis=1), 1)
    for state in np.ndindex(2, 2, 2):
        mixed = (weight * np.where(state, sensitivity, 1 - specificity)).sum(axis=1)
        np.testing.assert_allclose(mixed, intercepts + slopes @ state, atol=0.02)


@double_precision
def votes_given_label(model, params):
    tables = checked_tables(model, params)
    joint = np.exp(tables.log_prior)
    return np.einsum("ls,sv->lv", joint / joint.sum(axis=1, keepdims=True), np.exp(tables.log_emission[0])[..., 1])


@pytest.mark.slow
def test_start_is_close_to_the_chain_whichever_way_its_units_are_turned():
    chain = dict(TopDown(8, 3).example_params(KEY))
    turned = chain | {
        "hidden_bias": -chain["hidden_bias"],
        "label_weights": -chain["label_weights"],
        "visible_bias": chain["visible_bias"] + chain["weights"].sum(axis=1),
        "weights": -chain["weights"],
    }
    start = chain_start(GRAPH, chain)
    for name, value in chain_start(GRAPH, turned).items():
        np.testing.assert_allclose(value, start[name], atol=1e-9)
    np.testing.assert_allclose(votes_given_label(GRAPH, start), votes_given_label(TopDown(8, 3), chain), atol=0.1)


@pytest.mark.slow
def test_fit_is_higher_than_the_truth():
    data = simulate(GRAPH, 2_000, key=KEY, params=GRAPH.example_params(jax.random.key(1)))
    found = LayeredGraphMLE((3, 3)).fit(data.votes, key=KEY)
    assert found.model == GRAPH
    assert found.diagnostics.all_warnings == [UNDETERMINED]
    assert found.diagnostics.log_likelihood == pytest.approx(log_likelihood(GRAPH, found.params, data.votes))
    assert found.diagnostics.log_likelihood > log_likelihood(GRAPH, data.params, data.votes)
