"""Labels for the items of files that do not fit into memory: read again, labelled and written chunk by chunk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from latentens.methods.base import Fit
from latentens.votes import Votes
from latentens.votes.coded import Coded
from latentens.votes.counting import Paths, coded_rows, tables_in, wide_layout
from latentens.votes.files import naming
from latentens.votes.labels import encode_labels, without
from latentens.votes.reading import Reading, TableOptions


def write_labels(fit: Fit, paths: Paths, out: str | Path, **options: Unpack[TableOptions]) -> None:
    """Write the label of every item, with the probabilities of all labels, to a Parquet file.

    Args:
        fit: A fit, for example to what `count_votes_in` found in the same files.
        paths: The votes, as in `count_votes_in`; items are in their order there.
        out: The file to write: columns `item` (if the tables name items), `label`, and `prob_…` for each class.
        options: As in `count_votes_in`.
    """
    import pyarrow
    import pyarrow.parquet

    reading, writer = Reading(**options), None
    try:
        for table in tables_in(paths):
            with naming(table.path):
                layout = wide_layout(table, reading)
                for chunk in table.read([*layout.voters, *layout.items]):
                    columns = {"item": _text(chunk[layout.items[0]])} if layout.items else {}
                    columns |= _labels(fit, coded_rows(layout, chunk), layout.voters, reading)
                    labelled = pyarrow.table(columns)
                    writer = writer or pyarrow.parquet.ParquetWriter(out, labelled.schema)
                    writer.write_table(labelled)
    finally:
        if writer is not None:
            writer.close()


def _labels(fit: Fit, rows: Coded, voters: Sequence[str], reading: Reading) -> dict[str, np.ndarray]:
    codes, classes = encode_labels(without(rows, reading.missing), tuple(fit.class_names))
    probs = fit.predict(Votes(codes, len(codes), codes.shape[1], len(classes), (), voters, classes))
    labels = np.asarray(fit.class_names)[probs.argmax(axis=1)]
    return {"label": labels, **{f"prob_{name}": probs[:, k] for k, name in enumerate(fit.class_names)}}


def _text(column: Coded) -> np.ndarray:
    """The names of items as text, so that all chunks have one type."""
    return column.names.astype(str)[column.codes]
