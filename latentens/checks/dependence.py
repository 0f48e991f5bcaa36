"""Pairs of voters that agree more, or less, than a model implies: by the votes alone, or by known labels."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp, ndtr

from latentens.checks.score_test import POOL_ITEMS, ScoreTest, adjusted_p_values, max_parameters
from latentens.checks.statistics import PairCovariance, states_of
from latentens.errors import VotesError
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.latent_spectral import LatentSpectral
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.models import DawidSkene, Tree
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import num_parameters
from latentens.programs.tables import check_form, checked_tables
from latentens.runtime.blocks import row_blocks
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.parallel import one_blas_thread
from latentens.runtime.text import probability_text
from latentens.scores import Labels, holm
from latentens.votes import Votes
from latentens.votes.labels import MISSING, Names, listed

MAX_VOTERS = 300
"""The largest number of voters that are compared pair by pair."""

Matrix = Float[np.ndarray, "voter voter"]
Pair = tuple[int, int]
Block = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """How the votes of each pair of voters compare with a fitted model.

    Matrices are symmetric. A pair with too few votes in common, or whose votes the model can always fit,
    is not checked: its residual is 0 and its p-values are 1.

    Attributes:
        model: The model.
        params: Its parameters.
        p_value: Probability under the model that any pair is as far off as the worst one.
        residual: Correlation of two voters' votes minus that implied by the model; positive where they agree more.
        standard_error: Standard deviation of the residual under the model.
        pair_p_values: p-value of each pair on its own.
        adjusted_p_values: p-values that allow for the number of pairs; the smallest is `p_value`.
        checked: Which pairs were checked.
        groups: Groups of voters, by their numbers, who agree more among themselves than the model explains.
        level: Adjusted p-values up to this count as significant.
        voter_names: The voters' names.
        candidate_pairs: Pairs of voters any one of which, sharing something beyond the label, explains the votes on its
            own; empty if this was not examined or if no single pair is enough.
    """

    model: GenerativeModel
    params: Params
    p_value: float
    residual: Matrix
    standard_error: Matrix
    pair_p_values: Matrix
    adjusted_p_values: Matrix
    checked: Bool[np.ndarray, "voter voter"]
    groups: tuple[tuple[int, ...], ...]
    level: float
    voter_names: Names
    candidate_pairs: tuple[Pair, ...] = ()

    @property
    def rejected(self) -> bool:
        """Whether the votes contradict the model."""
        return self.p_value <= self.level

    @property
    def num_pairs(self) -> int:
        """Number of pairs that were checked."""
        return int(np.triu(self.checked).sum())

    @property
    def dependent_pairs(self) -> list[Pair]:
        """The significant pairs, the strongest residual first."""
        return _strongest(self.checked & (self.adjusted_p_values <= self.level), np.abs(self.residual))

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        independence = isinstance(self.model, DawidSkene)
        claim = "independent given the label" if independence else f"consistent with {self.model}"
        p_value = probability_text(self.p_value)
        if not self.rejected:
            return f"The votes look {claim}: none of {self.num_pairs} pairs of voters stands out ({p_value})."
        pairs = f"{len(self.dependent_pairs)} of {self.num_pairs} pairs of voters"
        return f"The votes are not {claim} ({p_value}): {pairs} stand out; {self._describe_groups()}."

    def _describe_groups(self) -> str:
        if self.candidate_pairs:
            pairs = [f"{self.voter_names[one]} and {self.voter_names[other]}" for one, other in self.candidate_pairs]
            explained = "one pair that shares something beyond the label explains this:"
            if len(pairs) == 1:
                return f"{explained} {pairs[0]}, even if other pairs stand out"
            return f"{explained} {', or '.join(pairs)}; the votes alone cannot tell which, known labels can"
        if not self.groups:
            return "they agree less often than they should, so no group of voters can be named"
        if len(self.groups[0]) == len(self.voter_names):
            return f"all {len(self.voter_names)} voters depend on one another, directly or through others"
        groups = ["{" + listed([str(self.voter_names[voter]) for voter in group]) + "}" for group in self.groups]
        return f"dependent voters: {', '.join(groups)}"


@double_precision
def check_model(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    key: jax.Array,
    level: float = 0.05,
    num_draws: int = 1000,
    pool_items: int = POOL_ITEMS,
) -> ModelCheck:
    """Compare the agreement of every pair of voters with that implied by a fitted model.

    Args:
        model: The generative model.
        params: Its parameters, estimated from these votes (maximum likelihood, posterior mean, …).
        votes: The votes; a pair is compared on the items on which both voted.
        key: Random key; the same key gives the same result.
        level: Rate of false alarms.
        num_draws: Number of draws behind the overall and the adjusted p-values.
        pool_items: Number of items simulated to find the standard errors.
    """
    votes = votes.to_hard()
    _refuse_unfit(model, votes, pool_items)
    states, size = states_of(checked_tables(model, params)), votes.num_voters
    test = ScoreTest(model, params, states, votes, num_draws, numpy_generator(key), True, pool_items)
    cast = (test.sample.votes.matrix != MISSING).astype(np.float64)
    together = (cast * test.sample.weights[:, None]).T @ cast
    enough = _enough(states.margin, together)
    residual, standard_error = np.zeros((2, size, size))
    free, largest = np.zeros((size, size), dtype=bool), np.zeros(num_draws)
    pairs = np.stack(np.triu_indices(size, 1), axis=1)
    for block in row_blocks(len(pairs), len(test.pool.weights), 2**22):
        first, second = pairs[block].T
        found = test.residuals(PairCovariance(pairs[block], states.margin))
        counted = found.free & enough[first, second]
        largest = np.maximum(largest, test.largest(found, counted))
        # as a correlation
        unit = np.where(counted, together[first, second] * np.sqrt(states.variance[first] * states.variance[second]), 1)
        residual[first, second] = np.where(counted, found.observed - found.expected, 0.0) / unit
        standard_error[first, second] = np.where(counted, found.deviation, 0.0) / unit
        free[first, second] = found.free
    residual, standard_error, free = residual + residual.T, standard_error + standard_error.T, free | free.T
    checked = enough & free
    if not checked.any() and enough.any():
        raise VotesError(f"{model} can fit any agreement between {size} voters, so there is nothing to check")
    if not checked.any():
        raise VotesError("no two voters have enough varying votes on the same items to be compared; check more items")
    distance = np.abs(residual) / np.where(checked, standard_error, 1.0)
    adjusted = np.where(checked, adjusted_p_values(distance, largest), 1.0)
    return ModelCheck(
        model=model,
        params=params,
        p_value=float(adjusted.min()),
        residual=residual,
        standard_error=standard_error,
        pair_p_values=np.where(checked, 2 * ndtr(-distance), 1.0),
        adjusted_p_values=adjusted,
        checked=checked,
        groups=_members(connected_components((adjusted <= level) & (residual > 0))[1]),
        level=level,
        voter_names=votes.voter_names,
    )


def _enough(
    margin: Float[np.ndarray, "voter vote"], together: Matrix, least: float = 5.0
) -> Bool[np.ndarray, "voter voter"]:
    """Whether a pair has enough votes for its covariance to be approximately normal.

    Both voters are expected to deviate from their most common votes on at least `least` items.
    """
    rare = 1 - margin.max(axis=1)
    return (together * np.outer(rare, rare) >= least) & ~np.eye(len(rare), dtype=bool)


def _members(groups: Int[np.ndarray, " voter"]) -> tuple[tuple[int, ...], ...]:
    """The members of each group of two or more, in the order of their first members."""
    members = [tuple(np.flatnonzero(groups == group).tolist()) for group in np.unique(groups)]
    return tuple(sorted(group for group in members if len(group) > 1))


def _refuse_unfit(model: GenerativeModel, votes: Votes, pool_items: int = POOL_ITEMS) -> None:
    check_form(model, votes)
    votes.refuse_repeats("a check of pairs of voters")
    if votes.num_voters == 1:
        raise VotesError("only one voter: a check needs the votes of several voters")
    if votes.num_voters > MAX_VOTERS:
        raise VotesError(
            f"{votes.num_voters:,} voters are too many to compare pair by pair; "
            f"check at most {MAX_VOTERS} of them, such as those with the most votes"
        )
    size, most = num_parameters(model), max_parameters(pool_items)
    if size > most:
        raise VotesError(
            f"{model} has {size:,} parameters, more than the {most:,} that a check can allow for; "
            "check fewer voters, such as those with the most votes"
        )


def check_independence(
    votes: Votes, *, key: jax.Array, level: float = 0.05, num_draws: int = 1000, max_tree_groups: int = 8
) -> ModelCheck:
    """Check that voters are independent given the label, by the fit of Dawid & Skene's model.

    Notes:
        With few voters every pair is tried as the explanation of the votes (`candidate_pairs`), and the groups are the
        pair that explains them, or none if several do. Otherwise voters linked by significant pairs form a group.
        Where the label of the misfitting model follows one group, others may seem linked that are not: for two classes
        a group is split if the votes agree with a tree of the parts.

    Args:
        votes: The votes; those for categories that are not labels count as missing.
        key: Random key; the same key gives the same result.
        level: Rate of false alarms.
        num_draws: Number of draws behind the overall and the adjusted p-values.
        max_tree_groups: Trees of more groups are not fitted: the number of hidden states doubles with every group.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> check = le.check_independence(votes, key=jax.random.key(0))
        >>> check.rejected
        True
    """
    votes = votes.to_hard().without_other_votes()
    model = DawidSkene(votes.num_voters, votes.num_classes)
    _refuse_unfit(model, votes)
    fit_key, check_key, split_key = jax.random.split(key, 3)
    fit = DawidSkeneEM(diagonal=0.01, off_diagonal=0.01).fit(votes, key=fit_key)
    check = check_model(model, fit.params, votes, key=check_key, level=level, num_draws=num_draws)
    if check.rejected and (pairs := candidate_pairs(votes, fit.label_probs)):
        return replace(check, candidate_pairs=pairs, groups=pairs if len(pairs) == 1 else ())
    if not check.groups or votes.num_classes > 2:
        return check
    # split groups into the parts found by spectral clustering if a tree of these parts passes a check of its own
    group_key, fit_key, check_key = jax.random.split(split_key, 3)
    spectral = LatentSpectral(max_groups=max_tree_groups).fit(votes, key=group_key).params
    parts = spectral.get("groups", np.arange(votes.num_voters))
    named = _members(parts)
    refines = all(any(set(part) <= set(group) for group in check.groups) for part in named)
    if named == check.groups or not refines or parts.max() >= max_tree_groups:
        return check
    tree = Tree(tuple(map(int, parts)))
    start = {name: spectral[name] for name in structure_of(tree).parameter_shapes}
    tree_fit = MaximumLikelihood(tree, starts=0, warm=(), initial=(start,)).fit(votes, key=fit_key)
    explained = check_model(tree, tree_fit.params, votes, key=check_key, level=level)
    return check if explained.rejected else replace(check, groups=named)


@one_blas_thread()
def candidate_pairs(
    votes: Votes,
    label_probs: Float[np.ndarray, "item label"],
    *,
    max_voters: int = 7,
    max_classes: int = 5,
    odds: float = 20.0,
) -> tuple[Pair, ...]:
    """Pairs of voters any one of which explains the votes if it votes jointly; the best first.

    Empty if no single pair is enough: if a third voter that joins the best pair, or a second pair beside it, improves
    the BIC. Also empty for fewer than four voters, repeated votes, or more voters or classes than given.

    Args:
        votes: The votes.
        label_probs: Where EM starts: the posterior of independent voters.
        max_voters: With more voters there are too many possibilities.
        max_classes: With more classes the tables of joint votes are too large.
        odds: Pairs whose likelihood ratio to the best one is at least one to `odds` are candidates.
    """
    if not 4 <= votes.num_voters <= max_voters or votes.num_classes > max_classes or votes.has_repeats:
        return ()

    def bic(blocks: list[Block], log_likelihood: float) -> float:
        singles = votes.num_voters - sum(map(len, blocks))
        sizes = [votes.num_classes ** len(block) - 1 for block in blocks] + singles * [votes.num_classes - 1]
        return votes.num_classes * sum(sizes) * np.log(votes.num_items) - 2 * log_likelihood

    found = {
        pair: joint_log_likelihood(votes, [pair], label_probs) for pair in combinations(range(votes.num_voters), 2)
    }
    best = max(found, key=lambda pair: found[pair])
    others = [voter for voter in range(votes.num_voters) if voter not in best]
    richer: list[list[Block]] = [[(*best, other)] for other in others]
    richer += [[best, second] for second in combinations(others, 2)]
    single = bic([best], found[best])
    if any(bic(blocks, joint_log_likelihood(votes, blocks, label_probs)) < single for blocks in richer):
        return ()
    close = (pair for pair in found if found[pair] >= found[best] - np.log(odds))
    return tuple(sorted(close, key=lambda pair: -found[pair]))


def joint_log_likelihood(
    votes: Votes,
    blocks: list[Block],
    label_probs: Float[np.ndarray, "item label"],
    *,
    max_iterations: int = 300,
    pseudo_count: float = 0.01,
    tolerance: float = 1e-4,
) -> float:
    """The maximum log-likelihood if the voters of a block vote jointly and blocks are independent given the label.

    By EM with missing votes summed out, from the given posterior and from one halfway to uniform.

    Args:
        votes: The votes.
        blocks: Blocks of two or more voters; every other voter is a block of its own.
        label_probs: Where EM starts.
        max_iterations: Largest number of iterations.
        pseudo_count: Added to every expected count of a joint vote.
        tolerance: EM stops when an iteration gains less than this.
    """
    rows, counts, inverse = votes.patterns
    weights, start = counts[:, None].astype(float), np.zeros((rows.num_items, label_probs.shape[1]))
    start[inverse] = label_probs
    in_blocks = {voter for block in blocks for voter in block}
    compatible = []  # for each block: which joint votes agree with the votes seen in each row
    for block in [*blocks, *((voter,) for voter in range(votes.num_voters) if voter not in in_blocks)]:
        joint = np.ones((rows.num_items, 1))
        for voter in block:
            column = rows.matrix[:, [voter]]
            seen = np.where(column < 0, 1.0, column == np.arange(votes.num_classes))
            joint = np.einsum("ra,rb->rab", joint, seen).reshape(len(joint), -1)
        compatible.append(joint)
    found = []
    for probs in (start, (start + 1 / start.shape[1]) / 2):
        # a vote that was not seen counts in equal parts at first
        expected = [(weights * probs).T @ (joint / joint.sum(axis=1, keepdims=True)) for joint in compatible]
        before = value = -np.inf
        for _ in range(max_iterations):
            # M-step: p(joint vote | label) and p(label)
            tables = [count + pseudo_count for count in expected]
            tables = [table / table.sum(axis=1, keepdims=True) for table in tables]
            shares = (weights * probs).sum(axis=0) / weights.sum()
            # E-step: the posterior of the label, and the expected counts of joint votes
            likelihoods = [joint @ table.T for joint, table in zip(compatible, tables, strict=True)]
            logits = np.log(shares) + np.sum([np.log(part) for part in likelihoods], axis=0)
            log_probs = logsumexp(logits, axis=1, keepdims=True)
            value, probs = float((weights * log_probs).sum()), np.exp(logits - log_probs)
            expected = [
                table * ((weights * probs / part).T @ joint)
                for table, part, joint in zip(tables, likelihoods, compatible, strict=True)
            ]
            if value - before < tolerance:
                break
            before = value
        found.append(value)
    return max(found)


class LabelDependence(NamedTuple):
    """How the votes of each pair of voters depend on each other within the true classes.

    Attributes:
        correlation: Correlation of the votes within classes; positive where two voters agree more than by chance.
        p_values: p-value of each pair, adjusted for all pairs that were checked (Holm); 1 where a pair was not.
        checked: Pairs with enough votes in common, by the rule of `check_model`.
    """

    correlation: Matrix
    p_values: Matrix
    checked: Bool[np.ndarray, "voter voter"]

    def dependent(self, level: float = 0.05) -> list[Pair]:
        """Pairs that agree more than chance explains, the strongest correlation first."""
        return _strongest(self.checked & (self.p_values <= level) & (self.correlation > 0), self.correlation)


def _strongest(chosen: Bool[np.ndarray, "voter voter"], strength: Matrix) -> list[Pair]:
    """The chosen pairs, the strongest first."""
    first, second = np.nonzero(np.triu(chosen, 1))
    order = np.argsort(-strength[first, second], kind="stable")
    return list(zip(first[order].tolist(), second[order].tolist(), strict=True))


@one_blas_thread()
def label_dependence(votes: Int[np.ndarray, "item voter"], labels: Labels, num_classes: int) -> LabelDependence:
    """Check every pair of voters on the items with known labels on which both voted.

    The statistic is `Σ_a Cov(1{x_i = a}, 1{x_j = a})`, summed over the classes; the p-values are those of a normal sum
    with the variance of independent votes.

    Args:
        votes: The votes, −1 where missing.
        labels: The true labels, −1 where unknown.
        num_classes: Number of classes.
    """
    total, variance, spread, together = np.zeros((4, votes.shape[1], votes.shape[1]))
    for label in np.unique(labels[labels >= 0]):
        members = votes[labels == label]
        cast = (members >= 0).astype(np.float64)
        both = cast.T @ cast
        says = np.stack([(members == vote).astype(np.float64) for vote in range(num_classes)])
        # shares of the votes of voter i on the items on which j voted too, and of j where i did
        mine = says.transpose(0, 2, 1) @ cast / np.maximum(both, 1.0)
        other = mine.transpose(0, 2, 1)
        product, own = mine * other, (mine * (1 - mine)).sum(axis=0)
        total += (says.transpose(0, 2, 1) @ says - both * product).sum(axis=0)
        # tr(C_i C_j) with the covariance C = diag(p) − p pᵀ of a vote
        variance += both * ((product * (1 - mine - other)).sum(axis=0) + product.sum(axis=0) ** 2)
        spread += both * np.sqrt(np.maximum(own * own.T, 0.0))
        together += both
    known = votes[labels >= 0]
    counts = np.stack([(known == vote).sum(axis=0) for vote in range(num_classes)], axis=1)
    enough = _enough(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), together)
    checked = enough & (variance > 0) & (spread > 0)
    z_score = np.where(checked, total / np.sqrt(np.where(checked, variance, 1.0)), 0.0)
    correlation = np.where(checked, total / np.where(checked, spread, 1.0), 0.0)
    p_values, upper = np.ones_like(total), np.triu(checked)
    p_values[upper] = holm(2 * ndtr(-np.abs(z_score[upper])))
    return LabelDependence(correlation, np.minimum(p_values, p_values.T), checked)
