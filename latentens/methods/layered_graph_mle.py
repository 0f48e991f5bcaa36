"""The layered graph fitted from the optimum of the chain label → hidden units → votes."""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import expit

from latentens.methods.base import Arrays, Estimate, GoldCodes, Method, Posterior, nested_fit
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.top_down_mle import TopDownMLE
from latentens.models import LayeredGraph
from latentens.programs.model import GenerativeModel
from latentens.runtime.settings import Count, CountOrZero
from latentens.votes import Votes

BOUNDS = 0.02, 0.98
"""Rates of a start stay between these, so that none is at a bound from the beginning."""

COPIED = 0.9
"""In a start, the weight of the unit above that a unit of a further layer copies."""

UNDETERMINED = "votes do not determine the label above several layers; it is that of the chain where the climb began"


@dataclass(frozen=True)
class LayeredGraphMLE(Method):
    """The model `LayeredGraph` by its likelihood and weak priors, started at the optimum of a chain to its last layer.

    Several layers can have more parameters than the distribution of the last one has cells, so that votes alone do not
    determine the label: it drifts along a ridge of the likelihood. Priors slow that down, and the climb ends early, as
    it soon predicts votes it has not seen no better any more.

    Attributes:
        layers: Sizes of the hidden layers, from the label down; the last has three units or more.
        chain_starts: Random starts of the chain, besides that from an RBM stack.
        iterations: How many are made at most.
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

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return MaximumLikelihood(LayeredGraph(votes.num_voters, self.layers)).posterior(estimate, votes)

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The graph."""
        return LayeredGraph(len(estimate.params["vote_weight"]), self.layers)

    def refit(self, estimate: Estimate) -> MaximumLikelihood:
        """A climb from the estimate."""
        return MaximumLikelihood(self.fitted_model(estimate)).refit(estimate)


def chain_start(model: LayeredGraph, chain: Arrays) -> dict[str, np.ndarray]:
    """A layered graph that is close to a chain Y → H → X of sigmoid links.

    The first layer follows the label as H does, each further one copies the one above, and a vote's probability is the
    linear function of the last layer that is nearest to the chain's.

    Args:
        model: The graph, whose last layer has as many units as H.
        chain: The chain's parameters.
    """
    weights, biases, on = _aligned(chain)
    sensitivity, specificity, weight = _linear_mixture(*_nearest_linear(weights, biases, on, chain["prevalence"]))
    start = {"prevalence": chain["prevalence"], "vote_weight": weight}
    units = np.arange(model.layers[0]) % on.shape[1]
    rates = {"hidden_1_sensitivity": on[1, units, None], "hidden_1_specificity": 1 - on[0, units, None]}
    rates |= {"vote_sensitivity": sensitivity, "vote_specificity": specificity}
    for layer, (parents, nodes) in enumerate(zip(model.layers, model.layers[1:], strict=False), start=2):
        copies = np.full((nodes, parents), (1 - COPIED) / max(parents - 1, 1))
        copies[np.arange(nodes), np.arange(nodes) % parents] = COPIED
        start[f"hidden_{layer}_weight"] = copies / copies.sum(axis=1, keepdims=True)
        rates |= {f"hidden_{layer}_{kind}": np.full((nodes, parents), 0.95) for kind in ("sensitivity", "specificity")}
    return start | {name: np.clip(value, *BOUNDS) for name, value in rates.items()}


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
