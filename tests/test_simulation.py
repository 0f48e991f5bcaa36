import subprocess
import sys

import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.datasets import Dataset
from latentens.datasets.dataset import ITEMS_PER_KEY
from latentens.errors import LatentensError, ParameterError, VotesError
from latentens.models import DawidSkene, Tree
from tests.conftest import CATALOGUE, slow_but
from tests.reference import two_class

USER_MODEL = '''
from dataclasses import dataclass
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from latentens import GenerativeModel

@dataclass(frozen=True)
class Copycats(GenerativeModel):
    """On some items the voters after the first copy it."""
    num_voters: int = 4

    def program(self, num_items, votes=None):
        skill = numpyro.sample("skill", dist.Uniform(0.5, 1.0))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(0.3))
            leader = numpyro.sample("leader", dist.Bernoulli(jnp.where(label == 1, skill, 1 - skill)))
            copies = numpyro.sample("copies", dist.Bernoulli(0.25))
            says_one = jnp.where(copies == 1, leader, jnp.where(label == 1, skill, 1 - skill))
            says_one = says_one[..., None] * jnp.ones(self.num_voters)
            numpyro.sample("vote", dist.Bernoulli(says_one).to_event(1), obs=votes)
'''

USER_SCRIPT = """
import jax
import numpy as np
from copycats import Copycats
from latentens import Votes, bayes_posterior, log_likelihood, simulate

model = Copycats()
dataset = simulate(model, 200_000, key=jax.random.key(0), params={"skill": 0.8})
exact = bayes_posterior(model, {"skill": 0.8}, dataset.votes)

unanimous = Votes.from_matrix([[1, 1, 1, 1]])
given = {y: sum((p if y else 1 - p) * (0.25 * v + 0.75 * q**4) for v, p in ((1, 0.8), (0, 0.2)))
         for y, q in ((1, 0.8), (0, 0.2))}
by_hand = 0.3 * given[1] / (0.3 * given[1] + 0.7 * given[0])
assert abs(bayes_posterior(model, {"skill": 0.8}, unanimous)[0, 1] - by_hand) < 1e-10
assert abs(log_likelihood(model, {"skill": 0.8}, unanimous) - np.log(0.3 * given[1] + 0.7 * given[0])) < 1e-10
assert abs(exact[:, 1].mean() - dataset.labels.mean()) < 0.005
likelihoods = [log_likelihood(model, {"skill": s}, dataset.votes) for s in (0.7, 0.8, 0.9)]
assert likelihoods[1] == max(likelihoods)
print("ran")
"""


def test_a_users_own_model_outside_the_repository(tmp_path):
    assert len(USER_MODEL.strip().splitlines()) <= 21
    (tmp_path / "copycats.py").write_text(USER_MODEL)
    (tmp_path / "script.py").write_text(USER_SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ran"


def test_same_key_same_data_and_another_key_other_data():
    model = DawidSkene(5)
    first, again, other = (simulate(model, 300, key=jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first.votes.matrix, again.votes.matrix)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.votes.matrix != other.votes.matrix).any()
    assert (first.params["confusion"] != other.params["confusion"]).any()


def test_long_simulations_are_made_of_different_parts():
    model = DawidSkene(10)
    num_items = ITEMS_PER_KEY + 64
    dataset = simulate(model, num_items, key=jax.random.key(0), params=model.example_params(jax.random.key(1)))
    matrix = dataset.votes.matrix
    assert matrix.shape == (num_items, 10)
    assert dataset.labels.shape == (num_items,)
    assert (matrix[:64] != matrix[ITEMS_PER_KEY:]).any()


def test_paper_parameters_follow_the_paper():
    params = DawidSkene().example_params(jax.random.key(0))
    assert (params["confusion"][5:] == 0.5).all()
    assert (params["confusion"][:5, [0, 1], [0, 1]] > 0.5).all()
    tree = Tree().example_params(jax.random.key(0))
    assert (tree["hidden_confusion"][:, 1, 1] >= 0.8).all()
    assert (tree["voter_confusion"][:, 0, 0] >= 0.6).all()
    assert tree["voter_confusion"].dtype == np.float64


@pytest.mark.parametrize("name", slow_but("Tree", "TruncatedGaussian", cases=set(CATALOGUE) - {"mood"}))
def test_example_parameters_of_every_model_differ_by_key(name):
    model, _ = CATALOGUE[name]
    first, other = (model.example_params(jax.random.key(seed)) for seed in (0, 1))
    assert any((np.asarray(first[name]) != np.asarray(other[name])).any() for name in first)


def test_tree_from_groups():
    assert Tree.from_groups([[0, 3], [1, 2, 4]]).groups == (0, 1, 1, 0, 1)
    for wrong in ([[0], [2]], [[0, 1], [1]], [[0, 1], [0]]):
        with pytest.raises(LatentensError, match="exactly one group"):
            Tree.from_groups(wrong)
    with pytest.raises(LatentensError, match="without a gap"):
        Tree((0, 2))


def test_bad_requests():
    with pytest.raises(VotesError, match="0 items cannot be simulated"):
        simulate(DawidSkene(3), 0, key=jax.random.key(0))
    with pytest.raises(ParameterError, match="'prevalence'.*out of range"):
        simulate(
            DawidSkene(2),
            5,
            key=jax.random.key(0),
            params=two_class(2, [1, 1], [1, 1]),
        )
    with pytest.raises(VotesError, match="labels have shape"):
        Dataset("mine", Votes.from_matrix([[0, 1]]), np.zeros(3, dtype=int))
