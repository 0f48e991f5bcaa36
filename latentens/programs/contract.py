"""The program contract: reading the structure of a program, and errors that name the site and the line."""

import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Shaped
from numpyro import handlers
from numpyro.infer.inspect import get_dependencies
from numpyro.primitives import Messenger

from latentens.errors import ContractError, LatentensError
from latentens.programs.distributions import innermost
from latentens.programs.model import GenerativeModel
from latentens.runtime.numerics import double_precision, some_key

RUN_ALONE = threading.RLock()
"""The lock under which programs run: NumPyro's handlers are not thread-safe."""


WORDS: tuple[tuple[type[Exception], str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "a Python `if`, `while`, `and` or `or` depends on a random value; use jnp.where, jnp.logical_and, …",
    ),
    (jax.errors.TracerArrayConversionError, "NumPy was called on a random value; use jax.numpy"),
    (jax.errors.ConcretizationTypeError, "Python code needs the concrete value of a random value; use jax.numpy"),
    (jax.errors.TracerIntegerConversionError, "a random value is used as a Python index; use a jax.numpy array"),
)
"""Errors of JAX caused by Python control flow or NumPy calls on traced values, with remedies."""


def in_words(error: BaseException) -> str:
    """The first line of an error, with a remedy where one is known."""
    first = str(error).strip().partition("\n")[0]
    for kind, words in WORDS:
        if isinstance(error, kind):
            return words
    if "truth value of an array" in first:
        return WORDS[0][1]
    if "ncompatible shapes" in first:
        return (
            f"{first}; give labels an axis of their own, `label[..., None]`, where they meet parameters of voters, and "
            "end a distribution over voters in .to_event(1)"
        )
    return f"{type(error).__name__}: {first}"


def last_line(file: str, error: BaseException) -> int | None:
    """The last line of a file that was running when an error arose."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def site_place(model: GenerativeModel, site: str) -> str:
    """The line of a program on which a site is sampled, or where the program begins."""
    lines = _SiteLines(model)

    def run(key: jax.Array) -> None:
        with RUN_ALONE, lines, handlers.seed(rng_seed=key):
            model.program(1)

    jax.eval_shape(run, some_key())
    return lines.places.get(site, _beginning(model))


def improper(model: GenerativeModel, site: str) -> ContractError:
    """The error for a site with improper probabilities."""
    return ContractError(
        f"{site_place(model, site)}: {model}: site {site!r} has probabilities outside 0 … 1, or shares that do not add "
        "up to 1; fix the formula, or pass logits"
    )


class _SiteLines(Messenger):
    """Records the line on which each site is sampled."""

    def __init__(self, model: GenerativeModel) -> None:
        self.places: dict[str, str] = {}
        self._code = _code(model)
        super().__init__()

    def process_message(self, msg: dict[str, Any]) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and self._code is not None:
            if frame.f_code.co_filename == self._code.co_filename:
                self.places[msg.get("name", "")] = _named(self._code.co_filename, frame.f_lineno)
                return
            frame = frame.f_back


def _beginning(model: GenerativeModel) -> str:
    code = _code(model)
    return _named(code.co_filename, code.co_firstlineno) if code else type(model).__name__


def _code(model: GenerativeModel) -> CodeType | None:
    """The code of the program as its author wrote it."""
    program = getattr(model, "function", model.program)
    return getattr(getattr(program, "__func__", program), "__code__", None)


def _named(file: str, line: int) -> str:
    return f"{Path(file).name}, line {line}"


@dataclass(frozen=True, eq=False)
class HiddenSite:
    """A site inside the plate `item` other than `vote`: the label or a hidden unit.

    Attributes:
        name: Name of the site.
        support: Its values.
        log_weights: Log quadrature weights of the values, for a continuous site.
        parents: The hidden sites on which it depends directly.
    """

    name: str
    support: Shaped[np.ndarray, "value *event"]
    log_weights: Float[np.ndarray, " value"] | None
    parents: frozenset[str]


@dataclass(frozen=True, eq=False)
class Structure:
    """The static part of a program.

    Attributes:
        hidden: The hidden sites in program order, `label` among them.
        vote_parents: The hidden sites on which `vote` depends directly.
        num_labels: Number of values of `label`.
        num_voters: Number of voters.
        num_vote_classes: Number of values of a vote.
        parameter_shapes: Shape of each parameter.
        parameter_plates: The plate of each axis of each parameter, None for an axis without.
    """

    hidden: Mapping[str, HiddenSite]
    vote_parents: frozenset[str]
    num_labels: int
    num_voters: int
    num_vote_classes: int
    parameter_shapes: Mapping[str, tuple[int, ...]]
    parameter_plates: Mapping[str, tuple[str | None, ...]]

    @property
    def label_informs_votes(self) -> bool:
        """Whether the label is an ancestor of the votes, so that votes are informative about its parameters."""
        ancestors, pending = set(), set(self.vote_parents)
        while pending:
            name = pending.pop()
            ancestors.add(name)
            pending |= self.hidden[name].parents - ancestors
        return "label" in ancestors


def structure_of(model: GenerativeModel) -> Structure:
    """Read off the structure of a model's program; raise `ContractError` where it breaks the contract."""
    try:
        hash(model)
    except TypeError as error:
        raise ContractError(
            f"{type(model).__name__} cannot be hashed ({error}); use tuples instead of arrays"
        ) from None
    try:
        with RUN_ALONE:
            return _structure(model)
    except LatentensError:
        raise
    except Exception as error:  # whatever the user's program raises, with its line
        code = _code(model)
        line = code and last_line(code.co_filename, error)
        place = _named(code.co_filename, line) if code and line else _beginning(model)
        raise ContractError(f"{place}: {model}: {in_words(error)}") from error


@lru_cache(maxsize=256)
@double_precision
def _structure(model: GenerativeModel) -> Structure:
    # the sites, and which of them are inside the plate
    sites = _probe(model, 3)
    inside = {name: site for name, site in sites.items() if site["in_plate"]}
    for name in ("label", "vote"):
        if name not in inside:
            where = "outside the plate 'item'" if name in sites else "missing"
            raise _broken(
                model, name, f"is {where}", f"sample {name!r} inside `with numpyro.plate('item', num_items):`"
            )
    parameters = {name: site["shape"] for name, site in sites.items() if not site["in_plate"]}
    # a parameter whose shape follows the number of items belongs inside the plate
    for name, site in _probe(model, 4).items():
        if name in parameters and site["shape"] != parameters[name]:
            raise _broken(
                model, name, "has one value per item but is outside the plate 'item'", "move it into the plate"
            )
    # the graph of the hidden sites and the votes
    dependencies = get_dependencies(model.program, (3,))["prior_dependencies"]
    parents = {name: frozenset(dependencies[name]) & set(inside) - {name} for name in inside}
    for name in inside:
        if "vote" in parents[name]:
            raise _broken(model, name, "depends on 'vote'", "votes may depend on hidden sites, never the reverse")
    if not parents["vote"]:
        raise _broken(
            model, "vote", "does not depend on any site of its item", "make votes depend on the label or a hidden site"
        )
    hidden = {
        name: HiddenSite(name, site["support"], site["log_weights"], parents[name])
        for name, site in inside.items()
        if name != "vote"
    }
    num_voters, num_vote_classes = inside["vote"]["shape"]
    plates = {name: sites[name]["plates"] for name in parameters}
    num_labels = len(hidden["label"].support)
    return Structure(hidden, parents["vote"], num_labels, num_voters, num_vote_classes, parameters, plates)


def _probe(model: GenerativeModel, num_items: int) -> dict[str, dict[str, Any]]:
    """Describe every sample site without running the program on numbers."""
    sites: dict[str, dict[str, Any]] = {}

    def run(key: jax.Array) -> None:
        with handlers.trace() as trace, handlers.seed(rng_seed=key):
            model.program(num_items)
        for name, site in trace.items():
            if site["type"] == "param":
                raise _broken(model, name, "is a numpyro.param", "give it a prior with numpyro.sample")
            if site["type"] == "sample" and not _is_prior_factor(site):
                sites[name] = _describe(model, site, num_items)

    jax.eval_shape(run, some_key())
    return sites


def _is_prior_factor(site: dict[str, Any]) -> bool:
    """Whether a site only adds to the log prior density of the parameters."""
    return site["is_observed"] and all(frame.name != "item" for frame in site["cond_indep_stack"])


def _describe(model: GenerativeModel, site: dict[str, Any], num_items: int) -> dict[str, Any]:
    name, distribution = site["name"], site["fn"]
    plates = [frame.name for frame in site["cond_indep_stack"]]
    if "item" not in plates:
        if distribution.is_discrete:
            others = f", in {', '.join(map(repr, plates))}" if plates else ""
            fault = f"is discrete but outside the plate 'item'{others}"
            raise _broken(model, name, fault, "move it into the plate or make it a field")
        return {"in_plate": False, "shape": np.shape(site["value"]), "plates": _axis_plates(site)}
    if site["is_observed"]:
        raise _broken(model, name, "is observed inside the plate 'item'", "observe nothing but `vote`, by obs=votes")
    if site["scale"] is not None:
        raise _broken(model, name, "is rescaled", "remove handlers.scale and plate subsampling")
    if isinstance(innermost(distribution), dist.MaskedDistribution):
        raise _broken(model, name, "is masked", "remove the mask: missing votes are handled everywhere")
    if len(plates) > 1:
        others = ", ".join(repr(plate) for plate in plates if plate != "item")
        raise _broken(model, name, f"is also in the plate {others}", "make it a vector per item with .to_event(1)")
    if distribution.batch_shape != (num_items,):
        raise _broken(
            model,
            name,
            f"has batch shape {distribution.batch_shape} for {num_items} items",
            "make vectors with .to_event(1)",
        )
    if name == "vote":
        return {"in_plate": True, "shape": _vote_shape(model, distribution)}
    support, log_weights = _support(model, name, distribution)
    if name == "label" and not _are_codes(support):
        raise _broken(model, name, "does not take the values 0, 1, …", "use Bernoulli or Categorical")
    return {"in_plate": True, "support": support, "log_weights": log_weights}


def _axis_plates(site: dict[str, Any]) -> tuple[str | None, ...]:
    """The plate of each axis; plates are counted from the last axis before those of a single event."""
    plates: list[str | None] = [None] * np.ndim(site["value"])
    for frame in site["cond_indep_stack"]:
        plates[len(plates) - site["fn"].event_dim + frame.dim] = frame.name
    return tuple(plates)


def _vote_shape(model: GenerativeModel, distribution: dist.Distribution) -> tuple[int, int]:
    """Number of voters and of vote classes."""
    independent = isinstance(distribution, dist.Independent) and distribution.reinterpreted_batch_ndims == 1
    base = distribution.base_dist if independent else distribution
    if not independent or base.event_shape != ():
        kind, shape = type(innermost(distribution)).__name__, distribution.event_shape
        raise _broken(
            model, "vote", f"does not factorise over voters ({kind} with event shape {shape})",
            "use a distribution of single votes, such as Bernoulli, with .to_event(1)",
        )  # fmt: skip
    values, _ = _support(model, "vote", base)
    if not _are_codes(values):
        raise _broken(model, "vote", "does not take the values 0, 1, …", "use Bernoulli or Categorical")
    return distribution.event_shape[0], len(values)


def _are_codes(values: Shaped[np.ndarray, "value *event"]) -> bool:
    return len(values) > 1 and np.array_equal(values, np.arange(len(values)))


def _support(
    model: GenerativeModel, name: str, distribution: dist.Distribution
) -> tuple[Shaped[np.ndarray, "value *event"], Float[np.ndarray, " value"] | None]:
    """All values of a site and, if it is continuous, their log weights; a vector's by the product of its elements'."""
    base = innermost(distribution)
    log_weights = getattr(base, "log_quadrature_weights", None)
    if not base.has_enumerate_support or not (base.is_discrete or log_weights is not None):
        kind = type(base).__name__
        fault = f"has no finite support ({kind})" if base.is_discrete else f"is continuous ({kind})"
        remedy = (
            "use Bernoulli or Categorical" if name in ("label", "vote") else "use a discrete site or QuadratureNormal"
        )
        raise _broken(model, name, f"{fault} inside the plate 'item'", remedy)
    with jax.ensure_compile_time_eval():
        values = np.asarray(base.enumerate_support(expand=False)).reshape(-1, *base.event_shape)
    if name == "vote":
        return values, None
    repeats = prod(distribution.event_shape[: len(distribution.event_shape) - len(base.event_shape)])
    refuse_too_many(model, {name: len(values) ** repeats})
    index = np.indices((len(values),) * repeats).reshape(repeats, -1).T
    support = values[index].reshape(-1, *distribution.event_shape)
    return support, None if log_weights is None else log_weights[index].sum(-1)


def refuse_too_many(model: GenerativeModel, sizes: Mapping[str, int], limit: int = 2**20) -> None:
    """Raise `ContractError` if sites with these numbers of values have more joint configurations than a table may."""
    if (count := prod(sizes.values())) > limit:
        sites = ", ".join(map(repr, sizes))
        raise ContractError(
            f"{site_place(model, next(iter(sizes)))}: {model}: the site{'s' * (len(sizes) > 1)} {sites} would be "
            f"summed over {count:,} joint configurations, more than the limit of {limit:,}; use fewer hidden units"
        )


def _broken(model: GenerativeModel, name: str, fault: str, remedy: str) -> ContractError:
    return ContractError(f"{site_place(model, name)}: {model}: site {name!r} {fault}; {remedy}")
