"""Whatever is wrong with a user's program is said in one sentence, with file and line."""

import jax
import numpy as np
import pytest

from latentens import GenerativeModel, Votes, simulate
from latentens.errors import ContractError
from latentens.methods import MaximumLikelihood
from latentens.programs.contract import structure_of

PROGRAM = """
import jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist

def judges(num_items, votes=None):
    skill = numpyro.sample("skill", dist.Beta(2.0, 2.0))
    with numpyro.plate("item", num_items):
        label = numpyro.sample("label", dist.Bernoulli(0.5))
        {line}
        says = 0.2 + 0.6 * skill * label[..., None] * jnp.ones(5)
        numpyro.sample("vote", {vote}, obs=votes)
"""
VOTE = "dist.Bernoulli(says).to_event(1)"
BRANCH = "a Python `if`, `while`, `and` or `or` depends on a random value; use jnp.where"
OUTSIDE = "site 'vote' has probabilities outside 0 … 1, or shares that do not add up to 1"


def program(tmp_path, line="", vote=VOTE):
    """A model of a file, by its own name so that errors can be looked up."""
    path = tmp_path / "judges.py"
    path.write_text(PROGRAM.format(line=line, vote=vote))
    names = {}
    exec(compile(path.read_text(), path, "exec"), names)
    return GenerativeModel.from_program(names["judges"])


def test_the_program_is_right_but_for_its_faults(tmp_path):
    assert structure_of(program(tmp_path)).num_voters == 5


@pytest.mark.parametrize(
    ("line", "vote", "message"),
    [
        ("if label: skill = 1 - skill", VOTE, f"judges.py, line 8: judges: {BRANCH}"),
        ("skill = 1 - skill if skill > 0.5 else skill", VOTE, f"judges.py, line 8: judges: {BRANCH}"),
        ("np.log(skill)", VOTE, "judges.py, line 8: judges: NumPy was called on a random value; use jax.numpy"),
        ("float(skill)", VOTE, "judges.py, line 8: judges: Python code needs the concrete value of a random value"),
        ("range(label[0])", VOTE, "judges.py, line 8: judges: a random value is used as a Python index"),
        ("", "dists.Bernoulli(says)", "judges.py, line 10: judges: NameError: name 'dists' is not defined"),
        ("", "dist.Bernoulli(says)", "end a distribution over voters in .to_event(1)"),
        ("", "dist.Bernoulli(says[:, :3])", "judges.py, line 10: judges: site 'vote' has batch shape (3, 3)"),
        ("numpyro.param('extra', 1.0)", VOTE, "judges.py, line 8: judges: site 'extra' is a numpyro.param"),
    ],
)
def test_faults_that_show_at_once(tmp_path, line, vote, message):
    with pytest.raises(ContractError) as error:
        structure_of(program(tmp_path, line, vote))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_program_with_other_arguments():
    def judges(num_items):
        pass

    with pytest.raises(ContractError, match=r"^test_faults.py, line \d+: judges: TypeError: .*2 were given"):
        structure_of(GenerativeModel.from_program(judges))


@pytest.mark.parametrize(
    "vote",
    [
        "dist.Bernoulli(says + 0.9).to_event(1)",
        "dist.Bernoulli(says - 0.3).to_event(1)",
        "dist.Categorical(jnp.stack([says, says], axis=-1)).to_event(1)",
    ],
)
def test_probabilities_that_are_none(tmp_path, vote):
    with pytest.raises(ContractError) as error:
        simulate(program(tmp_path, vote=vote), 20, key=jax.random.key(0))
    assert str(error.value).startswith(f"judges.py, line 10: judges: {OUTSIDE}")


def test_probabilities_that_are_none_are_not_fitted(tmp_path):
    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (20, 5)))
    method = MaximumLikelihood(program(tmp_path, vote="dist.Bernoulli(says + 0.9).to_event(1)"), starts=1, warm=())
    with pytest.raises(ContractError, match=OUTSIDE):
        method.fit(votes, key=jax.random.key(0))


def test_certain_votes_are_allowed(tmp_path):
    model = program(tmp_path, vote="dist.Bernoulli(jnp.where(label[..., None] == 1, 1.0, 0.0 * says)).to_event(1)")
    drawn = simulate(model, 20, key=jax.random.key(0))
    assert np.array_equal(drawn.votes.matrix[:, 0], drawn.labels)
