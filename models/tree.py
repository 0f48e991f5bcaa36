"""A tree of depth two: groups of voters that share a hidden opinion of the label."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.errors import LatentensError, SettingError
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.precision import numpy_draw
from latentens.runtime.settings import CountOrZero


@dataclass(frozen=True)
class Tree(GenerativeModel):
    """Label → one hidden unit a group → the group's voters; each arrow has a sensitivity and a specificity.

    Attributes:
        groups: The group of each voter, 0 … number of groups − 1.
    """

    groups: tuple[CountOrZero, ...] = (0,) * 5 + (1,) * 5 + (2,) * 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.groups) != set(range(len(set(self.groups)))):
            raise SettingError(f"Tree: groups must be numbered 0, 1, … without a gap, not {sorted(set(self.groups))}")

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[int]]) -> "Tree":
        """A tree from the list of each group's voters, such as [[0, 3], [1, 2, 4]]."""
        group_of = {voter: group for group, voters in enumerate(groups) for voter in voters}
        if sorted(voter for voters in groups for voter in voters) != list(range(len(group_of))):
            raise LatentensError("each voter 0, 1, … must be in exactly one group")
        return cls(tuple(group_of[voter] for voter in range(len(group_of))))

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(set(self.groups))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then hidden units, then votes."""
        prevalence = numpyro.sample("prevalence", dist.Beta(2.0, 2.0))
        with numpyro.plate("group", self.num_groups):
            hidden_sensitivity = numpyro.sample("hidden_sensitivity", dist.Beta(4.0, 2.0))
            hidden_specificity = numpyro.sample("hidden_specificity", dist.Beta(4.0, 2.0))
        with numpyro.plate("voter", len(self.groups)):
            voter_sensitivity = numpyro.sample("voter_sensitivity", dist.Beta(4.0, 2.0))
            voter_specificity = numpyro.sample("voter_specificity", dist.Beta(4.0, 2.0))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(prevalence))
            hidden_is_one = jnp.where(label[..., None] == 1, hidden_sensitivity, 1 - hidden_specificity)
            hidden = numpyro.sample("hidden", dist.Bernoulli(hidden_is_one).to_event(1))
            parent = hidden[..., np.array(self.groups)]
            says_one = jnp.where(parent == 1, voter_sensitivity, 1 - voter_specificity)
            numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)

    def flip(self, params: Params) -> dict[str, np.ndarray]:
        """The label changes sides; hidden units and voters stay."""
        return {
            "prevalence": 1 - params["prevalence"],
            "hidden_sensitivity": 1 - params["hidden_specificity"],
            "hidden_specificity": 1 - params["hidden_sensitivity"],
        }

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Hidden units are right with probability uniform on [.8, 1], voters on [.6, 1]."""
        hidden_key, voter_key = jax.random.split(key)
        hidden = jax.random.uniform(hidden_key, (2, self.num_groups), minval=0.8, maxval=1.0)
        voter = jax.random.uniform(voter_key, (2, len(self.groups)), minval=0.6, maxval=1.0)
        return {
            "prevalence": jnp.array(0.5),
            "hidden_sensitivity": hidden[0],
            "hidden_specificity": hidden[1],
            "voter_sensitivity": voter[0],
            "voter_specificity": voter[1],
        }
