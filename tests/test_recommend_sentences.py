"""What a recommendation says: each sentence with the evidence behind it, and no two that contradict each other."""

import re
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentens as le
from latentens.checks import check_signal
from latentens.cli.app import app
from latentens.datasets import Dataset
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood
from latentens.models import DawidSkene, OneCoin
from latentens.recommendation import candidates
from latentens.recommendation.candidates import Candidate, FittedModel
from latentens.recommendation.decision import SCORES, Recommendation, Twin, TwinScores, choose, score_on_gold
from latentens.recommendation.recommend import without_disproved
from latentens.recommendation.text import CAVEAT, GOLD_CAVEAT, NO_MODEL, sentences
from latentens.votes import Votes

KEY = jax.random.key(2)
ITEMS = 400
NAMES = ("MajorityVote", "DawidSkeneEM", "Tempered(DawidSkeneEM)", "Ebcc")
VOTES = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (ITEMS, 3)).repeat(2, axis=1))
SIGNAL = check_signal(VOTES, key=KEY)
ANY_POSTERIOR = np.tile([0.9, 0.1], (ITEMS, 1))


def stating(labels, accuracy, confidence, rng):
    """A posterior that is right on a share of the items, and states the same confidence everywhere."""
    right = rng.permutation(len(labels)) < accuracy * len(labels)
    chosen = np.where(right, labels, 1 - labels)
    return np.where(np.arange(2) == chosen[:, None], confidence, 1 - confidence)


def twins(accuracies, rng, confidence=0.9, exact=0.95):
    """Twins of one world on which methods have given accuracies."""
    drawn = []
    for _ in range(3):
        truth = stating(rng.integers(0, 2, ITEMS), 1.0, exact, rng)
        labels = (rng.random(ITEMS) < truth[:, 1]).astype(int)
        said = {name: stating(truth.argmax(axis=1), share, confidence, rng) for name, share in accuracies.items()}
        drawn.append(Twin(labels, truth, said, None))
    return TwinScores("Model", drawn)


def evidence(gold=None, model=None, unidentified=(), ruled_out="is contradicted by the votes (p < 0.001)", **more):
    """A recommendation.

    Args:
        gold: Number of gold labels, and the accuracy of each method on them.
        model: The accuracy of each method on twins; None if no model is plausible.
        unidentified: Methods whose label is not identified.
        ruled_out: Why no model is plausible.
        more: Other parts of the recommendation.
    """
    rng = np.random.default_rng(7)
    number, accuracies = gold or (0, {})
    labels = np.where(np.arange(ITEMS) < number, np.arange(ITEMS) % 2, -1)
    drawn = [] if model is None else [twins(model, rng)]
    every = [*(accuracies or model or dict.fromkeys(NAMES))]
    names = [name for name in every if name not in unidentified]
    known = labels >= 0
    said = {name: np.full((ITEMS, 2), 0.5) for name in every if accuracies}
    for name, probs in said.items():
        probs[known] = stating(labels[known], accuracies[name], 0.9, rng)
    method = DawidSkeneEM()
    fitted = FittedModel("Model", "m", method, method, DawidSkene(6), {}, ANY_POSTERIOR, check_summary="Details.")
    found = Recommendation(
        Dataset("votes", VOTES, np.full(ITEMS, -1), gold=labels if number else None),
        ITEMS,
        SIGNAL,
        [replace(fitted, weight=1.0) if drawn else replace(fitted, check_p_value=0.0001, ruled_out=ruled_out)],
        twins=drawn,
        unidentified=dict.fromkeys(unidentified, "the label is not identified: two groups"),
        **more,
    )
    if gold and names:
        found = without_disproved(found, score_on_gold(labels, said, KEY, unidentified))
    losses = {score: {part.model: part.losses(score, every) for part in found.twins} for score in SCORES}
    return replace(found, choice=choose(losses, names, found.gold) if names else None)


LEVEL = dict.fromkeys(NAMES, 0.8)
APART = {"MajorityVote": 0.6, "DawidSkeneEM": 0.95, "Ebcc": 0.94}

CASES = {
    "twins": (
        {"model": {"MajorityVote": 0.7, "DawidSkeneEM": 0.9}},
        ["Use DawidSkeneEM: on votes like these its expected balanced accuracy is "],
        "no other method is better under any plausible model",
        "Plausible models: Model.",
        "gold labels of items drawn at random would show whether the accuracy is 10 points lower.",
    ),
    "nothing": (
        {},
        ["The votes cannot tell how accurate any method is: ", NO_MODEL],
        "The safest choice is Tempered(DawidSkeneEM): ",
        "would measure the accuracy: about 100 to within 10 points and about 400 to within 5 points.",
        "Ruled out: Model, which is contradicted by the votes (p < 0.001). Details.",
        CAVEAT,
    ),
    "an open default": (
        {"unidentified": ("DawidSkeneEM", "Tempered(DawidSkeneEM)", "Ebcc")},
        ["The remaining choice is MajorityVote: it reports what most voters say and nothing else. Gold labels of "],
        "Not eligible: Tempered(DawidSkeneEM), because the label is not identified: two groups.",
    ),
    "an open world": (
        {"ruled_out": "does not identify the label: the label is not identified: two groups"},
        ["The votes cannot tell how accurate any method is: "],
        "Ruled out: Model, which does not identify the label: the label is not identified: two groups.",
    ),
    "gold only": (
        {"gold": (200, APART)},
        ["Use DawidSkeneEM: on your 200 gold labels, each predicted by a fit that has not seen it, ", "accuracy is 9"],
        "and no other method is more accurate.",
        f"The votes alone do not settle it: {NO_MODEL}.",
        "Significantly worse on the 200 gold labels, by a paired test: MajorityVote (",
        "Not significantly different from DawidSkeneEM on the 200 gold labels: Ebcc.",
        GOLD_CAVEAT,
    ),
    "few gold": (
        {"gold": (20, {"MajorityVote": 0.8, "DawidSkeneEM": 0.8})},
        ["Use DawidSkeneEM: on your 20 gold labels, each predicted by a fit that has not seen it, "],
        "MajorityVote and DawidSkeneEM are tied on the 20 gold labels, in labels and in log score.",
        "Of these, DawidSkeneEM is the safest: ",
    ),
    "gold and twins": (
        {"gold": (200, {"MajorityVote": 0.8, "Ebcc": 0.81}), "model": {"MajorityVote": 0.85, "Ebcc": 0.8}},
        ["Use MajorityVote: on your 200 gold labels", "that of Ebcc is 81.0", "not a significant difference"],
        "Simulated twins of the votes predict ",
        "which is consistent with this",
        "Among the methods that are tied on the 200 gold labels, MajorityVote has the smallest worst-case loss",
    ),
    "gold against twins": (
        {"gold": (200, {"DawidSkeneEM": 0.7}), "model": {"DawidSkeneEM": 0.99}},
        ["Use DawidSkeneEM: on your 200 gold labels", f"The votes alone do not settle it: {NO_MODEL}."],
        "Ruled out: Model, which implies that DawidSkeneEM labels 9",
        "of the 200 gold labels correctly.",
    ),
    "open methods": (
        {"gold": (100, {"DawidSkeneEM": 0.8, "TreeMLE": 0.95}), "unidentified": ("TreeMLE",)},
        ["Use DawidSkeneEM: ", "and no eligible method is more accurate."],
        "Not eligible: TreeMLE (95.0\u00a0% on the 100 gold labels), because the label is not identified: two groups.",
    ),
    "only open methods": (
        {"model": {"TreeMLE": 0.9}, "unidentified": ("TreeMLE",)},
        ["No method can be recommended: none of those tried identifies the label of these votes ("],
        "Not eligible: TreeMLE",
    ),
    "guessing": (
        {"gold": (60, {"DawidSkeneEM": 0.55})},
        ["its balanced accuracy is 55.0\u00a0% (95\u00a0% interval ", "), which may be no better than guessing"],
    ),
    "overconfident": (
        {"gold": (200, {"DawidSkeneEM": 0.7})},
        [],
        "The probabilities of DawidSkeneEM are overconfident: on the 200 gold labels its mean confidence is ",
        "points above its accuracy (",
    ),
    "modest": (
        {"gold": (300, {"DawidSkeneEM": 1.0})},
        [],
        "The probabilities of DawidSkeneEM are underconfident: on the 300 gold labels its mean confidence is ",
    ),
    "failures and samples": (
        {"failed": {"Glad": "no luck"}, "not_fitted": {"Tree": "no groups"}, "num_items": 9000},
        [],
        "Glad failed and was left out: no luck.",
        "Not used: Tree; no groups.",
        "All this is based on a sample of 400 of the 9,000 items.",
    ),
}


def made(options):
    replaced = {name: options[name] for name in ("failed", "not_fitted", "num_items") if name in options}
    return replace(evidence(**{k: v for k, v in options.items() if k not in replaced}), **replaced)


@pytest.mark.parametrize("case", CASES)
def test_each_sentence_follows_from_its_evidence(case):
    options, opening, *others = CASES[case]
    answer, *rest = sentences(made(options))
    for words in opening:
        assert words in answer
    said = "\n".join([answer, *rest])
    for words in others:
        assert words in said, said
    assert_consistent(made(options))


def test_without_a_signal_nothing_else_is_said():
    found = replace(evidence(), signal=replace(SIGNAL, p_value=0.5))
    answer, *rest = sentences(found)
    assert answer.startswith("There is nothing to find.")
    assert rest == []


def test_near_chance_the_answer_says_so():
    assert sentences(evidence(model={"DawidSkeneEM": 0.52}))[0].startswith(
        "There may be little or nothing to find. Otherwise use"
    )


def assert_consistent(found):
    """Whatever the evidence is, no sentence contradicts another."""
    said = sentences(found)
    chosen = found.choice.method if found.choice else ""
    for words in said:
        if words.startswith(("Significantly worse", "Not recommended", "Not significantly different")):
            listed = re.split(r"labels, by a paired test: |gold labels: |eligible: ", words)[1]
            assert chosen not in re.sub(r" \([^)]*%\)", "", listed.split(", because")[0]).rstrip(".").split(", ")
        if "gold label" in words and found.gold is not None and words not in (GOLD_CAVEAT,):
            assert f"{found.gold.number:,} gold labels" in words
    if not found.twins:  # no figure from twins is stated as if it could be believed
        told = [words for words in said if not words.startswith("Ruled out") and "gold labels" not in words]
        assert not any("\u00a0%" in words or "expected" in words for words in told)
    if found.gold is not None and chosen:
        more = {name for name, value in found.gold.accuracy.items() if value.value > found.gold.accuracy[chosen].value}
        assert ("no other method is more accurate" in said[0]) == (not more)
        assert ("no eligible method is more" in said[0]) == (more != set() and more <= {*found.unidentified})
        assert chosen not in found.gold.worse
        for name, value in found.gold.accuracy.items():
            for figure in re.findall(rf"{re.escape(name)} (?:\(|is )([\d.]+)\u00a0%", "\n".join(said)):
                assert figure == f"{100 * value.value:.1f}"


@pytest.mark.parametrize("seed", range(30))
def test_no_evidence_makes_sentences_that_contradict_each_other(seed):
    rng = np.random.default_rng(seed)
    options = {}
    if rng.random() < 0.7:
        options["gold"] = (int(rng.integers(4, 300)), dict(zip(NAMES, rng.uniform(0.5, 1, 4), strict=True)))
    if rng.random() < 0.6:
        options["model"] = dict(zip(NAMES, rng.uniform(0.5, 1, 4), strict=True))
    if rng.random() < 0.3:
        options["unidentified"] = (str(rng.choice(NAMES)),)
    assert_consistent(evidence(**options))


RATES = np.linspace(0.6, 0.9, 6)


def test_no_figure_of_a_contradicted_model_is_on_terminal_page_or_in_tables(tmp_path, monkeypatch):
    """Two voters of whom one repeats the other, and a program that does not know."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 500)
    votes = np.where(rng.random((500, 6)) < RATES, truth[:, None], 1 - truth[:, None])
    votes[:, 1] = votes[:, 0]
    made = Votes.from_matrix(votes)
    worlds = {"OneCoin": MaximumLikelihood(OneCoin(6), starts=0), "DawidSkene": DawidSkeneEM()}
    tree = le.recommend(made, [MajorityVote(), DawidSkeneEM()], worlds, key=KEY, twins=2)
    found = tree["votes/recommendation"].to_dataset()
    assert (found["ruled_out"] != "").all()
    assert any("contradicted by the votes" in str(words) for words in found["ruled_out"].values)
    assert all(values.isnull().all() for name, values in found.items() if "accuracy" in str(name))
    page = le.report(tree, tmp_path).read_text()
    assert "The votes cannot tell how accurate any method is" in page
    assert "expected balanced accuracy" not in page
    assert not (tmp_path / "twins.csv").exists()
    monkeypatch.chdir(tmp_path)
    made.to_frame().to_csv("votes.csv")
    catalogue = {name: Candidate(name, method) for name, method in worlds.items()}
    monkeypatch.setattr(candidates, "default_candidates", lambda votes, quick: catalogue)
    shown = CliRunner().invoke(app, ["recommend", "votes.csv", "--quick", "-m", "MajorityVote"])
    assert "The votes cannot tell how accurate any method is" in shown.stdout
    assert "expected balanced accuracy" not in shown.stdout


def jury(seed, num_items=1200):
    """Seven judges; the second repeats the first on 80 % of the items, the last one always says the same."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, num_items, p=[0.4, 0.35, 0.25])
    right = rng.random((num_items, 7)) < [0.8, 0.8, 0.9, 0.9, 0.85, 0.7, 0.0]
    votes = np.where(right, truth[:, None], (truth[:, None] + rng.integers(1, 3, right.shape)) % 3)
    votes[:, 1] = np.where(rng.random(num_items) < 0.8, votes[:, 0], votes[:, 1])
    votes[:, 6] = 0
    return votes, truth


@pytest.mark.slow
def test_the_jury_of_seven(tmp_path, monkeypatch):
    """With 150 gold labels the method is within half a point of the best; without, trees are called not identified."""
    monkeypatch.chdir(tmp_path)
    votes, truth = jury(2)
    words = np.array(["good", "fair", "poor"])
    items = pd.Index([f"q{item}" for item in range(1200)], name="item")
    pd.DataFrame(words[votes], items).to_csv("votes.csv")
    pd.Series(words[truth], items, name="gold").sample(150, random_state=1).to_csv("gold.csv")
    done = CliRunner().invoke(app, ["recommend", "votes.csv", "--gold", "gold.csv", "--quick", "--out", "out"])
    assert done.exit_code == 0, done.output
    assert "• Not tried: Consensus, " in done.stdout
    tree = le.load_comparison("out/tree.nc")
    probs = tree["votes/estimates/label_prob"].sel(repetition=0)
    names = probs["label"].to_numpy()
    right = (names[probs.to_numpy().argmax(axis=2)] == words[truth]).mean(axis=1)
    chosen = probs["estimator"].to_numpy().tolist().index(tree.attrs["recommended"])
    assert right[chosen] > right.max() - 0.005
    alone = CliRunner().invoke(app, ["recommend", "votes.csv", "--quick"])
    assert "identify a label" in " ".join(alone.stdout.split())
    assert "Not tried" not in alone.stdout
    assert "TreeMLE" not in alone.stdout
