"""Which worlds the votes, and perhaps gold labels, leave possible, and how much each is to be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from scipy.special import softmax

from latentens.recommendation.worlds import FittedWorld, PerItem
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.text import probability_text

CLEAR = 3.0
"""A world is ruled out if it predicts worse than the best one by more standard errors than this, …"""

LEAST_DIFFERENCE = 4.0
"""… and by more nats than this, below which standard errors of such differences cannot be relied on."""

BOOTSTRAP_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the votes, and perhaps gold labels, say about a world.

    Attributes:
        difference: Its held-out log-likelihood less that of the best world, in nats.
        error: The standard error of that difference.
        weight: Its share of the belief in the worlds that are not ruled out.
        ruled_out: Why it is ruled out; empty where it is not.
    """

    difference: float
    error: float
    weight: float
    ruled_out: str


def contenders(worlds: Sequence[FittedWorld]) -> set[str]:
    """The names of the worlds that predict votes no worse than another, as far as can be told."""
    return {name for name, words in _behind(_held_out(worlds)).items() if not words}


def judge(worlds: Sequence[FittedWorld], gold: Mapping[str, PerItem], key: jax.Array) -> dict[str, Verdict]:
    """What votes and gold labels say about each world.

    A world is ruled out if another one predicts votes that neither has seen clearly better, or if it predicts them no
    better than the simplest of those left that the votes do not contradict: what it adds is then nothing that these
    votes tell. Gold labels count for more than votes: they rule out worlds that predict them clearly worse than another
    one, and bring back a world that the votes ruled out where it predicts them clearly better than all that are left.
    Of those left, worlds that the votes contradict and worlds whose label is not identified are ruled out too: what
    methods do on their twins says nothing about these votes. It may be that none is left.

    Args:
        worlds: The fitted worlds, at least one.
        gold: The log-probability of each gold label by world; empty without gold labels.
        key: Random key of the bootstrap behind the weights (pseudo-BMA+, Yao et al. 2018).
    """
    held_out = _held_out(worlds)
    best = _best(held_out)
    ruled_out = _behind(held_out)
    ruled_out |= _superfluous([world for world in worlds if ruled_out.get(world.name) == ""], held_out)
    if gold:
        ruled_out = _with_gold(ruled_out, gold)
    ruled_out |= {world.name: words for world in worlds if ruled_out.get(world.name) == "" and (words := _unfit(world))}
    weights = _weights(held_out, gold, [name for name, words in ruled_out.items() if not words], key)
    verdicts = {}
    for name, values in held_out.items():
        difference, error = _difference(values, held_out[best])
        verdicts[name] = Verdict(difference, error, weights.get(name, 0.0), ruled_out[name])
    return verdicts


def _held_out(worlds: Sequence[FittedWorld]) -> dict[str, PerItem]:
    return {world.name: world.held_out for world in worlds if world.held_out is not None}


def _best(predicted: Mapping[str, PerItem]) -> str:
    return max(predicted, key=lambda name: predicted[name].sum())


def _behind(held_out: Mapping[str, PerItem]) -> dict[str, str]:
    """Why each world is ruled out by the votes it predicts; empty where it is not."""
    best = _best(held_out)
    return {name: _clearly_worse(values, held_out[best], best, "votes") for name, values in held_out.items()}


def _superfluous(worlds: Sequence[FittedWorld], held_out: Mapping[str, PerItem]) -> dict[str, str]:
    """Which of these worlds predict votes no better than the simplest, which has the fewest parameters."""
    sound = [world for world in worlds if not _unfit(world)]
    simplest = min(sound or worlds, key=lambda world: world.num_parameters)
    return {
        world.name: f"predicts votes no better than {simplest.name}, which is simpler"
        for world in worlds
        if world.num_parameters > simplest.num_parameters
        and not _clearly_worse(held_out[simplest.name], held_out[world.name], world.name, "votes")
    }


def _unfit(world: FittedWorld) -> str:
    """Why twins of a world tell nothing about these votes, however well it predicts them; empty where they do."""
    if world.open_label:
        return f"leaves the label open: {world.open_label}"
    return f"is contradicted by the votes ({probability_text(world.check_p_value)})" if world.contradicted else ""


def _with_gold(ruled_out: Mapping[str, str], gold: Mapping[str, PerItem]) -> dict[str, str]:
    left = [name for name, words in ruled_out.items() if not words]
    favourite = _best(gold)
    worse = {name: _clearly_worse(gold[name], gold[favourite], favourite, "gold labels") for name in left}
    if favourite not in left and not all(worse.values()):  # it is not clear that the votes were wrong about it
        favourite = max(left, key=lambda name: gold[name].sum())
        worse = {name: _clearly_worse(gold[name], gold[favourite], favourite, "gold labels") for name in left}
    return {**ruled_out, **worse, favourite: ""}


def _difference(values: PerItem, best: PerItem) -> tuple[float, float]:
    gain = values - best
    return float(gain.sum()), float(np.sqrt(len(gain)) * gain.std(ddof=1)) if len(gain) > 1 else np.inf


def _clearly_worse(values: PerItem, best: PerItem, favourite: str, what: str) -> str:
    """Why a world is ruled out by what it predicts; empty where it is not."""
    difference, error = _difference(values, best)
    if -difference <= max(CLEAR * error, LEAST_DIFFERENCE):
        return ""
    return f"predicts {what} worse than {favourite}, by {-difference:,.0f} ± {error:,.0f} nats"


def _weights(
    held_out: Mapping[str, PerItem], gold: Mapping[str, PerItem], names: Sequence[str], key: jax.Array
) -> dict[str, float]:
    """Mean over Bayesian bootstraps of the items of each world's share of the likelihood."""
    if not names:
        return {}
    generator, total = numpy_generator(key), np.zeros((BOOTSTRAP_DRAWS, len(names)))
    for source in (held_out, gold):
        if source:
            values = np.stack([source[name] for name in names], axis=1)
            size = len(values)
            total += size * generator.dirichlet(np.ones(size), BOOTSTRAP_DRAWS) @ values
    return dict(zip(names, softmax(total, axis=1).mean(axis=0).tolist(), strict=True))
