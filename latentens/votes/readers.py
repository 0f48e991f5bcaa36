"""Votes in the files that other tools write: each reader makes a table with one vote per row.

A reader takes a file, a folder, or the content of a file as Python objects. Its table has more columns than the three
that are used by default, so that `item`, `voter` and `vote` can name others, and `only` can choose rows.
"""

import json
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
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


def tabulate_tool(source: Any, tool: str, only: Only, reading: Reading) -> Content:
    """The votes in what a tool wrote; a warning says what is not read as a vote."""
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
    if found.unread:
        what = ", ".join(f"{count:,} {words}" for words, count in found.unread.items())
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
        several = isinstance(wanted, Collection) and not isinstance(wanted, str)
        texts = frame[name].map(as_text)
        for value in map(as_text, wanted if several else [wanted]):  # type: ignore[arg-type]
            if value not in set(texts):
                raise VotesError(f"no {name} is {value!r}: {suggestion(value, texts.unique(), f'values of {name}')}")
        kept = {as_text(value) for value in (wanted if several else [wanted])}  # type: ignore[union-attr]
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
    # samples that ended with an error stay items, without votes
    scorers = dict.fromkeys(row["scorer"] for row in found.rows)
    found.rows += [{**about, "scorer": scorer, "value": None} for about in without_scores for scorer in scorers]
    found.unread["samples without scores"] += len(without_scores)
    found.unread = +found.unread
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
        content = {entry.filename: json.loads(_unzipped(archive, entry)) for entry in _log_entries(archive)}
    return {**content.pop("header.json"), "samples": [*content.values()]}


def _log_entries(archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    return (entry for entry in archive.infolist() if entry.filename.startswith(("header.json", "samples/")))


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
    with Path(str(archive.filename)).open("rb") as file:
        file.seek(entry.header_offset + 26)  # lengths of the name and the extra field, which precede the data
        skipped = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        file.seek(skipped, 1)
        packed = file.read(entry.compress_size)
    with pyarrow.input_stream(pyarrow.py_buffer(packed), compression="zstd") as stream:
        return stream.read()


READERS: Mapping[str, Callable[[Any], Rows]] = {
    "inspect": read_inspect,
}
"""The readers by the name of the tool."""
