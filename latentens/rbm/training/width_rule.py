"""The SVD rule: how many hidden units the votes call for."""

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentens.rbm.machine import Machine
from latentens.rbm.rows import VisibleRows
from latentens.rbm.training.choice import choose_training
from latentens.rbm.training.exact import ExactTraining, centred_weights
from latentens.rbm.training.interface import Training
from latentens.runtime.precision import double_precision
from latentens.runtime.settings import Count, NotNegative, Settings, above, at_most


@dataclass(frozen=True)
class SingularValueRule(Settings):
    """Train more units than needed under an L2 penalty; the rank of W that remains is the number of units.

    A unit with vanishing weights starts to grow only if a direction of the data's covariance exceeds the machine's by
    more than four times the penalty, so that the penalised maximum has singular values that are zero. Sampling noise
    alone exceeds it by about `(1/2) √(voters/items)`: for 15 voters and 10,000 items that is half of what the default
    penalty suppresses.

    Attributes:
        penalty: Weight of the L2 penalty.
        threshold: The number of units is the smallest whose singular values make up this share of their sum.
        max_units: Train this many units, or as many as there are visible ones if these are fewer. None: always as
            many as visible units.
        training: How to train; by default exactly where the size allows.
    """

    penalty: NotNegative = 1e-2
    threshold: Annotated[float, above(0), at_most(1)] = 0.986
    max_units: Count | None = 8
    training: Training | None = None

    @double_precision
    def choose(self, rows: VisibleRows, *, key: jax.Array) -> "ArchitectureChoice":
        """Choose the number of hidden units for these rows."""
        num_visible = rows.num_units
        num_units = min(num_visible, self.max_units or num_visible)
        quick = ExactTraining(restarts=2, max_iterations=400, tolerance=3e-5, weight_scale=0.1)
        training = self.training or choose_training(rows, num_units, exact=quick)
        trained = replace(training, penalty=self.penalty).train(rows, num_units, key=key)
        singular = unit_strengths(trained.machine)
        shares = np.cumsum(singular) / max(singular.sum(), np.finfo(float).tiny)
        num_hidden = min(int(np.searchsorted(shares, self.threshold)) + 1, num_units) if singular[0] > 0 else 1
        return ArchitectureChoice(num_hidden, shares, trained.ends)


class ArchitectureChoice(NamedTuple):
    """What the SVD rule found.

    Attributes:
        num_hidden: The number of hidden units.
        cumulative: Cumulative share of the singular values.
        machines: The machines it trained, the best first; narrowed, they are where to start training again.
    """

    num_hidden: int
    cumulative: Float[np.ndarray, " unit"]
    machines: tuple[Machine, ...]


def unit_strengths(machine: Machine) -> Float[np.ndarray, " unit"]:
    """Singular values of W, for more than two classes those of one unit added up, whichever states are states 0."""
    width = machine.hidden_units.width
    both = centred_weights(machine)
    singular = np.linalg.svd(both, compute_uv=False)[: width * machine.num_hidden]
    return np.pad(singular, (0, -len(singular) % width)).reshape(-1, width).sum(axis=1)


def narrowed(machine: Machine, num_hidden: int) -> Machine:
    """The machine with only some of its hidden units: those whose weights are longest and most independent."""
    left = np.moveaxis(np.asarray(machine.hidden_units.by_unit(np.asarray(machine.weights))), 1, 0)
    kept: list[int] = []
    for _ in range(num_hidden):
        lengths = np.linalg.norm(left, axis=(1, 2))
        lengths[kept] = -1.0
        kept.append(int(np.argmax(lengths)))
        basis, scale, _ = np.linalg.svd(left[kept[-1]], full_matrices=False)
        basis = basis[:, scale > 1e-12 * scale.max(initial=1.0)]
        left = left - basis @ (basis.T @ left)
    columns = (np.array(kept)[:, None] * machine.hidden_units.width + np.arange(machine.hidden_units.width)).ravel()
    return machine._replace(weights=machine.weights[:, columns], hidden_bias=machine.hidden_bias[columns])
