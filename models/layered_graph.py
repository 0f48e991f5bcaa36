"""A layered graph: each node is a noisy mixture of its parents in the layer above."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.components import Pair, Prior, even_prevalence, keep_positive, sample_prevalence
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class LayeredGraph(GenerativeModel):
    """Label → hidden layers → voters, with two classes; each node follows one of its parents, chosen at random.

    Density::

        p(x, y) = π_y Σ_h Π_l p(h_l | h_{l−1}) p(x | h_L),  h_0 = y
        P(node i = 1) = Σ_k w_ik (ψ_ik if parent k is 1 else 1 − η_ik) in every layer

    with sensitivities ψ, specificities η and weights w of edges, and shares π of the classes. A weight of zero means
    that there is no edge.

    Plates, in brackets::

        prevalence → label[item] → hidden_1[item, unit] → … → vote[item, voter]
        sensitivity[node, parent], specificity[node, parent], weight[node, parent] → each layer

    The order of the labels is not identified and follows the votes; hidden units can change places and sides.

    Reference: U. Shaham et al. (2016), A deep learning approach to unsupervised ensemble learning, ICML 2016.

    Attributes:
        num_voters: Number of voters.
        layers: Sizes of the hidden layers, from the label down.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for both classes or one for each.
        sensitivity_prior: Concentrations (right, wrong) of the sensitivities' beta prior.
        specificity_prior: Concentrations (right, wrong) of the specificities' beta prior.
        weight_prior: Concentration of the Dirichlet prior of a node's weights.
    """

    num_voters: Count = 15
    layers: tuple[Count, ...] = (5, 5)
    prevalence_prior: Prior = 2.0
    sensitivity_prior: Pair = (4.0, 2.0)
    specificity_prior: Pair = (4.0, 2.0)
    weight_prior: Positive = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (2,))
        keep_positive(self, "sensitivity_prior", (2,))
        keep_positive(self, "specificity_prior", (2,))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then layer by layer down to the votes."""
        shares = sample_prevalence(2, self.prevalence_prior)
        edges = [self._edges(*layer) for layer in self._layers()]
        with numpyro.plate("item", num_items):
            parents = numpyro.sample("label", dist.Bernoulli(shares[1]))[..., None]
            for (name, _, _), (sensitivity, specificity, weight) in zip(self._layers(), edges, strict=True):
                edge_is_one = jnp.where(parents[..., None, :] == 1, sensitivity, 1 - specificity)
                is_one = jnp.sum(weight * edge_is_one, axis=-1).clip(0.0, 1.0)
                obs = votes if name == "vote" else None
                parents = numpyro.sample(name, dist.Bernoulli(is_one).to_event(1), obs=obs)

    def _layers(self) -> list[tuple[str, int, int]]:
        """Name, number of nodes and number of parents of each layer below the label."""
        names = [f"hidden_{i + 1}" for i in range(len(self.layers))]
        return list(zip([*names, "vote"], [*self.layers, self.num_voters], [1, *self.layers], strict=True))

    def _edges(self, name: str, nodes: int, parents: int) -> tuple[Array, Array, Array | float]:
        node = "voter" if name == "vote" else f"{name}_node"
        with numpyro.plate(node, nodes, dim=-2), numpyro.plate(f"{name}_parent", parents, dim=-1):
            sensitivity = numpyro.sample(f"{name}_sensitivity", dist.Beta(*self.sensitivity_prior))
            specificity = numpyro.sample(f"{name}_specificity", dist.Beta(*self.specificity_prior))
        if parents == 1:
            return sensitivity, specificity, 1.0
        with numpyro.plate(node, nodes):
            weight = numpyro.sample(f"{name}_weight", dist.Dirichlet(np.full(parents, self.weight_prior)))
        return sensitivity, specificity, weight

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """The two labels change places, which concerns only the layer below them."""
        sensitivity, specificity = (f"{self._layers()[0][0]}_{rate}" for rate in ("sensitivity", "specificity"))
        rates = {sensitivity: 1 - params[specificity], specificity: 1 - params[sensitivity]}
        return {"prevalence": params["prevalence"][..., order], **rates}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Every edge has ψ uniform on [.6, 1] and η on [.9, 1]; below the first layer it exists with probability .3."""
        params = {"prevalence": even_prevalence(2)}
        for (name, *shape), layer_key in zip(self._layers(), jax.random.split(key, len(self._layers())), strict=True):
            keys = jax.random.split(layer_key, 4)
            params[f"{name}_sensitivity"] = jax.random.uniform(keys[0], shape, minval=0.6, maxval=1.0)
            params[f"{name}_specificity"] = jax.random.uniform(keys[1], shape, minval=0.9, maxval=1.0)
            if shape[1] > 1:
                exists = jax.random.bernoulli(keys[2], 0.3, shape)
                exists |= ~exists.any(axis=1, keepdims=True)  # a node without parent keeps all its edges
                weight = exists * jax.random.uniform(keys[3], shape)
                params[f"{name}_weight"] = weight / weight.sum(axis=1, keepdims=True)
        return params
