"""Variational Bayes for classes that are mixtures of subtypes: only subtypes that hold items are computed.

The prior leaves most subtypes empty, and an empty one stays so: its share has an expected logarithm of about −100.
Rounds are plain at first and then go by squared extrapolation of the square roots of the expected counts, as in
`ascent`. In the end a subtype changes its class where that raises the evidence bound: random starts divide the rows
into much the same subtypes, but seldom give each of them to its best class.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma, gammaln

from latentens.methods.independent.ascent import FIRST_JUMP, LONGER_JUMP, PLAIN_ROUNDS
from latentens.runtime.parallel import stop_if_asked
from latentens.votes.incidence import Block, Incidence, Sums

CLASS_CONCENTRATION = 1.0
SUBTYPE_CONCENTRATION = 0.1
RIGHT_CONCENTRATION, WRONG_CONCENTRATION = 4.0, 1.0

EMPTY = 1e-9
"""A subtype that is expected to hold fewer items than this is empty."""

Responsibilities = Float[np.ndarray, "row subtype"]


class Subtypes(NamedTuple):
    """The subtypes that hold items: the class of each, and its expected numbers of items and of votes."""

    label: Int[np.ndarray, " subtype"]
    items: Float[np.ndarray, " subtype"]
    votes: Float[np.ndarray, "voter_vote subtype"]

    def at(self, chosen: np.ndarray) -> "Subtypes":
        """Some of them."""
        return Subtypes(self.label[chosen], self.items[chosen], self.votes[:, chosen])

    def scaled(self, num_items: int) -> "Subtypes":
        """The same shares of another number of items."""
        factor = num_items / self.items.sum()
        return Subtypes(self.label, self.items * factor, self.votes * factor)


class Position(NamedTuple):
    """Some subtypes, what the rows make of them in a round, and the evidence bound."""

    subtypes: Subtypes
    following: Subtypes
    bound: float


class End(NamedTuple):
    """Where an ascent ended."""

    position: Position
    rounds: int
    converged: bool


@dataclass(frozen=True, eq=False)
class SubtypeAscent:
    """What all starts have in common.

    Attributes:
        rows: The distinct rows of votes.
        counts: How often each occurs.
        log_allowed: Zero where a row can have a label, −∞ where it cannot; None if nothing is known.
        num_classes: Number of classes.
        num_subtypes: Most subtypes of a class.
        tolerance: Convergence is a plain round that gains less than this in the bound per item.
        max_iterations: Limit on the number of rounds.
    """

    rows: Incidence
    counts: Int[np.ndarray, " row"]
    log_allowed: Float[np.ndarray, "row label"] | None
    num_classes: int
    num_subtypes: int
    tolerance: float
    max_iterations: int

    def begin(self, labels: Float[np.ndarray, "row label"], generator: np.random.Generator | None = None) -> Subtypes:
        """The subtypes of a start: soft labels as one subtype a class or, by a generator, divided among all."""
        label = np.arange(self.num_classes).repeat(1 if generator is None else self.num_subtypes)
        # blocks are divided one after the other, so that the same key gives the same start
        parts = (self._divide(block, labels[block.place], generator) for block in self.rows.blocks)
        items, votes = next(parts)
        for more_items, more_votes in parts:
            items += more_items
            votes += more_votes
        return Subtypes(label, items, self.rows.vote_totals(votes))

    def _divide(
        self, block: Block, labels: Float[np.ndarray, "row label"], generator: np.random.Generator | None
    ) -> Sums:
        if generator is None:
            return self._count(block, labels)
        division = generator.dirichlet(np.ones(self.num_subtypes), labels.shape)
        return self._count(block, (labels[:, :, None] * division).reshape(len(labels), -1))

    def climb(self, subtypes: Subtypes) -> End:
        """Raise the evidence bound."""
        at, rounds, longest = self.stand(subtypes), 1, FIRST_JUMP
        enough = self.tolerance * float(self.counts.sum())
        while rounds < self.max_iterations:
            stop_if_asked()
            after = at.following
            held = after.items > EMPTY
            before = at.subtypes.at(held)
            ahead = self.stand(after.at(held))
            rounds += 1
            if ahead.bound - at.bound < enough:
                return End(ahead, rounds, True)
            at = ahead
            if rounds >= PLAIN_ROUNDS and rounds < self.max_iterations:
                at, longest = self._jump(before, ahead, longest)
                rounds += 1
        return End(at, rounds, False)

    def settle(self, end: End) -> End:
        """Let subtypes change class one by one, and climb on, as long as that raises the bound."""
        enough = self.tolerance * float(self.counts.sum())
        for _ in range(2 * len(end.position.subtypes.label)):
            subtypes = end.position.subtypes
            moved = max(map(self.stand, self._neighbours(subtypes)), key=lambda at: at.bound, default=end.position)
            if moved.bound <= end.position.bound + enough:
                break
            position, rounds, converged = self.climb(moved.subtypes)
            end = End(position, end.rounds + rounds, converged)
        return end

    def stand(self, subtypes: Subtypes) -> Position:
        """The evidence bound at some expected counts, and the counts that follow from them."""
        label, items, votes = subtypes
        in_class = np.bincount(label, items, self.num_classes)
        of_class, class_cost = _dirichlet(in_class[:, None], np.full((self.num_classes, 1), CLASS_CONCENTRATION))
        of_subtype, subtype_cost = self._subtype_shares(subtypes, in_class)
        of_vote, vote_cost = _dirichlet(votes.reshape(-1, self.num_classes, len(label)), self._vote_prior(label))
        table = self.rows.column_table(of_vote.reshape(votes.shape))
        offset = of_class[label, 0] + of_subtype

        def count(block: Block) -> Sums:
            responsibilities, log_rows = self._respond(block, table, offset, label)
            return *self._count(block, responsibilities), np.atleast_1d(self.counts[block.place] @ log_rows)

        items, totals, log_rows = self.rows.sum_blocks(count)
        following = Subtypes(label, items, self.rows.vote_totals(totals))
        return Position(subtypes, following, float(log_rows[0]) - class_cost - subtype_cost - vote_cost)

    def _respond(
        self,
        block: Block,
        table: Float[np.ndarray, "column subtype"],
        offset: Float[np.ndarray, " subtype"],
        label: Int[np.ndarray, " subtype"],
    ) -> tuple[Responsibilities, Float[np.ndarray, " row"]]:
        """Responsibilities of a block, and the logarithm of what each row's were divided by."""
        logits = block.matrix @ table
        logits += offset
        if self.log_allowed is not None:
            logits += self.log_allowed[block.place][:, label]
        highest = logits.max(axis=1, keepdims=True)
        logits -= highest
        joint = np.exp(logits, out=logits)
        total = joint.sum(axis=1, keepdims=True)
        joint /= total
        return joint, (np.log(total) + highest)[:, 0]

    def _subtype_shares(
        self, subtypes: Subtypes, in_class: Float[np.ndarray, " label"]
    ) -> tuple[Float[np.ndarray, " subtype"], float]:
        """Expected logarithms of the shares in their class, and what these cost; empty subtypes cost nothing."""
        prior = SUBTYPE_CONCENTRATION / self.num_subtypes
        logs = digamma(subtypes.items + prior) - digamma(in_class + SUBTYPE_CONCENTRATION)[subtypes.label]
        whole = gammaln(in_class + SUBTYPE_CONCENTRATION) - gammaln(SUBTYPE_CONCENTRATION)
        cost = whole.sum() + np.sum(gammaln(prior) - gammaln(subtypes.items + prior) + subtypes.items * logs)
        return logs, float(cost)

    def _vote_prior(self, label: Int[np.ndarray, " subtype"]) -> Float[np.ndarray, "vote subtype"]:
        right = np.arange(self.num_classes)[:, None] == label
        return np.where(right, RIGHT_CONCENTRATION, WRONG_CONCENTRATION)

    def _count(self, block: Block, responsibilities: Responsibilities) -> Sums:
        """Expected numbers of items and of columns in each subtype."""
        counts = self.counts[block.place]
        weighted = responsibilities if (counts == 1).all() else responsibilities * counts[:, None]
        return weighted.sum(axis=0), block.transpose @ weighted

    def _jump(self, before: Subtypes, at: Position, longest: float) -> tuple[Position, float]:
        """Ahead of two plain rounds, or where the first of them led; and the bound of further jumps."""
        two_on = at.following
        paths = []
        for points in zip(before[1:], at.subtypes[1:], two_on[1:], strict=True):
            begin, middle, end = map(np.sqrt, points)
            paths.append((begin, middle - begin, end - 2 * middle + begin))
        step, bend = (sum(float(np.sum(path[i] ** 2)) for path in paths) for i in (1, 2))
        length = min(max(np.sqrt(step / max(bend, np.finfo(float).tiny)), 1.0), longest)
        items, votes = (np.square(z + 2 * length * r + length**2 * v) for z, r, v in paths)
        landed = self.stand(Subtypes(at.subtypes.label, items, votes))
        if landed.bound >= at.bound:
            return landed, LONGER_JUMP * longest if length == longest else longest
        return at, max(length / LONGER_JUMP, 1.0)

    def _neighbours(self, subtypes: Subtypes) -> list[Subtypes]:
        """The same with one subtype given to a class that has room for it and more of the votes on the subtype's items.

        A class that fewer of these votes name may raise the bound too, where it has an unusual voter or two in common
        with the subtype, but the voters do not mean it. No class of known items is emptied. Each subtype has one
        neighbour at most, with the class that raises the bound most while responsibilities stay: what the Dirichlet
        distributions of the two classes and of its voters then say is all that changes.
        """
        label, items, votes = subtypes
        places = np.arange(len(label))
        sizes, in_class = np.bincount(label, minlength=self.num_classes), np.bincount(label, items, self.num_classes)
        of_votes = votes.reshape(-1, self.num_classes, len(label))
        as_right = gammaln(RIGHT_CONCENTRATION + of_votes) - gammaln(WRONG_CONCENTRATION + of_votes)
        with_it = _class_evidence(in_class[:, None] + items) - _class_evidence(in_class)[:, None]
        gain = as_right.sum(axis=0) + with_it  # (class, subtype)
        named = of_votes.sum(axis=0)
        gain[(named <= named[label, places]) | (sizes == self.num_subtypes)[:, None]] = -np.inf
        best, free = gain.argmax(axis=0), np.isfinite(gain.max(axis=0))
        if self.log_allowed is not None:
            free &= sizes[label] > 1
        return [subtypes._replace(label=np.where(places == i, best[i], label)) for i in np.flatnonzero(free)]


def _class_evidence(items: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """What the number of a class's items adds to the bound, by its share of all and by the shares of its subtypes."""
    return gammaln(CLASS_CONCENTRATION + items) - gammaln(SUBTYPE_CONCENTRATION + items)


def _dirichlet(
    counts: Float[np.ndarray, "... category column"], prior: Float[np.ndarray, "category column"]
) -> tuple[Float[np.ndarray, "... category column"], float]:
    """Expected logarithms under Dirichlet posteriors, and their Kullback–Leibler divergence from their priors."""
    posterior = counts + prior
    total = posterior.sum(axis=-2, keepdims=True)
    logs = digamma(posterior) - digamma(total)
    times = counts.size // prior.size
    normalisers = gammaln(total).sum() - times * (gammaln(prior.sum(axis=0)).sum() - gammaln(prior).sum())
    return logs, float(normalisers - gammaln(posterior).sum() + np.sum(counts * logs))
