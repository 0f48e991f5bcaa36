import jax
import numpy as np
import pytest

from latentens import Votes, log_likelihood, simulate
from latentens.errors import VotesError
from latentens.methods import RBMStack, TopDownMLE
from latentens.methods.top_down_mle import _from_stack
from latentens.models import DawidSkene, TopDown
from tests.reference import percent, two_class

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def chain():
    """Three voters tell each hidden unit well, and three units the label: the votes determine it."""
    weights = np.kron(np.eye(3), np.full((3, 1), 4.0))
    params = {
        "prevalence": np.full(2, 0.5),
        "hidden_bias": np.full(3, -2.0),
        "label_weights": np.full(3, 4.0),
        "visible_bias": -weights.sum(axis=1) / 2,
        "weights": weights,
    }
    return simulate(TopDown(9, 3), 4000, key=jax.random.key(1), params=params)


@pytest.fixture(scope="module")
def fit(chain):
    return TopDownMLE(num_hidden=3, starts=1).fit(chain.votes, key=KEY)


def test_its_own_model_is_fitted_as_well_as_the_truth(chain, fit):
    assert fit.diagnostics["architecture"] == (9, 3, 1)
    assert fit.diagnostics.log_likelihood > log_likelihood(chain.model, chain.params, chain.votes) - 1
    exact = chain.bayes_posterior().argmax(axis=1)
    assert np.mean(fit.codes == chain.labels) > np.mean(exact == chain.labels) - 0.01
    assert fit.diagnostics.label_change < 0.01
    np.testing.assert_allclose(fit.predict(chain.votes), fit.label_probs, atol=1e-10)


@pytest.mark.slow
def test_size_is_that_of_the_lowest_criterion(chain):
    fit = TopDownMLE(starts=2, max_hidden=4).fit(chain.votes, key=KEY)
    by_size = fit.diagnostics["bic_by_hidden_units"]
    assert list(by_size) == [0, 3]  # a fourth unit was tried and is not asked for
    assert fit.diagnostics["architecture"] == (9, 3, 1)
    assert fit.diagnostics["bic"] == pytest.approx(min(by_size.values()), abs=1)


def test_a_chain_that_would_grow_further_is_reported():
    method = TopDownMLE(max_hidden=5)
    assert "still falls at 5 hidden units" in method._limit_warnings({0: 9.0, 3: 8.0, 4: 7.0, 5: 6.0})[0]
    for by_size in ({0: 9.0, 3: 8.0, 4: 6.0, 5: 7.0}, {0: 9.0, 3: 8.0}, {0: 9.0, 5: 8.0}):
        assert method._limit_warnings(by_size) == []


@pytest.mark.slow
def test_start_from_the_stack_says_what_the_stack_says(chain):
    """The chain made of a stack gives votes nearly the distribution that the stack's lower machine gives them."""
    params = _from_stack(chain.votes, 3, KEY)
    stack = RBMStack(hidden=(3, 1)).fit(chain.votes, key=KEY)
    independent = TopDownMLE(num_hidden=0).fit(chain.votes, key=KEY).diagnostics.log_likelihood
    likelihood = log_likelihood(chain.model, params, chain.votes)
    assert likelihood > independent
    assert likelihood == pytest.approx(stack.diagnostics.log_likelihood, rel=0.01)


@pytest.mark.slow
def test_independent_voters_need_no_hidden_units():
    truth = two_class(0.5, np.full(6, 0.8), np.full(6, 0.7))
    dataset = simulate(DawidSkene(6), 2000, key=KEY, params=truth)
    fit = TopDownMLE(max_hidden=3, starts=1).fit(dataset.votes, key=KEY)
    assert fit.diagnostics["architecture"] == (6, 1)
    np.testing.assert_allclose(fit.sensitivity, 0.8, atol=0.06)


def test_more_than_two_classes_are_refused():
    with pytest.raises(VotesError, match="TopDownMLE is for two classes"):
        TopDownMLE().fit(Votes.from_matrix([[0, 1, 2]]), key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "least"), [("TG", 90.3), ("LG", 86.8), ("Tree", 95.4), ("condInd", 94.5)])
def test_accuracy_is_near_the_exact_bayes_rule(family, least):
    """Votes of TG do not come from a chain: its labels are not identified, and up to three points are lost."""
    assert np.mean([percent(TopDownMLE(), f"{family}/{number}") for number in (1, 2)]) >= least
