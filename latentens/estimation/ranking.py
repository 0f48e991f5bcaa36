"""From pairs to a ranking: the strengths of contestants behind labels that say who wins."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import expit, logit

from latentens.errors import VotesError
from latentens.methods.base import Fit
from latentens.runtime.blocks import row_blocks
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.parallel import stop_if_asked
from latentens.votes.labels import listed, suggestion

Wins = Float[np.ndarray, "*draw winner loser"]
Pairs = Mapping[Hashable, tuple[Hashable, Hashable]] | pd.DataFrame | Sequence[tuple[Hashable, Hashable]]


def ranking(
    fit: Fit,
    pairs: Pairs,
    *,
    key: jax.Array,
    left: Hashable | None = None,
    num_draws: int = 500,
    level: float = 0.95,
) -> pd.DataFrame:
    """Rank contestants by a fit whose items are pairs of them and whose label says which of the two wins.

    The model is that of Bradley & Terry: contestant a wins against b with probability σ(θ_a − θ_b). A fit takes all
    items to have the same chance of a label; here that prior is replaced by the one of the pair. With the posterior
    odds o_i of the fit and their prior odds o (the mean of its posteriors), the left one wins item i with probability
    σ(log o_i − log o + θ_left − θ_right), and strengths are at the maximum of the likelihood in which winners are
    summed out (EM). Each contestant has half a win and half a loss against one of strength 0 besides, so that
    strengths are finite and contestants who never met are comparable.

    Intervals are those of the bootstrap over pairs. They hold if the posterior of the labels is calibrated, and do not
    include errors of the fit's own parameters.

    Args:
        fit: A fit of votes for two classes.
        pairs: The contestants (left, right) of each item: a mapping from the item's name, a data frame with the
            columns item, left and right, or one pair for each item in the order of the fit.
        key: Random key; the same key gives the same intervals.
        left: The label which says that the left one wins; by default the first class of the fit.
        num_draws: Number of resamples of the pairs behind the intervals.
        level: Coverage of the intervals.

    Returns:
        One row for each contestant, the strongest first: `contestant`, `strength` with `low` and `high`, `rank` with
        `rank_low` and `rank_high`, the number of `pairs`, and the expected share of `wins` among them.
    """
    if len(fit.class_names) != 2:
        raise VotesError(f"a ranking needs two classes, left or right, but the fit has {len(fit.class_names)}")
    names = [str(name) for name in fit.class_names]
    if left is not None and str(left) not in names:
        raise VotesError(f"left={left!r} is not a class of the fit: {suggestion(left, fit.class_names)}")
    left_wins = fit.label_probs[:, 0 if left is None else names.index(str(left))]
    evidence = logit(left_wins) - logit(np.clip(left_wins.mean(), np.finfo(float).eps, 1 - np.finfo(float).eps))
    contestants, sides = _contestants(_pairs_of(fit, pairs))
    counts = np.ones((1, len(sides)))
    (strength,), (wins,) = _maximum(sides, evidence, counts, len(contestants))
    parts, generator = [], numpy_generator(key)
    for block in row_blocks(num_draws, len(sides)):
        even = np.full(len(sides), 1 / len(sides))
        counts = generator.multinomial(len(sides), even, size=block.stop - block.start).astype(float)
        parts.append(_maximum(sides, evidence, counts, len(contestants))[0])
    drawn = np.concatenate(parts)
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(drawn, ends, axis=0)
    rank_low, rank_high = np.quantile(_ranks(drawn), ends, axis=0, method="nearest")
    played = (wins + wins.T).sum(axis=1)
    table = pd.DataFrame(
        {
            "contestant": contestants,
            "strength": strength,
            "low": low,
            "high": high,
            "rank": _ranks(strength),
            "rank_low": rank_low.astype(int),
            "rank_high": rank_high.astype(int),
            "pairs": np.round(played).astype(int),
            "wins": wins.sum(axis=1) / played,
        }
    )
    return table.sort_values("strength", ascending=False, ignore_index=True)


def _maximum(
    sides: Int[np.ndarray, "pair 2"],
    evidence: Float[np.ndarray, " pair"],
    counts: Float[np.ndarray, "draw pair"],
    size: int,
    *,
    most_rounds: int = 500,
    tolerance: float = 1e-6,
) -> tuple[Float[np.ndarray, "draw contestant"], Wins]:
    """The strengths by EM, and the expected wins, for several numbers of how often each pair occurs."""
    found = np.zeros((len(counts), size))
    cells = np.arange(len(counts))[:, None] * size**2
    first, second = (cells + sides @ order for order in (np.array([size, 1]), np.array([1, size])))
    for _ in range(most_rounds):
        stop_if_asked()
        chance = expit(evidence + found[:, sides[:, 0]] - found[:, sides[:, 1]])
        left, right = (
            np.bincount(place.ravel(), (counts * part).ravel(), len(counts) * size**2)
            for place, part in ((first, chance), (second, 1 - chance))
        )
        wins = (left + right).reshape(-1, size, size)
        before, found = found, strengths(wins, start=found)
        if np.abs(found - before).max() < tolerance:
            break
    return found, wins


def strengths(
    wins: Wins,
    *,
    start: Float[np.ndarray, "*draw contestant"] | None = None,
    most_rounds: int = 100,
    tolerance: float = 1e-10,
) -> Float[np.ndarray, "*draw contestant"]:
    """Bradley–Terry strengths at the maximum of the likelihood, by Newton's method, for many tables of wins at once.

    Args:
        wins: How often each contestant won against each other one; fractions are possible.
        start: Where to begin; by default all are equal.
        most_rounds: Limit on the number of steps.
        tolerance: The longest step at which the maximum is reached.
    """
    games, size = wins + np.swapaxes(wins, -1, -2), wins.shape[-1]
    found = np.zeros(wins.shape[:-1]) if start is None else start

    def objective(strength: np.ndarray) -> np.ndarray:
        apart = strength[..., :, None] - strength[..., None, :]
        virtual = -0.5 * (np.logaddexp(0, strength) + np.logaddexp(0, -strength)).sum(axis=-1)
        return virtual - (wins * np.logaddexp(0, -apart)).sum(axis=(-1, -2))

    for _ in range(most_rounds):
        chance = expit(found[..., :, None] - found[..., None, :])
        slope = wins.sum(axis=-1) - (games * chance).sum(axis=-1) + 0.5 - expit(found)
        weight = games * chance * (1 - chance)
        curvature = (weight.sum(axis=-1) + expit(found) * expit(-found))[..., None] * np.eye(size) - weight
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        if np.abs(step).max() < tolerance:
            break
        # the likelihood is concave: a step that overshoots is halved until it gains
        while (worse := objective(found + step) < objective(found) - tolerance).any():
            step = np.where(worse[..., None], step / 2, step)
        found = found + step
    return found


def _ranks(strength: Float[np.ndarray, "*draw contestant"]) -> Int[np.ndarray, "*draw contestant"]:
    return 1 + (strength[..., None, :] > strength[..., :, None]).sum(axis=-1)


def _pairs_of(fit: Fit, pairs: Pairs) -> list[tuple[Any, Any]]:
    """The pair of each item of the fit."""
    if isinstance(pairs, pd.DataFrame):
        absent = [name for name in ("item", "left", "right") if name not in pairs.columns]
        if absent:
            raise VotesError(f"there is no column {absent[0]!r} in the pairs; the columns are {listed(pairs.columns)}")
        pairs = {item: (one, other) for item, one, other in pairs[["item", "left", "right"]].itertuples(index=False)}
    if isinstance(pairs, Mapping):
        known = {str(name): pair for name, pair in pairs.items()}  # 1 and "1" are the same name
        lacking = [name for name in fit.item_names if str(name) not in known]
        if lacking:
            raise VotesError(f"item {listed(lacking[:1])} has no pair: give (left, right) of every item of the fit")
        return [known[str(name)] for name in fit.item_names]
    if len(pairs) != len(fit.item_names):
        raise VotesError(f"there are {len(pairs)} pairs, but {len(fit.item_names)} items: give one pair per item")
    return list(pairs)


def _contestants(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], Int[np.ndarray, "pair 2"]]:
    """The contestants in the order in which they occur, and the two of each pair."""
    for one, other in pairs:
        if one == other:
            raise VotesError(f"{listed([one])} is paired with itself: leave such items out")
    places: dict[Any, int] = {
        name: place for place, name in enumerate(dict.fromkeys(side for pair in pairs for side in pair))
    }
    return [*places], np.array([[places[one], places[other]] for one, other in pairs])
