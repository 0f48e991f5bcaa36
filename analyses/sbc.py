"""Simulation-based calibration of posterior draws: where true parameters and labels rank among them.

    python analyses/sbc.py [--out DIR] [--simulations 100] [--items 200] [--draws 99] [--models NAME …]
        [--methods Nuts Laplace Variational] [--alarms 20]

Parameters come from the priors, votes from the parameters. If the draws are right the ranks are uniform, and the
distribution function of each parameter's ranks stays in the band around the diagonal. `sbc.csv` has the p-value of
each element, `sbc_methods.csv` the verdict on each method, beside that on exact draws of a posterior which a grid can
hold, over many runs: false alarms should be as frequent as the level says. An interrupted run resumes where it stopped.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import xarray as xr
from common import run, write
from scipy.special import logsumexp, xlogy

from latentens import GenerativeModel
from latentens.checks import SimulationRanks, simulation_based_calibration
from latentens.methods import Laplace, Nuts, Variational
from latentens.methods.base import Method
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    GradedResponse,
    HierarchicalDawidSkene,
    ItemDifficulty,
    Mace,
    OneCoin,
    Tree,
)
from latentens.reporting import rank_figure
from latentens.runtime.numerics import numpy_generator
from latentens.votes import Votes

MODELS: dict[str, GenerativeModel] = {
    "DawidSkene": DawidSkene(5),
    "Tree": Tree((0, 0, 0, 1, 1, 1, 2, 2, 2)),
    "OneCoin": OneCoin(5, num_classes=3),
    "ClassConditional": ClassConditional(5, num_classes=3),
    "HierarchicalDawidSkene": HierarchicalDawidSkene(6),
    "Mace": Mace(5, num_classes=3),
    "ItemDifficulty": ItemDifficulty(5),
    "GradedResponse": GradedResponse(5, 2, 4),
    "Confounder": Confounder(5),
}
"""By default all but the last two, which take longest."""

APPROXIMATED = ("DawidSkene", "Tree", "OneCoin")
"""Models on which approximations are ranked, too."""

VOTERS = 5
GRID = (np.arange(200) + 0.5) / 200


def one_skill(num_items: int, votes: jax.Array | None = None) -> None:
    """Equally skilled voters; both parameters are uniform."""
    skill = numpyro.sample("skill", dist.Uniform())
    share = numpyro.sample("share", dist.Uniform())
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(share))
        says_one = jnp.where(label == 1, skill, 1 - skill)[..., None] * jnp.ones(VOTERS)
        numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)


def exact_draws(votes: Votes, key: jax.Array) -> dict[str, np.ndarray]:
    """Draws of the posterior of `one_skill`, from the cells of a grid that are finer than the posterior."""
    generator = numpy_generator(key)
    ones, items = np.unique(votes.matrix.sum(axis=1), return_counts=True)
    skill, share = (part.ravel()[:, None] for part in np.meshgrid(GRID, GRID))
    agree, differ = xlogy(ones, skill) + xlogy(VOTERS - ones, 1 - skill), VOTERS - ones
    against = xlogy(ones, 1 - skill) + xlogy(differ, skill)
    log_density = (np.logaddexp(np.log(share) + agree, np.log1p(-share) + against) * items).sum(axis=1)
    probs = np.exp(log_density - logsumexp(log_density))
    cells = generator.choice(len(probs), 200, p=probs / probs.sum())
    inside = (generator.random((2, len(cells))) - 0.5) / len(GRID)
    return {"skill": skill[cells, 0] + inside[0], "share": share[cells, 0] + inside[1]}


def method_of(name: str, model: GenerativeModel, draws: int, warmup: int) -> Method:
    if name == "Nuts":
        return Nuts(model, num_chains=2, num_warmup=warmup, num_samples=2 * draws)
    return {"Laplace": Laplace, "Variational": Variational}[name](model, num_draws=draws)


def verdict(found: SimulationRanks) -> dict[str, float]:
    """The smallest p-values of parameters and labels, corrected for their number, and coverage of intervals."""
    labels = len(found.names) - found.names.index("label of the first item")
    parts = {"parameters": slice(None, -labels), "labels": slice(-labels, None)}
    corrected = {
        f"p_{name}": min(1.0, found.p_values[part].min() * len(found.p_values[part])) for name, part in parts.items()
    }
    covered = found.coverage(np.array([0.5, 0.9]))[:, :-labels].mean(axis=1)
    return {"simulations": len(found.ranks), **corrected, "coverage_50": covered[0], "coverage_90": covered[1]}


def main(
    data: Path | None,
    out: Path,
    seed: int,
    simulations: int = 100,
    items: int = 200,
    draws: int = 99,
    warmup: int = 300,
    models: tuple[str, ...] = tuple(MODELS)[:-2],
    methods: tuple[str, ...] = ("Nuts", "Laplace", "Variational"),
    alarms: int = 20,
) -> pd.DataFrame:
    del data  # everything is simulated
    settings = {"num_simulations": simulations, "num_items": items, "num_draws": draws, "labels": True}
    tables, ranks, verdicts = {}, {}, []
    for name in models:
        for kind in methods if name in APPROXIMATED else methods[:1]:
            method = method_of(kind, MODELS[name], draws, warmup)
            found = simulation_based_calibration(
                MODELS[name], method, key=jax.random.key(seed), folder=out / "sbc" / name / kind, **settings
            )
            suffix = "" if kind == "Nuts" else f"_{kind}"
            write(out, f"sbc_{name}{suffix}", figure=rank_figure(found))
            tables[name, kind] = pd.DataFrame({"p_value": found.p_values}, pd.Index(found.names, name="parameter"))
            dims, names = ("simulation", "parameter"), list(found.names)
            ranks[f"{name}/{kind}"] = xr.Dataset({"rank": (dims, found.ranks)}, {"parameter": names})
            verdicts.append({"model": name, "method": kind, **verdict(found)})
    exact = GenerativeModel.from_program(one_skill)
    runs = [
        verdict(simulation_based_calibration(exact, exact_draws, key=jax.random.key(number), **settings))
        for number in range(alarms)
    ]
    table = pd.concat(tables, names=["model", "method"])
    write(out, "sbc", tree=xr.DataTree.from_dict(ranks), table=table)
    pd.DataFrame(runs).to_csv(out / "sbc_exact.csv", index=False)
    pd.DataFrame(verdicts).to_csv(out / "sbc_methods.csv", index=False)
    print(pd.DataFrame(verdicts).round(3).to_string())
    for name in ("p_parameters", "p_labels"):
        count = sum(found[name] < 0.05 for found in runs)
        print(f"exact draws: {name} below 0.05 in {count} of {alarms} runs")
    return table


if __name__ == "__main__":
    run(main, __doc__)
