"""Compiled programs are kept where the user says, within bounds, and a second process finds them."""

import os
import subprocess
import sys

import jax
import pytest

from latentens.runtime.compiled_cache import CACHE_VARIABLE, keep_compiled, remove_oldest, user_folder

COMPILE = """
from latentens.runtime.compiled_cache import keep_compiled
keep_compiled()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.monitoring.register_event_listener(lambda event, **_: print(event) if "cache_hits" in event else None)
print(jax.jit(lambda x: x @ x)(jax.numpy.ones((3, 3))).sum())
"""


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def test_the_folder_is_the_users_unless_another_is_named(monkeypatch, tmp_path):
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(user_folder()) == str(tmp_path / "user/latentens/compiled")
    keep_compiled()  # JAX has a folder now, which stays
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "named")
    assert (tmp_path / "named").is_dir()


def test_off_keeps_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_to_write_to_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "user").write_text("a file in the way")
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_files_that_were_not_used_for_longest_go(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    remove_oldest(tmp_path, 25)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    remove_oldest(tmp_path, 25)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    runs = [
        subprocess.run(
            [sys.executable, "-c", COMPILE], env=variables, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert "cache_hits" not in runs[0]
    assert "cache_hits" in runs[1]
    assert list(user_folder().iterdir())
