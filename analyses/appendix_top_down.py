"""The closing remark of the paper's appendix, measured: when is the mean-field step good in a top-down model?

    python analyses/appendix_top_down.py [--out DIR] [--draws 2]

In the chain label → hidden units → votes, `log p(h | x, y) = … + xᵀWh − log Z(h)` with
`log Z(h) = Σ_i softplus(a_i + W_i h)`;
only a linear log Z leaves the hidden units independent given votes and label, as a stack takes them to be. The figure
sets the distance from the exact posterior against the part of log Z that is not linear, for a fitted stack and for the
chain itself with log Z replaced by its best linear fit.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write
from scipy.special import expit

from latentens.datasets import Dataset, simulate
from latentens.methods import RBMStack
from latentens.models import TopDown
from latentens.programs.distributions import binary_states
from latentens.runtime.progress import track_late
from latentens.scores.scores import mean_kl


def overlapping_params(model: TopDown, overlap: float, key: jax.Array) -> dict[str, np.ndarray]:
    """The chain of the appendix, where each voter follows one unit and, by a share of that weight, the others."""
    params = model.example_params(key)
    own = params["weights"].max(axis=1, keepdims=True)
    weights = np.where(params["weights"] == own, own, overlap * own)
    return params | {"weights": weights, "visible_bias": -weights.sum(axis=1) / 2}


def linear_log_partition(params: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """Slopes of the best linear fit of log Z over p(h), and the deviation of what remains."""
    states = binary_states(len(params["hidden_bias"]))
    given = expit(params["hidden_bias"] + np.array([[0.0], [1.0]]) * params["label_weights"])
    by_label = np.prod(np.where(states[:, None] == 1, given, 1 - given), axis=2)
    share = by_label @ params["prevalence"]
    log_partition = np.logaddexp(0, params["visible_bias"] + states @ params["weights"].T).sum(axis=1)
    design, root = np.column_stack([np.ones(len(states)), states]), np.sqrt(share)
    fitted, *_ = np.linalg.lstsq(root[:, None] * design, root * log_partition)
    return fitted[1:], float(np.sqrt(share @ (log_partition - design @ fitted) ** 2))


def linearised_posterior(dataset: Dataset, slopes: np.ndarray) -> np.ndarray:
    """p(y | x) of the chain with log Z linear: a product over hidden units."""
    params = dataset.params
    field = dataset.votes.matrix @ params["weights"] - slopes
    logits = params["hidden_bias"] + np.array([0.0, 1.0])[:, None, None] * params["label_weights"]
    log_sums = np.logaddexp(np.log(expit(-logits)), np.log(expit(logits)) + field).sum(axis=2)
    log_odds = log_sums[1] - log_sums[0] + np.log(params["prevalence"][1] / params["prevalence"][0])
    return np.stack([expit(-log_odds), expit(log_odds)], axis=1)


def main(
    data: Path | None,
    out: Path,
    seed: int,
    draws: int = 2,
    items: int = 10_000,
    overlaps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8),
) -> pd.DataFrame:
    del data  # everything is simulated
    model, stack, records = TopDown(), RBMStack(hidden=(3, 1)), []
    settings = [(overlap, draw) for draw in range(draws) for overlap in overlaps]
    for overlap, draw in track_late(settings, "Fitting stacks"):
        params_key, data_key, fit_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), draw), 3)
        params = overlapping_params(model, overlap, params_key)
        dataset = simulate(model, items, key=data_key, params=params)
        exact, (slopes, remainder) = dataset.bayes_posterior(), linear_log_partition(params)
        stack_kl = mean_kl(exact, stack.fit(dataset.votes, key=fit_key).label_probs)
        records.append((overlap, draw, remainder, stack_kl, mean_kl(exact, linearised_posterior(dataset, slopes))))
    columns = ["overlap", "draw", "nonlinearity", "RBM stack", "linear log Z"]
    table = pd.DataFrame(records, columns=columns).set_index(["overlap", "draw"])
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, marker in (("RBM stack", "o"), ("linear log Z", "s")):
        axes.loglog(table["nonlinearity"], table[name], marker, alpha=0.7, label=name)
    axes.set(
        xlabel="deviation of log Z(h) from its linear fit (nats)", ylabel="mean KL from the exact posterior (nats)"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    write(out, "appendix_top_down", tree=table.to_xarray(), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
