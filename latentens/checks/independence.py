"""Model checks that need no labels: whether voters agree as a fitted model says, and where they do not."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from latentens.checks.pairs import PairResiduals, can_tell, pair_residuals, pair_stories
from latentens.checks.vote_statistics import MAX_PARAMETERS
from latentens.errors import VotesError
from latentens.methods.base import Fit
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.latent_spectral import LatentSpectral
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.rbm_stack import stack_machines
from latentens.methods.spectral.groups import Groups
from latentens.models import DawidSkene, Tree
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import num_parameters
from latentens.programs.tables import check_form
from latentens.rbm.stack import hidden_representations
from latentens.runtime.text import probability_text
from latentens.votes import Votes
from latentens.votes.labels import MISSING, Names

MAX_VOTERS = 300
"""The most voters that are compared pair by pair."""

CONSTANT = 1e-12
"""Units whose variances have a smaller product root than this are constant."""

MAX_TREE_GROUPS = 8
"""A tree of more groups is not fitted: its states double with every group."""


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """How the votes of each pair of voters compare with a fitted model.

    Matrices are symmetric. A pair with too few votes in common, or whose votes the model can fit whatever they are,
    is not checked: its residual is 0 and its p-values are 1.

    Attributes:
        model: The model.
        params: Its parameters.
        p_value: Probability under the model of a pair as far off as the worst one, whichever pair it is.
        residual: Correlation of two voters' votes less what the model implies; above 0 they agree more than it says.
        standard_error: Standard deviation of the residual under the model.
        pair_p_values: p-value of each pair on its own.
        adjusted_p_values: The same, allowing for the number of pairs: their least is `p_value`.
        checked: Which pairs were checked.
        groups: Groups of voters, by their numbers, who agree more among themselves than the model explains.
        level: Adjusted p-values up to this count as significant.
        voter_names: The voters' names.
        stories: Pairs of voters of which one alone, sharing something beyond the label, explains the votes; none where
            that was not asked or where one pair is not enough.
    """

    model: GenerativeModel
    params: Params
    p_value: float
    residual: Float[np.ndarray, "voter voter"]
    standard_error: Float[np.ndarray, "voter voter"]
    pair_p_values: Float[np.ndarray, "voter voter"]
    adjusted_p_values: Float[np.ndarray, "voter voter"]
    checked: Bool[np.ndarray, "voter voter"]
    groups: tuple[tuple[int, ...], ...]
    level: float
    voter_names: Names
    stories: tuple[tuple[int, int], ...] = ()

    @property
    def rejected(self) -> bool:
        """Whether the votes contradict the model."""
        return self.p_value <= self.level

    @property
    def num_pairs(self) -> int:
        """Number of pairs that were checked."""
        return int(np.triu(self.checked).sum())

    @property
    def dependent_pairs(self) -> list[tuple[int, int]]:
        """The significant pairs, the strongest residual first."""
        first, second = np.nonzero(np.triu(self.checked & (self.adjusted_p_values <= self.level)))
        order = np.argsort(-np.abs(self.residual[first, second]), kind="stable")
        return [(int(first[k]), int(second[k])) for k in order]

    @property
    def summary(self) -> str:
        """What was found, in plain words."""
        independence = isinstance(self.model, DawidSkene)
        claim = "independent given the label" if independence else f"consistent with {self.model}"
        p_value = probability_text(self.p_value)
        if not self.rejected:
            return f"The votes look {claim}: none of {self.num_pairs} pairs of voters stands out ({p_value})."
        pairs = f"{len(self.dependent_pairs)} of {self.num_pairs} pairs of voters"
        return f"The votes are not {claim} ({p_value}): {pairs} stand out; {self._describe_groups()}."

    def _describe_groups(self) -> str:
        if self.stories:
            return self._describe_stories()
        if not self.groups:
            return "they agree less often than they should, so that no group of voters can be named"
        if len(self.groups[0]) == len(self.voter_names):
            return f"all {len(self.voter_names)} voters depend on one another, directly or through others"
        groups = ["{" + ", ".join(str(self.voter_names[voter]) for voter in group) + "}" for group in self.groups]
        return f"dependent voters: {', '.join(groups)}"

    def _describe_stories(self) -> str:
        pairs = [f"{self.voter_names[one]} and {self.voter_names[other]}" for one, other in self.stories]
        explained = "one pair that shares something beyond the label explains this,"
        if len(pairs) == 1:
            return f"{explained} {pairs[0]}, though others may stand out in its place"
        return f"{explained} but the votes do not tell which: {', or '.join(pairs)}. Known labels can"


def check_model(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    key: jax.Array,
    level: float = 0.05,
    num_draws: int = 1000,
) -> ModelCheck:
    """Compare the agreement of every pair of voters with what a fitted model implies.

    Args:
        model: The generative model.
        params: Its parameters, estimated from these votes (maximum likelihood, posterior mean, …).
        votes: The votes.
        key: Random key; the same key gives the same result.
        level: Share of false alarms to be accepted.
        num_draws: Number of draws behind the overall and the adjusted p-values.
    """
    _refuse_unfit(model, votes)
    pairs = pair_residuals(model, params, votes, num_draws=num_draws, key=key)
    if not pairs.checked.any():
        raise VotesError(_nothing_to_check(model, votes, pairs))
    size = np.abs(pairs.z_score)
    as_large = num_draws - np.searchsorted(np.sort(pairs.largest), size)
    adjusted = np.where(pairs.checked, (1 + as_large) / (1 + num_draws), 1.0)
    linked = (adjusted <= level) & (pairs.residual > 0)
    return ModelCheck(
        model=model,
        params=params,
        p_value=float(adjusted.min()),
        residual=pairs.residual,
        standard_error=pairs.standard_error,
        pair_p_values=np.where(pairs.checked, 2 * ndtr(-size), 1.0),
        adjusted_p_values=adjusted,
        checked=pairs.checked,
        groups=_members(connected_components(linked)[1]),
        level=level,
        voter_names=votes.voter_names,
    )


def check_independence(votes: Votes, *, key: jax.Array, level: float = 0.05, num_draws: int = 1000) -> ModelCheck:
    """Check that voters are independent given the label, by the fit of Dawid & Skene's model.

    With few voters every pair has its turn at explaining the votes (`pair_stories`), and the groups are the pair that
    does, or none if several do. Else voters linked by significant pairs form a group. Where the label of the misfitting
    model lies with one group, others may seem linked that are not: for two classes a group is split if the votes agree
    with a tree of the parts.

    Args:
        votes: The votes.
        key: Random key; the same key gives the same result.
        level: Share of false alarms to be accepted.
        num_draws: Number of draws behind the overall and the adjusted p-values.
    """
    model = DawidSkene(votes.num_voters, votes.num_classes)
    _refuse_unfit(model, votes)
    fit_key, check_key, split_key = jax.random.split(key, 3)
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=fit_key)
    check = check_model(model, fit.params, votes, key=check_key, level=level, num_draws=num_draws)
    if check.rejected and can_tell(votes) and (stories := pair_stories(votes, fit.label_probs)):
        return replace(check, stories=stories, groups=stories if len(stories) == 1 else ())
    if check.groups and votes.num_classes == 2:
        return replace(check, groups=_split(check, votes, split_key))
    return check


def _split(check: ModelCheck, votes: Votes, key: jax.Array) -> tuple[tuple[int, ...], ...]:
    """The groups of a check, or their parts if a tree of the parts passes a check of its own."""
    group_key, fit_key, check_key = jax.random.split(key, 3)
    spectral = LatentSpectral(max_groups=MAX_TREE_GROUPS).fit(votes, key=group_key).params
    parts = spectral.get("groups", np.arange(votes.num_voters))
    named = _members(parts)
    refines = all(any(set(part) <= set(group) for group in check.groups) for part in named)
    if named == check.groups or not refines or parts.max() >= MAX_TREE_GROUPS:
        return check.groups
    tree = Tree(tuple(map(int, parts)))
    start = {name: spectral[name] for name in structure_of(tree).parameter_shapes}
    fit = MaximumLikelihood(tree, starts=0, warm=(), initial=(start,)).fit(votes, key=fit_key)
    explained = check_model(tree, fit.params, votes, key=check_key, level=check.level)
    return check.groups if explained.rejected else named


def _members(groups: Groups) -> tuple[tuple[int, ...], ...]:
    """The members of each group of two or more, in the order of their first members."""
    members = [tuple(np.flatnonzero(groups == group).tolist()) for group in np.unique(groups)]
    return tuple(sorted(group for group in members if len(group) > 1))


def _refuse_unfit(model: GenerativeModel, votes: Votes) -> None:
    check_form(model, votes)
    votes.refuse_repeats("a check of pairs of voters")
    if votes.num_voters == 1:
        raise VotesError("one voter has nobody to agree with: a check needs the votes of several voters")
    if votes.num_voters > MAX_VOTERS:
        raise VotesError(
            f"{votes.num_voters:,} voters are too many to compare pair by pair; "
            f"check at most {MAX_VOTERS} of them, such as those with the most votes"
        )
    size = num_parameters(model)
    if size > MAX_PARAMETERS:
        raise VotesError(
            f"{model} has {size:,} parameters, more than the {MAX_PARAMETERS:,} that a check can allow for; "
            "check fewer voters, such as those with the most votes"
        )


def _nothing_to_check(model: GenerativeModel, votes: Votes, pairs: PairResiduals) -> str:
    if pairs.saturated.any():
        return f"{model} can fit any agreement between {votes.num_voters} voters, so there is nothing to check"
    return "no two voters have enough varying votes on the same items to be compared; check more items"


class LayerCorrelations(NamedTuple):
    """Correlations between the units of a layer, 0 with a unit that is constant."""

    marginal: Float[np.ndarray, "unit unit"]
    given_label: Float[np.ndarray, "unit unit"]
    """Of the deviations from the means of each label."""


def decorrelation(
    fit: Fit, votes: Votes, labels: Int[np.ndarray, " item"] | None = None, *, key: jax.Array
) -> list[LayerCorrelations]:
    """Correlations between the voters and, above them, between the hidden units of each layer of an RBM stack.

    Args:
        fit: The fit of a stack; of any other method there are the voters only.
        votes: The votes that it was fitted to, for two classes; a pair counts where both voted.
        labels: The label of each item; by default the estimated label probabilities serve as weights.
        key: Random key, for gaps in a large machine.
    """
    if votes.num_classes != 2:
        raise VotesError(f"correlations between voters are for two classes, but the votes have {votes.num_classes}")
    votes.refuse_repeats("a correlation between voters")
    probs = fit.label_probs if labels is None else np.eye(2)[labels]
    cast = votes.matrix != MISSING
    layers = [_correlations(np.where(cast, votes.matrix, 0.0), cast, probs)]
    if machines := stack_machines(fit.params):
        hidden = hidden_representations(machines, votes, key=key)
        layers += [_correlations(units, np.ones(units.shape, dtype=bool), probs) for units in hidden]
    return layers


def _correlations(
    values: Float[np.ndarray, "item unit"], cast: Bool[np.ndarray, "item unit"], probs: Float[np.ndarray, "item label"]
) -> LayerCorrelations:
    return LayerCorrelations(
        *(_within(values, cast.astype(np.float64), weights) for weights in (np.ones((len(values), 1)), probs))
    )


def _within(
    values: Float[np.ndarray, "item unit"],
    cast: Float[np.ndarray, "item unit"],
    weights: Float[np.ndarray, "item label"],
) -> Float[np.ndarray, "unit unit"]:
    """Correlations within labels; `sums[i, j]` is the sum of unit i over the items where j was observed too."""
    products = np.zeros((values.shape[1], values.shape[1]))
    together = np.zeros_like(products)
    for weight in weights.T:
        weighted = values * weight[:, None]
        count, sums = (cast * weight[:, None]).T @ cast, weighted.T @ cast
        products += weighted.T @ values - sums * sums.T / np.where(count > 0, count, 1.0)
        together += count
    covariance = products / np.where(together > 0, together, 1.0)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviation, deviation)
    usable = scale > CONSTANT
    correlation = np.clip(covariance / np.where(usable, scale, 1.0), -1.0, 1.0)
    return np.where(np.eye(len(scale), dtype=bool), 1.0, np.where(usable, correlation, 0.0))
