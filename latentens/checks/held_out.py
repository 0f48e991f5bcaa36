"""Which model predicts held-out votes best? This needs no labels.

The exact likelihood of an item's votes, with label and hidden units summed out, needs no label. The model that predicts
the votes of new items best describes best how votes arise. It need not have the best labels: something other than the
label may explain most of the votes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import logsumexp

from latentens.errors import LatentensError
from latentens.methods.base import Fit, Method
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.text import rounds_to_nothing
from latentens.votes import Votes

PerItem = Float[np.ndarray, " item"]

MethodChoice = Method | Callable[[Votes], Method]
"""A method, or a function that chooses one from the votes that it is to be fitted to."""


class LeaveOneOut(NamedTuple):
    """The expected log predictive density of each item's votes given all others, by importance sampling (PSIS).

    Attributes:
        log_density: The value of each item.
        pareto_k: How heavy the tail of the item's importance weights is; above .7 the value is unreliable.
    """

    log_density: PerItem
    pareto_k: PerItem

    @property
    def num_unreliable(self) -> int:
        """Number of items whose values are unreliable."""
        return int(np.sum(self.pareto_k > 0.7))


def leave_one_out(fit: Fit, votes: Votes) -> LeaveOneOut:
    """Predict each item's votes from the posterior given all other items (Vehtari, Gelman & Gabry 2017).

    Args:
        fit: A sampled fit, such as that of `Nuts`.
        votes: The votes that it was fitted to.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Laplace(le.models.OneCoin(5), num_draws=100).fit(votes, key=jax.random.key(0))
        >>> loo = le.checks.leave_one_out(fit, votes)
        >>> loo.log_density.shape, loo.num_unreliable
        ((3869,), 0)
    """
    from arviz_stats.base import array_stats  # imported late: the command need not wait for it

    if fit.draws is None:
        raise LatentensError(f"{fit.method} has no posterior draws; use held_out_log_likelihood, or fit by Nuts")
    distinct, _, inverse = votes.patterns
    values = fit.log_likelihood(distinct)
    log_density, pareto_k = values.mean(axis=(0, 1)), np.zeros(distinct.num_items)
    varying = np.ptp(values, axis=(0, 1)) > 1e-9  # not for items without votes
    log_density[varying], pareto_k[varying], _ = array_stats.loo(values[..., varying], chain_axis=0, draw_axis=1)
    return LeaveOneOut(log_density[inverse], pareto_k[inverse])


def held_out_log_likelihood(method: MethodChoice, votes: Votes, *, key: jax.Array, folds: int = 5) -> PerItem:
    """The log-likelihood of each item's votes by a fit to the items of the other folds (K-fold cross-validation).

    Args:
        method: A method whose fits give votes a probability, or a function that chooses one from votes.
        votes: The votes.
        key: Random key of the folds and the fits; the same key gives every method the same folds.
        folds: Number of folds, at least 2.
    """
    if not 2 <= folds <= votes.num_items:
        raise LatentensError(
            f"{votes.num_items} items cannot be split into {folds} folds; choose 2 to {votes.num_items}"
        )
    split_key, fit_key = jax.random.split(key)
    fold = numpy_generator(split_key).permutation(votes.num_items) % folds
    values = np.empty(votes.num_items)
    for number in range(folds):
        seen, unseen = (votes.take(np.flatnonzero(chosen)) for chosen in (fold != number, fold == number))
        chosen = method if isinstance(method, Method) else method(seen)
        fit = chosen.fit(seen, key=jax.random.fold_in(fit_key, number))
        values[fold == number] = predictive_log_density(fit.log_likelihood(unseen))
    return values


def predictive_log_density(log_likelihood: Float[np.ndarray, "*draw item"]) -> PerItem:
    """The logarithm of the mean probability over draws; for a point estimate, the log-likelihood."""
    draws = log_likelihood.reshape(-1, log_likelihood.shape[-1])
    return logsumexp(draws, axis=0) - np.log(len(draws))


@dataclass(frozen=True, eq=False)
class PredictiveRanking:
    """Models ranked by how well they predict held-out votes.

    Attributes:
        log_density: The log predictive density of each item's votes by each model.
    """

    log_density: Mapping[str, PerItem]

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, the best first.

        Columns: `elpd`, the log predictive density of all items; `difference` from the best model, and the standard
        errors of both over items. The error of the difference is that of the items' differences.
        """
        total = {name: values.sum() for name, values in self.log_density.items()}
        order = sorted(total, key=lambda name: -total[name])
        best = self.log_density[order[0]]
        rows = {name: (*_sum(self.log_density[name]), *_sum(self.log_density[name] - best)) for name in order}
        columns = ["elpd", "standard_error", "difference", "difference_error"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("model")

    @property
    def summary(self) -> str:
        """The result in two sentences."""
        return f"{self.verdict} This says how votes arise, not that its labels are the best."

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        table = self.table
        best = table.index[0]
        if len(table) == 1:
            return f"{best} is the only model."
        near = [
            name
            for name, row in table.iloc[1:].iterrows()
            if -row.difference < 2 * row.difference_error or rounds_to_nothing(f"{row.difference:.1f}")
        ]
        second = table.iloc[1]
        ahead = f"{-second.difference:,.1f} ± {second.difference_error:,.1f} nats ahead of {table.index[1]}"
        doubt = f"; statistically tied with it: {', '.join(map(str, near))}" if near else ""
        return f"{best} predicts the votes best, {ahead}{doubt}."


def _sum(values: PerItem) -> tuple[float, float]:
    """A sum over items and its standard error."""
    deviation = values.std(ddof=1) if len(values) > 1 else np.nan
    return float(values.sum()), float(np.sqrt(len(values)) * deviation)


def rank_predictions(
    methods: Mapping[str, MethodChoice], votes: Votes, *, key: jax.Array, folds: int = 5
) -> PredictiveRanking:
    """Rank models by how well they predict the votes on held-out items (K-fold cross-validation).

    Args:
        methods: Methods by name, as in `held_out_log_likelihood`.
        votes: The votes.
        key: Random key; all methods get the same folds.
        folds: Number of folds.
    """
    return PredictiveRanking(
        {name: held_out_log_likelihood(method, votes, key=key, folds=folds) for name, method in methods.items()}
    )
