"""Maximum likelihood, or the posterior mode, of any generative program."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints
from scipy.special import logsumexp, softmax

from latentens.errors import LatentensError, SettingError
from latentens.inference.identification import Labelling, label_change
from latentens.inference.independent import gold_posterior
from latentens.inference.modes import Algorithm, find_modes, label_point, prior_starts
from latentens.inference.optimise import Optima, list_optima
from latentens.inference.orient import orientation
from latentens.methods.base import (
    Diagnostics,
    Estimate,
    GoldCodes,
    Method,
    Posterior,
    Predictor,
    model_params,
    nested_fit,
)
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.majority_vote import MajorityVote
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import bayes_posterior, log_likelihood
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import flatten, parameter_supports, transform_of
from latentens.programs.rows import Rows, compiled_program
from latentens.programs.tables import checked_params, emits_other_votes
from latentens.runtime.numerics import key_from, numpy_generator
from latentens.runtime.settings import Count, CountOrZero, PartialShare, Positive, above
from latentens.votes import Votes
from latentens.votes.matching import certain_where_known

AT_BOUND = 1e-6
"""A probability this close to 0 or 1 is reported."""

SLOPE_AT_OPTIMUM = 1e-5
"""Largest entry of the gradient per item that counts as converged."""

FLAT = 1e-9
"""A gain per item below this from every start means that the likelihood is flat."""


@dataclass(frozen=True)
class ModelPredictor(Predictor):
    """Predicts labels by a generative model.

    Attributes:
        model: The generative model.
    """

    model: GenerativeModel

    @property
    def takes_other_votes(self) -> bool:
        """True if votes of the model can be for categories that are not labels."""
        return emits_other_votes(self.model)

    @property
    def takes_grades(self) -> bool:
        """True if votes of the model are grades in order."""
        return self.model.ordered_votes

    @property
    def takes_soft_votes(self) -> bool:
        """True: log-emissions are averaged over a voter's probabilities."""
        return True

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The model that was fitted."""
        del estimate
        return self.model


@dataclass(frozen=True)
class MaximumLikelihood(ModelPredictor, Method):
    """The parameters of a program that make the votes most likely, and the exact posterior of the labels under them.

    Notes:
        Starts run one after the other: those given, those that suit the labels of cheaper methods, and draws from the
        priors. Each ends once it gains next to nothing, or is clearly behind the best before it and would stay so; the
        best then continues until it has converged.

    Attributes:
        model: The generative model.
        algorithm: `lbfgs` climbs the likelihood in unconstrained space, `em` alternates expected counts from the tables
            with an M-step: in closed form where the program has one, else by gradient.
        starts: Number of starts at draws from the priors.
        warm: Cheaper methods; the parameters that suit each one's labels best are a start as well. With gold labels, so
            are those that suit what these alone say.
        initial: Parameters to start from as well.
        use_prior: Whether to maximise the posterior density (MAP) instead of the likelihood.
        held_out: Share of items held out from an additional fit, to report their log-likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: `lbfgs`: largest entry of the gradient per item at convergence; `em`: smallest gain per item.
        at_least: Log-likelihood below which the fit is not needed, as in a choice between models; starts that would
            stay below it are stopped.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.MaximumLikelihood(le.models.OneCoin(5)).fit(votes, key=jax.random.key(0))
        >>> fit.params["accuracy"].round(2)
        array([0.96, 0.84, 0.93, 0.91, 0.64])
    """

    counts_rows = True

    algorithm: Algorithm = "lbfgs"
    starts: CountOrZero = 8
    warm: tuple[Method, ...] = (DawidSkeneEM(0.0, 0.0), MajorityVote())
    initial: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    use_prior: bool = False
    held_out: PartialShare = 0.0
    max_iterations: Count = 2000
    tolerance: Positive | None = None
    at_least: Annotated[float, above(-math.inf)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.starts + len(self.warm) + len(self.initial) < 1:
            raise SettingError("MaximumLikelihood has no start; give starts, warm or initial")

    def climb(self, votes: Votes, rows: Rows, key: jax.Array, gold: GoldCodes | None = None) -> Optima:
        """Where each start ends; the points are parameters, the losses are per item.

        Args:
            votes: The votes.
            rows: What `Rows.of` makes of votes and gold labels.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        """
        generator = numpy_generator(key)
        transform = transform_of(self.model)
        given = [flatten(checked_params(self.model, params), transform.shapes) for params in self.initial]
        drawn = prior_starts(self.model, self.starts, generator)
        beliefs = [nested_fit(method, votes, key_from(generator), gold).label_probs for method in self.warm]
        if gold is not None and structure_of(self.model).num_labels == votes.num_classes:
            beliefs.append(certain_where_known(gold_posterior(votes, gold, votes), gold))
        counts = 1 if votes.counts is None else votes.counts[:, None]
        suited = [label_point(self.model, rows, probs * counts, generator) for probs in beliefs]
        warm = [transform.constrain(point) for point in suited]
        return find_modes(
            self.model,
            rows,
            [*given, *warm, *drawn],
            algorithm=self.algorithm,
            use_prior=self.use_prior,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
            at_least=self.at_least,
        )

    def log_joint(self, params: Params, rows: Rows) -> Float[np.ndarray, "label row"]:
        """`log p(label, votes)` of each row at some parameters, −∞ for a label that is known to be another."""
        program = compiled_program(self.model, self.use_prior)  # the one that the climb has compiled
        return rows.label_log_joint(program(flatten(params, program.shapes)).tables)

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        rows = Rows.of(self.model, votes, gold)
        optima = self.climb(votes, rows, key, gold)
        found = optima.point(optima.best)
        joint = self.log_joint(found, rows)
        total = float(rows.counts @ logsumexp(joint, axis=0))
        change = self.label_change(optima, votes, rows, gold)
        diagnostics = self._report(optima, found, total, change, votes.num_cases)
        diagnostics = diagnostics.updated(**self._held_out(votes, gold, key))
        return Estimate(found, diagnostics, label_probs=softmax(joint, axis=0).T[rows.inverse])

    def label_change(self, optima: Optima, votes: Votes, rows: Rows, gold: GoldCodes | None) -> float:
        """The largest share of labels that change where another start ended, if that fits about as well.

        Starts of the same likelihood count too: they may have come to different places on a ridge.
        """

        def labelling(start: int) -> Labelling:
            joint = self.log_joint(optima.point(start), rows)
            if not self.model.anchored:
                joint = joint[orientation(softmax(joint, axis=0).T[rows.inverse], votes, gold)]
            return Labelling(logsumexp(joint, axis=0), joint.argmax(axis=0))

        best, *others = map(labelling, np.argsort(optima.losses, kind="stable").tolist())
        return max((label_change(best, other, rows.counts) for other in others), default=0.0)

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return bayes_posterior(self.model, estimate.params, votes)

    @property
    def maximises_posterior(self) -> bool:
        return self.use_prior

    def refit(self, estimate: Estimate, tolerance: float = 1e-5) -> "MaximumLikelihood":
        """A climb from the estimate alone."""
        params = model_params(self.model, estimate)
        return replace(self, starts=0, warm=(), initial=(params,), tolerance=self.tolerance or tolerance)

    def _report(self, optima: Optima, params: Params, likelihood: float, change: float, num_items: int) -> Diagnostics:
        dimension = sum(math.prod(shape) for shape in transform_of(self.model).point_shapes.values())
        best = optima.best
        objectives = -num_items * optima.losses
        return Diagnostics(
            "exact posterior at the estimated parameters",
            log_likelihood=likelihood,
            iterations=int(optima.iterations[best]),
            converged=bool(optima.slopes[best] <= SLOPE_AT_OPTIMUM),
            label_change=change,
            warnings=_warnings(self.model, params, optima, len(self.initial)),
            extra={
                "objective": float(objectives[best]),
                "aic": 2 * dimension - 2 * likelihood,
                "bic": dimension * np.log(num_items) - 2 * likelihood,
                "num_parameters": dimension,
                "gradient": float(optima.slopes[best]),
                "optima": list_optima(objectives),
                "curve": -num_items * optima.curves[best],
            },
        )

    def _held_out(self, votes: Votes, gold: GoldCodes | None, key: Array) -> dict[str, float]:
        """The log-likelihood per item of items held out from an additional fit."""
        if not self.held_out:
            return {}
        generator = numpy_generator(key)
        chosen = kept_back(votes, self.held_out, generator)
        remaining = (1 if votes.counts is None else votes.counts) - chosen
        used = np.flatnonzero(remaining)
        if len(used) == 0:
            raise LatentensError(f"{votes.num_cases} items are too few to hold out {self.held_out:.0%} of them")
        known = None if gold is None else gold[used]
        fitted = nested_fit(replace(self, held_out=0.0), _counted(votes, remaining), key_from(generator), known)
        unseen = _counted(votes, chosen)
        return {"held_out_log_likelihood": log_likelihood(self.model, fitted.params, unseen) / unseen.num_cases}


class ProgramMethod(Method):
    """A method that chooses a program by the votes, `fitted_model`, and fits it by `MaximumLikelihood`."""

    @abstractmethod
    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The program that was chosen."""

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        model = self.fitted_model(estimate)
        return bayes_posterior(model, model_params(model, estimate), votes)

    def refit(self, estimate: Estimate) -> MaximumLikelihood:
        """A climb from the estimate, with the program that was chosen."""
        return MaximumLikelihood(self.fitted_model(estimate)).refit(estimate)


def kept_back(votes: Votes, share: float, generator: np.random.Generator) -> Int[np.ndarray, " item"]:
    """The number of items of each row that are held out: a random share of all items."""
    number = max(1, round(share * votes.num_cases))
    if votes.counts is not None:  # rows are split up: a model that has seen no item of a row would be misjudged
        return generator.multivariate_hypergeometric(votes.counts, number, method="marginals")
    return np.bincount(generator.permutation(votes.num_items)[:number], minlength=votes.num_items)


def _counted(votes: Votes, counts: Int[np.ndarray, " item"]) -> Votes:
    """The rows with a positive count; if each item has its own row, these items."""
    chosen = np.flatnonzero(counts)
    return votes.take(chosen) if votes.counts is None else replace(votes, counts=counts).take(chosen)


def _warnings(model: GenerativeModel, params: Params, optima: Optima, num_given: int) -> list[str]:
    """Warnings about an optimum; starts given by the user may have been optima and are not tested for gains."""
    found, best = [], optima.best
    slope, iterations = optima.slopes[best], optima.iterations[best]
    if max((curve[0] - curve[-1] for curve in optima.curves[num_given:]), default=np.inf) < FLAT:
        found.append(
            "the likelihood is flat: no start improved, so the votes carry no information about the parameters"
        )
    if slope > SLOPE_AT_OPTIMUM:
        found.append(f"not converged: the gradient is {slope:.1e} per item after {iterations} iterations")
    for name, support in parameter_supports(model).items():
        if support in (constraints.unit_interval, constraints.simplex):
            found += _bound_warnings(name, np.asarray(params[name]))
    return found


def _bound_warnings(name: str, value: np.ndarray, most_listed: int = 3) -> list[str]:
    """The elements of a parameter that are at a bound, or their number if it is large."""
    at_bound = np.argwhere((value < AT_BOUND) | (value > 1 - AT_BOUND))
    if len(at_bound) > most_listed:
        return [f"{len(at_bound):,} of the {value.size:,} elements of {name} are at their bounds, 0 or 1"]
    return [
        f"{name}{list(map(int, index)) if index.size else ''} is at its bound, {value[tuple(index)]:.0f}"
        for index in at_bound
    ]
