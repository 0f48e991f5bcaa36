"""How many programs a standard run compiles: compiling is most of what a small fit takes."""

from collections.abc import Callable

import jax
import pytest

from latentens import Votes, simulate
from latentens.methods import DawidSkeneEM, MaximumLikelihood, Nuts
from latentens.methods.base import Method
from latentens.models import OneCoin

MODEL = OneCoin(9)
"""No other test fits it, so that nothing is compiled before."""

BUDGET = {
    DawidSkeneEM(): 0,
    MaximumLikelihood(MODEL, starts=2): 20,
    Nuts(MODEL, num_chains=2, num_warmup=20, num_samples=20): 10,  # climbs by what maximum likelihood has compiled
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
