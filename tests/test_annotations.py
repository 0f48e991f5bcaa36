"""Arrays have the shapes and types that their annotations say, in a session of its own over tests that are cheap."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped

from tests import checked

CHEAP = ("moments", "orient", "rbm_energy", "vote")


@jaxtyped(typechecker=checked)
def total(left: Float[np.ndarray, " row"], right: Float[np.ndarray, " row"], note: int) -> Float[np.ndarray, " row"]:
    return left + right if note else left[:1]


def test_the_checker_sees_wrong_shapes_and_leaves_other_annotations_alone():
    assert total(np.ones(2), np.ones(2), "no integer").shape == (2,)
    with pytest.raises(TypeCheckError, match="parameters"):
        total(np.ones(2), np.ones(3), 1)
    with pytest.raises(TypeCheckError, match="return value"):
        total(np.ones(2), np.ones(2), 0)


@pytest.mark.slow
def test_arrays_are_as_annotated():
    files = [f"tests/test_{name}.py" for name in CHEAP]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--jaxtyping-packages=latentens,tests.checked", *files]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
