"""Maximum likelihood, or the posterior mode, of any generative program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints
from scipy.special import logsumexp, softmax

from latentens.datasets.dataset import certain_where_known
from latentens.errors import LatentensError, SettingError
from latentens.inference.costly import is_costly, screen
from latentens.inference.em import Expectation
from latentens.inference.optima import list_optima
from latentens.inference.optimise import Optima, continued, minimise, stack
from latentens.inference.orient import orientation
from latentens.inference.program_losses import MarginalLoss, towards_labels
from latentens.inference.stability import Labelling, label_change, label_warnings
from latentens.methods.base import Estimate, GoldCodes, Method, Posterior, fit_known
from latentens.methods.independent.likelihood import gold_posterior
from latentens.methods.majority_vote import MajorityVote
from latentens.programs.contract import inspect
from latentens.programs.marginal import (
    Observations,
    label_log_joint,
    observe,
    parameter_supports,
    to_params,
    to_point,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.start_points import draw_starts, normal_start
from latentens.programs.tables import (
    bayes_posterior,
    build_tables,
    checked_params,
    checked_tables,
    log_likelihood,
)
from latentens.runtime.devices import fetch, shard_rows
from latentens.runtime.randomness import numpy_generator
from latentens.runtime.settings import Count, CountOrZero, PartialShare, Positive
from latentens.votes import Votes

APPROACH = 100, 1e-7
"""Before gradients on costly votes: the most rounds of EM, and the gain per item below which they end."""

LEAST_GAIN = 1e-7
"""A start on costly votes ends too when twenty iterations gain less than this per item."""

AT_BOUND = 1e-6
"""A probability this close to 0 or 1 is reported."""

LISTED = 20
"""More elements of a parameter at their bounds than this are only counted."""

SLOPE_AT_OPTIMUM = 1e-5
"""Largest entry of the gradient per item that counts as converged."""

FLAT = 1e-9
"""A gain per item below this from every start means that the likelihood is flat."""


@dataclass(frozen=True)
class MaximumLikelihood(Method):
    """The parameters of a program that make the votes most likely, and the exact posterior of the labels under them.

    Attributes:
        model: The generative model.
        algorithm: `lbfgs` climbs the likelihood in unconstrained space, `em` alternates expected counts from the tables
            with an M-step: in closed form where the program has one, else by gradient.
        starts: Number of starts at draws from the priors. Where the votes are so many that a gradient takes long, all
            starts but those of `initial` compete on a sample first, and two go on: by rounds of EM if these have a
            closed form, then by gradient, which also ends when twenty iterations gain less than 1e-7 per item.
        warm: Cheaper methods; the parameters that suit each one's labels best are a start as well. With gold labels, so
            are those that suit what these alone say.
        initial: Parameters to start from as well.
        use_prior: Whether to maximise the posterior density (MAP) in place of the likelihood.
        held_out: Share of the items that are kept back in a fit of their own, to report their log-likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: `lbfgs`: largest entry of the gradient per item at convergence; `em`: smallest gain per item.
    """

    counts_rows = True

    model: GenerativeModel
    algorithm: Literal["lbfgs", "em"] = "lbfgs"
    starts: CountOrZero = 8
    warm: tuple[Method, ...] = (MajorityVote(),)
    initial: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    use_prior: bool = False
    held_out: PartialShare = 0.0
    max_iterations: Count = 2000
    tolerance: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.starts + len(self.warm) + len(self.initial) < 1:
            raise SettingError("MaximumLikelihood has no start; give starts, warm or initial")

    def climb(
        self,
        votes: Votes,
        observations: Observations,
        inverse: np.ndarray,
        key: jax.Array,
        gold: GoldCodes | None = None,
    ) -> Optima:
        """Where each start ends; the points are parameters, the losses are per item.

        Args:
            votes: The votes.
            observations: What `observe` makes of votes and gold labels.
            inverse: The row of each item, likewise.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        """
        starts = self._starts(votes, observations, inverse, key, gold)
        checked_tables(self.model, starts[0])
        return self._optimise(starts, observations)

    def _fit(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        observations, inverse = observe(self.model, votes, gold)
        start_key, split_key = jax.random.split(key)
        optima = self.climb(votes, observations, inverse, start_key, gold)
        found = optima.point(optima.best)
        joint = fetch(rows_log_joint(self.model, found, observations))
        total = float(fetch(observations.counts) @ logsumexp(joint, axis=0))
        change = self._label_change(optima, votes, observations, inverse, gold)
        diagnostics = self._report(optima, found, total, change, votes.num_cases)
        diagnostics |= self._held_out(votes, gold, split_key)
        return Estimate(found, diagnostics, label_probs=softmax(joint, axis=0).T[inverse])

    def _label_change(
        self,
        optima: Optima,
        votes: Votes,
        observations: Observations,
        inverse: Int[np.ndarray, " item"],
        gold: GoldCodes | None,
    ) -> float:
        """The largest share of labels that change where another start ended, if that fits about as well.

        Starts of the same likelihood count too: they may have come to different places on a ridge.
        """
        counts = fetch(observations.counts)

        def labelling(start: int) -> Labelling:
            joint = fetch(rows_log_joint(self.model, optima.point(start), observations))
            if not self.model.anchored:
                joint = joint[orientation(softmax(joint, axis=0).T[inverse], votes, gold)]
            return Labelling(logsumexp(joint, axis=0), joint.argmax(axis=0))

        best, *others = map(labelling, np.argsort(optima.losses, kind="stable").tolist())
        return max((label_change(best, other, counts) for other in others), default=0.0)

    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        return bayes_posterior(self.model, estimate.params, votes)

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The model that was fitted."""
        del estimate
        return self.model

    def _starts(
        self, votes: Votes, observations: Observations, inverse: np.ndarray, key: Array, gold: GoldCodes | None
    ) -> list[dict[str, np.ndarray]]:
        drawn_key, warm_key = jax.random.split(key)
        points = draw_starts(self.model, drawn_key, self.starts) if self.starts else []
        keys = [jax.random.split(jax.random.fold_in(warm_key, i)) for i in range(len(self.warm) + 1)]
        beliefs = [
            fit_known(method, votes, pair[0], gold).label_probs for method, pair in zip(self.warm, keys, strict=False)
        ]
        if gold is not None and inspect(self.model).num_labels == votes.num_classes:
            beliefs.append(certain_where_known(gold_posterior(votes, gold, votes), gold))
        for probs, (_, point_key) in zip(beliefs, keys, strict=False):
            probs = probs if votes.counts is None else probs * votes.counts[:, None]
            size = len(observations.counts)
            totals = shard_rows(np.stack([np.bincount(inverse, column, minlength=size) for column in probs.T]))
            points.append(towards_labels(self.model, observations, totals, normal_start(self.model, point_key)))
        given = [checked_params(self.model, params) for params in self.initial]
        return given + [to_params(self.model, point) for point in points]

    def _optimise(self, starts: list[dict[str, np.ndarray]], observations: Observations) -> Optima:
        """Maximise from every start; the points of the result are parameters."""
        if self.algorithm == "em":
            return Expectation(self.model, self.use_prior, self.max_iterations, self.tolerance or 1e-10).maximise(
                starts, observations
            )
        loss, costly, before = MarginalLoss(self.model, self.use_prior), is_costly(self.model, observations), None
        if costly:
            starts = self._survivors(loss, starts, observations)
            before = Expectation(self.model, self.use_prior, *APPROACH).approach(starts, observations)
        if before is not None:
            starts = [before.point(i) for i in range(len(starts))]
        optima = minimise(
            loss,
            [to_point(self.model, params) for params in starts],
            observations,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance or 1e-7,
            description="maximum likelihood",
            least_gain=LEAST_GAIN if costly else 0.0,
        )
        params = [to_params(self.model, optima.point(i)) for i in range(len(starts))]
        optima = optima._replace(points=stack(params))
        return optima if before is None else continued(before, optima)

    def _survivors(
        self, loss: MarginalLoss, starts: list[dict[str, np.ndarray]], observations: Observations
    ) -> list[dict[str, np.ndarray]]:
        """The starts that were given, and the best of the others after a few iterations on a sample."""
        given, others = starts[: len(self.initial)], starts[len(self.initial) :]
        kept = screen(loss, [to_point(self.model, params) for params in others], observations)
        return given + [others[i] for i in kept]

    def _report(
        self, optima: Optima, params: Params, likelihood: float, change: float, num_items: int
    ) -> dict[str, Any]:
        dimension = sum(np.size(leaf) for leaf in to_point(self.model, params).values())
        best = optima.best
        objectives = -num_items * optima.losses
        return {
            "label_probs": "exact posterior at the estimated parameters",
            "log_likelihood": likelihood,
            "objective": float(objectives[best]),
            "aic": 2 * dimension - 2 * likelihood,
            "bic": dimension * np.log(num_items) - 2 * likelihood,
            "num_parameters": dimension,
            "iterations": int(optima.iterations[best]),
            "gradient": float(optima.slopes[best]),
            "converged": bool(optima.slopes[best] <= SLOPE_AT_OPTIMUM),
            "optima": list_optima(objectives),
            "curve": -num_items * optima.curves[best],
            "label_change": change,
            "warnings": _warnings(self.model, params, optima, len(self.initial)) + label_warnings(change),
        }

    def _held_out(self, votes: Votes, gold: GoldCodes | None, key: Array) -> dict[str, float]:
        """Log-likelihood per item of items that a fit of its own did not see."""
        if not self.held_out:
            return {}
        split_key, fit_key = jax.random.split(key)
        chosen = kept_back(votes, self.held_out, split_key)
        remaining = (1 if votes.counts is None else votes.counts) - chosen
        used = np.flatnonzero(remaining)
        if len(used) == 0:
            raise LatentensError(f"{votes.num_cases} items are too few to keep {self.held_out:.0%} of them back")
        known = None if gold is None else gold[used]
        fitted = fit_known(replace(self, held_out=0.0), _counted(votes, remaining), fit_key, known)
        unseen = _counted(votes, chosen)
        return {"held_out_log_likelihood": log_likelihood(self.model, fitted.params, unseen) / unseen.num_cases}


def kept_back(votes: Votes, share: float, key: Array) -> Int[np.ndarray, " item"]:
    """How many of the items that each row of the votes stands for are kept back: a random share of all items."""
    number = max(1, round(share * votes.num_cases))
    generator = numpy_generator(key)
    if votes.counts is not None:  # rows are split up: a model that has seen no item of a row would be misjudged
        return generator.multivariate_hypergeometric(votes.counts, number, method="marginals")
    return np.bincount(generator.permutation(votes.num_items)[:number], minlength=votes.num_items)


def _counted(votes: Votes, counts: Int[np.ndarray, " item"]) -> Votes:
    """The rows that stand for some items yet; where each item has a row of its own, these items."""
    chosen = np.flatnonzero(counts)
    return votes.take(chosen) if votes.counts is None else replace(votes, counts=counts).take(chosen)


def _warnings(model: GenerativeModel, params: Params, optima: Optima, num_given: int) -> list[str]:
    """What to say of an optimum; the first starts were given, and may have been optima themselves."""
    found, best = [], optima.best
    slope, iterations = optima.slopes[best], optima.iterations[best]
    if max((curve[0] - curve[-1] for curve in optima.curves[num_given:]), default=np.inf) < FLAT:
        found.append(
            "the likelihood is flat: no start could improve on itself, so the votes say nothing about the parameters"
        )
    if slope > SLOPE_AT_OPTIMUM:
        found.append(f"not converged: the gradient is {slope:.1e} per item after {iterations} iterations")
    for name, support in parameter_supports(model).items():
        if support in (constraints.unit_interval, constraints.simplex):
            found += _bound_warnings(name, np.asarray(params[name]))
    return found


def _bound_warnings(name: str, value: np.ndarray) -> list[str]:
    """Which elements of a parameter are at a bound, or how many if they are many."""
    at_bound = np.argwhere((value < AT_BOUND) | (value > 1 - AT_BOUND))
    if len(at_bound) > LISTED:
        return [f"{len(at_bound):,} of the {value.size:,} elements of {name} are at their bounds, 0 or 1"]
    return [
        f"{name}{list(map(int, index)) if index.size else ''} is at its bound, {value[tuple(index)]:.0f}"
        for index in at_bound
    ]


@partial(jax.jit, static_argnums=0)
def rows_log_joint(model: GenerativeModel, params: Any, observations: Observations) -> Float[Array, "label row"]:
    """`label_log_joint` at some parameters, compiled."""
    return label_log_joint(build_tables(model, params), observations)
