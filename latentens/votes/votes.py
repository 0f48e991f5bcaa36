"""Votes: the observed data, without the true labels."""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num

from latentens.errors import Keyword, VotesError
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.limits import check_memory
from latentens.votes import tables
from latentens.votes.agreement import second_factor
from latentens.votes.distinct import Patterns, find_patterns
from latentens.votes.labels import (
    LAST,
    MISSING,
    Bins,
    Classes,
    Duplicates,
    Names,
    Ordered,
    Reading,
    TableOptions,
    code_type,
    listed,
    suggestion,
)
from latentens.votes.readers import Only, tabulate_tool
from latentens.votes.soft import tabulate_soft_data, tabulate_soft_file
from latentens.votes.triplets import Triplets, entries_of, to_matrix, to_triplets

__all__ = ["Patterns", "Triplets", "Votes"]


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """`num_voters` voters' votes on `num_items` items: codes 0 … V−1, −1 where a vote is missing.

    The codes 0 … K−1 are votes for the classes, which are the possible labels. Votes such as "tie" or "unsure", which
    tell something although no item has that label, are further categories with the codes K … V−1. Ordered votes, such
    as scores from 0 to 9, have grades for codes, from the lowest to the highest, and no code is a vote for a class.

    Made by `from_matrix`, `from_long`, `from_csv`, …, which check what they are given; immutable. A voter may vote on
    an item repeatedly: such votes are counted, and the order in which they were cast is not kept. Soft votes, a
    probability for each category, are counted as fractions of a vote (see `from_soft`).

    Attributes:
        storage: A matrix (item, voter) or, for many voters with few votes each and for repeated votes, triplets.
        num_items: Number of items.
        num_voters: Number of voters.
        num_classes: Number of classes K.
        item_names: One name per item, by default 0, 1, ….
        voter_names: One name per voter, by default 0, 1, ….
        class_names: The labels that the codes stand for, by default 0, 1, ….
        other_names: The categories of votes that are not labels, such as "tie"; none unless `classes` are listed.
        grade_names: The grades of ordered votes, from the lowest to the highest. Beside `other_names` they are those:
            grades whose order does not count (`as_categories`).
        note: A conclusion from the content of a file, for `summary`.
        counts: The number of items that each row stands for (see `CountedVotes`); None: one each.
        anchor: Positions of voters that are known to be better than chance; the order of the labels follows them alone.
        weights: The probability of each entry of the triplets, if votes are soft; None: every entry is one vote.

    Examples:
        >>> import latentens as le
        >>> votes = le.Votes.from_matrix([["yes", "no", "yes"], ["no", "", "no"]])
        >>> votes.shape, votes.num_missing
        ((2, 3), 1)
        >>> list(votes.class_names)
        ['no', 'yes']
    """

    storage: Int[np.ndarray, "item voter"] | Triplets
    num_items: int
    num_voters: int
    num_classes: int
    item_names: Names = field(default=())
    voter_names: Names = field(default=())
    class_names: Names = field(default=())
    other_names: Names = field(default=())
    grade_names: Names = field(default=())
    note: str = ""
    counts: Int[np.ndarray, " item"] | None = None
    anchor: tuple[int, ...] = ()
    weights: Float[np.ndarray, " entry"] | None = None

    def __post_init__(self) -> None:
        if self.num_items == 0 or self.num_voters == 0:
            raise VotesError(f"no votes: {self.num_items} items and {self.num_voters} voters")
        sizes = {"item_names": self.num_items, "voter_names": self.num_voters, "class_names": self.num_classes}
        for name, size in sizes.items():
            if len(getattr(self, name)) == 0:
                object.__setattr__(self, name, range(size))
            if len(getattr(self, name)) != size:
                raise VotesError(f"{len(getattr(self, name))} {name} were given for {size}")
        for array in [self.storage] if isinstance(self.storage, np.ndarray) else self.storage:
            array.setflags(write=False)
        if self.weights is not None and len(self.weights) != len(self.triplets.item):
            raise VotesError(f"{len(self.weights)} weights were given for {len(self.triplets.item)} entries of votes")

    @classmethod
    def _of(cls, content: tables.Content) -> Self:
        storage, items, voters, (_, classes, others, grades), note, weights = content
        sizes = len(items), len(voters), len(classes)
        return cls(storage, *sizes, items, voters, classes, others, grades, note, weights=weights)

    @classmethod
    def from_matrix(
        cls,
        array: Any,
        num_classes: int | None = None,
        *,
        classes: Classes = None,
        missing: Collection[Hashable] = (),
        ordered: Ordered = False,
        bins: Bins = 10,
    ) -> Self:
        """Votes from a matrix with one row per item and one column per voter.

        Args:
            array: Class codes 0 … K−1 (−1 or NaN: missing), or labels as text or truth values (empty or None: missing).
                Index and columns of a data frame become the names of items and voters.
            num_classes: K; by default the largest code plus one, at least 2.
            classes: The labels in order, if the array holds labels; by default the sorted distinct ones. Where they are
                listed, any other vote is a category of its own that is not a label.
            missing: Further labels or codes that mean a missing vote, such as "NA"; text is a label otherwise.
            ordered: Whether the votes are grades, such as scores from 0 to 9: True for numbers, or the grades from the
                lowest to the highest. They need not be among the classes, which are in the same order; `classes` may
                be their number. Without `classes` the label is one of the grades.
            bins: Number of grades into which more than 20 different numbers are sorted, at quantiles of all votes, so
                that the grades are about equally frequent; or cut-points, each the lowest number of a further grade.

        Examples:
            >>> import latentens as le
            >>> le.Votes.from_matrix([[0, 1, 1], [1, -1, 1]]).matrix
            array([[ 0,  1,  1],
                   [ 1, -1,  1]], dtype=int8)
        """
        reading = Reading(classes=classes, missing=missing, ordered=ordered, bins=bins)
        return cls._of(tables.tabulate_matrix(array, num_classes, reading))

    @classmethod
    def from_patterns(cls, rows: Any, counts: Any, num_classes: int | None = None, *, classes: Classes = None) -> Self:
        """Votes from distinct rows and how often each occurred, the form in which votes are often published.

        Args:
            rows: A matrix or data frame with one row for each pattern and one column per voter, as in `from_matrix`.
            counts: Number of items with each pattern.
            num_classes: As in `from_matrix`.
            classes: As in `from_matrix`.

        Examples:
            >>> import latentens as le
            >>> le.Votes.from_patterns([[0, 0, 1], [1, 1, 1]], counts=[30, 12]).shape
            (42, 3)
        """
        made, counts = cls.from_matrix(rows, num_classes, classes=classes), np.asarray(counts)
        if counts.shape != (made.num_items,) or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
            raise VotesError(f"{made.num_items} patterns need as many counts, whole numbers that are not negative")
        total = int(counts.sum())
        check_memory(float(total) * made.num_voters, f"{total:,} rows of votes", "give smaller counts")
        return replace(made, storage=np.repeat(made.matrix, counts, axis=0), num_items=total, item_names=())

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame | Mapping[str, Any],
        *,
        item: str | None = None,
        voter: str | None = None,
        vote: str | None = None,
        classes: Classes = None,
        missing: Collection[Hashable] = (),
        duplicates: Duplicates = "error",
        ordered: Ordered = False,
        bins: Bins = 10,
    ) -> Self:
        """Votes from a table with one vote per row.

        Args:
            frame: A data frame, such as those of crowd-kit, or anything `pandas.DataFrame` takes.
            item: Name of the column of items; by default a usual one, such as item or task.
            voter: Name of the column of voters; by default a usual one, such as voter, worker or annotator.
            vote: Name of the column of labels, by default vote, label or similar; an empty one, None or NaN leaves the
                item without this vote.
            classes: As in `from_matrix`.
            missing: Further labels that mean a missing vote.
            duplicates: What to do where a voter voted on an item repeatedly: refuse (`error`), take the `first` or the
                `last` vote, or `keep` them all, each of which then counts.
            ordered: As in `from_matrix`.
            bins: As in `from_matrix`.

        Examples:
            >>> import latentens as le
            >>> table = {"item": ["q1", "q1", "q2"], "voter": ["A", "B", "A"], "vote": ["good", "bad", "bad"]}
            >>> le.Votes.from_long(table).to_frame()
                     A     B
            item
            q1    good   bad
            q2     bad  <NA>
        """
        reading = Reading(item, voter, vote, (), classes, missing, duplicates, ordered, bins)
        tables.refuse_arrow(frame)
        table = pd.DataFrame(frame)
        columns = tables.long_columns([*table.columns], reading)
        return cls._of(tables.tabulate_frame(table, columns, reading))

    @classmethod
    def from_soft(
        cls,
        probs: Any,
        *,
        item: str = "item",
        voter: str = "voter",
        vote: str = "vote",
        weight: str = "weight",
        classes: Classes = None,
    ) -> Self:
        """Soft votes: a probability of each category by each voter on each item.

        They are read as fractional counts. A vote with probabilities s has the expected log-emission Σ_v s_v log p(v |
        label) in every likelihood, as if the voter had been asked often and had voted v in a share s_v of the cases,
        all of which count as one vote. This is not the likelihood of a model of probabilities: it does not know whether
        voters are overconfident, and probabilities near even, which vary less than votes do, hide from an estimator
        that voters agree. `StatedConfidence` has such a model. `DawidSkeneEM`, `MajorityVote`, `Tempered`, `Consensus`
        and methods of a generative model count fractions; others take the most probable category and say so in the
        notes of the fit.

        Args:
            probs: An array (item, voter, category), NaN where a vote is missing; or a data frame with one row per item
                and columns named `voter:category`; or one with a row for each item, voter and category and a column of
                probabilities. A voter's probabilities on an item sum to one, up to rounding to two digits.
            item: Name of the column of items of a long data frame, and of a wide one that has it.
            voter: Name of the column of voters of a long data frame.
            vote: Name of the column of categories of a long data frame.
            weight: Name of the column of probabilities of a long data frame.
            classes: The labels in order; other categories of a data frame are votes that are not labels.
        """
        reading = Reading(item, voter, vote, classes=classes, weight=weight)
        return cls._of(tabulate_soft_data(probs, reading))

    @classmethod
    def from_csv(cls, path: str | Path, **options: Unpack[TableOptions]) -> Self:
        r"""Votes from a text file, long (columns such as item, worker, label) or wide (one column per voter).

        Cells are separated by commas, semicolons, tabs or bars; the text is UTF-8 or UTF-16, perhaps compressed (.gz).
        Values are kept as written, and only an empty cell is missing. Ambiguous columns raise an error that names the
        option which resolves them. The file is read in chunks, so that only the votes need to fit into memory.

        Args:
            path: The file. In a wide one the items are named by a column `item` or `id`, or by the first column if it
                has no name or clearly a different value in every row.
            options: The settings of `Reading`: `item`, `voter` and `vote` name columns, which are otherwise found by
                their usual names; `ignore` names columns to ignore; `classes` are the labels in order, beside which
                other votes, such as "tie", are categories that are not labels; `missing` are the texts that mean a
                missing vote; `duplicates` is as in `from_long`; `ordered` and `bins` are as in `from_matrix`, for
                votes that are grades; `weight` names the column of probabilities of soft votes (see `from_soft`),
                which in a wide file are known by columns named `voter:category` that hold fractions; `chunk_cells` is
                the number of cells that are read at a time.

        Examples:
            >>> from pathlib import Path
            >>> import latentens as le
            >>> _ = Path("judges.csv").write_text("item,A,B\nq1,good,bad\nq2,bad,\n")
            >>> le.Votes.from_csv("judges.csv").to_long()
              item voter  vote
            0   q1     A  good
            1   q1     B   bad
            2   q2     A   bad
        """
        return cls._from_table(tables.csv_table(path), Reading(**options))

    @classmethod
    def from_parquet(cls, path: str | Path, **options: Unpack[TableOptions]) -> Self:
        """Votes from a Parquet file, long or wide, read in chunks by pyarrow (extra `parquet`).

        Args:
            path: The file. In a wide one a column named `item` or `id`, or the index of a data frame, names the items.
            options: As in `from_csv`.

        Examples:
            >>> import latentens as le
            >>> frame = le.Votes.from_matrix([["good", "bad"], ["bad", "bad"]]).to_frame()
            >>> frame.rename(columns=str).to_parquet("judges.parquet")
            >>> le.Votes.from_parquet("judges.parquet").shape
            (2, 2)
        """
        return cls._from_table(tables.parquet_table(path), Reading(**options))

    @classmethod
    def _from_table(cls, table: tables.Table, reading: Reading) -> Self:
        return cls._of(tabulate_soft_file(table, reading) or tables.tabulate_file(table, reading))

    @classmethod
    def from_arrow(cls, data: Any, **options: Unpack[TableOptions]) -> Self:
        """Votes from Arrow data, long or wide: tables of polars, DuckDB, pyarrow or Hugging Face datasets.

        Args:
            data: A Hugging Face dataset or anything with `__arrow_c_stream__`, read by pyarrow (extra `parquet`). In a
                wide table a column named `item` or `id` names the items. Codes of class labels in a Hugging Face
                dataset are read as their names.
            options: As in `from_csv`.
        """
        return cls._from_table(tables.arrow_table(data), Reading(**options))

    @classmethod
    def from_tool(cls, source: Any, tool: str, *, only: Only | None = None, **options: Unpack[TableOptions]) -> Self:
        """Votes from the output of an evaluation or annotation tool; a warning counts entries that are not votes.

        Args:
            source: A file, for some tools also a folder of files, or the content of a file as Python objects.
            tool: The tool, for example "inspect"; `latentens.votes.readers.READERS` has all of them.
            only: Values of columns, for example `{"scorer": ["a", "b"]}`: rows with other values are left out.
            options: As in `from_csv`; the columns are those that the tool's reader names. Repeated votes are kept
                unless `duplicates` says otherwise.
        """
        options.setdefault("duplicates", "keep")
        return cls._of(tabulate_tool(source, tool, only or {}, Reading(**options)))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of items and of voters."""
        return self.num_items, self.num_voters

    @property
    def num_categories(self) -> int:
        """Number of different votes V: the classes and the categories that are not labels, or the grades."""
        return len(self.grade_names) if self.is_ordered else self.num_classes + len(self.other_names)

    @property
    def category_names(self) -> Names:
        """The names of the codes of votes: the classes, then the categories that are not labels; or the grades."""
        if self.is_ordered:
            return self.grade_names
        return (*self.class_names, *self.other_names) if len(self.other_names) else self.class_names

    @property
    def is_ordered(self) -> bool:
        """Whether the codes are grades in order."""
        return len(self.grade_names) > 0 and not len(self.other_names)

    @property
    def class_of_vote(self) -> Int[np.ndarray, " vote"]:
        """The class that each vote is for, −1 for none; of V grades, the first V/K are for the first class, ….

        Where grades and classes are equally many, each grade is for the class in its place.
        """
        num_grades, num_others = len(self.grade_names), len(self.other_names)
        graded = np.arange(num_grades) * self.num_classes // max(num_grades, 1)
        others = graded if num_grades else np.full(num_others, MISSING)
        return others if self.is_ordered else np.concatenate([np.arange(self.num_classes), others])

    def without_other_votes(self) -> "Votes":
        """Votes for classes only: grades are for the class of `class_of_vote`, votes such as "tie" are missing."""
        if not len(self.other_names) and not self.is_ordered:
            return self
        return replace(self._recoded(self.class_of_vote), other_names=(), grade_names=())

    def absence_as_vote(self, name: str = "absent") -> "Votes":
        """The same with missing votes as a category of their own, for voters who could have voted on every item.

        Whether a voter votes may then depend on the label: methods that learn from categories that are not labels, such
        as `DawidSkeneEM`, learn how. `check_absence` tests whether it does. Repeated votes are refused.

        Args:
            name: What the new category is called.
        """
        if self.is_ordered:
            raise VotesError("absence is not a grade: take ordered votes as classes by votes.without_other_votes()")
        if name in self.category_names:
            raise VotesError(f"{name!r} is a vote already: give the category of missing votes another name")
        codes = self.matrix.astype(code_type(self.num_categories + 1))
        codes[codes == MISSING] = self.num_categories
        return replace(self, storage=codes, other_names=(*self.other_names, name), grade_names=())

    def as_categories(self) -> "Votes":
        """The same with grades as categories that are not labels, whose order does not count."""
        if not self.is_ordered:
            return self
        codes = self.num_classes + np.arange(self.num_categories)
        return replace(self._recoded(codes), other_names=self.grade_names)

    def as_ordered(self) -> "Votes":
        """The same with the grades of `as_categories` in order again."""
        if self.is_ordered or not len(self.grade_names):
            return self
        codes = np.concatenate([np.full(self.num_classes, MISSING), np.arange(len(self.grade_names))])
        return replace(self._recoded(codes), other_names=())

    def _recoded(self, codes: Int[np.ndarray, " vote"]) -> "Votes":
        """The same with other codes for the votes, −1 for those that count as missing."""
        recode = np.append(codes, MISSING).astype(code_type(int(codes.max(initial=1)) + 1))  # code −1 picks the last
        if isinstance(self.storage, np.ndarray):
            return replace(self, storage=recode[self.storage])
        vote = recode[self.storage.vote]  # in the same order
        return replace(self, storage=self.storage._replace(vote=vote)).at_entries(vote != MISSING)

    def refuse_other_votes(self, who: str) -> None:
        """Raise `VotesError` if there are categories that are not labels; `who`, the subject, cannot use them."""
        if self.is_ordered:
            raise VotesError(
                f"{who} takes votes for classes only, but these are ordered: take each grade as a vote for a class by "
                "votes.without_other_votes()"
            )
        if len(self.other_names):
            raise VotesError(
                f"{who} takes votes for classes only, but {listed(self.other_names)} is not one of them: take such "
                "votes as missing by votes.without_other_votes(), or use a method that learns from them, such as "
                "DawidSkeneEM or Ebcc",
                Keyword("missing", tuple(self.other_names)),
            )

    @property
    def is_sparse(self) -> bool:
        """Whether the votes are stored as triplets."""
        return not isinstance(self.storage, np.ndarray)

    @cached_property
    def has_repeats(self) -> bool:
        """Whether some voter voted on some item more than once."""
        return isinstance(self.storage, Triplets) and bool(self.storage.repeated.any())

    @property
    def is_soft(self) -> bool:
        """Whether votes are probabilities of categories, see `from_soft`."""
        return self.weights is not None

    def to_hard(self) -> "Votes":
        """The same with every soft vote replaced by one for its most probable category, the first if several are."""
        if self.weights is None:
            return self
        entries = self.triplets
        by_weight = np.lexsort((-self.weights, entries.voter, entries.item))  # stable: the first stays first
        ranked = entries.at(by_weight)
        return replace(self, storage=ranked.at(~ranked.repeated), weights=None)

    def at_entries(self, entries: np.ndarray | slice) -> "Votes":
        """Some of the entries of votes that are stored as triplets."""
        weights = None if self.weights is None else self.weights[entries]
        return replace(self, storage=self.triplets.at(entries), weights=weights)

    def refuse_repeats(self, who: str) -> None:
        """Raise `VotesError` if there are repeated votes; `who`, the subject of the message, cannot use them."""
        if self.is_soft:
            raise VotesError(
                f"{who} takes one vote per voter and item, but these votes are probabilities: take the most "
                "probable categories by votes.to_hard()"
            )
        if self.has_repeats:
            entry = int(np.argmax(self.triplets.repeated))
            item, voter = int(self.triplets.item[entry]), int(self.triplets.voter[entry])
            raise VotesError(
                f"{who} takes one vote per voter and item, but voter {self.voter_names[voter]} voted on item "
                f"{self.item_names[item]} more than once: read the votes with {LAST}, or use a method that "
                "counts repeated votes, such as DawidSkeneEM",
                LAST,
            )

    @cached_property
    def matrix(self) -> Int[np.ndarray, "item voter"]:
        """The votes as a matrix, −1 where missing; refused if there are repeated votes."""
        if isinstance(self.storage, np.ndarray):
            return self.storage
        self.refuse_repeats("a matrix of votes")
        return to_matrix(self.storage, self.shape)

    @cached_property
    def triplets(self) -> Triplets:
        """The votes that were cast, one entry each."""
        if isinstance(self.storage, Triplets):
            return self.storage
        return to_triplets(self.storage)

    @cached_property
    def num_missing(self) -> int:
        """Number of pairs of an item and a voter without a vote."""
        cast = ~self.storage.repeated if isinstance(self.storage, Triplets) else self.storage != MISSING
        return self.num_items * self.num_voters - int(np.sum(cast))

    @cached_property
    def cast_by_item(self) -> Int[np.ndarray, " item"]:
        """The number of votes of each item, for whatever category."""
        if isinstance(self.storage, np.ndarray):
            return (self.storage != MISSING).sum(axis=1)
        return np.bincount(self.to_hard().triplets.item, minlength=self.num_items)

    @cached_property
    def cast_by_voter(self) -> Int[np.ndarray, " voter"]:
        """The number of votes of each voter, for whatever category."""
        return np.bincount(self.to_hard().triplets.voter, minlength=self.num_voters)

    @cached_property
    def tally(self) -> Num[np.ndarray, "item label"]:
        """The number of votes of each item for each class; grades are for the class of `class_of_vote`.

        Of soft votes it is the sum of their probabilities.

        Examples:
            >>> import latentens as le
            >>> le.Votes.from_matrix([[0, 1, 1], [1, -1, 1]]).tally
            array([[1, 2],
                   [0, 2]], dtype=int32)
        """
        if len(self.grade_names):
            return self.without_other_votes().tally
        tally = np.empty((self.num_items, self.num_classes), dtype=np.float64 if self.is_soft else np.int32)
        each = np.ones(self.num_voters, dtype=np.float32)  # a product is quicker than a sum over few voters
        for start, block in self.blocks():
            part = tally[start : start + block.num_items]
            if isinstance(block.storage, np.ndarray):
                for label in range(self.num_classes):
                    part[:, label] = (block.storage == label) @ each
            else:
                cast = block.without_other_votes()
                cell = cast.triplets.item.astype(np.int64) * self.num_classes + cast.triplets.vote
                part[:] = np.bincount(cell, cast.weights, minlength=part.size).reshape(part.shape)
        return tally

    def blocks(self, block_elements: int = BLOCK_ELEMENTS) -> Iterator[tuple[int, "Votes"]]:
        """The votes in blocks of neighbouring items, each with its first item, which bounds the memory of a step.

        Args:
            block_elements: Size of a table of the votes and classes of a block.
        """
        entries = self.num_voters if isinstance(self.storage, np.ndarray) else len(self.storage.item) / self.num_items
        places = row_blocks(self.num_items, max(entries, 1) * self.num_categories, block_elements)
        return ((place.start, self.between(place.start, place.stop)) for place in places)

    @cached_property
    def patterns(self) -> Patterns:
        """The distinct rows, how often each occurs, and where."""
        if self.counts is not None:
            return Patterns(self, self.counts, np.arange(self.num_items))
        return find_patterns(self)

    @cached_property
    def second_factor(self) -> float:
        """How much of their agreement voters owe to a second common factor, relative to the first."""
        return second_factor(self)

    @property
    def num_cases(self) -> int:
        """Number of items; of counted rows, the sum of their counts."""
        return self.num_items if self.counts is None else int(self.counts.sum())

    @cached_property
    def bounds(self) -> Int[np.ndarray, " bound"]:
        """Where the triplets of each item begin; those of the last end at the last bound."""
        index = np.int32 if len(self.triplets.item) < 2**31 else np.int64
        lengths = np.bincount(self.triplets.item, minlength=self.num_items)
        return np.concatenate([np.zeros(1, dtype=index), np.cumsum(lengths, dtype=index)])

    def take(self, items: Int[np.ndarray, " chosen"]) -> "Votes":
        """The votes on some of the items, in the order given.

        Examples:
            >>> import latentens as le
            >>> import numpy as np
            >>> le.Votes.from_matrix([[0, 1], [1, 1], [0, 0]]).take(np.array([2, 0])).matrix
            array([[0, 0],
                   [0, 1]], dtype=int8)
        """
        names = self.item_names
        names = names.start + names.step * items if isinstance(names, range) else np.asarray(names)[items]
        if isinstance(self.storage, np.ndarray):
            return self._with_items(self.storage[items], names, items)
        part = self.at_entries(entries_of(items, self.bounds))
        item = np.repeat(np.arange(len(items), dtype=np.int32), np.diff(self.bounds)[items])
        return part._with_items(part.triplets._replace(item=item), names, items)

    def between(self, start: int, stop: int) -> "Votes":
        """The votes on neighbouring items, without a copy of them where possible."""
        names, place = self.item_names[start:stop], slice(start, stop)
        if isinstance(self.storage, np.ndarray):
            return self._with_items(self.storage[start:stop], names, place)
        item = self.storage.item
        part = self.at_entries(slice(*np.searchsorted(item, np.array([start, stop], item.dtype))))
        return part._with_items(part.triplets._replace(item=part.triplets.item - item.dtype.type(start)), names, place)

    def _with_items(self, storage: np.ndarray | Triplets, names: Names, chosen: np.ndarray | slice) -> "Votes":
        counts = None if self.counts is None else self.counts[chosen]
        return replace(self, storage=storage, num_items=len(names), item_names=names, counts=counts)

    def anchored(self, names: Collection[Hashable]) -> "Votes":
        """The same votes with an anchor: voters that are known to be better than chance, by name.

        The order of the labels follows their votes alone. Without an anchor it follows the votes of all voters, most of
        whom must then be better than chance.
        """
        places = {str(known): place for place, known in enumerate(self.voter_names)}  # 1 and "1" are the same name
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if str(name) not in places:
                hint = suggestion(name, self.voter_names, "voters")
                raise VotesError(f"the anchor {name!r} is not one of the voters: {hint}")
        return replace(self, anchor=tuple(sorted({places[str(name)] for name in wanted})))

    @cached_property
    def of_anchor(self) -> "Votes":
        """The votes of the anchor; all of them if there is none."""
        if not self.anchor:
            return self
        if isinstance(self.storage, np.ndarray):
            kept = np.isin(np.arange(self.num_voters), self.anchor)
            return replace(self, storage=np.where(kept, self.storage, np.int8(MISSING)), anchor=())
        chosen = np.isin(self.storage.voter, self.anchor)
        return replace(self.at_entries(chosen), anchor=())

    def to_long(self) -> pd.DataFrame:
        """The votes as labels, one row for each vote that was cast, with the columns item, voter and vote.

        Soft votes have one row for each category with a probability above zero, which is the column weight.
        """
        names = {"item": self.item_names, "voter": self.voter_names, "vote": self.category_names}
        codes = zip(names.items(), self.triplets, strict=True)
        table = pd.DataFrame({column: pd.Index(known).take(chosen) for (column, known), chosen in codes})
        return table.assign(weight=self.weights) if self.is_soft else table

    def to_frame(self) -> pd.DataFrame:
        """The votes as labels, one row per item and one column per voter, NA where missing; no repeated votes."""
        self.refuse_repeats("a table with one column per voter")
        labels = pd.array([*self.category_names, pd.NA])  # code −1 picks the last
        columns = {name: labels[self.matrix[:, i]] for i, name in enumerate(self.voter_names)}
        return pd.DataFrame(columns, index=pd.Index(self.item_names, name="item"))

    @property
    def summary(self) -> str:
        """One line: the numbers of items and voters, classes and other votes by name, the share of missing votes."""
        share = self.num_missing / (self.num_items * self.num_voters)
        repeated = ", soft votes" if self.is_soft else ", repeated votes" if self.has_repeats else ""
        note = f"; {self.note}" if self.note else ""
        others = f", votes that are not labels: {listed(self.other_names)}" if len(self.other_names) else ""
        if self.is_ordered:
            grades = listed([self.grade_names[0], self.grade_names[-1]]).replace(", ", " … ")
            others = f", ordered votes ({len(self.grade_names)} grades, {grades})"
        return (
            f"{self.num_items:,} items × {self.num_voters:,} voters, {self.num_classes} classes "
            f"({listed(self.class_names)}){others}, {share:.1%} missing{repeated}{note}"
        )

    def __repr__(self) -> str:
        return f"Votes({self.summary}, {'triplets' if self.is_sparse else 'matrix'})"
