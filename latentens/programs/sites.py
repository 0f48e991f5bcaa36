"""Priors as settings of a model: checked when the model is made, kept as tuples so that it can be hashed."""

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

Prior = float | tuple[Any, ...] | list[Any] | np.ndarray
"""A number, or numbers in nested tuples, lists or an array; kept as tuples."""

Pair = tuple[float, float]
"""Two concentrations of a beta distribution, or mean and standard deviation of a normal one."""


def keep_positive(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds positive numbers in an array of one of the shapes; None stands for the default."""
    if getattr(model, name) is not None:
        array = _array(model, name, shapes)
        if (array <= 0).any():
            raise _wrong(model, name, f"positive, but holds {array.min():g}")
        _keep(model, name, array)


def keep_normal(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds pairs (mean, standard deviation) in an array of one of the shapes, by default one."""
    if getattr(model, name) is not None:
        array = _array(model, name, tuple((*shape, 2) for shape in shapes or ((),)))
        if (array[..., 1] <= 0).any():
            raise _wrong(model, name, f"(mean, standard deviation), but holds the deviation {array[..., 1].min():g}")
        _keep(model, name, array)


def _array(model: GenerativeModel, name: str, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    value = getattr(model, name)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(model, name, f"numbers only, in rows of one length, not {value!r}") from None
    if array.shape not in shapes:
        raise _wrong(model, name, f"{' or '.join(map(_form, shapes))}, not {_form(array.shape)}")
    if not np.isfinite(array).all():
        raise _wrong(model, name, f"finite, not {value!r}")
    return array


def _form(shape: tuple[int, ...]) -> str:
    return f"of shape {shape}" if shape else "one number"


def _keep(model: GenerativeModel, name: str, array: np.ndarray) -> None:
    object.__setattr__(model, name, _tuples(array.tolist()))  # frozen for users, not while the model is made


def _tuples(value: Any) -> Prior:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _wrong(model: GenerativeModel, name: str, words: str) -> SettingError:
    return SettingError(f"{type(model).__name__}: {name} must be {words}")


def sample_prevalence(num_classes: int, prior: Prior) -> Float[Array, " label"]:
    """The shares of the classes.

    Args:
        num_classes: Number of classes.
        prior: Concentrations of a Dirichlet distribution, one for each class or one for all.
    """
    concentration = np.broadcast_to(np.asarray(prior, dtype=float), num_classes)
    if num_classes > 2:
        return numpyro.sample("prevalence", dist.Dirichlet(concentration))
    prevalence = numpyro.sample("prevalence", dist.Beta(concentration[1], concentration[0]))
    return jnp.stack([1 - prevalence, prevalence])


def sample_confusion(
    size: int, num_classes: int, prior: Prior | None, *, plate: str = "voter", prefix: str = ""
) -> Float[Array, "label source vote"]:
    """A confusion matrix for each of several voters, or for each of whatever else makes an opinion of a label.

    Args:
        size: Number of matrices.
        num_classes: Number of classes.
        prior: Concentrations of the rows' Dirichlet distributions, (label, vote) or one such matrix for each source;
            None for `default_confusion_prior`.
        plate: Name of the plate of the sources.
        prefix: What the names of the parameters begin with.
    """
    concentration = np.asarray(default_confusion_prior(num_classes) if prior is None else prior, dtype=float)
    if num_classes > 2:
        with numpyro.plate(plate, size, dim=-2), numpyro.plate("true_class", num_classes, dim=-1):
            confusion = numpyro.sample(f"{prefix}confusion", dist.Dirichlet(concentration))
        return jnp.swapaxes(confusion, 0, 1)
    with numpyro.plate(plate, size):
        of_one, of_zero = concentration[..., 1, :], concentration[..., 0, :]
        sensitivity = numpyro.sample(f"{prefix}sensitivity", dist.Beta(of_one[..., 1], of_one[..., 0]))
        specificity = numpyro.sample(f"{prefix}specificity", dist.Beta(of_zero[..., 0], of_zero[..., 1]))
    given_zero = jnp.stack([specificity, 1 - specificity], axis=-1)
    given_one = jnp.stack([1 - sensitivity, sensitivity], axis=-1)
    return jnp.stack([given_zero, given_one])


def default_confusion_prior(num_classes: int) -> Float[np.ndarray, "label vote"]:
    """Concentrations that favour right votes: Beta(4, 2) for two classes; for K classes 1, and K + 1 if right."""
    if num_classes == 2:
        return np.array([[4.0, 2.0], [2.0, 4.0]])
    return 1.0 + num_classes * np.eye(num_classes)


def confusion_of(params: Params, prefix: str = "") -> Float[np.ndarray, "voter label vote"]:
    """Confusion matrices from parameters of any number of classes."""
    if f"{prefix}confusion" in params:
        return np.asarray(params[f"{prefix}confusion"])
    sensitivity, specificity = (np.asarray(params[f"{prefix}{name}"]) for name in ("sensitivity", "specificity"))
    rows = [[specificity, 1 - specificity], [1 - sensitivity, sensitivity]]
    return np.moveaxis(np.array(rows), -1, 0)


def flip_confusion(params: Params, prefix: str = "") -> dict[str, np.ndarray]:
    """What changes in the parameters of two classes when the labels change places."""
    return {
        "prevalence": 1 - params["prevalence"],
        f"{prefix}sensitivity": 1 - params[f"{prefix}specificity"],
        f"{prefix}specificity": 1 - params[f"{prefix}sensitivity"],
    }


def permute_confusion(params: Params, order: Int[np.ndarray, " label"], prefix: str = "") -> dict[str, np.ndarray]:
    """What changes in the parameters of more classes when the labels come in another order."""
    confusion = f"{prefix}confusion"
    return {"prevalence": permute_shares(params["prevalence"], order), confusion: params[confusion][..., order, :]}


def permute_shares(
    prevalence: Float[np.ndarray, "*draw label"] | Float[np.ndarray, "*draw"], order: Int[np.ndarray, " label"]
) -> Float[np.ndarray, "*draw label"] | Float[np.ndarray, "*draw"]:
    """The shares of the classes in another order, whatever the number of classes."""
    return prevalence[..., order] if len(order) > 2 else 1 - prevalence


def even_errors(right: Float[Array, "*source label"]) -> Float[Array, "*source label vote"]:
    """Confusion matrices of sources that are right with the given probabilities and spread their errors evenly."""
    num_classes = right.shape[-1]
    wrong = (1 - right) / (num_classes - 1)
    return jnp.where(jnp.eye(num_classes, dtype=bool), right[..., None], wrong[..., None])


def even_prevalence(num_classes: int) -> Float[Array, " label"] | Float[Array, ""]:
    """The parameter `prevalence` of equally frequent classes."""
    return jnp.full(num_classes, 1 / num_classes) if num_classes > 2 else jnp.array(0.5)


def confusion_params(right: Float[Array, "source label"], prefix: str = "") -> dict[str, Float[Array, "..."]]:
    """The parameters of `sample_confusion` for sources with even errors."""
    if right.shape[-1] == 2:
        return {f"{prefix}sensitivity": right[:, 1], f"{prefix}specificity": right[:, 0]}
    return {f"{prefix}confusion": even_errors(right)}
