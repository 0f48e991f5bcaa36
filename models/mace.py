"""MACE: a voter either knows the label or votes without looking."""

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
    Pair,
    Prior,
    check_categories,
    even_prevalence,
    keep_positive,
    sample_prevalence,
)
from latentens.programs.model import GenerativeModel
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class Mace(GenerativeModel):
    """A voter either knows the label and says it, or casts a vote that has nothing to do with it.

    Density::

        p(x, y) = π_y Π_j (c_j [x_j = y] + (1 − c_j) s_j[x_j])

    of voters j with competences c_j and strategies s_j, and shares π of the classes. Whether a voter knew the label is
    summed out.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← competence[voter], strategy[voter]

    The order of the labels is identified: nobody who knows the label says another one, so a label is what competent
    voters call it. The published model has equally frequent classes; here their shares are parameters. Who knows the
    label never says "tie": a vote for a category that is not a label was cast without looking.

    Reference: D. Hovy, T. Berg-Kirkpatrick, A. Vaswani & E. Hovy (2013), Learning whom to trust with MACE, NAACL-HLT
    2013, 1120–1130.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        competence_prior: Concentrations (knows, does not) of the competences' beta prior.
        strategy_prior: Concentrations of the strategies' Dirichlet prior, one for all votes or one for each.
        num_categories: Number of different votes, if there are others than for classes, such as "tie": the first K are
            for the classes.
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    competence_prior: Pair = (0.5, 0.5)
    strategy_prior: Prior = 10.0
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_positive(self, "competence_prior", (2,))
        keep_positive(self, "strategy_prior", (), (self._num_votes,))

    @property
    def _num_votes(self) -> int:
        return check_categories(self.num_classes, self.num_categories, self)

    @property
    def anchored(self) -> bool:
        """A label is the vote of competent voters."""
        return True

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        concentration = np.broadcast_to(np.asarray(self.strategy_prior), self._num_votes)
        with numpyro.plate("voter", self.num_voters):
            competence = numpyro.sample("competence", dist.Beta(*self.competence_prior))[:, None]
            strategy = numpyro.sample("strategy", dist.Dirichlet(concentration))
        knows = jnp.eye(self.num_classes, self._num_votes)[:, None, :]
        confusion = competence * knows + (1 - competence) * strategy
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(probs=confusion[label]).to_event(1), obs=votes)

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Competences uniform on [.1, .8], strategies uniform."""
        competence_key, strategy_key = jax.random.split(key)
        return {
            "prevalence": even_prevalence(self.num_classes),
            "competence": jax.random.uniform(competence_key, (self.num_voters,), minval=0.1, maxval=0.8),
            "strategy": jax.random.dirichlet(strategy_key, jnp.ones(self._num_votes), (self.num_voters,)),
        }
