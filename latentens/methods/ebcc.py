"""EBCC, enhanced Bayesian classifier combination (Li, Rubinstein & Cohn 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma, gammaln, logsumexp

from latentens.inference.identification import Labelling, label_change
from latentens.inference.orient import orientation, vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.independent.likelihood import gold_posterior
from latentens.methods.independent.subtype_ascent import (
    CLASS_CONCENTRATION,
    RIGHT_CONCENTRATION,
    SUBTYPE_CONCENTRATION,
    WRONG_CONCENTRATION,
    End,
    SubtypeAscent,
    Subtypes,
)
from latentens.methods.rows import Indicator, LabelledRows, in_blocks, labelled_rows, vote_indicator
from latentens.runtime.numerics import numpy_generator, safe_log
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.incidence import incidence_of
from latentens.votes.matching import certain_where_known

SCREENED_ITEMS = 2**13
"""Whether classes have several subtypes is tried on a sample of this many items, or half of all, if there are as many
distinct rows and most votes are missing. Where every voter votes on every item, a subtype that so few do not show may
still be worth some thousandths of a nat an item, and rows are quick."""

SCREENED_ROWS = 2**17
"""Random starts compete on a sample of this many items, if there are twice as many distinct rows; the best goes on."""

Responsibilities = Float[np.ndarray, "row label subtype"]


class Concentrations(NamedTuple):
    """Parameters of the Dirichlet posteriors."""

    classes: Float[np.ndarray, " label"]
    subtypes: Float[np.ndarray, "label subtype"]
    votes: Float[np.ndarray, "voter vote label subtype"]


@dataclass(frozen=True)
class Ebcc(Method):
    """Each class is a mixture of subtypes, and voters are independent given the subtype: so they correlate in a class.

    Variational Bayes. Priors: Dirichlet(1, …) for classes, Dirichlet(.1/M, …) for the M subtypes of a class, and for
    votes Dirichlet with 4 on the right class and 1 on each other. The probabilities are the variational posterior; gold
    labels are part of what it is a posterior of.

    Notes:
        One start has the vote shares as one subtype a class, with gold labels another has what these alone say, and
        the others divide the vote shares among all subtypes at random. Where most votes are missing and there are many
        distinct rows, random starts run on a sample of the items first, and on all of them only if the best one keeps
        several subtypes of a class there; where there are very many, only the best of them goes on with all. The best
        evidence bound is kept, and subtypes change class where that raises it further.

    Attributes:
        num_subtypes: Subtypes of each class.
        restarts: Random starts.
        tolerance: A start has converged when a round gains less than this in the evidence bound per item.
        max_iterations: Limit on the number of rounds.
    """

    counts_rows = True

    num_subtypes: Count = 10
    restarts: Count = 5
    tolerance: Positive = 1e-6
    max_iterations: Count = 500

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        generator = numpy_generator(key)
        rows = labelled_rows(votes, gold)
        ascent = self._ascent(rows)
        starts = [_soft_labels(rows)]
        if gold is not None:
            starts.append(certain_where_known(gold_posterior(votes, gold, rows.votes), rows.gold))
        runs = [ascent.climb(ascent.begin(start)) for start in starts] + self._random_runs(ascent, rows, generator)
        settled = ascent.settle(_best(runs))
        prior = _prior(votes.num_voters, votes.num_classes, self.num_subtypes)
        best = _all_subtypes(settled.position.subtypes, prior)
        ends = [(run.position.bound, _all_subtypes(run.position.subtypes, prior)) for run in runs]
        change = self._label_change((settled.position.bound, best), ends, votes, rows, gold)
        diagnostics = Diagnostics(
            "variational posterior",
            iterations=settled.rounds,
            converged=settled.converged,
            label_change=change,
            extra={
                "evidence_bound": settled.position.bound,
                "start_evidence_bounds": np.array([run.position.bound for run in runs]),
            },
        )
        return Estimate(_params(best), diagnostics, state=_state(best))

    def _label_change(
        self,
        best: tuple[float, Concentrations],
        others: Sequence[tuple[float, Concentrations]],
        votes: Votes,
        rows: LabelledRows,
        gold: GoldCodes | None,
    ) -> float:
        """The largest share of labels that change where another start ended, if its bound is about as high."""

        def labelling(fitted: Concentrations) -> Labelling:
            estimate = Estimate(_params(fitted), state=_state(fitted))
            probs = self.posterior(estimate, rows.votes)
            order = orientation(probs[rows.inverse], votes, gold)
            likely = self.log_likelihood_of(estimate, rows.votes)
            return Labelling(likely, (probs[:, order] + rows.log_allowed).argmax(axis=1))

        here, changes = labelling(best[1]), [0.0]
        for bound, fitted in others:
            there = labelling(fitted)
            by_parameters = best[0] - bound - rows.counts @ (here.log_likelihood - there.log_likelihood)
            changes.append(label_change(here, there, rows.counts, float(by_parameters)))
        return max(changes)

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        classes, subtypes, votes = _fitted(estimate)
        moved = Concentrations(classes[order], subtypes[order], votes[:, :, order])
        return replace(estimate, params=_params(moved), state=_state(moved))

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return _class_probs(vote_indicator(votes, votes.num_classes), _fitted(estimate))

    @in_blocks
    def log_likelihood_of(self, estimate: Estimate, votes: Votes) -> Float[np.ndarray, " row"]:
        """Of one row each parameter is used once, so that its mean under the variational posterior is all it takes."""
        log_prior = safe_log(estimate.params["prevalence"][:, None] * estimate.params["subtype_shares"]).ravel()
        by_subtype = estimate.params["subtype_confusion"].transpose(0, 3, 1, 2)
        table = safe_log(by_subtype).reshape(votes.num_voters * votes.num_classes, -1)
        return logsumexp(vote_indicator(votes, votes.num_classes) @ table + log_prior, axis=1)

    def _ascent(self, rows: LabelledRows) -> SubtypeAscent:
        allowed = rows.log_allowed if (rows.gold >= 0).any() else None
        sizes = rows.votes.num_classes, self.num_subtypes
        return SubtypeAscent(
            incidence_of(rows.votes), rows.counts, allowed, *sizes, self.tolerance, self.max_iterations
        )

    def _random_runs(self, ascent: SubtypeAscent, rows: LabelledRows, generator: np.random.Generator) -> list[End]:
        """Where labels that are divided among the subtypes at random lead; none if a sample says that it is in vain."""
        size = len(rows.counts)
        (apart,) = generator.spawn(1)  # random starts do not depend on whether a sample was asked
        if not self._worth_random_starts(rows, apart):
            return []
        if size < 2 * SCREENED_ROWS:
            return self._climb_all(ascent, rows, generator)
        best = self._best_on_sample(rows, SCREENED_ROWS, generator)
        return [ascent.climb(best.scaled(int(rows.counts.sum())))]

    def _worth_random_starts(self, rows: LabelledRows, generator: np.random.Generator) -> bool:
        """Whether the best random start keeps several subtypes of a class on a sample, where one is asked."""
        if not rows.votes.is_sparse or len(rows.counts) < SCREENED_ITEMS:
            return True
        num_items = min(SCREENED_ITEMS, int(rows.counts.sum()) // 2)
        return bool(np.bincount(self._best_on_sample(rows, num_items, generator).label).max() > 1)

    def _best_on_sample(self, rows: LabelledRows, num_items: int, generator: np.random.Generator) -> Subtypes:
        """The subtypes to which the best random start leads on a sample of the items."""
        drawn = generator.multivariate_hypergeometric(rows.counts, num_items, method="marginals")
        chosen = np.flatnonzero(drawn)
        sample = LabelledRows(rows.votes.take(chosen), drawn[chosen], np.arange(len(chosen)), rows.gold[chosen])
        return _best(self._climb_all(self._ascent(sample), sample, generator)).position.subtypes

    def _climb_all(self, ascent: SubtypeAscent, rows: LabelledRows, generator: np.random.Generator) -> list[End]:
        labels = _soft_labels(rows)
        return [ascent.climb(ascent.begin(labels, generator)) for _ in range(self.restarts)]


def _soft_labels(rows: LabelledRows) -> Float[np.ndarray, "row label"]:
    """Known labels, and vote shares where they are not known."""
    return np.where(rows.gold[:, None] >= 0, np.exp(rows.log_allowed), vote_shares(rows.votes))


def _best(runs: Sequence[End]) -> End:
    return max(runs, key=lambda run: run.position.bound)


def _all_subtypes(found: Subtypes, prior: Concentrations) -> Concentrations:
    """Dirichlet posteriors of all subtypes; those that are not among the found ones have their priors."""
    subtypes, votes = prior.subtypes.copy(), prior.votes.copy()
    by_voter = found.votes.reshape(*votes.shape[:2], -1)
    for label in range(len(subtypes)):
        own = np.flatnonzero(found.label == label)
        subtypes[label, : len(own)] += found.items[own]
        votes[:, :, label, : len(own)] += by_voter[:, :, own]
    return Concentrations(prior.classes + np.bincount(found.label, found.items, len(subtypes)), subtypes, votes)


def _prior(num_voters: int, num_classes: int, num_subtypes: int) -> Concentrations:
    right = np.eye(num_classes, dtype=bool)[None, :, :, None]
    votes = np.where(right, RIGHT_CONCENTRATION, WRONG_CONCENTRATION)
    return Concentrations(
        np.full(num_classes, CLASS_CONCENTRATION),
        np.full((num_classes, num_subtypes), SUBTYPE_CONCENTRATION / num_subtypes),
        np.broadcast_to(votes, (num_voters, num_classes, num_classes, num_subtypes)),
    )


def _concentrations(
    indicator: Indicator, counts: Int[np.ndarray, " row"], responsibilities: Responsibilities, prior: Concentrations
) -> Concentrations:
    """Dirichlet posteriors given the responsibilities."""
    weighted = responsibilities * counts[:, None, None]
    subtypes = weighted.sum(axis=0)
    votes = (indicator.T @ weighted.reshape(len(counts), -1)).reshape(prior.votes.shape)
    return Concentrations(prior.classes + subtypes.sum(axis=1), prior.subtypes + subtypes, prior.votes + votes)


def _responsibilities(
    indicator: Indicator, fitted: Concentrations, log_allowed: Float[np.ndarray, "row label"] | None = None
) -> tuple[Responsibilities, Float[np.ndarray, " row"]]:
    """q(label, subtype) of each row, and the logarithm of what it was divided by."""
    log_prior = _expected_log(fitted.classes)[:, None] + _expected_log(fitted.subtypes, axis=1)
    table = _expected_log(fitted.votes, axis=1).reshape(indicator.shape[1], -1)
    logits = indicator @ table + log_prior.ravel()
    if log_allowed is not None:
        logits += np.repeat(log_allowed, log_prior.shape[1], axis=1)
    highest = logits.max(axis=1, keepdims=True)
    unnormalised = np.exp(logits - highest)
    total = unnormalised.sum(axis=1, keepdims=True)
    return (unnormalised / total).reshape(-1, *log_prior.shape), (np.log(total) + highest)[:, 0]


def _class_probs(indicator: Indicator, fitted: Concentrations) -> Float[np.ndarray, "row label"]:
    return _responsibilities(indicator, fitted)[0].sum(axis=2)


def _divergence(fitted: Concentrations, prior: Concentrations) -> float:
    """Kullback–Leibler divergence of the Dirichlet posteriors from their priors."""
    axes = {"classes": 0, "subtypes": 1, "votes": 1}
    return sum(_dirichlet_divergence(getattr(fitted, n), getattr(prior, n), axis) for n, axis in axes.items())


def _dirichlet_divergence(of: np.ndarray, from_: np.ndarray, axis: int) -> float:
    normaliser = gammaln(of.sum(axis=axis)) - gammaln(from_.sum(axis=axis))
    cells = gammaln(from_) - gammaln(of) + (of - from_) * _expected_log(of, axis)
    return float(normaliser.sum() + cells.sum())


def _expected_log(concentrations: np.ndarray, axis: int = 0) -> np.ndarray:
    return digamma(concentrations) - digamma(concentrations.sum(axis=axis, keepdims=True))


def _state(fitted: Concentrations) -> dict[str, np.ndarray]:
    return {f"{name}_concentration": value for name, value in fitted._asdict().items()}


def _fitted(estimate: Estimate) -> Concentrations:
    return Concentrations(*(estimate.state[f"{name}_concentration"] for name in Concentrations._fields))


def _params(fitted: Concentrations) -> dict[str, np.ndarray]:
    """Posterior means; the confusion matrices are means over the subtypes of each class."""
    shares = fitted.classes / fitted.classes.sum()
    subtype_shares = fitted.subtypes / fitted.subtypes.sum(axis=1, keepdims=True)
    by_subtype = fitted.votes / fitted.votes.sum(axis=1, keepdims=True)
    confusion = np.einsum("jvkm,km->jkv", by_subtype, subtype_shares)
    return {
        "prevalence": shares,
        "confusion": confusion,
        "subtype_shares": subtype_shares,
        "subtype_confusion": by_subtype.transpose(0, 2, 3, 1),
    }
