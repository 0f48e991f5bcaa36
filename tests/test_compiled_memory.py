"""Compiled programs do not pile up until the system ends the process."""

import jax
import pytest

from latentens.runtime.compilation import release_compiled


@pytest.mark.parametrize(("taken", "cleared"), [(59, 0), (61, 1)])
def test_compiled_programs_are_dropped_before_mappings_run_out(taken, cleared, monkeypatch, tmp_path):
    (tmp_path / "maps").write_text("a mapping\n" * taken)
    (tmp_path / "limit").write_text("100\n")
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(1))
    for every in (0.0, 1e9):  # the second call comes too soon to count again
        release_compiled(mappings=tmp_path / "maps", limit=tmp_path / "limit", every=every)
    assert len(calls) == cleared
    release_compiled(mappings=tmp_path / "none", limit=tmp_path / "limit", every=0.0)  # not Linux
    assert len(calls) == cleared
