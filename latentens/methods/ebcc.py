"""EBCC, enhanced Bayesian classifier combination (Li, Rubinstein & Cohn 2019).

The prior leaves most subtypes empty, and an empty one stays so: its share has an expected logarithm of about −100.
Rounds are plain at first and then go by squared extrapolation of the square roots of the expected counts, as in
`latentens.inference.independent`. At the end a subtype changes its class where that raises the evidence bound: random
starts divide the rows into much the same subtypes, but seldom assign each of them to its best class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma, gammaln, logsumexp, softmax

from latentens.inference.identification import Labelling, label_change
from latentens.inference.independent import FIRST_JUMP, PLAIN_ROUNDS, gold_posterior, next_bound, squared_jump
from latentens.inference.orient import orientation, vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.rows import in_blocks
from latentens.programs.tables import LabelledRows, labelled_rows
from latentens.runtime.numerics import numpy_generator, safe_log
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.layout import Block, Incidence, Sums, incidence_of, vote_indicator
from latentens.votes.matching import certain_where_known

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
        """A copy with the same shares for another number of items."""
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
    """The data and settings common to all starts.

    Attributes:
        rows: The distinct rows of votes.
        counts: How often each occurs.
        log_allowed: Zero where a row can have a label, −∞ where it cannot; None if nothing is known.
        num_classes: Number of classes.
        num_categories: Number of different votes.
        num_subtypes: Most subtypes of a class.
        tolerance: Convergence is a plain round that gains less than this in the bound per item.
        max_iterations: Limit on the number of rounds.
    """

    rows: Incidence
    counts: Int[np.ndarray, " row"]
    log_allowed: Float[np.ndarray, "row label"] | None
    num_classes: int
    num_categories: int
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
        """Move subtypes to other classes, one at a time, each followed by an ascent, as long as the bound rises."""
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
        of_vote, vote_cost = _dirichlet(votes.reshape(-1, self.num_categories, len(label)), self._vote_prior(label))
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
        right = np.arange(self.num_categories)[:, None] == label
        return np.where(right, RIGHT_CONCENTRATION, WRONG_CONCENTRATION)

    def _count(self, block: Block, responsibilities: Responsibilities) -> Sums:
        """Expected numbers of items and of columns in each subtype."""
        counts = self.counts[block.place]
        weighted = responsibilities if (counts == 1).all() else responsibilities * counts[:, None]
        return weighted.sum(axis=0), block.transpose @ weighted

    def _jump(self, before: Subtypes, at: Position, longest: float) -> tuple[Position, float]:
        """The end of a jump along two plain rounds, or of the first if that is higher; and the next bound."""
        rounds = zip(before[1:], at.subtypes[1:], at.following[1:], strict=True)
        (items, votes), length = squared_jump(list(rounds), np.asarray(longest))
        landed = self.stand(Subtypes(at.subtypes.label, items, votes))
        is_good = landed.bound >= at.bound
        return landed if is_good else at, float(next_bound(length, np.asarray(longest), is_good))

    def _neighbours(self, subtypes: Subtypes) -> list[Subtypes]:
        """Copies with one subtype moved to another class, at most one copy for each subtype.

        The class is the one that raises the bound most at fixed responsibilities, where only the Dirichlet terms of the
        two classes and of the subtype's voters change. It must have room for the subtype and more votes on the
        subtype's items than the present class: with fewer votes, a class may raise the bound only because a few unusual
        voters behave alike in both. With known labels no class is emptied.
        """
        label, items, votes = subtypes
        places = np.arange(len(label))
        sizes, in_class = np.bincount(label, minlength=self.num_classes), np.bincount(label, items, self.num_classes)
        of_votes = votes.reshape(-1, self.num_categories, len(label))[:, : self.num_classes]
        as_right = gammaln(RIGHT_CONCENTRATION + of_votes) - gammaln(WRONG_CONCENTRATION + of_votes)
        with_it = _class_evidence(in_class[:, None] + items) - _class_evidence(in_class)[:, None]
        gain = as_right.sum(axis=0) + with_it  # (class, subtype)
        num_votes = of_votes.sum(axis=0)
        gain[(num_votes <= num_votes[label, places]) | (sizes == self.num_subtypes)[:, None]] = -np.inf
        best, free = gain.argmax(axis=0), np.isfinite(gain.max(axis=0))
        if self.log_allowed is not None:
            free &= sizes[label] > 1
        return [subtypes._replace(label=np.where(places == i, best[i], label)) for i in np.flatnonzero(free)]


def _class_evidence(items: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The term of the bound in the expected number of items of a class, from the shares of classes and of subtypes."""
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


SCREENED_ITEMS = 2**13
"""Whether classes have several subtypes is tried on a sample of this many items, or half of all, if there are as many
distinct rows and most votes are missing. Where every voter votes on every item, a subtype that so few do not show may
still be worth some thousandths of a nat an item, and rows are quick."""

SCREENED_ROWS = 2**17
"""With twice as many distinct rows, random starts run on a sample of this many items, and only the best continues."""


class Concentrations(NamedTuple):
    """Parameters of the Dirichlet posteriors."""

    classes: Float[np.ndarray, " label"]
    subtypes: Float[np.ndarray, "label subtype"]
    votes: Float[np.ndarray, "voter vote label subtype"]


@dataclass(frozen=True)
class Ebcc(Method):
    """Each class is a mixture of subtypes, and voters are independent given the subtype: so they correlate in a class.

    Enhanced Bayesian classifier combination by variational Bayes. The probabilities are the variational posterior; gold
    labels are part of the data.

    Notes:
        Priors: Dirichlet(1, …) for classes, Dirichlet(.1/M, …) for the M subtypes of a class, and for votes Dirichlet
        with 4 on the right class and 1 on each other vote. One start has the vote shares as one subtype per class, with
        gold labels another has the posterior from these alone, and others divide the vote shares among all subtypes at
        random. Where most votes are missing and there are many distinct rows, random starts run on a sample of the
        items first, and on all of them only if the best one keeps several subtypes of a class there; with very many
        rows only the best of them continues. The start with the best evidence bound is kept, and its
        subtypes change class where that raises the bound further.

    Attributes:
        num_subtypes: Subtypes of each class.
        restarts: Random starts.
        tolerance: A start has converged when a round gains less than this in the evidence bound per item.
        max_iterations: Limit on the number of rounds.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Ebcc().fit(votes, key=jax.random.key(0))
        >>> fit.label_probs[3000:3002].round(2)
        array([[1., 0.],
               [1., 0.]])
    """

    counts_rows = True
    takes_other_votes = True

    num_subtypes: Count = 10
    restarts: Count = 5
    tolerance: Positive = 1e-6
    max_iterations: Count = 500

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        generator = numpy_generator(key)
        rows = labelled_rows(votes, gold)
        ascent = self._ascent(rows)
        starts = [_soft_labels(rows)]
        if gold is not None:
            starts.append(certain_where_known(gold_posterior(votes, gold, rows.votes), rows.gold))
        runs = [ascent.climb(ascent.begin(start)) for start in starts] + self._random_runs(ascent, rows, generator)
        settled = ascent.settle(_best(runs))
        prior = _prior(votes.num_voters, votes.num_categories, votes.num_classes, self.num_subtypes)
        best = _all_subtypes(settled.position.subtypes, prior)
        ends = [(run.position.bound, _all_subtypes(run.position.subtypes, prior)) for run in runs]
        change = self._label_change((settled.position.bound, best), ends, votes, rows, gold)
        diagnostics = Diagnostics(
            "variational posterior",
            iterations=settled.rounds,
            converged=settled.converged,
            label_change=change,
            extra={
                "evidence_bound": settled.position.bound,
                "start_evidence_bounds": np.array([run.position.bound for run in runs]),
            },
        )
        return Estimate(_params(best), diagnostics, state=_state(best))

    def _label_change(
        self,
        best: tuple[float, Concentrations],
        others: Sequence[tuple[float, Concentrations]],
        votes: Votes,
        rows: LabelledRows,
        gold: GoldCodes | None,
    ) -> float:
        """The largest share of labels that change where another start ended, if its bound is about as high."""

        def labelling(fitted: Concentrations) -> Labelling:
            estimate = Estimate(_params(fitted), state=_state(fitted))
            probs = self.posterior(estimate, rows.votes)
            order = orientation(probs[rows.inverse], votes, gold)
            likely = self.log_likelihood_of(estimate, rows.votes)
            return Labelling(likely, (probs[:, order] + rows.log_allowed).argmax(axis=1))

        here, changes = labelling(best[1]), [0.0]
        for bound, fitted in others:
            there = labelling(fitted)
            by_parameters = best[0] - bound - rows.counts @ (here.log_likelihood - there.log_likelihood)
            changes.append(label_change(here, there, rows.counts, float(by_parameters)))
        return max(changes)

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        classes, subtypes, votes = _fitted(estimate)
        moved = Concentrations(classes[order], subtypes[order], votes[:, :, order])
        return replace(estimate, params=_params(moved), state=_state(moved))

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        fitted, indicator = _fitted(estimate), vote_indicator(votes, votes.num_categories)
        log_prior = _expected_log(fitted.classes)[:, None] + _expected_log(fitted.subtypes, axis=1)
        table = _expected_log(fitted.votes, axis=1).reshape(indicator.shape[1], -1)
        probs = softmax(indicator @ table + log_prior.ravel(), axis=1)
        return probs.reshape(-1, *log_prior.shape).sum(axis=2)

    @in_blocks
    def log_likelihood_of(self, estimate: Estimate, votes: Votes) -> Float[np.ndarray, " row"]:
        """Of one row each parameter is used once, so that its mean under the variational posterior is all it takes."""
        log_prior = safe_log(estimate.params["prevalence"][:, None] * estimate.params["subtype_shares"]).ravel()
        by_subtype = estimate.params["subtype_confusion"].transpose(0, 3, 1, 2)
        table = safe_log(by_subtype).reshape(votes.num_voters * votes.num_categories, -1)
        return logsumexp(vote_indicator(votes, votes.num_categories) @ table + log_prior, axis=1)

    def _ascent(self, rows: LabelledRows) -> SubtypeAscent:
        allowed = rows.log_allowed if (rows.gold >= 0).any() else None
        sizes = rows.votes.num_classes, rows.votes.num_categories, self.num_subtypes
        return SubtypeAscent(
            incidence_of(rows.votes), rows.counts, allowed, *sizes, self.tolerance, self.max_iterations
        )

    def _random_runs(self, ascent: SubtypeAscent, rows: LabelledRows, generator: np.random.Generator) -> list[End]:
        """The ends of the random starts; none if no class keeps several subtypes on a sample."""
        size = len(rows.counts)
        (apart,) = generator.spawn(1)  # random starts do not depend on whether a sample was asked
        if not self._worth_random_starts(rows, apart):
            return []
        if size < 2 * SCREENED_ROWS:
            return self._climb_all(ascent, rows, generator)
        best = self._best_on_sample(rows, SCREENED_ROWS, generator)
        return [ascent.climb(best.scaled(int(rows.counts.sum())))]

    def _worth_random_starts(self, rows: LabelledRows, generator: np.random.Generator) -> bool:
        """Whether the best random start keeps several subtypes of a class on a sample, where one is asked."""
        if not rows.votes.is_sparse or len(rows.counts) < SCREENED_ITEMS:
            return True
        num_items = min(SCREENED_ITEMS, int(rows.counts.sum()) // 2)
        return bool(np.bincount(self._best_on_sample(rows, num_items, generator).label).max() > 1)

    def _best_on_sample(self, rows: LabelledRows, num_items: int, generator: np.random.Generator) -> Subtypes:
        """The subtypes to which the best random start leads on a sample of the items."""
        drawn = generator.multivariate_hypergeometric(rows.counts, num_items, method="marginals")
        chosen = np.flatnonzero(drawn)
        sample = rows._replace(
            votes=rows.votes.take(chosen), counts=drawn[chosen], inverse=np.arange(len(chosen)), gold=rows.gold[chosen]
        )
        return _best(self._climb_all(self._ascent(sample), sample, generator)).position.subtypes

    def _climb_all(self, ascent: SubtypeAscent, rows: LabelledRows, generator: np.random.Generator) -> list[End]:
        labels = _soft_labels(rows)
        return [ascent.climb(ascent.begin(labels, generator)) for _ in range(self.restarts)]


def _soft_labels(rows: LabelledRows) -> Float[np.ndarray, "row label"]:
    """Known labels, and vote shares where they are not known."""
    return np.where(rows.gold[:, None] >= 0, np.exp(rows.log_allowed), vote_shares(rows.votes))


def _best(runs: Sequence[End]) -> End:
    return max(runs, key=lambda run: run.position.bound)


def _all_subtypes(found: Subtypes, prior: Concentrations) -> Concentrations:
    """Dirichlet posteriors of all subtypes; those that are not among the found ones have their priors."""
    subtypes, votes = prior.subtypes.copy(), prior.votes.copy()
    by_voter = found.votes.reshape(*votes.shape[:2], -1)
    for label in range(len(subtypes)):
        own = np.flatnonzero(found.label == label)
        subtypes[label, : len(own)] += found.items[own]
        votes[:, :, label, : len(own)] += by_voter[:, :, own]
    return Concentrations(prior.classes + np.bincount(found.label, found.items, len(subtypes)), subtypes, votes)


def _prior(num_voters: int, num_categories: int, num_classes: int, num_subtypes: int) -> Concentrations:
    right = np.eye(num_categories, num_classes, dtype=bool)[None, :, :, None]
    votes = np.where(right, RIGHT_CONCENTRATION, WRONG_CONCENTRATION)
    return Concentrations(
        np.full(num_classes, CLASS_CONCENTRATION),
        np.full((num_classes, num_subtypes), SUBTYPE_CONCENTRATION / num_subtypes),
        np.broadcast_to(votes, (num_voters, num_categories, num_classes, num_subtypes)),
    )


def _expected_log(concentrations: np.ndarray, axis: int = 0) -> np.ndarray:
    return digamma(concentrations) - digamma(concentrations.sum(axis=axis, keepdims=True))


def _state(fitted: Concentrations) -> dict[str, np.ndarray]:
    return {f"{name}_concentration": value for name, value in fitted._asdict().items()}


def _fitted(estimate: Estimate) -> Concentrations:
    return Concentrations(*(estimate.state[f"{name}_concentration"] for name in Concentrations._fields))


def _params(fitted: Concentrations) -> dict[str, np.ndarray]:
    """Posterior means; the confusion matrices are means over the subtypes of each class."""
    shares = fitted.classes / fitted.classes.sum()
    subtype_shares = fitted.subtypes / fitted.subtypes.sum(axis=1, keepdims=True)
    by_subtype = fitted.votes / fitted.votes.sum(axis=1, keepdims=True)
    confusion = np.einsum("jvkm,km->jkv", by_subtype, subtype_shares)
    return {
        "prevalence": shares,
        "confusion": confusion,
        "subtype_shares": subtype_shares,
        "subtype_confusion": by_subtype.transpose(0, 2, 3, 1),
    }
