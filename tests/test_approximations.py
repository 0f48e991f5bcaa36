"""The log density of a program's parameters, approximations of its posterior, and fits from anybody's draws."""

import gzip
import json
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy import stats

import latentens as le
from latentens import GenerativeModel, SampledMethod, models
from latentens.datasets import load
from latentens.errors import LatentensError, ParameterError
from latentens.inference.approximation import (
    elbo_gain,
    find_mode,
    flat_words,
    importance_weights,
    pareto_words,
    resample,
)
from latentens.methods import Diagnostics, Laplace, Nuts, Variational
from latentens.models import DawidSkene
from latentens.programs.likelihood import observe
from latentens.votes import Votes
from tests.reference import KEY, SIX_VOTERS_SAMPLED, independent_votes, random_counts, votes_from

GUIDES = ("normal", "multivariate", "low_rank", "flow")


def rooms(num_items, votes=None):
    """Parameters of every kind of range: a share, a positive number, a real one, and shares of three labels."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([3.0, 2.0, 2.0])))
    skill = numpyro.sample("skill", dist.Beta(4.0, 2.0).expand((4,)).to_event(1))
    sharpness = numpyro.sample("sharpness", dist.HalfNormal(1.0))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Categorical(shares))
        right = jnp.eye(3)[label][..., None, :] * (1 + sharpness) + bias * jnp.array([0.0, 0.0, 1.0])
        guess = jax.nn.softmax(right, axis=-1)
        probs = skill[:, None] * guess + (1 - skill[:, None]) / 3
        numpyro.sample("vote", dist.Categorical(probs).to_event(1), obs=votes)


ROOMS = GenerativeModel.from_program(rooms)


def rooms_log_density(density, counts, gold, point):
    """Marginal likelihood, log prior and log Jacobian in NumPy; `counts` are (item, voter, vote)."""
    logits, skill_logits, log_sharpness, bias = np.split(point, [2, 6, 7])
    left = 1.0
    shares, log_jacobian = [], 0.0
    for index, logit in enumerate(logits):  # stick-breaking: zero becomes equal shares
        fraction = 1 / (1 + np.exp(-(logit - np.log(2 - index))))
        shares.append(fraction * left)
        log_jacobian += np.log(fraction * (1 - fraction) * left)
        left -= shares[-1]
    shares.append(left)
    skill = 1 / (1 + np.exp(-skill_logits))
    sharpness = np.exp(log_sharpness[0])
    log_jacobian += np.log(skill * (1 - skill)).sum() + log_sharpness[0]
    log_prior = stats.dirichlet.logpdf(shares, [3, 2, 2]) + stats.beta.logpdf(skill, 4, 2).sum()
    log_prior += stats.halfnorm.logpdf(sharpness) + stats.norm.logpdf(bias[0])
    total = 0.0
    for item, row in enumerate(counts):
        joint = 0.0
        for label in range(3):
            if gold is None or gold[item] in (-1, label):
                guess = np.exp((np.arange(3) == label) * (1 + sharpness) + bias[0] * np.array([0, 0, 1]))
                probs = skill[:, None] * guess / guess.sum() + (1 - skill[:, None]) / 3
                joint += shares[label] * np.prod(probs**row)
        total += np.log(joint)
    return total + log_prior + log_jacobian


@pytest.fixture(scope="module", params=[False, True], ids=["votes alone", "gold"])
def tiny(request):
    counts = random_counts(12, 4, 3)  # missing and repeated votes
    gold = np.array([0, 1, 2] + [-1] * 9) if request.param else None
    return counts, votes_from(counts), gold


def test_log_density_is_the_brute_force_one(tiny):
    counts, votes, gold = tiny
    density = le.log_density(ROOMS, votes, gold)
    assert density.dimension == 8
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        compiled = jax.jit(density)
        for _ in range(5):
            point = rng.normal(size=8)
            expected = rooms_log_density(density, counts, gold, point)
            assert float(compiled(point)) == pytest.approx(expected, abs=1e-8)


def test_vectors_and_parameters_are_two_forms_of_one_point(tiny):
    density = le.log_density(ROOMS, tiny[1])
    points = np.random.default_rng(1).normal(size=(2, 3, 8))
    with jax.enable_x64(True):
        params = density.unravel(points)
    assert params["skill"].shape == (2, 3, 4)
    one = {name: np.asarray(value)[1, 2] for name, value in params.items()}
    np.testing.assert_allclose(density.ravel(one), points[1, 2], atol=1e-12)
    first, again, other = (density.start(jax.random.key(seed)) for seed in (0, 0, 1))
    assert first.shape == (8,)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_laplace_has_the_mode_and_curvature_of_finite_differences(tiny):
    counts, votes, gold = tiny
    density = le.log_density(ROOMS, votes, gold)
    with jax.enable_x64(True):
        start = density.start(KEY)
        mode = find_mode(ROOMS, observe(ROOMS, votes, gold)[0], start, max_iterations=500)

    def at(point):
        return rooms_log_density(density, counts, gold, point)

    step, axes = 1e-3, np.eye(8) * 1e-3
    slope = [(at(mode.point + axis) - at(mode.point - axis)) / (2 * step) for axis in axes]
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    hessian = np.array(
        [
            [
                (at(mode.point + a + b) - at(mode.point + a - b) - at(mode.point - a + b) + at(mode.point - a - b))
                / (4 * step**2)
                for b in axes
            ]
            for a in axes
        ]
    )
    np.testing.assert_allclose(mode.precision, -hessian, atol=2e-4)
    np.testing.assert_allclose(mode.scale @ mode.scale.T, np.linalg.inv(-hessian), rtol=1e-3, atol=1e-4)
    assert np.array_equal(mode.scale, np.tril(mode.scale))
    points, log_proposal = mode.draw(np.random.default_rng(0), 5)
    normal = stats.multivariate_normal(mode.point, mode.scale @ mode.scale.T)
    np.testing.assert_allclose(log_proposal, normal.logpdf(points), atol=1e-8)


def one_skill(num_items, votes=None):
    """Six equally skilled voters: a posterior that a grid can hold."""
    skill = numpyro.sample("skill", dist.Beta(2.0, 2.0))
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(share))
        says_one = jnp.where(label == 1, skill, 1 - skill)[..., None] * jnp.ones(6)
        numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)


ONE_SKILL = GenerativeModel.from_program(one_skill)


@pytest.fixture(scope="module")
def by_grid():
    """Votes, and the posterior means and deviations of skill and share and the labels' posterior by a grid."""
    votes = le.simulate(ONE_SKILL, 200, key=KEY, params={"skill": 0.75, "share": 0.4}).votes
    skill, share = (part.ravel() for part in np.meshgrid(np.linspace(0.6, 0.9, 41), np.linspace(0.15, 0.65, 41)))
    params = [{"skill": a, "share": b} for a, b in zip(skill, share, strict=True)]
    log_weights = np.array([le.log_likelihood(ONE_SKILL, at, votes) for at in params])
    log_weights += np.log(skill * (1 - skill) * share * (1 - share))
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    heavy = np.flatnonzero(weights > 1e-6)
    labels = sum(weights[i] * le.bayes_posterior(ONE_SKILL, params[i], votes) for i in heavy)
    moments = {
        name: (weights @ grid, np.sqrt(weights @ (grid - weights @ grid) ** 2))
        for name, grid in (("skill", skill), ("share", share))
    }
    return votes, moments, labels


@pytest.mark.parametrize(
    "method",
    [
        Laplace(ONE_SKILL, num_draws=4000),
        Laplace(ONE_SKILL, num_draws=4000, resample=True),
        *(Variational(ONE_SKILL, num_draws=4000, guide=guide) for guide in GUIDES),
    ],
    ids=["Laplace", "Laplace, resampled", *GUIDES],
)
def test_approximations_have_the_moments_of_the_exact_posterior(method, by_grid):
    votes, moments, labels = by_grid
    fit = method.fit(votes, key=KEY)
    assert fit.diagnostics["converged"]
    mean_field = getattr(method, "guide", None) == "normal"
    assert mean_field or fit.diagnostics["pareto_k"] < 0.7
    assert mean_field or not fit.diagnostics["warnings"]
    for name, (mean, deviation) in moments.items():
        assert fit.draws[name].shape == (1, 4000)
        assert fit.params[name] == pytest.approx(mean, abs=0.12 * deviation)
        assert fit.draws[name].std() == pytest.approx(deviation, rel=0.2 if mean_field else 0.12)
    np.testing.assert_allclose(fit.label_probs, labels, atol=0.01)
    if isinstance(method, Variational):
        assert len(fit.diagnostics["curve"]) == 1000
        assert fit.diagnostics["curve"][-100:].mean() == pytest.approx(fit.diagnostics["elbo"], abs=0.1)


def test_gold_labels_take_part():
    votes, labels = independent_votes(300, np.linspace(0.6, 0.9, 6), np.linspace(0.9, 0.6, 6))
    gold = np.where(np.arange(300) < 60, labels, -1)
    method = Laplace(DawidSkene(6), num_draws=100, starts=1)
    with_gold, without = method.fit(votes, key=KEY, gold=gold), method.fit(votes, key=KEY)
    assert (with_gold.codes[:60] == labels[:60]).all()
    assert with_gold.diagnostics["mode_log_density"] < without.diagnostics["mode_log_density"]
    again = le.fit_from_draws(DawidSkene(6), votes, with_gold.draws, gold)
    np.testing.assert_allclose(again.label_probs, with_gold.label_probs, atol=1e-12)


def test_draws_of_a_sampler_make_the_same_fit(tmp_path):
    votes, _ = independent_votes(300, np.linspace(0.6, 0.9, 6), np.linspace(0.9, 0.6, 6), missing=0.2)
    sampled = SIX_VOTERS_SAMPLED.fit(votes, key=KEY)
    fit = le.fit_from_draws(DawidSkene(6), votes, sampled.draws)
    np.testing.assert_allclose(fit.label_probs, sampled.label_probs, atol=1e-12)
    np.testing.assert_allclose(fit.predict(votes), sampled.predict(votes), atol=1e-12)
    name = "labels of frequent vote patterns"
    assert fit.diagnostics["r_hat"][name] == pytest.approx(sampled.diagnostics["r_hat"][name])
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(le.load_fit(tmp_path / "fit.nc").predict(votes), fit.predict(votes))


def test_draws_without_statistics_of_a_sampler_enter_a_comparison(by_grid):
    data = le.Dataset("drawn", by_grid[0], np.full(200, -1))
    methods = {"Laplace": Laplace(ONE_SKILL, num_draws=100, starts=1), "prior": PriorDraws(ONE_SKILL)}
    tree = le.compare(data, methods, key=KEY, resamples=5)
    assert tree["drawn/fits/Laplace/0/sample_stats/lp"].shape == (1, 100)
    assert tree["drawn/fits/prior/0/posterior/skill"].shape == (1, 50)
    assert "sample_stats" not in tree["drawn/fits/prior/0"]
    fit = methods["Laplace"].fit(by_grid[0], key=KEY)
    assert fit.to_datatree()["posterior/skill"].shape == (1, 100)
    assert le.check_fit(fit, by_grid[0], key=KEY).statistics


def test_draws_that_do_not_belong_to_the_model_are_refused():
    votes = independent_votes(20, np.full(6, 0.8), np.full(6, 0.8))[0]
    with pytest.raises(ParameterError, match="draws of share are missing"):
        le.fit_from_draws(ONE_SKILL, votes, {"skill": np.full(5, 0.7)})
    with pytest.raises(ParameterError, match=r"draws of share have the shape \(4,\)"):
        le.fit_from_draws(ONE_SKILL, votes, {"skill": np.full(5, 0.7), "share": np.full(4, 0.7)})
    with pytest.raises(ParameterError, match="NaN"):
        le.fit_from_draws(ONE_SKILL, votes, {"skill": np.full(5, np.nan), "share": np.full(5, 0.7)})


class PriorDraws(SampledMethod):
    """A sampler of one's own: draws from the prior, which are no good."""

    def draw(self, votes, key, gold=None):
        skill, share = np.random.default_rng(0).beta(2, 2, (2, 50))
        return {"skill": skill, "share": share}, Diagnostics()


def test_a_sampler_of_ones_own_is_a_method(by_grid):
    fit = PriorDraws(ONE_SKILL).fit(by_grid[0], key=KEY)
    assert fit.draws["skill"].shape == (1, 50)
    assert fit.label_probs.shape == (200, 2)
    assert fit.model == ONE_SKILL


def test_label_switching_is_undone_without_votes():
    """Half of the draws of three classes are put in another order; matrices, shares and codes come back."""
    rng = np.random.default_rng(3)
    centre = np.array([[[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]]] * 5)  # voter, true_class, vote_class
    confusion = np.stack([rng.dirichlet(40 * row, (2, 60)) for row in centre.reshape(-1, 3)], axis=2)
    confusion, shares = confusion.reshape(2, 60, 5, 3, 3), rng.dirichlet([20, 30, 10], (2, 60))
    codes = rng.integers(3, size=(2, 60, 7))
    original = xr.Dataset(
        {
            "confusion": (("chain", "draw", "voter", "true_class", "vote_class"), confusion),
            "prevalence": (("chain", "draw", "true_class"), shares),
            "label": (("chain", "draw", "item"), codes),
            "other": (("chain", "draw"), rng.normal(size=(2, 60))),
        },
        {"true_class": ["a", "b", "c"]},
    )
    orders = rng.permuted(np.tile(np.arange(3), (2, 60, 1)), axis=2)
    switched = original.copy(deep=True)
    switched["confusion"][:] = np.take_along_axis(confusion, orders[:, :, None, :, None], axis=3)
    switched["prevalence"][:] = np.take_along_axis(shares, orders, axis=2)
    switched["label"][:] = np.take_along_axis(np.argsort(orders, axis=2), codes, axis=2)
    mended = le.relabel(xr.DataTree.from_dict({"posterior": switched}), codes=["label"])
    xr.testing.assert_identical(mended["posterior"].to_dataset(), original)
    with pytest.raises(ParameterError, match="no variable has the dimension 'class'"):
        le.relabel(original, "class")


def ridge(num_items, votes=None):
    """Only the sum of two parameters matters, and their priors are as good as flat."""
    one = numpyro.sample("one", dist.Normal(0.0, 1e9))
    other = numpyro.sample("other", dist.Normal(0.0, 1e9))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(0.4))
        says_one = jax.nn.sigmoid(jnp.where(label == 1, one + other, -one - other))
        numpyro.sample("vote", dist.Bernoulli(says_one[..., None] * jnp.ones(6)).to_event(1), obs=votes)


def test_a_ridge_is_reported(by_grid):
    fit = Laplace(GenerativeModel.from_program(ridge), num_draws=100, starts=1).fit(by_grid[0], key=KEY)
    assert not fit.diagnostics["converged"]
    assert any("singular along 1 direction, made of one, other" in word for word in fit.diagnostics["warnings"])


def test_an_elbo_that_still_rises_or_diverges_is_reported(by_grid):
    short = Variational(ONE_SKILL, num_steps=50, learning_rate=1e-4, tolerance=1e-9, starts=1)
    curve = np.concatenate([np.linspace(-50, -20, 90), np.full(10, -20.0)])
    assert elbo_gain(np.linspace(-50, -20, 100))[0] > 2
    assert elbo_gain(curve)[0] == pytest.approx(1.5, abs=0.5)
    assert np.isfinite(short.fit(by_grid[0], key=KEY).diagnostics["curve"]).all()
    with pytest.raises(LatentensError, match="diverged: the ELBO is not finite"):
        Variational(ONE_SKILL, num_steps=50, learning_rate=1e200, starts=1).fit(by_grid[0], key=KEY)


def test_importance_weights_and_what_they_mean():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=4000)
    narrow = stats.norm(scale=2).logpdf(draws) - 0.0, stats.norm.logpdf(draws)
    found = importance_weights(*narrow)
    assert found.pareto_k > 0.5
    near = importance_weights(stats.norm(0.2, 0.9).logpdf(draws), stats.norm.logpdf(draws))
    assert near.pareto_k < 0.5
    chosen = draws[resample(near.weights, 4000, rng)]
    assert chosen.mean() == pytest.approx(0.2, abs=0.05)
    assert chosen.std() == pytest.approx(0.9, abs=0.05)
    assert importance_weights(np.full(9, np.nan), np.zeros(9)).pareto_k == np.inf
    few = importance_weights(np.zeros(9), np.zeros(9))
    assert few.weights == pytest.approx(1 / 9)
    assert "fewer than 25 draws" in pareto_words(few.pareto_k)[0]
    assert not pareto_words(0.6)
    assert "misses part of the posterior" in pareto_words(1.2)[0]
    assert "misses part of the posterior" in pareto_words(np.inf)[0]
    assert not flat_words(ONE_SKILL, np.empty((0, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_guides_fit_every_model(any_case, guide):
    model, params, _ = any_case
    if not le.programs.contract.structure_of(model).label_informs_votes:
        pytest.skip("votes say nothing about the label")
    votes: Votes = le.simulate(model, 60, key=KEY, params=params).votes
    try:
        fit = Variational(model, guide=guide, num_steps=100, num_draws=50, starts=1).fit(votes, key=KEY)
    except LatentensError as error:
        if guide == "flow" and "diverged" in str(error):
            pytest.skip(f"a network may diverge, and says so: {error}")
        raise
    assert np.isfinite(fit.label_probs).all()
    assert np.isfinite(fit.diagnostics["elbo"])


@pytest.mark.slow
@pytest.mark.parametrize("model", [DawidSkene(6), ONE_SKILL, ROOMS], ids=["DawidSkene", "one skill", "rooms"])
def test_blackjax_agrees_with_numpyro(model):
    blackjax = pytest.importorskip("blackjax")
    if model is ROOMS:
        votes = votes_from(random_counts(60, 4, 3))
    else:
        votes, _ = independent_votes(200, np.linspace(0.65, 0.9, 6), np.linspace(0.9, 0.65, 6))
    ours = Nuts(model, num_samples=1000).fit(votes, key=KEY)
    density = le.log_density(model, votes)
    with jax.enable_x64(True):
        warmup_key, sample_key = jax.random.split(KEY)
        warmup = blackjax.window_adaptation(blackjax.nuts, density)
        (state, settings), _ = warmup.run(warmup_key, jnp.asarray(density.start(KEY)), 500)
        step = blackjax.nuts(density, **settings).step
        keys = jax.random.split(sample_key, 4000)

        def advance(state, key):
            state, _ = step(key, state)
            return state, state.position

        _, points = jax.jit(lambda first: jax.lax.scan(advance, first, keys))(state)
        theirs = le.fit_from_draws(model, votes, density.unravel(points.reshape(4, 1000, -1)))
    for name, draws in ours.draws.items():
        one, other = (fit.draws[name].reshape(-1, *draws.shape[2:]) for fit in (ours, theirs))
        ess = min(ours.diagnostics["ess"][name], theirs.diagnostics["ess"][name])
        error = one.std(axis=0) * np.sqrt(2 / ess)
        assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4 * error).all()
    np.testing.assert_allclose(theirs.label_probs, ours.label_probs, atol=0.03)


def reference_posteriors():
    """What comes with the package: votes, moments of parameters and marginals of labels."""
    path = files("latentens.datasets") / "published" / "reference_posteriors.json.gz"
    found = json.loads(gzip.decompress(path.read_bytes()))
    for name, content in found.items():
        simulated = "votes" in content
        votes = Votes.from_matrix(content["votes"]) if simulated else load(name.partition("-")[0]).votes
        model = getattr(models, content["model"])(**content["settings"])
        items = np.arange(votes.num_items) if simulated else np.array(content["items"])
        yield name, model, votes, items, content


def test_reference_posteriors_meet_their_criteria():
    for name, model, votes, items, content in reference_posteriors():
        checks = content["checks"]
        assert checks["r_hat"] < 1.01, name
        assert checks["divergences"] == 0, name
        assert checks["blackjax_z"] < 5, name
        assert checks.get("gibbs_z", 0) < 5, name
        assert np.shape(content["label_probs"]) == (len(items), votes.num_classes)
        assert np.sum(content["label_probs"], axis=1) == pytest.approx(1, abs=1e-4)
        shapes = le.programs.contract.structure_of(model).parameter_shapes
        assert {key: np.shape(value["mean"]) for key, value in content["params"].items()} == shapes


@pytest.mark.slow
def test_nuts_has_the_reference_posteriors():
    for name, model, votes, items, content in reference_posteriors():
        fit = Nuts(model, target_accept=0.9).fit(votes, key=KEY)
        np.testing.assert_allclose(fit.label_probs[items], content["label_probs"], atol=0.1, err_msg=name)
        for key, moments in content["params"].items():
            deviation = np.array(moments["deviation"])
            error = np.abs(fit.params[key] - np.array(moments["mean"])) / np.maximum(deviation, 1e-9)
            assert error.max() < 5 * np.sqrt(1 / fit.diagnostics["ess"][key]) + 0.02, (name, key)


def test_an_exchange_of_labels_is_reported():
    """Two voters cannot tell labels apart: other labels explain the votes as well, which the fit says."""
    votes, _ = independent_votes(200, np.array([0.8, 0.7]), np.array([0.7, 0.8]))
    for method in (Laplace(DawidSkene(2), num_draws=100), Variational(DawidSkene(2), num_steps=50, num_draws=100)):
        assert any("not identified" in word for word in method.fit(votes, key=KEY).diagnostics.all_warnings)
