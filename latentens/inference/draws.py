"""Posterior draws of a program: the labels' posterior averaged over them, their labels in order, their convergence."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from scipy.special import softmax

from latentens.inference.orient import best_order, order_shares
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.rows import Rows, tables_at_draws
from latentens.votes import Votes

COMMON_ROWS = 20
"""Number of the commonest rows of votes whose labels' posteriors are watched for convergence."""

CONVERGED = 1.01
CLEARLY_APART = 1.1


class LabelledDraws(NamedTuple):
    """Draws with their labels in order.

    Attributes:
        draws: The draws of each parameter, relabelled where the model says how.
        label_orders: The order that is still to be applied to the posterior under each draw.
        label_probs: The posterior of each item's label, averaged over the draws.
        watched: The posterior of the last label of the commonest rows, by draw.
    """

    draws: dict[str, Float[np.ndarray, "draw ..."]]
    label_orders: Int[np.ndarray, "draw label"]
    label_probs: Float[np.ndarray, "item label"]
    watched: Float[np.ndarray, "draw row"]


def label_draws(
    model: GenerativeModel,
    draws: Mapping[str, Float[np.ndarray, "draw ..."]],
    votes: Votes,
    gold: Int[np.ndarray, " item"] | None = None,
) -> LabelledDraws:
    """Average the exact posterior of the labels over draws, each draw's labels put in order first.

    The order of the labels is the one that the votes say. With gold labels, which are part of the likelihood, or in a
    model that ties labels to votes, the draws have their order already.

    Args:
        model: The generative model.
        draws: Draws of each parameter.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
    """
    rows = Rows.of(model, votes, gold)
    totals = None
    if gold is None and not model.anchored:
        shares = order_shares(votes)[:, : structure_of(model).num_labels]
        totals = np.stack([np.bincount(rows.inverse, share, minlength=len(rows.counts)) for share in shares.T])
    # the mean of the posteriors of rows, each draw's labels put in order first
    common = np.argsort(-rows.counts, kind="stable")[:COMMON_ROWS]
    mean, orders, watched = np.zeros((len(rows.counts), 1)), [], []
    for probs in label_posteriors(model, draws, rows):
        order = np.arange(len(probs)) if totals is None else best_order(totals @ probs.T)
        mean = mean + probs[order].T
        orders.append(order)
        watched.append(probs[order][-1, common])
    relabelled, remaining = relabel_draws(model, draws, np.stack(orders))
    return LabelledDraws(relabelled, remaining, (mean / len(orders))[rows.inverse], np.stack(watched))


def label_posteriors(model: GenerativeModel, draws: Params, rows: Rows) -> Iterator[Float[np.ndarray, "label row"]]:
    """The exact posterior of the label of each row at each draw."""
    for tables in tables_at_draws(model, draws):
        yield softmax(rows.label_log_joint(tables), axis=0)


def relabel_draws(
    model: GenerativeModel, draws: Params, orders: Int[np.ndarray, "draw label"]
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, "draw label"]]:
    """Draws with their labels in order, and the order that is still to be applied to posteriors under each."""
    relabelled = {name: np.array(value) for name, value in draws.items()}
    remaining = orders.copy()
    for order in np.unique(orders, axis=0):
        chosen = (orders == order).all(axis=1)
        moved = model.relabel({name: value[chosen] for name, value in draws.items()}, order)
        if moved is not None:
            remaining[chosen] = np.arange(len(order))
            for name, value in moved.items():
                relabelled[name][chosen] = value
    return relabelled, remaining


def judge_chains(
    draws: Params, invariant: Mapping[str, Float[np.ndarray, "chain draw *value"]]
) -> tuple[dict[str, Any], list[str]]:
    """R̂ and effective sample sizes, and what they mean in words.

    Args:
        draws: The draws of each parameter, (chain, draw, …).
        invariant: Quantities that do not change when hidden units change places; they are judged first.
    """
    values = {**invariant, **draws}
    r_hat = {name: _worst_r_hat(value) for name, value in values.items()}
    ess = {name: _least_ess(value) for name, value in values.items()}
    words = convergence_words({name: r_hat[name] for name in invariant}, {name: r_hat[name] for name in draws})
    return {"r_hat": r_hat, "ess": ess}, words


def convergence_words(invariant: dict[str, float], params: dict[str, float]) -> list[str]:
    """What r_hat says, judged first on what does not change when hidden units change places."""
    name, worst = max(invariant.items(), key=lambda pair: pair[1])
    if worst > CLEARLY_APART:
        return [f"the chains disagree (r_hat {worst:.2f} for the {name}): the posterior looks multimodal"]
    if worst > CONVERGED:
        return [f"not converged: r_hat is {worst:.3f} for the {name}; take more draws"]
    name, worst = max(params.items(), key=lambda pair: pair[1], default=("", 1.0))
    if worst > CLEARLY_APART:
        return [f"the chains agree on labels but not on {name} (r_hat {worst:.2f}): hidden units changed places"]
    return [f"not converged: r_hat is {worst:.3f} for {name}; take more draws"] if worst > CONVERGED else []


def _worst_r_hat(values: Float[np.ndarray, "chain draw ..."]) -> float:
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return 1.0
    return float(np.nanmax(split_gelman_rubin(values), initial=1.0))


def _least_ess(values: Float[np.ndarray, "chain draw ..."]) -> float:
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return float(values.shape[0] * values.shape[1])
    return float(np.nanmin(effective_sample_size(values)))
