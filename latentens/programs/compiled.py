"""A program compiled once, whatever the votes: from parameters to tables, and from derivatives back to derivatives.

Everything that climbs a likelihood needs the tables at some parameters, and the derivatives by the parameters of
something whose derivatives by the tables are known: in expectation–maximisation and in a gradient of the likelihood
these are expected counts, which `Rows` works out. Both come from this one small program, whose size depends on the
model alone.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentens.programs.contract import inspect
from latentens.programs.model import GenerativeModel
from latentens.programs.row_sums import Tables
from latentens.programs.tables import checked_tables, lay_out
from latentens.programs.transforms import Flat, unflatten
from latentens.runtime.compilation import ONE_THREAD


class Evaluation(NamedTuple):
    """A program at some parameters: its tables, and the log prior density of the parameters if it is used, else 0."""

    tables: Tables
    log_prior: float


class CompiledProgram:
    """The compiled program of a model, at parameters that are one vector in the order of the structure's."""

    def __init__(self, model: GenerativeModel, use_prior: bool) -> None:
        self.model, self.shapes, self.use_prior = model, inspect(model).parameter_shapes, use_prior
        num_parameters = sum(map(math.prod, self.shapes.values()))
        parts, _ = jax.eval_shape(self._run, jax.ShapeDtypeStruct((num_parameters,), np.float64))
        self._table_shapes = [part.shape for part in parts[:2]]
        self._edges = np.cumsum([0, *(part.size for part in parts)]).tolist()
        self._nothing = jax.device_put(np.zeros(self._edges[-1]))

        def evaluate(params: Array, derivatives: Array) -> Array:
            found, pull_back, holds = jax.vjp(self._run, params, has_aux=True)
            (slopes,) = pull_back(self._split(derivatives))
            return jnp.concatenate([*(part.ravel() for part in found), holds[None], slopes])

        self._evaluate = jax.jit(evaluate, compiler_options=ONE_THREAD)

    def __call__(self, params: Flat) -> Evaluation:
        """The tables and the log prior density."""
        prior, emission, log_prior = self._split(np.asarray(self._evaluate(params, self._nothing)))
        return Evaluation(Tables(prior, emission), float(log_prior))

    def check(self, params: Flat) -> None:
        """Raise `ParameterError` or `ContractError` where the program gives what are no probabilities of votes."""
        found, end = np.asarray(self._evaluate(params, self._nothing)), self._edges[-1]
        if not found[end] or np.isnan(found[:end]).any():
            checked_tables(self.model, unflatten(params, self.shapes))  # says what is wrong

    def pull_back(self, params: Flat, derivatives: Tables) -> Flat:
        """The derivatives by the parameters of something plus the log prior density.

        Args:
            params: The parameters.
            derivatives: The derivatives of that something by the elements of the tables.
        """
        given = np.concatenate([derivatives.log_prior.ravel(), derivatives.log_emission.ravel(), [1.0]])
        return np.asarray(self._evaluate(params, given))[self._edges[-1] + 1 :]

    def _run(self, flat: Array) -> tuple[tuple[Array, Array, Float[Array, ""]], Float[Array, ""]]:
        """Tables and log prior density, and whether all probabilities are probabilities."""
        found = lay_out(self.model, unflatten(flat, self.shapes))
        log_prior = found.log_prior if self.use_prior else jnp.zeros(())
        holds = jnp.array(list(found.proper.values())).all().astype(float)
        return (found.tables.log_prior, found.tables.log_emission, log_prior), holds

    def _split(self, flat: Any) -> tuple[Any, Any, Any]:
        first, second, third, fourth = self._edges
        prior, emission = flat[first:second], flat[second:third]
        return prior.reshape(self._table_shapes[0]), emission.reshape(self._table_shapes[1]), flat[third:fourth][0]


@lru_cache(maxsize=256)
def compiled_program(model: GenerativeModel, use_prior: bool) -> CompiledProgram:
    """The compiled program of a model, of which there is one, or two if its prior is used as well."""
    return CompiledProgram(model, use_prior)
