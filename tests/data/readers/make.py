"""Writes the files of this folder by the tools themselves, on made-up questions and without a network.

    python tests/data/readers/make.py TOOL DIR

TOOL is inspect, deepeval, argilla or lm-eval, and must be installed; they need environments of their own. What only
says where and when a file was made is removed. `README.md` says how the files of promptfoo and Label Studio were made.
"""

import json
import os
import sys
from pathlib import Path

CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Austria": "Vienna"}


def inspect(folder):
    """Two epochs and four scorers: one says N or nothing, one has two values; one sample ends with an error."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score, accuracy, includes, match, mean, scorer
    from inspect_ai.solver import solver

    questions = [
        ("France", "Paris", "Paris", "I do not know"),
        ("France", "Paris", "paris, France", "paris, France"),
        ("Italy", "Rome", "Rome", "I do not know"),
        ("Spain", "Madrid", "It is Madrid", "It is Madrid"),
        ("Germany", "Bonn", "Berlin", "I do not know"),
        ("Austria", "Vienna", "Vienna", None),
    ]
    samples = [
        Sample(id=f"q{number}", input=f"Capital of {country}?", target=target)
        for number, (country, target, *_) in enumerate(questions, 1)
    ]

    @solver
    def answer():
        async def solve(state, generate):
            said = questions[int(state.sample_id[1:]) - 1][1 + state.epoch]
            if said is None:
                raise RuntimeError("no answer")
            state.output = ModelOutput.from_content("mockllm/model", said)
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def careful():
        async def score(state, target):
            said = state.output.completion
            if target.text == "Bonn":
                return Score.unscored(reason="grader_failed")
            value = "N" if "not know" in said else "C" if target.text.lower() in said.lower() else "I"
            return Score(value=value, answer=said, explanation="compared by name")

        return score

    @scorer(metrics={"polite": [mean()], "brief": [mean()]})
    def style():
        async def score(state, target):
            return Score(value={"polite": 1, "brief": int(len(state.output.completion.split()) == 1)})

        return score

    task = Task(
        name="capitals", dataset=samples, solver=answer(), scorer=[match(), includes(), careful(), style()], epochs=2
    )
    logs = str(folder / "logs")
    (run,) = evaluate(task, model="mockllm/model", log_dir=logs, display="none", fail_on_error=False)
    log = read_eval_log(run.location)
    log.eval.revision = None
    for sample in log.samples:
        sample.events = []
        if sample.error:
            sample.error.traceback = sample.error.traceback_ansi = ""
    for kind in ("eval", "json"):
        write_eval_log(log, str(folder / f"inspect.{kind}"), format=kind)


def deepeval(folder):
    """Three metrics, one of which fails on a case; one case has no name."""
    os.environ |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_NO_INSPECT_PROMPT": "1"}
    os.chdir(folder)
    from deepeval import evaluate
    from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase

    class Rule(BaseMetric):
        def __init__(self, name, rule):
            self.name, self.rule, self.threshold, self.async_mode = name, rule, 0.5, False
            self.evaluation_model = "none"

        def measure(self, case, *args, **options):
            self.score = self.rule(case.actual_output, case.expected_output)
            self.reason, self.success = "by rule", self.score >= self.threshold
            return self.score

        async def a_measure(self, case, *args, **options):
            return self.measure(case)

        def is_successful(self):
            return self.success

        @property
        def __name__(self):
            return self.name

    def fragile(said, right):
        if said == "It is Rome":
            raise ValueError("no verdict")
        return 0.75

    rules = {"Exact": lambda said, right: float(said == right), "Contains": lambda said, right: float(right in said)}
    said = {"Italy": "It is Rome", "Spain": "Barcelona"}
    cases = [
        LLMTestCase(
            name=None if country == "Austria" else country.lower(),
            input=f"Capital of {country}?",
            actual_output=said.get(country, capital),
            expected_output=capital,
        )
        for country, capital in CAPITALS.items()
    ]
    result = evaluate(
        cases,
        [Rule(name, rule) for name, rule in (rules | {"Fragile": fragile}).items()],
        async_config=AsyncConfig(run_async=False),
        cache_config=CacheConfig(write_cache=False),
        display_config=DisplayConfig(show_indicator=False, print_results=False, results_folder="runs"),
        error_config=ErrorConfig(ignore_errors=True),
    )
    (folder / "deepeval_result.json").write_text(result.model_dump_json(indent=1), encoding="utf-8")
    (run,) = Path("runs").rglob("test_run_*.json")
    run.rename(folder / "deepeval.json")


def argilla(folder):
    """Three users, one of whom is silent once; answers with several values, and suggestions."""
    from uuid import UUID

    from argilla import Record, Response, Suggestion
    from argilla.records._io import JsonIO

    answers = {"r0": "pos 1, neg 2, pos 3", "r1": "neg 1, neg 3, pos 2", "r2": "pos 1, pos 2"}
    others = {"r0": ("topics", ["a", "b"]), "r1": ("rating", 4)}
    records = []
    for number, (name, votes) in enumerate(answers.items()):
        given = [("sentiment", *vote.split()) for vote in votes.split(", ")]
        given += [(*others[name], "1")] if name in others else []
        records.append(
            Record(
                id=name,
                fields={"text": f"text {number}"},
                suggestions=[Suggestion("sentiment", "pos", score=0.8, agent="model-a")],
                responses=[Response(question, value, user_id=UUID(int=int(user))) for question, value, user in given],
            )
        )
    JsonIO.to_json(records, folder / "argilla.json")


def lm_eval(folder):
    """Three models on two tasks, one of which has two filters; a filter does not find every answer."""
    import hashlib

    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    colours = ("blue", "green", "red")
    things = {"The sky is": 0, "Grass is": 1, "Blood is": 2, "The sea is": 0, "A rose is": 2, "Moss is": 1}
    said = {"a": "green,green,unknown,it is blue,green,green", "b": "green,green,unknown,green,red I think,red I think"}
    said["c"] = "it is blue,green,green,green,green,red I think"
    docs = [{"question": thing, "choices": colours, "answer": answer} for thing, answer in things.items()]
    (folder / "docs.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs), encoding="utf-8")

    class Mock(LM):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def loglikelihood(self, requests):
            digests = [hashlib.sha256(repr((self.name, *request.args)).encode()).digest() for request in requests]
            return [(-(digest[0] + 1) / 32, False) for digest in digests]

        def generate_until(self, requests):
            answers = dict(zip(things, said[self.name].split(","), strict=True))
            return [answers[request.args[0]] for request in requests]

        def loglikelihood_rolling(self, requests):
            raise NotImplementedError

    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "docs.jsonl")}}}
    common |= {"test_split": "test", "doc_to_text": "{{question}}", "metadata": {"version": 0}}
    choices = {"output_type": "multiple_choice", "doc_to_target": "{{answer}}", "doc_to_choice": "{{choices}}"}
    written = {"output_type": "generate_until", "doc_to_target": "{{choices[answer]}}"}
    written["generation_kwargs"] = {"until": ["\n"]}
    first = {"function": "take_first"}
    find = {"function": "regex", "regex_pattern": f"({'|'.join(colours)})"}
    written["filter_list"] = [{"name": "strict", "filter": [find, first]}, {"name": "loose", "filter": [first]}]
    written["metric_list"] = [{"metric": "exact_match"}]
    tasks = [{"task": "colours", **common, **choices}, {"task": "colours_gen", **common, **written}]
    for name in said:
        tracker = EvaluationTracker(output_path=str(folder / "lm_eval"))
        results = simple_evaluate(Mock(name), tasks=tasks, task_manager=TaskManager(), evaluation_tracker=tracker)
        samples = results.pop("samples")
        tracker.general_config_tracker.model_name = f"mock/{name}"
        tracker.general_config_tracker.model_name_sanitized = f"mock__{name}"
        tracker.save_results_aggregated(results, samples)
        for task in samples:
            tracker.save_results_samples(task, samples[task])
    for file in (folder / "lm_eval").rglob("results_*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        kept = {name: content.get(name) for name in ("model_name", "model_name_sanitized", "lm_eval_version")}
        file.write_text(json.dumps(kept), encoding="utf-8")


if __name__ == "__main__":
    tool, out = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    {"inspect": inspect, "deepeval": deepeval, "argilla": argilla, "lm-eval": lm_eval}[tool](Path(out).resolve())
