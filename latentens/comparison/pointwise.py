"""What a fit says about the votes themselves: the log-likelihood of every item, seen and unseen."""

import json
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentens.errors import LatentensError
from latentens.evaluation.fit_check import check_fit
from latentens.evaluation.predictive import held_out_log_likelihood, leave_one_out
from latentens.methods.base import Fit, Method, model_params
from latentens.programs.transforms import to_point
from latentens.runtime.precision import double_precision
from latentens.votes import Votes

MOST_VALUES = 2**24
"""Draws are thinned so that at most this many log-likelihoods are kept."""


class Pointwise(NamedTuple):
    """The log-likelihood of every item's votes, labels and hidden units summed out.

    Attributes:
        log_likelihood: By the fit, at each draw; a point estimate counts as one draw of one chain.
        log_density: Of votes that the fit has not seen, or an estimate of it; None where there is none.
        by: How that was found.
    """

    log_likelihood: Float[np.ndarray, "chain draw item"] | None = None
    log_density: Float[np.ndarray, " item"] | None = None
    by: str = ""


NOTHING_SAID = Pointwise()
"""Of a method without a model of votes."""


def judge_pointwise(fit: Fit, method: Method, votes: Votes, *, key: jax.Array, folds: int) -> Pointwise:
    """What a fit and, if folds are asked for, fits to parts of the votes say about each item.

    A sampled fit is judged by leaving items out (PSIS-LOO). A point estimate is judged by as many folds as are asked
    for; without folds by AIC, its log-likelihood less the number of its parameters, which for a regular model is the
    expected log-likelihood of new items.

    Args:
        fit: The fit.
        method: What made it.
        votes: The votes.
        key: Random key of the folds.
        folds: Number of folds; 0 for none.
    """
    try:
        values = fit.log_likelihood(votes)
    except LatentensError:
        return NOTHING_SAID
    if fit.draws is not None:
        thin = -(-values.size // MOST_VALUES)
        return Pointwise(values[:, ::thin], leave_one_out(fit, votes).log_density, "leaving one item out")
    if folds:
        held_out = held_out_log_likelihood(method, votes, key=key, folds=folds)
        return Pointwise(values[None, None], held_out, f"{folds} folds")
    number = _num_parameters(fit)
    return Pointwise(values[None, None], None if number is None else values - number / len(values), "AIC")


def recorded_check(fit: Fit, votes: Votes, *, key: jax.Array) -> str:
    """What `check_fit` says, as JSON: the verdict, and the histogram of vote counts; nothing without a model."""
    if fit.model is None:
        return ""
    check = check_fit(fit, votes, key=key)
    histogram = check.statistics[0]
    return json.dumps(
        {
            "summary": check.summary,
            "p_value": check.p_value,
            "rejected": check.rejected,
            "p_values": {part.name: part.p_value for part in check.statistics},
            "cells": histogram.cells,
            **{name: getattr(histogram, name).tolist() for name in ("observed", "expected", "deviation")},
        }
    )


@double_precision
def _num_parameters(fit: Fit) -> int | None:
    model = fit.model
    if model is None:
        return None
    return sum(int(np.size(leaf)) for leaf in to_point(model, model_params(model, fit)).values())
