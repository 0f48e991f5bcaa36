"""A tree of depth two: groups of voters that share a hidden opinion of the label."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.errors import LatentensError, SettingError
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
from latentens.runtime.settings import CountOrZero


@dataclass(frozen=True)
class Tree(GenerativeModel):
    """Each group of voters shares a hidden opinion of the label, and a voter sees only the opinion of the group.

    Density::

        p(x, y) = π_y Π_g Σ_h φ_g[y, h] Π_{j in g} θ_j[h, x_j]

    of groups g with confusion matrices φ_g (label, opinion), voters j with confusion matrices θ_j (opinion, vote), and
    shares π of the classes.

    Plates, in brackets::

        prevalence → label[item] → hidden[item, group] → vote[item, voter]
        hidden_confusion[group] → hidden, voter_confusion[voter] → vote

    Opinions take the same values as labels.

    Three groups, each of three voters or more, identify everything but orders: that of the labels follows the votes,
    and only the priors tie the values of an opinion to the votes. Smaller groups leave something to the priors.

    Reference: A. Jaffe, E. Fetaya, B. Nadler, T. Jiang & Y. Kluger (2016), Unsupervised ensemble learning with
    dependent classifiers, AISTATS 2016, 351–360.

    Attributes:
        groups: The group of each voter, 0 … number of groups − 1.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        hidden_prior: Concentrations of the Dirichlet priors of the groups' confusion matrices, (label, opinion) or
            (group, label, opinion); defaults as for `DawidSkene`.
        voter_prior: Concentrations of the Dirichlet priors of the voters' confusion matrices, (opinion,
            vote) or (voter, opinion, vote).
        num_categories: Number of different votes, if there are others than for classes, such as "tie": the first K are
            for the classes.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.Tree((0, 0, 0, 1, 1, 1)), 100, key=jax.random.key(0))
        >>> data.bayes_posterior().shape
        (100, 2)
    """

    groups: tuple[CountOrZero, ...] = (0,) * 5 + (1,) * 5 + (2,) * 5
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    hidden_prior: Prior | None = None
    voter_prior: Prior | None = None
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.groups:
            raise SettingError("Tree: groups must name the group of each voter, but is empty")
        if set(self.groups) != set(range(len(set(self.groups)))):
            raise SettingError(f"Tree: groups must be numbered 0, 1, … without a gap, not {sorted(set(self.groups))}")
        matrix = self.num_classes, self.num_classes
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_positive(self, "hidden_prior", matrix, (self.num_groups, *matrix))
        seen = self.num_classes, check_categories(self.num_classes, self.num_categories, self)
        keep_positive(self, "voter_prior", seen, (len(self.groups), *seen))

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[int]], num_classes: int = 2) -> "Tree":
        """A tree from the list of each group's voters, such as [[0, 3], [1, 2, 4]]."""
        group_of = {voter: group for group, voters in enumerate(groups) for voter in voters}
        if sorted(voter for voters in groups for voter in voters) != list(range(len(group_of))):
            raise LatentensError("each voter 0, 1, … must be in exactly one group")
        return cls(tuple(group_of[voter] for voter in range(len(group_of))), num_classes)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(set(self.groups))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then hidden opinions, then votes."""
        groups, classes = np.array(self.groups), self.num_classes
        shares = sample_prevalence(classes, self.prevalence_prior)
        opinion = sample_confusion(self.num_groups, classes, self.hidden_prior, plate="group", prefix="hidden_")
        sizes = len(groups), classes
        confusion = sample_confusion(*sizes, self.voter_prior, num_categories=self.num_categories, prefix="voter_")
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            hidden = numpyro.sample("hidden", dist.Categorical(probs=opinion[label]).to_event(1))
            seen = confusion[hidden[..., groups], np.arange(len(groups))]
            numpyro.sample("vote", dist.Categorical(probs=seen).to_event(1), obs=votes)

    def label_views(self, params: Params) -> list[np.ndarray]:
        """Each group: the vote of one of its voters at random."""
        opinions, voters = np.asarray(params["hidden_confusion"]), np.asarray(params["voter_confusion"])
        groups = np.array(self.groups)
        return [
            np.concatenate([opinion @ voter for voter in voters[groups == group]], axis=1) / np.sum(groups == group)
            for group, opinion in enumerate(opinions)
        ]

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Labels come in another order; opinions and voters stay."""
        return permute_confusion(params, order, "hidden_")

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Opinions are right with probability uniform on [.8, 1], voters on [.6, 1]."""
        hidden_key, voter_key = jax.random.split(key)
        hidden = jax.random.uniform(hidden_key, (self.num_classes, self.num_groups), minval=0.8, maxval=1.0)
        voter = jax.random.uniform(voter_key, (self.num_classes, len(self.groups)), minval=0.6, maxval=1.0)
        return {
            "prevalence": even_prevalence(self.num_classes),
            "hidden_confusion": even_errors(hidden[::-1].T),
            "voter_confusion": even_errors(voter[::-1].T, self.num_categories),
        }
