"""Items differ in difficulty: votes on a hard item are wrong together."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.components import Classes, Prior, even_prevalence, keep_normal, keep_positive, sample_prevalence
from latentens.programs.distributions import QuadratureNormal
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class ItemDifficulty(GenerativeModel):
    """The log-odds of a right vote are the voter's ability for that class minus the item's difficulty.

    Density::

        p(x, y) = π_y ∫ Π_j (r_jy if x_j = y else (1 − r_jy) e_jy[x_j]) dN(u),  r_jy = σ(α_jy − s u)

    of voters j with abilities α and shares e of the wrong votes, a difficulty s u of each item, and shares π of the
    classes. The difficulty is summed out by quadrature.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← difficulty[item]
        ability[voter, class], error[voter, class], difficulty_scale → vote

    With two classes there is no `error`, and the order of the labels is not identified, since all abilities can change
    class and sign. With more, difficulty ties labels to votes, though loosely. The order follows the votes in both
    cases. Without difficulty this is `DawidSkene`. Votes for categories that are not labels, such as "tie", count as
    missing: they are neither right nor wrong.

    Reference: J. S. Uebersax & W. M. Grove (1993), A latent trait finite mixture model for the analysis of rating
    agreement, Biometrics 49, 823–835; for annotators, B. Carpenter (2008), Multilevel Bayesian models of categorical
    data annotation.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        difficulty_scale: Standard deviation s of the difficulty if it is known; by default it is a parameter.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        ability_prior: Mean and standard deviation of the abilities' normal priors, one pair or one for each class.
        error_prior: Concentration of the Dirichlet prior of the shares of the wrong votes.
        difficulty_scale_prior: Scale of the half-normal prior of s.
        num_nodes: Nodes of the quadrature; by default as many as make it exact, fewer do where items have few votes.
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    difficulty_scale: Positive | None = None
    prevalence_prior: Prior = 2.0
    ability_prior: Prior = (1.5, 1.0)
    error_prior: Positive = 1.0
    difficulty_scale_prior: Positive = 1.0
    num_nodes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_normal(self, "ability_prior", (), (self.num_classes,))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label and difficulty, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        ability, log_error = self._abilities()
        scale = self.difficulty_scale
        if scale is None:
            scale = numpyro.sample("difficulty_scale", dist.HalfNormal(self.difficulty_scale_prior))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            difficulty = numpyro.sample("difficulty", QuadratureNormal.for_voters(self.num_voters, self.num_nodes))
            right = ability[label] - scale * difficulty[..., None]
            is_right = jnp.arange(self.num_classes) == label[..., None, None]
            logits = jnp.where(is_right, right[..., None], log_error[label])
            numpyro.sample("vote", dist.Categorical(logits=logits).to_event(1), obs=votes)

    def _abilities(self) -> tuple[Float[Array, "label voter"], Float[Array, "label voter vote"]]:
        """Abilities, and the logarithm of each wrong vote's share of the errors; that of the right one is arbitrary."""
        voters, classes, prior = self.num_voters, self.num_classes, np.asarray(self.ability_prior)
        with numpyro.plate("voter", voters, dim=-2), numpyro.plate("true_class", classes, dim=-1):
            ability = numpyro.sample("ability", dist.Normal(prior[..., 0], prior[..., 1]))
            if classes == 2:
                return ability.T, jnp.zeros((classes, voters, classes))
            error = numpyro.sample("error", dist.Dirichlet(jnp.full(classes - 1, self.error_prior)))
        wrong = np.array([[vote - (vote > label) for vote in range(classes)] for label in range(classes)])
        wrong = wrong.clip(max=classes - 2)  # the place of each wrong vote among a label's errors
        return ability.T, jnp.log(jnp.take_along_axis(error, wrong[None], axis=-1)).swapaxes(0, 1)

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray] | None:
        """Two classes change places; abilities change sign, and so does the difficulty, which is symmetric."""
        if len(order) > 2:
            return None
        return {"prevalence": params["prevalence"][..., order], "ability": -params["ability"][..., order]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Abilities uniform on [0, 2.5], errors spread at random, a difficulty as wide as the abilities."""
        ability_key, error_key = jax.random.split(key)
        voters, classes = self.num_voters, self.num_classes
        params = {
            "prevalence": even_prevalence(classes),
            "ability": jax.random.uniform(ability_key, (voters, classes), minval=0.0, maxval=2.5),
        }
        if classes > 2:
            params["error"] = jax.random.dirichlet(error_key, 3 * jnp.ones(classes - 1), (voters, classes))
        if self.difficulty_scale is None:
            params["difficulty_scale"] = jnp.array(1.0)
        return params
