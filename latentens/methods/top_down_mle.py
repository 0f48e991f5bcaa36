"""The directed chain label → hidden units → votes at its exact maximum."""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Array

from latentens.errors import SettingError, VotesError
from latentens.inference.stability import Labelling, label_change, label_warnings
from latentens.methods.base import Estimate, Fit, Method, Posterior
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.rbm_stack import RBMStack, stack_machines
from latentens.models import DawidSkene, TopDown
from latentens.programs.model import GenerativeModel
from latentens.rbm.lemma import rbm_to_dawid_skene
from latentens.runtime.settings import Count, CountOrZero, Positive
from latentens.votes import Votes


@dataclass(frozen=True)
class TopDownMLE(Method):
    """The chain Y → H → X with sigmoid links, fitted by the marginal likelihood and the model's weak priors.

    Votes do not determine the label above one or two hidden units, so sizes start at three; against them stands the
    model without hidden units, `DawidSkene`. Sizes grow while BIC falls, and the one with the lowest BIC is kept. AIC
    would take more units; on votes that only resemble a chain its labels were worse (analyses/EVIDENCE.md).

    Without the priors the likelihood has many optima of about the same height, some of them with a label that copies a
    single hidden unit.

    Where other optima or sizes fit about as well and have other labels, a warning says so, and `label_change` in the
    diagnostics says how many labels change. On such votes the labels rest on what the chain gets wrong about them.

    Attributes:
        num_hidden: Number of hidden units, 0 for none; by default chosen by BIC.
        max_hidden: The largest number that is tried.
        starts: Random starts of each size, besides the start from an RBM stack of that size.
        max_iterations: Limit on the iterations of each start.
        tolerance: Largest entry of the gradient, per item, at convergence.
    """

    num_hidden: CountOrZero | None = None
    max_hidden: CountOrZero = 8
    starts: CountOrZero = 6
    max_iterations: Count = 600
    tolerance: Positive = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_hidden in (1, 2):
            raise SettingError(
                f"TopDownMLE: num_hidden must be 0, 3 or more to determine a label, not {self.num_hidden}"
            )

    def _fit(self, votes: Votes, key: jax.Array) -> Estimate:
        if votes.num_classes > 2:
            raise VotesError(f"TopDownMLE is for two classes, but the votes have {votes.num_classes}: use DawidSkeneEM")
        votes.refuse_repeats("TopDownMLE")
        fits = self._fit_sizes(votes, key)
        by_size = {size: fit.diagnostics["bic"] for size, fit in fits.items()}
        best = min(by_size, key=lambda size: by_size[size])
        diagnostics = {
            **fits[best].diagnostics,
            "architecture": (votes.num_voters, best, 1) if best else (votes.num_voters, 1),
            "bic_by_hidden_units": by_size,
        }
        others = [_label_change(fits[best], fit, votes) for size, fit in fits.items() if best and size not in (0, best)]
        if max(others, default=0.0) > diagnostics["label_change"]:
            change = max(others)
            known = label_warnings(diagnostics["label_change"])
            warnings = [words for words in diagnostics["warnings"] if words not in known] + label_warnings(change)
            diagnostics |= {"label_change": change, "warnings": warnings}
        return replace(fits[best], diagnostics=diagnostics)

    def _fit_sizes(self, votes: Votes, key: Array) -> dict[int, Fit]:
        """Fits by the number of hidden units, more and more of them while BIC falls."""
        sizes = (0, *range(3, self.max_hidden + 1)) if self.num_hidden is None else (self.num_hidden,)
        fits: dict[int, Fit] = {}
        for size in sizes:
            fits[size] = self._fit_size(votes, size, jax.random.fold_in(key, size))
            by_size = [fit.diagnostics["bic"] for fit in fits.values()]
            if len(by_size) > 1 and by_size[-1] > by_size[-2]:
                break
        return fits

    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        size = len(estimate.params.get("hidden_bias", ()))
        return MaximumLikelihood(_model(votes.num_voters, size))._predict(estimate, votes)

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The chain of the chosen size; without hidden units, Dawid & Skene's."""
        biases = estimate.params.get("visible_bias", estimate.params.get("sensitivity", ()))
        return _model(len(biases), len(estimate.params.get("hidden_bias", ())))

    def _fit_size(self, votes: Votes, size: int, key: Array) -> Fit:
        fit_key, stack_key = jax.random.split(key)
        if size == 0:
            return MaximumLikelihood(_model(votes.num_voters, size), starts=2).fit(votes, key=fit_key)
        chain = MaximumLikelihood(
            _model(votes.num_voters, size),
            starts=self.starts,
            warm=(),
            initial=(_from_stack(votes, size, stack_key),),
            use_prior=True,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
        )
        return chain.fit(votes, key=fit_key)


def _label_change(best: Fit, other: Fit, votes: Votes) -> float:
    """The share of labels that change at the optimum of another size, if that fits about as well."""
    extra = other.diagnostics["num_parameters"] - best.diagnostics["num_parameters"]
    here, there = (Labelling(fit.log_likelihood(votes), fit.labels) for fit in (best, other))
    return label_change(here, there, np.ones(votes.num_items), extra)


def _model(num_voters: int, num_hidden: int) -> DawidSkene | TopDown:
    return TopDown(num_voters, num_hidden) if num_hidden else DawidSkene(num_voters)


def _from_stack(votes: Votes, size: int, key: Array) -> dict[str, np.ndarray]:
    """Parameters from a stack of two machines: the upper one is Dawid–Skene for the hidden units of the lower."""
    lower, upper = stack_machines(RBMStack(hidden=(size, 1)).fit(votes, key=key).params)
    params = {
        "prevalence": rbm_to_dawid_skene(upper).prevalence,
        "hidden_bias": upper.visible_bias,
        "label_weights": upper.weights[:, 0],
        "visible_bias": lower.visible_bias,
        "weights": lower.weights,
    }
    return {name: np.asarray(value) for name, value in params.items()}
