"""Stacking: label-free posteriors and the votes themselves, weighted by what few gold labels say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.special import softmax

from latentens.inference.conditional_logit import Features, Prior, fit_conditional_logit, mirrored_noise
from latentens.methods.base import (
    Diagnostics,
    Estimate,
    GoldCodes,
    Method,
    Posterior,
    nested_fit,
    packed,
    posterior_of,
    unpacked,
    warnings_of,
)
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.ebcc import Ebcc
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count
from latentens.votes import Votes

VOTER, METHOD, INTERCEPT = range(3)
"""Blocks of weights whose scales the gold labels choose."""


@dataclass(frozen=True, init=False)
class Stacked(Method):
    """Other methods' posteriors and the votes themselves, combined by gold labels: `Stacked(DawidSkeneEM(), Ebcc())`.

    The methods are fitted once, without gold labels; these then weight each posterior and each voter, by a conditional
    logit with a Gaussian prior around the mean of the posteriors. A method whose labels are in the wrong order, because
    most voters are wrong, gets a negative weight. The probabilities are averaged over the posterior of the weights
    (Laplace), so they stay cautious where labels are few. Without gold labels the result is the arithmetic pool.

    Notes:
        With q_c the posterior of method c and s the item's vote shares (one more vote is divided among the classes as
        all votes are), the features of class k on item i are

        * log q̄, the logarithm of the arithmetic pool, the mean of s and all q_c: weight around one;
        * log q_c of each method and log s: weights around zero;
        * for each voter the number of their votes for k on i, one weight per voter for all classes: around zero;
        * an intercept per class, for classes that are rarer or more frequent than in the pool: around zero;

        and p(y_i = k) ∝ exp(w·F_ik). How far voters' weights, methods' weights and intercepts go from the centre is
        chosen by the marginal likelihood of the gold labels (`latentens.inference.conditional_logit`). Voters who vote
        alike share their weight, since the prior prefers many small weights to a large one, and a voter without a vote
        on a labelled item has none. A method that saw n items cannot tell probabilities below about 1/n: log q_c is
        that of (n q_c + 1/K)/(n + 1).

        Parameters of the fit: `pool_weight`, `method_weight`, `share_weight`, `voter_weight` and `intercept`, each with
        its standard error (`…_error`) at the chosen scales `voter_scale`, `method_scale` and `intercept_scale`: with a
        scale near zero the labels do not support these weights, and they stay at their centre.

    Attributes:
        methods: The methods whose posteriors are combined.
        num_draws: Number of draws of the weights that probabilities are averaged over.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> gold = {item: int(data.labels[item]) for item in range(60)}
        >>> fit = le.methods.Stacked().fit(data.votes, key=jax.random.key(1), gold=gold)
        >>> fit.labels[:3]
        array([0, 1, 0])
    """

    takes_other_votes = True

    methods: tuple[Method, ...] = ()
    num_draws: Count = 256

    def __init__(self, *candidates: Method, methods: Sequence[Method] = (), num_draws: int = 256) -> None:
        """Settings.

        Args:
            candidates: The methods, given one by one; DawidSkeneEM and Ebcc if there are none.
            methods: More of them.
            num_draws: Number of draws of the weights.
        """
        object.__setattr__(self, "methods", (*candidates, *methods) or (DawidSkeneEM(), Ebcc()))
        object.__setattr__(self, "num_draws", num_draws)
        self.__post_init__()

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        fits = [nested_fit(method, votes, jax.random.fold_in(key, c), None) for c, method in enumerate(self.methods)]
        state = {
            "num_items": np.array(votes.num_items),
            "class_share": (votes.tally.sum(axis=0) + 1) / (votes.tally.sum() + votes.num_classes),
        }
        state |= packed(fits)
        diagnostics = Diagnostics(
            warnings=[] if gold is not None else warnings_of(fits),  # gold labels answer most of them
            extra={
                "gold_labels": 0 if gold is None else int((gold >= 0).sum()),
                "method_seconds": [fit.diagnostics.seconds for fit in fits],
            },
        )
        sizes = votes.num_voters, len(fits), votes.num_classes
        if gold is None:
            pooled = "arithmetic pool of the methods' posteriors and vote shares: no gold labels"
            diagnostics = diagnostics.updated(label_probs=pooled)
            centre = _prior(*sizes).centre
            return Estimate(_named(centre, sizes), diagnostics, state=state | {"weights": centre[None]})
        labelled = np.flatnonzero(gold >= 0)
        posteriors = [fit.label_probs[labelled] for fit in fits]
        some = votes.take(labelled)
        pool = _pool_features(posteriors, some, state)
        # The weight of a voter without a vote on a labelled item keeps its prior.
        voters, seen = np.unique(some.triplets.voter), np.ones(votes.num_voters + pool.shape[2], dtype=bool)
        seen[: votes.num_voters] = np.bincount(voters, minlength=votes.num_voters) > 0
        of_voters = _voter_features(some)[:, voters].toarray().reshape(*pool.shape[:2], -1)
        found = fit_conditional_logit(
            np.concatenate([of_voters, pool], axis=2), gold[labelled], _prior(len(voters), *sizes[1:])
        )
        generator = numpy_generator(jax.random.fold_in(key, len(fits)))
        mean, error = np.zeros(len(seen)), np.full(len(seen), found.scales[VOTER])
        mean[seen], error[seen] = found.mean, found.error
        weights = found.scales[VOTER] * mirrored_noise(generator, self.num_draws, len(seen))
        weights[:, seen] = found.draw(self.num_draws, generator)
        diagnostics = diagnostics.updated(
            label_probs="conditional logit fitted to the gold labels, averaged over the posterior of its weights",
            log_evidence=found.log_evidence,
        )
        scales = dict(zip(("voter_scale", "method_scale", "intercept_scale"), found.scales, strict=True))
        errors = {f"{name}_error": value for name, value in _named(error, sizes).items()}
        params = _named(mean, sizes) | errors | {name: np.array(scale) for name, scale in scales.items()}
        return Estimate(params, diagnostics, state=state | {"weights": weights})

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Gold labels say which label is which; without any, the methods' labels are in order already."""
        del estimate
        return True

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        state = estimate.state
        weights = state["weights"].T
        posteriors = [
            posterior_of(method, unpacked(estimate, number), votes) for number, method in enumerate(self.methods)
        ]
        pool, of_voters = _pool_features(posteriors, votes, state), _voter_features(votes)
        probs = np.empty((votes.num_items, votes.num_classes))
        for block in row_blocks(votes.num_items, votes.num_classes * weights.shape[1], BLOCK_ELEMENTS):
            rows = slice(block.start * votes.num_classes, block.stop * votes.num_classes)
            logits = (of_voters[rows] @ weights[: votes.num_voters]).reshape(-1, votes.num_classes, weights.shape[1])
            probs[block] = softmax(logits + pool[block] @ weights[votes.num_voters :], axis=1).mean(axis=2)
        return probs


def _voter_features(votes: Votes) -> sparse.csr_array:
    """How often each voter voted for a class on an item, one row for each item and class."""
    item, voter, vote = votes.without_other_votes().triplets
    shape = votes.num_items * votes.num_classes, votes.num_voters
    rows = item.astype(np.int64) * votes.num_classes + vote
    return sparse.coo_array((np.ones(len(item)), (rows, voter)), shape).tocsr()


def _pool_features(posteriors: Sequence[Posterior], votes: Votes, state: Mapping[str, np.ndarray]) -> Features:
    """Logarithms of the pool, of each method's posterior and of the vote shares, and an indicator for each class."""
    shares = (votes.tally + state["class_share"]) / (votes.tally.sum(axis=1, keepdims=True) + 1)
    pool = np.mean([*posteriors, shares], axis=0)
    num_items, num_classes = float(state["num_items"]), votes.num_classes
    bounded = [(num_items * probs + 1 / num_classes) / (num_items + 1) for probs in posteriors]
    logs = np.log(np.stack([pool, *bounded, shares], axis=2))
    classes = np.broadcast_to(np.eye(num_classes), (votes.num_items, num_classes, num_classes))
    return np.concatenate([logs, classes], axis=2)


def _prior(num_voters: int, num_methods: int, num_classes: int, pool_spread: float = 0.5) -> Prior:
    """The label-free pool at the centre.

    A voter's weight is a log odds ratio, whose unit is one. The weights of the methods and of the shares are parts of
    the pool's weight of one, and an intercept also corrects the pool: their unit is the share of each in the pool. The
    pool's own weight is one if its probabilities are right and zero, two standard deviations away, if they carry no
    information.
    """
    sizes = (num_voters, 1, num_methods + 1, num_classes)
    part = 1 / (num_methods + 1)
    return Prior(
        centre=np.repeat([0.0, 1.0, 0.0, 0.0], sizes),
        unit=np.repeat([1.0, pool_spread, part, part], sizes),
        block=np.repeat([VOTER, -1, METHOD, INTERCEPT], sizes),
    )


def _named(weights: Float[np.ndarray, " weight"], sizes: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """The weights by what they belong to."""
    num_voters, num_methods, _ = sizes
    voters, pool, methods, shares, intercepts = np.split(weights, np.cumsum([num_voters, 1, num_methods, 1]))
    return {
        "pool_weight": pool[0],
        "method_weight": methods,
        "share_weight": shares[0],
        "voter_weight": voters,
        "intercept": intercepts,
    }
