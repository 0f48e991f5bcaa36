"""NUTS on the tables against NumPyro's own NUTS with enumeration by funsor: effective draws per second.

    python analyses/speed_nuts.py [--items 10000] [--seed 1] [--chains 2] [--draws 300]

Both sample the same posterior with the same number of chains and draws, in float64, in one run; compilation is not
counted. funsor works on all rows and needs scalar hidden sites, so trees and chains are written unit by unit for it.
Where funsor is too slow for a whole run (top-down chain) the two are compared by one gradient of the log density:
sampler and posterior are the same, so that effective draws per gradient are too. Needs the extra `funsor`.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.funsor import config_enumerate, enum, plate_to_enum_plate
from numpyro.contrib.funsor import log_density as funsor_log_density
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, init_to_value
from rich.console import Console
from rich.table import Table

from latentens import GenerativeModel, Votes, simulate
from latentens.inference.density import density_by_name
from latentens.inference.nuts_chains import Sampler
from latentens.models import DawidSkene, TopDown, Tree
from latentens.programs.components import sample_confusion, sample_prevalence
from latentens.programs.likelihood import observe
from latentens.programs.parameters import to_point, unconstrain


@config_enumerate
def tree_by_unit(model: Tree, votes: jax.Array) -> None:
    """The tree with one site a hidden unit."""
    classes, voters = model.num_classes, len(model.groups)
    shares = sample_prevalence(classes, model.prevalence_prior)
    opinion = sample_confusion(model.num_groups, classes, model.hidden_prior, plate="group", prefix="hidden_")
    confusion = sample_confusion(voters, classes, model.voter_prior, prefix="voter_")
    with numpyro.plate("item", len(votes)):
        label = numpyro.sample("label", dist.Categorical(probs=shares))
        for group in range(model.num_groups):
            hidden = numpyro.sample(f"hidden_{group}", dist.Categorical(probs=opinion[label, group]))
            members = np.flatnonzero(np.array(model.groups) == group)
            seen = confusion[hidden[..., None], members]
            numpyro.sample(f"vote_{group}", dist.Categorical(probs=seen).to_event(1), obs=votes[:, members])


@config_enumerate
def top_down_by_unit(model: TopDown, votes: jax.Array) -> None:
    """The top-down chain with one site a hidden unit."""
    shares = sample_prevalence(2, model.prevalence_prior)
    with numpyro.plate("unit", model.num_hidden):
        hidden_bias = numpyro.sample("hidden_bias", dist.Normal(0.0, 2.0))
        label_weights = numpyro.sample("label_weights", dist.Normal(0.0, 2.0))
    with numpyro.plate("voter", model.num_voters):
        visible_bias = numpyro.sample("visible_bias", dist.Normal(0.0, 2.0))
        weights = numpyro.sample("weights", dist.Normal(0.0, 2.0).expand((model.num_hidden,)).to_event(1))
    with numpyro.plate("item", len(votes)):
        label = numpyro.sample("label", dist.Categorical(probs=shares))
        logits = visible_bias
        for unit in range(model.num_hidden):
            is_one = hidden_bias[unit] + label * label_weights[unit]
            hidden = numpyro.sample(f"hidden_{unit}", dist.Bernoulli(logits=is_one))
            logits = logits + hidden[..., None] * weights[:, unit]
        numpyro.sample("vote", dist.Bernoulli(logits=logits).to_event(1), obs=votes)


@config_enumerate
def dawid_skene(model: DawidSkene, votes: jax.Array) -> None:
    """The program itself: its only hidden site is a scalar."""
    model.program(len(votes), votes)


class Settings(NamedTuple):
    """Size of a run."""

    chains: int
    warmup: int
    draws: int


def by_tables(model: GenerativeModel, votes: Votes, start: Mapping, settings: Settings) -> dict:
    observations, _ = observe(model, votes)
    sampler = Sampler(model, settings.warmup, settings.draws, False, 0.8, 10)
    point = to_point(model, start)
    run = partial(sampler.run, observations, [point] * settings.chains, jax.random.key(1))
    cold, _ = timed(run)
    seconds, (params, _) = timed(run)
    return {"seconds": seconds, "cold_seconds": cold, "ess": least_ess(params)}


def by_funsor(program: Callable, votes: Votes, start: Mapping, settings: Settings) -> dict:
    values = init_to_value(values=dict(start))
    kernel = NUTS(program, init_strategy=values)
    sizes = {"num_warmup": settings.warmup, "num_samples": settings.draws, "num_chains": settings.chains}
    mcmc = MCMC(kernel, **sizes, chain_method="sequential", progress_bar=False)
    rows = jnp.asarray(votes.matrix, dtype=int)
    run = partial(mcmc.run, jax.random.key(1), rows)
    cold, _ = timed(run)
    seconds, _ = timed(run)
    return {"seconds": seconds, "cold_seconds": cold, "ess": least_ess(mcmc.get_samples(group_by_chain=True))}


def timed(run: Callable) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def least_ess(params: Mapping) -> float:
    return min(float(np.min(effective_sample_size(np.asarray(value)))) for value in params.values())


def gradient_milliseconds(model: TopDown, votes: Votes, start: Mapping, repeats: int = 5) -> dict[str, float]:
    """Milliseconds of a value and gradient of the log density, where a whole run of funsor's sampler takes too long."""
    observations, _ = observe(model, votes)
    rows = jnp.asarray(votes.matrix, dtype=int)

    def tables_density(params: Mapping) -> jax.Array:
        return density_by_name(model, observations, unconstrain(model, params))

    def funsor_density(params: Mapping) -> jax.Array:
        with plate_to_enum_plate():
            return funsor_log_density(enum(top_down_by_unit, first_available_dim=-2), (model, rows), {}, params)[0]

    times = {}
    for name, density in (("tables", tables_density), ("funsor", funsor_density)):
        gradient = jax.jit(jax.value_and_grad(density))
        jax.block_until_ready(gradient(start))
        seconds = [timed(lambda: jax.block_until_ready(gradient(start)))[0] for _ in range(repeats)]  # noqa: B023
        times[name] = 1e3 * float(np.median(seconds))
    return times


def main(items: int, seed: int, chains: int, draws: int) -> None:
    table = Table("model", "sampler", "seconds", "least ess", "ess / second", "ratio", title="NUTS")
    settings = Settings(chains, draws, draws)
    for model, program in ((DawidSkene(), dawid_skene), (Tree(), tree_by_unit)):
        start = model.example_params(jax.random.key(seed))
        votes = simulate(model, items, key=jax.random.key(seed + 1), params=start).votes
        with jax.enable_x64(True):
            runs = {
                "tables": by_tables(model, votes, start, settings),
                "funsor": by_funsor(partial(program, model), votes, start, settings),
            }
        speeds = {name: run["ess"] / run["seconds"] for name, run in runs.items()}
        for name, run in runs.items():
            ratio = f"{speeds['tables'] / speeds['funsor']:.1f}" if name == "tables" else ""
            figures = f"{run['seconds']:.1f}", f"{run['ess']:.0f}", f"{speeds[name]:.1f}"
            table.add_row(type(model).__name__, name, *figures, ratio)
    chain = TopDown(num_hidden=8)
    start = chain.example_params(jax.random.key(seed))
    votes = simulate(chain, items, key=jax.random.key(seed + 1), params=start).votes
    with jax.enable_x64(True):
        times = gradient_milliseconds(chain, votes, start)
    Console().print(table)
    print(
        f"TopDown with 8 hidden units, one gradient: tables {times['tables']:.1f} ms, funsor {times['funsor']:.1f} ms, "
        f"ratio {times['funsor'] / times['tables']:.0f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=300)
    main(**vars(parser.parse_args()))
