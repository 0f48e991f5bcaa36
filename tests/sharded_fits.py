"""Fits whose results must not depend on the number of devices: python -m tests.sharded_fits OUT [PORT RANK]."""

import sys
from dataclasses import replace

import jax
import numpy as np

from latentens.datasets import simulate
from latentens.inference.density import density_by_name
from latentens.inference.nuts_chains import Sampler
from latentens.methods import MaximumLikelihood
from latentens.models import DawidSkene
from latentens.programs.likelihood import observe
from latentens.programs.parameters import to_point
from latentens.rbm import ExactTraining, rows_from_votes
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes

MODEL = DawidSkene(4)


@double_precision
def fits():
    data = simulate(MODEL, 203, key=jax.random.key(0))
    triplets = Votes(data.votes.triplets, *data.votes.shape, 2)
    climb = MaximumLikelihood(MODEL, starts=0, initial=(data.params,), warm=(), max_iterations=30)
    em = replace(climb, algorithm="em", max_iterations=5)
    results = {}
    for name, method, votes in (("em", em, data.votes), ("triplets", climb, triplets)):
        fit = method.fit(votes, key=jax.random.key(1))
        results |= {f"{name} labels": fit.label_probs} | {f"{name} {k}": v for k, v in fit.params.items()}
    machine = (
        ExactTraining(restarts=1, max_iterations=5).train(rows_from_votes(data.votes), 2, key=jax.random.key(1)).machine
    )
    results |= {f"machine {name}": np.asarray(part) for name, part in machine._asdict().items()}
    observations, _ = observe(MODEL, data.votes)
    point = to_point(MODEL, data.params)
    value, slope = fetch(jax.jit(jax.value_and_grad(lambda p, o: density_by_name(MODEL, o, p)))(point, observations))
    return results | {"density": value} | {f"slope {k}": v for k, v in slope.items()}


@double_precision
def draws():
    """Some steps of NUTS; more would make chaos of the last digits."""
    data = simulate(MODEL, 203, key=jax.random.key(0))
    observations, _ = observe(MODEL, data.votes)
    sampler = Sampler(MODEL, 5, 5, dense_mass=False, target_accept=0.8, max_tree_depth=5)
    return sampler.run(observations, [to_point(MODEL, data.params)], jax.random.key(2))[0]


if __name__ == "__main__":
    out, *address = sys.argv[1:]
    if address:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{address[0]}", 2, int(address[1]))
    np.savez(out, devices=jax.device_count(), **fits(), **(draws() if address else {}))
