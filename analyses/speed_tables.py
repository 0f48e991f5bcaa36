"""Gradient of the marginal log-likelihood of a layered graph: tables against NumPyro's own enumeration by funsor.

    python analyses/speed_tables.py [--items 10000] [--seed 1] [--repeats 20]

Both compute value and gradient for the same votes and the same parameters, in float64, in one run; funsor needs scalar
sites, so its program is the layered graph written unit by unit. Needs the extra `funsor`.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.funsor import config_enumerate, enum, plate_to_enum_plate
from numpyro.contrib.funsor import log_density as funsor_log_density
from rich.console import Console
from rich.progress import track
from rich.table import Table

from latentens import simulate
from latentens.models import LayeredGraph
from latentens.programs import likelihood, tables
from latentens.programs.contract import structure_of
from latentens.votes import Votes


def layered_graph_by_unit(params: dict, votes: jax.Array, layers: tuple[int, ...]) -> None:
    """The layered graph with one site a unit and parameters as given."""
    with numpyro.plate("item", len(votes)):
        parents = [numpyro.sample("label", dist.Bernoulli(params["prevalence"][1]))]
        for depth, size in enumerate(layers, start=1):
            is_one = node_probabilities(params, f"hidden_{depth}", parents)
            parents = [numpyro.sample(f"hidden_{depth}_{i}", dist.Bernoulli(is_one[i])) for i in range(size)]
        for i, says_one in enumerate(node_probabilities(params, "vote", parents)):
            numpyro.sample(f"vote_{i}", dist.Bernoulli(says_one), obs=votes[:, i])


def node_probabilities(params: dict, name: str, parents: list[jax.Array]) -> list[jax.Array]:
    sensitivity, specificity = params[f"{name}_sensitivity"], params[f"{name}_specificity"]
    weight = params.get(f"{name}_weight", np.ones(sensitivity.shape))
    edges = [
        [
            weight[i, j] * jnp.where(parent == 1, sensitivity[i, j], 1 - specificity[i, j])
            for j, parent in enumerate(parents)
        ]
        for i in range(len(sensitivity))
    ]
    return [sum(row).clip(0, 1) for row in edges]


def milliseconds(function: Callable, argument: dict, repeats: int, name: str) -> list[float]:
    jax.block_until_ready(function(argument))
    times = []
    for _ in track(range(repeats), description=name, transient=True):
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        times.append(1e3 * (time.perf_counter() - start))
    return times


def main(items: int, seed: int, repeats: int) -> dict[str, float]:
    """Print the times and return their medians."""
    model = LayeredGraph()
    params = model.example_params(jax.random.key(seed))
    votes = simulate(model, items, key=jax.random.key(seed + 1), params=params).votes
    with jax.enable_x64(True):
        functions = log_likelihoods(model, votes)
        gradients = {name: jax.jit(jax.value_and_grad(function)) for name, function in functions.items()}
        results = {name: gradient(params) for name, gradient in gradients.items()}
        times = {name: milliseconds(gradient, params, repeats, name) for name, gradient in gradients.items()}
    (value, gradient), (other_value, other_gradient) = results["tables"], results["funsor"]
    difference = max(np.abs(gradient[name] - other_gradient[name]).max() for name in params)
    print_times(times, f"layered graph 15-5-5-1, {items:,} items")
    medians = {name: float(np.median(seen)) for name, seen in times.items()}
    print(f"log-likelihoods {value:.6f} and {other_value:.6f}; gradients differ by {difference:.1e}")
    print(f"tables are {medians['funsor'] / medians['tables']:.0f} times as fast as funsor")
    return medians


def log_likelihoods(model: LayeredGraph, votes: Votes) -> dict[str, Callable[[dict], jax.Array]]:
    """The log-likelihood of the votes as a function of the parameters, computed in three ways."""
    num_vote_classes = structure_of(model).num_vote_classes
    distinct = likelihood.encode(votes.patterns.votes, num_vote_classes)
    counts = jnp.asarray(votes.patterns.counts, dtype=float)
    every = likelihood.encode(votes, num_vote_classes)
    matrix = jnp.asarray(votes.matrix, dtype=float)

    def by_tables(values: dict) -> jax.Array:
        return counts @ likelihood.row_log_likelihood(tables.build_tables(model, values), distinct)

    def by_tables_on_every_row(values: dict) -> jax.Array:
        return likelihood.row_log_likelihood(tables.build_tables(model, values), every).sum()

    def by_funsor(values: dict) -> jax.Array:
        with plate_to_enum_plate():
            program = enum(config_enumerate(layered_graph_by_unit), first_available_dim=-2)
            return funsor_log_density(program, (values, matrix, model.layers), {}, {})[0]

    return {"tables": by_tables, "tables, every row": by_tables_on_every_row, "funsor": by_funsor}


def print_times(times: dict[str, list[float]], title: str) -> None:
    table = Table("", "median ms", "fastest ms", title=title)
    for name, seen in times.items():
        table.add_row(name, f"{np.median(seen):.2f}", f"{min(seen):.2f}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    main(**vars(parser.parse_args()))
