import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from latentens import GenerativeModel, Votes, log_likelihood, simulate
from latentens.errors import ContractError, VotesError
from latentens.methods import DawidSkeneEM, MaximumLikelihood
from latentens.methods.maximum_likelihood import _bound_warnings
from latentens.models import (
    DawidSkene,
    DeepBeliefNet,
    HierarchicalDawidSkene,
    LayeredGraph,
    TopDown,
    Tree,
    TruncatedGaussian,
)
from latentens.programs.parameters import flatten, to_point, transform_of, unflatten
from latentens.runtime.numerics import double_precision
from tests.conftest import arbitrary_params

KEY = jax.random.key(0)


def simulated(model, num_items=2000):
    return simulate(model, num_items, key=jax.random.key(1), params=model.example_params(jax.random.key(2)))


@pytest.fixture(scope="module")
def tree():
    return simulated(Tree())


@pytest.fixture(scope="module")
def voters():
    return simulated(DawidSkene(9), 3000)


@pytest.fixture(scope="module")
def height_by_hand(voters, iterations=2000):
    """Where Dawid & Skene's own updates on every row lead, from the vote shares."""
    matrix = voters.votes.matrix
    q = matrix.mean(axis=1)
    for _ in range(iterations):
        share, sensitivity = q.mean(), q @ matrix / q.sum()
        specificity = (1 - q) @ (1 - matrix) / (1 - q).sum()
        one = share * np.prod(np.where(matrix == 1, sensitivity, 1 - sensitivity), axis=1)
        zero = (1 - share) * np.prod(np.where(matrix == 1, 1 - specificity, specificity), axis=1)
        q = one / (one + zero)
    return np.log(one + zero).sum()


@pytest.mark.parametrize("algorithm", ["lbfgs", "em"])
def test_dawid_skene_equals_closed_form_em(voters, height_by_hand, algorithm):
    fit = MaximumLikelihood(voters.model, algorithm, starts=3, tolerance=1e-12).fit(voters.votes, key=KEY)
    assert fit.diagnostics.log_likelihood == pytest.approx(height_by_hand, rel=1e-8)
    assert fit.diagnostics.log_likelihood == pytest.approx(log_likelihood(voters.model, fit.params, voters.votes))
    np.testing.assert_allclose(fit.predict(voters.votes), fit.label_probs, atol=1e-12)
    assert fit.diagnostics["optima"][0]["starts"] >= (3 if algorithm == "em" else 1)
    assert fit.diagnostics.converged


@pytest.mark.parametrize("algorithm", ["lbfgs", pytest.param("em", marks=pytest.mark.slow)])
def test_tree_is_at_least_as_likely_as_the_truth(tree, algorithm):
    fit = MaximumLikelihood(Tree(), algorithm, starts=0).fit(tree.votes, key=KEY)
    assert fit.diagnostics.log_likelihood >= log_likelihood(Tree(), tree.params, tree.votes)
    assert np.mean(fit.codes == tree.labels) > 0.95
    size = 1 + 6 + 30
    assert fit.diagnostics["bic"] == pytest.approx(size * np.log(2000) - 2 * fit.diagnostics.log_likelihood)
    assert fit.diagnostics["aic"] == pytest.approx(2 * size - 2 * fit.diagnostics.log_likelihood)


@pytest.mark.parametrize(
    "model",
    [
        Tree((0, 0, 1, 1)),
        pytest.param(DawidSkene(4, num_classes=3), marks=pytest.mark.slow),
        pytest.param(TopDown(4, 2), marks=pytest.mark.slow),
        pytest.param(TruncatedGaussian(4), marks=pytest.mark.slow),
        pytest.param(LayeredGraph(4, (2, 2)), marks=pytest.mark.slow),
    ],
    ids=lambda model: type(model).__name__,
)
def test_em_never_falls(model):
    num_classes = getattr(model, "num_classes", 2)
    votes = Votes.from_matrix(np.random.default_rng(0).integers(-1, num_classes, (60, 4)), num_classes)
    start = arbitrary_params(model, seed=0)
    method = MaximumLikelihood(model, "em", starts=0, warm=(), initial=(start,), max_iterations=12)
    curve = method.fit(votes, key=KEY).diagnostics["curve"]
    assert len(curve) > 2
    assert (np.diff(curve) >= 0).all()
    assert curve[-1] > curve[0]


def test_prior_pulls_the_estimate(voters):
    few = voters.votes.take(np.arange(15))
    plain, held = (MaximumLikelihood(voters.model, starts=0, use_prior=p).fit(few, key=KEY) for p in (False, True))
    assert plain.diagnostics.log_likelihood > held.diagnostics.log_likelihood
    at_bound = re.compile("is at its bound|are at their bounds, 0 or 1")
    assert any(map(at_bound.search, plain.diagnostics.all_warnings))
    assert not any(map(at_bound.search, held.diagnostics.all_warnings))


def test_labels_are_oriented_and_parameters_with_them(tree):
    truth = {name: np.asarray(value) for name, value in tree.params.items()}
    mirrored = Tree().relabel(truth, np.array([1, 0]))
    assert log_likelihood(Tree(), mirrored, tree.votes) == pytest.approx(log_likelihood(Tree(), truth, tree.votes))
    fit = MaximumLikelihood(Tree(), starts=0, warm=(), initial=(mirrored,)).fit(tree.votes, key=KEY)
    assert np.mean(fit.codes == tree.labels) > 0.95
    np.testing.assert_allclose(fit.params["hidden_confusion"], truth["hidden_confusion"], atol=0.1)


@double_precision
def test_a_start_is_taken_as_given_unless_at_a_bound():
    model = TopDown(4, 3)
    params = arbitrary_params(model, 0) | {"weights": np.full((4, 3), 57.9), "prevalence": np.array([0.0, 1.0])}
    transform = transform_of(model)
    point = flatten(to_point(model, params), transform.point_shapes)
    again = unflatten(transform.constrain(point), transform.shapes)
    np.testing.assert_allclose(again["weights"], params["weights"])
    assert 0.999 < again["prevalence"][1] < 1


def test_gold_labels_clamp_and_orient(voters):
    gold = np.full(3000, -1)
    gold[:400] = 1 - voters.labels[:400]  # deliberately the wrong way round: known labels outrank the majority
    fit = MaximumLikelihood(voters.model, starts=3, warm=()).fit(voters.votes, key=KEY, gold=gold)
    np.testing.assert_array_equal(fit.label_probs[np.arange(400), gold[:400]], 1.0)
    assert np.mean(fit.codes[400:] == 1 - voters.labels[400:]) > 0.7
    em = MaximumLikelihood(voters.model, "em", starts=3, warm=()).fit(voters.votes, key=KEY, gold=gold)
    assert em.diagnostics.log_likelihood == pytest.approx(fit.diagnostics.log_likelihood, rel=1e-8)


def test_held_out_likelihood(voters):
    fit = MaximumLikelihood(voters.model, starts=0, held_out=0.25).fit(voters.votes, key=KEY)
    in_sample = fit.diagnostics.log_likelihood / 3000
    assert fit.diagnostics["held_out_log_likelihood"] == pytest.approx(in_sample, abs=0.1)


def test_flat_likelihood_is_said_to_be_flat():
    def coins(num_items, votes=None):
        bias = numpyro.sample("bias", dist.Normal(0, 1))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(0.5))
            says_one = 0.5 + 0.0 * bias + 0.2 * (label[..., None] - 0.5) * jnp.ones(3)
            numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)

    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (40, 3)))
    fit = MaximumLikelihood(GenerativeModel.from_program(coins), starts=2, warm=()).fit(votes, key=KEY)
    assert any("flat" in warning for warning in fit.diagnostics.all_warnings)


def test_label_that_votes_say_nothing_about_is_refused():
    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (40, 15)))
    with pytest.raises(ContractError, match="DeepBeliefNet.*'label' is not an ancestor of 'vote'"):
        MaximumLikelihood(DeepBeliefNet()).fit(votes, key=KEY)


def test_wrong_gold_labels(voters):
    with pytest.raises(VotesError, match="gold labels have shape"):
        MaximumLikelihood(voters.model).fit(voters.votes, key=KEY, gold=np.array([0, 1]))


def test_same_key_same_result(voters):
    first, again = (MaximumLikelihood(voters.model, starts=3).fit(voters.votes, key=KEY) for _ in range(2))
    np.testing.assert_array_equal(first.label_probs, again.label_probs)


def test_deviations_do_not_vanish_with_their_scale():
    """Without priors the hierarchical model can do all that Dawid and Skene's can, so it must not end lower."""
    generator, shape = np.random.default_rng(0), (1000, 50)
    labels = generator.integers(0, 4, 1000)[:, None]
    matrix = np.where(generator.random(shape) < np.linspace(0.2, 0.95, 50), labels, generator.integers(0, 4, shape))
    matrix[generator.random(shape) < 0.9] = -1
    votes = Votes.from_matrix(matrix, num_classes=4)
    limit = DawidSkeneEM(1e-10, 1e-10).fit(votes, key=KEY).diagnostics.log_likelihood / 1000
    method = MaximumLikelihood(HierarchicalDawidSkene(50, 4), starts=0, max_iterations=100)
    assert method.fit(votes, key=KEY).diagnostics.log_likelihood / 1000 > limit - 0.02


def test_many_parameters_at_their_bounds_are_counted():
    assert _bound_warnings("skill", np.array([0.0, 0.5, 1.0])) == [
        "skill[0] is at its bound, 0",
        "skill[2] is at its bound, 1",
    ]
    assert _bound_warnings("skill", np.zeros((30, 2))) == ["60 of the 60 elements of skill are at their bounds, 0 or 1"]
