"""The same key gives the same result with one core and with two."""

import os
import subprocess
import sys

import numpy as np
import pytest

from latentens.runtime.parallel import available_cores

FITS = """
import sys
import jax, numpy as np
from latentens import Votes
from latentens.methods import DawidSkeneEM, Ebcc, MaximumLikelihood, TopDownMLE, TreeMLE
from latentens.models import ItemDifficulty

rng = np.random.default_rng(0)
labels = rng.integers(0, 2, 300)[:, None]
votes = np.where(rng.random((300, 6)) < 0.75, labels, 1 - labels)
votes[:, 1] = np.where(rng.random(300) < 0.8, votes[:, 0], votes[:, 1])
votes = Votes.from_matrix(votes, 2)
methods = (
    MaximumLikelihood(ItemDifficulty(6, num_nodes=31), starts=2),
    TreeMLE(),
    TopDownMLE(num_hidden=3, starts=1, max_iterations=50),
    DawidSkeneEM(),
    Ebcc(),
)
np.savez(sys.argv[1], *(method.fit(votes, key=jax.random.key(1)).label_probs for method in methods))
"""


@pytest.mark.skipif(
    available_cores() < 2 or not hasattr(os, "sched_setaffinity"), reason="needs two cores that can be chosen"
)
def test_results_do_not_depend_on_the_number_of_cores(tmp_path):
    cores = sorted(os.sched_getaffinity(0))[:2]
    for number in (1, 2):
        bound = f"import os; os.sched_setaffinity(0, {cores[:number]})\n"
        subprocess.run([sys.executable, "-c", bound + FITS, tmp_path / f"{number}.npz"], check=True)
    one, two = (np.load(tmp_path / f"{number}.npz") for number in (1, 2))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
