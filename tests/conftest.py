import jax
import numpy as np
import pytest

from latentens.models import DawidSkene, DeepBeliefNet, LayeredGraph, TopDown, Tree, TruncatedGaussian
from latentens.simulation import simulate
from latentens.structure import inspect
from tests import oracles

CASES = {
    "DawidSkene": (DawidSkene(), oracles.dawid_skene),
    "DawidSkene-4-classes": (DawidSkene(6, num_classes=4), oracles.dawid_skene),
    "Tree": (Tree(), oracles.tree),
    "LayeredGraph": (LayeredGraph(), oracles.layered_graph),
    "TruncatedGaussian": (TruncatedGaussian(), oracles.truncated_gaussian),
    "DeepBeliefNet": (DeepBeliefNet(), oracles.deep_belief_net),
    "TopDown": (TopDown(), oracles.top_down),
}


def arbitrary_params(model, seed):
    """Values inside the range of each parameter, told by its name."""
    rng = np.random.default_rng(seed)

    def draw(name, shape):
        if (name in ("confusion", "prevalence") and shape) or name.endswith("_weight"):
            return rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        if name.endswith(("prevalence", "sensitivity", "specificity", "correlation")):
            return rng.uniform(0.1, 0.9, shape)
        return rng.normal(size=shape)

    return {name: np.asarray(draw(name, shape)) for name, shape in inspect(model).parameter_shapes.items()}


@pytest.fixture(params=CASES, scope="session")
def case(request):
    """A model at arbitrary parameters, with its brute-force joint p(label, votes)."""
    model, oracle = CASES[request.param]
    return model, arbitrary_params(model, seed=3), oracle


@pytest.fixture(params=CASES, scope="session")
def paper_case(request):
    """A model at the parameters of the paper's experiment, with a million simulated rows."""
    model, _ = CASES[request.param]
    return simulate(model, 1_000_000, key=jax.random.key(5), params=model.paper_params(jax.random.key(4)))
