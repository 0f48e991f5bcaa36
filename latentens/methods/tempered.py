"""Calibrated confidence without labels: a posterior is tempered until it predicts hidden votes best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Float

from latentens.errors import LatentensError, VotesError
from latentens.methods.base import Estimate, GoldCodes, Method, Posterior, nested_fit
from latentens.methods.tempering.held_out import HeldOut, HiddenLabels, hold_out
from latentens.methods.tempering.temperature import Score, Temperature, best_temperature, temper, usual_shares
from latentens.methods.tempering.vote_score import VoteScore
from latentens.runtime.numerics import safe_log
from latentens.runtime.settings import at_least
from latentens.votes import Votes

MANY_VOTES = 2**17
"""With more votes than this, fits to half of the items will do."""


@dataclass(frozen=True)
class Tempered(Method):
    """A method whose posterior is raised to the power τ at which hidden votes are predicted best.

    Methods that take voters to be independent are too sure of their labels where voters err together. To see this, no
    label is needed. The method is fitted without some of the items; each vote x on these is hidden and predicted from
    the votes of the other voters by Σ_y p_τ(y | others) θ_j(x | y), with p_τ ∝ b^(1 − τ) p^τ and with confusion
    matrices θ that were learnt at the same τ from the votes on other items (see `VoteScore`). The base b has the shares
    of the classes in all votes, so that what an item's votes say is tempered, and not how frequent classes are. The
    τ ≤ 1 at which hidden votes have the highest mean log-probability is applied to the fit to all items, if there is
    evidence for it (see `best_temperature`). The most probable labels stay as they are, and an item without votes keeps
    its posterior.

    What τ estimates: by Gibbs' inequality no prediction has a higher expected log-probability than p(x_j | others)
    itself. If voters are independent given the label and p(y | others) is exact, that is the prediction at τ = 1 with
    the true θ, so τ = 1 is the maximum in expectation. In general τ minimises the Kullback–Leibler divergence of such
    predictions from p(x_j | others). Where votes repeat each other they say less about the next vote than they would if
    they were independent, and τ is below 1; it is also where parameters rest on few votes. Votes that ignore the items
    are predicted by nothing: neither fit nor θ has seen them, so τ goes to 0, where all items have the usual shares.

    What it does not estimate: the label gets the confidence of one more vote. Where a vote is harder to tell than the
    label, because voters err together on hard items or in groups, τ comes out too low, and the posterior can end up
    less sure than it may be. Votes cannot tell copies from confirmations either: if fits to different items all take
    the opinion of the same group of copyists for the label, it remains too sure.

    If true labels of some items are given, they choose τ, in the same way: each is predicted by a fit without its item.

    Diagnostics: `temperature`, its `temperature_error` (standard error), `temperatures` and `temperature_curve` (the
    mean score of an item at each); with true labels also `temperature_by_votes`, what would have been chosen without.

    Attributes:
        method: The method to temper.
        folds: Number of parts of the items; the method is fitted once more without each part. By default two where the
            votes are many, which takes about as long as the fit to all items, else five: where voters have few votes, a
            fit to half of the items knows less than the fit to all, and τ would be too low.
    """

    method: Method
    folds: Annotated[int, at_least(2)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.method, Tempered):
            raise LatentensError(f"{self.method} is tempered already")

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        folds = choose_folds(self.folds, votes)
        held = hold_out(self.method, votes, folds, jax.random.fold_in(key, 0), gold)
        base = usual_shares(votes)
        found, by_votes = find_temperature(held, base)
        fitted = nested_fit(self.method, votes, key, gold)
        return Estimate(
            {**fitted.params, "temperature": np.array(found.value)},
            fitted.diagnostics.updated(**temperature_diagnostics(found, by_votes)),
            fitted.draws,
            {**fitted.state, "usual_shares": base},
            temper_voted(fitted.label_probs, votes, found.value, base),
        )

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        temperature, base = float(estimate.params["temperature"]), estimate.state["usual_shares"]
        return temper_voted(self.method.posterior(estimate, votes), votes, temperature, base)


def choose_folds(wanted: int | None, votes: Votes) -> int:
    """The number of folds: as wanted, or two of many votes and five of few."""
    if votes.num_items < (wanted or 2):
        raise VotesError(f"{wanted or 2} folds need as many items, but there are {votes.num_items}")
    return wanted or (2 if votes.tally.sum() > MANY_VOTES else min(5, votes.num_items))


def find_temperature(held: HeldOut, base: Float[np.ndarray, " label"]) -> tuple[Temperature, Temperature]:
    """The temperature that hidden labels choose, if there are any, or hidden votes; and that of hidden votes."""
    by_votes = best_temperature(VoteScore(held.votes, held.seen, base))
    if not held.labels:
        return by_votes, by_votes
    return best_temperature(_together([_label_score(part, base) for part in held.labels]), by_labels=True), by_votes


def temper_voted(probs: Posterior, votes: Votes, temperature: float, base: Float[np.ndarray, " label"]) -> Posterior:
    """Tempered where there are votes; what is known without any is not too sure."""
    return np.where(votes.tally.any(axis=1, keepdims=True), temper(probs, temperature, base), probs)


def _together(scores: Sequence[Score]) -> Score:
    return lambda temperature: np.concatenate([score(temperature) for score in scores])


def _label_score(hidden: HiddenLabels, base: Float[np.ndarray, " label"]) -> Score:
    """The log-probability of true labels as a function of the temperature."""
    items = np.arange(len(hidden.label))
    return lambda t: safe_log(temper(hidden.label_probs, t, base)[items, hidden.label])


def temperature_diagnostics(found: Temperature, by_votes: Temperature) -> dict[str, Any]:
    """What to report of a temperature, and of that which hidden votes alone would have chosen."""
    by_labels = {} if found is by_votes else {"temperature_by_votes": by_votes.value}
    return {
        "label_probs": f"tempered posterior, chosen by {'true labels' if by_labels else 'hidden votes'}",
        "temperature": found.value,
        "temperature_error": found.standard_error,
        "temperatures": found.tried,
        "temperature_curve": found.curve,
        **by_labels,
    }
