import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from latentens import GenerativeModel, bayes_posterior, fit_from_draws, log_likelihood, simulate
from latentens.errors import ContractError, LimitError
from latentens.inference import nuts_chains
from latentens.inference.density import convergence_words
from latentens.inference.nuts_chains import CHUNK, Sampler
from latentens.methods import Nuts
from latentens.methods.sampled import _divergence_words
from latentens.models import DawidSkene, DeepBeliefNet
from tests.reference import SIX_VOTERS_SAMPLED, two_class

KEY = jax.random.key(0)


def one_skill(num_items, votes=None):
    """Five equally skilled voters: a posterior that a grid can hold."""
    skill = numpyro.sample("skill", dist.Beta(2.0, 2.0))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(0.3))
        says_one = jnp.where(label == 1, skill, 1 - skill)[..., None] * jnp.ones(5)
        numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)


@pytest.fixture(scope="module")
def by_grid():
    """Votes, a grid of skills, its posterior weights, and the posterior of the labels averaged over it."""
    model = GenerativeModel.from_program(one_skill)
    votes = simulate(model, 40, key=KEY, params={"skill": 0.7}).votes
    grid = np.linspace(0.51, 0.99, 49)
    log_weights = np.log(grid * (1 - grid)) + [log_likelihood(model, {"skill": s}, votes) for s in grid]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    labels = sum(w * bayes_posterior(model, {"skill": s}, votes) for w, s in zip(weights, grid, strict=True))
    return model, votes, grid, weights, labels


@pytest.fixture(scope="module")
def sampled(by_grid):
    return Nuts(by_grid[0], num_chains=2, num_warmup=300, num_samples=1000).fit(by_grid[1], key=KEY)


def test_draws_have_the_moments_of_the_exact_posterior(by_grid, sampled):
    _, _, grid, weights, labels = by_grid
    draws, ess = sampled.draws["skill"], sampled.diagnostics["ess"]["skill"]
    mean = weights @ grid
    deviation = np.sqrt(weights @ (grid - mean) ** 2)
    assert draws.shape == (2, 1000)
    assert draws.mean() == pytest.approx(mean, abs=4 * deviation / np.sqrt(ess))
    assert draws.std() == pytest.approx(deviation, rel=0.15)
    np.testing.assert_allclose(sampled.label_probs, labels, atol=0.02)


def test_prediction_averages_over_draws(by_grid, sampled):
    np.testing.assert_allclose(sampled.predict(by_grid[1]), sampled.label_probs, atol=0.02)


def test_healthy_chains_are_said_to_be_healthy(sampled):
    diagnostics = sampled.diagnostics
    assert diagnostics["divergences"] == 0
    assert diagnostics["r_hat"]["labels of frequent vote patterns"] < 1.02
    assert set(diagnostics["sample_stats"]) >= {"lp", "diverging", "acceptance_rate", "n_steps"}
    assert all(value.shape[:2] == (2, 1000) for value in diagnostics["sample_stats"].values())


def test_label_switching_is_removed_draw_by_draw():
    """A chain that starts in the mirrored mode ends up with the same labels and parameters as the others."""
    model = DawidSkene(6)
    truth = two_class(0.4, np.full(6, 0.8), np.full(6, 0.75))
    dataset = simulate(model, 600, key=KEY, params=truth)
    fit = SIX_VOTERS_SAMPLED.fit(dataset.votes, key=KEY)
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in fit.draws.items()}
    half = {name: value.copy() for name, value in flat.items()}
    for name, value in model.relabel({n: v[::2] for n, v in flat.items()}, np.array([1, 0])).items():
        half[name][::2] = value
    mended = fit_from_draws(model, dataset.votes, half)
    np.testing.assert_allclose(mended.label_probs, fit.label_probs, atol=1e-12)
    np.testing.assert_allclose(mended.draws["confusion"][0], flat["confusion"], atol=1e-12)
    assert (mended.state["label_orders"] == [0, 1]).all()
    assert (np.abs(fit.sensitivity - 0.8) < 0.15).all()


def test_words_for_what_goes_wrong():
    good = {"log density": 1.0, "labels of frequent vote patterns": 1.0}
    assert convergence_words(good, {"skill": 1.0}) == []
    assert "multimodal" in convergence_words(good | {"log density": 1.6}, {"skill": 1.6})[0]
    assert "not converged" in convergence_words(good | {"log density": 1.05}, {"skill": 1.0})[0]
    assert "hidden units changed places" in convergence_words(good, {"weights": 1.7})[0]
    assert "not converged" in convergence_words(good, {"skill": 1.05})[0]
    assert "2 of 4 draws ended in a divergence" in _divergence_words(np.array([[True, False], [False, True]]))[0]


def test_a_label_that_votes_say_nothing_about_is_refused():
    votes = simulate(DeepBeliefNet(), 20, key=KEY, params=DeepBeliefNet().example_params(KEY)).votes
    with pytest.raises(ContractError, match="not an ancestor of 'vote'"):
        Nuts(DeepBeliefNet()).fit(votes, key=KEY)


def test_draws_that_do_not_fit_into_memory_are_refused_before_sampling(monkeypatch):
    monkeypatch.setenv("LATENTENS_MEMORY", "1KiB")
    with pytest.raises(LimitError, match=r"sampling 4 chains of 13 parameters would take about .* of memory"):
        Sampler(DawidSkene(6), 10, 10, False, 0.8, 10).check_memory(4)


@pytest.mark.parametrize(("warmup", "samples"), [(30, 40), (50, 50), (70, 81)])
def test_draws_are_those_after_adaptation(monkeypatch, warmup, samples):
    steps = iter(range(10**6))

    def advance(sampler, observations, state):
        return state, ({"x": np.array([next(steps) for _ in range(CHUNK)])}, {"n": np.zeros(CHUNK)})

    monkeypatch.setattr(nuts_chains, "_advance", advance)
    sampler = Sampler(DawidSkene(6), warmup, samples, False, 0.8, 10)
    begun = nuts_chains._Chain(None, 0, [])
    for num_chunks in (1, sampler._num_chunks):  # the first chunk is run apart from the others
        begun = sampler._extend(None, lambda _: None, begun, num_chunks)
    points, statistics = (np.concatenate([part[i][name] for part in begun.kept]) for i, name in enumerate("xn"))
    np.testing.assert_array_equal(points, np.arange(warmup, warmup + samples))
    assert len(statistics) == samples
