"""Compiled programs do not pile up until the system ends the process."""

import jax
import numpy as np
import pytest

from latentens.methods import MajorityVote
from latentens.runtime import compilation as compiled_memory
from tests.reference import KEY, independent_votes


@pytest.mark.parametrize(("taken", "cleared"), [(59, 0), (61, 1)])
def test_compiled_programs_are_let_go_before_mappings_run_out(taken, cleared, monkeypatch, tmp_path):
    (tmp_path / "maps").write_text("a mapping\n" * taken)
    (tmp_path / "limit").write_text("100\n")
    monkeypatch.setattr(compiled_memory, "MAPPINGS", tmp_path / "maps")
    monkeypatch.setattr(compiled_memory, "LIMIT", tmp_path / "limit")
    monkeypatch.setattr(compiled_memory, "_last_count", -compiled_memory.SECONDS)
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(1))
    votes, _ = independent_votes(20, np.full(3, 0.8), np.full(3, 0.8))
    for _ in range(2):  # the second one comes too soon to count again
        MajorityVote().fit(votes, key=KEY)
    assert len(calls) == cleared


def test_a_system_that_does_not_tell_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled_memory, "LIMIT", tmp_path / "none")
    monkeypatch.setattr(compiled_memory, "_last_count", -compiled_memory.SECONDS)
    compiled_memory.release_compiled()
