from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import numpy as np
import pytest

from latentens import Votes, log_likelihood, pointwise_log_likelihood, simulate
from latentens.checks.held_out import (
    PredictiveRanking,
    held_out_log_likelihood,
    leave_one_out,
    predictive_log_density,
    rank_predictions,
)
from latentens.errors import LatentensError
from latentens.methods import DawidSkeneEM, Ebcc, MajorityVote, MaximumLikelihood, RBMStack, TopDownMLE
from latentens.methods.base import Estimate, Method
from latentens.models import Tree
from latentens.rbm.machine import Machine
from tests import oracles
from tests.reference import SIX_VOTERS_SAMPLED, two_class

KEY = jax.random.key(0)
MODEL = SIX_VOTERS_SAMPLED.model
SAMPLER = replace(SIX_VOTERS_SAMPLED, num_samples=150)
TRUTH = two_class(0.4, np.full(6, 0.8), np.linspace(0.6, 0.85, 6))


def counts_of(rows):
    return oracles.count_votes(rows, 2)


def probability(says_one, rows):
    """Of rows of votes by voters who ignore the label."""
    return oracles.chance(oracles.two_votes(says_one), counts_of(rows))


@pytest.fixture(scope="module")
def votes():
    matrix = simulate(MODEL, 120, key=KEY, params=TRUTH).votes.matrix.copy()
    matrix[::7, 2] = -1
    matrix[5] = -1
    return Votes.from_matrix(matrix, num_classes=2)


@pytest.fixture(scope="module")
def sampled(votes):
    return SAMPLER.fit(votes, key=KEY)


def test_pointwise_log_likelihood_is_that_of_brute_force(votes):
    found = pointwise_log_likelihood(MODEL, TRUTH, votes)
    joint = oracles.dawid_skene(MODEL, TRUTH, counts_of(votes.matrix))
    np.testing.assert_allclose(found, np.log(joint.sum(axis=1)), atol=1e-9)
    assert found.sum() == pytest.approx(log_likelihood(MODEL, TRUTH, votes))


def test_a_fit_knows_the_likelihood_of_votes_whose_voters_come_in_another_order(votes):
    fit = DawidSkeneEM().fit(votes, key=KEY)
    expected = pointwise_log_likelihood(fit.model, fit.params, votes)
    assert expected.sum() == pytest.approx(fit.diagnostics.log_likelihood)
    assert expected[5] == pytest.approx(0, abs=1e-12)
    moved = Votes(votes.matrix[:, ::-1].copy(), *votes.shape, 2, voter_names=tuple(votes.voter_names)[::-1])
    np.testing.assert_allclose(fit.log_likelihood(moved), expected, atol=1e-12)


def test_draws_have_the_likelihoods_that_each_of_them_has_alone(votes, sampled):
    found = sampled.log_likelihood(votes)
    assert found.shape == (2, 150, votes.num_items)
    for chain, draw in ((0, 0), (1, 149)):
        params = {name: value[chain, draw] for name, value in sampled.draws.items()}
        np.testing.assert_allclose(found[chain, draw], pointwise_log_likelihood(MODEL, params, votes), atol=1e-9)


def test_ebcc_adds_up_its_subtypes(votes):
    fit = Ebcc(num_subtypes=2, restarts=1, max_iterations=5).fit(votes, key=KEY)
    shares = fit.params["prevalence"]
    for item in (0, 5, 7):
        total = 0.0
        for label in (0, 1):
            for subtype in (0, 1):
                term = shares[label] * fit.params["subtype_shares"][label, subtype]
                for voter, vote in enumerate(votes.matrix[item]):
                    term *= fit.params["subtype_confusion"][voter, label, subtype, vote] if vote >= 0 else 1.0
                total += term
        assert fit.log_likelihood(votes)[item] == pytest.approx(np.log(total))


def test_stack_gives_the_likelihood_of_its_lowest_machine(votes):
    fit = RBMStack(hidden=(1,)).fit(votes, key=KEY)
    params = {name: fit.params[name] for name in TRUTH}  # of the same distribution as an independent model
    expected = np.log(oracles.dawid_skene(MODEL, params, counts_of(votes.matrix)).sum(axis=1))
    np.testing.assert_allclose(fit.log_likelihood(votes), expected, atol=1e-9)
    assert fit.log_likelihood(votes).sum() == pytest.approx(fit.diagnostics.log_likelihood)


def test_a_machine_too_large_to_enumerate_has_no_exact_likelihood():
    generator = np.random.default_rng(0)
    sizes = 40, 40
    machine = Machine(*(generator.normal(size=shape) for shape in (sizes, sizes[0], sizes[1])))
    params = {f"{name}_1": part for name, part in machine._asdict().items()}
    rows = Votes.from_matrix(generator.integers(2, size=(5, 40)))
    assert RBMStack().log_likelihood_of(Estimate(params), rows) is None


def test_model_of_a_fit(votes):
    assert TopDownMLE(num_hidden=0).fit(votes, key=KEY).model == MODEL
    fit = MajorityVote().fit(votes, key=KEY)
    assert fit.model is None
    with pytest.raises(LatentensError, match="gives votes no exact probability"):
        fit.log_likelihood(votes)


def test_leave_one_out_is_what_refitting_without_the_item_says(votes, sampled):
    found = leave_one_out(sampled, votes)
    assert found.num_unreliable == 0
    for item in (0, 3):
        others = votes.take(np.delete(np.arange(votes.num_items), item))
        refit = SAMPLER.fit(others, key=KEY)
        exact = predictive_log_density(refit.log_likelihood(votes.take(np.array([item]))))
        assert found.log_density[item] == pytest.approx(exact[0], abs=0.05)


def test_leave_one_out_needs_draws(votes):
    with pytest.raises(LatentensError, match="has no posterior draws"):
        leave_one_out(DawidSkeneEM().fit(votes, key=KEY), votes)


@dataclass(frozen=True)
class Frequencies(Method):
    """Each voter's share of ones; remembers which items it has seen."""

    seen: ClassVar[list] = []

    def estimate(self, votes, key, gold=None):
        self.seen.append(set(votes.item_names))
        ones = np.array([np.mean(column[column >= 0]) for column in votes.matrix.T])
        return Estimate({"share": ones}, label_probs=np.full((votes.num_items, 2), 0.5))

    def posterior(self, estimate, votes):
        raise NotImplementedError

    def log_likelihood_of(self, estimate, votes):
        return np.log(probability(estimate.params["share"], votes.matrix))


def test_items_are_scored_by_fits_that_have_not_seen_them(votes):
    found = held_out_log_likelihood(Frequencies(), votes, key=KEY, folds=4)
    items = set(votes.item_names)
    unseen = [items - seen for seen in Frequencies.seen]
    assert [len(fold) for fold in unseen] == [30] * 4
    assert set.union(*unseen) == items
    for fold in unseen:
        fold = np.array(sorted(fold))
        rest = np.delete(votes.matrix, fold, axis=0)
        share = np.array([np.mean(column[column >= 0]) for column in rest.T])
        np.testing.assert_allclose(found[fold], np.log(probability(share, votes.matrix[fold])))


def test_folds_must_be_possible(votes):
    with pytest.raises(LatentensError, match="120 items cannot be split into 1 folds"):
        held_out_log_likelihood(DawidSkeneEM(), votes, key=KEY, folds=1)


def test_table_and_words():
    generator = np.random.default_rng(0)
    good = generator.normal(-2.0, 1.0, 50)
    ranking = PredictiveRanking({"poor": good - 1, "near": good + generator.normal(0, 0.1, 50) - 0.01, "good": good})
    table = ranking.table
    assert list(table.index) == ["good", "near", "poor"]
    assert table.loc["good", "elpd"] == pytest.approx(good.sum())
    assert table.loc["good", "standard_error"] == pytest.approx(np.sqrt(50) * good.std(ddof=1))
    assert table.loc["poor", ["difference", "difference_error"]].tolist() == pytest.approx([-50, 0])
    assert table.loc["good", "difference"] == 0
    assert "statistically tied with it: near." in ranking.summary
    assert "not that its labels are the best" in ranking.summary


@pytest.mark.slow
def test_the_model_that_the_votes_come_from_predicts_them_best():
    tree = Tree((0, 0, 0, 1, 1, 1))
    params = tree.example_params(jax.random.key(3))
    votes = simulate(tree, 600, key=KEY, params=params).votes
    methods = {
        "independent": DawidSkeneEM(random_starts=2),
        "tree": lambda seen: MaximumLikelihood(tree, starts=1, initial=(params,)),
    }
    ranking = rank_predictions(methods, votes, key=KEY, folds=2)
    assert ranking.table.index[0] == "tree"
    assert predictive_log_density(np.log([[[0.2, 0.4]], [[0.6, 0.4]]])) == pytest.approx(np.log([0.4, 0.4]))
