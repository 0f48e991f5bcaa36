"""GenerativeModel: how votes come about, as one NumPyro program."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Array, Int

from latentens.runtime.settings import Settings

Params = Mapping[str, Any]


class GenerativeModel(Settings, ABC):
    """A frozen dataclass of structure (number of voters, groups, …) with one method, `program`.

    The program contract:
        * `label` and `vote` are sites inside the plate `item`, whose size is `num_items`.
        * Any other site in that plate is a hidden unit and is summed out. It is discrete, or brings
          quadrature nodes (`QuadratureNormal`). A hidden vector is one site made with `.to_event(1)`.
        * `vote` factorises over voters given label and hidden units: `….to_event(1)`.
        * Continuous sites outside the plate are parameters; their distributions are their priors.

    `latentens.models` has examples; `GenerativeModel.from_program` wraps a bare function.
    """

    @abstractmethod
    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """The NumPyro program.

        Args:
            num_items: Size of the plate `item`.
            votes: Observed value of the site `vote`, or None to leave it random.
        """

    @property
    def anchored(self) -> bool:
        """Whether the program itself ties each label to the vote of the same name, leaving nothing to orient."""
        return False

    @property
    def ordered_votes(self) -> bool:
        """Whether votes are grades in order, none of which is a vote for a class."""
        return False

    def label_views(self, params: Params) -> list[np.ndarray] | None:
        """Parts of the votes that are independent of each other given the label, to see if the label is identified.

        Returns:
            For each part, or for the hidden unit above it, its distribution given each label, (label, outcome); None
            if the model does not define them.
        """
        del params
        return None

    def example_params(self, key: Array) -> dict[str, np.ndarray] | None:
        """Parameters of a typical experiment, drawn with a random key; None where the model has no example."""
        del key
        return None

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray] | None:
        """The parameters that change when the labels come in another order and the distribution of votes stays.

        Leading axes of the parameters, such as those of posterior draws, are kept.

        Args:
            params: A value for each parameter.
            order: The label k of the result is the label `order[k]` of these parameters.

        Returns:
            The parameters that change, or None if the model does not define them for this order.
        """
        del params, order
        return None

    @final
    def relabel(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray] | None:
        """All parameters with the labels in another order, by `permute`; None where that is not defined."""
        if np.array_equal(order, np.arange(len(order))):
            return dict(params)
        changed = self.permute(params, order)
        return None if changed is None else {**params, **changed}

    def __str__(self) -> str:
        """The name of the model with the settings that are not the defaults."""
        settings: list[tuple[Any, Any]]
        settings = [(field, getattr(self, field.name)) for field in fields(self)] if is_dataclass(self) else []
        changed = [f"{field.name}={value!r}" for field, value in settings if value != field.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    @staticmethod
    def from_program(program: Callable[..., Any]) -> "GenerativeModel":
        """Make a model of a bare function `program(num_items, votes=None)`."""
        return _FunctionModel(program)


@dataclass(frozen=True)
class _FunctionModel(GenerativeModel):
    function: Callable[..., Any]

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Call the function."""
        self.function(num_items, votes)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))
