"""Votes for categories that are not labels, such as "tie": against loops, and against taking them as missing."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest

import latentens as le
from latentens.datasets import simulate
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, Ebcc, Glad, MajorityVote, MaximumLikelihood, Nuts, Tempered
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    HierarchicalDawidSkene,
    ItemDifficulty,
    Mace,
    TopDown,
    Tree,
)
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import bayes_posterior, log_likelihood, pointwise_log_likelihood
from latentens.votes import Votes
from tests import oracles

KEY = jax.random.key(0)
CLASSES = ("No", "Yes")
FIT = ("fit", "DawidSkeneEM", "votes.csv", "--out", "labels.csv")


def posterior_by_loops(prevalence, confusion, votes):
    found = []
    for item in range(votes.num_items):
        joint = np.array(prevalence)
        for i, voter, vote in zip(*votes.triplets, strict=True):
            if i == item:
                joint = joint * confusion[voter, :, vote]
        found.append(joint / joint.sum())
    return np.array(found)


def confusion_of(model, params):
    """Confusion matrices, written out for each model."""
    shape = model.num_voters, model.num_classes, model.num_categories
    if isinstance(model, DawidSkene):
        return params["confusion"]
    confusion = np.empty(shape)
    for j, k, x in itertools.product(*map(range, shape)):
        if isinstance(model, ClassConditional):
            right = params["accuracy"][j, k]
            confusion[j, k, x] = right if x == k else (1 - right) / (shape[2] - 1)
        else:
            confusion[j, k, x] = np.exp((params["population"] + params["spread"] * params["deviation"][j])[k, x])
    return confusion / confusion.sum(axis=2, keepdims=True)


def informative_ties(num_items=1500, num_voters=5, seed=0):
    """Voters who say "Unsure" on most items labelled Yes and on few others."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=num_items)
    chances = np.array([[0.65, 0.3, 0.05], [0.15, 0.35, 0.5]])
    drawn = (generator.random((num_items, num_voters, 1)) > chances.cumsum(axis=1)[truth][:, None]).sum(axis=2)
    words = np.array(["No", "Yes", "Unsure", ""])
    drawn[generator.random(drawn.shape) < 0.1] = 3
    return words[drawn], truth


def test_readers_know_categories_that_are_not_labels(tmp_path):
    words, _ = informative_ties(50)
    votes = Votes.from_matrix(words, classes=CLASSES)
    path = tmp_path / "votes.csv"
    path.write_text("a,b,c,d,e\n" + "\n".join(map(",".join, words)))
    for made in (votes, Votes.from_csv(path, classes=CLASSES)):
        assert (made.class_names, made.other_names, made.num_classes, made.num_categories) == (
            CLASSES,
            ("Unsure",),
            2,
            3,
        )
        assert made.num_missing == (words == "").sum()
        assert made.to_frame().fillna("").to_numpy().tolist() == words.tolist()
    assert votes.without_other_votes().num_missing == ((words == "") | (words == "Unsure")).sum()
    assert Votes.from_matrix(words, classes=("No", "Yes", "Never")).class_names == ("No", "Yes", "Never")
    with pytest.raises(VotesError, match="not one of the classes"):
        Votes.from_matrix([["no", "No"], ["Yes", "No"]], classes=CLASSES)
    with pytest.raises(VotesError, match="30 different votes"):
        Votes.from_matrix([["No", "Yes", *map(str, range(30))]], classes=CLASSES)


@pytest.mark.parametrize("model", [DawidSkene, ClassConditional, HierarchicalDawidSkene])
@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_posterior_is_that_of_loops(model, num_classes, repeated):
    model = model(4, num_classes, num_categories=num_classes + 2)
    made = simulate(model, 40, key=KEY)
    assert (made.votes.num_classes, made.votes.num_categories) == (num_classes, num_classes + 2)
    frame = made.votes.to_long().sample(frac=0.8, random_state=0)
    if repeated:
        frame = frame.iloc[np.r_[: len(frame), :30]]
    votes = Votes.from_long(frame, classes=range(num_classes), duplicates="keep")
    assert votes.has_repeats == repeated
    params = made.params
    expected = posterior_by_loops(params["prevalence"], confusion_of(model, params), votes)
    np.testing.assert_allclose(bayes_posterior(model, params, votes), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "oracle"),
    [
        (partial(Tree, (0, 0, 1, 2)), oracles.tree),
        (partial(TopDown, 4, 2), oracles.top_down),
        (partial(Confounder, 4), oracles.confounder),
        (partial(Mace, 4), oracles.mace),
    ],
    ids=["Tree", "TopDown", "Confounder", "Mace"],
)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_posteriors_and_likelihoods_are_those_of_brute_force(model, oracle, num_classes):
    model = model(num_classes=num_classes, num_categories=num_classes + 2)
    made = simulate(model, 40, key=KEY)
    frame = made.votes.to_long().sample(frac=0.8, random_state=0)
    votes = Votes.from_long(frame.iloc[np.r_[: len(frame), :30]], classes=range(num_classes), duplicates="keep")
    counts = np.zeros((votes.num_items, 4, num_classes + 2))
    np.add.at(counts, tuple(votes.triplets), 1)
    joint = oracle(model, made.params, counts)
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(bayes_posterior(model, made.params, votes), expected, atol=1e-10)
    np.testing.assert_allclose(log_likelihood(model, made.params, votes), np.log(joint.sum(axis=1)).sum(), rtol=1e-10)
    assert structure_of(model).num_vote_classes == num_classes + 2
    example = model.example_params(KEY)
    assert {name: value.shape for name, value in example.items()} == structure_of(model).parameter_shapes


def test_who_knows_the_label_never_says_tie_and_unsure_lies_in_the_middle():
    """By hand: a tie says nothing in `Mace`; in `Confounder` a strong factor moves votes from 0 over the tie to 1."""
    votes = Votes.from_matrix([["No", "Tie"], ["Yes", "Tie"]], classes=CLASSES)
    params = {"prevalence": np.full(2, 0.5), "competence": np.array([0.6, 0.9]), "strategy": np.full((2, 3), 1 / 3)}
    found = bayes_posterior(Mace(2, num_categories=3), params, votes)
    right = 0.6 + 0.4 / 3
    np.testing.assert_allclose(found[:, 0], np.array([right, 0.4 / 3]) / (right + 0.4 / 3), atol=1e-12)
    shared = {"prevalence": np.full(2, 0.5), "confusion": np.full((2, 2, 3), 1 / 3), "loading": np.full(2, 0.99)}
    pairs = Votes.from_matrix([["No", "Yes"], ["No", "Tie"], ["Yes", "Tie"]], classes=CLASSES)
    far, *near = pointwise_log_likelihood(Confounder(2, num_categories=3), shared, pairs)
    assert far < min(near) - 3
    np.testing.assert_allclose(*near, atol=1e-8)


def test_estimates_use_them_and_as_many_votes_as_classes_change_nothing():
    words, truth = informative_ties()
    votes = Votes.from_matrix(words, classes=CLASSES)
    without = votes.without_other_votes()
    for method in (DawidSkeneEM(), Ebcc(num_subtypes=2, restarts=1), Tempered(DawidSkeneEM())):
        fit = method.fit(votes, key=KEY)
        assert np.mean(fit.codes == truth) > np.mean(method.fit(without, key=KEY).codes == truth) + 0.03
        np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-8)
    fit = DawidSkeneEM(0.0, 0.0).fit(votes, key=KEY)
    expected = posterior_by_loops(fit.params["prevalence"], fit.params["confusion"], votes)
    np.testing.assert_allclose(fit.label_probs, expected, atol=1e-10)
    assert "says_Unsure_if_Yes" in fit.voters
    likelihood = MaximumLikelihood(DawidSkene(5, num_categories=3), starts=2).fit(votes, key=KEY)
    np.testing.assert_allclose(likelihood.label_probs, fit.label_probs, atol=1e-3)
    same = [MaximumLikelihood(DawidSkene(5, num_categories=size), starts=1) for size in (None, 2)]
    probs = [method.fit(without, key=KEY).label_probs for method in same]
    np.testing.assert_array_equal(*probs)


@pytest.mark.parametrize("method", [MajorityVote(), Glad(), MaximumLikelihood(ItemDifficulty(5), starts=1)], ids=str)
def test_methods_without_them_say_that_they_are_missing(method, tmp_path):
    votes = Votes.from_matrix(informative_ties(200)[0], classes=CLASSES)
    fit = method.fit(votes, key=KEY)
    assert any("votes for 'Unsure', not a label, count as missing" in note for note in fit.diagnostics.notes)
    np.testing.assert_array_equal(fit.label_probs, method.fit(votes.without_other_votes(), key=KEY).label_probs)
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-10)
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_allclose(le.load_fit(tmp_path / "fit.nc").predict(votes), fit.label_probs, atol=1e-10)


def test_nuts_uses_them_and_a_model_without_room_for_them_says_what_to_give():
    votes = Votes.from_matrix(informative_ties(200)[0], classes=CLASSES)
    fit = Nuts(DawidSkene(5, num_categories=3), num_warmup=100, num_samples=100, num_chains=1).fit(votes, key=KEY)
    assert fit.draws["confusion"].shape[2:] == (5, 2, 3)
    with pytest.raises(VotesError, match="give num_categories=3"):
        MaximumLikelihood(DawidSkene(5)).fit(votes, key=KEY)


def test_commands_take_them_and_ask_for_them(invoke, tmp_path):
    words, truth = informative_ties(120)
    rows = [f"q{i}," + ",".join(row) for i, row in enumerate(words)]
    (tmp_path / "votes.csv").write_text("item,a,b,c,d,e\n" + "\n".join(rows))
    (tmp_path / "truth.csv").write_text("item,truth\n" + "\n".join(f"q{i},{CLASSES[k]}" for i, k in enumerate(truth)))
    code, shown, error = invoke(*FIT, "--gold", "truth.csv", cwd=tmp_path)
    assert code == 0
    assert "no known label is 'Unsure': if votes can be, but labels cannot, add --classes No,Yes" in error + shown
    classes = "--classes", "No,Yes"
    for command in (FIT, ("check", "votes.csv")):
        code, shown, error = invoke(*command, *classes, cwd=tmp_path)
        assert code == 0, error
        assert "votes that are not labels: 'Unsure'" in shown
    methods = "-m", "DawidSkeneEM", "-m", "MajorityVote", "-m", "MaximumLikelihood(DawidSkene, starts=1)"
    options = "--votes", "votes.csv", "--truth", "truth.csv", "--out", "result"
    code, _, error = invoke("compare", *options, *methods, *classes, cwd=tmp_path)
    assert code == 0, error
    code, _, error = invoke("report", "result/tree.nc", cwd=tmp_path)
    assert code == 0, error


@pytest.mark.slow
@pytest.mark.parametrize("method", [MaximumLikelihood, lambda model: DawidSkeneEM()], ids=["program", "EM"])
def test_recovery(method):
    model = DawidSkene(6, 2, num_categories=3)
    params = model.example_params(jax.random.key(3))
    made = simulate(model, 100_000, key=KEY, params=params)
    fit = method(model).fit(made.votes, key=KEY)
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value, atol=0.02, err_msg=name)
