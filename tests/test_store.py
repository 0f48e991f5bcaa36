"""The store of finished work: what counts as the same work, and which files are believed."""

import functools
import importlib
import pickle
import subprocess
import sys
import threading
import types
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentens import GenerativeModel, Votes
from latentens.errors import LatentensError
from latentens.methods import MaximumLikelihood, RBMStack
from latentens.models import DawidSkene, Tree
from latentens.rbm import ExactTraining
from latentens.runtime.store import Record, Store, fingerprint, package_source

ROOT = Path(__file__).parents[1]
RATE = 0.3


def long_array(place):
    """Arrays that print alike: only an element in the middle, which `repr` leaves out, tells them apart."""
    values = np.zeros(5000)
    values[place] = 1.0
    return values


def made(rate):
    def program(num_items, votes=None):
        return rate * num_items

    return program


@dataclass(frozen=True)
class Nested:
    inner: object = None
    table: dict = field(default_factory=dict)


class Plain:
    def __init__(self, value):
        self.value = value


def helper():
    return 1


def calls_helper():
    return helper() + RATE


DIFFERENT = {
    "arrays that print alike": (long_array(2000), long_array(2001)),
    "types of numbers": (np.zeros(3, np.float32), np.zeros(3, np.float64)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "an array and its list": (np.arange(3), [0, 1, 2]),
    "JAX arrays": (jnp.arange(3), jnp.arange(3) + 1),
    "keys": (jax.random.key(0), jax.random.key(1)),
    "key types": (jax.random.key(0, impl="threefry2x32"), jax.random.key(0, impl="rbg")),
    "text": ("a", "b"),
    "text and number": ("1", 1),
    "a flag and a number": (True, 1),
    "zero and its negative": (0.0, -0.0),
    "nesting": (((1, 2), 3), (1, (2, 3))),
    "a tuple and a list": ((1,), [1]),
    "boundaries of text": (("ab", "c"), ("a", "bc")),
    "sets": ({1, 2}, {1, 3}),
    "dicts of arrays": ({"a": long_array(9)}, {"a": long_array(10)}),
    "starts of a fit": (
        MaximumLikelihood(DawidSkene(3), initial=({"prevalence": long_array(1)},)),
        MaximumLikelihood(DawidSkene(3), initial=({"prevalence": long_array(2)},)),
    ),
    "nested settings": (RBMStack(training=ExactTraining(restarts=2)), RBMStack(training=ExactTraining(restarts=3))),
    "deep settings": (Nested(Nested(Nested(1))), Nested(Nested(Nested(2)))),
    "models": (DawidSkene(3), DawidSkene(4)),
    "classes of the same fields": (DawidSkene, Tree),
    "closures of one factory": (made(1.0), made(2.0)),
    "closures over arrays": (made(long_array(1)), made(long_array(2))),
    "programs": (GenerativeModel.from_program(made(1)), GenerativeModel.from_program(made(2))),
    "lambdas on one line": (lambda x: x + 1, lambda x: x + 2),
    "defaults": (lambda x=1: x, lambda x=2: x),
    "keyword defaults": (lambda *, x=1: x, lambda *, x=2: x),
    "functions of NumPy": (np.exp, np.log),
    "bound arguments": (functools.partial(made, 1), functools.partial(made, 2)),
    "compiled functions": (jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
    "functions that a library makes": (optax.adam(1e-3), optax.adam(1e-2)),
    "methods of objects": (Plain(1).__init__, Plain(2).__init__),
    "objects": (Plain(1), Plain(2)),
    "ordered dicts": (OrderedDict(a=1), OrderedDict(a=2)),
    "generators of random numbers": (np.random.default_rng(1), np.random.default_rng(2)),
    "data frames": (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]})),
    "names of a series": (pd.Series([1, 2], ["x", "y"]), pd.Series([1, 2], ["x", "z"])),
    "labels as objects": (np.array(["a", None], object), np.array(["b", None], object)),
    "votes": (Votes.from_matrix([[0, 1], [1, 1]]), Votes.from_matrix([[0, 1], [1, 0]])),
    "names of voters": tuple(Votes.from_matrix(pd.DataFrame({name: [0, 1], "b": [1, 1]})) for name in "ac"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_content_has_different_fingerprints(name):
    first, second = DIFFERENT[name]
    assert fingerprint(first) == fingerprint(first)
    assert fingerprint(first) != fingerprint(second)


def test_a_copy_has_the_same_fingerprint():
    copied = 0
    for value in (value for pair in DIFFERENT.values() for value in pair):
        try:
            other = pickle.loads(pickle.dumps(value))
        except Exception:
            continue  # lambdas and local functions stay in their process
        assert fingerprint(other) == fingerprint(value)
        copied += 1
    assert copied > 50


def test_equal_closures_and_shared_parts_are_equal():
    assert fingerprint(made(1.5)) == fingerprint(made(1.5))
    shared, equal = [1, 2], [1, 2]
    assert fingerprint(shared, shared) == fingerprint(shared, equal)
    holds_itself = [1]
    holds_itself.append(holds_itself)
    assert fingerprint(holds_itself) != fingerprint([1, [1]])


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
content = st.recursive(plain, lambda part: st.lists(part) | st.dictionaries(st.text(), part) | st.tuples(part, part))


@settings(max_examples=60, deadline=None)
@given(content, content)
def test_fingerprints_are_equal_just_where_the_content_is(first, second):
    equal = pickle.dumps(copy_of(first)) == pickle.dumps(copy_of(second))
    assert (fingerprint(first) == fingerprint(second)) == equal
    assert fingerprint(copy_of(first)) == fingerprint(first)


def copy_of(value):
    """A copy that shares nothing: objects that are the same one are pickled differently from objects that are equal."""
    return eval(repr(value), {"nan": float("nan"), "inf": float("inf")})


def test_the_globals_that_code_uses_count(monkeypatch):
    before = fingerprint(calls_helper)
    monkeypatch.setitem(globals(), "RATE", 0.4)
    changed = fingerprint(calls_helper)
    monkeypatch.setitem(globals(), "helper", lambda: 2)
    assert len({before, changed, fingerprint(calls_helper)}) == 3
    monkeypatch.setitem(globals(), "KEY", "unused")
    monkeypatch.undo()
    assert fingerprint(calls_helper) == before


CLASSES = """
from dataclasses import dataclass, field

class Base:
    def rate(self):
        return {rate}

@dataclass(frozen=True)
class Mine(Base):
    size: int = {size}
    parts: list = field(default_factory=lambda: [{part}])
    kind = {kind!r}

    @property
    def area(self):
        return self.size * {factor}
"""


def test_the_code_of_users_classes_counts():
    def mine(**changes):
        values = {"rate": 1, "size": 2, "part": 3, "kind": "a", "factor": 4} | changes
        namespace = {"__name__": "__main__"}
        exec(CLASSES.format(**values), namespace)
        return fingerprint(namespace["Mine"]), fingerprint(namespace["Mine"](1, []))

    same = mine()
    assert mine() == same
    for change in ({"rate": 9}, {"size": 9}, {"part": 9}, {"kind": "b"}, {"factor": 9}):
        changed = mine(**change)
        assert changed[0] != same[0], change
        assert changed[1] != same[1], change


@pytest.mark.parametrize(
    "program",
    [
        "import rates_of_mine\ndef program(): return rates_of_mine.rate()",
        "from rates_of_mine import rate\ndef program(): return rate()",
        "import between_of_mine\ndef program(): return between_of_mine.rate()",
    ],
)
def test_the_users_modules_count(tmp_path, monkeypatch, program):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "between_of_mine.py").write_text("from rates_of_mine import rate\n")

    def key(rate):
        (tmp_path / "rates_of_mine.py").write_text(f"def rate():\n    return {rate}\n")
        for name in ("rates_of_mine", "between_of_mine"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        namespace = {"__name__": "__main__"}
        exec(program, namespace)
        return fingerprint(namespace["program"])

    assert key("111") == key("111") != key("222")


PROCESS = """
from dataclasses import dataclass
from latentens.runtime.store import fingerprint

@dataclass
class Mine:
    names: frozenset = frozenset("abcdefgh")
    def rate(self):
        return max({"x", "y", "z"})

def made(rate):
    return lambda item: item in {"a", "b", "c"} and rate

print(fingerprint(Mine, Mine(), made({"u": {"v", "w"}})))
"""


def test_fingerprints_are_the_same_in_every_process():
    """Sets are in another order in every process."""
    code, environment = [sys.executable, "-c", PROCESS], {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    found = {
        subprocess.check_output(code, env=environment | {"PYTHONHASHSEED": seed}, text=True).strip() for seed in "12"
    }
    assert len(found) == 1


@pytest.mark.parametrize("value", [threading.Lock(), (i for i in "ab"), sys.__stdin__, sys._getframe()])
def test_objects_without_content_are_refused(value):
    with pytest.raises(LatentensError, match=f"cannot pickle .*{type(value).__name__}.*run without a cache folder"):
        fingerprint(Nested({"deep": [value]}))


def test_a_changed_file_of_the_user_changes_the_key(tmp_path, monkeypatch):
    """Even where only a helper or a constant of the same file has changed."""
    monkeypatch.syspath_prepend(tmp_path)

    def key(helper):
        text = f"import latentens as le\n\n{helper}\nclass Mine(le.Method):\n    def estimate(self): return helper()\n"
        (tmp_path / "methods_of_mine.py").write_text(text)
        monkeypatch.delitem(sys.modules, "methods_of_mine", raising=False)
        importlib.invalidate_caches()
        return fingerprint(importlib.import_module("methods_of_mine").Mine)

    assert len({key("def helper(): return 1"), key("def helper(): return 2"), key("# a\ndef helper(): return 1")}) == 3


def test_the_source_of_the_package_counts(tmp_path, monkeypatch):
    def source(text, folder="methods"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "a.py").write_text(text)
        found = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
        return package_source.__wrapped__()

    before = source("1")
    assert source("1") == before
    assert source("3", "reporting") == before, "a report changes no fit"
    assert source("2") != before
    store = Store(tmp_path)
    key = store.key("work")
    monkeypatch.setattr("latentens.runtime.store.package_source", lambda: "other code")
    assert store.key("work") != key


RECORD = Record({"seconds": 1.5, "error": "é", "scores": {"a": float("nan")}}, {"x/y": np.arange(6.0).reshape(2, 3)})


def assert_recorded(record):
    assert record.about["error"] == "é"
    assert np.isnan(record.about["scores"]["a"])
    np.testing.assert_array_equal(record.arrays["x/y"], RECORD.arrays["x/y"])


def test_what_is_put_is_got_again(tmp_path):
    store = Store(tmp_path / "new" / "folder")
    key = store.key("work", 1)
    assert store.get(key) is None
    store.put(key, RECORD)
    assert_recorded(store.get(key))
    assert_recorded(store.recall(key, lambda: pytest.fail("it is there")))
    assert store.get(store.key("work", 2)) is None
    assert [path.name for path in store.folder.iterdir()] == [f"{key}.npz"]


def test_without_a_folder_nothing_is_kept_and_nothing_refused():
    store, calls = Store(None), []
    for _ in range(2):
        store.recall(store.key(threading.Lock()), lambda: calls.append(1) or RECORD)
    assert len(calls) == 2


def test_a_damaged_file_is_set_aside_wherever_it_is_damaged(tmp_path):
    store = Store(tmp_path)
    key = store.key("work")
    path = tmp_path / f"{key}.npz"
    store.put(key, RECORD)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = [whole[:size] for size in (0, 1, 100, len(whole) // 2, len(whole) - 1)] + [b"\x89HDF\r\n\x1a\n" * 20]
    unnoticed = 0
    for place in rng.choice(len(whole), 150, replace=False):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            record = store.get(key)
        if record is not None:  # a time stamp or an attribute of a file in the archive
            unnoticed += 1
            assert_recorded(record)
        else:
            assert "cannot be used" in str(said[0].message)
            assert not path.exists()
            assert path.with_name(path.name + ".damaged").read_bytes() == content
    assert unnoticed < 50
    path.unlink(missing_ok=True)
    store.put(key, RECORD)
    assert_recorded(store.get(key))


def test_a_file_copied_over_another_is_not_believed(tmp_path):
    store = Store(tmp_path)
    mine, other = store.key("mine"), store.key("other")
    store.put(other, RECORD)
    (tmp_path / f"{mine}.npz").write_bytes((tmp_path / f"{other}.npz").read_bytes())
    with pytest.warns(
        UserWarning, match="holds the result of another computation.*was renamed to .*damaged.*computed again"
    ):
        assert store.get(mine) is None
    assert_recorded(store.get(other))


def test_nothing_that_would_be_executed_is_written_or_read(tmp_path):
    store = Store(tmp_path)
    key = store.key("work")
    with pytest.raises(LatentensError, match="x contains Python objects"):
        store.put(key, Record({}, {"x": np.array([print], dtype=object)}))
    np.savez(tmp_path / f"{key}.npz", about=np.array([print], dtype=object), key=key)
    with pytest.warns(UserWarning, match="cannot be used"):
        assert store.get(key) is None


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LatentensError, match="results cannot be saved in .*file.*choose another folder"):
            Store(place)


def test_a_full_disk_loses_nothing_but_the_file(tmp_path, monkeypatch):
    store = Store(tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(UserWarning, match="could not be saved .*No space left on device"):
        assert_recorded(store.recall(store.key("work"), lambda: RECORD))
    assert list(tmp_path.iterdir()) == []
