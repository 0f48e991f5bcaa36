"""Quantities that can be estimated: means, over the items, of something that depends on the label."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentens.errors import VotesError
from latentens.votes import Votes
from latentens.votes.labels import suggestion
from latentens.votes.matching import positions

LabelFunction = Callable[[Any], float] | Mapping[Hashable, float] | Sequence[float] | np.ndarray
"""A function of the label: of the class as written, or a number for each class, by name or in their order."""

SHARE = np.array([[0.0, 1.0], [1.0, 1.0]])
CONDITIONAL = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
DIFFERENCE = np.array([[-1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])


class Quantity(NamedTuple):
    """A ratio of two means over some of the items, Σ a / Σ b, where a and b depend on the label.

    Attributes:
        name: Its kind: prevalence, accuracy, ….
        of: The class, voter or pair that it belongs to.
        items: The items that it is about.
        top: The value a of each of them, for every possible label.
        bottom: The value b of each of them, for every possible label.
        possible: The pairs (a, b) that an item may have.
        null: The value that a test compares it with; NaN if there is no such value.
    """

    name: str
    of: str
    items: Int[np.ndarray, " some"]
    top: Float[np.ndarray, "some label"]
    bottom: Float[np.ndarray, "some label"]
    possible: Float[np.ndarray, "pair 2"]
    null: float = np.nan


def list_quantities(
    votes: Votes, compare: Sequence[Hashable] | None = None, functions: Mapping[str, LabelFunction] | None = None
) -> Iterator[Quantity]:
    """The prevalence of each class, the comparisons and means asked for, and the accuracy of each voter.

    Args:
        votes: The votes.
        compare: Two voters, whose accuracies are compared, or two classes, of which the first wins or loses.
        functions: Functions of the label whose means are wanted, by name.
    """
    everything, names = np.arange(votes.num_items), votes.class_names

    def mean_of(name: str, of: Any, values: np.ndarray, null: float = np.nan) -> Quantity:
        table = np.broadcast_to(values, (votes.num_items, len(values)))
        possible = np.stack([values, np.ones(len(values))], axis=1)
        return Quantity(name, str(of), everything, table, np.ones_like(table), possible, null)

    for code, name in enumerate(names):
        yield mean_of("prevalence", name, np.eye(votes.num_classes)[code])
    for title, function in (functions or {}).items():
        yield mean_of("mean", title, _values(title, function, names))
    ballots = ballots_of(votes)
    if compare is not None:
        pair = _pair(compare, votes.voter_names)
        if pair is not None:
            yield _difference(votes, ballots, *pair)
        else:
            codes = _pair(compare, names)
            if codes is None:
                raise VotesError(
                    f"compare={tuple(compare)!r} must be two voters or two classes: "
                    f"{suggestion(compare[0], votes.voter_names, 'voters')}"
                )
            values = np.full(votes.num_classes, 0.5)
            values[list(codes)] = 1.0, 0.0
            yield mean_of("win rate", f"{compare[0]} against {compare[1]}", values, 0.5)
    for voter, (items, said) in enumerate(ballots):
        if len(items):
            name, ones = str(votes.voter_names[voter]), np.ones_like(said)
            yield Quantity("accuracy", name, items, said, ones, SHARE)
            if votes.num_classes == 2:
                for code, title in ((1, "sensitivity"), (0, "specificity")):
                    of_class = np.eye(2)[code]
                    yield Quantity(title, name, items, said * of_class, ones * of_class, CONDITIONAL)


Ballots = list[tuple[Int[np.ndarray, " some"], Float[np.ndarray, "some label"]]]


def ballots_of(votes: Votes) -> Ballots:
    """For each voter the items with a vote, and the share of each class in the votes on them: repeated ones average."""
    item, voter, vote = votes.to_hard().without_other_votes().triplets
    order = np.lexsort((item, voter))
    ends = np.searchsorted(voter[order], np.arange(votes.num_voters + 1))
    found = []
    for start, end in pairwise(ends.tolist()):
        entries = order[start:end]
        items, place = np.unique(item[entries], return_inverse=True)
        said = np.zeros((len(items), votes.num_classes))
        np.add.at(said, (place, vote[entries]), 1.0)
        found.append((items, said / said.sum(axis=1, keepdims=True)))
    return found


def _difference(votes: Votes, ballots: Ballots, first: int, second: int) -> Quantity:
    """Accuracy of a first voter minus that of a second one, on the items that both voted on."""
    items, places, others = np.intersect1d(ballots[first][0], ballots[second][0], return_indices=True)
    names = votes.voter_names[first], votes.voter_names[second]
    if not len(items):
        raise VotesError(f"{names[0]} and {names[1]} never voted on the same item")
    said = ballots[first][1][places] - ballots[second][1][others]
    return Quantity("difference", f"{names[0]} − {names[1]}", items, said, np.ones_like(said), DIFFERENCE, 0.0)


def _pair(compare: Sequence[Hashable], names: Any) -> tuple[int, int] | None:
    if isinstance(compare, str) or len(compare) != 2:
        raise VotesError(f"compare={compare!r} must name two voters or two classes, such as compare=('a', 'b')")
    first, second = positions(compare, names).tolist()
    if first == second >= 0:
        raise VotesError(f"compare={tuple(compare)!r} names the same twice")
    return (first, second) if min(first, second) >= 0 else None


def _values(title: str, function: LabelFunction, names: Any) -> Float[np.ndarray, " label"]:
    """The function's value for each class."""
    if callable(function):
        values: list[Any] = [function(name) for name in names]
    elif isinstance(function, Mapping):
        places = positions(function, names)
        if set(places.tolist()) != set(range(len(names))):
            raise VotesError(f"the function {title!r} needs a value for each class, {list(names)}")
        values = [value for _, value in sorted(zip(places.tolist(), function.values(), strict=True))]
    else:
        values = list(function)
    found = np.asarray(values, dtype=float)
    if found.shape != (len(names),) or not np.isfinite(found).all():
        raise VotesError(f"the function {title!r} needs one finite value for each of the {len(names)} classes")
    return found
