"""Maximum likelihood for Dawid & Skene (1979) by expectation–maximisation.

Shrinkage of confusion matrices, whose strengths the votes choose, is empirical Bayes inside EM.

A vote of voter j on an item of class k is right with probability a_jk; if it is wrong, it is v with probability w_jkv.
Each of these is drawn to a simpler form that rests on more votes:

    a_j  ~ Beta(s₁, mean a)               the voter's accuracy, to that of all voters
    a_jk ~ Beta(s₂, mean a_j)             its accuracy on a class, to its own on all classes (one coin)
    w_jk ~ Dirichlet(s₃, mean even)       its mistakes on a class, to even ones (one probability per voter and class)

Votes for categories that are not labels, such as "tie", are mistakes of further kinds, and what mistakes are drawn to
is even over the wrong classes only: each other category has the share of all mistakes that it has among all voters
and classes together.

Each strength is the power of two at which the expected counts have the highest evidence (beta-binomial and
Dirichlet-multinomial), so that twelve votes or twelve thousand, three classes or thirty need no setting.

Drawing to what all voters say about a class, its accuracy and its mistakes, was tried as well: a class that nobody
recognises can then become a second kind of a frequent one, and the evidence follows it there.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import entr, expit, gammaln, logsumexp, rel_entr, softmax

from latentens.inference.identification import Labelling, label_change
from latentens.inference.independent import (
    Ascent,
    Confusion,
    CountedRows,
    Estimates,
    Expected,
    Optimum,
    PriorRule,
    VotePrior,
    count_rows,
    expect_labels,
    expectation,
    gold_posterior,
    log_joint,
    maximisation,
    posterior_of_votes,
    take,
)
from latentens.inference.optimise import list_optima, local_optimum_warnings
from latentens.inference.orient import orientation, vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.moments import rates_at, third_moment_imbalance
from latentens.methods.rank_one import rank_one_structure, rates_params, spectral_score
from latentens.models import DawidSkene
from latentens.programs.model import GenerativeModel
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count, CountOrZero, NotNegative, Positive
from latentens.votes import Votes

Form = Literal["confusion", "class", "coin"]
Counts = Float[np.ndarray, "label start voter vote"]

STRENGTHS = 2.0 ** np.arange(0, 25)
"""The strengths that can be chosen, in votes: one at least (Jeffreys' prior of a share), at most what voters cast on
average."""


class Shrinkage(NamedTuple):
    """The strengths s₁, s₂ and s₃, as places among `STRENGTHS`; given counts, what is added to them."""

    voter: int
    voter_class: int
    mistakes: int

    @property
    def strengths(self) -> Float[np.ndarray, " level"]:
        """In votes."""
        return STRENGTHS[list(self)]

    def given(self, expected: Expected) -> VotePrior:
        """The prior counts of each start. The log-density is that of the simple forms less the divergence from them.

        In these terms log p = −s₁ Σ_j KL(a, a_j) − s₂ Σ_jk KL(a_j, a_jk) − s₃ Σ_jk KL(even, w_jk), so that starts with
        different accuracies a_j can be compared.
        """
        num_classes, num_votes = len(expected.votes), expected.votes.shape[3]
        voter, voter_class, mistakes = self.strengths
        pairs = _right_and_wrong(expected.votes)
        overall, accuracy = _accuracies(pairs, voter)
        added = np.broadcast_to(voter_class * accuracy, pairs.shape)
        offset = num_classes * voter_class * entr(accuracy).sum(axis=(1, 2))
        offset -= voter * rel_entr(overall[:, None], accuracy).sum(axis=(1, 2))
        is_right = np.eye(num_classes, num_votes, dtype=bool)[:, None, None]
        if num_votes == 2:
            return VotePrior(np.where(is_right, added[..., :1], added[..., 1:]), None, 1.0, offset)
        usual = _usual_mistakes(expected.votes)
        offset += num_classes * accuracy.shape[1] * mistakes * entr(usual[0]).sum(axis=(1, 2))
        votes = np.where(is_right, added[..., :1], mistakes * usual)
        # Mistakes are added to as if s₃ more had been made; how many there are is for the accuracy to say.
        return VotePrior(votes, added[..., 1] - mistakes, 1.0, offset)


def choose_shrinkage(
    counts: Float[np.ndarray, "label voter vote"], before: Shrinkage | None = None, form: Form = "confusion"
) -> Shrinkage:
    """The strengths with the highest evidence.

    Args:
        counts: How often each voter is expected to have cast each vote on each class.
        before: Strengths of the round before, from which each moves by one place at most; all are tried without.
        form: What a voter has: a `confusion` matrix, one accuracy per `class` (s₃ is as large as can be) or one for all
            classes (`coin`: s₂ is, too).
    """
    # No voter is drawn harder than by the votes that voters have on average.
    most = max(int(np.searchsorted(STRENGTHS, counts.sum() / counts.shape[1], side="right")), 1)
    near = before or (None, None, None)
    pairs = _right_and_wrong(counts[:, None])
    overall, _ = _accuracies(pairs, 0.0)
    voter = _most_evident(pairs.sum(axis=0)[0], overall[0], most, near[0])
    _, accuracy = _accuracies(pairs, STRENGTHS[voter])
    largest = len(STRENGTHS) - 1
    voter_class = largest if form == "coin" else _most_evident(pairs[:, 0], accuracy[0], most, near[1])
    if counts.shape[2] == 2:
        return Shrinkage(voter, voter_class, 0)
    if form != "confusion":
        return Shrinkage(voter, voter_class, largest)
    is_wrong = ~np.eye(len(counts), counts.shape[2], dtype=bool)[:, None]
    usual = _usual_mistakes(counts[:, None])[:, 0]
    return Shrinkage(voter, voter_class, _most_evident(np.where(is_wrong, counts, 0.0), usual, most, near[2]))


def _usual_mistakes(counts: Counts) -> Float[np.ndarray, "label start 1 vote"]:
    """The form that mistakes shrink to: even over wrong classes, other categories by their share; 0 if right."""
    num_classes, num_starts, _, num_votes = counts.shape
    is_wrong = ~np.eye(num_classes, num_votes, dtype=bool)[:, None, None]
    made = np.where(is_wrong, counts, 0.0).sum(axis=(0, 2)) + 1  # Laplace's rule
    others = np.zeros((num_starts, num_votes))
    others[:, num_classes:] = made[:, num_classes:] / made.sum(axis=1, keepdims=True)
    of_classes = (1 - others.sum(axis=1, keepdims=True)) / max(num_classes - 1, 1)
    usual = np.where(np.arange(num_votes) < num_classes, of_classes, others)
    return is_wrong * usual[:, None]


def _right_and_wrong(counts: Counts) -> Float[np.ndarray, "label start voter 2"]:
    right = np.einsum("ksjk->ksj", counts[..., : len(counts)])
    return np.stack([right, np.maximum(counts.sum(axis=3) - right, 0.0)], axis=-1)


def _accuracies(
    pairs: Float[np.ndarray, "label start voter 2"], strength: float
) -> tuple[Float[np.ndarray, "start 2"], Float[np.ndarray, "start voter 2"]]:
    """The shares of right and wrong votes of all voters, and of each voter, drawn to those of all."""
    of_voters = pairs.sum(axis=0)
    total = of_voters.sum(axis=1) + 1  # Laplace's rule
    overall = total / total.sum(axis=1, keepdims=True)
    drawn = of_voters + strength * overall[:, None]
    return overall, drawn / np.maximum(drawn.sum(axis=2, keepdims=True), np.finfo(float).tiny)


def _most_evident(counts: np.ndarray, mean: np.ndarray, most: int, near: int | None) -> int:
    """The place of the strength with the highest evidence among the first ones, or the better neighbour of a place."""
    low, high = (0, most) if near is None else (max(min(near, most - 1) - 1, 0), min(near + 2, most))
    evidence = [log_evidence(counts, STRENGTHS[place] * mean) for place in range(low, high)]
    return low + int(np.argmax(evidence))


def log_evidence(counts: Float[np.ndarray, "*group category"], prior: Float[np.ndarray, "*#group category"]) -> float:
    """The log-probability of counts, in the order seen, whose shares are drawn from Dirichlet distributions.

    Categories with a prior of zero are impossible and left out.
    """
    safe = np.where(prior > 0, prior, 1.0)
    cells = np.where(prior > 0, gammaln(counts + safe) - gammaln(safe), 0.0)
    total = np.broadcast_to(prior.sum(axis=-1), counts.shape[:-1])
    return float(cells.sum() + (gammaln(total) - gammaln(total + counts.sum(axis=-1))).sum())


SPECTRAL_VOTERS = 2000
"""With more voters than this the spectral starts cost more than all iterations and are left out."""

MOST_ENTRIES = 2**24
"""Random starts have at most this many entries of confusion matrices together (128 MiB), of which a dozen copies are
in memory at a time."""

SHRINKING_ROUNDS, SETTLED = 100, 1e-4
"""Shrinkage is chosen anew in each round until one gains less than this many nats per item, a hundred at most: by then
labels no longer change, and what changes the shrinkage after is a small part of a voter's votes."""


@dataclass(frozen=True)
class DawidSkeneEM(Method):
    """Class shares and a confusion matrix for each voter, at the best of several maxima of the likelihood.

    The probabilities are the exact posterior at the estimates. Gold labels are part of the likelihood. By default each
    confusion matrix is shrunk towards one accuracy per voter and class, by as much as the votes support, so that a
    voter who was right ten times out of ten is not believed without limit; pseudo-counts (`diagonal`, `off_diagonal`)
    replace the shrinkage, and zeros give the plain likelihood.

    Notes:
        Starts are the vote shares, the posterior from gold labels alone, SML and RL for two classes, and random
        confusion matrices. All run side by side, by plain rounds first and then by squared extrapolation. On many votes
        the worse half of the starts is given up after ten rounds, and again after twenty, forty …, but never the vote
        shares. The shrinkage is chosen on the way up from the best informed start and is the same for all starts.
        `label_change` in the diagnostics is the share of labels that change at another optimum that fits about as well.

    Attributes:
        diagonal: Added to each voter's count of right votes on each label, as if that many more had been seen. By
            default the votes choose what is added.
        off_diagonal: Added to each voter's count of each kind of wrong vote, and (or `diagonal`, if that is smaller) to
            the number of items of each class. If only one of the two is given, it stands for both.
        form: What a voter has: a `confusion` matrix, or one accuracy per `class` and equally likely mistakes, or one
            accuracy for all classes (`coin`). It does not count where pseudo-counts are given.
        random_starts: Number of random starts; fewer if voters and classes are too many for memory.
        tolerance: A start has converged when an iteration gains less than this in mean log-likelihood.
        max_iterations: Limit on the number of iterations.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0))
        >>> fit.params["prevalence"].round(2)
        array([0.81, 0.19])
        >>> fit.sensitivity.round(2)
        array([0.41, 0.72, 0.6 , 0.49, 0.92])
    """

    counts_rows = True
    takes_other_votes = True
    takes_soft_votes = True

    diagonal: NotNegative | None = None
    off_diagonal: NotNegative | None = None
    form: Form = "confusion"
    random_starts: CountOrZero = 10
    tolerance: Positive = 1e-9
    max_iterations: Count = 2000

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        optimum, rule, added = self._climb(votes, key, gold)
        shares = optimum.estimates.shares[:, optimum.best]
        confusion = optimum.estimates.confusion[:, optimum.best].transpose(1, 0, 2)
        best = optimum.best
        words = [] if optimum.converged[best] else [f"not converged after {optimum.iterations[best]} iterations"]
        if optimum.converged[0]:
            words += local_optimum_warnings("vote shares", optimum.objective[0], optimum.objective[best])
        diagnostics = Diagnostics(
            "exact posterior at the estimated parameters",
            log_likelihood=float(optimum.log_likelihood[best]),
            iterations=int(optimum.iterations[best]),
            converged=bool(optimum.converged[best]),
            label_change=largest_label_change(optimum, votes, gold),
            warnings=words,
            extra={
                "start_log_likelihoods": optimum.log_likelihood,
                **({"shrinkage": rule.strengths} if isinstance(rule, Shrinkage) else {}),
                "optima": list_optima(optimum.objective[~optimum.given_up]),
                "starts_given_up": int(optimum.given_up.sum()),
            },
        )
        return Estimate({"prevalence": shares, "confusion": confusion}, diagnostics, state={"added_votes": added})

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        moved = super().relabel(estimate, order)
        return replace(moved, state={**moved.state, "added_votes": estimate.state["added_votes"][:, order]})

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return posterior_of_votes(votes, estimate.params["prevalence"], estimate.params["confusion"])

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """Dawid & Skene's."""
        num_voters, num_classes, num_votes = estimate.params["confusion"].shape
        return DawidSkene(num_voters, num_classes, num_categories=None if num_votes == num_classes else num_votes)

    def _climb(self, votes: Votes, key: jax.Array, gold: GoldCodes | None) -> tuple[Optimum, PriorRule, Confusion]:
        """Where each start ends, by which rule, and what that adds to votes at the best.

        Items with a known label add the same counts to every start.
        """
        rows, counts, inverse = votes.patterns
        if gold is None:
            data = count_rows(rows, counts)
        else:
            labelled = np.flatnonzero(gold >= 0)
            known = count_rows(votes.take(labelled), np.ones(len(labelled)))
            data = count_rows(rows, np.bincount(inverse[gold < 0], minlength=len(counts)))
            data = data._replace(known=expect_labels(known, [np.eye(votes.num_classes)[gold[labelled]]]))
        informed = expect_labels(data, self._informed_starts(votes, gold))
        rule = self._rule(data, informed)
        expected = self._with_random(votes, data, informed, key)
        optimum = Ascent(data, rule, self.tolerance, self.max_iterations).climb(expected)
        is_best = np.arange(len(optimum.objective)) == optimum.best
        at_best = expectation(data, take(optimum.estimates, is_best))
        return optimum, rule, rule.given(at_best).added(votes.num_voters)

    def _informed_starts(self, votes: Votes, gold: GoldCodes | None) -> list[Posterior]:
        """Vote shares, and what else is known."""
        starts = [vote_shares(votes.patterns.votes)]
        if gold is not None:
            starts.append(gold_posterior(votes, gold, votes.patterns.votes))
        if votes.num_categories == 2 and votes.num_voters <= SPECTRAL_VOTERS and not votes.has_repeats:
            starts += _spectral_starts(votes)
        return starts

    def _with_random(self, votes: Votes, data: CountedRows, informed: Expected, key: jax.Array) -> Expected:
        """Expected counts of all starts."""
        number = min(self.random_starts, MOST_ENTRIES // informed.votes[:, 0].size)
        if not number:
            return informed
        sizes = votes.num_voters, votes.num_classes, votes.num_categories
        drawn = random_estimates(numpy_generator(key), number, *sizes)
        return _side_by_side(informed, expectation(data, drawn))

    def _rule(self, data: CountedRows, informed: Expected) -> PriorRule:
        """The pseudo-counts of the settings, or strengths chosen by the votes from where the best start leads."""
        given = [value for value in (self.diagonal, self.off_diagonal) if value is not None]
        if given:
            right = np.eye(len(informed.labels), informed.votes.shape[3], dtype=bool)
            return VotePrior.of_counts(np.where(right, given[0], given[-1]))
        starts = np.eye(len(informed.log_likelihood), dtype=bool)
        return max((self._settle(data, take(informed, start)) for start in starts), key=lambda end: end[1])[0]

    def _settle(self, data: CountedRows, expected: Expected) -> tuple[Shrinkage, float]:
        """The strengths that a start's counts choose as they climb, and the log-likelihood to which that leads."""
        found, before = choose_shrinkage(expected.votes[:, 0], form=self.form), -np.inf
        for _ in range(SHRINKING_ROUNDS):
            expected = expectation(data, maximisation(expected, found.given(expected)))
            found = choose_shrinkage(expected.votes[:, 0], found, form=self.form)
            gain = float(expected.log_likelihood[0]) - before
            before += gain
            if gain < SETTLED * data.num_items:
                break
        return found, before


def largest_label_change(optimum: Optimum, votes: Votes, gold: GoldCodes | None) -> float:
    """The largest share of labels that change where another start ended, if that fits about as well as the best.

    Starts that were given up are at no optimum and do not count. Starts of the same likelihood do: they may have come
    to different places on a ridge.
    """
    kept = np.flatnonzero(~optimum.given_up)
    best, *others = kept[np.argsort(-optimum.objective[kept], kind="stable")].tolist()
    elsewhere = [start for start in others if not _same_place(optimum.estimates, best, start)]
    if not elsewhere:
        return 0.0
    counts = votes.patterns.counts if gold is None else np.ones(votes.num_items)
    log_prior = optimum.objective - optimum.log_likelihood
    here = _labelling(optimum.estimates, best, votes, gold)
    return max(
        label_change(
            here, _labelling(optimum.estimates, start, votes, gold), counts, log_prior[best] - log_prior[start]
        )
        for start in elsewhere
    )


def _same_place(estimates: Estimates, first: int, second: int) -> bool:
    """Whether two starts ended at the same parameters, to two digits."""
    return all(bool(np.allclose(part[:, first], part[:, second], rtol=0, atol=0.01)) for part in estimates)


def _labelling(estimates: Estimates, start: int, votes: Votes, gold: GoldCodes | None) -> Labelling:
    """The labels of one start for the distinct rows or, if gold labels are given, for the items."""
    shares, confusion = estimates.shares[:, start], estimates.confusion[:, start].transpose(1, 0, 2)
    rows, _, inverse = votes.patterns
    joint = log_joint(rows, shares, confusion)
    joint = joint[:, orientation(softmax(joint, axis=1)[inverse], votes, gold)]
    if gold is not None:
        possible = (gold[:, None] < 0) | (gold[:, None] == np.arange(len(shares)))
        joint = np.where(possible, joint[inverse], -np.inf)
    return Labelling(logsumexp(joint, axis=1), joint.argmax(axis=1))


def _side_by_side(some: Expected, others: Expected) -> Expected:
    labels, votes = (np.concatenate(pair, axis=1) for pair in zip(some[:2], others[:2], strict=True))
    return Expected(labels, votes, np.concatenate([some.log_likelihood, others.log_likelihood]))


def _spectral_starts(votes: Votes) -> list[Posterior]:
    """The score of SML as log-odds, and the posterior of RL with the imbalance from third moments."""
    rank_one, rows = rank_one_structure(votes), votes.patterns.votes
    if rank_one.scale <= 0:
        return []
    mean, vector = rank_one.mean, rank_one.vector
    of_one = expit(spectral_score(rows, vector))
    imbalance = third_moment_imbalance(votes.patterns, mean, vector, np.arange(votes.num_voters))
    found = rates_params(imbalance, rates_at(imbalance, mean, vector))
    return [np.stack([1 - of_one, of_one], axis=1), posterior_of_votes(rows, found["prevalence"], found["confusion"])]


def random_estimates(
    generator: np.random.Generator, num_starts: int, num_voters: int, num_classes: int, num_categories: int
) -> Estimates:
    """Equal shares and, for each start, voters who are more often right than wrong."""
    concentration = 1.0 + num_classes * np.eye(num_classes, num_categories)
    confusion = np.stack([generator.dirichlet(row, (num_starts, num_voters)) for row in concentration])
    return Estimates(np.full((num_classes, num_starts), 1 / num_classes), confusion)
