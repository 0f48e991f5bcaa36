"""What the models say about themselves: relabelling, special cases, priors as settings."""

import jax
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, dirichlet, norm

from latentens import GenerativeModel, Votes, bayes_posterior, log_likelihood, models, simulate
from latentens.errors import LatentensError
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    DeepBeliefNet,
    HierarchicalDawidSkene,
    ItemDifficulty,
    LayeredGraph,
    Mace,
    OneCoin,
    TopDown,
    Tree,
    TruncatedGaussian,
)
from latentens.programs.contract import structure_of
from latentens.programs.parameters import unconstrain, unpack
from tests.conftest import CATALOGUE
from tests.reference import KEY, two_class


def test_every_model_is_in_the_catalogue():
    assert {type(model).__name__ for model, _ in CATALOGUE.values()} >= set(models.__all__)


def test_every_model_documents_itself():
    for name in models.__all__:
        text = getattr(models, name).__doc__
        assert all(part in text for part in ("Density::", "Plates", "Reference:", "identif", "Attributes:")), name


def test_every_model_relabels_its_parameters_or_says_that_it_cannot(any_case):
    model, params, _ = any_case
    num_classes = getattr(model, "num_classes", 2)
    order = np.roll(np.arange(num_classes), 1)
    unchanged = model.relabel(params, np.arange(num_classes))
    assert all(unchanged[name] is params[name] for name in params)
    relabelled = model.relabel(params, order)
    if relabelled is None:
        cannot = isinstance(model, DeepBeliefNet) or (isinstance(model, ItemDifficulty) and num_classes > 2)
        assert model.anchored or cannot or type(model).__name__ == "_FunctionModel"
        return
    assert not model.anchored
    matrix = np.random.default_rng(0).integers(0, num_classes, (20, structure_of(model).num_voters))
    votes = Votes.from_matrix(matrix, num_classes=num_classes)
    posterior = bayes_posterior(model, params, votes)[:, order]
    np.testing.assert_allclose(bayes_posterior(model, relabelled, votes), posterior, atol=1e-10)
    assert log_likelihood(model, relabelled, votes) == pytest.approx(log_likelihood(model, params, votes), rel=1e-10)


def test_draws_are_relabelled_together():
    model, rng = HierarchicalDawidSkene(4, num_classes=3), np.random.default_rng(0)
    draws = {"prevalence": rng.dirichlet(np.ones(3), 7), "deviation": rng.normal(size=(7, 4, 3, 3))}
    draws |= {name: rng.normal(size=(7, 3, 3)) for name in ("population", "spread")}
    order = np.array([2, 0, 1])
    together = model.relabel(draws, order)
    for draw in range(7):
        alone = model.relabel({name: value[draw] for name, value in draws.items()}, order)
        for name, value in alone.items():
            np.testing.assert_array_equal(together[name][draw], value)


def test_a_users_model_needs_neither_example_nor_relabelling():
    model = GenerativeModel.from_program(lambda num_items, votes=None: None)
    assert model.example_params(KEY) is None
    assert model.relabel({"skill": 1.0}, np.array([1, 0])) is None
    assert model.relabel({"skill": 1.0}, np.array([0, 1])) == {"skill": 1.0}


@pytest.fixture(scope="module")
def few_votes():
    rows = np.random.default_rng(1).integers(-1, 2, (40, 5))
    return Votes.from_matrix(rows, num_classes=2)


SHARES = np.array([0.7, 0.3])


def test_equal_loadings_are_a_truncated_gaussian(few_votes):
    mean, correlation = np.linspace(-0.3, 1.1, 5), 0.6
    gaussian = {"prevalence": SHARES, "correlation": correlation, "mean": mean}
    accuracy, loading = norm.cdf(mean), np.full(5, np.sqrt(correlation))
    params = two_class(0.3, accuracy, accuracy) | {"loading": loading}
    expected = bayes_posterior(TruncatedGaussian(5), gaussian, few_votes)
    np.testing.assert_allclose(bayes_posterior(Confounder(5), params, few_votes), expected, atol=1e-10)


def test_models_without_their_complication_are_dawid_skene(few_votes):
    rng = np.random.default_rng(2)
    accuracy = rng.uniform(0.2, 0.9, (5, 2))
    independent = two_class(0.3, accuracy[:, 1], accuracy[:, 0])
    logits = np.log(accuracy / (1 - accuracy))
    strategy = np.full((5, 2), 0.5)
    population = np.zeros((2, 2))
    deviation = np.einsum("jk,kv->jkv", logits, np.eye(2))
    special = {
        ClassConditional(5): {"prevalence": SHARES, "accuracy": accuracy},
        Confounder(5): independent | {"loading": np.zeros(5)},
        ItemDifficulty(5): {"prevalence": SHARES, "ability": logits, "difficulty_scale": 1e-12},
        HierarchicalDawidSkene(5): {
            "prevalence": SHARES,
            "population": population,
            "spread": np.ones((2, 2)),
            "deviation": deviation,
        },
    }
    expected = bayes_posterior(DawidSkene(5), independent, few_votes)
    for model, params in special.items():
        np.testing.assert_allclose(bayes_posterior(model, params, few_votes), expected, atol=1e-10, err_msg=str(model))
    competence = rng.uniform(0.1, 0.8, 5)
    coins = {"prevalence": SHARES, "accuracy": (1 + competence) / 2}
    guessers = {"prevalence": SHARES, "competence": competence, "strategy": strategy}
    expected = bayes_posterior(OneCoin(5), coins, few_votes)
    np.testing.assert_allclose(bayes_posterior(Mace(5), guessers, few_votes), expected, atol=1e-10)


@pytest.mark.parametrize("model", [Confounder, ItemDifficulty])
def test_few_nodes_are_enough_for_few_votes(model, few_votes):
    exact, coarse = model(few_votes.num_voters), model(few_votes.num_voters, num_nodes=61)
    params = exact.example_params(KEY)
    assert "61" in str(coarse)
    np.testing.assert_allclose(
        bayes_posterior(coarse, params, few_votes), bayes_posterior(exact, params, few_votes), atol=1e-6
    )


def test_difficulty_makes_right_votes_correlate():
    model = ItemDifficulty(2, difficulty_scale=1.5)
    params = {"prevalence": SHARES, "ability": [[0.5, 1.0], [1.5, -0.5]]}
    drawn = simulate(model, 100_000, key=KEY, params=params)
    right = drawn.votes.matrix == drawn.labels[:, None]
    nodes = np.random.default_rng(0).normal(size=100_000)
    for label in (0, 1):
        expected = expit(np.array(params["ability"])[:, label] - 1.5 * nodes[:, None])
        both = np.mean(expected.prod(axis=1))
        assert np.mean(right[drawn.labels == label].all(axis=1)) == pytest.approx(both, abs=0.01)


def prior_density(model, params):
    """The log prior density of parameters, by NumPyro's own trace of the program."""
    with jax.enable_x64(True):
        return float(jax.jit(lambda values: unpack(model, unconstrain(model, values)).log_prior)(params))


def test_priors_are_settings():
    params = {"prevalence": np.array([0.2, 0.3, 0.5]), "confusion": np.array([[[0.7, 0.2, 0.1]] * 3] * 2)}
    confusion_prior = [[8, 1, 1], [1, 8, 1], [2, 2, 8]]
    model = DawidSkene(2, num_classes=3, prevalence_prior=(1, 2, 3), confusion_prior=confusion_prior)
    expected = dirichlet.logpdf(params["prevalence"], [1, 2, 3])
    expected += sum(2 * dirichlet.logpdf(params["confusion"][0, k], confusion_prior[k]) for k in range(3))
    assert prior_density(model, params) == pytest.approx(expected, rel=1e-12)
    assert model == DawidSkene(2, 3, (1.0, 2.0, 3.0), tuple(map(tuple, confusion_prior)))
    assert len({model, DawidSkene(2, 3, prevalence_prior=np.array([1, 2, 3]), confusion_prior=confusion_prior)}) == 1


def test_two_classes_have_their_priors_in_the_order_of_the_classes():
    params = two_class(0.2, np.array([0.7]), np.array([0.9]))
    model = DawidSkene(1, prevalence_prior=(5, 2), confusion_prior=((6, 3), (1, 4)))
    expected = beta.logpdf(0.2, 2, 5) + beta.logpdf(0.7, 4, 1) + beta.logpdf(0.9, 6, 3)
    assert prior_density(model, params) == pytest.approx(expected, rel=1e-12)
    of_voter = DawidSkene(1, prevalence_prior=(5, 2), confusion_prior=(((6, 3), (1, 4)),))
    assert prior_density(of_voter, params) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DawidSkene(3, num_classes=1), "DawidSkene: num_classes must be at least 2, not 1"),
        (lambda: DawidSkene(0), "DawidSkene: num_voters must be at least 1, not 0"),
        (lambda: DawidSkene(2.5), "num_voters must be a whole number"),
        (lambda: DawidSkene(3, prevalence_prior=(1, 1, 1)), r"one number or of shape \(2,\), not of shape \(3,\)"),
        (lambda: DawidSkene(3, prevalence_prior=-1), "prevalence_prior must be positive, but holds -1"),
        (lambda: DawidSkene(3, confusion_prior=2.0), r"of shape \(2, 2\) or of shape \(3, 2, 2\), not one number"),
        (lambda: DawidSkene(3, confusion_prior=((4, 2), (2, 0))), "confusion_prior must be positive, but holds 0"),
        (lambda: DawidSkene(3, prevalence_prior=float("nan")), "prevalence_prior must be finite"),
        (lambda: DawidSkene(3, confusion_prior=((4, 2), (1,))), "numbers only, in rows of one length"),
        (lambda: DawidSkene(3, confusion_prior="strong"), "DawidSkene: confusion_prior must be .*, not 'strong'"),
        (lambda: OneCoin(3, accuracy_prior=(4, 2, 1)), r"OneCoin: accuracy_prior must be .*, not of shape \(3,\)"),
        (lambda: ClassConditional(3, accuracy_prior=-2), "ClassConditional: accuracy_prior must be .*, not one number"),
        (lambda: HierarchicalDawidSkene(3, population_prior=(0, 1)), r"must be of shape \(2, 2, 2\), not of"),
        (lambda: HierarchicalDawidSkene(3, spread_prior=0), "spread_prior must be above 0"),
        (lambda: Mace(3, strategy_prior=(1, 2, 3)), r"Mace: strategy_prior must be one number or of shape \(2,\)"),
        (lambda: ItemDifficulty(3, ability_prior=(1, 0)), r"ability_prior must be \(mean, standard deviation\), but"),
        (lambda: ItemDifficulty(3, difficulty_scale=-1), "difficulty_scale must be None or above 0"),
        (lambda: Confounder(3, loading_prior=(1, 0)), "Confounder: loading_prior must be positive"),
        (lambda: Tree((0, 0), num_classes=1), "Tree: num_classes must be at least 2"),
        (lambda: Tree((0, 0), hidden_prior=((1, 2, 3),)), r"Tree: hidden_prior must be .*, not of shape \(1, 3\)"),
        (lambda: TopDown(3, 0), "TopDown: num_hidden must be"),
        (lambda: TopDown(3, weight_scale=-1), "TopDown: weight_scale must be above 0"),
        (lambda: DeepBeliefNet(3, bias_scale=0), "DeepBeliefNet: bias_scale must be above 0"),
        (lambda: LayeredGraph(3, (2, 0)), "LayeredGraph: layers must be a tuple in which each value is at least 1"),
        (lambda: LayeredGraph(3, sensitivity_prior=(1,)), r"LayeredGraph: sensitivity_prior must be of shape \(2,\)"),
        (lambda: TruncatedGaussian(3, mean_prior=(0, -1)), "mean_prior must be .* but holds the deviation -1"),
    ],
)  # fmt: skip
def test_impossible_settings_are_named(make, message):
    with pytest.raises(LatentensError, match=message):
        make()


def test_short_names_leave_out_defaults():
    assert str(DawidSkene()) == "DawidSkene()"
    assert str(DawidSkene(3, num_classes=4)) == "DawidSkene(num_voters=3, num_classes=4)"
    assert "prevalence_prior=2.0" in repr(DawidSkene(3))
