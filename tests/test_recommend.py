"""Recommendations: twins of votes, what they say about methods, and the choice among these."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import latentens as le
from latentens.cli.app import app
from latentens.cli.methods import find_methods
from latentens.comparison import Outcome
from latentens.datasets import Dataset
from latentens.errors import LatentensError
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood
from latentens.methods.base import Diagnostics, Method
from latentens.models import Confounder, DawidSkene, OneCoin
from latentens.recommendation import candidates
from latentens.recommendation.candidates import (
    Candidate,
    FittedModel,
    default_candidates,
    default_methods,
    judge,
    unidentified_label,
)
from latentens.recommendation.decision import (
    Twin,
    TwinScores,
    choose,
    contributions,
    draw_twins,
    labels_to_check_accuracy,
    labels_to_separate_models,
    mcnemar_sample_size,
    score_on_gold,
)
from latentens.scores import compare_accuracy, log_losses
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes
from tests.reference import two_class

KEY = jax.random.key(5)
VOTERS = 6
PARAMS = two_class(0.4, np.array([0.95, 0.9, 0.6, 0.6, 0.55, 0.5]), np.array([0.6, 0.55, 0.95, 0.9, 0.7, 0.6]))
METHODS = {"MajorityVote": MajorityVote(), "DawidSkeneEM": DawidSkeneEM()}
MODELS = {"OneCoin": MaximumLikelihood(OneCoin(VOTERS), starts=0), "DawidSkene": DawidSkeneEM()}


@pytest.fixture(scope="module")
def data():
    return le.simulate(DawidSkene(VOTERS), 600, key=KEY, params=PARAMS)


@pytest.fixture(scope="module")
def tree(data):
    return le.recommend(data.votes, METHODS, MODELS, key=KEY, twins=3)


def sentences(tree):
    return [str(text) for text in tree["votes/recommendation/sentence"].values]


def test_the_votes_rule_out_the_wrong_model_and_the_better_method_is_recommended(tree, data):
    found = tree["votes/recommendation"].to_dataset()
    assert tree.attrs["recommended"] == "DawidSkeneEM"
    assert "predicts votes worse than DawidSkene" in str(found["ruled_out"].sel(model="OneCoin").item())
    assert found["ruled_out"].sel(model="DawidSkene").item() == ""
    assert found["weight"].values.tolist() == [0.0, 1.0]
    for method, probs in zip(METHODS, tree["votes/estimates/label_prob"].sel(repetition=0).values, strict=False):
        expected = found.sel(model="DawidSkene", estimator=method)
        real = balanced_accuracy(data.labels, probs.argmax(axis=1))
        assert expected["balanced_accuracy_low"] <= real <= expected["balanced_accuracy_high"]
    assert sentences(tree)[0].startswith("Use DawidSkeneEM: ")
    assert "None of this proves the labels right" in sentences(tree)[-1]


def test_a_recommendation_is_a_comparison_that_can_be_saved(tree, tmp_path):
    le.save_comparison(tree, tmp_path / "tree.nc")
    loaded = le.load_comparison(tmp_path / "tree.nc")
    assert loaded.attrs["recommended"] == tree.attrs["recommended"]
    assert loaded["votes/recommendation"].to_dataset().equals(tree["votes/recommendation"].to_dataset())
    assert set(loaded["scores"]["estimator"].values) == set(METHODS)


def test_the_same_key_recommends_the_same_and_a_folder_resumes(tree, data, tmp_path):
    progress = []
    runs = []
    for _ in range(2):
        progress.clear()
        again = le.recommend(
            data.votes, METHODS, MODELS, key=KEY, twins=3, folder=tmp_path, on_progress=lambda *n: progress.append(n)
        )
        runs.append(list(progress))
        assert again["votes/recommendation"].to_dataset().equals(tree["votes/recommendation"].to_dataset())
    assert runs[0][0][0] == 0
    assert all(done == total for done, total in runs[1])  # nothing was fitted again


def test_coin_tosses_have_nothing_to_find():
    votes = Votes.from_matrix(np.random.default_rng(3).integers(2, size=(200, 5)))
    tree = le.recommend(votes, METHODS, MODELS, key=KEY)
    assert tree.attrs["recommended"] == ""
    assert sentences(tree)[0].startswith("There is nothing to find.")
    assert "model" not in tree["votes/recommendation"].dims


def test_gold_labels_overrule_what_votes_say(data):
    """Labels that follow the majority, whatever explains the votes."""
    majority = MajorityVote().fit(data.votes, key=KEY).codes
    gold = np.where(np.arange(600) < 300, majority, -1)
    tree = le.recommend(data.votes, METHODS, MODELS, key=KEY, twins=2, gold=gold)
    assert tree.attrs["recommended"] == "MajorityVote"
    answer, worse, *_ = sentences(tree)
    assert answer.startswith(
        "Use MajorityVote: on your 300 gold labels, each predicted by a fit that has not seen it, "
    )
    assert worse.startswith("Significantly worse on the 300 gold labels, by a paired test: DawidSkeneEM (")


def test_large_data_are_sampled_and_gold_items_stay(data):
    many = Votes.from_matrix(np.tile(data.votes.matrix, (4, 1)))
    gold = {item: int(data.labels[item % 600]) for item in range(5, 2400, 50)}
    tree = le.recommend(many, METHODS, {"DawidSkene": DawidSkeneEM()}, key=KEY, gold=gold, quick=True)
    assert set(gold) <= set(tree["votes/truth"]["item"].values.tolist())
    assert tree["votes/truth"].sizes["item"] == 2000
    assert any("a sample of 2,000 of the 2,400 items" in words for words in sentences(tree))


def test_bad_requests_get_a_sentence(data):
    with pytest.raises(LatentensError, match="at least one twin"):
        le.recommend(data.votes, key=KEY, twins=0)
    with pytest.raises(LatentensError, match="no candidate model could be fitted"):
        le.recommend(data.votes, METHODS, [MajorityVote()], key=KEY)


def test_twins_keep_the_pattern_of_votes():
    generator = np.random.default_rng(0)
    frame = {"item": generator.integers(30, size=200), "voter": generator.integers(VOTERS, size=200)}
    sparse = Votes.from_long({**frame, "vote": generator.integers(2, size=200)}, duplicates="keep")
    matrix = Votes.from_matrix(generator.integers(-1, 2, size=(40, VOTERS)))
    for votes in (sparse, matrix):
        made = FittedModel(
            "w", "m", DawidSkeneEM(), DawidSkeneEM(), DawidSkene(VOTERS), PARAMS, np.ones((votes.num_items, 2)) / 2
        )
        gold = np.where(np.arange(votes.num_items) < 5, 0, -1)
        twins = draw_twins(made, Dataset("votes", votes, gold, gold=gold), KEY, 2)
        for twin in twins:
            assert (twin.votes.triplets.item == votes.triplets.item).all()
            assert (twin.votes.triplets.voter == votes.triplets.voter).all()
            assert list(twin.votes.item_names) == list(votes.item_names)
            assert (twin.gold == np.where(gold >= 0, twin.labels, -1)).all()
        assert (twins[0].votes.triplets.vote != twins[1].votes.triplets.vote).any()


def random_twins(number=4, items=500, seed=0):
    generator = np.random.default_rng(seed)
    twins = []
    for _ in range(number):
        exact = generator.dirichlet([0.5, 0.5], items)
        labels = (generator.random(items) < exact[:, 1]).astype(int)
        blurred = 0.5 * exact + 0.25
        noisy = np.where(generator.random((items, 1)) < 0.2, exact[:, ::-1], exact)
        twins.append(Twin(labels, exact, {"blurred": blurred, "noisy": noisy}, None))
    return TwinScores("model", twins)


def test_scores_of_twins_are_those_of_the_package_over_all_labels():
    found = random_twins(1)
    (twin,), generator = found.twins, np.random.default_rng(1)
    drawn = [(generator.random(500) < twin.exact[:, 1]).astype(int) for _ in range(2000)]
    for method in ("blurred", "noisy"):
        probs = twin.posteriors[method]
        for labels in drawn[:3]:
            known = np.eye(2)[labels]
            accuracy = balanced_accuracy(labels, probs.argmax(axis=1))
            assert contributions("balanced_accuracy", known, probs).sum() == pytest.approx(accuracy)
            assert contributions("log_score", known, probs).sum() == pytest.approx(
                np.nanmean(log_losses(labels, probs))
            )
        accuracies = [balanced_accuracy(labels, probs.argmax(axis=1)) for labels in drawn]
        assert found.scores("balanced_accuracy", method) == pytest.approx(np.mean(accuracies), abs=2e-3)
        scores = [np.nanmean(log_losses(labels, probs)) for labels in drawn]
        assert found.scores("log_score", method) == pytest.approx(np.mean(scores), abs=5e-3)


def test_gains_are_differences_of_scores():
    found = random_twins()
    gain = found.gain("balanced_accuracy", None, "noisy")
    differences = found.scores("balanced_accuracy", None) - found.scores("balanced_accuracy", "noisy")
    assert gain == pytest.approx(differences.mean())
    assert found.gain("balanced_accuracy", None, "blurred") == 0
    assert found.gain("log_score", None, "blurred") > 0
    losses = found.losses("balanced_accuracy", ["blurred", "noisy"])
    assert losses == {"blurred": 0, "noisy": pytest.approx(gain)}


def test_unknown_labels_add_nothing():
    truth, probs = np.array([[1, 0], [0, 0], [0, 1], [0, 1.0]]), np.array([[9, 1], [5, 5], [2, 8], [7, 3]]) / 10
    assert contributions("balanced_accuracy", truth, probs).tolist() == [0.5, 0.0, 0.25, 0.0]
    assert contributions("log_score", truth, probs)[1] == 0


def chosen(labels, probabilities, methods, gold=None):
    return choose({"balanced_accuracy": labels, "log_score": probabilities}, methods, gold)


def test_the_choice_is_minimax_then_probabilities_then_cost():
    one = {"a": 0.0, "b": 0.02, "c": 0.021, "d": 0.0}
    two = {"a": 0.05, "b": 0.0, "c": 0.0, "d": 0.2}
    flat, sure = dict.fromkeys("abcd", 0.0), {"a": 0.0, "b": 0.5, "c": 0.0, "d": 0.0}
    assert chosen({"one": one, "two": two}, {"one": flat}, "abcd").method == "b"  # tied with c, and cheaper
    choice = chosen({"one": one, "two": two}, {"one": sure}, "abcd")
    assert (choice.method, choice.worst_model, choice.tied) == ("c", "one", ("b", "c"))
    assert chosen({"one": one}, {"one": flat}, "abcd").method == "a"


def test_gold_labels_come_before_models_and_the_log_score_decides_without_them():
    labels = np.arange(200) % 2
    right = np.eye(2)[labels]
    good = np.where(np.arange(200)[:, None] < 10, right[:, ::-1], right)
    said = {"bad": 0.8 * right[:, ::-1] + 0.1, "good": 0.9 * good + 0.05, "sure": 0.999 * good + 0.0005}
    gold = score_on_gold(labels, said, KEY)
    assert (gold.number, gold.best, gold.worse) == (200, "good", ("bad",))
    assert set(gold.close) == {"good", "sure"}
    assert chosen({}, {}, ["bad", "sure", "good"], gold).method == "good"
    losses = {"one": {"bad": 0.0, "good": 0.1, "sure": 0.05}}
    assert chosen(losses, losses, ["bad", "good", "sure"], gold).method == "sure"
    assert chosen({}, {}, ["MajorityVote", "DawidSkeneEM"]).method == "DawidSkeneEM"
    assert chosen({}, {}, ["mine", "yours"]).method == "mine"


def test_few_gold_labels_prove_nothing():
    labels = np.array([0, 1] * 5 + [-1] * 5)
    right = np.eye(2)[np.maximum(labels, 0)]
    nearly, wrong = right.copy(), right[:, ::-1]
    nearly[0] = nearly[0, ::-1]
    gold = score_on_gold(labels, {"right": right, "nearly": nearly, "wrong": wrong}, KEY)
    assert gold.number == 10
    assert gold.close == ("right", "nearly")
    assert gold.worse == ("wrong",)
    assert gold.accuracy["right"].low < 0.8


def model(name, held_out):
    made = FittedModel(name, name, DawidSkeneEM(), DawidSkeneEM(), DawidSkene(VOTERS), PARAMS, np.ones((1, 2)) / 2)
    return replace(made, held_out=held_out)


def judged_by_name(*arguments):
    return {found.name: found for found in judge(*arguments)}


def test_models_are_judged_by_votes_and_then_by_gold():
    generator = np.random.default_rng(1)
    base = generator.normal(size=400)
    near, far = base + generator.normal(-0.001, 0.1, 400), base + generator.normal(-1.0, 0.5, 400)
    models = [model("best", base), model("near", near), model("far", far)]
    judged = judged_by_name(models, {}, KEY)
    assert [bool(judged[name].ruled_out) for name in ("best", "near", "far")] == [False, False, True]
    assert sum(each.weight for each in judged.values()) == pytest.approx(1)
    assert judged["far"].difference == pytest.approx((far - base).sum())
    gold = {"best": np.full(50, -2.0) + base[:50] / 10, "near": np.full(50, -2.0), "far": np.full(50, -0.1)}
    judged = judged_by_name(models, gold, KEY)
    assert [bool(judged[name].ruled_out) for name in ("best", "near", "far")] == [True, True, False]
    judged = judged_by_name(models, {**gold, "far": gold["near"] + 0.01}, KEY)  # no reason to doubt the votes
    assert [bool(judged[name].ruled_out) for name in ("best", "near", "far")] == [False, False, True]


def test_a_model_must_predict_better_than_a_simpler_one():
    generator = np.random.default_rng(2)
    base = generator.normal(size=400)
    more = Confounder(VOTERS)
    level = replace(model("level", base + generator.normal(0.01, 0.3, 400)), model=more)
    ahead = replace(model("ahead", base + generator.normal(0.2, 0.3, 400)), model=more)
    judged = judged_by_name([model("simple", base), level], {}, KEY)
    assert (judged["simple"].ruled_out, judged["simple"].weight) == ("", 1.0)
    assert judged["level"].ruled_out == "predicts votes no better than simple, which is simpler"
    judged = judged_by_name([model("simple", base), ahead], {}, KEY)
    assert judged["ahead"].ruled_out == ""
    assert "worse than ahead" in judged["simple"].ruled_out
    for fault in ({"check_p_value": 0.001}, {"unidentified": "so it is"}):  # cannot stand for others
        judged = judged_by_name([replace(model("simple", base), **fault), level], {}, KEY)
        assert judged["level"].ruled_out == ""
        assert judged["level"].weight == 1
        assert judged["simple"].ruled_out


def test_contradicted_models_and_open_labels_are_ruled_out_even_if_none_is_left():
    base = np.random.default_rng(2).normal(size=400)
    contradicted = replace(model("contradicted", base), check_p_value=0.0001)
    opened = replace(model("opened", base + 0.001), unidentified="the label is not identified")
    judged = judged_by_name([contradicted, opened], {}, KEY)
    assert judged["contradicted"].ruled_out == "is contradicted by the votes (p < 0.001)"
    assert judged["opened"].ruled_out == "does not identify the label: the label is not identified"
    assert [each.weight for each in judged.values()] == [0, 0]


@pytest.mark.parametrize(
    ("diagnostics", "words"),
    [
        ({}, ""),
        ({"identified": True, "label_change": 0.04}, ""),
        ({"label_change": 0.2}, "20\u00a0% of its labels change at another optimum that fits about as well"),
        (
            {"identified": False, "label_doubts": ["x", "the label is not identified: y"]},
            "the label is not identified: y",
        ),
        ({"identified": False}, "the label is not identified"),
    ],
)
def test_fits_say_that_their_label_is_open(diagnostics, words):
    assert unidentified_label(Outcome(diagnostics=Diagnostics(**diagnostics))) == words


@pytest.mark.parametrize(("only_one", "only_other"), [(0.1, 0.02), (0.2, 0.12)])
def test_as_many_gold_labels_as_mcnemar_needs(only_one, only_other):
    number, generator = int(mcnemar_sample_size(only_one, only_other)), np.random.default_rng(0)
    found = []
    for _ in range(400):
        kind = generator.choice(3, number, p=[only_one, only_other, 1 - only_one - only_other])
        first, second = (np.eye(2)[(kind == wrong).astype(int)] for wrong in (1, 0))
        found.append(compare_accuracy(np.zeros(number, int), first, second).p_value <= 0.05)
    assert 0.7 < np.mean(found) < 0.88  # the exact test is a little weaker than the formula says


def test_gold_numbers_grow_as_differences_shrink():
    one, two = np.array([[0.9, 0.1]] * 5), np.array([[0.2, 0.8]] * 5)
    assert labels_to_separate_models(one, two) < labels_to_separate_models(one, 0.5 * one + 0.5 * two)
    assert labels_to_separate_models(one, one) == np.inf
    assert mcnemar_sample_size(0.1, 0.1) == np.inf
    assert 50 < labels_to_check_accuracy(0.9) < 100


def test_the_command_answers_first_and_writes_the_report(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data.votes.to_frame().to_csv("votes.csv")
    command = ["recommend", "votes.csv", "--quick", "--out", "results", "-m", "MajorityVote", "-m", "DawidSkeneEM"]
    monkeypatch.setattr(
        candidates,
        "default_candidates",
        lambda votes, quick: {"DawidSkene": Candidate("DawidSkeneEM", DawidSkeneEM())},
    )
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.stdout.index("Use DawidSkeneEM: ") < done.stdout.index("None of this proves")
    assert "To label the votes with it:\nlatentens fit DawidSkeneEM votes.csv --out labels.csv\n" in done.stdout
    assert le.load_comparison("results/tree.nc").attrs["recommended"] == "DawidSkeneEM"
    page = (tmp_path / "results" / "report.html").read_text()
    assert "Which method to use" in page
    assert "can only be compared with each other" not in page


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.7])
def test_names_are_what_the_command_line_takes(classes, quick, missing):
    generator = np.random.default_rng(0)
    matrix = generator.integers(classes, size=(20, VOTERS))
    votes = Votes.from_matrix(np.where(generator.random(matrix.shape) < missing, -1, matrix), num_classes=classes)
    named = default_methods(votes, quick=quick)
    for name, method in default_candidates(votes, quick=quick).values():
        named[name] = method if isinstance(method, Method) else method(votes)
    made = {name: make(votes) for name, make in find_methods(list(named)).items()}
    assert made == named


@pytest.mark.parametrize(
    ("num_voters", "missing", "dependent"), [(8, 0.0, "Tree"), (8, 0.7, "Confounder"), (5, 0.0, "Confounder")]
)
def test_quick_models_have_dependent_voters_too(num_voters, missing, dependent):
    generator = np.random.default_rng(1)
    matrix = np.where(generator.random((60, num_voters)) < missing, -1, generator.integers(2, size=(60, num_voters)))
    votes = Votes.from_matrix(matrix, num_classes=2)
    assert set(default_candidates(votes, quick=True)) == {"DawidSkene", dependent}
    assert set(default_candidates(votes, quick=True)) < set(default_candidates(votes, quick=False))


def test_a_quick_answer_without_groups_asks_the_spare_model(data, monkeypatch):
    monkeypatch.setattr(
        candidates, "default_candidates", lambda votes, quick: {"DawidSkene": Candidate("D", DawidSkeneEM())}
    )
    monkeypatch.setattr(candidates, "spare_candidates", lambda _: {"OneCoin": Candidate("O", MODELS["OneCoin"])})
    tree = le.recommend(data.votes, METHODS, key=KEY, quick=True)
    assert tree["votes/recommendation"]["model"].values.tolist() == ["DawidSkene", "OneCoin"]


def test_a_quick_answer_tries_all_programs_where_votes_contradict_the_cheap_ones(data, monkeypatch):
    cheap, right = Candidate("O", MODELS["OneCoin"]), Candidate("D", DawidSkeneEM())
    everything = {"OneCoin": cheap, "DawidSkene": right}
    monkeypatch.setattr(candidates, "default_candidates", lambda _, quick: {"OneCoin": cheap} if quick else everything)
    monkeypatch.setattr(candidates, "spare_candidates", lambda _: {})
    tree = le.recommend(data.votes, METHODS, key=KEY, quick=True)
    assert tree["votes/recommendation"]["ruled_out"].sel(model="DawidSkene").item() == ""
    assert sentences(tree)[0].startswith("Use ")
    monkeypatch.setattr(candidates, "default_candidates", lambda _, quick: {"OneCoin": cheap})
    tree = le.recommend(data.votes, METHODS, key=KEY, quick=True)
    assert sentences(tree)[0].startswith("The votes cannot tell how accurate any method is: no candidate model")
    found = tree["votes/recommendation"].to_dataset()
    assert tree.attrs["recommended"] == "DawidSkeneEM"
    assert np.isnan(found["balanced_accuracy"]).all()


def test_a_candidate_whose_fit_is_another_one_is_not_used(data):
    twice = {"DawidSkene": DawidSkeneEM(), "again": DawidSkeneEM(random_starts=1)}
    tree = le.recommend(data.votes, {"MajorityVote": MajorityVote()}, models=twice, key=KEY, quick=True)
    told = " ".join(map(str, tree["votes/recommendation"]["sentence"].values))
    assert "Not used: again; it gives the same model as DawidSkene here, without groups of voters." in told
