"""Stacking by gold labels: its conditional logit against slow oracles, its promises on votes."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from latentens import Votes, load_fit
from latentens.cli.app import app
from latentens.cli.methods import find_methods
from latentens.errors import LatentensError, SettingError
from latentens.inference.conditional_logit import Prior, find_mode, fit_conditional_logit, log_evidence
from latentens.methods import DawidSkeneEM, Ebcc, MajorityVote, SpectralMetaLearner, Stacked
from tests.reference import KEY, as_triplets, independent_votes, votes_of_classes

QUICK = Stacked(DawidSkeneEM(random_starts=1), MajorityVote())


def example(num_items=30, num_classes=3, num_weights=7, seed=0):
    """Features, labels and a prior with two blocks and a weight of fixed spread."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(num_items, num_classes, num_weights))
    labels = (features @ generator.normal(size=num_weights)).argmax(axis=1)
    labels[::4] = generator.integers(0, num_classes, len(labels[::4]))
    half = num_weights // 2
    block = np.repeat([0, -1, 1], [half, 1, num_weights - half - 1])
    return (
        features,
        labels,
        Prior(generator.normal(size=num_weights) / 4, generator.uniform(0.5, 1, num_weights), block),
    )


def log_posterior(weights, features, labels, centre, spread):
    """The obvious form."""
    likelihood = sum(log_softmax(item @ weights)[label] for item, label in zip(features, labels, strict=True))
    return likelihood - 0.5 * np.sum(((weights - centre) / spread) ** 2)


MANY_AND_FEW_WEIGHTS = [(30, 3, 7), (8, 2, 40)]


@pytest.mark.parametrize("sizes", MANY_AND_FEW_WEIGHTS)
def test_mode_and_covariance_against_a_general_minimiser_and_differences(sizes):
    features, labels, prior = example(*sizes)
    spread = prior.spread(np.array([-0.3, 0.2]))
    mode = find_mode(features, labels, prior.centre, spread)
    ours = prior.centre + spread * (mode.basis @ mode.position)

    def cost(weights):
        return -log_posterior(weights, features, labels, prior.centre, spread)

    theirs = minimize(cost, prior.centre, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(ours, theirs.x, atol=1e-4)
    assert np.abs(approx_fprime(ours, cost, 1e-6)).max() < 1e-3
    step = 1e-3 * np.eye(len(ours))
    hessian = np.array(
        [
            [(cost(ours + a + b) - cost(ours + a - b) - cost(ours - a + b) + cost(ours - a - b)) / 4e-6 for a in step]
            for b in step
        ]
    )
    kept = np.eye(len(ours)) - mode.basis @ (np.eye(len(mode.position)) - mode.covariance) @ mode.basis.T
    np.testing.assert_allclose(spread[:, None] * kept * spread, np.linalg.inv(hessian), atol=2e-3)
    laplace = -cost(ours) - np.log(spread).sum() - np.linalg.slogdet(hessian)[1] / 2
    assert mode.log_evidence == pytest.approx(laplace, abs=1e-2)


@pytest.mark.parametrize("sizes", MANY_AND_FEW_WEIGHTS)
def test_slope_of_the_evidence_against_differences(sizes):
    features, labels, prior = example(*sizes)
    at = np.array([-0.5, 0.3])
    _, slope, _ = log_evidence(features, labels, prior, at)
    for block, step in enumerate(1e-4 * np.eye(2)):
        ahead, behind = (log_evidence(features, labels, prior, at + side * step)[0] for side in (1, -1))
        assert slope[block] == pytest.approx((ahead - behind) / 2e-4, abs=1e-4)


def test_evidence_is_the_integral_of_likelihood_times_prior():
    features, labels, _ = example(6, 2, 1)
    prior = Prior(np.array([0.2]), np.array([1.3]), np.array([-1]))
    grid = np.linspace(-12, 12, 4001)
    heights = [np.exp(log_posterior(np.array([w]), features, labels, prior.centre, prior.unit)) for w in grid]
    exact = np.log(np.trapezoid(heights, grid) / (1.3 * np.sqrt(2 * np.pi)))
    assert log_evidence(features, labels, prior, np.zeros(0))[0] == pytest.approx(exact, abs=0.1)


def test_weights_are_those_of_a_ridge_logit_where_the_two_coincide():
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(60, 4))
    labels = (inputs @ [1, -1, 0.5, 0] + generator.logistic(size=60) > 0).astype(int)
    features = np.stack([np.zeros_like(inputs), inputs], axis=1)
    found = fit_conditional_logit(features, labels, Prior(np.zeros(4), np.full(4, 0.7), np.full(4, -1)))
    theirs = LogisticRegression(C=0.7**2, fit_intercept=False, tol=1e-10).fit(inputs, labels).coef_[0]
    np.testing.assert_allclose(found.mean, theirs, atol=1e-5)


def test_scales_are_at_the_maximum_and_a_block_of_noise_stays_at_its_centre():
    generator = np.random.default_rng(2)
    features = generator.normal(size=(80, 3, 8))
    labels = softmax(features[:, :, :4] @ [2, -2, 1.5, 1], axis=1).cumsum(axis=1)
    labels = (generator.random((80, 1)) > labels).sum(axis=1)
    prior = Prior(np.zeros(8), np.ones(8), np.repeat([0, 1], 4))
    found = fit_conditional_logit(features, labels, prior)
    assert found.scales[0] > 0.5
    assert found.scales[1] < 0.3

    def value(scales):
        return log_evidence(features, labels, prior, np.log(scales))[0] - scales.sum()

    for factor in ([1.05, 1], [0.95, 1], [1, 1.05], [1, 0.95]):
        assert value(found.scales * factor) <= value(found.scales) + 1e-6


def test_draws_have_the_posterior_s_mean_and_covariance():
    features, labels, prior = example(8, 2, 40)
    found = fit_conditional_logit(features, labels, prior)
    draws = found.draw(20_001, np.random.default_rng(0))
    assert len(draws) == 20_001
    np.testing.assert_allclose(draws.mean(axis=0), found.mean, atol=1e-9)
    np.testing.assert_allclose(draws.std(axis=0), found.error, rtol=0.05)


def some_gold(labels, count, seed=0):
    gold = np.full(len(labels), -1)
    some = np.random.default_rng(seed).choice(len(labels), count, replace=False)
    gold[some] = labels[some]
    return gold


@pytest.fixture(scope="module")
def crowd():
    """Six voters of three classes, some votes missing."""
    return votes_of_classes(3, num_items=400, num_voters=6, right=0.6, missing=0.2)


@pytest.fixture(scope="module")
def stacked(crowd):
    votes, labels = crowd
    return Stacked(DawidSkeneEM(random_starts=1), Ebcc(restarts=1)).fit(votes, key=KEY, gold=some_gold(labels, 60))


def test_probabilities_against_an_obvious_average_over_many_weights(crowd):
    votes, labels = crowd
    gold = some_gold(labels, 60)
    fit = dataclasses.replace(QUICK, num_draws=2000).fit(votes, key=KEY, gold=gold)
    few = QUICK.fit(votes, key=KEY, gold=gold)
    assert np.abs(few.label_probs - fit.label_probs).max() < 0.05
    posterior = DawidSkeneEM(random_starts=1).fit(votes, key=jax.random.fold_in(KEY, 0)).label_probs
    majority = MajorityVote().fit(votes, key=KEY).label_probs
    overall = (votes.tally.sum(axis=0) + 1) / (votes.tally.sum() + 3)
    for item in np.flatnonzero(gold < 0)[:5]:
        shares = (votes.tally[item] + overall) / (votes.tally[item].sum() + 1)
        pool = (posterior[item] + majority[item] + shares) / 3
        logs = [np.log(p) for p in (pool, *((400 * q[item] + 1 / 3) / 401 for q in (posterior, majority)), shares)]
        own = (votes.matrix[item] == np.arange(3)[:, None]).astype(float)
        features = np.column_stack([own, *logs, np.eye(3)])
        expected = np.mean([softmax(features @ weights) for weights in fit.state["weights"]], axis=0)
        np.testing.assert_allclose(fit.label_probs[item], expected, atol=1e-9)


def test_parameters_are_named_and_have_errors(stacked):
    shapes = {"pool_weight": (), "method_weight": (2,), "share_weight": (), "voter_weight": (6,), "intercept": (3,)}
    for name, shape in shapes.items():
        assert np.shape(stacked.params[name]) == np.shape(stacked.params[f"{name}_error"]) == shape
        assert np.all(stacked.params[f"{name}_error"] > 0)
    assert {"voter_scale", "method_scale", "intercept_scale"} <= stacked.params.keys()
    assert stacked.diagnostics["gold_labels"] == 60
    assert stacked.voters["accuracy"].between(0.4, 0.8).all()


def test_without_gold_labels_it_is_the_pool_and_says_so(crowd):
    votes, _ = crowd
    fit = QUICK.fit(votes, key=KEY)
    assert "no gold labels" in fit.diagnostics.label_probs
    posterior = DawidSkeneEM(random_starts=1).fit(votes, key=jax.random.fold_in(KEY, 0)).label_probs
    overall = (votes.tally.sum(axis=0) + 1) / (votes.tally.sum() + 3)
    shares = (votes.tally + overall) / (votes.tally.sum(axis=1, keepdims=True) + 1)
    pool = (posterior + MajorityVote().fit(votes, key=KEY).label_probs + shares) / 3
    np.testing.assert_allclose(fit.label_probs, pool, atol=1e-9)


def test_order_of_voters_items_and_classes_hardly_matters(crowd):
    votes, labels = crowd
    gold, method = some_gold(labels, 60), dataclasses.replace(QUICK, num_draws=1000)
    usual = method.fit(votes, key=KEY, gold=gold)
    generator = np.random.default_rng(0)
    items, voters, classes = generator.permutation(400), generator.permutation(6), np.array([2, 0, 1])
    renamed = np.append(classes, -1)  # a missing vote stays one
    matrix = renamed[votes.matrix[np.ix_(items, voters)]]
    other = method.fit(Votes.from_matrix(matrix, num_classes=3), key=KEY, gold=renamed[gold[items]])
    np.testing.assert_allclose(other.params["voter_weight"], usual.params["voter_weight"][voters], atol=5e-3)
    np.testing.assert_allclose(other.params["intercept"][classes], usual.params["intercept"], atol=5e-3)
    np.testing.assert_allclose(other.label_probs[:, classes], usual.label_probs[items], atol=0.03)


def test_triplets_are_the_same_votes_and_repeated_votes_count(crowd):
    votes, labels = crowd
    gold = some_gold(labels, 60)
    usual, sparse = (QUICK.fit(v, key=KEY, gold=gold) for v in (votes, as_triplets(votes)))
    np.testing.assert_allclose(sparse.label_probs, usual.label_probs, atol=1e-6)
    item, voter, vote = (np.tile(part, 2) for part in votes.triplets)
    twice = Votes.from_long({"item": item, "voter": voter, "vote": vote.astype(str)}, duplicates="keep")
    known = {name: str(gold[name]) for name in range(400) if gold[name] >= 0 and votes.tally[name].any()}
    fit = QUICK.fit(twice, key=KEY, gold={name: known[name] for name in known if name in set(item)})
    assert np.mean(fit.codes == labels[np.asarray(fit.item_names, dtype=int)]) > 0.7


def test_few_labels_give_modest_probabilities():
    """On unanimous votes that five labels confirm, and on votes that many labels confirm."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 1000)
    votes = Votes.from_matrix(np.tile(labels[:, None], 3), num_classes=2)
    sure = []
    for count in (5, 50, 500):
        gold = some_gold(labels, count)
        fit = Stacked(MajorityVote()).fit(votes, key=KEY, gold=gold)
        sure.append(fit.label_probs.max(axis=1)[gold < 0].mean())
    assert sure[0] < 0.95
    assert sure[0] < sure[1] < sure[2]
    assert sure[2] > 0.97


def biased_voters(num_items=4000):
    """Voters of very different skill, two of them worse than chance, one who votes for anything."""
    skills = np.array([0.95, 0.6, 0.6, 0.6, 0.35, 0.3, 0.5])
    return independent_votes(num_items, skills, skills, prevalence=0.3, seed=5)


def test_many_labels_approach_the_supervised_optimum():
    votes, labels = biased_voters()
    gold = np.where(np.arange(4000) < 2000, labels, -1)
    fit, rest = QUICK.fit(votes, key=KEY, gold=gold), np.arange(2000, 4000)
    logit = LogisticRegression(C=10).fit(votes.matrix[:2000], labels[:2000]).predict_proba(votes.matrix[rest])

    def loss(probs):
        return -np.log(probs[np.arange(2000), labels[rest]]).mean()

    assert loss(fit.label_probs[rest]) < loss(logit) + 0.005


def test_gold_labels_turn_round_a_panel_that_is_mostly_wrong():
    skills = np.full(7, 0.3)
    votes, labels = independent_votes(600, skills, skills, seed=3)
    gold = some_gold(labels, 50)
    fit = QUICK.fit(votes, key=KEY, gold=gold)
    assert np.mean(fit.codes == labels) > 0.8


def test_judges_who_copy_each_other_share_a_weight():
    """A good judge beside 60 copies of a poor one."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, 800)
    good, poor = (np.where(generator.random(800) < rate, labels, 1 - labels) for rate in (0.9, 0.6))
    votes = Votes.from_matrix(np.column_stack([good, np.repeat(poor[:, None], 60, axis=1)]), num_classes=2)
    gold = some_gold(labels, 50)
    fit = Stacked(MajorityVote()).fit(votes, key=KEY, gold=gold)
    assert np.mean(fit.codes[gold < 0] == labels[gold < 0]) > 0.85
    copies = fit.params["voter_weight"][1:]
    np.testing.assert_allclose(copies, copies[0], atol=1e-9)


def test_many_judges_and_few_labels():
    votes, labels = independent_votes(300, np.full(130, 0.6), np.full(130, 0.65), missing=0.5)
    gold = some_gold(labels, 50)
    fit = QUICK.fit(votes, key=KEY, gold=gold)
    assert np.mean(fit.codes == labels) > 0.95


def test_voters_without_a_vote_on_a_labelled_item_have_no_weight(crowd):
    votes, labels = crowd
    gold = some_gold(labels, 40)
    matrix = votes.matrix.copy()
    matrix[gold >= 0, 0] = -1
    fit = QUICK.fit(Votes.from_matrix(matrix, num_classes=3), key=KEY, gold=gold)
    assert fit.params["voter_weight"][0] == 0
    assert fit.params["voter_weight_error"][0] == pytest.approx(fit.params["voter_scale"])


def test_gold_labels_of_one_class_and_classes_without_any(crowd):
    votes, labels = crowd
    gold = np.where((labels == 1) & (np.arange(400) < 100), labels, -1)
    fit = QUICK.fit(votes, key=KEY, gold=gold)
    assert np.isfinite(fit.label_probs).all()
    assert fit.params["intercept"][1] >= fit.params["intercept"][[0, 2]].max()


def test_votes_for_what_is_never_the_label():
    """A third of the votes say "tie", which the gold labels never are."""
    votes, labels = independent_votes(600, np.full(5, 0.8), np.full(5, 0.8))
    ties = np.random.default_rng(0).random(votes.matrix.shape) < 1 / 3
    with_ties = Votes.from_matrix(np.where(ties, 2, votes.matrix), num_classes=3)
    gold = some_gold(labels, 100)
    fit = QUICK.fit(with_ties, key=KEY, gold=gold)
    assert fit.params["intercept"][2] < 0
    assert np.mean(fit.codes[gold < 0] == labels[gold < 0]) > 0.8


def test_an_item_without_votes_gets_the_labels_shares():
    votes, labels = independent_votes(500, np.full(5, 0.7), np.full(5, 0.7), prevalence=0.8)
    matrix = votes.matrix.copy()
    matrix[0] = -1
    fit = QUICK.fit(Votes.from_matrix(matrix, num_classes=2), key=KEY, gold=some_gold(labels, 100, seed=1))
    assert 0.55 < fit.label_probs[0, 1] < 0.95


def test_saved_fits_predict_as_the_original(stacked, crowd, tmp_path):
    votes, _ = crowd
    stacked.save(tmp_path / "fit.nc")
    loaded = load_fit(tmp_path / "fit.nc")
    assert loaded.method == stacked.method
    some = votes.take(np.arange(50, 90))
    np.testing.assert_array_equal(loaded.predict(some), stacked.predict(some))
    unknown = np.flatnonzero(stacked.known < 0)
    np.testing.assert_allclose(stacked.predict(votes)[unknown], stacked.label_probs[unknown], atol=1e-9)


def test_the_same_key_gives_the_same_probabilities(stacked, crowd):
    again = stacked.method.fit(crowd[0], key=KEY, gold=stacked.known)
    assert np.array_equal(again.label_probs, stacked.label_probs)


def test_settings():
    assert Stacked() == Stacked(DawidSkeneEM(), Ebcc())
    method = Stacked(MajorityVote(), DawidSkeneEM())
    assert dataclasses.replace(method, num_draws=10) == Stacked(MajorityVote(), DawidSkeneEM(), num_draws=10)
    assert dataclasses.replace(method, methods=(Ebcc(),)).methods == (Ebcc(),)
    assert eval(repr(method)) == method
    with pytest.raises(SettingError, match="methods must be a tuple in which each value is a Method such as Ebcc"):
        Stacked(Ebcc)
    with pytest.raises(SettingError, match="num_draws must be at least 1"):
        Stacked(num_draws=0)


def test_a_method_for_two_classes_refuses_three(crowd):
    with pytest.raises(LatentensError, match="SpectralMetaLearner is for two classes"):
        Stacked(SpectralMetaLearner()).fit(crowd[0], key=KEY)


def test_on_the_command_line(tmp_path):
    votes, labels = independent_votes(80, np.full(4, 0.8), np.full(4, 0.8))
    written = ["Stacked(DawidSkeneEM, Ebcc)", "Stacked", "Stacked(MajorityVote, num_draws=64)"]
    made = [Stacked(DawidSkeneEM(), Ebcc()), Stacked(), Stacked(MajorityVote(), num_draws=64)]
    assert [make(votes) for make in find_methods(written).values()] == made
    lines = [f"q{i},{','.join(map(str, row))}" for i, row in enumerate(votes.matrix)]
    (tmp_path / "votes.csv").write_text("\n".join(["item,a,b,c,d", *lines]))
    (tmp_path / "gold.csv").write_text("\n".join(["item,label", *(f"q{i},{labels[i]}" for i in range(20))]))
    command = ["fit", "Stacked(DawidSkeneEM, MajorityVote)", str(tmp_path / "votes.csv")]
    command += ["--gold", str(tmp_path / "gold.csv"), "--out", str(tmp_path / "labels.csv")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "labels.csv").is_file()
