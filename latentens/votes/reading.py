"""How a table of votes is to be read."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from latentens.errors import VotesError

Classes = Sequence[Hashable] | None
Duplicates = Literal["error", "first", "last", "keep"]


class TableOptions(TypedDict, total=False):
    """The settings of `Reading` as keyword arguments."""

    item: str | None
    voter: str | None
    vote: str | None
    ignore: Collection[str]
    classes: Classes
    missing: Collection[Hashable]
    duplicates: Duplicates


@dataclass(frozen=True)
class Reading:
    """What a user says about a table of votes.

    Attributes:
        item: The column of items; by default it is found by its name.
        voter: The column of voters of a long table; by default it is found by its name.
        vote: The column of votes of a long table; by default it is found by its name.
        ignore: Columns that do not count.
        classes: The labels in order; by default the sorted distinct ones.
        missing: What is written where a vote is missing; an empty cell always is.
        duplicates: What to do where a voter voted on an item repeatedly: refuse (`error`), take the `first` or the
            `last` vote, or `keep` them all, each of which then counts.
    """

    item: str | None = None
    voter: str | None = None
    vote: str | None = None
    ignore: Collection[str] = ()
    classes: Classes = None
    missing: Collection[Hashable] = ()
    duplicates: Duplicates = "error"

    def __post_init__(self) -> None:
        for name in ("ignore", "classes", "missing"):
            if isinstance(value := getattr(self, name), str):
                raise VotesError(f"{name} takes several, so write {name}=({value!r},)")
        if self.duplicates not in get_args(Duplicates):
            raise VotesError(f"duplicates={self.duplicates!r} is none of 'error', 'first', 'last' and 'keep'")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise VotesError(f"classes={tuple(self.classes)!r} names a class twice")
