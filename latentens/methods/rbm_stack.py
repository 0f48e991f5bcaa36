"""A stack of restricted Boltzmann machines with the label at its top (Shaham et al. 2016)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp, softmax

from latentens.errors import SettingError
from latentens.inference.independent import log_joint
from latentens.inference.orient import orientation, vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior, posterior_of
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.rbm.exact import ExactTraining, exact_log_likelihoods
from latentens.rbm.lemma import dawid_skene_to_rbm, rbm_to_dawid_skene
from latentens.rbm.machine import Machine
from latentens.rbm.rows import VisibleRows, rows_from_votes, sizes_from_votes
from latentens.rbm.sampled import mean_log_likelihood
from latentens.rbm.stack import Passing, Prediction, choose_training, is_exact, permute_hidden, rows_above, top_probs
from latentens.rbm.training import Trained, Training
from latentens.rbm.units import Units
from latentens.rbm.width import FEWEST, SingularValueRule, Width
from latentens.runtime.settings import Count
from latentens.votes import Votes


@dataclass(frozen=True)
class RBMStack(Method):
    """Machines trained greedily from the votes up to one unit, which is the label.

    Hidden units have as many states as there are classes; votes have one more for each other category, such as "tie".
    Unless sizes are given, the votes choose them, and one unit is kept where they do not support more; a machine of one
    unit is Dawid & Skene's model, by a lemma of the paper, and is fitted as such unless `training` is given. Known
    labels clamp the unit at the top. `notes` in the diagnostics say what was chosen and why.

    Notes:
        One unit is also kept where more units model something other than the label: if most of the labels that a stack
        changes, compared with one unit, change to a class that hardly any voter chose, some hidden state does not
        correspond to a class. Structure may decide between answers that voters gave, but not override them. Items
        with a known label contribute `log p(h, label)` to the objective of the top machine, where h is what the layer
        below passes on, others `log p(h)`.

    Attributes:
        hidden: Sizes of the hidden layers, such as (3, 1), the last one 1; by default found by `rule`.
        rule: The rule for the sizes.
        training: How to train; by default exactly where the size allows, by sampling elsewhere. The top machine is
            trained exactly where labels are known.
        next_layer: What a layer passes on to the next machine: the `exact` distribution over its states, or one
            `sampled` state for each item. Exact where possible by default.
        prediction: `exact`, `map` or `sample`; by default exact where possible, else `sample`.
        num_samples: Number of samples for `sample`.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.RBMStack().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    takes_other_votes = True

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

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        train_key, predict_key, score_key = jax.random.split(key, 3)
        single = _SingleUnit(votes, key, gold)
        if self._is_single(votes):
            return single.estimate(self._about_single(votes))
        layers, widths = self._train_layers(votes, train_key, gold, single)
        about = _describe_widths(widths)
        if not layers:
            return single.estimate(about)
        machines = [layer.machine for layer in layers]
        label_probs = self._label_probs(machines, votes, predict_key)
        if widths and len(machines) > 1:
            changed = LabelChange.between(single.label_probs, label_probs, votes, gold)
            about |= {"label_change": changed.share, "changed_to_runner_up": changed.to_runner_up}
            if not changed.among_votes:
                return single.estimate(about | {"notes": [changed.words(len(machines[0].hidden_bias))]})
        likelihood = mean_log_likelihood(machines[0], rows_from_votes(votes), key=score_key)
        diagnostics = Diagnostics(
            "probability of the top unit given the votes",
            log_likelihood=votes.num_items * likelihood.mean,
            converged=all(layer.diagnostics.get("converged", True) for layer in layers),
            iterations=sum(layer.diagnostics["iterations"] for layer in layers),
        ).updated(
            architecture=(votes.num_voters, *(machine.num_hidden for machine in machines)),
            training_curves=[layer.curve for layer in layers],
            layers=[layer.diagnostics for layer in layers],
            start_log_likelihoods=votes.num_items * np.asarray(layers[0].diagnostics.get("objectives", ())),
            log_likelihood_error=votes.num_items * likelihood.standard_error,
            **about,
        )
        state = {"prediction_key": np.asarray(jax.random.key_data(predict_key))}
        return Estimate(stack_params(machines), diagnostics, state=state, label_probs=label_probs)

    def train(self, votes: Votes, *, key: jax.Array) -> list[Machine]:
        """Only the machines that `fit` finds with this key, from the votes up."""
        train_key, predict_key, _ = jax.random.split(key, 3)
        single = _SingleUnit(votes, key, None)
        layers, _ = self._train_layers(votes, train_key, None, single)
        machines = [layer.machine for layer in layers] or [_machine_of(single.fitted)]
        order = orientation(self._label_probs(machines, votes, predict_key), votes)
        return [*machines[:-1], permute_hidden(machines[-1], order)]

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """Put the states of the unit at the top in another order."""
        machines = stack_machines(estimate.params)
        machines[-1] = permute_hidden(machines[-1], order)
        return replace(estimate, params=stack_params(machines))

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        if _is_independent(estimate):
            return softmax(_independent_log_joint(estimate, votes), axis=1)
        key = jax.random.wrap_key_data(jnp.asarray(estimate.state["prediction_key"]))
        return self._label_probs(stack_machines(estimate.params), votes, key)

    def log_likelihood_of(self, estimate: Estimate, votes: Votes) -> Float[np.ndarray, " row"] | None:
        """The log-likelihood under the lowest machine, if it can be enumerated; the others do not model votes."""
        if _is_independent(estimate):
            return logsumexp(_independent_log_joint(estimate, votes), axis=1)
        values = exact_log_likelihoods(stack_machines(estimate.params)[0], rows_from_votes(votes))
        return None if values is None else values[votes.patterns.inverse]

    def _is_single(self, votes: Votes) -> bool:
        """Whether it is known beforehand that the stack is one unit, to be fitted without training a machine."""
        if self.training is not None or self.rule.training is not None or self.hidden not in (None, (1,)):
            return False
        return self.hidden == (1,) or not self.rule.has_room(sizes_from_votes(votes), votes.num_items, FEWEST)

    def _about_single(self, votes: Votes) -> dict[str, Any]:
        if self.hidden is not None:
            return {}
        return {
            "notes": [
                f"{ONE_UNIT}: for the {FEWEST} units that a label above them needs there are too few voters, fewer "
                f"items than parameters, or too many states ({votes.num_voters:,} voters, {votes.num_items:,} items, "
                f"{votes.num_classes} classes)"
            ]
        }

    def _train_layers(
        self, votes: Votes, key: jax.Array, gold: GoldCodes | None, single: "_SingleUnit"
    ) -> tuple[list[Trained], list[Width]]:
        """Train machine upon machine; with the rule, until a layer has one unit; none if the votes support one unit."""
        rows = rows_from_votes(votes, gold)
        as_single = self.training is None and self.rule.training is None
        layers: list[Trained] = []
        widths: list[Width] = []
        while True:
            key, rule_key, train_key, next_key = jax.random.split(key, 4)
            if self.hidden is None:
                find_single = single.of_items if as_single and not layers else None
                widths.append(self.rule.choose(rows, key=rule_key, single=find_single))
            num_hidden = self.hidden[len(layers)] if self.hidden else widths[-1].num_hidden
            if num_hidden == 1 and not layers and self.hidden is None and as_single:
                return layers, widths
            layers.append(self._train_layer(rows, num_hidden, widths, train_key))
            if num_hidden == 1 and len(layers) >= len(self.hidden or ()):
                return layers, widths
            rows = rows_above(layers[-1].machine, rows, self.next_layer, key=next_key)

    def _train_layer(self, rows: VisibleRows, num_hidden: int, widths: Sequence[Width], key: jax.Array) -> Trained:
        """Train one machine, from where the rule's machines ended if there are any of that size."""
        training = self.training or choose_training(rows, num_hidden)
        if num_hidden == 1 and rows.label is not None and not isinstance(training, ExactTraining):
            training = ExactTraining()
        starts = widths[-1].starts if widths and widths[-1].num_hidden == num_hidden else ()
        return training.train(rows, num_hidden, key=key, starts=starts)

    def _label_probs(self, machines: Sequence[Machine], votes: Votes, key: jax.Array) -> Posterior:
        prediction = self.prediction or ("exact" if all(map(is_exact, machines)) else "sample")
        probs = np.asarray(top_probs(machines, rows_from_votes(votes), prediction, self.num_samples, key))
        probs = probs[votes.patterns.inverse]
        return np.column_stack([np.clip(1 - probs.sum(axis=1), 0, 1), probs])


class _SingleUnit:
    """One machine of one unit, trained as what it is: Dawid & Skene's model, by expectation–maximisation."""

    def __init__(self, votes: Votes, key: jax.Array, gold: GoldCodes | None) -> None:
        self.votes, self.key, self.gold = votes, key, gold

    @cached_property
    def fitted(self) -> Estimate:
        return DawidSkeneEM().estimate(self.votes, self.key, self.gold)

    @cached_property
    def label_probs(self) -> Posterior:
        return posterior_of(DawidSkeneEM(), self.fitted, self.votes)

    def of_items(self, chosen: Bool[np.ndarray, " item"]) -> Machine:
        """The machine of some items, which are given in the order of the rows that a machine is trained on."""
        inverse = self.votes.patterns.inverse
        order = np.argsort(inverse, kind="stable") if self.gold is None else np.lexsort((self.gold, inverse))
        items = np.sort(order[chosen])
        gold = None if self.gold is None else self.gold[items]
        gold = gold if gold is not None and (gold >= 0).any() else None
        return _machine_of(DawidSkeneEM().estimate(self.votes.take(items), self.key, gold))

    def estimate(self, about: Mapping[str, Any]) -> Estimate:
        """The fit as one of a stack."""
        found = self.fitted.diagnostics
        own = {
            "label_probs": "probability of the top unit given the votes",
            "architecture": (self.votes.num_voters, 1),
            "layers": [{"training": "expectation–maximisation", "iterations": found.iterations}],
            "label_change": found.label_change,
            "warnings": [*about.get("warnings", ()), *found.warnings],
        }
        diagnostics = found.updated(**{**about, **own})
        state = {"prediction_key": np.asarray(jax.random.key_data(self.key))}
        return Estimate(stack_params([_machine_of(self.fitted)]), diagnostics, state=state)


def _machine_of(fitted: Estimate) -> Machine:
    shares = np.maximum(fitted.params["prevalence"], np.finfo(np.float64).tiny)  # a label that no item has
    return dawid_skene_to_rbm(shares / shares.sum(), fitted.params["confusion"])


class LabelChange(NamedTuple):
    """The difference between the labels of a stack and those of one unit.

    Attributes:
        share: Share of the items that have another label.
        to_runner_up: Share of these whose new label has the most votes apart from the old one.
    """

    share: float
    to_runner_up: float

    @classmethod
    def between(cls, before: Posterior, after: Posterior, votes: Votes, gold: GoldCodes | None = None) -> "LabelChange":
        """Compare two posteriors, each in the order of classes that agrees best with votes and gold labels."""
        old, new = (probs[:, orientation(probs, votes, gold)].argmax(axis=1) for probs in (before, after))
        others, items = vote_shares(votes), np.arange(votes.num_items)
        others[items, old] = -np.inf
        changed = old != new
        if not changed.any():
            return cls(0.0, 1.0)
        runner_up = others[items, new] >= others.max(axis=1)
        return cls(float(changed.mean()), float(runner_up[changed].mean()))

    @property
    def among_votes(self) -> bool:
        """Whether most labels are changed to what most of the other voters said; with two classes all are."""
        return self.to_runner_up > 0.5

    def words(self, num_hidden: int) -> str:
        """Why one unit is kept where labels do not change to what voters said."""
        return (
            f"{ONE_UNIT}: {num_hidden} units predict held-out votes better, but they change {self.share:.1%} of the "
            f"labels, and {1 - self.to_runner_up:.0%} of these to a class that fewer voters said than another"
        )


ONE_UNIT = "one hidden unit, which makes this Dawid & Skene's model"


def _is_independent(estimate: Estimate) -> bool:
    """Whether the stack is one unit, for which the lemma holds."""
    return "prevalence" in estimate.params


def _independent_log_joint(estimate: Estimate, votes: Votes) -> Float[np.ndarray, "row label"]:
    return log_joint(votes, estimate.params["prevalence"], estimate.params["confusion"])


def _describe_widths(widths: Sequence[Width]) -> dict[str, Any]:
    """Diagnostics of the rule for each layer, with a note if one unit is kept."""
    if not widths:
        return {}
    return {
        "singular_value_curves": [width.cumulative for width in widths],
        "effective_ranks": [width.effective_rank for width in widths],
        "held_out_gains": [np.array(width.gains) for width in widths],
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
        "by it; with this few votes use MajorityVote, or HierarchicalDawidSkene by Nuts"
    ]


def _notes(width: Width) -> list[str]:
    """Why there is only one hidden unit, where that is so."""
    if width.num_hidden > 1:
        return []
    if len(width.gains) == 1:
        return [f"{ONE_UNIT}: there are too few voters or items for the three units that a label above them needs"]
    gain = width.gains[1]
    if not np.isfinite(gain.mean):
        return [f"{ONE_UNIT}: a machine of three is too large to be judged by held-out items"]
    return [
        f"{ONE_UNIT}: the votes do not support three, with which held-out items gain {gain.mean:.2g} ± "
        f"{gain.standard_error:.1g} nats each"
    ]


def stack_params(machines: Sequence[Machine]) -> dict[str, Any]:
    """The machines' parameters by name, and those of Dawid–Skene if there is one machine with one unit.

    Arrays of binary units have the axes (visible, hidden); an axis of units of more states is followed by one of states
    1, 2, …, since state 0 has neither bias nor weights.
    """
    params: dict[str, Any] = {}
    for layer, machine in enumerate(machines, start=1):
        weights, visible_bias, hidden_bias = (np.asarray(part) for part in machine[:3])
        if machine.visible_units.width > 1:
            weights, visible_bias = (machine.visible_units.by_unit(part, axis=0) for part in (weights, visible_bias))
        if machine.hidden_units.width > 1:
            weights, hidden_bias = (machine.hidden_units.by_unit(part) for part in (weights, hidden_bias))
        params |= {f"weights_{layer}": weights, f"visible_bias_{layer}": visible_bias}
        params[f"hidden_bias_{layer}"] = hidden_bias
    if len(machines) == 1:
        params |= rbm_to_dawid_skene(machines[0])._asdict()
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
