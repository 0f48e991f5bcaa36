"""The chain label → hidden units → votes at one of its optima, and the layered graph fitted from there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import expit, logsumexp, softmax

from latentens.errors import SettingError, VotesError
from latentens.inference.identification import fits_about_as_well
from latentens.inference.optimise import group_starts
from latentens.inference.orient import orientation
from latentens.methods.base import Arrays, Estimate, GoldCodes, Posterior, nested_fit
from latentens.methods.maximum_likelihood import MaximumLikelihood, ProgramMethod
from latentens.methods.rbm_stack import RBMStack
from latentens.models import DawidSkene, LayeredGraph, TopDown
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import num_parameters
from latentens.programs.rows import Rows
from latentens.rbm.exact import ExactTraining
from latentens.rbm.lemma import rbm_to_dawid_skene
from latentens.rbm.rows import sizes_from_votes
from latentens.rbm.width import FEWEST
from latentens.runtime.numerics import entropy
from latentens.runtime.settings import Count, CountOrZero, Positive
from latentens.votes import Votes


class ChainOptimum(NamedTuple):
    """An optimum that some starts of a chain reach.

    Attributes:
        size: Number of hidden units.
        params: The parameters.
        num_parameters: How many there are.
        log_likelihood: That of each item.
        label_probs: The posterior of each item's label, in the order that the votes say.
    """

    size: int
    params: Params
    num_parameters: int
    log_likelihood: Float[np.ndarray, " item"]
    label_probs: Posterior

    def criterion(self, penalty: float) -> float:
        """Twice the negative log-likelihood, and a penalty for each parameter."""
        return penalty * self.num_parameters - 2 * float(self.log_likelihood.sum())

    @property
    def aic(self) -> float:
        """Akaike's criterion: what the chain is expected to lose on new items."""
        return self.criterion(2.0)

    @property
    def bic(self) -> float:
        """Schwarz's criterion."""
        return self.criterion(np.log(len(self.log_likelihood)))

    @property
    def hannan_quinn(self) -> float:
        """The criterion of Hannan and Quinn: the least penalty that finds the true size as items grow in number."""
        return self.criterion(2 * np.log(np.log(max(len(self.log_likelihood), 3))))

    @property
    def labels(self) -> Int[np.ndarray, " item"]:
        """The most probable labels."""
        return self.label_probs.argmax(axis=1)

    @property
    def entropy(self) -> float:
        """Mean entropy of the labels, in nats per item."""
        return float(entropy(self.label_probs).mean())


def chain_optima(
    climb: MaximumLikelihood, size: int, votes: Votes, key: jax.Array, gold: GoldCodes | None = None
) -> list[ChainOptimum]:
    """The distinct optima that the starts of a climb reach.

    Args:
        climb: The climb.
        size: Number of hidden units of its model.
        votes: The votes.
        key: Random key of its starts.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
    """
    rows = Rows.of(climb.model, votes, gold)
    ends = climb.climb(votes, rows, key, gold)
    found = []
    for start, *_ in group_starts(-votes.num_items * ends.losses):
        params = ends.point(start)
        joint = climb.log_joint(params, rows)
        probs, likelihood = softmax(joint, axis=0).T[rows.inverse], logsumexp(joint, axis=0)[rows.inverse]
        number = num_parameters(climb.model)
        found.append(ChainOptimum(size, params, number, likelihood, probs[:, orientation(probs, votes, gold)]))
    return found


def about_as_good(chains: Sequence[ChainOptimum]) -> list[ChainOptimum]:
    """The optima expected to predict about as well as the one with the lowest BIC."""
    best = min(chains, key=lambda chain: chain.bic)
    counts = np.ones(len(best.log_likelihood))
    return [
        chain
        for chain in chains
        if fits_about_as_well(
            best.log_likelihood, chain.log_likelihood, counts, chain.num_parameters - best.num_parameters
        )
    ]


def surest_consensus(chains: Sequence[ChainOptimum]) -> ChainOptimum:
    """The optimum among the most certain quarter whose labels agree most with those of the others in it."""
    surest = sorted(chains, key=lambda chain: chain.entropy)[: math.ceil(len(chains) / 4)]
    return max(surest, key=lambda chain: sum(float(np.mean(chain.labels == other.labels)) for other in surest))


@dataclass(frozen=True)
class TopDownMLE(ProgramMethod):
    """The chain Y → H → X with sigmoid links, fitted by the marginal likelihood and the model's weak priors.

    The number of hidden units is chosen by information criteria; where `DawidSkene`, the model without hidden units,
    has the lower BIC, it is kept. Among the optima that fit about as well, the method chooses one that is certain of
    its labels and agrees with the others that are; `label_change` in the diagnostics is the largest share of labels
    that change at another one.

    Notes:
        Votes do not determine the label above one or two hidden units, so sizes start at three. Sizes grow while AIC
        falls. If the criterion of Hannan and Quinn, and with it BIC, prefers three units to four, no other size is
        tried.

        Where votes only resemble a chain, many optima of several sizes predict them about as well and have different
        labels; which of them is highest is not informative about the label. A label that votes hardly determine
        compensates for misfit of the chain, and one that copies a hidden unit is certain without reason. So of all
        optima that are not clearly behind the one with the lowest BIC (see `fits_about_as_well`) the most certain
        quarter is taken, and of these the one whose labels agree most with the others'. Without the priors the
        likelihood has still more optima, some of them with a label that copies a hidden unit.

    Attributes:
        num_hidden: Number of hidden units, 0 for none; by default chosen as above.
        max_hidden: The largest number that is tried.
        starts: Random starts of each size, besides the start from an RBM stack of that size.
        max_iterations: Limit on the iterations of each start.
        tolerance: Largest entry of the gradient, per item, at convergence.
    """

    num_hidden: CountOrZero | None = None
    max_hidden: CountOrZero = 6
    starts: CountOrZero = 6
    max_iterations: Count = 600
    tolerance: Positive = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_hidden in (1, 2):
            raise SettingError(
                f"TopDownMLE: num_hidden must be 0, 3 or more to determine a label, not {self.num_hidden}"
            )

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        if votes.num_classes > 2:
            raise VotesError(f"TopDownMLE is for two classes, but the votes have {votes.num_classes}: use DawidSkeneEM")
        votes.refuse_repeats("TopDownMLE")
        independent = MaximumLikelihood(_model(votes.num_voters, 0), starts=2)
        without = nested_fit(independent, votes, jax.random.split(jax.random.fold_in(key, 0))[0], gold)
        chains = self._chains(votes, without.diagnostics.extra["bic"], key, gold)
        by_size = {0: without.diagnostics.extra["bic"]}
        for chain in chains:
            by_size[chain.size] = min(chain.bic, by_size.get(chain.size, np.inf))
        if not chains or (self.num_hidden is None and min(by_size, key=lambda size: by_size[size]) == 0):
            return replace(without, diagnostics=without.diagnostics.updated(**_about(votes, 0, by_size)))
        near = about_as_good(chains)
        chosen = surest_consensus(near)
        fit = nested_fit(self._climb(votes, chosen.size, starts=0, initial=chosen.params), votes, key, gold)
        change = max(float(np.mean(chain.labels != chosen.labels)) for chain in near)
        about, words = _about(votes, chosen.size, by_size), [*fit.diagnostics.warnings, *self._limit_warnings(by_size)]
        return replace(fit, diagnostics=fit.diagnostics.updated(**about, label_change=change, warnings=words))

    def _limit_warnings(self, by_size: Mapping[int, float]) -> list[str]:
        """A warning if the criterion still falls at the largest number of hidden units."""
        last = by_size.get(self.max_hidden, np.inf)
        if last >= by_size.get(self.max_hidden - 1, -np.inf):
            return []
        return [
            f"BIC still falls at {self.max_hidden} hidden units, so the votes do not come from such a chain, and what "
            "it takes for the label may be something else"
        ]

    def _chains(self, votes: Votes, without: float, key: Array, gold: GoldCodes | None) -> list[ChainOptimum]:
        """The optima of each size, with more and more hidden units while AIC falls.

        Args:
            votes: The votes.
            without: BIC without hidden units; where that is lower than with three, more are not tried.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        """
        chains: list[ChainOptimum] = []
        sizes = range(FEWEST, self.max_hidden + 1) if self.num_hidden is None else filter(None, (self.num_hidden,))
        for size in sizes:
            fit_key, stack_key = jax.random.split(jax.random.fold_in(key, size))
            climb = self._climb(votes, size, self.starts, _from_stack(votes, size, stack_key))
            found = chain_optima(climb, size, votes, fit_key, gold)
            if size == FEWEST + 1 and _lowest("hannan_quinn", found) > _lowest("hannan_quinn", chains):
                break
            rises = _lowest("aic", found) > _lowest("aic", chains)
            chains += found
            if rises or _lowest("bic", found) > without:
                break
        return chains

    def _climb(self, votes: Votes, size: int, starts: int, initial: Params) -> MaximumLikelihood:
        return MaximumLikelihood(
            _model(votes.num_voters, size),
            starts=starts,
            warm=(),
            initial=(initial,),
            use_prior=True,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The chain of the chosen size; without hidden units, Dawid & Skene's."""
        biases = estimate.params.get("visible_bias", estimate.params.get("confusion", ()))
        return _model(len(biases), len(estimate.params.get("hidden_bias", ())))

    def refit(self, estimate: Estimate) -> MaximumLikelihood:
        """A climb from the estimate, with the chosen size."""
        return MaximumLikelihood(self.fitted_model(estimate), use_prior=True).refit(estimate)


def _lowest(criterion: str, chains: Sequence[ChainOptimum]) -> float:
    return min((getattr(chain, criterion) for chain in chains), default=np.inf)


def _about(votes: Votes, size: int, by_size: dict[int, float]) -> dict[str, Any]:
    sizes = (votes.num_voters, size, 1) if size else (votes.num_voters, 1)
    return {"architecture": sizes, "bic_by_hidden_units": by_size}


def _model(num_voters: int, num_hidden: int) -> DawidSkene | TopDown:
    return TopDown(num_voters, num_hidden) if num_hidden else DawidSkene(num_voters)


def _from_stack(votes: Votes, size: int, key: Array) -> dict[str, np.ndarray]:
    """Parameters from a stack of two machines: the upper one is Dawid–Skene for the hidden units of the lower."""
    rough = ExactTraining(restarts=4, max_iterations=400, tolerance=1e-4)  # the chain's own climb does the rest
    affordable = sizes_from_votes(votes).can_enumerate(size)
    stack = RBMStack(hidden=(size, 1), training=rough if affordable else None)
    lower, upper = stack.train(votes, key=key)
    params = {
        "prevalence": rbm_to_dawid_skene(upper).prevalence,
        "hidden_bias": upper.visible_bias,
        "label_weights": upper.weights[:, 0],
        "visible_bias": lower.visible_bias,
        "weights": lower.weights,
    }
    return {name: np.asarray(value) for name, value in params.items()}


UNDETERMINED = "the votes do not determine the label of a graph of several layers: it is that of the chain at the start"


@dataclass(frozen=True)
class LayeredGraphMLE(ProgramMethod):
    """The model `LayeredGraph` by its likelihood and weak priors, started at the optimum of a chain to its last layer.

    Several layers can have more parameters than the distribution of the last one has cells, so that votes alone do not
    determine the label: it drifts along a ridge of the likelihood. Priors slow this down, and the climb stops early,
    since further iterations do not improve the prediction of new votes.

    Attributes:
        layers: Sizes of the hidden layers, from the label down; the last has three units or more.
        chain_starts: Random starts of the chain, besides that from an RBM stack.
        iterations: Limit on the iterations of the climb.
    """

    layers: tuple[Count, ...] = (5, 5)
    chain_starts: CountOrZero = 0
    iterations: Count = 40

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        chain_key, fit_key = jax.random.split(key)
        model = LayeredGraph(votes.num_voters, self.layers)
        chain = nested_fit(TopDownMLE(num_hidden=self.layers[-1], starts=self.chain_starts), votes, chain_key, gold)
        initial = (chain_start(model, chain.params),)
        climb = MaximumLikelihood(
            model,
            starts=0,
            warm=(),
            initial=initial,
            use_prior=True,
            max_iterations=self.iterations,
            tolerance=1e-5,
        )
        fit = nested_fit(climb, votes, fit_key, gold)
        if len(self.layers) == 1:
            return fit
        return replace(fit, diagnostics=fit.diagnostics.updated(warnings=[UNDETERMINED]))

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The graph."""
        return LayeredGraph(len(estimate.params["vote_weight"]), self.layers)


def chain_start(
    model: LayeredGraph, chain: Arrays, *, copied: float = 0.9, margin: float = 0.02
) -> dict[str, np.ndarray]:
    """A layered graph that is close to a chain Y → H → X of sigmoid links.

    The first layer follows the label as H does, each further one copies the one above, and a vote's probability is the
    linear function of the last layer that is nearest to the chain's.

    Args:
        model: The graph, whose last layer has as many units as H.
        chain: The chain's parameters.
        copied: The weight of the unit above that a unit of a further layer copies.
        margin: Distance of all rates from 0 and 1, so that none starts at a bound.
    """
    weights, biases, on = _aligned(chain)
    sensitivity, specificity, weight = _linear_mixture(*_nearest_linear(weights, biases, on, chain["prevalence"]))
    start = {"prevalence": chain["prevalence"], "vote_weight": weight}
    units = np.arange(model.layers[0]) % on.shape[1]
    rates = {"hidden_1_sensitivity": on[1, units, None], "hidden_1_specificity": 1 - on[0, units, None]}
    rates |= {"vote_sensitivity": sensitivity, "vote_specificity": specificity}
    for layer, (parents, nodes) in enumerate(zip(model.layers, model.layers[1:], strict=False), start=2):
        copies = np.full((nodes, parents), (1 - copied) / max(parents - 1, 1))
        copies[np.arange(nodes), np.arange(nodes) % parents] = copied
        start[f"hidden_{layer}_weight"] = copies / copies.sum(axis=1, keepdims=True)
        rates |= {f"hidden_{layer}_{kind}": np.full((nodes, parents), 0.95) for kind in ("sensitivity", "specificity")}
    return start | {name: np.clip(value, margin, 1 - margin) for name, value in rates.items()}


def _aligned(chain: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights and biases of votes, and P(H = 1 | Y), with every unit turned so that it is on where the label is 1."""
    turned = chain["label_weights"] < 0
    sign = np.where(turned, -1.0, 1.0)
    biases = chain["visible_bias"] + chain["weights"][:, turned].sum(axis=1)
    above = sign * chain["hidden_bias"], sign * (chain["hidden_bias"] + chain["label_weights"])
    return sign * chain["weights"], biases, expit(np.stack(above))


def _nearest_linear(
    weights: np.ndarray, biases: np.ndarray, on: Float[np.ndarray, "label unit"], prevalence: np.ndarray
) -> tuple[Float[np.ndarray, " voter"], Float[np.ndarray, "voter unit"]]:
    """Intercepts and slopes of the least-squares fit to P(vote = 1 | H), states weighted by their probability."""
    states = np.indices((2,) * on.shape[1]).reshape(on.shape[1], -1).T
    given_label = np.prod(np.where(states == 1, on[:, None], 1 - on[:, None]), axis=2)
    root = np.sqrt(prevalence @ given_label)[:, None]
    design = np.column_stack([np.ones(len(states)), states])
    found = np.linalg.lstsq(root * design, root * expit(biases + states @ weights.T), rcond=None)[0]
    return found[0], found[1:].T


def _linear_mixture(
    intercepts: Float[np.ndarray, " voter"], slopes: Float[np.ndarray, "voter unit"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sensitivity, specificity and weight of every edge such that the mixture of the edges is the linear function."""
    size = np.abs(slopes) + 0.01 / slopes.shape[1]  # no edge is cut for good
    total = np.abs(slopes).sum(axis=1, keepdims=True)
    weight = size / size.sum(axis=1, keepdims=True)
    base = intercepts[:, None] - total * np.sum(weight * (slopes < 0), axis=1, keepdims=True)
    if_off, if_on = base + total * (slopes < 0), base + total * (slopes >= 0)
    return if_on, 1 - if_off, weight
