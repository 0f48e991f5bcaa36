"""Orientation: a fit knows its classes only up to their order; votes and gold labels fix it, here and only here.

Let A[k, c] be the expected number of votes for label k on items of class c, each item's votes counting as one together.
The classes take the labels under which Π_k A[k, c_k] is greatest. Neither the frequency of a class nor that of a vote
matters, since each is a factor of every order alike: for two classes the odds ratio of votes and classes decides, that
is, whether sensitivity + specificity exceeds one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from latentens.errors import ParameterError
from latentens.inference.identification import NEAR, UNSTABLE
from latentens.inference.independent import count_by_label
from latentens.votes import Votes
from latentens.votes.labels import Names

if TYPE_CHECKING:
    import xarray as xr


Order = Int[np.ndarray, " label"]
Pairs = Float[np.ndarray, "label label"]
Agreement = Float[np.ndarray, "label class"]
PerLabel = Float[np.ndarray, "item label"]
PerItem = Int[np.ndarray, " item"]

VOTES_AS_LABELS = 10.0
"""Votes that agree with a posterior completely count as this many gold labels of two classes, however many they are.

More items make it surer that voters agree with each other, but not that they are right: voters of one panel share their
errors. That most of them are better than chance is a prior belief, and ten gold labels that contradict it outweigh it.
"""


class Orientation(NamedTuple):
    """The order of the labels, and its margin.

    The margin is that of the two labels most easily exchanged: the log odds ratio of posterior and votes (or of
    posterior and gold labels) for these two labels, in standard errors.

    Attributes:
        order: `label_probs[:, order]` is oriented: `order[k]` is the class that stands for label k.
        by_items: The standard error is that of other items with the same voters.
        by_voters: The standard error is that of other voters on the same items; NaN for fewer than three.
        by_gold: The margin of the gold labels alone; NaN without any.
        labels: The two labels; None if hardly any item has another label than the most frequent one.
    """

    order: Order
    by_items: float
    by_voters: float
    by_gold: float
    labels: tuple[int, int] | None

    @property
    def margin(self) -> float:
        """The margin by the votes, in the larger of the two standard errors."""
        return float(np.nanmin([self.by_items, self.by_voters]))

    def describe(self, class_names: Names) -> dict[str, Any]:
        """The entries of a fit's diagnostics."""
        if self.labels is None:
            return {}
        numbers = {name: getattr(self, name) for name in ("by_items", "by_voters", "by_gold")}
        return {**numbers, "labels": [str(class_names[label]) for label in self.labels]}

    def warnings(self, class_names: Names, num_gold: int) -> list[str]:
        """Warnings if the order is nearly tied, or if votes and gold labels contradict each other."""
        if self.labels is None:
            return []
        first, second = (str(class_names[label]) for label in self.labels)
        if num_gold and abs(self.by_gold) >= NEAR:
            if np.sign(self.by_gold) == np.sign(self.margin) or abs(self.margin) < NEAR:
                return []
            followed = "votes" if self.by_gold < 0 else "gold labels"
            return [
                f"votes and gold labels contradict each other on the order of the labels {first!r} and {second!r}; the "
                f"{followed} were followed (the votes count as {VOTES_AS_LABELS:.0f} gold labels, and there are "
                f"{num_gold})"
            ]
        if self.margin >= NEAR:
            return []
        return [
            f"the order of the labels {first!r} and {second!r} is nearly tied: the votes do not determine it "
            f"(difference: {self.margin:.1f} standard errors); a few gold labels, or an anchor (voters known to "
            "be better than chance), would"
        ]


def orient(label_probs: PerLabel, votes: Votes, gold: PerItem | None = None) -> Orientation:
    """The order of the classes under which a posterior agrees best with votes and gold labels, and its margin.

    Args:
        label_probs: The posterior given the votes alone.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
    """
    order = orientation(label_probs, votes, gold)
    num_labels = min(votes.num_classes, label_probs.shape[1])
    probs = label_probs[:, order][:, :num_labels]
    counts = np.ones(len(probs)) if votes.counts is None else votes.counts
    by_items = _item_margins(_shares_of_voted(votes)[:, :num_labels], probs, counts)
    by_voters = _voter_margins(votes, probs)
    by_gold = np.full_like(by_items, np.nan)
    if gold is not None:
        by_gold = _item_margins(np.equal.outer(gold, np.arange(num_labels)).astype(float), probs, counts)
    # A label that hardly any item has is of little consequence, and little is known about it.
    shares = np.bincount(probs.argmax(axis=1), counts, num_labels) / counts.sum()
    matters = np.triu(np.minimum.outer(shares, shares) > UNSTABLE, k=1)
    certainty = np.where(matters, np.fmin(by_items, by_voters) + np.nan_to_num(by_gold), np.inf)
    first, second = (int(place) for place in np.unravel_index(int(np.argmin(certainty)), certainty.shape))
    items, voters, known = (float(part[first, second]) for part in (by_items, by_voters, by_gold))
    return Orientation(order, items, voters, known, (first, second) if matters.any() else None)


def orientation(
    label_probs: PerLabel, votes: Votes, gold: PerItem | None = None, counts: PerItem | None = None
) -> Order:
    """The order of the classes under which a posterior agrees best with votes and gold labels.

    Votes that follow the posterior as far as they follow their own plurality count as `VOTES_AS_LABELS` gold labels.

    Args:
        label_probs: The posterior given the votes alone.
        votes: The votes; of those with an `anchor` only the votes of the anchor count.
        gold: The code of each item's true label, −1 where it is unknown.
        counts: How often each item occurs; once if not given.

    Returns:
        `order` such that `label_probs[:, order]` is oriented: `order[k]` is the class that stands for label k.
    """
    shares = order_shares(votes, counts)
    if gold is None:
        return best_order(shares[:, : label_probs.shape[1]].T @ label_probs)
    plurality = np.eye(votes.num_classes)[shares.argmax(axis=1)]
    gains = _exchanged(_log_agreement(shares.T @ plurality))
    strongest = gains.sum() / (votes.num_classes * (votes.num_classes - 1))
    known = np.equal.outer(gold, np.arange(votes.num_classes)) * (strongest / VOTES_AS_LABELS)
    width = label_probs.shape[1]
    return best_order(shares[:, :width].T @ label_probs, known[:, :width].T @ label_probs)


def best_order(agreement: Agreement, gold: Agreement | float = 0.0) -> Order:
    """The class to stand for each label such that the product of their agreements is greatest.

    The present order is kept if no other one is better.

    Args:
        agreement: The expected number of items with a vote for each label in each class.
        gold: What gold labels add to the logarithm of each pair of label and class.
    """
    scores = _log_agreement(agreement) + gold
    scores = np.pad(scores, ((0, max(scores.shape[1] - len(scores), 0)), (0, 0)))  # labels nobody could vote for
    _, order = linear_sum_assignment(scores, maximize=True)
    best, unchanged = scores[np.arange(len(order)), order].sum(), np.trace(scores)
    return np.arange(len(order)) if np.isclose(best, unchanged, rtol=1e-12) else order


def order_shares(votes: Votes, counts: PerItem | None = None) -> PerLabel:
    """The vote shares of each item that has votes, those of the anchor if there is one, times how often it occurs."""
    counts = votes.counts if counts is None else counts
    shares = _shares_of_voted(votes)
    return shares if counts is None else shares * counts[:, None]


def vote_shares(votes: Votes) -> PerLabel:
    """Each class's share of the votes of each item; equal shares where an item has no votes."""
    cast = votes.tally.sum(axis=1, keepdims=True)
    return np.where(cast > 0, votes.tally / np.where(cast > 0, cast, 1), 1 / votes.num_classes)


def _shares_of_voted(votes: Votes) -> PerLabel:
    anchor = votes.of_anchor
    return np.where(np.asarray(anchor.tally.any(axis=1))[:, None], vote_shares(anchor), 0.0)


def _log_agreement(agreement: Agreement) -> Agreement:
    """With one item more in each class, whose votes are divided evenly."""
    return np.log(agreement + 1 / len(agreement))


def _item_margins(evidence: PerLabel, probs: PerLabel, counts: np.ndarray) -> Pairs:
    """The log odds ratio of each two labels in standard errors over items, by the delta method.

    An item adds p_k e_k / A_kk + p_l e_l / A_ll − p_l e_k / A_kl − p_k e_l / A_lk to that of k and l. The sum of its
    square over items, for all pairs at once, is made of products of powers of e and p.
    """
    weighted = evidence * counts[:, None]
    total = weighted.T @ probs + 1 / probs.shape[1]
    both = weighted * evidence  # the products below are Σ_i e_k … p_l …, divided by the A of their two cells
    own = np.diagonal(total)
    square = both.T @ probs**2 / total**2 + 1 / probs.shape[1] / total**2  # the added items vary, too
    of_label = np.diagonal(square)
    same_vote = (both * probs).T @ probs / (own[:, None] * total)  # p_k e_k, p_l e_k
    same_class = (weighted * probs**2).T @ evidence / (own[:, None] * total.T)  # p_k e_k, p_k e_l
    crossed = (weighted * probs).T @ (evidence * probs) * (1 / np.outer(own, own) + 1 / (total * total.T))
    one_sided = same_vote + same_class
    variance = of_label[:, None] + of_label + square + square.T + 2 * crossed - 2 * (one_sided + one_sided.T)
    return _ratio(_exchanged(np.log(total)), variance)


def _voter_margins(votes: Votes, probs: PerLabel) -> Pairs:
    """The log odds ratio of each two labels in standard errors over voters; NaN for fewer than three."""
    anchor = votes.of_anchor.without_other_votes()
    cast = anchor.tally.sum(axis=1)
    weights = (1 if votes.counts is None else votes.counts) / np.where(cast > 0, cast, 1)
    by_label = count_by_label(anchor, probs * weights[:, None])
    by_label = by_label[by_label.any(axis=(1, 2))]
    if len(by_label) < 3:
        return np.full((probs.shape[1], probs.shape[1]), np.nan)
    agreement = by_label.swapaxes(1, 2)[:, : probs.shape[1]]  # voter, vote, class
    total = agreement.sum(axis=0) + 1 / probs.shape[1]
    influence = _exchanged(agreement / total)
    return _ratio(_exchanged(np.log(total)), influence.var(axis=0, ddof=1) * len(agreement))


def _exchanged(agreement: Float[np.ndarray, "*voter label label"]) -> Float[np.ndarray, "*voter label label"]:
    """The loss when the labels k and l change places."""
    own = np.diagonal(agreement, axis1=-2, axis2=-1)
    return own[..., :, None] + own[..., None, :] - agreement - np.swapaxes(agreement, -1, -2)


def _ratio(gain: Pairs, variance: Pairs) -> Pairs:
    """The gain in standard errors, finite even without any noise."""
    error = np.sqrt(np.maximum(variance, (1e-6 * gain) ** 2))
    return np.divide(gain, error, out=np.zeros_like(gain), where=error > 0)


Orders = Int[np.ndarray, "draw label"]
Posterior = TypeVar("Posterior", "xr.DataTree", "xr.Dataset")

LEADING = ("chain", "draw")
MOST_ROUNDS = 100


def relabel(
    posterior: Posterior, dim: str = "true_class", *, match: str = "vote_class", codes: Sequence[str] = ()
) -> Posterior:
    """Undo label switching in a posterior in the form of ArviZ.

    The labels of each draw are put in the order in which its parameters are nearest to their means over all draws, in
    units of their deviations, and the means are recomputed until no draw changes (Stephens 2000). The votes are not
    needed; given votes and a model, `fit_from_draws` orders the labels by the votes.

    Args:
        posterior: A DataTree with the group `posterior`, or that group as a Dataset, with dimensions chain and draw.
        dim: The dimension of the labels; every variable that has it is reordered along it.
        match: A dimension of the same size, such as that of votes. Where a variable has both, the labels as a whole are
            ordered such that it is largest where they are the same.
        codes: Variables that hold labels by their codes, 0, 1, …, which are replaced.

    Returns:
        A copy with labels in order.

    Examples:
        >>> import numpy as np
        >>> import xarray as xr
        >>> import latentens as le
        >>> rng = np.random.default_rng(0)
        >>> draws = np.array([0.3, 0.7]) + 0.01 * rng.normal(size=(1, 6, 2))
        >>> draws[0, 3:] = draws[0, 3:, ::-1]  # the labels switch
        >>> posterior = xr.Dataset({"prevalence": (("chain", "draw", "true_class"), draws)})
        >>> le.relabel(posterior)["prevalence"].mean("draw").values.round(2)
        array([[0.7, 0.3]])
    """
    import xarray as xr

    if isinstance(posterior, xr.DataTree):
        moved = relabel(posterior["posterior"].to_dataset(), dim, match=match, codes=codes)
        tree = posterior.copy()
        tree["posterior"] = xr.DataTree(moved)
        return tree
    switching = [name for name, values in posterior.data_vars.items() if dim in values.dims]
    if not switching:
        raise ParameterError(f"no variable has the dimension {dim!r}; name the dimension of the labels in dim")
    arrays = [posterior[name].transpose(*LEADING, dim, ...).to_numpy() for name in switching]
    chains, size = arrays[0].shape[:2], posterior.sizes[dim]
    features = np.concatenate([array.reshape(chains[0] * chains[1], size, -1) for array in arrays], axis=2)
    orders = switched_orders(features)
    for name in switching:
        if match in posterior[name].dims and posterior.sizes[match] == size:
            means = posterior[name].mean(
                [other for other in posterior[name].dims if other not in (*LEADING, dim, match)]
            )
            square = means.transpose(*LEADING, dim, match).to_numpy().reshape(-1, size, size)
            agreement = np.take_along_axis(square, orders[:, :, None], axis=1).mean(axis=0)
            orders = orders[:, linear_sum_assignment(agreement.T, maximize=True)[1]]
            break
    shaped = xr.DataArray(orders.reshape(*chains, size), dims=(*LEADING, dim))
    moved = {name: posterior[name].isel({dim: shaped}) for name in switching}
    places = xr.DataArray(np.argsort(orders, axis=1).reshape(*chains, size), dims=(*LEADING, dim))
    moved |= {name: places.isel({dim: posterior[name]}) for name in codes}
    kept = {name: values.transpose(*posterior[name].dims).variable for name, values in moved.items()}
    return posterior.assign(kept)


def switched_orders(features: Float[np.ndarray, "draw label feature"]) -> Orders:
    """The order of each draw's labels that aligns all draws: label k of the result is `order[k]` of the draw."""
    spread = features.std(axis=(0, 1))
    scaled = features / np.where(spread > 0, spread, 1.0)
    orders = np.tile(np.arange(scaled.shape[1]), (len(scaled), 1))
    reference = scaled[-1]  # a chain has arrived by its last draw
    for number in range(MOST_ROUNDS):
        # the squared distance of each label of a draw from each one of the reference, up to what no order changes
        agreement = np.einsum("kf,dlf->dkl", reference, scaled)
        found = np.stack([linear_sum_assignment(each, maximize=True)[1] for each in agreement])
        if np.array_equal(found, orders) and number > 0:
            break
        orders = found
        reference = np.take_along_axis(scaled, orders[:, :, None], axis=1).mean(axis=0)
    return orders
