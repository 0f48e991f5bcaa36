"""How many programs a standard run compiles: compiling is most of what a small fit takes."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.checks import simulation_based_calibration
from latentens.inference.density import density_by_name
from latentens.methods import DawidSkeneEM, MaximumLikelihood, Nuts, RBMStack
from latentens.methods.base import Method
from latentens.models import Confounder, DawidSkene, ItemDifficulty, OneCoin
from latentens.programs import likelihood as likelihoods
from latentens.programs.likelihood import observe
from latentens.programs.parameters import to_point
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision

MODEL = OneCoin(9)
"""No other test fits it, so that nothing is compiled before."""

BUDGET = {
    DawidSkeneEM(): 0,
    MaximumLikelihood(MODEL, starts=2): 10,
    Nuts(MODEL, num_chains=2, num_warmup=20, num_samples=20): 11,  # climbs by what maximum likelihood has compiled
    RBMStack(): 6,  # what draws random keys
}


@pytest.fixture
def compilations():
    """A function that counts the programs that a call compiles."""
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    def count(call: Callable[[], object]) -> int:
        before = len(compiled)
        call()
        return len(compiled) - before

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


def drawn(number: int, num_items: int) -> Votes:
    return simulate(MODEL, num_items, key=jax.random.key(number)).votes


@pytest.mark.parametrize("method", BUDGET, ids=lambda method: type(method).__name__)
def test_a_fit_compiles_few_programs_and_one_of_other_votes_none(method: Method, compilations):
    first, second = drawn(0, 120), drawn(1, 180)
    assert compilations(lambda: method.fit(first, key=jax.random.key(0))) <= BUDGET[method]
    assert compilations(lambda: method.fit(second, key=jax.random.key(1))) == 0


def test_a_simulation_compiles_few_programs_and_a_second_none(compilations):
    model = OneCoin(10)
    assert compilations(lambda: simulate(model, 150, key=jax.random.key(0))) <= 6
    assert compilations(lambda: simulate(model, 150, key=jax.random.key(1))) == 0


def test_simulations_of_a_calibration_share_their_programs(compilations):
    method = Nuts(MODEL, num_chains=2, num_warmup=20, num_samples=20)

    def calibrate(seed: int) -> None:
        simulation_based_calibration(
            MODEL, method, num_simulations=2, num_items=100, num_draws=9, key=jax.random.key(seed)
        )

    assert compilations(lambda: calibrate(0)) <= 45
    assert compilations(lambda: calibrate(1)) == 0


@pytest.mark.parametrize("model", [ItemDifficulty(5), Confounder(5), Confounder(4, num_classes=3), OneCoin(9)], ids=str)
def test_votes_of_one_form_are_laid_out_in_one_shape(model):
    """However many distinct rows there are, which differs between simulations."""
    shapes = set()
    for number in range(12):
        rows = np.random.default_rng(number).integers(0, model.num_classes, (200 - 16 * number, model.num_voters))
        observations, _ = observe(model, Votes.from_matrix(rows, model.num_classes))
        shapes.add(str(jax.tree.map(np.shape, observations)))
    assert len(shapes) == 1


@double_precision
@pytest.mark.parametrize("known", [False, True], ids=["labels unknown", "labels known"])
def test_rows_that_fill_up_change_nothing(known, monkeypatch):
    model, rng = DawidSkene(5), np.random.default_rng(0)
    votes = Votes.from_matrix(rng.integers(0, 2, (40, 5)), 2)
    gold = rng.integers(-1, 2, 40) if known else None
    params = model.example_params(jax.random.key(1))
    right = np.stack([params["confusion"][:, label, label] for label in (0, 1)])
    item_label = [[np.prod(np.where(row == y, right[y], 1 - right[y])) * 0.5 for y in (0, 1)] for row in votes.matrix]
    chosen = np.ones((40, 2), bool) if gold is None else (gold[:, None] < 0) | (gold[:, None] == [0, 1])
    by_loops = sum(np.log(np.sum(np.array(item_label)[i][chosen[i]])) for i in range(40))
    density = jax.jit(jax.value_and_grad(density_by_name, argnums=2), static_argnums=0)
    likelihood, tables = jax.jit(likelihoods.marginal_log_likelihood), checked_tables(model, params)
    found = []
    for length in (None, 1000):
        if length:
            monkeypatch.setattr(likelihoods, "few_lengths", lambda *_, length=length: length)
        observations, _ = observe(model, votes, gold)
        assert float(observations.num_items) == 40
        found.append(density(model, observations, to_point(model, params)))
        assert float(likelihood(tables, observations)) == pytest.approx(by_loops, rel=1e-12)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10), *found)
