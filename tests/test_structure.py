import re
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from latentens import GenerativeModel
from latentens.errors import ContractError
from latentens.models import DawidSkene, DeepBeliefNet, LayeredGraph, Tree, TruncatedGaussian
from latentens.programs import contract as structure
from latentens.programs.contract import structure_of
from latentens.programs.distributions import QuadratureNormal, log_normal_cells, log_probabilities
from latentens.runtime.numerics import double_precision


def vote(says_one=0.7):
    numpyro.sample("vote", dist.Bernoulli(says_one * jnp.ones(4)).to_event(1))


def label():
    return numpyro.sample("label", dist.Bernoulli(0.5))


def no_label(num_items, votes=None):
    with numpyro.plate("item", num_items):
        vote()


def label_outside(num_items, votes=None):
    numpyro.sample("label", dist.Normal(0, 1))
    with numpyro.plate("item", num_items):
        vote()


def no_vote(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()


def other_plate(num_items, votes=None):
    with numpyro.plate("items", num_items):
        numpyro.sample("label", dist.Normal(0, 1))
        numpyro.sample("vote", dist.Normal(0, 1))


def vote_not_factorised(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("vote", dist.MultivariateNormal(jnp.zeros(4), jnp.eye(4)))


def vote_scalar(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("vote", dist.Bernoulli(0.5))


def vote_masked(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("vote", dist.Bernoulli(jnp.full(4, 0.5)).to_event(1).mask(jnp.arange(num_items) > 0))


def vote_in_second_plate(num_items, votes=None):
    with numpyro.plate("item", num_items, dim=-2):
        numpyro.sample("label", dist.Bernoulli(0.5))
        with numpyro.plate("voter", 4, dim=-1):
            numpyro.sample("vote", dist.Bernoulli(0.5))


def vote_continuous(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("vote", dist.Normal(jnp.zeros(4), 1.0).to_event(1))


def continuous_hidden(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("difficulty", dist.Normal(0, 1))
        vote()


def infinite_hidden(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("count", dist.Poisson(3.0))
        vote()


def difficulty_outside(num_items, votes=None):
    numpyro.sample("difficulty", dist.Normal(0, 1).expand((num_items,)).to_event(1))
    with numpyro.plate("item", num_items):
        label()
        vote()


def discrete_parameter(num_items, votes=None):
    numpyro.sample("kind", dist.Bernoulli(0.5))
    with numpyro.plate("item", num_items):
        label()
        vote()


def point_parameter(num_items, votes=None):
    numpyro.param("skill", 0.5)
    with numpyro.plate("item", num_items):
        label()
        vote()


def observed_covariate(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("length", dist.Bernoulli(0.5), obs=jnp.zeros(num_items))
        vote()


def hidden_plate(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        with numpyro.plate("unit", 2):
            numpyro.sample("hidden", dist.Bernoulli(0.5))
        vote()


def rescaled(num_items, votes=None):
    with numpyro.plate("item", num_items), numpyro.handlers.scale(scale=2.0):
        label()
        vote()


def label_not_codes(num_items, votes=None):
    with numpyro.plate("item", num_items):
        numpyro.sample("label", dist.Bernoulli(jnp.full(2, 0.5)).to_event(1))
        vote()


def label_after_vote(num_items, votes=None):
    with numpyro.plate("item", num_items):
        cast = numpyro.sample("vote", dist.Bernoulli(jnp.full(4, 0.7)).to_event(1))
        numpyro.sample("label", dist.Bernoulli(logits=cast.sum(-1) - 2.0))


def vote_by_chance(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        numpyro.sample("vote", dist.Bernoulli(jnp.full(4, 0.5)).to_event(1))


def forty_hidden_units(num_items, votes=None):
    with numpyro.plate("item", num_items):
        label()
        hidden = numpyro.sample("hidden", dist.Bernoulli(jnp.full(40, 0.5)).to_event(1))
        vote(0.3 + 0.4 * hidden[..., :1])


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (no_label, "site 'label' is missing; sample 'label' inside"),
        (label_outside, "site 'label' is outside the plate 'item'"),
        (no_vote, "site 'vote' is missing"),
        (other_plate, "site 'label' is outside the plate 'item'"),
        (vote_not_factorised, "site 'vote' does not factorise over voters .MultivariateNormal.*to_event"),
        (vote_scalar, "site 'vote' does not factorise over voters"),
        (vote_masked, "site 'vote' is masked; remove the mask"),
        (vote_in_second_plate, "site 'label' has batch shape"),
        (vote_continuous, "site 'vote' is continuous .Normal."),
        (continuous_hidden, "site 'difficulty' is continuous .Normal. inside the plate.*QuadratureNormal"),
        (infinite_hidden, "site 'count' has no finite support .Poisson."),
        (difficulty_outside, "site 'difficulty' has one value per item"),
        (discrete_parameter, "site 'kind' is discrete but outside"),
        (point_parameter, "site 'skill' is a numpyro.param"),
        (observed_covariate, "site 'length' is observed"),
        (hidden_plate, "site 'hidden' is also in the plate 'unit'"),
        (rescaled, "site 'label' is rescaled"),
        (label_not_codes, "site 'label' does not take the values 0, 1"),
        (vote_by_chance, "site 'vote' does not depend on any site of its item; make votes depend on the label"),
        (label_after_vote, "site 'label' depends on 'vote'"),
        (forty_hidden_units, "'hidden' would be summed over 1,099,511,627,776 .*limit.*fewer hidden units"),
    ],
)
def test_broken_contract_names_site_and_remedy(program, message):
    with pytest.raises(ContractError, match=message) as raised:
        structure_of(GenerativeModel.from_program(program))
    assert re.match(rf"test_structure.py, line \d+: {program.__name__}: ", str(raised.value))
    assert "\n" not in str(raised.value)


def test_unhashable_model_is_refused():
    @dataclass(frozen=True)
    class WithArray(GenerativeModel):
        skills: np.ndarray = field(default_factory=lambda: np.ones(3))

        def program(self, num_items, votes=None):
            raise NotImplementedError

    with pytest.raises(ContractError, match="WithArray cannot be hashed.*tuples instead of arrays"):
        structure_of(WithArray())


def test_limit_counts_joint_configurations(monkeypatch):
    monkeypatch.setattr(structure, "refuse_too_many", partial(structure.refuse_too_many, limit=31))
    with pytest.raises(ContractError, match="'hidden_1' would be summed over 32 joint"):
        structure_of(LayeredGraph(num_voters=7))


def test_parents_and_ancestors_are_read_off_the_program():
    layered = structure_of(LayeredGraph())
    assert {name: set(site.parents) for name, site in layered.hidden.items()} == {
        "label": set(),
        "hidden_1": {"label"},
        "hidden_2": {"hidden_1"},
    }
    assert layered.vote_parents == {"hidden_2"}
    assert structure_of(TruncatedGaussian()).vote_parents == {"label", "factor"}
    assert structure_of(Tree()).label_informs_votes
    assert structure_of(DawidSkene()).label_informs_votes
    assert not structure_of(DeepBeliefNet()).label_informs_votes


def test_prior_factors_are_no_parameters():
    def program(num_items, votes=None):
        skill = numpyro.sample("skill", dist.Beta(2, 2))
        numpyro.factor("extra", jnp.log(skill))
        with numpyro.plate("item", num_items):
            vote(jnp.where(label()[..., None] == 1, skill, 1 - skill))

    assert structure_of(GenerativeModel.from_program(program)).parameter_shapes == {"skill": ()}


def test_quadrature_support_has_the_moments_of_the_normal_distribution():
    nodes = QuadratureNormal()
    moments = [np.sum(np.exp(nodes.log_quadrature_weights) * nodes.nodes**k) for k in (0, 1, 2, 4, 8)]
    np.testing.assert_allclose(moments, [1, 0, 1, 3, 105], rtol=1e-10, atol=1e-10)


@double_precision
@pytest.mark.parametrize("num_bounds", [1, 2, 4])
def test_probability_between_bounds_in_both_tails(num_bounds):
    bounds = np.sort(np.random.default_rng(num_bounds).normal(size=(200, num_bounds)) * 10, axis=-1)
    bounds = np.concatenate([bounds, np.linspace(-35, -30, num_bounds)[None], np.linspace(30, 35, num_bounds)[None]])
    ends = np.full((len(bounds), 1), np.inf)
    lower, upper = np.concatenate([-ends, bounds], axis=1), np.concatenate([bounds, ends], axis=1)
    flipped = lower > -upper  # taken in the lower tail, where differences are exact
    lower, upper = np.where(flipped, -upper, lower), np.where(flipped, -lower, upper)
    exact = norm.logcdf(upper) + np.log1p(-np.exp(norm.logcdf(lower) - norm.logcdf(upper)))
    np.testing.assert_allclose(jax.jit(log_normal_cells)(bounds), exact, rtol=1e-9, atol=1e-13)
    slope = jax.jit(jax.jacfwd(log_normal_cells))(bounds[0])
    by_density = np.diff(np.pad(np.diag(norm.pdf(bounds[0])), ((1, 1), (0, 0))), axis=0) / np.exp(exact[0])[:, None]
    np.testing.assert_allclose(slope, by_density, rtol=1e-8, atol=1e-12)


@double_precision
def test_between_bounds_that_coincide_values_are_low_and_slopes_finite():
    for place in (-3.0, 0.0, 2.0):
        values, slope = jax.jit(lambda x: (log_normal_cells(x), jax.jacrev(log_normal_cells)(x)))(jnp.full(2, place))
        assert values[1] < -30
        assert np.isfinite(slope).all()


@double_precision
@pytest.mark.parametrize(
    "distribution",
    [
        dist.Categorical(logits=np.array([[0.3, -2.0, 50.0], [0.0, 0.0, -800.0]])),
        dist.Categorical(probs=np.array([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])),
        dist.Bernoulli(np.array([0.2, 1.0])),
        dist.Categorical(probs=np.array([0.2, 0.8])).expand([3]),
    ],
    ids=["logits", "probs", "Bernoulli", "expanded"],
)
def test_log_probabilities_are_those_of_each_value(distribution):
    num_values = len(distribution.enumerate_support())
    found = log_probabilities(distribution, num_values)
    one_by_one = [distribution.log_prob(np.full(distribution.batch_shape, value)) for value in range(num_values)]
    np.testing.assert_allclose(found, np.stack(one_by_one, axis=-1), rtol=1e-12)
