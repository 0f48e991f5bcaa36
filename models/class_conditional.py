"""Class-conditional voters: a probability of being right for each label, errors spread evenly."""

from dataclasses import dataclass

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.components import (
    Categories,
    Classes,
    Prior,
    check_categories,
    even_errors,
    even_prevalence,
    keep_positive,
    sample_prevalence,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class ClassConditional(GenerativeModel):
    """Every voter has a probability of being right for each class; errors are spread evenly over the others.

    Density::

        p(x, y) = π_y Π_j (a_jy if x_j = y else (1 − a_jy) / (V − 1))

    of voters j with accuracies a_jy, V different votes (as many as classes, unless there are others), and shares π of
    the classes.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← accuracy[voter, class]

    With two different votes this is `DawidSkene`, and the order of the labels is not identified and follows the votes.
    With more it is identified: only the vote for the label itself is treated differently.

    Reference: J. M. Pullin, L. C. Gurrin & D. Vukcevic (2023), Statistical models of repeated categorical ratings: the
    R package rater, The R Journal 15 (RJ-2023-064).

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        accuracy_prior: Concentrations (right, wrong) of the accuracies' beta priors: one pair, one for each class, or
            one for each voter and class.
        num_categories: Number of different votes V, if there are others than for classes, such as "tie".
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    accuracy_prior: Prior = (4.0, 2.0)
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_categories(self.num_classes, self.num_categories, self)
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        shape = self.num_voters, self.num_classes, 2
        keep_positive(self, "accuracy_prior", shape[2:], shape[1:], shape)

    @property
    def anchored(self) -> bool:
        """True with more than two different votes."""
        return (self.num_categories or self.num_classes) > 2

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        concentration = np.asarray(self.accuracy_prior)
        with numpyro.plate("voter", self.num_voters, dim=-2), numpyro.plate("true_class", self.num_classes, dim=-1):
            accuracy = numpyro.sample("accuracy", dist.Beta(concentration[..., 0], concentration[..., 1]))
        confusion = even_errors(accuracy, self.num_categories).swapaxes(0, 1)
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(probs=confusion[label]).to_event(1), obs=votes)

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray] | None:
        """Two classes change places, and right votes become wrong ones."""
        if self.anchored:
            return None
        return {"prevalence": params["prevalence"][..., order], "accuracy": 1 - params["accuracy"][..., order]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Accuracies uniform on [.4, .9]."""
        accuracy = jax.random.uniform(key, (self.num_voters, self.num_classes), minval=0.4, maxval=0.9)
        return {"prevalence": even_prevalence(self.num_classes), "accuracy": accuracy}
