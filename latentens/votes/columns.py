"""Which columns of a table hold what: told by the user, or by their usual names."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latentens.errors import VotesError
from latentens.votes.names import listed
from latentens.votes.reading import Reading

ROLES: Mapping[str, tuple[str, ...]] = {
    "item": ("item", "task", "question", "example", "instance", "document", "unit"),
    "voter": ("voter", "worker", "annotator", "rater", "judge", "classifier", "user", "coder", "labeler", "labeller"),
    "vote": ("vote", "label", "answer", "response", "annotation", "rating", "judgment", "judgement", "verdict"),
}
"""Usual names of the columns of a long table, also with `_id` or `_name` after them."""

ITEM_COLUMNS = ("item", "item_id", "id", "task", "question", "example")
"""Names of the column of items in a wide table."""

SURE_TRUTH = re.compile(r"(.*_)?(truth|gold|golden|groundtruth)(_.*)?|(true|correct)_(label|class|answer)|y_true")
LIKELY_TRUTH = frozenset({"label", "labels", "target", "y", "class", "answer", "correct", "expected", "gt", "true"})
"""Names of a column of true labels."""


class Long(NamedTuple):
    """A table with one vote per row: the names of its three columns."""

    item: str
    voter: str
    vote: str


class Wide(NamedTuple):
    """A table with one column per voter: the columns of voters, and that of items, if there is one."""

    voters: tuple[str, ...]
    items: tuple[str, ...]


def find_layout(names: Sequence[str], index: str | None, reading: Reading) -> Long | Wide:
    """Which columns hold what.

    Args:
        names: The names of the columns.
        index: The column that numbers or names the rows, if the file tells.
        reading: What the user says.
    """
    given = {role: getattr(reading, role) for role in ROLES}
    refuse_unknown([name for name in (*given.values(), *reading.ignore) if name is not None], names)
    left = [name for name in names if name not in reading.ignore]
    others = [name for name in left if name not in given.values()]
    roles = {role: given[role] or _by_role(role, others) for role in ROLES}
    absent = [role for role, name in roles.items() if name is None]
    if not absent:
        return Long(**{role: str(name) for role, name in roles.items()})
    said = reading.voter or reading.vote
    if said or (roles["voter"] and (len(absent) == 1 or len(left) <= len(ROLES))):
        name, wide = absent[0], "" if said else f"; if each column is a voter, rename {roles['voter']!r}"
        raise VotesError(f"there is no column of {name}s among {listed(others)} by its name: say {name}=…{wide}")
    return _wide(left, index, reading.item)


def refuse_unknown(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise `VotesError` unless all columns are there."""
    for name in wanted:
        if name not in names:
            raise VotesError(f"there is no column {name!r}; the columns are {listed(names)}")


def _by_role(role: str, names: Sequence[str]) -> str | None:
    """The column of that role by its name; the role's own name goes before others, and `id` comes last."""
    for aliases in ((role,), ROLES[role], ("id",) if role == "item" else ()):
        found = [name for name in names if _plain(name) in aliases]
        if exact := [name for name in found if name.strip().lower() == role]:
            found = exact[:1]
        if len(found) > 1:
            choice = " or ".join(f"{role}={name!r}" for name in found)
            raise VotesError(f"columns {listed(found)} may all hold the {role}s; say {choice}")
        if found:
            return found[0]
    return None


def _plain(name: str) -> str:
    """A name in small letters and underscores, without what only says that it is a name: WorkerId is worker."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name.strip()).strip("_").lower()
    return re.sub(r"_(id|name)$", "", words)


def _wide(names: Sequence[str], index: str | None, item: str | None) -> Wide:
    if item is None:
        known = [name for name in names if name.strip().lower() in ITEM_COLUMNS]
        if len(known) > 1:
            choice = " or ".join(f"item={name!r}" for name in known)
            raise VotesError(f"columns {listed(known)} may all name the items; say {choice}, and ignore the other")
        item = known[0] if known else index
    voters = tuple(name for name in names if name not in (item, index))
    if not voters:
        raise VotesError("there is no column of votes beside the items")
    for name in voters:
        if SURE_TRUTH.fullmatch(_plain(name)) or _is_likely_truth(name, voters):
            raise VotesError(
                f"column {name!r} looks like the true labels: say ignore=({name!r},), or rename it if it is a voter"
            )
    return Wide(voters, () if item is None else (item,))


def _is_likely_truth(name: str, others: Sequence[str]) -> bool:
    """Whether a column is named like the truth; `y` between `x` and `z` is not."""
    letters = sum(len(other) == 1 for other in others)
    return _plain(name) in LIKELY_TRUTH and not (len(name) == 1 and letters > 1)


def truth_columns(names: Sequence[str], index: str | None, item: str | None) -> tuple[str, str]:
    """The column of items and that of true labels in a table of the truth.

    Args:
        names: The names of the columns.
        index: The column that numbers or names the rows, if the file tells.
        item: What the column of items is called in the table of votes, if the user says so.
    """
    if item not in names:
        item = _by_role("item", names) or index
    if item is None:
        raise VotesError(f"there is no column of items among {listed(names)}: call it 'item'")
    others = [name for name in names if name not in (item, index)]
    sure = [name for name in others if SURE_TRUTH.fullmatch(_plain(name))]
    found = sure or [name for name in others if _plain(name) in LIKELY_TRUTH] or others
    if len(found) != 1:
        raise VotesError(f"which of the columns {listed(found)} holds the true labels is not clear: call it 'truth'")
    return item, found[0]
