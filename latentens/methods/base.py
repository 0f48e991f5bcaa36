"""`Method` turns votes into labels, `Fit` is the result of every method."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, final

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from latentens.errors import LatentensError, VotesError
from latentens.inference.identification import NEAR, group_warnings, identification_warnings, label_warnings
from latentens.inference.orient import orient
from latentens.inference.skill import COVERAGE, VoterSkill, counted_skill, has_closed_form, point_skill, sampled_skill
from latentens.methods.display import fit_html, fit_text, voter_table
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import draws_log_likelihood, pointwise_log_likelihood
from latentens.programs.model import GenerativeModel
from latentens.runtime.compilation import release_compiled
from latentens.runtime.numerics import check_key, double_precision, fault_of
from latentens.runtime.parallel import one_blas_thread, time_limited
from latentens.runtime.settings import Settings
from latentens.votes import CountedVotes, Votes
from latentens.votes.labels import Names, listed
from latentens.votes.matching import Gold, align, certain_where_known, check_votes, gold_codes

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Posterior = Float[np.ndarray, "item label"]
Arrays = Mapping[str, np.ndarray]
GoldCodes = Int[np.ndarray, " item"]
"""The code of each item's true label, −1 where it is unknown."""


@dataclass(frozen=True, eq=False)
class Diagnostics(Mapping[str, Any]):
    """How a fit went: fields that any method may report, and a method's own numbers in `extra`.

    Read as a mapping, it has both, without fields that are None.

    Attributes:
        label_probs: What the probabilities of the labels are.
        log_likelihood: Of all votes at the estimate, in nats.
        iterations: Number of iterations of the start that was kept.
        converged: Whether the fit converged.
        label_change: Largest share of labels that change at another optimum that fits about as well.
        identified: Whether the fitted model determines the labels.
        flipped: Whether `Method.fit` had to put the labels in another order.
        orientation: The evidence for the order of the labels.
        fallback: Why a simpler estimate was taken, if one was.
        notes: Decisions that the method made.
        warnings: Problems of the fit itself.
        label_doubts: Reasons why the labels may be wrong although the fit went well.
        seconds: Duration of the fit.
        extra: What only this method reports.
    """

    label_probs: str = ""
    log_likelihood: float | None = None
    iterations: int | None = None
    converged: bool | None = None
    label_change: float | None = None
    identified: bool | None = None
    flipped: bool | None = None
    orientation: Mapping[str, Any] | None = None
    fallback: str | None = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    label_doubts: Sequence[str] = ()
    seconds: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_warnings(self) -> list[str]:
        """Problems of the fit, and doubts about its labels."""
        return [*self.warnings, *self.label_doubts]

    def updated(self, **values: Any) -> "Diagnostics":
        """A copy with other values; those that are not fields go to `extra`."""
        own = {name: value for name, value in values.items() if name in FIELDS}
        more = {name: value for name, value in values.items() if name not in FIELDS}
        return replace(self, **own, extra={**self.extra, **more})

    def _present(self) -> dict[str, Any]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None} | dict(self.extra)

    def __getitem__(self, name: str) -> Any:
        return self._present()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._present())

    def __len__(self) -> int:
        return len(self._present())


FIELDS = tuple(each.name for each in fields(Diagnostics) if each.name != "extra")


@dataclass(frozen=True, eq=False)
class Estimate:
    """The result of `Method.estimate`, from which `Method.fit` makes a `Fit`.

    Attributes:
        params: Estimated parameters by name: what a user looks at.
        diagnostics: How the fit went: log-likelihood, iterations, convergence, ….
        draws: Posterior draws by name, with leading axes (chain, draw), for a sampled fit.
        state: Further arrays that `Method.posterior` needs.
        label_probs: The posterior of the fitted items, if it differs from `posterior` of their votes.
    """

    params: Arrays = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    draws: Arrays | None = None
    state: Arrays = field(default_factory=dict)
    label_probs: Posterior | None = None


class VoteSummary(NamedTuple):
    """The summary of the votes that a fit keeps.

    Attributes:
        by_item: Number of votes on each item.
        skill: The estimated skill of the voters.
    """

    by_item: Int[np.ndarray, " item"]
    skill: VoterSkill


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Estimate):
    """The result of a method: data only, so that it can be saved, loaded and sent to another process.

    Attributes:
        label_probs: Estimated posterior of each item's label.
        method: The method with its settings.
        item_names: Names of the items.
        voter_names: Names of the voters; later votes are matched to them by name.
        class_names: The labels that the columns of `label_probs` stand for.
        other_names: Categories of votes that are not labels, such as "tie".
        grade_names: The grades of ordered votes, from the lowest to the highest.
        source: The votes that were fitted; a fit from a file has only what it keeps of them.
        known: The codes of the gold labels, −1 where an item has none; None without gold labels.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0))
        >>> fit.labels[:4]
        array([0, 0, 0, 0])
        >>> fit.voters[["voter", "accuracy"]].round(2).head(2)
               voter  accuracy
        0  dentist_1      0.88
        1  dentist_2      0.86
    """

    label_probs: Posterior = field(kw_only=True)
    method: "Predictor" = field(kw_only=True)
    item_names: Names = field(kw_only=True)
    voter_names: Names = field(kw_only=True)
    class_names: Names = field(kw_only=True)
    source: Votes | CountedVotes | VoteSummary = field(kw_only=True)
    other_names: Names = field(default=(), kw_only=True)
    grade_names: Names = field(default=(), kw_only=True)
    known: GoldCodes | None = field(default=None, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        """The state that is sent to another process: everything but the votes."""
        state = {name: value for name, value in vars(self).items() if name != "summary"}
        return {**state, "source": self.summary, "known": None}

    @cached_property
    def summary(self) -> VoteSummary:
        """Votes on each item, and the skill of the voters."""
        if isinstance(self.source, CountedVotes):
            raise LatentensError("voters cannot be judged by counted rows of votes: fit the items, or a sample of them")
        if not isinstance(self.source, Votes):
            return self.source
        return VoteSummary(self.source.cast_by_item, self._quick_skill(self.source))

    def _quick_skill(self, votes: Votes) -> VoterSkill:
        """The voters' skill, with intervals where these take no compilation."""
        model, form = self.model, (votes.num_classes, votes.num_categories)
        if model is not None and (self.draws is not None or has_closed_form(model, self.method.maximises_posterior)):
            structure = structure_of(model)
            if (structure.num_labels, structure.num_vote_classes) == form:
                return self.voter_skill(votes)
        confusion = np.asarray(self.params.get("confusion", ()), dtype=float)
        is_estimated = confusion.shape == (votes.num_voters, *form)
        return counted_skill(self.label_probs, votes, confusion if is_estimated else None)

    def to_frame(self) -> "pd.DataFrame":
        """One row per item: its name, its label as written, the label's probability, its votes, all probabilities."""
        import pandas as pd

        best = {"item": self.item_names, "label": self.labels, "confidence": self.label_probs.max(axis=1)}
        probs = {f"prob_{name}": self.label_probs[:, code] for code, name in enumerate(self.class_names)}
        source = self.source.rows if isinstance(self.source, CountedVotes) else self.source
        votes = source.cast_by_item if isinstance(source, Votes) else source.by_item
        return pd.DataFrame({**best, "votes": votes, **probs})

    @property
    def voters(self) -> "pd.DataFrame":
        """One row per voter: votes, accuracies with intervals, a flag for chance level or worse, the confusion matrix.

        Intervals are there where they are quick to compute, and the column of that name says what they rest on;
        `voter_skill` computes them for every generative model.
        """
        return voter_table(self.summary.skill, self.voter_names, self.class_names, self.category_names)

    @property
    def category_names(self) -> Names:
        """The names of the vote categories that the method learned from."""
        in_order = len(self.grade_names) and self.method.takes_grades
        return self.grade_names if in_order else (*self.class_names, *self.other_names)

    @property
    def codes(self) -> Int[np.ndarray, " item"]:
        """The code of each item's most probable label, its column in `label_probs`; ties go to the first class."""
        return self.label_probs.argmax(axis=1)

    @property
    def labels(self) -> Shaped[np.ndarray, " item"]:
        """The most probable label of each item, as written in the votes."""
        return np.asarray(self.class_names)[self.codes]

    def voter_skill(self, votes: Votes | None = None, *, level: float = COVERAGE) -> VoterSkill:
        """The skill of each voter under the fitted model: accuracies and confusion matrices with errors and intervals.

        Errors come from posterior draws where there are any. At a point estimate they come from the observed
        information, in closed form for independent voters and else by differentiating the program, which takes seconds
        to compile. They hold if the model does: voters who depend on each other in ways that it does not know are less
        certain than it says. Pseudo-counts shrink the estimates, but not the intervals.

        Args:
            votes: The votes that were fitted; a loaded fit does not have them.
            level: Coverage of the intervals.
        """
        votes = self.source if votes is None and isinstance(self.source, Votes) else votes
        if votes is None:
            raise LatentensError("the fit does not have its votes: pass them")
        if self.model is None:
            raise LatentensError(f"{self.method} has no generative model, so the skill of voters has no known error")
        votes = self.aligned(votes)
        if votes.num_items != len(self.label_probs):
            raise LatentensError(f"the fit is to {len(self.label_probs):,} items, the votes are on {votes.num_items:,}")
        return self.method.skill_of(self, votes, known=self.known, level=level)

    @double_precision
    def predict(self, votes: Votes) -> Posterior:
        """The posterior of the labels of new items, by the fitted parameters.

        Voters and classes are matched by name, so columns may come in any order. A fitted voter who is absent counts
        as missing. A voter who was not fitted is left out with a warning. A class that was not fitted is refused.

        Args:
            votes: The votes on the new items.

        Examples:
            >>> import jax
            >>> import latentens as le
            >>> votes = le.datasets.load("caries").votes
            >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0))
            >>> new = votes.between(3500, 3502)  # rows of new votes, with the same voters
            >>> fit.predict(new).round(3)
            array([[0.001, 0.999],
                   [0.001, 0.999]])
        """
        return posterior_of(self.method, self, self.aligned(votes))

    def aligned(self, votes: Votes) -> Votes:
        """Votes with the voters and the categories of the fit, matched by name."""
        check_votes(votes, "a fit")
        names = self.voter_names, self.class_names, self.other_names, self.grade_names
        return self.method.usable(align(votes, *names))

    @property
    def model(self) -> GenerativeModel | None:
        """The generative model whose parameters `params` are; None if the method has no such model."""
        return self.method.fitted_model(self)

    @property
    def sensitivity(self) -> Float[np.ndarray, " voter"]:
        """Of two classes: each voter's probability of voting for class 1 where it is the label."""
        return self._two_class_confusion[:, 1, 1]

    @property
    def specificity(self) -> Float[np.ndarray, " voter"]:
        """Of two classes: each voter's probability of voting for class 0 where it is the label."""
        return self._two_class_confusion[:, 0, 0]

    @property
    def _two_class_confusion(self) -> Float[np.ndarray, "voter label vote"]:
        confusion = self.params.get("confusion")
        if confusion is None or confusion.shape[1:] != (2, 2):
            raise LatentensError("sensitivity and specificity need confusion matrices of two classes in `params`")
        return confusion

    @one_blas_thread()
    @double_precision
    def log_likelihood(self, votes: Votes) -> Float[np.ndarray, "*draw item"]:
        """The log-likelihood of each item's votes, label and hidden units summed out, in nats.

        Args:
            votes: The votes, on the fitted items or on others; matched as in `predict`.

        Returns:
            One value for each item; with leading axes (chain, draw) for a sampled fit.
        """
        rows, _, inverse = self.aligned(votes).patterns
        values = self.method.log_likelihood_of(self, rows)
        if values is None:
            raise LatentensError(f"{self.method} gives votes no exact probability; fit a generative model")
        return values[..., inverse]

    def save(self, path: str | Path) -> None:
        """Write the fit to a netCDF file, from which `latentens.load_fit` reads it."""
        from latentens.methods.persistence import save_fit

        save_fit(self, path)

    def to_datatree(self) -> "xr.DataTree":
        """The fit in the layout of ArviZ.

        Groups: `posterior` and `sample_stats` of a sampled fit; `params`, `estimates` (the label probabilities),
        `observed_data` and, where votes have an exact probability, `log_likelihood`.
        """
        from latentens.methods.persistence import fit_tree

        return fit_tree(self)

    def __repr__(self) -> str:
        return fit_text(self)

    def _repr_html_(self) -> str:
        return fit_html(self)


class Predictor(Settings, ABC):
    """A frozen dataclass of settings that turns fitted arrays and votes into posteriors."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Refuse a class whose settings could not be read, and so neither saved nor told from others."""
        params = getattr(cls, "__dataclass_params__", None)
        if params is None or not params.frozen:
            raise LatentensError(f"{cls.__name__} must be a frozen dataclass: put @dataclass(frozen=True) above it")
        return super().__new__(cls)

    @abstractmethod
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        """The posterior of each item's label given its votes.

        Args:
            estimate: What `estimate` found.
            votes: Distinct rows of votes, with the voters and classes of the fit.
        """

    @property
    def takes_other_votes(self) -> bool:
        """Whether it learns from votes for categories that are not labels, which are missing otherwise."""
        return False

    @property
    def takes_grades(self) -> bool:
        """Whether it learns from the order of grades, which are categories or votes for classes otherwise."""
        return False

    @property
    def takes_soft_votes(self) -> bool:
        """Whether it learns from soft votes, which are votes for the most probable category otherwise."""
        return False

    @final
    def usable(self, votes: Votes) -> Votes:
        """The votes that it learns from."""
        votes = votes if self.takes_soft_votes else votes.to_hard()
        if len(votes.grade_names) and self.takes_grades:
            return votes.as_ordered()
        if votes.is_ordered:
            return votes.as_categories() if self.takes_other_votes else votes.without_other_votes()
        return votes if not len(votes.other_names) or self.takes_other_votes else votes.without_other_votes()

    def fitted_model(self, estimate: Estimate) -> GenerativeModel | None:
        """The generative model whose parameters and draws the estimate has; None if there is no such model."""
        del estimate
        return None

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Whether each label is tied to the vote of the same name, which leaves nothing to orient."""
        model = self.fitted_model(estimate)
        return model is not None and model.anchored

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """The estimate with its labels in another order: label k of the result is label `order[k]` of the estimate.

        Where the parameters cannot be relabelled, `label_order` in the state is applied to the posteriors under them.
        """
        model = self.fitted_model(estimate)
        moved = None if model is None else model.relabel(estimate.params, order)
        if moved is not None:
            return replace(estimate, params={**estimate.params, **moved})
        before = estimate.state.get("label_order", np.arange(len(order)))
        return replace(estimate, state={**estimate.state, "label_order": before[order]})

    def log_likelihood_of(self, estimate: Estimate, votes: Votes) -> Float[np.ndarray, "*draw row"] | None:
        """The exact log-likelihood of rows of votes at the estimate, or at each of its draws; None if there is none."""
        model = self.fitted_model(estimate)
        if model is None:
            return None
        if estimate.draws is not None:
            return draws_log_likelihood(model, estimate.draws, votes)
        return pointwise_log_likelihood(model, model_params(model, estimate), votes)

    @property
    def maximises_posterior(self) -> bool:
        """Whether point estimates are posterior modes, so that the prior adds to what is known of them."""
        return False

    def skill_of(
        self, estimate: Estimate, votes: Votes, *, known: GoldCodes | None = None, level: float = COVERAGE
    ) -> VoterSkill:
        """The voters' skill under the fitted model.

        Args:
            estimate: What `estimate` found, for a method with a model.
            votes: The votes that were fitted.
            known: The code of each item's label, −1 where it is unknown, if some were known.
            level: Coverage of the intervals.
        """
        model, state = self.fitted_model(estimate), estimate.state
        assert model is not None, "asked for only where there is a model"
        if estimate.draws is not None:
            return sampled_skill(model, estimate.draws, votes, orders=state.get("label_orders"), level=level)
        return point_skill(
            model,
            model_params(model, estimate),
            votes,
            order=state.get("label_order"),
            known=known,
            added=state.get("added_votes"),
            use_prior=self.maximises_posterior,
            level=level,
        )


class Method(Predictor):
    """A frozen dataclass of settings that turns votes, and gold labels if there are any, into a `Fit`.

    A method of your own defines two hooks: `estimate` finds parameters from votes, and `posterior` gives the posterior
    of labels under them. `fit` does the rest: double precision, time, names, the order of the labels, and the posterior
    of the fitted items.

    Gold labels mean the same for every method: their items are certain, and they take part in the order of the labels
    (`latentens.inference.orient`). What a method learns from them besides is for its docstring to say.

    Attributes:
        counts_rows: Whether it can fit `CountedVotes`: it weights distinct rows by their counts wherever it uses them.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0), anchor=("dentist_3",))
        >>> fit.label_probs[:2].round(3)
        array([[0.999, 0.001],
               [0.999, 0.001]])
    """

    counts_rows: ClassVar[bool] = False

    @final
    def fit(
        self,
        votes: Votes | CountedVotes,
        *,
        key: jax.Array,
        gold: Gold | None = None,
        anchor: Collection[Hashable] = (),
    ) -> Fit:
        """Estimate the labels.

        Args:
            votes: The votes; the items of counted ones are the distinct rows.
            key: Random key; the same key gives the same result.
            gold: True labels of some items: a mapping or a Series from the item's name to its label as written (or the
                label's code), or an array with one entry per item: codes, −1 where the label is unknown, or labels.
            anchor: Names of voters that are known to be better than chance. Which label is which then follows their
                votes, and not those of the majority.
        """
        if isinstance(votes, CountedVotes):
            counted = votes.without_gold(gold)
            return self._run(replace(counted, rows=counted.rows.anchored(anchor)) if anchor else counted, None, key)
        check_votes(votes, type(self).__name__)
        votes = votes.anchored(anchor) if anchor else votes
        return fit_known(self, votes, key, None if gold is None else gold_codes(votes, gold))

    @abstractmethod
    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        """Estimate the parameters, the labels being in any order: the extension point. It runs in double precision.

        Args:
            votes: The votes.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        """

    def refit(self, estimate: Estimate) -> "Method":
        """The method that fits the model of an estimate to other votes; it may start from the estimate.

        Override it where `estimate` also chooses the structure of the model, such as groups of voters.
        """
        del estimate
        return self

    @one_blas_thread()
    @double_precision
    def _run(self, source: Votes | CountedVotes, gold: GoldCodes | None, key: jax.Array, nested: bool = False) -> Fit:
        check_key(key)
        name, start = type(self).__name__, time.perf_counter()
        votes = source.weighted if isinstance(source, CountedVotes) else source
        if votes.counts is not None and not self.counts_rows:
            raise VotesError(f"{name} does not take counted rows of votes: read the items, or a sample of them")
        others, grades, was_soft = votes.other_names, votes.grade_names, votes.is_soft
        votes = self.usable(votes)
        release_compiled()
        with time_limited(name):
            estimate = self.estimate(votes, key, gold)
            if not isinstance(estimate, Estimate):
                raise LatentensError(
                    f"{name}.estimate must return a latentens.Estimate, not a {type(estimate).__name__}"
                )
            estimate = _oriented(self, estimate, votes, gold, nested)
            fit = finished(self, _identified(self, estimate, votes), votes, start, gold)
        notes = [*fit.diagnostics.notes]
        if was_soft and not votes.is_soft:
            notes.append("soft votes count as votes for the most probable category")
        if len(grades) and not len(votes.grade_names):
            notes += _grades_as_classes(grades, votes)
            fit = replace(fit, grade_names=grades)
        elif len(others) > len(votes.other_names):
            notes.append(f"votes for {listed(others)}, not a label, count as missing")
            fit = replace(fit, other_names=others)
        if len(notes) > len(fit.diagnostics.notes):
            fit = replace(fit, diagnostics=fit.diagnostics.updated(notes=notes))
        return replace(fit, source=source) if isinstance(source, CountedVotes) else fit


def _grades_as_classes(grades: Names, votes: Votes) -> list[str]:
    """Which grades count as votes for which class, unless they are the classes."""
    if len(grades) == votes.num_classes:
        return []
    of_grade = np.arange(len(grades)) * votes.num_classes // len(grades)
    starts = {code: int(np.argmax(of_grade == code)) for code in np.unique(of_grade).tolist()}
    parts = [f"{listed([votes.class_names[code]])} from {listed([grades[start]])} on" for code, start in starts.items()]
    return [f"grades count as votes for classes: {', '.join(parts)}"]


def fit_known(method: Method, votes: Votes, key: jax.Array, gold: GoldCodes | None) -> Fit:
    """A fit with gold labels that are given by their codes."""
    return method._run(votes, gold if gold is not None and (gold >= 0).any() else None, key)


def nested_fit(method: Method, votes: Votes, key: jax.Array, gold: GoldCodes | None) -> Fit:
    """A fit that is a step of another method's: the outer fit reports on the votes themselves."""
    return method._run(votes, gold if gold is not None and (gold >= 0).any() else None, key, nested=True)


def _oriented(method: Method, estimate: Estimate, votes: Votes, gold: GoldCodes | None, nested: bool) -> Estimate:
    """The estimate with its labels in the order that agrees best with votes and gold labels, and doubts about that."""
    probs = estimate.label_probs
    is_fixed = method.has_fixed_order(estimate)
    if probs is None or (gold is not None and not is_fixed):  # what votes alone say, known labels aside
        probs = posterior_of(method, estimate, votes)
        estimate = estimate if estimate.label_probs is not None else replace(estimate, label_probs=probs)
    found = None if is_fixed and gold is None else orient(probs, votes, gold)
    unchanged = is_fixed or found is None or np.array_equal(found.order, np.arange(len(found.order)))
    if found is not None and not unchanged:
        assert estimate.label_probs is not None
        moved = method.relabel(estimate, found.order)
        estimate = replace(moved, label_probs=estimate.label_probs[:, found.order])
    diagnostics = estimate.diagnostics.updated(flipped=not unchanged)
    doubts = label_warnings(diagnostics.label_change or 0.0)
    if found is not None and not is_fixed:
        diagnostics = diagnostics.updated(orientation=found.describe(votes.class_names))
        doubts += found.warnings(votes.class_names, 0 if gold is None else int((gold >= 0).sum()))
    if not nested and (found is None or not found.by_gold >= NEAR):
        doubts += group_warnings(votes)
    return _with_doubts(replace(estimate, diagnostics=diagnostics), doubts)


def _identified(method: Method, estimate: Estimate, votes: Votes) -> Estimate:
    """The estimate with doubts where its model does not determine the label; sets `identified`."""
    model = method.fitted_model(estimate)
    views = None if model is None else model.label_views(estimate.params)
    if views is None or estimate.label_probs is None or estimate.diagnostics.identified is not None:
        return estimate
    shares = estimate.label_probs.mean(axis=0)
    doubts = identification_warnings(views, shares, votes.num_cases, votes.class_names)
    identified = replace(estimate, diagnostics=estimate.diagnostics.updated(identified=not doubts))
    return _with_doubts(identified, doubts)


def _with_doubts(estimate: Estimate, doubts: list[str]) -> Estimate:
    """The estimate with more doubts about its labels, each once."""
    joined = list(dict.fromkeys([*estimate.diagnostics.label_doubts, *doubts]))
    return replace(estimate, diagnostics=estimate.diagnostics.updated(label_doubts=joined))


def finished(method: Predictor, estimate: Estimate, votes: Votes, start: float, gold: GoldCodes | None = None) -> Fit:
    """The fit that an estimate amounts to.

    Args:
        method: What made the estimate.
        estimate: The estimate.
        votes: The votes that it was made from.
        start: When the work began, by `time.perf_counter`.
        gold: The code of each item's true label, −1 where it is unknown; a known label is certain.
    """
    probs = posterior_of(method, estimate, votes) if estimate.label_probs is None else estimate.label_probs
    if gold is not None:
        probs = certain_where_known(probs, gold)
    return Fit(
        estimate.params,
        estimate.diagnostics.updated(seconds=time.perf_counter() - start),
        estimate.draws,
        estimate.state,
        label_probs=probs,
        method=method,
        item_names=votes.item_names,
        voter_names=votes.voter_names,
        class_names=votes.class_names,
        other_names=votes.other_names,
        grade_names=votes.grade_names,
        source=votes,
        known=gold,
    )


def load_fit(path: str | Path, types: Iterable[type | Callable[..., Any]] = ()) -> Fit:
    """Read a fit that `Fit.save` has written; it predicts as the original does.

    Args:
        path: The file.
        types: Classes or functions of your own that the method's settings refer to, such as a generative model, if
            they cannot be imported from the module in which they were defined.
    """
    from latentens.methods.persistence import read_parts

    parts = read_parts(path, types)
    source = VoteSummary(parts.pop("by_item"), parts.pop("skill"))
    return Fit(diagnostics=Diagnostics().updated(**parts.pop("diagnostics")), source=source, **parts)


PARTS = ("params", "draws", "state")
"""The parts of an estimate that a method's `posterior` reads."""


def packed(fits: Sequence[Fit]) -> dict[str, np.ndarray]:
    """The arrays of several fits under names of their own, to be kept in the state of one that rests on them."""
    return {
        f"method_{number}.{part}.{name}": value
        for number, fit in enumerate(fits)
        for part in PARTS
        for name, value in (getattr(fit, part) or {}).items()
    }


def unpacked(estimate: Estimate, number: int) -> Estimate:
    """One of the fits that `packed` put into the state of an estimate."""
    parts: dict[str, dict[str, np.ndarray]] = {part: {} for part in PARTS}
    for path, value in estimate.state.items():
        method, _, rest = path.partition(".")
        part, _, name = rest.partition(".")
        if method == f"method_{number}":
            parts[part][name] = value
    return Estimate(parts["params"], draws=parts["draws"] or None, state=parts["state"])


def warnings_of(fits: Iterable[Fit]) -> list[str]:
    """The warnings of several fits that one fit rests on, each with the name of its method."""
    return [f"member {type(fit.method).__name__}: {words}" for fit in fits for words in fit.diagnostics.all_warnings]


def model_params(model: GenerativeModel, estimate: Estimate) -> Arrays:
    """The parameters of a model, without what else an estimate reports."""
    return {name: estimate.params[name] for name in structure_of(model).parameter_shapes}


@one_blas_thread()
def posterior_of(method: Predictor, estimate: Estimate, votes: Votes) -> Posterior:
    """The posterior of votes under a method's estimate, computed once for each distinct row."""
    rows, _, inverse = method.usable(votes).patterns
    probs = method.posterior(estimate, rows)
    if fault := fault_of(probs, (rows.num_items, votes.num_classes)):
        raise LatentensError(f"the result of {type(method).__name__}.posterior {fault}")
    probs = probs[inverse]
    return probs[:, estimate.state["label_order"]] if "label_order" in estimate.state else probs
