"""What a fit knows: names are matched, gold labels belong to items, and a saved fit predicts as before."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import latentens as le
from latentens import GenerativeModel, Votes, simulate
from latentens.errors import LatentensError, VotesError
from latentens.methods import (
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    MajorityVote,
    MaximumLikelihood,
    Nuts,
    RBMStack,
    SpectralMetaLearner,
)
from latentens.models import DawidSkene
from latentens.votes import Triplets
from tests.reference import KEY, SIX_VOTERS_SAMPLED, independent_votes, two_class, votes_of_classes

VOTERS = list("abcdef")
RATES = np.linspace(0.65, 0.9, 6)
ANIMALS = ("ant", "cat", "dog")


def frame(num_items=300, seed=0, **options):
    votes, labels = independent_votes(num_items, RATES, RATES[::-1], seed=seed, **options)
    names = np.array(["no", "yes", None], dtype=object)
    table = pd.DataFrame(names[votes.matrix], columns=VOTERS, index=[f"q{i}" for i in range(num_items)])
    return table, labels


def animals(num_items=200):
    votes, _ = votes_of_classes(3, num_items=num_items, num_voters=5, missing=0.2)
    return Votes(votes.storage, *votes.shape, 3, (), tuple("abcde"), ANIMALS)


def sparse(votes):
    names = votes.item_names, votes.voter_names, votes.class_names
    return Votes(Triplets(*votes.triplets), *votes.shape, votes.num_classes, *names)


@pytest.fixture(scope="module")
def fitted():
    table, _ = frame()
    return table, DawidSkeneEM(random_starts=1).fit(Votes.from_matrix(table), key=KEY)


@pytest.mark.parametrize("storage", [lambda votes: votes, sparse], ids=["matrix", "triplets"])
def test_voters_are_matched_by_name_in_any_order(fitted, storage):
    table, fit = fitted
    turned = storage(Votes.from_matrix(table[VOTERS[::-1]]))
    np.testing.assert_allclose(fit.predict(turned), fit.label_probs, atol=1e-12)


def test_an_absent_voter_is_missing_and_a_stranger_is_left_out(fitted):
    table, fit = fitted
    gone = table.assign(b=None)
    np.testing.assert_allclose(
        fit.predict(Votes.from_matrix(table.drop(columns="b"))), fit.predict(Votes.from_matrix(gone)), atol=1e-12
    )
    with pytest.warns(UserWarning, match="'new' did not vote in the fit"):
        found = fit.predict(Votes.from_matrix(table.drop(columns="b").assign(new="yes")))
    np.testing.assert_allclose(found, fit.predict(Votes.from_matrix(gone)), atol=1e-12)
    with pytest.raises(VotesError, match="none of the voters 0, 1, 2, 3, 4, 5 is"):
        fit.predict(Votes.from_matrix(np.full((3, 6), "no", dtype=object), classes=["no", "yes"]))


def test_a_batch_without_a_class_keeps_the_names_of_the_others():
    votes = animals()
    fit = DawidSkeneEM(random_starts=1).fit(votes, key=KEY)
    table = votes.to_frame()
    without = table[(table != "ant").all(axis=1)].astype(object).where(table.notna(), None)
    batch = Votes.from_matrix(without)
    assert batch.class_names == ("cat", "dog")
    rows = table.index.get_indexer(without.index)
    np.testing.assert_allclose(fit.predict(batch), fit.label_probs[rows], atol=1e-12)
    with pytest.raises(VotesError, match="'Dog', not a class of the fit: did you mean 'dog'?"):
        fit.predict(Votes.from_matrix(without.replace("dog", "Dog")))


def test_numbers_and_their_text_are_the_same_name():
    votes, _ = independent_votes(100, RATES, RATES)
    fit = MajorityVote().fit(votes, key=KEY)
    written = votes.to_frame().astype(str)
    np.testing.assert_array_equal(fit.predict(Votes.from_matrix(written)), fit.label_probs)


GOLD_METHODS = {
    "EM": DawidSkeneEM(0.01, 0.01, random_starts=1),
    "hard EM": IterativeMaximumLikelihood(),
    "GLAD": Glad(),
    "EBCC": Ebcc(restarts=1),
    "likelihood": MaximumLikelihood(DawidSkene(6), starts=0),
}


@pytest.mark.parametrize("name", GOLD_METHODS)
def test_gold_labels_are_matched_by_item_and_believed(name):
    table, labels = frame(num_items=120)
    votes, method = Votes.from_matrix(table), GOLD_METHODS[name]
    known = {f"q{i}": ["no", "yes"][1 - labels[i]] for i in (100, 7, 30)}  # against the votes
    by_name = method.fit(votes, key=KEY, gold=known)
    for i in (100, 7, 30):
        np.testing.assert_array_equal(by_name.label_probs[i], np.eye(2)[1 - labels[i]])
    codes = np.full(120, -1)
    codes[[100, 7, 30]] = 1 - labels[[100, 7, 30]]
    for other in (pd.Series(known), codes, {item: int(label == "yes") for item, label in known.items()}):
        np.testing.assert_array_equal(method.fit(votes, key=KEY, gold=other).label_probs, by_name.label_probs)
    assert not np.allclose(by_name.label_probs, method.fit(votes, key=KEY).label_probs, atol=1e-6)


@pytest.mark.parametrize("name", GOLD_METHODS)
def test_all_labels_known_give_the_frequencies(name):
    """With every label known the estimates are those of counting, whatever the majority says."""
    table, labels = frame(num_items=400)
    votes = Votes.from_matrix(table)
    fit = GOLD_METHODS[name].fit(votes, key=KEY, gold=1 - labels)
    wrong = (votes.matrix == 0)[labels == 0].mean(axis=0)  # truly 0, called 1 by the gold labels: missed ones
    np.testing.assert_array_equal(fit.codes, 1 - labels)
    if name not in ("GLAD", "EBCC"):
        np.testing.assert_allclose(1 - fit.sensitivity, wrong, atol=1e-3)


@pytest.mark.parametrize(
    ("gold", "words"),
    [
        ({"q1": "maybe"}, "'maybe' are not among the classes of the votes: the classes are 'no', 'yes'"),
        ({"q1": "Yes"}, "did you mean 'yes'"),
        ({"q999": "yes"}, "none of the items with a gold label .'q999', …. is an item of the votes"),
        (np.zeros(7, dtype=int), "shape"),
        (
            pd.Series(["yes", "no"], index=["q1", "q1"]),
            "item 'q1' has more than one gold label, 'yes', 'no': keep one",
        ),
    ],
)
def test_gold_labels_that_fit_nothing_are_refused(fitted, gold, words):
    with pytest.raises(VotesError, match=words):
        DawidSkeneEM().fit(Votes.from_matrix(fitted[0]), key=KEY, gold=gold)


def test_classes_called_by_numbers_are_read_as_written():
    votes = Votes.from_matrix(np.array([["1", "2", "3"], ["2", "2", "1"], ["3", "3", "3"]], dtype=object))
    fit = DawidSkeneEM(random_starts=0).fit(votes, key=KEY, gold={0: 3, 1: "1"})
    np.testing.assert_array_equal(fit.codes[:2], [2, 0])


def one_coin(num_items, votes=None):
    DawidSkene(6).program(num_items, votes)


SAVED = {
    "vote": MajorityVote(),
    "EM": DawidSkeneEM(0.01, 0.01, random_starts=1),
    "spectral": SpectralMetaLearner(),
    "EBCC": Ebcc(restarts=1),
    "stack": RBMStack(hidden=(2, 1)),
    "likelihood from a start": MaximumLikelihood(
        DawidSkene(6), starts=0, warm=(), initial=(two_class(0.5, RATES, RATES),)
    ),
    "likelihood of a function": MaximumLikelihood(GenerativeModel.from_program(one_coin), starts=0),
    "NUTS": SIX_VOTERS_SAMPLED,
}


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_fit_predicts_as_the_original(name, tmp_path):
    table, _ = frame(num_items=60)
    other = Votes.from_matrix(frame(num_items=40, seed=1, missing=0.3)[0][VOTERS[::-1]])
    fit = SAVED[name].fit(Votes.from_matrix(table), key=KEY)
    fit.save(tmp_path / "fit.nc")
    loaded = le.load_fit(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.label_probs, fit.label_probs)
    np.testing.assert_array_equal(loaded.predict(other), fit.predict(other))
    assert repr(loaded.method) == repr(fit.method)
    assert (tuple(loaded.item_names), loaded.class_names) == (tuple(fit.item_names), fit.class_names)
    assert (loaded.draws is None) == (fit.draws is None)
    assert set(loaded.params) == set(fit.params)
    assert loaded.diagnostics.keys() == fit.diagnostics.keys()


def test_a_class_that_cannot_be_imported_is_asked_for(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Local(MajorityVote):
        pass

    votes, _ = independent_votes(20, RATES, RATES)
    fit = Local().fit(votes, key=KEY)
    fit.save(tmp_path / "fit.nc")
    with pytest.raises(LatentensError, match="pass it in types"):
        le.load_fit(tmp_path / "fit.nc")
    assert le.load_fit(tmp_path / "fit.nc", types=[Local]).method == Local()


def test_files_that_are_no_fits(tmp_path):
    with pytest.raises(LatentensError, match="no file"):
        le.load_fit(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(LatentensError, match="not a readable netCDF"):
        le.load_fit(tmp_path / "text.nc")


def test_a_fit_shows_itself_in_a_line_and_escaped():
    votes = Votes.from_matrix(pd.DataFrame({"a": ["<b>", "x"], "b": ["<b>", "x"]}))
    fit = MajorityVote().fit(votes, key=KEY)
    assert repr(fit).startswith("Fit(method: MajorityVote(), items: 2, voters: 2, labels: <b> 50% x 50%")
    assert "&lt;b&gt;" in fit._repr_html_()
    assert len(repr(DawidSkeneEM().fit(independent_votes(5000, RATES, RATES)[0], key=KEY))) < 500


def test_votes_are_what_is_fitted():
    with pytest.raises(VotesError, match="takes Votes, not a DataFrame"):
        MajorityVote().fit(frame()[0], key=jax.random.key(0))


def test_a_fit_is_a_tree_that_arviz_opens():
    data = simulate(DawidSkene(5), 60, key=KEY)
    point = DawidSkeneEM().fit(data.votes, key=KEY)
    tree = point.to_datatree()
    assert set(tree.children) == {"params", "estimates", "observed_data", "log_likelihood"}
    assert tree["log_likelihood/votes"].dims == ("chain", "draw", "item")
    np.testing.assert_allclose(tree["log_likelihood/votes"].sum(), point.diagnostics.log_likelihood)
    np.testing.assert_array_equal(tree["estimates/label_prob"], point.label_probs)
    sampled = Nuts(DawidSkene(5), num_chains=2, num_warmup=20, num_samples=10).fit(data.votes, key=KEY)
    tree = sampled.to_datatree()
    assert tree["posterior/confusion"].dims == ("chain", "draw", "voter", "true_class", "vote_class")
    assert {"lp", "diverging"} <= set(tree["sample_stats"].data_vars)
    assert tree["log_likelihood/votes"].shape == (2, 10, 60)
