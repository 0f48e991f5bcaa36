"""What the readers of other tools' files keep, on small files that the tools themselves wrote.

    python analyses/readers.py [--out DIR]

The files are in `tests/data/readers`; the other rows are the same small table in each library that is installed. A
column says how much of its kind there is in the votes that were read: names, pairs of an item and a voter with repeated
votes, categories that are not labels, and pairs without a vote.
"""

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import run, write

from latentens import Votes

FILES = Path(__file__).parents[1] / "tests" / "data" / "readers"

TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "inspect": ("inspect.eval", {"only": {"scorer": ["match", "includes", "careful"]}, "classes": ("I", "C")}),
    "promptfoo": ("promptfoo.json", {}),
    "deepeval": ("deepeval.json", {}),
    "lm-eval": ("lm_eval", {"only": {"task": "colours"}}),
    "label-studio": ("label_studio.json", {"only": {"question": "sentiment"}, "classes": ("Negative", "Positive")}),
    "argilla": ("argilla.json", {"only": {"question": "sentiment"}}),
}

LONG = {
    "task": ["q1", "q1", "q2", "q2", "q10", "q10"],
    "worker": ["ann", "bob", "ann", "bob", "ann", "ann"],
    "label": ["yes", "tie", "no", None, "yes", "no"],
}
"""With a repeated vote, a tie and a missing vote."""

TABLES: dict[str, Callable[[Any], Any]] = {
    "polars": lambda polars: polars.DataFrame(LONG),
    "duckdb": lambda duckdb: duckdb.from_df(pd.DataFrame(LONG)),
    "pyarrow": lambda pyarrow: pyarrow.table(LONG),
    "datasets": lambda datasets: datasets.Dataset.from_dict(LONG),
}


def main(data: Path | None, out: Path, seed: int) -> pd.DataFrame:
    del data, seed
    table = pd.DataFrame(
        [{"from": name, "read by": door, **kept(read)} for name, door, read in (*from_tools(), *from_tables())]
    )
    write(out, "readers", table=table.set_index("from"))
    return table


def from_tools() -> Iterator[tuple[str, str, Callable[[], Votes]]]:
    for tool, (file, options) in TOOLS.items():
        yield (
            tool,
            "from_tool",
            lambda tool=tool, file=file, options=options: Votes.from_tool(FILES / file, tool, **options),
        )


def from_tables() -> Iterator[tuple[str, str, Callable[[], Votes]]]:
    for library, make in TABLES.items():
        if importlib.util.find_spec(library) is not None:
            table = make(importlib.import_module(library))
            yield library, "from_arrow", lambda t=table: Votes.from_arrow(t, classes=("no", "yes"), duplicates="keep")
    yield (
        "crowd-kit",
        "from_long",
        lambda: Votes.from_long(pd.DataFrame(LONG), classes=("no", "yes"), duplicates="keep"),
    )


def kept(read: Callable[[], Votes]) -> dict[str, object]:
    """What there is in the votes that were read, and what the warning counts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        votes = read()
    pairs = votes.to_long().groupby(["item", "voter"]).size()
    said = [str(warning.message).partition("not read as votes: ")[2] for warning in caught]
    return {
        "items": votes.num_items,
        "voters": ", ".join(map(str, votes.voter_names)),
        "repeats": int(np.sum(pairs > 1)),
        "ties": ", ".join(map(str, votes.other_names)) or "–",
        "missing": votes.num_missing,
        "counted, not read as votes": "; ".join(filter(None, said)) or "–",
    }


if __name__ == "__main__":
    run(main, __doc__)
