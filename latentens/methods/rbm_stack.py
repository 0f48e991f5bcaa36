"""A stack of restricted Boltzmann machines with the label at its top (Shaham et al. 2016)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, softmax

from latentens.errors import SettingError
from latentens.inference.orient import orientation
from latentens.methods.base import Estimate, GoldCodes, Method, Posterior, fit_known
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.independent.likelihood import from_named_params, log_joint
from latentens.methods.indicator import by_blocks, vote_indicator
from latentens.rbm.lemma import confusion_to_rbm, rbm_to_confusion, rbm_to_dawid_skene
from latentens.rbm.machine import Machine
from latentens.rbm.rows import VisibleRows, rows_from_votes, sizes_from_votes
from latentens.rbm.scoring import exact_log_likelihoods, mean_log_likelihood
from latentens.rbm.stack import Passing, Prediction, is_exact, permute_hidden, rows_above, top_probs
from latentens.rbm.training.choice import choose_training
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.units import Units
from latentens.rbm.width_rule import SingularValueRule, Width, too_long_for_gaps
from latentens.runtime.devices import fetch
from latentens.runtime.settings import Count
from latentens.votes import Votes


@dataclass(frozen=True)
class RBMStack(Method):
    """Machines trained greedily from the votes up to one unit, which is the label.

    Votes and hidden units have as many states as there are classes. The states of the unit at the top are matched to
    the classes by the vote shares. With one machine of one unit this is Dawid & Skene's model. On crowds so large and
    sparse that the rule for the sizes would take too long, it is fitted as such, and `fallback` in the diagnostics says
    why.

    Attributes:
        hidden: Sizes of the hidden layers, such as (3, 1), the last one 1; by default found by `rule`.
        rule: The rule for the sizes.
        training: How to train; by default exactly where the size allows, by sampling elsewhere.
        next_layer: What a layer passes on to the next machine: the `exact` distribution over its states, or one
            `sampled` state for each item. Exact where possible by default.
        prediction: `exact`, `map` or `sample`; by default exact where possible, else `sample`.
        num_samples: Number of samples for `sample`.
    """

    hidden: tuple[Count, ...] | None = None
    rule: SingularValueRule = field(default_factory=SingularValueRule)
    training: Training | None = None
    next_layer: Passing | None = None
    prediction: Prediction | None = None
    num_samples: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden is not None and self.hidden[-1:] != (1,):
            raise SettingError(f"RBMStack: the last of the hidden sizes must be 1, as in (3, 1), not {self.hidden}")

    def _fit(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        if (reason := self._reason_for_one_unit(votes)) is not None:
            return _one_unit(votes, key, reason, gold)
        train_key, predict_key, score_key = jax.random.split(key, 3)
        layers, widths = self._train_layers(votes, train_key)
        machines, label_probs, flipped = self._oriented([layer.machine for layer in layers], votes, predict_key)
        likelihood = mean_log_likelihood(machines[0], rows_from_votes(votes), key=score_key)
        diagnostics = {
            "label_probs": "probability of the top unit given the votes",
            "architecture": (votes.num_voters, *(machine.num_hidden for machine in machines)),
            "flipped": flipped,
            "training_curves": [layer.curve for layer in layers],
            "layers": [layer.diagnostics for layer in layers],
            **_describe_widths(widths),
            "converged": all(layer.diagnostics.get("converged", True) for layer in layers),
            "iterations": sum(layer.diagnostics["iterations"] for layer in layers),
            "log_likelihood": votes.num_items * likelihood.mean,
            "log_likelihood_error": votes.num_items * likelihood.standard_error,
        }
        state = {"prediction_key": np.asarray(jax.random.key_data(predict_key))}
        return Estimate(stack_params(machines), diagnostics, state=state, label_probs=label_probs)

    def train(self, votes: Votes, *, key: jax.Array) -> list[Machine]:
        """Only the machines that `fit` finds with this key, from the votes up."""
        train_key, predict_key, _ = jax.random.split(key, 3)
        layers, _ = self._train_layers(votes, train_key)
        return self._oriented([layer.machine for layer in layers], votes, predict_key)[0]

    def _oriented(self, machines: list[Machine], votes: Votes, key: jax.Array) -> tuple[list[Machine], Posterior, bool]:
        """Machines whose top states are in the order of the classes, their posterior, and whether it is a new order."""
        label_probs = self._label_probs(machines, votes, key)
        order = orientation(label_probs, votes)
        if np.array_equal(order, np.arange(len(order))):
            return machines, label_probs, False
        return [*machines[:-1], permute_hidden(machines[-1], order)], label_probs[:, order], True

    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        if _is_independent(estimate, votes):
            return softmax(_independent_log_joint(estimate, votes), axis=1)
        key = jax.random.wrap_key_data(jnp.asarray(estimate.state["prediction_key"]))
        return self._label_probs(stack_machines(estimate.params), votes, key)

    def _log_likelihood(self, estimate: Estimate, votes: Votes) -> Float[np.ndarray, " row"] | None:
        """Of the lowest machine, if it can be enumerated; those above it say nothing about votes."""
        if _is_independent(estimate, votes):
            return logsumexp(_independent_log_joint(estimate, votes), axis=1)
        values = exact_log_likelihoods(stack_machines(estimate.params)[0], rows_from_votes(votes))
        return None if values is None else values[votes.patterns.inverse]

    def _reason_for_one_unit(self, votes: Votes) -> str | None:
        """Why one unit is fitted without training a machine; None if there is no reason."""
        if self.hidden not in (None, (1,)) or self.training is not None or self.rule.training is not None:
            return None
        return too_long_for_gaps(sizes_from_votes(votes), one_unit=self.hidden is not None)

    def _train_layers(self, votes: Votes, key: jax.Array) -> tuple[list[Trained], list[Width]]:
        """Train machine upon machine; with the rule, until a layer has one unit."""
        rows = rows_from_votes(votes)
        layers: list[Trained] = []
        widths: list[Width] = []
        while True:
            key, rule_key, train_key, next_key = jax.random.split(key, 4)
            if self.hidden is None:
                widths.append(self.rule.choose(rows, key=rule_key))
            num_hidden = self.hidden[len(layers)] if self.hidden else widths[-1].num_hidden
            layers.append(self._train_layer(rows, num_hidden, widths, train_key))
            if num_hidden == 1 and len(layers) >= len(self.hidden or ()):
                return layers, widths
            rows = rows_above(layers[-1].machine, rows, self.next_layer, key=next_key)

    def _train_layer(self, rows: VisibleRows, num_hidden: int, widths: Sequence[Width], key: jax.Array) -> Trained:
        """Train one machine, from where the rule's machines ended if there are any of that size."""
        training = self.training
        if training is None:
            pooling = widths[-1].pooling if widths else 0.0
            training = choose_training(rows, num_hidden, exact=ExactTraining(pooling=pooling))
        starts = widths[-1].starts if widths and widths[-1].num_hidden == num_hidden else ()
        return training.train(rows, num_hidden, key=key, starts=starts)

    def _label_probs(self, machines: Sequence[Machine], votes: Votes, key: jax.Array) -> Posterior:
        prediction = self.prediction or ("exact" if all(map(is_exact, machines)) else "sample")
        probs = fetch(top_probs(machines, rows_from_votes(votes), prediction, self.num_samples, key))
        probs = probs[votes.patterns.inverse]
        return np.column_stack([np.clip(1 - probs.sum(axis=1), 0, 1), probs])


def _one_unit(votes: Votes, key: jax.Array, reason: str, gold: GoldCodes | None) -> Estimate:
    """One machine of one unit, trained as what it is: Dawid & Skene's model, by expectation–maximisation."""
    fit = fit_known(DawidSkeneEM(), votes, key, gold)
    shares, confusion = from_named_params(fit.params)
    shares = np.maximum(shares, np.finfo(np.float64).tiny)  # a label that no item has
    machine = confusion_to_rbm(shares / shares.sum(), confusion)
    found = {name: fit.diagnostics[name] for name in ("flipped", "converged", "iterations", "log_likelihood")}
    diagnostics = {
        "label_probs": "probability of the top unit given the votes",
        "architecture": (votes.num_voters, 1),
        "layers": [{"training": "expectation–maximisation", "iterations": found["iterations"]}],
        **found,
        "label_change": fit.diagnostics["label_change"],
        "fallback": f"one hidden unit, that is Dawid & Skene's model, fitted by DawidSkeneEM: {reason}",
        "warnings": fit.diagnostics["warnings"],
    }
    state = {"prediction_key": np.asarray(jax.random.key_data(key))}
    return Estimate(stack_params([machine]), diagnostics, state=state, label_probs=fit.label_probs)


def _is_independent(estimate: Estimate, votes: Votes) -> bool:
    """Whether votes stored as triplets need not be laid out for a machine: it has one unit, and the lemma holds."""
    return votes.is_sparse and "prevalence" in estimate.params


def _independent_log_joint(estimate: Estimate, votes: Votes) -> Float[np.ndarray, "row label"]:
    params = from_named_params({name: np.asarray(value) for name, value in estimate.params.items()})
    return by_blocks(lambda part: log_joint(vote_indicator(part, len(params[0])), *params), votes)


def _describe_widths(widths: Sequence[Width]) -> dict[str, Any]:
    """What the rule found for each layer, in numbers and, where one unit is all, in words."""
    if not widths:
        return {}
    return {
        "singular_value_curves": [width.cumulative for width in widths],
        "effective_ranks": [width.effective_rank for width in widths],
        "held_out_gains": [np.array(width.gains) for width in widths],
        "pooling": widths[0].pooling,
        "warnings": _warnings(widths[0]),
        "notes": _notes(widths[0]),
    }


def _warnings(width: Width) -> list[str]:
    """A warning where the votes support no hidden unit at all."""
    gain = width.gains[0]
    if gain.supported:
        return []
    return [
        f"the votes hardly support a label: held-out items gain {gain.mean:.3g} ± {gain.standard_error:.2g} nats "
        "by it; with so few votes use MajorityVote, or HierarchicalDawidSkene by Nuts"
    ]


def _notes(width: Width) -> list[str]:
    """Why there is only one hidden unit, where that is so."""
    if width.num_hidden > 1:
        return []
    words = "one hidden unit, which makes this Dawid & Skene's model"
    if len(width.gains) == 1:
        return [f"{words}: there are too few voters for the three units or more that a label above them needs"]
    gain = width.gains[1]
    if not np.isfinite(gain.mean):
        return [f"{words}: a machine of three is too large to be judged by held-out items"]
    return [
        f"{words}: the votes do not support three, with which held-out items gain {gain.mean:.2g} ± "
        f"{gain.standard_error:.1g} nats each"
    ]


def stack_params(machines: Sequence[Machine]) -> dict[str, Any]:
    """The machines' parameters by name, and those of Dawid–Skene if there is one machine with one unit.

    Arrays of two classes have the axes (visible, hidden); of more, each axis of units is followed by one of states
    1, 2, …, since state 0 has neither bias nor weights.
    """
    params: dict[str, Any] = {}
    for layer, machine in enumerate(machines, start=1):
        weights, visible_bias, hidden_bias = (np.asarray(part) for part in machine[:3])
        if machine.hidden_units.width > 1:
            visible, hidden = machine.visible_units, machine.hidden_units
            weights = hidden.by_unit(visible.by_unit(weights, axis=0))
            visible_bias, hidden_bias = visible.by_unit(visible_bias), hidden.by_unit(hidden_bias)
        params |= {f"weights_{layer}": weights, f"visible_bias_{layer}": visible_bias}
        params[f"hidden_bias_{layer}"] = hidden_bias
    if len(machines) == 1:
        lemma = rbm_to_dawid_skene if machines[0].hidden_units.width == 1 else rbm_to_confusion
        params |= lemma(machines[0])._asdict()
    return params


def stack_machines(params: Mapping[str, Any]) -> list[Machine]:
    """The machines of a fit, from its parameters."""
    machines = []
    for layer in range(1, 1 + sum(name.startswith("weights_") for name in params)):
        visible_bias, hidden_bias = (params[f"{side}_bias_{layer}"] for side in ("visible", "hidden"))
        kinds = (Units(1 + bias.shape[1]) if bias.ndim > 1 else Units() for bias in (visible_bias, hidden_bias))
        weights = params[f"weights_{layer}"].reshape(visible_bias.size, hidden_bias.size)
        machines.append(Machine(weights, visible_bias.ravel(), hidden_bias.ravel(), *kinds))
    return machines
