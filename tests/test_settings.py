"""No settings class of the package takes a value that makes no sense, and the error names the culprit."""

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
import pytest

from latentens import methods, models, rbm
from latentens.datasets import Dataset
from latentens.errors import SettingError
from latentens.methods import LatentSpectral, MajorityVote, MaximumLikelihood, Nuts, RBMStack, TopDownMLE
from latentens.models import DawidSkene, Tree
from latentens.rbm import ExactTraining, SampledTraining, SingularValueRule
from latentens.runtime.settings import Count, Settings
from tests.reference import independent_votes

CLASSES = [
    found
    for package in (methods, models, rbm)
    for name in package.__all__
    if dataclasses.is_dataclass(found := getattr(package, name))
    and not inspect.isabstract(found)
    and found not in (methods.Diagnostics, methods.Estimate)  # records, not settings
]
NUMBERS = {
    f"{found.__name__}.{setting.name}": (found, setting.name)
    for found in CLASSES
    for setting in dataclasses.fields(found)
    if any(kind in str(get_type_hints(found)[setting.name]) for kind in ("int", "float"))
}


def make(found, **settings):
    """An object with these settings and whatever else it needs."""
    votes, labels = independent_votes(4, np.full(3, 0.7), np.full(3, 0.7))
    needed = {"method": MajorityVote(), "model": DawidSkene(3), "training": Dataset("some", votes, labels)}
    names = {f.name for f in dataclasses.fields(found) if f.default is f.default_factory is dataclasses.MISSING}
    return found(**{name: needed[name] for name in names} | settings)


def test_every_class_of_settings_is_checked():
    assert {RBMStack, MaximumLikelihood, SampledTraining, SingularValueRule, Tree} < set(CLASSES)
    assert all(issubclass(found, Settings) for found in CLASSES)
    assert all(make(found) for found in CLASSES)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, float("nan"), "many", [3]], ids=repr)
def test_every_number_has_bounds(name, value):
    if name == "MaximumLikelihood.at_least" and value == -1:
        pytest.skip("a log-likelihood may be any number")
    found, setting = NUMBERS[name]
    several = "tuple" in str(get_type_hints(found)[setting])
    with pytest.raises(SettingError, match=f"^{found.__name__}: {setting} must be "):
        make(found, **{setting: (value,) if several else value})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ExactTraining(restarts=0), "ExactTraining: restarts must be at least 1, not 0"),
        (lambda: ExactTraining(restarts=2.5), "ExactTraining: restarts must be a whole number, not 2.5"),
        (lambda: ExactTraining(restarts=True), "restarts must be a whole number, not True"),
        (lambda: SampledTraining(epochs=0), "SampledTraining: epochs must be at least 1, not 0"),
        (lambda: SampledTraining(persistent=1), "SampledTraining: persistent must be True or False, not 1"),
        (lambda: SampledTraining(momentum=1.0), "SampledTraining: momentum must be below 1, not 1.0"),
        (lambda: SampledTraining(schedule="x"), "schedule must be 'constant', 'linear' or 'cosine', not 'x'"),
        (lambda: LatentSpectral(select="foo"), "select must be 'residual' or 'likelihood', not 'foo'"),
        (lambda: Nuts(MajorityVote()), "Nuts: model must be a GenerativeModel, not MajorityVote()"),
        (lambda: Nuts(DawidSkene), "must be a GenerativeModel such as DawidSkene(), not the class DawidSkene"),
        (lambda: RBMStack(training="exact"), "training must be None or a Training, not 'exact'"),
        (lambda: RBMStack(hidden=[3, 1]), "hidden must be None or a tuple such as (3, 1), not [3, 1]"),
        (lambda: RBMStack(hidden=(0, 1)), "hidden must be None or a tuple in which each value is at least 1"),
        (lambda: RBMStack(hidden=(3, 2)), "the last of the hidden sizes must be 1, as in (3, 1), not (3, 2)"),
        (lambda: RBMStack(hidden=()), "the last of the hidden sizes must be 1"),
        (lambda: MaximumLikelihood(DawidSkene(), warm=(1,)), "warm must be a tuple in which each value is a Method"),
        (lambda: MaximumLikelihood(DawidSkene(), starts=0, warm=()), "MaximumLikelihood has no start"),
        (lambda: TopDownMLE(num_hidden=2), "num_hidden must be 0, 3 or more to determine a label, not 2"),
        (lambda: DawidSkene(num_classes=1), "DawidSkene: num_classes must be at least 2, not 1"),
        (lambda: Tree(()), "Tree: groups must name the group of each voter, but is empty"),
        (lambda: Tree((0, 2)), "Tree: groups must be numbered 0, 1, … without a gap"),
    ],
)
def test_messages_name_the_setting_and_the_value(wrong, message):
    with pytest.raises(SettingError) as error:
        wrong()
    assert message in str(error.value)


def test_numbers_of_numpy_are_numbers():
    training = ExactTraining(restarts=np.int64(3), penalty=np.float32(0.5), tolerance=1)
    assert training.restarts == 3


@dataclass(frozen=True)
class Unknown(Settings):
    size: Count = 3
    anything: "NowhereDefined" = None


@dataclass(frozen=True)
class Careless(Settings):
    scale: float = None
    anything: Any = None


def test_what_annotations_do_not_tell_is_not_checked():
    assert Unknown(size=0).size == 0, "one name means nothing here, so none is looked up"


def test_a_default_is_taken_as_it_is():
    assert Careless(anything=3).scale is None
    with pytest.raises(SettingError, match="Careless: scale must be a number, not 'x'"):
        Careless(scale="x")
