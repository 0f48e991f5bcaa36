"""What every method promises, whatever the votes: one table of methods, one of votes."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest

from latentens import methods
from latentens.errors import LimitError, VotesError
from latentens.inference.orient import vote_shares
from latentens.methods import (
    Consensus,
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    Laplace,
    LatentSpectral,
    LayeredGraphMLE,
    MajorityVote,
    MaximumLikelihood,
    RBMStack,
    RestrictedLikelihood,
    SpectralMetaLearner,
    Stacked,
    StatedConfidence,
    Tempered,
    TopDownMLE,
    TreeMLE,
    Variational,
    dawid_skene_em,
    ebcc,
    glad,
)
from latentens.methods.base import Method
from latentens.methods.cubam import Voters
from latentens.models import DawidSkene
from latentens.votes import Triplets, Votes
from tests.reference import KEY, SIX_VOTERS_SAMPLED, independent_votes, votes_of_classes

METHODS: dict[str, Method] = {
    "vote": MajorityVote(),
    "spectral": SpectralMetaLearner(),
    "restricted likelihood": RestrictedLikelihood(),
    "restricted likelihood, published grid": RestrictedLikelihood(grid="published"),
    "restricted likelihood, tensor": RestrictedLikelihood(imbalance="tensor"),
    "iterative maximum likelihood": IterativeMaximumLikelihood(),
    "EM": DawidSkeneEM(),
    "latent spectral, residual": LatentSpectral(restarts=2),
    "latent spectral, likelihood": LatentSpectral(select="likelihood", restarts=2),
    "CUBAM": Cubam(rounds=5),
    "CUBAM in two dimensions": Cubam(dimensions=2, rounds=5),
    "GLAD": Glad(),
    "EBCC": Ebcc(restarts=2),
    "stated confidence": StatedConfidence(),
    "stacked": Stacked(DawidSkeneEM(), MajorityVote()),
}
MANY_CLASSES = ("vote", "EM", "GLAD", "EBCC", "stated confidence", "stacked")
WITHOUT_RATES = ("vote", "CUBAM in two dimensions", "stated confidence", "stacked")
"""Methods that estimate no rates of voters."""

OTHERS: dict[str, Callable[[Votes], Method]] = {
    "Consensus": lambda _: Consensus(folds=2),
    "MaximumLikelihood": lambda votes: MaximumLikelihood(DawidSkene(votes.num_voters), starts=1),
    "Laplace": lambda votes: Laplace(DawidSkene(votes.num_voters), num_draws=100, starts=1),
    "LayeredGraphMLE": lambda _: LayeredGraphMLE(layers=(3,)),
    "Nuts": lambda _: SIX_VOTERS_SAMPLED,
    "RBMStack": lambda _: RBMStack(hidden=(2, 1)),
    "Tempered": lambda _: Tempered(DawidSkeneEM(random_starts=1)),
    "TopDownMLE": lambda _: TopDownMLE(num_hidden=3, starts=0),
    "TreeMLE": lambda _: TreeMLE(starts=0),
    "Variational": lambda votes: Variational(DawidSkene(votes.num_voters), num_draws=100, starts=1, num_steps=100),
}
"""Methods that compile programs or need to know the votes, tried on some votes of six voters only."""


def votes_of(*columns, num_classes=2):
    return Votes.from_matrix(np.array(columns).T, num_classes=num_classes)


def good_voters(num_items=300, num_voters=8, **options):
    rates = np.linspace(0.65, 0.9, num_voters)
    return independent_votes(num_items, rates, rates[::-1], **options)


def with_column(votes, column):
    return Votes.from_matrix(np.column_stack([votes.matrix, column]), num_classes=2)


def perfect_voters():
    labels = np.random.default_rng(0).integers(0, 2, 200)
    return votes_of(*[labels] * 6)


def a_row_without_votes(**options):
    matrix = good_voters(**options)[0].matrix.copy()
    matrix[0] = -1
    return Votes.from_matrix(matrix, num_classes=2)


def triplets_of(votes):
    return Votes(Triplets(*votes.triplets), *votes.shape, votes.num_classes)


def voters_alone():
    """No two voters have an item in common."""
    return Votes.from_matrix(np.where(np.eye(6, dtype=bool), 1, -1), num_classes=2)


VOTES = {
    "good voters": lambda: good_voters()[0],
    "rare class": lambda: good_voters(prevalence=0.05)[0],
    "missing votes": lambda: good_voters(missing=0.4)[0],
    "triplets": lambda: triplets_of(good_voters(missing=0.7)[0]),
    "row without votes": a_row_without_votes,
    "constant voter": lambda: with_column(good_voters()[0], np.ones(300, dtype=int)),
    "voter without votes": lambda: with_column(good_voters()[0], np.full(300, -1)),
    "adversary": lambda: with_column(good_voters()[0], 1 - good_voters()[0].matrix[:, 0]),
    "perfect voters": perfect_voters,
    "class that never occurs": lambda: votes_of(*np.ones((5, 40), dtype=int)),
    "class that hardly occurs": lambda: votes_of(*(1 - np.eye(5, 40, dtype=int))),
    "one item": lambda: votes_of([1], [1], [0]),
    "one item, one voter": lambda: votes_of([0]),
    "one voter": lambda: votes_of([0, 1, 1, 0, 1]),
    "two voters": lambda: votes_of([0, 1, 1, 0, 1], [0, 1, 0, 0, 1]),
    "two voters who always differ": lambda: votes_of([0, 1, 1, 0, 1], [1, 0, 0, 1, 0]),
    "three voters": lambda: good_voters(num_voters=3)[0],
    "guessing voters": lambda: independent_votes(200, np.full(6, 0.5), np.full(6, 0.5))[0],
    "voters without common items": voters_alone,
}
OF_SIX = {
    "row of six without votes": lambda: a_row_without_votes(num_voters=6),
    "six good voters": lambda: good_voters(num_voters=6)[0],
    "triplets of six": lambda: triplets_of(good_voters(num_voters=6, missing=0.7)[0]),
}


@pytest.fixture(scope="module")
def fitted():
    """Fits by method and votes, made once."""
    made = {}

    def fit(method, votes):
        if (method, votes) not in made:
            drawn = (VOTES | OF_SIX)[votes]()
            chosen = METHODS[method] if method in METHODS else OTHERS[method](drawn)
            made[method, votes] = drawn, chosen.fit(drawn, key=KEY)
        return made[method, votes]

    return fit


def test_no_method_is_forgotten():
    tried = {type(method).__name__ for method in METHODS.values()} | OTHERS.keys()
    assert tried == {name for name in methods.__all__ if issubclass(getattr(methods, name), Method)}


@pytest.mark.parametrize(
    "votes_name", [name if "without" in name else pytest.param(name, marks=pytest.mark.slow) for name in OF_SIX]
)
@pytest.mark.parametrize("method_name", OTHERS)
def test_contract_of_the_others(method_name, votes_name, fitted):
    test_contract(method_name, votes_name, fitted)


@pytest.mark.parametrize("votes_name", VOTES)
@pytest.mark.parametrize("method_name", METHODS)
def test_contract(method_name, votes_name, fitted):
    votes, fit = fitted(method_name, votes_name)
    assert fit.label_probs.shape == (votes.num_items, 2)
    assert fit.label_probs.dtype == np.float64
    assert np.isfinite(fit.label_probs).all()
    assert (fit.label_probs >= 0).all()
    np.testing.assert_allclose(fit.label_probs.sum(axis=1), 1, atol=1e-12)
    thinned = 0.1 if fit.draws is not None else 1e-9  # new items are predicted by some of the draws
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=thinned)
    assert isinstance(fit.diagnostics.label_probs, str)
    assert fit.diagnostics.seconds > 0
    for value in fit.params.values():
        assert np.isfinite(value).all()
    if "confusion" in fit.params:
        assert fit.params["confusion"].shape == (votes.num_voters, 2, 2)
        np.testing.assert_allclose(fit.params["confusion"].sum(axis=2), 1)
        assert (fit.params["confusion"] >= 0).all()
    again = fit.method.fit(votes, key=KEY)
    assert np.array_equal(again.label_probs, fit.label_probs)


@pytest.mark.parametrize("method_name", METHODS)
def test_labels_are_better_than_chance_and_named_parameters_are_near_the_truth(method_name):
    votes, labels = good_voters(num_items=2000)
    fit = METHODS[method_name].fit(votes, key=KEY)
    assert np.mean(fit.codes == labels) > 0.9
    if method_name not in WITHOUT_RATES:
        rates = np.linspace(0.65, 0.9, 8)
        assert fit.params["prevalence"][1] == pytest.approx(0.5, abs=0.05)
        balanced = (fit.sensitivity + fit.specificity) / 2
        assert np.abs(balanced - (rates + rates[::-1]) / 2).max() < 0.1


@pytest.mark.parametrize(
    "votes_name",
    [
        "good voters",
        "missing votes",
        "triplets",
        "constant voter",
        "perfect voters",
        "class that never occurs",
        "one item",
    ],
)
@pytest.mark.parametrize("method_name", METHODS)
def test_unanimous_rows_never_get_the_opposite_label(method_name, votes_name, fitted):
    votes, fit = fitted(method_name, votes_name)
    enough = votes.tally.sum(axis=1) >= min(5, votes.num_voters)
    for label in (0, 1):
        unanimous = enough & (votes.tally[:, 1 - label] == 0)
        assert np.all(fit.codes[unanimous] == label)


@pytest.mark.parametrize("method_name", sorted(set(METHODS) - {"stacked"}))  # a pool of several priors
def test_a_row_without_votes_gets_the_prior(method_name):
    fit = METHODS[method_name].fit(a_row_without_votes(num_items=1000, prevalence=0.7), key=KEY)
    exact = 0.005 if method_name == "EBCC" else 1e-9  # a variational prior is not quite its mean
    assert fit.label_probs[0, 1] == pytest.approx(fit.params.get("prevalence", (0.5, 0.5))[1], abs=exact)
    assert np.ptp(fit.label_probs[:, 1]) > 0.5


@pytest.mark.parametrize(
    "method_name",
    [pytest.param(name, marks=pytest.mark.slow) if name.startswith("latent") else name for name in METHODS],
)
def test_five_hundred_voters(method_name):
    method = METHODS[method_name]
    if isinstance(method, LatentSpectral):
        method = dataclasses.replace(method, max_groups=4)
    if isinstance(method, Ebcc):
        method = dataclasses.replace(method, max_iterations=20)
    votes, labels = independent_votes(120, np.full(500, 0.6), np.full(500, 0.7))
    fit = method.fit(votes, key=KEY)
    assert np.isfinite(fit.label_probs).all()
    assert np.mean(fit.codes == labels) > 0.95


@pytest.mark.parametrize("method_name", METHODS)
def test_perfect_voters_are_believed(method_name, fitted):
    votes, fit = fitted(method_name, "perfect voters")
    assert np.array_equal(fit.codes, votes.matrix[:, 0])
    assert fit.label_probs[np.arange(200), votes.matrix[:, 0]].min() > 0.8


@pytest.mark.parametrize("method_name", METHODS)
def test_a_tie_goes_to_the_lowest_class(method_name, fitted):
    _, fit = fitted(method_name, "two voters who always differ")
    tied = fit.label_probs[:, 0] == fit.label_probs[:, 1]
    assert np.all(fit.codes[tied] == 0)


@pytest.mark.parametrize("method_name", sorted(set(METHODS) - {"EBCC", "CUBAM in two dimensions"}))
def test_exchanging_the_classes_exchanges_the_probabilities(method_name):
    votes, _ = good_voters(num_items=500, num_voters=7, prevalence=0.7, seed=3)
    swapped = Votes.from_matrix(1 - votes.matrix, num_classes=2)
    fit, mirrored = (METHODS[method_name].fit(v, key=KEY) for v in (votes, swapped))
    np.testing.assert_allclose(mirrored.label_probs[:, ::-1], fit.label_probs, atol=2e-3)


@pytest.mark.parametrize("method_name", sorted(set(METHODS) - {"EBCC", "CUBAM in two dimensions"}))
def test_the_order_of_items_and_voters_does_not_matter(method_name):
    votes, _ = good_voters(num_items=500, num_voters=7, prevalence=0.6, seed=4)
    generator = np.random.default_rng(0)
    items, voters = generator.permutation(500), generator.permutation(7)
    shuffled = Votes.from_matrix(votes.matrix[np.ix_(items, voters)], num_classes=2)
    fit, other = (METHODS[method_name].fit(v, key=KEY) for v in (votes, shuffled))
    np.testing.assert_allclose(other.label_probs, fit.label_probs[items], atol=2e-3)


@pytest.mark.parametrize("method_name", METHODS)
def test_three_classes_are_fitted_or_refused_in_one_sentence(method_name):
    votes, labels = votes_of_classes(3, num_items=400, num_voters=6, missing=0.2)
    if method_name not in MANY_CLASSES:
        with pytest.raises(VotesError, match="is for two classes, but the votes have 3"):
            METHODS[method_name].fit(votes, key=KEY)
        return
    fit = METHODS[method_name].fit(votes, key=KEY)
    assert np.mean(fit.codes == labels) > 0.9
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-9)
    if method_name not in WITHOUT_RATES:
        assert fit.params["prevalence"].shape == (3,)
        assert fit.params["confusion"].shape == (6, 3, 3)
        np.testing.assert_allclose(fit.params["confusion"].sum(axis=2), 1, atol=1e-9)
        assert np.all(fit.params["confusion"].argmax(axis=2) == [0, 1, 2])


@pytest.mark.parametrize("method_name", sorted(set(METHODS) - {"vote"}))
def test_votes_of_other_voters_are_refused(method_name, fitted):
    _, fit = fitted(method_name, "good voters")
    with pytest.raises(VotesError, match="fitted to 8 voters"):
        fit.predict(good_voters(num_voters=5)[0])


@pytest.mark.parametrize("method_name", METHODS)
def test_new_rows_are_predicted_as_rows_of_the_fit(method_name, fitted):
    votes, fit = fitted(method_name, "missing votes")
    some = np.array([5, 3, 3, 10])
    np.testing.assert_allclose(fit.predict(votes.take(some)), fit.label_probs[some], atol=1e-9)


@pytest.mark.parametrize(
    ("method_name", "ends"), [("EM", "start_log_likelihoods"), ("EBCC", "start_evidence_bounds")], ids=["EM", "EBCC"]
)
def test_another_key_is_another_start(method_name, ends):
    votes = good_voters()[0]
    one, two = (METHODS[method_name].fit(votes, key=jax.random.key(seed)) for seed in (1, 2))
    assert not np.array_equal(one.diagnostics[ends], two.diagnostics[ends])


def mirrored_shares(votes):
    return vote_shares(votes)[:, ::-1]


@pytest.mark.parametrize("method_name", ["EM", "EBCC", "CUBAM", "GLAD"])
def test_an_optimum_with_exchanged_classes_is_turned_round(method_name, monkeypatch):
    votes, labels = good_voters(num_items=2000)
    usual = METHODS[method_name].fit(votes, key=KEY)
    monkeypatch.setattr(dawid_skene_em, "_spectral_starts", lambda _: [])
    monkeypatch.setattr(dawid_skene_em, "vote_shares", mirrored_shares)
    monkeypatch.setattr(ebcc, "vote_shares", mirrored_shares)
    monkeypatch.setattr(Cubam, "_start", lambda *_: Voters(np.full((8, 1), -1.0), np.zeros(8)))
    monkeypatch.setattr(glad, "ABILITY_MEAN", -1.0)
    method = DawidSkeneEM(random_starts=0) if method_name == "EM" else METHODS[method_name]
    turned = method.fit(votes, key=KEY)
    assert turned.diagnostics.flipped == (method_name != "EBCC")  # EBCC's subtypes find their classes by themselves
    assert not usual.diagnostics.flipped
    assert np.mean(turned.codes == labels) > 0.9
    np.testing.assert_allclose(turned.params["confusion"], usual.params["confusion"], atol=0.1)


AT_ONCE = ("vote", "spectral", "restricted")
"""Methods without rounds."""


@pytest.mark.parametrize("name", [name for name in (*METHODS, *OTHERS) if not name.startswith(AT_ONCE)])
def test_a_limit_of_time_holds_for_every_method(name, monkeypatch):
    votes, _ = good_voters(num_voters=6)
    method = METHODS[name] if name in METHODS else OTHERS[name](votes)
    monkeypatch.setenv("LATENTENS_SECONDS", "0")
    with pytest.raises(LimitError, match="the limit of 0"):
        method.fit(votes, key=KEY)
