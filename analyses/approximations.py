"""Approximations of the posterior beside NUTS and the exact one: how far off, and how fast.

    python analyses/approximations.py [--out DIR] [--sets 2] [--items 10000] [--models NAME …]
        [--minutes 600] [--first 0]

Parameters come from the priors and votes of eight voters from the parameters. Draws of each method are compared with
those of a long NUTS run on functions of the parameters that do not change when hidden units change places: the shares
of the labels, and the probability of a vote given the label. The posterior of the labels, averaged over the draws, is
compared with that of NUTS and with the exact one at the true parameters. An interrupted run resumes where it stopped.
"""

import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write

from latentens import Dataset, Fit, GenerativeModel, simulate
from latentens.inference.orient import orientation
from latentens.methods import DawidSkeneEM, Ebcc, Laplace, MaximumLikelihood, Nuts, RBMStack, Variational
from latentens.methods.base import Method
from latentens.models import DawidSkene, HierarchicalDawidSkene, TopDown, Tree, TruncatedGaussian
from latentens.programs.tables import build_tables
from latentens.runtime.numerics import double_precision
from latentens.runtime.store import Record, Store

VOTERS = 8
"""Such votes have 256 distinct rows at most, so that sets of all sizes share compiled programs."""
MODELS: dict[str, GenerativeModel] = {
    "DawidSkene": DawidSkene(VOTERS),
    "Tree": Tree((0, 0, 0, 1, 1, 1, 2, 2)),
    "TruncatedGaussian": TruncatedGaussian(VOTERS),
    "TopDown": TopDown(VOTERS, 3),
    "HierarchicalDawidSkene": HierarchicalDawidSkene(VOTERS),
}
INTERVAL = 0.9
"""Content of the intervals whose coverage is counted."""


def methods_for(model: GenerativeModel, draws: int) -> dict[str, Method]:
    """Every way of inference, the reference first."""
    long = Nuts(model, num_samples=draws // 4)
    guides = ("normal", "low_rank", "multivariate", "flow")
    return {
        "NUTS": long,
        "NUTS, another key": long,
        "Laplace": Laplace(model, num_draws=draws),
        "Laplace, PSIS": Laplace(model, num_draws=draws, resample=True),
        **{f"guide: {guide}": Variational(model, num_draws=draws, guide=guide) for guide in guides},
        "guide: multivariate, PSIS": Variational(model, num_draws=draws, resample=True),
        "posterior mode": MaximumLikelihood(model, use_prior=True),
        "maximum likelihood": MaximumLikelihood(model),
        "Dawid–Skene EM": DawidSkeneEM(),
        "EBCC": Ebcc(),
        "RBM stack": RBMStack(),
    }


@partial(jax.jit, static_argnums=0)
def _vote_given_label(model: GenerativeModel, draws: Any) -> tuple[jax.Array, jax.Array]:
    def of_one(params: Any) -> tuple[jax.Array, jax.Array]:
        log_prior, log_emission = build_tables(model, params)
        joint = jnp.exp(log_prior)
        shares = joint.sum(axis=1)
        says_one = jnp.exp(log_emission[..., 1])  # parent, state, voter
        says_one = jnp.broadcast_to(says_one, (len(joint), *says_one.shape[1:]))
        return shares, jnp.einsum("ls,lsv->lv", joint / shares[:, None], says_one)

    return jax.lax.map(of_one, draws)


@double_precision
def functions_of(model: GenerativeModel, draws: dict[str, np.ndarray], orders: np.ndarray) -> np.ndarray:
    """Shares of labels and probabilities of votes at each draw, (draw, function), labels in order."""
    shares, says_one = jax.device_get(_vote_given_label(model, draws))
    shares = np.take_along_axis(shares, orders, axis=1)[:, 1:]
    says_one = np.take_along_axis(says_one, orders[:, :, None], axis=1)
    return np.concatenate([shares, says_one.reshape(len(shares), -1)], axis=1)


def functions_of_fit(model: GenerativeModel, fit: Fit) -> np.ndarray | None:
    if fit.draws is None:
        return None
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in fit.draws.items()}
    return functions_of(model, flat, fit.state["label_orders"])


def functions_of_truth(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """At the true parameters, labels in the order that the votes say; and the exact posterior in that order."""
    exact, params = dataset.bayes_posterior(), dataset.params
    assert exact is not None, "simulated data come with their model"
    assert params is not None
    assert dataset.model is not None
    order = orientation(exact, dataset.votes)
    one = {name: np.asarray(value)[None] for name, value in params.items()}
    return functions_of(dataset.model, one, order[None])[0], exact[:, order]


def mean_kl(from_probs: np.ndarray, to_probs: np.ndarray) -> float:
    """Mean over items of KL(from ‖ to), in nats."""
    return float(np.mean(np.sum(from_probs * np.log(from_probs.clip(1e-300) / to_probs.clip(1e-300)), axis=1)))


def compare_on(
    model: GenerativeModel, items: int, draws: int, names: tuple[str, ...], key: jax.Array, compiled: bool
) -> Record:
    """All methods on one simulated set; with programs that are not compiled yet each is fitted twice."""
    data_key, *keys = jax.random.split(key, 3)
    dataset = simulate(model, items, key=data_key)
    truth, exact = functions_of_truth(dataset)
    rows: list[dict[str, Any]] = []
    reference: Any = None
    for name, method in methods_for(model, draws).items():
        if names and not name.startswith(names):
            continue
        for _ in range(1 if compiled or name.startswith("NUTS") else 2):  # NUTS itself has another key
            fit = method.fit(dataset.votes, key=keys[name.endswith("another key")])
        values, about = functions_of_fit(model, fit), fit.diagnostics
        if reference is None:
            reference = fit.label_probs, values
        row = {"method": name, "seconds": about["seconds"], "converged": about.get("converged")}
        row |= {"kl_to_nuts": mean_kl(reference[0], fit.label_probs), "kl_to_exact": mean_kl(exact, fit.label_probs)}
        row |= {
            "pareto_k": about.get("pareto_k"),
            "r_hat": max(about.get("r_hat", {"": np.nan}).values()),
            "warnings": len(about["warnings"]),
        }
        if values is not None:
            center, spread = reference[1].mean(axis=0), reference[1].std(axis=0)
            low, high = np.quantile(values, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=0)
            shift, ratio = (values.mean(axis=0) - center) / spread, values.std(axis=0) / spread
            row |= {"shift": np.abs(shift).mean(), "largest_shift": np.abs(shift).max()}
            row |= {"ratio": ratio.mean(), "least_ratio": ratio.min()}
            row["coverage"] = np.mean((low <= truth) & (truth <= high))
        rows.append(
            {
                column: None if value is None else float(value) if column != "method" else value
                for column, value in row.items()
            }
        )
    return Record({"rows": rows}, {})


def summarise(every: pd.DataFrame) -> pd.DataFrame:
    """Means over sets, and the median of the seconds."""
    groups = every.groupby(["model", "items", "method"], sort=False)
    columns = [name for name in every if name not in ("model", "items", "method", "set", "seconds")]
    table = groups[columns].mean()
    table["seconds"] = groups["seconds"].median()
    table["sets"] = groups.size()
    return table.reset_index().set_index("model")


def same_kl(table: pd.DataFrame) -> pd.DataFrame:
    """The methods with draws that are as near to NUTS as NUTS with another key is, and how much faster they are."""
    rows = []
    for (model, items), part in table.groupby(["model", "items"], sort=False):
        part = part.set_index("method")
        other = part.loc["NUTS, another key"]
        row = {"model": model, "items": items, "kl_of_nuts": other["kl_to_nuts"], "seconds_of_nuts": other["seconds"]}
        near = part[(part["kl_to_nuts"] <= other["kl_to_nuts"]) & part["shift"].notna()]
        near = near.drop(index=["NUTS", "NUTS, another key"], errors="ignore").sort_values("seconds")
        row |= {"fastest": next(iter(near.index), "none"), "times_faster": np.nan}
        if len(near):
            row["times_faster"] = other["seconds"] / near["seconds"].iloc[0]
        rows.append(row | {"as_near": ", ".join(sorted(near.index)) or "none"})
    return pd.DataFrame(rows)


def draw_figure(table: pd.DataFrame) -> plt.Figure:
    """Distance of the labels' posterior from that of NUTS against seconds, a panel a model, the largest sets."""
    most = table[table["items"] == table["items"].max()]
    models = list(dict.fromkeys(most["model"]))
    figure, panels = plt.subplots(
        1,
        len(models),
        figsize=(3.2 * len(models) + 1.6, 3.6),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    names = list(dict.fromkeys(most["method"]))
    styles = {name: (f"C{number % 10}", "os^"[number // 10]) for number, name in enumerate(names)}
    for axes, model in zip(panels[0], models, strict=True):
        for row in most[(most["model"] == model) & (most["method"] != "NUTS")].itertuples():
            color, marker = styles[row.method]
            axes.plot(row.seconds, max(row.kl_to_nuts, 1e-9), marker, color=color, label=row.method)
        axes.set(title=model, xscale="log", yscale="log", xlabel="seconds")
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel(f"KL to NUTS (nats), {most['items'].max():,} items")
    panels[0, -1].legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: tuple[int, ...] = (10_000,),
    draws: int = 1000,
    models: tuple[str, ...] = tuple(MODELS),
    methods: tuple[str, ...] = ("",),
    minutes: float = 600.0,
    first: int = 0,
) -> pd.DataFrame:
    del data  # everything is simulated
    store, rows, end = Store(out / "approximations"), [], time.monotonic() + 60 * minutes
    compiled: set[tuple[str, int]] = set()
    wanted = tuple(filter(None, methods))
    for number, size, name in product(range(first, first + sets), items, models):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), size)
        content = store.key("approximations", MODELS[name], size, draws, wanted, key)
        found = store.get(content)
        if found is None and time.monotonic() < end:  # what is not done in time is left to another run
            is_compiled = (name, size) in compiled
            found = store.recall(content, partial(compare_on, MODELS[name], size, draws, wanted, key, is_compiled))
            compiled.add((name, size))
        if found is not None:
            rows += [{"model": name, "items": size, "set": number, **row} for row in found.about["rows"]]
    every = pd.DataFrame(rows)
    table = summarise(every)
    write(out, "approximations", tree=every.to_xarray(), table=table, figure=draw_figure(table.reset_index()))
    every.to_csv(out / "approximations_sets.csv", index=False)
    same_kl(table.reset_index()).to_csv(out / "approximations_same_kl.csv", index=False)
    return table


if __name__ == "__main__":
    run(main, __doc__)
