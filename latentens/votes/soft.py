"""Soft votes: probabilities of categories instead of one category, as arrays, data frames or files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from latentens.errors import Keyword, VotesError
from latentens.votes import tables
from latentens.votes.labels import Coded, Reading, code, encode_labels, in_order, join, listed, natural_names
from latentens.votes.tables import Content, Long, Table
from latentens.votes.triplets import Triplets

ROUNDED = 0.005
"""Probabilities may be rounded to two digits, so that the sum of a vote may differ from one by this per category."""


def voter_categories(names: Sequence[str]) -> tuple[Coded, Coded] | None:
    """Voter and category of each column named `voter:category`; None unless each voter has every category."""
    pairs = [tuple(str(name).rpartition(":")[::2]) for name in names]
    voters, categories = (Coded(*pd.factorize(np.array(part, dtype=object))) for part in zip(*pairs, strict=True))
    complete = len(set(pairs)) == len(pairs) == len(voters.names) * len(categories.names)
    return (voters, categories) if complete and all(map(all, pairs)) and len(categories.names) > 1 else None


def tabulate_soft_file(table: Table, reading: Reading) -> Content | None:
    """The soft votes in a file; None if it has none."""
    with tables.naming(table.path):
        layout = tables.find_layout(table.names, table.index, reading)
        if isinstance(layout, Long):
            if reading.weight is None:
                return None
            tables.refuse_unknown([reading.weight], table.names)
            item, voter, vote, weight = table.columns([*layout, reading.weight], reading)
            item, voter = (Coded(column.codes, natural_names(column.names)) for column in (item, voter))
            return _tabulate(item, in_order(voter), vote, _numbers(weight), reading)
        named = voter_categories(layout.voters)
        if reading.weight is not None:
            raise VotesError("weight names a column of a table with one row for each item, voter and category")
        if named is None or not _are_fractions(columns := table.columns(layout.voters, reading)):
            return None
        items = table.columns(layout.items, reading)
        rows = natural_names(items[0].names)[items[0].codes] if items else np.arange(len(columns[0].codes))
        return _tabulate_wide(rows, named, np.stack([_numbers(column) for column in columns], axis=1), reading)


def tabulate_soft_data(probs: Any, reading: Reading) -> Content:
    """The soft votes in an array (item, voter, category) or in a data frame, wide or long."""
    if not isinstance(probs, pd.DataFrame):
        return _tabulate_array(np.asarray(probs, dtype=np.float64), reading)
    if reading.weight in probs.columns:
        columns = [reading.item, reading.voter, reading.vote, reading.weight]
        tables.refuse_unknown(columns, list(probs.columns))  # type: ignore[arg-type]
        item, voter, vote, weight = (code(probs[name]) for name in columns)
        return _tabulate(item, in_order(voter), vote, _numbers(weight), reading)
    item_column = next((name for name in (reading.item, *tables.ITEM_COLUMNS) if name in probs.columns), None)
    frame = probs if item_column is None else probs.set_index(item_column)
    if (named := voter_categories([*frame.columns])) is None:
        raise VotesError(
            f"the columns {listed(frame.columns)} are not named voter:category for every voter and category, and none "
            f"is {reading.weight!r}: rename them, or name the column of probabilities by {Keyword('weight')}"
        )
    numbers = np.stack([_numbers(code(frame[name])) for name in frame.columns], axis=1)
    return _tabulate_wide(frame.index.to_numpy(), named, numbers, reading)


def _tabulate_array(probs: Float[np.ndarray, "item voter category"], reading: Reading) -> Content:
    if probs.ndim != 3 or not probs.size:
        raise VotesError(f"soft votes form an array (item, voter, category), but this one has shape {probs.shape}")
    listing = probs.shape[2] if reading.classes is None else reading.classes
    names = range(listing) if isinstance(listing, int) else listing
    if len(names) != probs.shape[2]:
        raise VotesError(f"{len(names)} classes are listed, but there are probabilities of {probs.shape[2]}")
    places = np.indices(probs.shape).reshape(3, -1)
    item, voter, vote = (Coded(place, np.arange(size)) for place, size in zip(places, probs.shape, strict=True))
    vote = Coded(vote.codes, np.array([*names], dtype=object))
    found = _tabulate(item, voter, vote, probs.ravel(), Reading(classes=tuple(names)))
    return found._replace(item_names=range(probs.shape[0]), voter_names=range(probs.shape[1]))


def _tabulate_wide(
    rows: np.ndarray, named: tuple[Coded, Coded], numbers: Float[np.ndarray, "row column"], reading: Reading
) -> Content:
    """Soft votes with one row per item and one column for each voter and category, which are named in this order."""
    voter, vote = (Coded(np.tile(part.codes, len(rows)), part.names) for part in named)
    item = code(rows)
    if len(item.names) < len(rows):
        raise VotesError("an item has more than one row of probabilities: keep one row per item")
    item = Coded(np.repeat(item.codes, numbers.shape[1]), item.names)
    return _tabulate(item, voter, vote, numbers.ravel(), reading)


def _tabulate(item: Coded, voter: Coded, vote: Coded, weight: Float[np.ndarray, " entry"], reading: Reading) -> Content:
    """Soft votes, one entry for each item, voter and category; NaN where there is none. Voters are in order."""
    for name, column in (("item", item), ("voter", voter)):
        tables.refuse_gap(name, column)
    item = in_order(item)
    outside = (weight < 0) | (weight > 1)
    if outside.any():
        raise VotesError(f"{weight[outside][0]:g} is not a probability: soft votes are numbers from 0 to 1")
    cast = ~np.isnan(weight)
    if not cast.any():
        raise VotesError("there are no soft votes: all probabilities are missing")
    pair = item.codes.astype(np.int64) * len(voter.names) + voter.codes
    total = np.bincount(pair[cast], weight[cast], len(item.names) * len(voter.names))
    asked = np.bincount(pair[cast], minlength=len(total)) > 0
    wrong = asked & (np.abs(total - 1) > ROUNDED * len(vote.names) + 1e-9)
    if wrong.any():
        which, who = np.divmod(int(np.argmax(wrong)), len(voter.names))
        raise VotesError(
            f"the probabilities of voter {listed(voter.names[[who]])} on item {listed(item.names[[which]])} sum to "
            f"{total[wrong][0]:g}, not to 1: divide them by their sum, or leave all of them empty if there is no vote"
        )
    found = encode_labels(vote, reading.classes)
    if pd.DataFrame({"pair": pair[cast], "code": found.codes[cast]}).duplicated().any():
        raise VotesError("a voter gives two probabilities to the same category of an item: keep one of them")
    kept = cast & (weight > 0)
    weight = weight / np.where(asked, total, 1.0)[pair]
    triplets = Triplets(item.codes.astype(np.int32), voter.codes.astype(np.int32), found.codes).at(kept)
    weight, triplets = weight[kept][triplets.order], triplets.in_order()
    if triplets.repeated.any():
        return Content(triplets, item.names, tuple(voter.names.tolist()), found, weights=weight)
    storage = tables.stored_triplets(triplets, (len(item.names), len(voter.names)))  # every vote is certain
    return Content(storage, item.names, tuple(voter.names.tolist()), found)


def _numbers(column: Coded) -> Float[np.ndarray, " entry"]:
    """A column as numbers, NaN where it is empty."""
    values = pd.to_numeric(pd.Series(column.names, dtype=object), errors="coerce").to_numpy(np.float64)
    if np.isnan(values).any():
        raise VotesError(f"{listed(column.names[np.isnan(values)][:1])} is not a probability: give numbers from 0 to 1")
    return column.each(values, np.float64, np.nan)


def _are_fractions(columns: Sequence[Coded]) -> bool:
    """Whether columns hold numbers, and not only whole ones, which may be votes."""
    names = pd.to_numeric(pd.Series(join(columns).names, dtype=object), errors="coerce")
    return bool(names.notna().all() and (names % 1 != 0).any())
