"""Votes in the files that other tools write: each reader makes a table with one vote per row.

A reader takes a file, a folder, or the content of a file as Python objects. Its table has more columns than the three
that are used by default, so that `item`, `voter` and `vote` can name others, and `only` can choose rows.
"""

import json
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from latentens.errors import Keyword, LatentensWarning, VotesError
from latentens.votes.labels import Reading, as_text, listed, suggestion
from latentens.votes.tables import Content, Long, naming, readable, refuse_unknown, tabulate_frame

Only = Mapping[str, Hashable | Collection[Hashable]]
"""Values of columns: rows with other values are left out."""


@dataclass
class Rows:
    """Votes as a tool wrote them.

    Attributes:
        columns: The columns of items, voters and votes, unless the user names others.
        single: Columns that must have one value, such as the question that is answered.
        rows: One mapping from columns to values for each vote; the vote is None where it is missing.
        unread: How often there was something that is not read as a vote, by its description.
    """

    columns: Long
    single: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    def add_without_votes(self, items: Sequence[Mapping[str, Any]], description: str) -> None:
        """Add items on which nobody voted, for example because of an error."""
        _, voter, vote = self.columns
        voters = dict.fromkeys(row[voter] for row in self.rows)
        self.rows += [{**about, voter: name, vote: None} for about in items for name in voters]
        self.unread[description] += len(items)


def tabulate_tool(source: Any, tool: str, only: Only, reading: Reading) -> Content:
    """The votes in the output of a tool; a warning counts entries that are not read as votes."""
    if tool not in READERS:
        raise VotesError(f"there is no reader for {tool!r}: {suggestion(tool, [*READERS], 'tools')}")
    if reading.ignore:
        raise VotesError(f"ignore is for tables; rows of {tool} are chosen by {Keyword('only')}", Keyword("only"))
    path = source if isinstance(source, str | Path) else tool
    with readable(path, tool):
        try:
            found = READERS[tool](source)
        except (KeyError, TypeError, AttributeError, IndexError):
            raise VotesError("it is not laid out as expected") from None
    if unread := +found.unread:  # the counts above zero
        what = ", ".join(f"{count:,} {words}" for words, count in unread.items())
        warnings.warn(LatentensWarning(f"{path}: not read as votes: {what}"), stacklevel=3)
    with naming(path):
        if not found.rows:
            raise VotesError("there are no votes in it")
        frame = _chosen(pd.DataFrame(found.rows), only)
        for name in found.single:
            if len(values := frame[name].unique().tolist()) > 1:
                choice = Keyword("only", {name: values[0]})
                raise VotesError(
                    f"there are votes of more than one {name} ({listed(values)}): choose by {choice}", choice
                )
        given = (reading.item, reading.voter, reading.vote)
        columns = Long(*(own or usual for own, usual in zip(given, found.columns, strict=True)))
        refuse_unknown(columns, list(frame.columns))
        frame[columns.vote] = [as_text(value) for value in frame[columns.vote].tolist()]  # True is not 1
        return tabulate_frame(frame, columns, reading)


def _chosen(frame: pd.DataFrame, only: Only) -> pd.DataFrame:
    """The rows with some values in some columns."""
    refuse_unknown([*only], list(frame.columns))
    for name, wanted in only.items():
        several = wanted if isinstance(wanted, Collection) and not isinstance(wanted, str) else [wanted]
        texts, kept = frame[name].map(as_text), [as_text(value) for value in several]
        for value in kept:
            if value not in set(texts):
                raise VotesError(
                    f"{name} has no value {value!r}: {suggestion(value, texts.unique(), f'values of {name}')}"
                )
        frame = frame[texts.isin(kept)]
    return frame.reset_index(drop=True)


def _json(source: Any) -> Any:
    """The content of a JSON file; Python objects, also those of pydantic, as they are."""
    if isinstance(source, str | Path):
        return json.loads(Path(source).read_text(encoding="utf-8-sig"))
    return source.model_dump() if hasattr(source, "model_dump") else source


def _numbered(pairs: Iterable[tuple[str, Hashable]]) -> dict[tuple[str, Hashable], str]:
    """A name for each pair of a name and a content; a second content of the same name gets a number."""
    seen: Counter[str] = Counter()
    names = {}
    for name, content in dict.fromkeys(pairs):
        seen[name] += 1
        names[name, content] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def read_inspect(source: Any) -> Rows:
    """A log of Inspect, or a folder of logs: scorers are voters, samples are items, epochs are repeated votes.

    Columns: sample, epoch, attempt (sample and epoch), task, model, scorer, value, answer, target. A score with several
    values counts as several scorers, `scorer.key`. In several logs, samples are named by their task and model too.
    """
    found = Rows(Long("sample", "scorer", "value"))
    is_folder = isinstance(source, str | Path) and Path(source).is_dir()
    files = sorted(path for path in Path(source).rglob("*") if path.suffix in (".eval", ".json")) if is_folder else []
    logs = [_inspect_log(file) for file in (files or [source])]
    origins = {(log["eval"]["task"], log["eval"]["model"]) for log in logs}
    varies = [len(set(values)) > 1 for values in zip(*origins, strict=True)]
    without_scores = []
    for log in logs:
        origin = {"task": log["eval"]["task"], "model": log["eval"]["model"]}
        prefix = [name for name, several in zip(origin.values(), varies, strict=True) if several]
        for sample in log.get("samples") or ():
            name = "/".join([*prefix, str(sample["id"])]) if prefix else sample["id"]
            target = sample.get("target")
            about = {"sample": name, "epoch": sample["epoch"], "attempt": f"{name}#{sample['epoch']}", **origin}
            about["target"] = "|".join(target) if isinstance(target, list) else target
            if not sample.get("scores"):
                without_scores.append(about)
            for scorer, score in (sample.get("scores") or {}).items():
                value = score["value"]
                parts = dict(enumerate(value)) if isinstance(value, list) else value
                single = {scorer: value}
                named = {f"{scorer}.{key}": part for key, part in parts.items()} if isinstance(parts, dict) else single
                for voter, vote in named.items():
                    missing = vote is None or vote != vote
                    found.unread["empty scores"] += missing
                    found.rows.append(
                        {**about, "scorer": voter, "value": None if missing else vote, "answer": score.get("answer")}
                    )
    found.add_without_votes(without_scores, "samples without scores")
    return found


def _inspect_log(source: Any) -> dict[str, Any]:
    """One log as Inspect itself reads it, or else the JSON in it."""
    if not isinstance(source, str | Path):
        return _json(source)
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        return _inspect_archive(Path(source)) if zipfile.is_zipfile(source) else _json(source)
    return read_eval_log(str(source)).model_dump()


def _inspect_archive(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        entries = [each for each in archive.infolist() if each.filename.startswith(("header.json", "samples/"))]
        content = {entry.filename: json.loads(_unzipped(archive, entry)) for entry in entries}
    return {**content.pop("header.json"), "samples": [*content.values()]}


def _unzipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """A file in an archive, which Inspect compresses by Zstandard; Python reads that from version 3.14 on."""
    try:
        return archive.read(entry)
    except NotImplementedError:
        pass
    try:
        import pyarrow
    except ImportError:
        raise VotesError(
            "it is compressed by Zstandard; install inspect-ai or the extra `latentens[parquet]` to read it"
        ) from None
    packed = copy(entry)  # to be read as it is, without the checksum of what is in it
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, entry.compress_size
    del packed.CRC
    with pyarrow.input_stream(pyarrow.py_buffer(archive.read(packed)), compression="zstd") as stream:
        return stream.read()


def read_promptfoo(source: Any) -> Rows:
    """Results of promptfoo: assertions are voters, the output of a provider in a test is an item.

    Columns: output (test and provider), test, provider, prompt, assertion, pass, score. Runs by `--repeat` are repeated
    votes. Assertions are named by their metric or type and their grader.
    """
    found = Rows(Long("output", "assertion", "pass"))
    results = _json(source)["results"]["results"]
    tests = [result["testCase"] for result in results]
    contents = [json.dumps(test.get("vars"), sort_keys=True) for test in tests]
    shown = [", ".join(f"{name}={value}" for name, value in (test.get("vars") or {}).items()) for test in tests]
    keys = [
        (test.get("description") or words, content) for test, words, content in zip(tests, shown, contents, strict=True)
    ]
    names, several = _numbered(keys), len({result["promptIdx"] for result in results}) > 1
    providers = [result["provider"].get("label") or result["provider"]["id"] for result in results]
    prompts = [result["prompt"]["label"] for result in results]
    without_grades = []
    for result, key, provider, prompt in zip(results, keys, providers, prompts, strict=True):
        parts = [names[key], provider, *([prompt] if several and len(set(prompts)) > 1 else [])]
        about = {"output": " / ".join(parts), "test": names[key], "provider": provider, "prompt": prompt}
        graded = (result.get("gradingResult") or {}).get("componentResults") or ()
        if not graded:
            without_grades.append(about)
        assertions = _numbered((_assertion_name(grade), place) for place, grade in enumerate(graded))
        for name, grade in zip(assertions.values(), graded, strict=True):
            failed = bool((grade.get("metadata") or {}).get("graderError"))
            found.unread["errors of graders"] += failed
            vote = None if failed else grade["pass"]
            found.rows.append({**about, "assertion": name, "pass": vote, "score": grade.get("score")})
    found.add_without_votes(without_grades, "outputs without grades")
    return found


def _assertion_name(grade: Mapping[str, Any]) -> str:
    """An assertion's metric or type and its grader."""
    assertion = grade.get("assertion") or {}
    grader = assertion.get("provider")
    grader = (grader.get("label") or grader["id"]) if isinstance(grader, dict) else grader
    name = assertion.get("metric") or assertion.get("type") or "assertion"
    return f"{name} by {grader}" if grader else name


def read_deepeval(source: Any) -> Rows:
    """Results of DeepEval, a saved test run or what `evaluate` returns: metrics are voters, test cases are items.

    Columns: case, metric, success, score. Cases of the same name and input are repeated votes.
    """
    found, content = Rows(Long("case", "metric", "success")), _json(source)
    cases = content.get("test_results") or [*content["testCases"], *content.get("conversationalTestCases", ())]
    keys = [(str(case["name"]), json.dumps([case.get("input"), case.get("turns")], default=str)) for case in cases]
    names = _numbered(keys)
    for case, key in zip(cases, keys, strict=True):
        for metric in case.get("metrics_data") or case.get("metricsData") or ():
            failed = bool(metric.get("error")) or metric.get("success") is None
            found.unread["errors of metrics"] += failed
            vote, score = (None, None) if failed else (metric["success"], metric.get("score"))
            found.rows.append({"case": names[key], "metric": metric["name"], "success": vote, "score": score})
    return found


def read_lm_eval(source: Any) -> Rows:
    """Samples of lm-eval, a file or a folder: models are voters, documents are items, answers are votes.

    Columns: document, task, model, filter, answer, target and the metrics. The answer to a question with choices is
    the number of the choice that is most likely. With several tasks, documents are named by their task too.
    """
    found, path = Rows(Long("document", "model", "answer"), single=("filter",)), Path(source)
    files = sorted(path.rglob("samples_*.jsonl")) if path.is_dir() else [path]
    tasks = [file.stem.removeprefix("samples_").rpartition("_")[0] or file.stem for file in files]
    for file, task in zip(files, tasks, strict=True):
        about = file.with_name(f"results_{file.stem.rpartition('_')[2]}.json")
        model = _json(about).get("model_name") if about.exists() else None
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            document = sample["doc_id"] if len(set(tasks)) == 1 else f"{task}/{sample['doc_id']}"
            row = {"document": document, "task": task, "model": model or file.parent.name, "filter": sample["filter"]}
            row |= {"target": sample.get("target"), **{name: sample[name] for name in sample.get("metrics", ())}}
            answers = sample["filtered_resps"]
            if answers and isinstance(answers[0], list) and len(answers[0]) == 2 and answers[0][1] in ("True", "False"):
                likely = [float(answer[0]) for answer in answers]
                answers = [likely.index(max(likely))] if len(likely) > 1 else [answers[0][1]]
            elif answers and isinstance(answers[0], list):
                answers = answers[0]
            for answer in answers:
                failed = answer == "[invalid]"
                found.unread["answers that the filter calls [invalid]"] += failed
                found.rows.append({**row, "answer": None if failed else answer})
    return found


def read_label_studio(source: Any) -> Rows:
    """A JSON export of Label Studio: annotators are voters, tasks are items, single choices and ratings are votes.

    Columns: task, annotator, question, answer. The question is the name of the control.
    """
    found, tasks = Rows(Long("task", "annotator", "answer"), single=("question",)), _json(source)
    results = (result for task in tasks for made in task["annotations"] for result in made["result"])
    questions = dict.fromkeys(result["from_name"] for result in results if "from_name" in result)
    for task in tasks:
        found.unread["predictions"] += len(task.get("predictions") or ())
        for made in task["annotations"]:
            who = made["completed_by"]
            who = (who.get("email") or who["id"]) if isinstance(who, dict) else who
            found.unread["skipped annotations"] += bool(made.get("was_cancelled"))
            for question in questions:
                given = [result for result in made["result"] if result.get("from_name") == question]
                values = [_single(result["value"].get(result["type"])) for result in given]
                readable_one = len(values) == 1 and values[0] is not None and not made.get("was_cancelled")
                found.unread["answers that are not one choice or rating"] += bool(given) and not readable_one
                answer = values[0] if readable_one else None
                found.rows.append({"task": task["id"], "annotator": who, "question": question, "answer": answer})
    return found


def read_argilla(source: Any) -> Rows:
    """Records of Argilla as `records.to_json` writes them: users are voters, records are items.

    Columns: record, user, question, answer. That file does not say which responses are drafts or were discarded.
    """
    found, records = Rows(Long("record", "user", "answer"), single=("question",)), _json(source)
    questions = dict.fromkeys(question for record in records for question in record["responses"])
    users = dict.fromkeys(
        given["user_id"] for record in records for all_ in record["responses"].values() for given in all_
    )
    for record in records:
        found.unread["suggestions"] += len(record.get("suggestions") or ())
        for question in questions:
            given = record["responses"].get(question, ())
            for response in given:
                answer = _single(response["value"])
                found.unread["answers that are not one value"] += answer is None
                row = {"record": record["id"], "user": response["user_id"], "question": question, "answer": answer}
                found.rows.append(row)
            if not given:
                row = {"record": record["id"], "question": question, "answer": None}
                found.rows += [{**row, "user": user} for user in users]
    return found


def _single(value: Any) -> Any:
    """The value, or the only one of a list; None if there are several or it has parts."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if isinstance(value, list | dict) else value


READERS: Mapping[str, Callable[[Any], Rows]] = {
    "inspect": read_inspect,
    "promptfoo": read_promptfoo,
    "deepeval": read_deepeval,
    "lm-eval": read_lm_eval,
    "label-studio": read_label_studio,
    "argilla": read_argilla,
}
"""The readers by the name of the tool."""
