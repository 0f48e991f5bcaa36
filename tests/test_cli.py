import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from latentens import Votes, bayes_posterior
from latentens.models import Tree

COMMAND = Path(sys.executable).with_name("latentens")


def run(*arguments, cwd=None):
    return subprocess.run([COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_compare_shows_exact_bayes_above_every_method():
    done = run("compare", "--items", "2000")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"│ (\w+(?: Bayes)?) +│ +([\d.]+) │ +([\d.]+) │ +([\d.]+)", done.stdout)
    methods = ["exact Bayes", "MajorityVote", "SpectralMetaLearner", "DawidSkeneEM", "LatentSpectral", "RBMStack"]
    assert [name for name, *_ in rows] == methods * 4
    for start in range(0, len(rows), len(methods)):
        (_, best, score, divergence), *others = rows[start : start + len(methods)]
        assert float(divergence) == 0
        assert all(float(other[1]) < float(best) + 1 for other in others)
        assert all(float(other[2]) > float(score) - 0.01 for other in others)


def test_simulate_writes_votes_truth_and_parameters(tmp_path):
    done = run("simulate", "tree", "--items", "40", "--seed", "3", "--out", "t.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    votes = Votes.from_csv(tmp_path / "t.csv")
    assert votes.shape == (40, 15)
    truth = pd.read_csv(tmp_path / "t.truth.csv")
    params = json.loads((tmp_path / "t.params.json").read_text())["params"]
    exact = bayes_posterior(Tree(), params, votes)
    assert truth["bayes_prob_1"].to_numpy() == pytest.approx(exact[:, 1], abs=1e-12)
    assert set(truth["truth"]) == {0, 1}


def test_simulate_takes_a_users_file(tmp_path):
    program = "\n".join(
        [
            "import jax.numpy as jnp, numpyro, numpyro.distributions as dist",
            "def coins(num_items, votes=None):",
            "    with numpyro.plate('item', num_items):",
            "        label = numpyro.sample('label', dist.Bernoulli(0.5))",
            "        numpyro.sample('vote', dist.Bernoulli(0.2 + 0.6 * label[..., None] * jnp.ones(3)).to_event(1))",
        ]
    )
    (tmp_path / "mine.py").write_text(program)
    done = run("simulate", "mine.py:coins", "--items", "9", "--out", "coins.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Votes.from_csv(tmp_path / "coins.csv").shape == (9, 3)


def test_models_are_listed():
    done = run("models")
    assert done.returncode == 0
    for name in ("DawidSkene", "Tree", "LayeredGraph", "TruncatedGaussian", "DeepBeliefNet", "TopDown"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "Forest", "--out", "x.csv"), "there is no model 'Forest'; there are DawidSkene"),
        (("simulate", "Tree", "--out", "x.txt"), "x.txt does not end in .csv"),
        (("simulate", "Tree", "--out", "nowhere/x.csv"), "nowhere is not a folder"),
        (("simulate", "none.py:Model", "--out", "x.csv"), "none.py is not a Python file"),
        (("simulate", "empty.py:Model", "--out", "x.csv"), "empty.py has no model or program 'Model'"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(tmp_path, arguments, message):
    (tmp_path / "empty.py").write_text("")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("x.*"))


def test_options_out_of_range_exit_with_2():
    done = run("compare", "--items", "0")
    assert done.returncode == 2
    assert "--items" in done.stderr
