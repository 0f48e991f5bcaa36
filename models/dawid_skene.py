"""Dawid & Skene (1979): voters err independently given the label."""

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
    permute_confusion,
    sample_confusion,
    sample_prevalence,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class DawidSkene(GenerativeModel):
    """Every voter has a confusion matrix and errs independently of the others.

    Density::

        p(x, y) = π_y Π_j θ_j[y, x_j]

    of voters j with confusion matrices θ_j (label, vote), and shares π of the classes.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← confusion[voter]

    Three voters identify everything but the order of the labels, which follows the votes; the priors lean to the same
    order.

    Reference: A. P. Dawid & A. M. Skene (1979), Maximum likelihood estimation of observer error-rates using the EM
    algorithm, Applied Statistics 28, 20–28.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        confusion_prior: Concentrations of the Dirichlet priors of the confusion matrices' rows, (label, vote) or
            (voter, label, vote); by default Beta(4, 2) for sensitivity and specificity, and with K > 2 classes K + 1
            for the right vote and 1 for every other one.
        num_categories: Number of different votes V, if there are others than for classes, such as "tie": the first K
            are for the classes. Their default concentration is 1.

    Examples:
        >>> import latentens as le
        >>> model = le.models.DawidSkene(3)
        >>> params = {"prevalence": [0.5, 0.5], "confusion": [[[0.9, 0.1], [0.2, 0.8]]] * 3}
        >>> le.bayes_posterior(model, params, le.Votes.from_matrix([[1, 1, 0]])).round(3)
        array([[0.066, 0.934]])
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    confusion_prior: Prior | None = None
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = self.num_classes
        keep_positive(self, "prevalence_prior", (), (classes,))
        votes = check_categories(classes, self.num_categories, self)
        keep_positive(self, "confusion_prior", (classes, votes), (self.num_voters, classes, votes))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        sizes = self.num_voters, self.num_classes
        confusion = sample_confusion(*sizes, self.confusion_prior, num_categories=self.num_categories)
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            numpyro.sample("vote", dist.Categorical(probs=confusion[label]).to_event(1), obs=votes)

    def label_views(self, params: Params) -> list[np.ndarray]:
        """Each voter."""
        return list(np.asarray(params["confusion"]))

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Classes change places in the shares and in the rows of the confusion matrices."""
        return permute_confusion(params, order)

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """A third of the voters are right with probability uniform on [.5, 1] in each class, the others guess."""
        right = jax.random.uniform(key, (self.num_voters, self.num_classes), minval=0.5, maxval=1.0)
        right = right.at[self.num_voters // 3 :].set(1 / self.num_classes)
        return {"prevalence": even_prevalence(self.num_classes), "confusion": even_errors(right, self.num_categories)}
