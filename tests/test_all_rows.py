"""All possible rows laid out at once: the same likelihoods as row by row, in one shape for all votes of a form."""

import itertools

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from latentens import Votes
from latentens.methods import MaximumLikelihood
from latentens.models import DawidSkene
from latentens.programs import marginal
from latentens.programs.row_layout import AllRows, DenseRows, all_rows, sum_votes
from latentens.programs.row_sums import Tables, log_joint, row_log_likelihood
from latentens.runtime.precision import double_precision

FORMS = {"votes depend on the label": (2, 2), "votes depend on states only": (1, 3), "three classes": (3, 2)}


def random_tables(parents: int, states: int, num_voters: int, classes: int, spread: float = 1.0) -> Tables:
    generator = np.random.default_rng(parents)
    prior = generator.dirichlet(np.ones(max(parents, 2) * states)).reshape(-1, states)
    emission = generator.normal(scale=spread, size=(parents, states, num_voters, classes))
    return Tables(np.log(prior), log_softmax(emission, axis=-1))


def by_loops(tables: Tables, rows: np.ndarray) -> np.ndarray:
    """`p(label, row)` by adding up every state."""
    labels, states = tables.log_prior.shape
    joint = np.zeros((labels, len(rows)))
    for label, state, row in itertools.product(range(labels), range(states), range(len(rows))):
        emission = tables.log_emission[label % len(tables.log_emission), state]
        log_votes = sum(emission[voter, vote] for voter, vote in enumerate(rows[row]))
        joint[label, row] += np.exp(tables.log_prior[label, state] + log_votes)
    return joint


@double_precision
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_products_of_halves_are_sums_over_states(form):
    parents, states = form
    classes, num_voters = max(parents, 2), 5
    tables = random_tables(parents, states, num_voters, classes)
    rows = np.array(list(itertools.product(range(classes), repeat=num_voters)))
    expected, laid_out = by_loops(tables, rows), all_rows(num_voters, classes)
    np.testing.assert_allclose(log_joint(tables, laid_out), np.log(expected), atol=1e-12)
    np.testing.assert_allclose(row_log_likelihood(tables, laid_out), np.log(expected.sum(axis=0)), atol=1e-12)
    table = np.asarray(tables.log_emission[0])
    one_by_one = [sum(table[:, voter, vote] for voter, vote in enumerate(row)) for row in rows]
    np.testing.assert_allclose(sum_votes(table, laid_out), np.transpose(one_by_one), atol=1e-12)


@double_precision
def test_halves_that_exclude_one_another_stay_finite():
    tables = random_tables(2, 1, 12, 2, spread=1000.0)
    value, gradient = jax.value_and_grad(lambda tables: row_log_likelihood(tables, all_rows(12, 2)).sum())(tables)
    assert np.isfinite(value)
    assert all(np.isfinite(part).all() for part in jax.tree.leaves(gradient))


def drawn(number: int, num_items: int = 1500) -> Votes:
    generator = np.random.default_rng(number)
    label = generator.integers(0, 2, num_items)
    rows = np.where(generator.random((num_items, 11)) < 0.7, label[:, None], 1 - label[:, None])
    return Votes.from_matrix(rows, 2)


@double_precision
def test_observations_of_all_rows_are_those_of_the_rows_that_occur(monkeypatch):
    model, votes = DawidSkene(11), drawn(0)
    tables = Tables(*map(np.asarray, random_tables(2, 1, 11, 2)))
    found = []
    for layout in (AllRows, DenseRows):
        if layout is DenseRows:
            monkeypatch.setattr(marginal, "mostly_occur", lambda *_: False)
        observations, inverse = marginal.observe(model, votes)
        assert isinstance(observations.rows, layout)
        assert float(observations.num_items) == votes.num_items
        slopes = jax.grad(marginal.marginal_log_likelihood)(tables, observations)
        found.append((slopes, marginal.label_log_joint(tables, observations, block_elements=64)[:, inverse]))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10), *found)


def test_all_rows_are_laid_out_only_if_votes_are_complete_and_enough_rows_occur():
    model, complete = DawidSkene(11), drawn(1)
    gaps = complete.matrix.copy()
    gaps[0, 0] = -1
    for votes, layout in ((complete, AllRows), (Votes.from_matrix(gaps, 2), DenseRows), (drawn(2, 200), DenseRows)):
        assert isinstance(marginal.observe(model, votes)[0].rows, layout)


def test_a_fit_does_not_depend_on_the_layout(monkeypatch):
    method = MaximumLikelihood(DawidSkene(11), starts=1)
    at_once = method.fit(drawn(3), key=jax.random.key(0))
    monkeypatch.setattr(marginal, "mostly_occur", lambda *_: False)
    by_row = method.fit(drawn(3), key=jax.random.key(0))
    assert at_once.diagnostics["log_likelihood"] == pytest.approx(by_row.diagnostics["log_likelihood"], abs=1e-6)
    np.testing.assert_allclose(at_once.label_probs, by_row.label_probs, atol=1e-4)
