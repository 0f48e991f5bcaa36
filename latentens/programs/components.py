"""Building blocks of the models: priors as settings, prevalence and confusion matrices as sample sites."""

from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.errors import SettingError
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.settings import at_least

Classes = Annotated[int, at_least(2)]
Categories = Annotated[int, at_least(2)] | None
"""Number of different votes, at least that of the classes; None: the number of classes."""

Prior = float | tuple[Any, ...] | list[Any] | np.ndarray
"""A number, or numbers in nested tuples, lists or an array; kept as tuples."""

Pair = tuple[float, float]
"""Two concentrations of a beta distribution, or mean and standard deviation of a normal one."""


def keep_positive(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds positive numbers in an array of one of the shapes; None stands for the default."""
    array = _kept(model, name, shapes)
    if array is not None and (array <= 0).any():
        raise _wrong(model, name, f"positive, but holds {array.min():g}")


def check_categories(num_classes: int, num_categories: int | None, model: GenerativeModel) -> int:
    """The number of different votes; fewer than classes are refused."""
    if num_categories is not None and num_categories < num_classes:
        raise _wrong(model, "num_categories", f"at least num_classes={num_classes}, but is {num_categories}")
    return num_categories or num_classes


def keep_normal(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds pairs (mean, standard deviation) in an array of one of the shapes, by default one."""
    array = _kept(model, name, tuple((*shape, 2) for shape in shapes or ((),)))
    if array is not None and (array[..., 1] <= 0).any():
        raise _wrong(model, name, f"(mean, standard deviation), but holds the deviation {array[..., 1].min():g}")


def _kept(model: GenerativeModel, name: str, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray | None:
    """The numbers of a setting, which become tuples in the model; None if they are left to the default."""
    value = getattr(model, name)
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(model, name, f"numbers only, in rows of one length, not {value!r}") from None
    if array.shape not in shapes:
        raise _wrong(model, name, f"{' or '.join(map(_form, shapes))}, not {_form(array.shape)}")
    if not np.isfinite(array).all():
        raise _wrong(model, name, f"finite, not {value!r}")
    object.__setattr__(model, name, _tuples(array.tolist()))  # frozen for users, not while the model is made
    return array


def _form(shape: tuple[int, ...]) -> str:
    return f"of shape {shape}" if shape else "one number"


def _tuples(value: Any) -> Prior:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _wrong(model: GenerativeModel, name: str, words: str) -> SettingError:
    return SettingError(f"{type(model).__name__}: {name} must be {words}")


def sample_prevalence(num_classes: int, prior: Prior) -> Float[Array, " label"]:
    """Sample the site `prevalence`, the shares of the classes.

    Args:
        num_classes: Number of classes.
        prior: Concentrations of a Dirichlet distribution, one for each class or one for all.
    """
    concentration = np.broadcast_to(np.asarray(prior, dtype=float), num_classes)
    return numpyro.sample("prevalence", dist.Dirichlet(concentration))


def sample_confusion(
    size: int,
    num_classes: int,
    prior: Prior | None,
    *,
    num_categories: int | None = None,
    plate: str = "voter",
    prefix: str = "",
) -> Float[Array, "label source vote"]:
    """Sample the site `confusion` (source, label, vote): the confusion matrix of each voter or other source.

    Args:
        size: Number of matrices.
        num_classes: Number of classes.
        prior: Concentrations of the rows' Dirichlet distributions, (label, vote) or one such matrix for each source;
            None for `default_confusion_prior`.
        num_categories: Number of different votes; by default that of the classes.
        plate: Name of the plate of the sources.
        prefix: Prefix of the name of the site.
    """
    default = default_confusion_prior(num_classes, num_categories)
    concentration = np.asarray(default if prior is None else prior, dtype=float)
    with numpyro.plate(plate, size, dim=-2), numpyro.plate("true_class", num_classes, dim=-1):
        confusion = numpyro.sample(f"{prefix}confusion", dist.Dirichlet(concentration))
    return jnp.swapaxes(confusion, 0, 1)


def default_confusion_prior(num_classes: int, num_categories: int | None = None) -> Float[np.ndarray, "label vote"]:
    """Concentrations that favour right votes: Beta(4, 2) for two classes; for K classes 1, and K + 1 if right."""
    others = (num_categories or num_classes) - num_classes
    if num_classes == 2:
        return np.array([[4.0, 2.0, *[1.0] * others], [2.0, 4.0, *[1.0] * others]])
    return 1.0 + num_classes * np.eye(num_classes, num_classes + others)


def permute_confusion(params: Params, order: Int[np.ndarray, " label"], prefix: str = "") -> dict[str, np.ndarray]:
    """Prevalence and confusion matrices with the labels in another order."""
    confusion = f"{prefix}confusion"
    return {"prevalence": params["prevalence"][..., order], confusion: params[confusion][..., order, :]}


def two_class_confusion(
    sensitivity: Float[np.ndarray, " voter"], specificity: Float[np.ndarray, " voter"]
) -> Float[np.ndarray, "voter label vote"]:
    """The confusion matrices of voters with the given sensitivities and specificities."""
    of_one, of_zero = np.asarray(sensitivity, dtype=np.float64), np.asarray(specificity, dtype=np.float64)
    return np.stack([np.stack([of_zero, 1 - of_zero], axis=-1), np.stack([1 - of_one, of_one], axis=-1)], axis=-2)


def even_errors(
    right: Float[Array, "*source label"], num_categories: int | None = None
) -> Float[Array, "*source label vote"]:
    """Confusion matrices of sources that are right with the given probabilities and spread other votes evenly."""
    num_classes = right.shape[-1]
    num_categories = num_categories or num_classes
    wrong = (1 - right) / (num_categories - 1)
    return jnp.where(jnp.eye(num_classes, num_categories, dtype=bool), right[..., None], wrong[..., None])


def even_prevalence(num_classes: int) -> Float[Array, " label"]:
    """Equally frequent classes."""
    return jnp.full(num_classes, 1 / num_classes)
