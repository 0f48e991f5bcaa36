import os
import sys
import tempfile
from importlib.metadata import version

os.environ.setdefault("LATENTENS_CACHE", "off")  # commands under test leave the user's folder alone
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the workers share the cores already
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"  # most programs run once
if version("jaxlib").startswith("0.10."):  # later ones know no such flag, and end the process
    QUICK += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", QUICK)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers and commands under test compile a program once for all
    COMPILED = tempfile.TemporaryDirectory(prefix="latentens-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from latentens import GenerativeModel
from latentens.cli import main
from latentens.datasets import simulate
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    DeepBeliefNet,
    GradedResponse,
    HierarchicalDawidSkene,
    ItemDifficulty,
    LayeredGraph,
    Mace,
    OneCoin,
    TopDown,
    Tree,
    TruncatedGaussian,
)
from latentens.programs.contract import structure_of
from latentens.programs.parameters import parameter_supports
from tests import oracles

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def mood(num_items, votes=None):
    """A label that is neither the first site nor the only parent of the votes, and a barren site."""
    skill = numpyro.sample("sensitivity", dist.Beta(2.0, 2.0).expand((5,)).to_event(1))
    with numpyro.plate("item", num_items):
        mood = numpyro.sample("mood", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        label = numpyro.sample("label", dist.Bernoulli(0.2 + 0.3 * mood))
        says_one = jnp.where(label[..., None] == 1, skill, 1 - skill) ** (1.0 + mood[..., None])
        numpyro.sample("remark", dist.Bernoulli(jnp.where(label == 1, 0.1, 0.4)))
        numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)


CASES = {
    "DawidSkene": (DawidSkene(), oracles.dawid_skene),
    "DawidSkene-4-classes": (DawidSkene(6, num_classes=4), oracles.dawid_skene),
    "Tree": (Tree(), oracles.tree),
    "LayeredGraph": (LayeredGraph(), oracles.layered_graph),
    "TruncatedGaussian": (TruncatedGaussian(), oracles.truncated_gaussian),
    "DeepBeliefNet": (DeepBeliefNet(), oracles.deep_belief_net),
    "TopDown": (TopDown(), oracles.top_down),
    "mood": (GenerativeModel.from_program(mood), oracles.mood),
}
"""Programs of every kind of structure, each with its brute-force joint p(label, votes)."""

CATALOGUE = CASES | {
    "Tree-4-classes": (Tree((0, 0, 1, 1, 1, 2), num_classes=4), oracles.tree),
    "TopDown-4-classes": (TopDown(6, 3, num_classes=4), oracles.top_down),
}
CATALOGUE |= {
    f"{model.__name__}-{num_classes}-classes": (model(5, num_classes=num_classes), oracle)
    for model, oracle in {
        OneCoin: oracles.one_coin,
        ClassConditional: oracles.class_conditional,
        HierarchicalDawidSkene: oracles.hierarchical_dawid_skene,
        Mace: oracles.mace,
        ItemDifficulty: oracles.item_difficulty,
        Confounder: oracles.confounder,
        GradedResponse: oracles.graded_response,
    }.items()
    for num_classes in (2, 4)
}
"""All models, those that know several classes with two and with four."""


def arbitrary_params(model, seed):
    """Values inside the range of each parameter."""
    rng = np.random.default_rng(seed)

    def draw(name, shape):
        support = parameter_supports(model)[name]
        if support is constraints.simplex and shape[-1] == 2:
            of_one = rng.uniform(0.1, 0.9, shape[:-1])
            return np.stack([1 - of_one, of_one], axis=-1)
        if support is constraints.simplex:
            return rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        if support is constraints.unit_interval:
            return rng.uniform(0.1, 0.9, shape)
        if support is constraints.positive:
            return rng.uniform(0.5, 1.5, shape)
        if isinstance(support, type(constraints.interval(-1, 1))):
            return rng.uniform(-0.7, 0.7, shape)
        return rng.normal(size=shape)

    return {name: np.asarray(draw(name, shape)) for name, shape in structure_of(model).parameter_shapes.items()}


def slow_but(*quick, cases=CASES):
    """All cases, those that are not named here left to the slow run."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in sorted(cases)]


EXAMPLE_CASES = [
    pytest.param((name, number), marks=[pytest.mark.slow] if number == 1_000_000 else [], id=f"{name}-{number}")
    for name, (model, _) in CATALOGUE.items()
    for number in (200_000, 1_000_000)
    if type(model).example_params is not GenerativeModel.example_params
    and (number == 1_000_000 or name in ("Tree", "TruncatedGaussian"))
]


def _at_arbitrary_params(name):
    model, oracle = CATALOGUE[name]
    return model, arbitrary_params(model, seed=3), oracle


@pytest.fixture(params=CASES, scope="session")
def case(request):
    """One of `CASES` at arbitrary parameters, with its brute-force joint p(label, votes)."""
    return _at_arbitrary_params(request.param)


@pytest.fixture(params=CATALOGUE, scope="session")
def any_case(request):
    """One of all models at arbitrary parameters, with its brute-force joint p(label, votes)."""
    return _at_arbitrary_params(request.param)


@pytest.fixture(params=EXAMPLE_CASES, scope="session")
def example_case(request):
    """A model at the parameters of its example, with many simulated rows."""
    name, number = request.param
    model, _ = CATALOGUE[name]
    return simulate(model, number, key=jax.random.key(5), params=model.example_params(jax.random.key(4)))


def run_command(monkeypatch, *arguments, cwd):
    """Run the command in this process, which saves the imports, and give its exit code."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["latentens", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Run the command in this process: exit code, standard output and error."""

    def invoke(*arguments, cwd):
        return run_command(monkeypatch, *arguments, cwd=cwd), *capsys.readouterr()

    return invoke


@pytest.fixture
def file(tmp_path):
    """Write a text and give its path."""

    def write(text, name="votes.csv"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return write
