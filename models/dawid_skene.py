"""Dawid & Skene (1979): voters err independently given the label."""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.precision import numpy_draw
from latentens.runtime.settings import Count, at_least


@dataclass(frozen=True)
class DawidSkene(GenerativeModel):
    """p(x, y) = p(y) Π_i p(x_i | y), voters conditionally independent.

    Two classes have `prevalence`, `sensitivity` and `specificity`; more have `prevalence` as shares of the
    classes and a `confusion` matrix (label, vote) for each voter.
    """

    num_voters: Count = 15
    num_classes: Annotated[int, at_least(2)] = 2

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shares, confusion = self._two_classes() if self.num_classes == 2 else self._many_classes()
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(probs=confusion[label]).to_event(1), obs=votes)

    def _two_classes(self) -> tuple[Float[Array, " label"], Float[Array, "label voter vote"]]:
        prevalence = numpyro.sample("prevalence", dist.Beta(2.0, 2.0))
        with numpyro.plate("voter", self.num_voters):
            sensitivity = numpyro.sample("sensitivity", dist.Beta(4.0, 2.0))
            specificity = numpyro.sample("specificity", dist.Beta(4.0, 2.0))
        given_zero = jnp.stack([specificity, 1 - specificity], axis=-1)
        given_one = jnp.stack([1 - sensitivity, sensitivity], axis=-1)
        return jnp.stack([1 - prevalence, prevalence]), jnp.stack([given_zero, given_one])

    def _many_classes(self) -> tuple[Float[Array, " label"], Float[Array, "label voter vote"]]:
        prevalence = numpyro.sample("prevalence", dist.Dirichlet(jnp.full(self.num_classes, 2.0)))
        concentration = 1.0 + self.num_classes * jnp.eye(self.num_classes)
        with numpyro.plate("voter", self.num_voters, dim=-2), numpyro.plate("class", self.num_classes, dim=-1):
            confusion = numpyro.sample("confusion", dist.Dirichlet(concentration))
        return prevalence, jnp.swapaxes(confusion, 0, 1)

    def flip(self, params: Params) -> dict[str, np.ndarray]:
        """Sensitivities become one minus specificities and the reverse."""
        swapped = {"sensitivity": 1 - params["specificity"], "specificity": 1 - params["sensitivity"]}
        return {"prevalence": 1 - params["prevalence"], **swapped}

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Classes change places in the shares and in the rows of the confusion matrices."""
        return {"prevalence": params["prevalence"][..., order], "confusion": params["confusion"][..., order, :]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """A third of the voters are right with probability uniform on [.5, 1] in each class, the others guess."""
        guess = 1 / self.num_classes
        right = jax.random.uniform(key, (self.num_voters, self.num_classes), minval=0.5, maxval=1.0)
        right = right.at[self.num_voters // 3 :].set(guess)
        if self.num_classes == 2:
            return {"prevalence": jnp.array(0.5), "sensitivity": right[:, 1], "specificity": right[:, 0]}
        off_diagonal = ((1 - right) / (self.num_classes - 1))[..., None]
        confusion = jnp.where(jnp.eye(self.num_classes, dtype=bool), right[..., None], off_diagonal)
        return {"prevalence": jnp.full(self.num_classes, guess), "confusion": confusion}
