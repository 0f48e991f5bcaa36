"""Dawid–Skene with voters drawn around a population: partial pooling."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.components import (
    Categories,
    Classes,
    Prior,
    check_categories,
    even_prevalence,
    keep_normal,
    keep_positive,
    sample_prevalence,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class HierarchicalDawidSkene(GenerativeModel):
    """Confusion matrices vary around those of a population, so that voters with few votes borrow from the others.

    Density::

        p(x, y) = π_y Π_j θ_j[y, x_j],  θ_j[k] = softmax(μ[k] + τ[k] z_j[k])

    of voters j with standard normal deviations z_j from a population μ, spread τ (all of them label, vote), and shares
    π of the classes.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← deviation[voter]
        population, spread → vote

    The order of the labels is not identified and follows the votes. The logits of a row are identified up to a
    constant, which the priors settle. Pooling comes from the priors, so fit by `Nuts`: the posterior mode
    (`use_prior=True`) pools too little, and maximum likelihood without priors is that of `DawidSkene`.

    Reference: S. Paun, B. Carpenter, J. Chamberlain, D. Hovy, U. Kruschwitz & M. Poesio (2018), Comparing Bayesian
    models of annotation, Transactions of the Association for Computational Linguistics 6, 571–585.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        population_prior: Mean and standard deviation of the population's normal prior for each label and vote, (label,
            vote, 2); by default the mean is log(K + 1) for the right one of K votes and 0 for others, the deviation 1.
        spread_prior: Scale of the half-normal prior of the spread.
        num_categories: Number of different votes, if there are others than for classes, such as "tie": the first K are
            for the classes.
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    population_prior: Prior | None = None
    spread_prior: Positive = 1.0
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_normal(self, "population_prior", self._shape)

    @property
    def _shape(self) -> tuple[int, int]:
        """Number of labels and of different votes."""
        return self.num_classes, check_categories(self.num_classes, self.num_categories, self)

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shape = self._shape
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        prior = self._default_population() if self.population_prior is None else np.asarray(self.population_prior)
        population = numpyro.sample("population", dist.Normal(prior[..., 0], prior[..., 1]).to_event(2))
        spread = numpyro.sample("spread", dist.HalfNormal(self.spread_prior).expand(shape).to_event(2))
        with numpyro.plate("voter", self.num_voters):
            deviation = numpyro.sample("deviation", dist.Normal().expand(shape).to_event(2))
        logits = (population + spread * deviation).swapaxes(0, 1)
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(logits=logits[label]).to_event(1), obs=votes)

    def _default_population(self) -> Float[np.ndarray, "label vote 2"]:
        mean = np.log(self.num_classes + 1) * np.eye(*self._shape)
        return np.stack([mean, np.ones_like(mean)], axis=-1)

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Labels come in another order in the shares and in the rows of all matrices."""
        rows = {name: params[name][..., order, :] for name in ("population", "spread", "deviation")}
        return {"prevalence": params["prevalence"][..., order], **rows}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """A population that is right six times as often as it casts any one wrong vote, with a spread of .7."""
        shape = self._shape
        return {
            "prevalence": even_prevalence(self.num_classes),
            "population": jnp.log(6.0) * jnp.eye(*shape),
            "spread": jnp.full(shape, 0.7),
            "deviation": jax.random.normal(key, (self.num_voters, *shape)),
        }
