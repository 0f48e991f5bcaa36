"""What a recommendation says: each sentence with the evidence behind it, and no two that contradict each other."""

import re
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentens as le
from latentens.checks.signal import check_signal
from latentens.cli.app import app
from latentens.datasets import Dataset
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood
from latentens.models import DawidSkene, OneCoin
from latentens.recommendation import recommend as recommending
from latentens.recommendation.catalogue import World
from latentens.recommendation.evidence import Evidence
from latentens.recommendation.expected_scores import SCORES, Twin, TwinScores
from latentens.recommendation.gold_verdict import judge_by_gold
from latentens.recommendation.minimax import choose, column
from latentens.recommendation.recommend import _without_disproved
from latentens.recommendation.twin_words import CAVEAT, GOLD_CAVEAT, NO_PROGRAM, sentences
from latentens.recommendation.verdicts import Verdict
from latentens.recommendation.worlds import FittedWorld
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
    return TwinScores("World", drawn)


def evidence(gold=None, world=None, open_labels=(), ruled_out="is contradicted by the votes (p < 0.001)", **more):
    """What a recommendation would rest on.

    Args:
        gold: Number of gold labels, and the accuracy of each method on them.
        world: The accuracy of each method on twins; None if no world is left.
        open_labels: Methods whose label is open.
        ruled_out: Why there is no world.
        more: Other parts of the evidence.
    """
    rng = np.random.default_rng(7)
    number, accuracies = gold or (0, {})
    labels = np.where(np.arange(ITEMS) < number, np.arange(ITEMS) % 2, -1)
    scores = [] if world is None else [twins(world, rng)]
    every = [*(accuracies or world or dict.fromkeys(NAMES))]
    names = [name for name in every if name not in open_labels]
    known = labels >= 0
    said = {name: np.full((ITEMS, 2), 0.5) for name in every if accuracies}
    for name, probs in said.items():
        probs[known] = stating(labels[known], accuracies[name], 0.9, rng)
    verdict = judge_by_gold(labels, said, KEY, open_labels) if gold and names else None
    fitted = FittedWorld("World", "m", DawidSkeneEM(), DawidSkene(6), {}, ANY_POSTERIOR, check_words="Details.")
    judged = {"World": Verdict(0.0, 0.0, 1.0 if scores else 0.0, "" if scores else ruled_out)}
    found = Evidence(
        Dataset("votes", VOTES, np.full(ITEMS, -1), gold=labels if number else None),
        ITEMS,
        SIGNAL,
        [replace(fitted, check_p_value=np.nan if scores else 0.0001)],
        judged,
        open_labels=dict.fromkeys(open_labels, "the label is not identified: two groups"),
        gold=verdict,
        **more,
    )
    if verdict is not None:
        found, scores = _without_disproved(found, scores, verdict)
    columns = {score: [column(part, score, every) for part in scores] for score in SCORES}
    choice = choose(columns["balanced_accuracy"], columns["log_score"], names, verdict) if names else None
    return replace(found, scores=scores, columns=columns, choice=choice)


LEVEL = dict.fromkeys(NAMES, 0.8)
APART = {"MajorityVote": 0.6, "DawidSkeneEM": 0.95, "Ebcc": 0.94}

CASES = {
    "twins": (
        {"world": {"MajorityVote": 0.7, "DawidSkeneEM": 0.9}},
        ["Use DawidSkeneEM: on votes like these it is expected to label "],
        "no method does better in any world that is not ruled out",
        "Worlds that are not ruled out: World.",
        "gold labels of items drawn at random would show whether the accuracy is 10 points lower.",
    ),
    "nothing": (
        {},
        ["The votes cannot tell how accurate any method is: ", NO_PROGRAM],
        "The safest choice is then Tempered(DawidSkeneEM): ",
        "would tell the accuracy: about 100 to within 10 points and about 400 to within 5 points.",
        "Ruled out: World, which is contradicted by the votes (p < 0.001). Details.",
        CAVEAT,
    ),
    "an open default": (
        {"open_labels": ("DawidSkeneEM", "Tempered(DawidSkeneEM)", "Ebcc")},
        ["What is left is MajorityVote: it says what most voters say, and no more. Gold labels of items drawn"],
        "Not recommended: Tempered(DawidSkeneEM), since the label is not identified: two groups.",
    ),
    "an open world": (
        {"ruled_out": "leaves the label open: the label is not identified: two groups"},
        ["The votes cannot tell how accurate any method is: "],
        "Ruled out: World, which leaves the label open: the label is not identified: two groups.",
    ),
    "gold only": (
        {"gold": (200, APART)},
        ["Use DawidSkeneEM: of your 200 gold labels, each predicted by a fit that has not seen it, it gets 9"],
        "and no method gets more right.",
        f"Votes alone could not tell: {NO_PROGRAM}.",
        "Clearly worse on the 200 gold labels, by a paired test: MajorityVote (",
        "Not clearly better or worse than DawidSkeneEM on the 200 gold labels: Ebcc.",
        GOLD_CAVEAT,
    ),
    "few gold": (
        {"gold": (20, {"MajorityVote": 0.8, "DawidSkeneEM": 0.8})},
        ["Use DawidSkeneEM: of your 20 gold labels, each predicted by a fit that has not seen it, "],
        "The 20 gold labels leave MajorityVote and DawidSkeneEM level, by labels and by log score.",
        "Of these DawidSkeneEM is the safest: ",
    ),
    "gold and twins": (
        {"gold": (200, {"MajorityVote": 0.8, "Ebcc": 0.81}), "world": {"MajorityVote": 0.85, "Ebcc": 0.8}},
        ["Use MajorityVote: of your 200 gold labels", "Ebcc gets 81.0", "a difference that they do not make clear"],
        "Twins of the votes lead one to expect ",
        "which the gold labels do not contradict",
        "Among methods that the 200 gold labels leave level, MajorityVote loses least in the worst of the worlds",
    ),
    "gold against twins": (
        {"gold": (200, {"DawidSkeneEM": 0.7}), "world": {"DawidSkeneEM": 0.99}},
        ["Use DawidSkeneEM: of your 200 gold labels", f"Votes alone could not tell: {NO_PROGRAM}."],
        "Ruled out: World, which leads one to expect that DawidSkeneEM labels 9",
        "of the 200 gold labels right.",
    ),
    "open methods": (
        {"gold": (100, {"DawidSkeneEM": 0.8, "TreeMLE": 0.95}), "open_labels": ("TreeMLE",)},
        ["Use DawidSkeneEM: ", "and no method that can be recommended gets more right."],
        "Not recommended: TreeMLE (95.0\u00a0% of the 100 gold labels), since the label is not identified: two groups.",
    ),
    "only open methods": (
        {"world": {"TreeMLE": 0.9}, "open_labels": ("TreeMLE",)},
        ["No method can be recommended: none that was tried determines the label of these votes ("],
        "Not recommended: TreeMLE",
    ),
    "guessing": (
        {"gold": (60, {"DawidSkeneEM": 0.55})},
        ["gets 55.0\u00a0% right (balanced accuracy; 95\u00a0% interval ", "), which may be no better than guessing"],
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
        "The probabilities of DawidSkeneEM are too modest: on the 300 gold labels its mean confidence is ",
    ),
    "failures and samples": (
        {"failed": {"Glad": "no luck"}, "absent": {"Tree": "no groups"}, "num_items": 9000},
        [],
        "Glad failed and was left out: no luck.",
        "Left out: Tree; no groups.",
        "All this rests on a sample of 400 of the 9,000 items.",
    ),
}


def made(options):
    replaced = {name: options[name] for name in ("failed", "absent", "num_items") if name in options}
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
    assert sentences(evidence(world={"DawidSkeneEM": 0.52}))[0].startswith("There may be little or nothing to find. If")


def assert_consistent(found):
    """Whatever the evidence is, no sentence contradicts another."""
    said = sentences(found)
    chosen = found.choice.method if found.choice else ""
    for words in said:
        if words.startswith(("Clearly worse", "Not recommended", "Not clearly better")):
            listed = re.split(r"labels, by a paired test: |gold labels: |recommended: ", words)[1]
            assert chosen not in re.sub(r" \([^)]*%\)", "", listed.split(", since")[0]).rstrip(".").split(", ")
        if "gold label" in words and found.gold is not None and words not in (GOLD_CAVEAT,):
            assert f"{found.gold.number:,} gold labels" in words
    if not found.scores:  # no figure from twins is stated as if it could be believed
        told = [words for words in said if not words.startswith("Ruled out") and "gold labels" not in words]
        assert not any("\u00a0%" in words or "expected" in words for words in told)
    if found.gold is not None and chosen:
        more = {name for name, value in found.gold.accuracy.items() if value.value > found.gold.accuracy[chosen].value}
        assert ("no method gets more right" in said[0]) == (not more)
        assert ("no method that can be recommended gets" in said[0]) == (more != set() and more <= {*found.open_labels})
        assert chosen not in found.gold.worse
        for name, value in found.gold.accuracy.items():
            for figure in re.findall(rf"{re.escape(name)} (?:\(|gets )([\d.]+)\u00a0%", "\n".join(said)):
                assert figure == f"{100 * value.value:.1f}"


@pytest.mark.parametrize("seed", range(30))
def test_no_evidence_makes_sentences_that_contradict_each_other(seed):
    rng = np.random.default_rng(seed)
    options = {}
    if rng.random() < 0.7:
        options["gold"] = (int(rng.integers(4, 300)), dict(zip(NAMES, rng.uniform(0.5, 1, 4), strict=True)))
    if rng.random() < 0.6:
        options["world"] = dict(zip(NAMES, rng.uniform(0.5, 1, 4), strict=True))
    if rng.random() < 0.3:
        options["open_labels"] = (str(rng.choice(NAMES)),)
    assert_consistent(evidence(**options))


RATES = np.linspace(0.6, 0.9, 6)


def test_no_figure_of_a_contradicted_world_is_on_terminal_page_or_in_tables(tmp_path, monkeypatch):
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
    catalogue = {name: World(name, method) for name, method in worlds.items()}
    monkeypatch.setattr(recommending, "default_worlds", lambda votes, quick: catalogue)
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
    tree = le.load("out/tree.nc")
    probs = tree["votes/estimates/label_prob"].sel(repetition=0)
    names = probs["label"].to_numpy()
    right = (names[probs.to_numpy().argmax(axis=2)] == words[truth]).mean(axis=1)
    chosen = probs["estimator"].to_numpy().tolist().index(tree.attrs["recommended"])
    assert right[chosen] > right.max() - 0.005
    alone = CliRunner().invoke(app, ["recommend", "votes.csv", "--quick"])
    assert "identify a label" in " ".join(alone.stdout.split())
    assert "TreeMLE" not in alone.stdout
