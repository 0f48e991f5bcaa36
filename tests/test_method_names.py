"""Methods and models as they are written on the command line."""

import json
import sys

import numpy as np
import pytest

from latentens.cli.methods import find_methods, find_model
from latentens.errors import LatentensError
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood, Nuts, RBMStack
from latentens.models import DawidSkene, TopDown, Tree
from latentens.rbm import ExactTraining, SingularValueRule
from latentens.votes import Votes

MODEL = """
from dataclasses import dataclass
from latentens import GenerativeModel, Method
from latentens.methods import MajorityVote

@dataclass(frozen=True)
class Mine(GenerativeModel):
    num_voters: int
    depth: int = 2

    def program(self, num_items, votes=None):
        pass

class Odd:
    def __init__(self):
        raise KeyError("odd")

class Neither:
    pass

class Forgot(Method):
    estimate = posterior = None

ready = Mine(4)
aggregator = MajorityVote()

def coins(num_items, votes=None):
    pass
"""


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


@pytest.fixture
def votes():
    """Nine voters, three classes."""
    return Votes.from_matrix(np.random.default_rng(0).integers(0, 3, (20, 9)), num_classes=3)


def made(text, votes):
    ((_, make),) = find_methods([text]).items()
    return make(votes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("majorityvote", MajorityVote()),
        ("Nuts(DawidSkene)", Nuts(DawidSkene(9, 3))),
        ("Nuts(DawidSkene(num_voters=4))", Nuts(DawidSkene(4, 3))),
        ("Nuts(condInd, num_chains=2)", Nuts(DawidSkene(9, 3), num_chains=2)),
        ("MaximumLikelihood(TopDown(num_hidden=4))", MaximumLikelihood(TopDown(9, 4, 3))),
        ("RBMStack(training=ExactTraining())", RBMStack(training=ExactTraining())),
        ("RBMStack(rule=SingularValueRule(max_units=None))", RBMStack(rule=SingularValueRule(max_units=None))),
        ("RBMStack(hidden=[3, 1])", RBMStack(hidden=(3, 1))),
        ("DawidSkeneEM(off_diagonal=1e-3)", DawidSkeneEM(off_diagonal=0.001)),
        (
            "MaximumLikelihood(DawidSkene, warm=(MajorityVote, DawidSkeneEM(random_starts=0)))",
            MaximumLikelihood(DawidSkene(9, 3), warm=(MajorityVote(), DawidSkeneEM(random_starts=0))),
        ),
    ],
)
def test_settings_and_sizes(text, expected, votes):
    assert made(text, votes) == expected


def test_models_of_a_file(in_folder, votes):
    assert repr(made("MaximumLikelihood(mine.py:Mine)", votes).model) == "Mine(num_voters=9, depth=2)"
    assert repr(made("Nuts(mine.py:Mine(depth=3), num_chains=1)", votes).model) == "Mine(num_voters=9, depth=3)"
    assert repr(made("Nuts('mine.py:Mine'(num_voters=5))", votes).model) == "Mine(num_voters=5, depth=2)"
    assert repr(made("Nuts(./mine.py:ready)", votes).model) == "Mine(num_voters=4, depth=2)"
    assert repr(made(f"Nuts({in_folder}/mine.py:coins)", votes).model) == "coins"
    assert made("mine.py:aggregator", votes) == MajorityVote()
    (in_folder / "two words.py").write_text(MODEL)
    assert repr(made("Nuts('two words.py:ready')", votes).model) == "Mine(num_voters=4, depth=2)"


def test_a_file_is_read_again_only_when_it_changed(in_folder):
    assert find_model("mine.py:ready")[1] is find_model("mine.py:ready")[1]
    (in_folder / "mine.py").write_text(MODEL.replace("Mine(4)", "Mine(6)"))
    assert find_model("mine.py:ready")[1].num_voters == 6


def test_a_file_replaces_no_module(in_folder):
    (in_folder / "json.py").write_text(MODEL)
    assert find_model("json.py:ready")[0] == "ready"
    assert sys.modules["json"] is json
    assert json.loads("[1]") == [1]


def test_short_names():
    texts = ["fast=DawidSkeneEM(random_starts=1)", "my own = MajorityVote", "RBMStack(hidden=(3, 1))"]
    assert list(find_methods(texts)) == ["fast", "my own", "RBMStack(hidden=(3, 1))"]
    assert find_model("small=DawidSkene(num_voters=3)") == ("small", DawidSkene(3))
    assert find_model("tree") == ("tree", Tree())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Nuts(MajorityVote)", "Nuts: model must be a GenerativeModel, not MajorityVote()"),
        ("Nuts", "Nuts: missing a required argument: 'model'; its settings are model, num_chains"),
        ("Nuts(DawidSkene, num_chains=0)", "Nuts: num_chains must be at least 1, not 0"),
        ("Nuts(mine.py:Nothing)", "mine.py has no model or program 'Nothing'"),
        ("Nuts(mine.py:coins(3))", "mine.py:coins takes no settings"),
        ("Nuts(mine.py:Odd)", "Odd: KeyError: 'odd'"),
        ("Nuts(mine.py:Mine(num_voter=3))", "Mine has no setting 'num_voter'; its settings are num_voters, depth"),
        ("mine.py:ready", "'mine.py:ready' is a model; fit it by"),
        ("mine.py:Neither", "Neither does not derive from latentens.Method"),
        ("mine.py:Forgot", "Forgot must be a frozen dataclass"),
        ("none.py:Foo", "none.py: no such file"),
        ("Tree", "'Tree' is a model; fit it by 'MaximumLikelihood(Tree)'"),
        ("DawidSkenEM", "there is no method or model 'DawidSkenEM'; did you mean DawidSkeneEM?"),
        ("Oracle", "there is no method or model 'Oracle'; available are Consensus, Cubam"),
        ("Cubam(1, 2, 3)", "Cubam: too many positional arguments; its settings are dimensions, rounds"),
        ("Cubam(rounds=open('x'))", "no method or model 'open'"),
        ("Cubam(rounds=1 + 1)", "'1 + 1' is neither a value nor a model"),
        ("Cubam(", "'Cubam(' is not a method; write NAME"),
        ("x=", "'x=' is not a method; write NAME"),
        ("", "'' is not a method; write NAME"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(in_folder, text, message):
    with pytest.raises(LatentensError) as error:
        find_methods([text])
    assert message in str(error.value)


def test_the_same_method_twice():
    with pytest.raises(LatentensError, match="appears twice; give one of them another name"):
        find_methods(["MajorityVote", "MajorityVote"])
    assert len(find_methods(["MajorityVote", "again=MajorityVote"])) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import jax\ndef program(:\n", "bad.py, line 2: invalid syntax"),
        ("\nimport nompyro\n", "bad.py, line 2: ModuleNotFoundError: No module named 'nompyro'"),
        ("def f():\n    return 1 / 0\n\nf()\n", "bad.py, line 2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "bad.py, line 2: SystemExit: 3"),
        ("\0", "bad.py: source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_does_not_run(in_folder, content, message):
    (in_folder / "bad.py").write_text(content)
    with pytest.raises(LatentensError) as error:
        find_model("bad.py:program")
    assert str(error.value) == message
