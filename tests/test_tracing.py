"""Programs that several threads run at a time."""

import time
from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.runtime.parallel import in_threads


@dataclass(frozen=True)
class Slow(GenerativeModel):
    """A program that lets other threads run while it runs itself."""

    num_voters: int

    def program(self, num_items, votes=None):
        rates = numpyro.sample(f"rates_{self.num_voters}", dist.Beta(2.0, 2.0).expand([self.num_voters]).to_event(1))
        time.sleep(0.005)
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(0.5))
            says_one = jnp.where(label[..., None] == 1, rates, 1 - rates)
            numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)


def test_programs_do_not_hear_of_each_other():
    models = [Slow(number) for number in range(2, 8)]
    for model, structure in zip(models, in_threads(structure_of, models, workers=3), strict=True):
        assert structure.num_voters == model.num_voters
        assert dict(structure.parameter_shapes) == {f"rates_{model.num_voters}": (model.num_voters,)}
