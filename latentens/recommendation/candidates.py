"""The models that a recommendation fits to votes, which of them are plausible, and the methods it chooses from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from latentens import methods
from latentens.checks import check_fit
from latentens.comparison.cell import Cell
from latentens.comparison.result import Outcome
from latentens.comparison.sweep import MethodFactory, cells_of
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.inference.orient import orientation
from latentens.methods.base import Arrays, Estimate, Fit, Method, Posterior, model_params
from latentens.models import Confounder, DawidSkene, ItemDifficulty, TruncatedGaussian
from latentens.programs.likelihood import bayes_posterior, pointwise_log_likelihood
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import num_parameters
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.text import probability_text
from latentens.votes import Votes

SAFEST: Mapping[str, str] = {
    "Stacked": "it learns from the gold labels how much to trust the other methods and each voter",
    "Consensus": "it averages methods that seldom make the same mistakes",
    "Tempered(DawidSkeneEM)": (
        "of the methods without gold labels, its probabilities have the smallest worst-case loss on real votes"
    ),
    "DawidSkeneEM": "its labels have rarely been far behind the best on real votes",
    "MajorityVote": "it reports what most voters say and nothing else",
}
"""The method to fall back on, and why: the first of these that was run and whose label is identified.

On 32 real sets of votes of classifiers and judges the log score of tempered Dawid–Skene is at worst 0.7 nats behind the
best of four methods without gold labels; that of Dawid–Skene itself, the majority and EBCC 9 to 13. Its labels are at
worst 7.6 points behind, those of the majority 22."""

Methods = Iterable[Method] | Mapping[str, Method | MethodFactory]


class Candidate(NamedTuple):
    """A generative model of the votes, given by the method that fits it.

    Attributes:
        method_name: The method as the command line takes it.
        method: The method, or a function that makes it for given votes.
    """

    method_name: str
    method: Method | MethodFactory


def default_candidates(votes: Votes, *, quick: bool) -> dict[str, Candidate]:
    """The candidate models for votes of this form, by name; only the cheap ones if quick.

    At least one has dependent voters, so that methods are never judged on independent voters alone.
    """
    found = {"DawidSkene": Candidate("DawidSkeneEM", methods.DawidSkeneEM())}
    has_groups = _is_dense(votes) and votes.num_voters > 3
    if quick:  # three groups of fewer than seven voters have at most two voters each
        if has_groups and votes.num_voters >= 7:
            return found | {"Tree": Candidate("TreeMLE(starts=0)", methods.TreeMLE(starts=0))}
        return found | spare_candidates(votes)
    if has_groups:
        found["Tree"] = Candidate("TreeMLE", methods.TreeMLE())
    if has_groups and votes.num_classes == 2:
        found["TopDown"] = Candidate("TopDownMLE(starts=2)", methods.TopDownMLE(starts=2))
        gaussian = methods.MaximumLikelihood(TruncatedGaussian(votes.num_voters), starts=2)
        found["TruncatedGaussian"] = Candidate("MaximumLikelihood(TruncatedGaussian, starts=2)", gaussian)
    return {**found, **spare_candidates(votes), "ItemDifficulty": _factor_model(ItemDifficulty, votes)}


def spare_candidates(votes: Votes) -> dict[str, Candidate]:
    """A model of dependent voters for a quick answer where no groups of voters were found."""
    return {"Confounder": _factor_model(Confounder, votes)}


def default_methods(votes: Votes, *, quick: bool, has_gold: bool = False) -> dict[str, Method | MethodFactory]:
    """The methods for votes of this form by the names that the command line takes, the cheaper ones first.

    The methods that fit plausible candidate models are added later.
    """
    found: dict[str, Method | MethodFactory] = {"MajorityVote": methods.MajorityVote()}
    if votes.num_classes == 2 and not votes.has_repeats:
        found["SpectralMetaLearner"] = methods.SpectralMetaLearner()
    found["DawidSkeneEM"] = methods.DawidSkeneEM()
    if votes.num_classes == 2 and _is_dense(votes) and votes.num_voters > 3:
        found["LatentSpectral"] = methods.LatentSpectral()
    found["Tempered(DawidSkeneEM)"] = methods.Tempered(methods.DawidSkeneEM())
    if has_gold:
        found["Stacked"] = methods.Stacked()
    if not (quick and has_gold):  # gold labels mean six fits, and this one is slow
        found["Consensus"] = methods.Consensus()
    if quick:
        return found
    if votes.num_classes == 2 and not votes.has_repeats and votes.num_voters <= 150:
        found["RBMStack"] = methods.RBMStack()
    if not votes.has_repeats and votes.num_classes > 2:
        found["Glad"] = methods.Glad()
    if not votes.has_repeats:
        found["Ebcc"] = methods.Ebcc()
    return found


def _is_dense(votes: Votes, max_voters: int = 150, max_missing: float = 0.5) -> bool:
    """Whether the voters are few enough, and pairs of them have enough items in common, to look for groups."""
    missing = votes.num_missing / (votes.num_items * votes.num_voters)
    return not votes.has_repeats and votes.num_voters <= max_voters and missing <= max_missing


def _factor_model(model: type[Confounder | ItemDifficulty], votes: Votes) -> Candidate:
    """A model with a continuous factor per item, by a short climb: sparse votes leave some parameters undetermined.

    Items with few votes need fewer quadrature nodes than the model has by default.
    """
    num_nodes = None if _is_dense(votes) else 61
    written = f"{model.__name__}(num_nodes={num_nodes})" if num_nodes else model.__name__
    name = f"MaximumLikelihood({written}, starts=0, max_iterations=200, tolerance=1e-5)"
    made = model(votes.num_voters, votes.num_classes, num_nodes=num_nodes)
    return Candidate(name, methods.MaximumLikelihood(made, starts=0, max_iterations=200, tolerance=1e-5))


PerItem = Float[np.ndarray, " item"]
Runner = Callable[[Sequence[Cell]], list[Outcome]]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A candidate model fitted to the votes.

    Attributes:
        name: Name of the candidate.
        method_name: The method that fitted it, as the command line takes it.
        method: That method.
        refit: The method that fits the same model, its groups or hidden units included, to other votes.
        model: The generative model.
        params: Its parameters.
        posterior: Its posterior of the labels of the votes.
        unidentified: Why the votes do not identify its label; empty where they do.
        held_out: The log-likelihood of each held-out item.
        check_p_value: P-value of its predictive check; NaN where there is none.
        check_summary: The result of the predictive check in a sentence.
        difference: Its held-out log-likelihood minus that of the best candidate, in nats.
        error: The standard error of that difference.
        weight: Its weight among the models that are not ruled out.
        ruled_out: Why it is ruled out; empty where it is not.
    """

    name: str
    method_name: str
    method: Method
    refit: Method
    model: GenerativeModel
    params: Arrays
    posterior: Posterior
    unidentified: str = ""
    held_out: PerItem | None = None
    check_p_value: float = np.nan
    check_summary: str = ""
    difference: float = 0.0
    error: float = 0.0
    weight: float = 0.0
    ruled_out: str = ""

    def is_contradicted(self, level: float = 0.01) -> bool:
        """Whether the votes contradict the model, by its predictive check."""
        return self.check_p_value <= level

    @property
    def flaw(self) -> str:
        """Why data simulated from the model say nothing about these votes; empty where they do."""
        if self.unidentified:
            return f"does not identify the label: {self.unidentified}"
        contradicted = f"is contradicted by the votes ({probability_text(self.check_p_value)})"
        return contradicted if self.is_contradicted() else ""


def fit_candidates(
    dataset: Dataset, candidates: Mapping[str, Candidate], key: jax.Array, run: Runner
) -> tuple[list[FittedModel], dict[str, str]]:
    """Fit the candidates to all votes; returns the fitted models, and why others could not be fitted."""
    fitted, failed = list[FittedModel](), dict[str, str]()
    cells = cells_of(dataset, {each.method_name: each.method for each in candidates.values()}, key)
    done = {cell.name: (cell.method, outcome) for cell, outcome in zip(cells, run(cells), strict=True)}
    for name, candidate in candidates.items():
        method, outcome = done[candidate.method_name]
        try:
            model, params = model_of(method, outcome)
            probs = bayes_posterior(model, params, dataset.votes)
            if not np.array_equal(orientation(probs, dataset.votes), np.arange(probs.shape[1])):
                raise LatentensError("the order of its labels does not follow the votes")
            same = [other.name for other in fitted if type(other.model) is type(model) is DawidSkene]
            if same:
                notes = outcome.diagnostics.notes
                words = f"it gives the same model as {same[0]} here, without groups of voters"
                raise LatentensError(notes[0] if notes else words)
        except LatentensError as error:
            failed[name] = str(error)
            continue
        refit, doubt = method.refit(Estimate(outcome.params)), unidentified_label(outcome)
        fitted.append(FittedModel(name, candidate.method_name, method, refit, model, params, probs, doubt))
    return fitted, failed


def model_of(method: Method, outcome: Outcome) -> tuple[GenerativeModel, Arrays]:
    """The generative model of a point estimate, and its parameters."""
    if outcome.error:
        raise LatentensError(f"its fit failed: {outcome.error}")
    estimate = Estimate(outcome.params)
    model = method.fitted_model(estimate)
    if model is None or outcome.draws:
        raise LatentensError(f"{method} is not a point estimate of a generative model, so nothing can be simulated")
    return model, model_params(model, estimate)


def unidentified_label(outcome: Outcome, max_change: float = 0.05) -> str:
    """Why the label of a fit is not identified, according to the fit; empty where it is.

    Args:
        outcome: The fit.
        max_change: Largest share of labels that may change at another optimum that fits about as well.
    """
    if outcome.diagnostics.identified is False:
        reasons = (words for words in outcome.diagnostics.label_doubts if "not identified" in words)
        return next(reasons, "the label is not identified")
    change = outcome.diagnostics.label_change or 0.0
    if change > max_change:
        return f"{100 * change:.0f}\u00a0% of its labels change at another optimum that fits about as well"
    return ""


def with_held_out(
    models: Sequence[FittedModel],
    dataset: Dataset,
    key: jax.Array,
    run: Runner,
    num_folds: int = 5,
    enough_items: int = 1000,
) -> list[FittedModel]:
    """Add the log-likelihood of held-out items, each by a fit to the other folds.

    Args:
        models: The fitted models.
        dataset: The data set.
        key: Random key of folds and fits.
        run: Runs cells.
        num_folds: Number of cross-validation folds.
        enough_items: No further fold is held out once this many items have been.
    """
    votes, num_folds = dataset.votes, min(num_folds, dataset.votes.num_items)
    fold = numpy_generator(key).permutation(votes.num_items) % num_folds
    used = range(min(num_folds, -(-enough_items * num_folds // votes.num_items)))
    cells = []
    for number in used:
        seen = np.flatnonzero(fold != number)
        part = Dataset(f"{dataset.name}, fold {number}", votes.take(seen), dataset.labels[seen])
        cells += cells_of(part, {model.name: model.refit for model in models}, key)
    values = {model.name: list[PerItem]() for model in models}
    for place, (cell, outcome) in enumerate(zip(cells, run(cells), strict=True)):
        unseen = votes.take(np.flatnonzero(fold == used[place // len(models)]))
        values[cell.name].append(pointwise_log_likelihood(*model_of(cell.method, outcome), unseen))
    return [replace(model, held_out=np.concatenate(values[model.name])) for model in models]


def checked(fitted: FittedModel, votes: Votes, key: jax.Array) -> FittedModel:
    """Add the result of the predictive check, where there is one."""
    names = {name: getattr(votes, name) for name in ("item_names", "voter_names", "class_names")}
    method = methods.MaximumLikelihood(fitted.model)
    fit = Fit(fitted.params, label_probs=fitted.posterior, method=method, source=votes, **names)
    try:
        check = check_fit(fit, votes, key=key)
    except LatentensError as error:
        return replace(fitted, check_summary=str(error))
    return replace(fitted, check_p_value=check.p_value, check_summary=check.summary)


def judge(
    models: Sequence[FittedModel],
    gold: Mapping[str, PerItem],
    key: jax.Array,
    check: Callable[[FittedModel], FittedModel] = lambda model: model,
) -> list[FittedModel]:
    """Rule out models by votes and gold labels, and weigh those that are left.

    A model is ruled out if another one predicts held-out votes clearly better, or if a simpler one that has no flaw
    predicts them as well. Gold labels count for more: they rule out models that predict them clearly worse than
    another, and reinstate a model that predicts them clearly better than all that are left. Finally, models that the
    votes contradict or that do not identify the label are ruled out: results on data simulated from them say nothing
    about these votes. It may be that none is left.

    Args:
        models: The fitted models, at least one, with their held-out log-likelihoods.
        gold: The log-probability of each gold label by model; empty without gold labels.
        key: Random key of the bootstrap behind the weights.
        check: Adds the predictive check to a model; called only for models that are not ruled out otherwise.

    Returns:
        The models, checked where needed, with the fields on their plausibility.
    """
    known = {model.name: model for model in models}
    held_out = {model.name: model.held_out for model in models if model.held_out is not None}
    best = _best(held_out)
    ruled_out = {name: _clearly_worse(values, held_out[best], best, "votes") for name, values in held_out.items()}
    left = [name for name, reason in ruled_out.items() if not reason]
    known |= {name: check(known[name]) for name in left}
    sizes = {model.name: num_parameters(model.model) for model in models}
    simplest = min([name for name in left if not known[name].flaw] or left, key=lambda name: sizes[name])
    for name in left:
        if sizes[name] > sizes[simplest] and not _clearly_worse(held_out[simplest], held_out[name], name, "votes"):
            ruled_out[name] = f"predicts votes no better than {simplest}, which is simpler"
    if gold:
        before, ruled_out = ruled_out, _by_gold(ruled_out, gold)
        back = [name for name, reason in ruled_out.items() if not reason and before[name] and name not in left]
        known |= {name: check(known[name]) for name in back}
    ruled_out |= {name: known[name].flaw for name, reason in ruled_out.items() if not reason}
    weights = _weights([held_out, gold], [name for name, reason in ruled_out.items() if not reason], key)
    judged = []
    for name, values in held_out.items():
        difference, error = _difference(values, held_out[best])
        model, weight = known[name], weights.get(name, 0.0)
        judged.append(replace(model, difference=difference, error=error, weight=weight, ruled_out=ruled_out[name]))
    return judged


def _best(log_probs: Mapping[str, PerItem]) -> str:
    return max(log_probs, key=lambda name: log_probs[name].sum())


def _by_gold(ruled_out: Mapping[str, str], gold: Mapping[str, PerItem]) -> dict[str, str]:
    """The reasons once gold labels are taken into account."""
    left = [name for name, reason in ruled_out.items() if not reason]

    def worse_than(best: str) -> dict[str, str]:
        return {name: _clearly_worse(gold[name], gold[best], best, "gold labels") for name in left}

    best = _best(gold)
    if best not in left and not all(worse_than(best).values()):  # it is not clear that the votes were wrong about it
        best = _best({name: gold[name] for name in left})
    worse = worse_than(best)
    return {**ruled_out, **worse, best: ""}


def _difference(values: PerItem, best: PerItem) -> tuple[float, float]:
    gain = values - best
    return float(gain.sum()), float(np.sqrt(len(gain)) * gain.std(ddof=1)) if len(gain) > 1 else np.inf


def _clearly_worse(
    values: PerItem, best: PerItem, best_name: str, what: str, standard_errors: float = 3.0, nats: float = 4.0
) -> str:
    """Why a model is ruled out by its predictions; empty where it is not.

    Below a few nats the standard error of a difference cannot be relied on.
    """
    difference, error = _difference(values, best)
    if -difference <= max(standard_errors * error, nats):
        return ""
    return f"predicts {what} worse than {best_name}, by {-difference:,.0f} ± {error:,.0f} nats"


def _weights(
    sources: Sequence[Mapping[str, PerItem]], names: Sequence[str], key: jax.Array, num_draws: int = 1000
) -> dict[str, float]:
    """Mean share of the likelihood over Bayesian bootstraps of the items (pseudo-BMA+, Yao et al. 2018)."""
    if not names:
        return {}
    generator, total = numpy_generator(key), np.zeros((num_draws, len(names)))
    for source in filter(None, sources):
        values = np.stack([source[name] for name in names], axis=1)
        total += len(values) * generator.dirichlet(np.ones(len(values)), num_draws) @ values
    return dict(zip(names, softmax(total, axis=1).mean(axis=0).tolist(), strict=True))
