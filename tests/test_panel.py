"""Panels of graders: the same result from any form of the grades, and in Inspect itself where it is installed."""

import gc
import hashlib

import jax
import numpy as np
import pandas as pd
import pytest

from latentens import Votes, effective_judges, grade_panel
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, MajorityVote
from tests.reference import KEY

NAMES = [f"g{k}" for k in range(6)]


def panel(num_items=200, seed=0):
    """Grades of six graders, the last of whom repeats the first, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, num_items)
    codes = np.where(rng.random((num_items, 6)) < 0.8, truth[:, None], 1 - truth[:, None])
    codes[:, 5] = codes[:, 0]
    frame = pd.DataFrame(np.array(["I", "C"])[codes], columns=NAMES).astype(object)
    return frame.mask(rng.random(frame.shape) < 0.05, None), np.array(["I", "C"])[truth]


def test_every_form_of_grades_gives_the_same():
    frame, truth = panel()
    gold = dict(enumerate(truth[:60].tolist()))
    options = {"key": KEY, "method": DawidSkeneEM(), "resamples": 50}
    rows = [{name: grade for name, grade in row.items() if grade is not None} for row in frame.to_dict("records")]
    forms = (frame, rows, Votes.from_matrix(frame))
    first, *others = [grade_panel(form, gold, **options) for form in forms]
    for other in others:
        np.testing.assert_allclose(other.fit.label_probs, first.fit.label_probs, atol=1e-10)
        assert other.figures == pytest.approx(first.figures)
    _, worth_key = jax.random.split(KEY)
    assert first.worth == effective_judges(Votes.from_matrix(frame), gold, key=worth_key, resamples=200)
    assert first.figures["graders"] == 6
    assert first.figures["share_C"] + first.figures["share_I"] == pytest.approx(1)
    assert first.effective_graders < 6  # one of them repeats another


def test_rows_of_the_same_item_are_repeated_grades():
    frame, truth = panel(100)
    items = [f"q{k}" for k in range(100)] * 2
    gold = {f"q{k}": label for k, label in enumerate(truth[:50].tolist())}
    found = grade_panel(pd.concat([frame, frame]), gold, items=items, key=KEY, method=DawidSkeneEM())
    assert len(found.fit.item_names) == 100
    assert found.fit.source.has_repeats
    with pytest.raises(VotesError, match="3 items were given for 100 rows of grades"):
        grade_panel(frame, gold, items=items[:3], key=KEY)


def test_other_grades_are_categories():
    frame, truth = panel()
    frame.iloc[:20, 1] = "N"
    found = grade_panel(
        frame, dict(enumerate(truth[:60].tolist())), key=KEY, method=MajorityVote(), classes=("I", "C"), resamples=50
    )
    assert found.fit.class_names == ("I", "C")
    assert {"share_I", "share_C"} <= set(found.figures)


@pytest.mark.filterwarnings("ignore")  # of Inspect itself
def test_inspect_writes_what_the_panel_is_worth(tmp_path):
    pytest.importorskip("inspect_ai")
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import solver

    from latentens.inspect import panel as panel_scorer
    from latentens.inspect import panel_worth

    def draw(*parts):
        return int(hashlib.sha256(repr(parts).encode()).hexdigest(), 16) % 1000 / 1000

    @solver
    def answer():
        async def solve(state, generate):
            state.output = ModelOutput.from_content("mock", "yes")
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def grader(name, source):
        async def score(state, target):
            if draw("silent", name, state.sample_id) < 0.05:
                return Score.unscored(reason="grader_failed")
            right = draw(source, state.sample_id, state.epoch) < 0.8
            return Score(value="C" if right == (state.sample_id % 2 == 0) else "I")

        return score

    graders = {name: grader(name, "g0" if name == "g5" else name) for name in NAMES}
    samples = [
        Sample(id=k, input="?", target="yes", metadata={"human": "IC"[k % 2 == 0]} if k < 40 else None)
        for k in range(60)
    ]
    task = Task(
        dataset=samples,
        solver=answer(),
        scorer=panel_scorer(graders),
        metrics=[panel_worth(gold="human", classes=["I", "C"])],
        epochs=2,
    )
    log = evaluate(task, model="mockllm/model", log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success", log.error
    metrics = {name: found.value for name, found in log.results.scores[0].metrics.items()}
    assert metrics["graders"] == 6
    assert 1 < metrics["low"] < metrics["effective_graders"] < 6
    with pytest.warns(UserWarning, match="empty scores"):
        votes = Votes.from_tool(log.location, "inspect")
    assert votes.voter_names == tuple(f"panel.{name}" for name in NAMES)
    assert votes.has_repeats  # epochs
    gc.collect()  # streams that Inspect leaves open would warn in a later test
