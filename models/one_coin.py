"""One coin per voter: the same probability of being right whatever the label."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.components import Classes, Prior, even_errors, even_prevalence, keep_positive, sample_prevalence
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class OneCoin(GenerativeModel):
    """Every voter is right with one probability; errors are spread evenly over the other classes.

    Density::

        p(x, y) = π_y Π_j (a_j if x_j = y else (1 − a_j) / (K − 1))

    of voters j with accuracies a_j, K classes and their shares π.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← accuracy[voter]

    With two classes the order of the labels is not identified and follows the votes, since all accuracies can become
    one minus themselves. With more it is identified: only the vote for the label itself is treated differently.

    Votes for categories that are not labels, such as "tie", count as missing: with errors spread evenly over wrong
    classes and ties, ties do harm, as `analyses/VOTES.md` shows for `ClassConditional`.

    Reference: Y. Zhang, X. Chen, D. Zhou & M. I. Jordan (2016), Spectral methods meet EM: a provably optimal algorithm
    for crowdsourcing, Journal of Machine Learning Research 17 (102).

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        accuracy_prior: Concentrations (right, wrong) of the accuracies' beta priors, one pair or one for each voter.

    Examples:
        >>> import latentens as le
        >>> params = {"prevalence": [0.5, 0.5], "accuracy": [0.9, 0.8, 0.7]}
        >>> le.bayes_posterior(le.models.OneCoin(3), params, le.Votes.from_matrix([[1, 0, 0]])).round(3)
        array([[0.509, 0.491]])
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    accuracy_prior: Prior = (4.0, 2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_positive(self, "accuracy_prior", (2,), (self.num_voters, 2))

    @property
    def anchored(self) -> bool:
        """True with more than two classes."""
        return self.num_classes > 2

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        concentration = np.asarray(self.accuracy_prior)
        with numpyro.plate("voter", self.num_voters):
            accuracy = numpyro.sample("accuracy", dist.Beta(concentration[..., 0], concentration[..., 1]))
        confusion = even_errors(jnp.broadcast_to(accuracy[:, None], (self.num_voters, self.num_classes)))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(probs=confusion.swapaxes(0, 1)[label]).to_event(1), obs=votes)

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray] | None:
        """Two classes change places, and right votes become wrong ones."""
        if len(order) > 2:
            return None
        return {"prevalence": params["prevalence"][..., order], "accuracy": 1 - params["accuracy"]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Accuracies uniform on [.4, .9]."""
        accuracy = jax.random.uniform(key, (self.num_voters,), minval=0.4, maxval=0.9)
        return {"prevalence": even_prevalence(self.num_classes), "accuracy": accuracy}
