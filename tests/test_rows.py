"""Likelihood and derivatives in NumPy: against JAX, loops and NumPyro's transforms."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from latentens import GenerativeModel, Votes
from latentens.models import Confounder, DawidSkene, HierarchicalDawidSkene, ItemDifficulty, Tree
from latentens.programs.likelihood import marginal_log_likelihood, observe
from latentens.programs.parameters import flatten, transform_of, unflatten, unpack
from latentens.programs.rows import Rows, compiled_program
from latentens.programs.tables import build_tables
from latentens.runtime.numerics import double_precision
from tests.conftest import arbitrary_params

MODELS = (
    Tree((0, 0, 1, 1), 3),
    HierarchicalDawidSkene(4, 3),
    Confounder(4, num_nodes=31),
    pytest.param(ItemDifficulty(4, 3, num_nodes=31), marks=pytest.mark.slow),
)


def votes_of(model, sparse=False):
    rng = np.random.default_rng(0)
    votes = Votes.from_matrix(rng.integers(-1, model.num_classes, (60, 4)), model.num_classes)
    return Votes(votes.triplets, *votes.shape, votes.num_classes) if sparse else votes


@double_precision
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_value_and_gradient_are_those_of_the_traced_likelihood(model):
    transform, program = transform_of(model), compiled_program(model, True)
    point = transform.unconstrain(flatten(arbitrary_params(model, 0), transform.shapes))
    for sparse in (False, True):
        votes = votes_of(model, sparse)
        for gold in (None, np.random.default_rng(1).integers(-1, model.num_classes, 60)):
            observations, _ = observe(model, votes, gold)

            def traced(at, observations=observations):
                unpacked = unpack(model, at)
                return marginal_log_likelihood(build_tables(model, unpacked.params), observations) + unpacked.log_prior

            value, gradient = jax.jit(jax.value_and_grad(traced))(unflatten(point, transform.point_shapes))
            params = transform.constrain(point)
            tables, log_prior = program(params)
            found, counts = Rows.of(model, votes, gold).expect(tables)
            slopes = transform.pull_back(point, params, program.pull_back(params, counts))
            assert found + log_prior == pytest.approx(float(value), rel=1e-12)
            np.testing.assert_allclose(slopes, flatten(gradient, transform.point_shapes), rtol=1e-8, atol=1e-9)


@double_precision
def test_soft_labels_and_known_labels_by_loops():
    model, rng = DawidSkene(4, 3), np.random.default_rng(2)
    votes, params = votes_of(model), arbitrary_params(model, 1)
    tables = compiled_program(model, True)(flatten(params, transform_of(model).shapes)).tables
    joint = np.empty((60, 3))
    for item, label in np.ndindex(60, 3):
        said = [(voter, vote) for voter, vote in enumerate(votes.matrix[item]) if vote >= 0]
        joint[item, label] = np.log(params["prevalence"][label])
        joint[item, label] += sum(np.log(params["confusion"][voter, label, vote]) for voter, vote in said)
    gold, soft = rng.integers(-1, 3, 60), rng.dirichlet(np.ones(3), 60)
    rows = Rows.of(model, votes)
    np.testing.assert_allclose(rows.label_log_joint(tables).T[rows.inverse], joint, rtol=1e-12)
    totals = np.stack([np.bincount(rows.inverse, part, len(rows.counts)) for part in soft.T], axis=1)
    value, counts = rows.expect_labelled(tables, totals)
    assert value == pytest.approx(np.sum(soft * joint), rel=1e-12)
    np.testing.assert_allclose(counts.log_prior[:, 0], soft.sum(axis=0))
    known = Rows.of(model, votes, gold)
    allowed = (gold[:, None] < 0) | (gold[:, None] == np.arange(3))
    by_loops = sum(np.log(np.exp(joint[item][allowed[item]]).sum()) for item in range(60))
    assert known.expect(tables)[0] == pytest.approx(by_loops, rel=1e-12)
    assert np.isneginf(known.label_log_joint(tables).T[known.inverse][~allowed]).all()


def scaled(num_items, votes=None):
    """Bounds that are numbers."""
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    rate = numpyro.sample("rate", dist.Uniform(0.25, 0.75).expand((3,)).to_event(1))
    shares = numpyro.sample("shares", dist.Dirichlet(np.ones(4)))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(shares[0]))
        numpyro.sample("vote", dist.Bernoulli(abs(label[..., None] - rate) ** scale).to_event(1), obs=votes)


def dependent(num_items, votes=None):
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    rate = numpyro.sample("rate", dist.Uniform(0.0, scale / (1 + scale)).expand((3,)).to_event(1))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(0.5))
        numpyro.sample("vote", dist.Bernoulli(abs(label[..., None] - rate)).to_event(1), obs=votes)


@double_precision
@pytest.mark.parametrize(
    ("model", "in_numpy"),
    [
        (GenerativeModel.from_program(scaled), True),
        (GenerativeModel.from_program(dependent), False),
        (Confounder(4, num_classes=3), True),
    ],
    ids=["numbers", "dependent", "Confounder"],
)
def test_transforms_are_those_of_numpyro(model, in_numpy):
    transform = transform_of(model)
    assert (transform.by_name is not None) == in_numpy
    rng = np.random.default_rng(0)
    point = {name: 3 * rng.normal(size=shape) for name, shape in transform.point_shapes.items()}
    flat = flatten(point, transform.point_shapes)
    by_numpyro, pull_back = jax.vjp(lambda at: unpack(model, at).params, point)
    params = transform.constrain(flat)
    np.testing.assert_allclose(params, flatten(by_numpyro, transform.shapes), rtol=1e-12)
    np.testing.assert_allclose(transform.unconstrain(params), flat, rtol=1e-7)
    gradient = rng.normal(size=params.size)
    (slopes,) = pull_back(unflatten(gradient, transform.shapes))
    expected = flatten(slopes, transform.point_shapes)
    np.testing.assert_allclose(transform.pull_back(flat, params, gradient), expected, rtol=1e-9, atol=1e-12)
