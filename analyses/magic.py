"""The Magic blocks: the RBM stack against all others, and what can be done for it without labels.

    python analyses/magic.py --data ROOT [--out DIR] [--blocks 40] [--methods NAME …]

Takes as many blocks as are there; `magic_rebuild.py` makes more. Besides every method at its defaults: the stack at the
paper's size, with more random starts, and with size and penalty chosen by the likelihood of held-out votes.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import METHODS, compared, find, run, score_table, write
from matplotlib.figure import Figure

from latentens.errors import DataNotFoundError
from latentens.methods import LatentSpectral, RBMStack
from latentens.methods.base import Estimate, Method, Posterior
from latentens.rbm import ExactTraining, mean_log_likelihood, rows_from_votes
from latentens.runtime.numerics import numpy_generator
from latentens.votes import Votes


@dataclass(frozen=True)
class HeldOutStack(Method):
    """A stack whose size and penalty have the best likelihood of held-out votes in a random search."""

    trials: int = 10

    def estimate(self, votes: Votes, key: jax.Array, gold: np.ndarray | None = None) -> Estimate:
        del gold
        search_key, fit_key = jax.random.split(key)
        num_hidden, penalty = random_search(votes, search_key, self.trials)
        sizes = (1,) if num_hidden == 1 else (num_hidden, 1)
        return RBMStack(hidden=sizes, training=ExactTraining(penalty=penalty)).fit(votes, key=fit_key)

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return RBMStack().posterior(estimate, votes)


def random_search(votes: Votes, key: jax.Array, num_trials: int, held_out: float = 0.2) -> tuple[int, float]:
    """Number of hidden units and penalty with the best held-out likelihood of random ones (Bergstra & Bengio 2012)."""
    split_key, trial_key = jax.random.split(key)
    order, size = numpy_generator(split_key).permutation(votes.num_items), round(held_out * votes.num_items)
    training, scoring = (rows_from_votes(votes.take(items)) for items in (order[size:], order[:size]))
    trials = []
    for number in range(num_trials):
        options_key, train_key, score_key = jax.random.split(jax.random.fold_in(trial_key, number), 3)
        generator = numpy_generator(options_key)
        num_hidden, penalty = 1 + int(generator.integers(5)), 10 ** generator.uniform(-4, -1.5)
        machine = ExactTraining(penalty=penalty).train(training, num_hidden, key=train_key).machine
        trials.append((mean_log_likelihood(machine, scoring, key=score_key).mean, num_hidden, penalty))
    _, num_hidden, penalty = max(trials)
    return num_hidden, penalty


STACKS: dict[str, Method] = {
    "RBM stack, 3 units": RBMStack(hidden=(3, 1)),
    "RBM stack, 32 starts": RBMStack(training=ExactTraining(restarts=32)),
    "RBM stack, penalty 1e-2": RBMStack(training=ExactTraining(penalty=1e-2)),
    "RBM stack, held out": HeldOutStack(),
}
CANDIDATES = {**METHODS, "L-SML, likelihood": LatentSpectral(select="likelihood"), **STACKS}


def main(
    data: Path | None, out: Path, seed: int, blocks: int = 40, methods: tuple[str, ...] = tuple(CANDIDATES)
) -> pd.DataFrame:
    datasets = find([f"magic/{block}" for block in range(1, blocks + 1)], data)
    if not datasets:
        raise DataNotFoundError("there are no Magic blocks; say where they are by --data, or make them (magic_rebuild)")
    chosen = {name: CANDIDATES[name] for name in methods}
    tree = compared(datasets, chosen, out, seed)
    accuracy = 100 * tree["scores/balanced_accuracy"].sel(repetition=0).to_pandas()
    table = score_table(tree, ("balanced_accuracy", "log_score", "seconds"))
    table["share_of_blocks_below_stack"] = (
        (accuracy.lt(accuracy["RBM stack"], axis=0)).mean().reindex(table.index, level=1)
    )
    write(out, "magic", tree=tree, table=table, figure=scatter(accuracy))
    return table


def scatter(accuracy: pd.DataFrame) -> Figure:
    """The stack against each other method, one point a block; above the line the stack is ahead."""
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    others = [name for name in accuracy if not name.startswith("RBM stack")]
    for number, name in enumerate(others):
        axes.scatter(accuracy[name], accuracy["RBM stack"], label=name, marker="osD^vP*X"[number % 8], alpha=0.8)
    ends = accuracy.min(axis=None) - 1, accuracy.max(axis=None) + 1
    axes.plot(ends, ends, "k-", linewidth=0.8, label="equal")
    axes.set(xlabel="balanced accuracy of the other method (%)", ylabel="balanced accuracy of the RBM stack (%)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return figure


if __name__ == "__main__":
    run(main, __doc__)
