"""Which method to trust on votes without labels: worlds are fitted, twins are drawn, every method is scored on them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
import xarray as xr
from jaxtyping import Int

from latentens.checks.signal import check_signal
from latentens.comparison.cell import Cell, Outcome
from latentens.comparison.data_tree import Address, assemble
from latentens.comparison.sweep import MethodFactory, Progress, cells_of, key_data, named_methods, run_cells
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.methods import Tempered
from latentens.methods.base import Method
from latentens.recommendation.catalogue import (
    SAFEST,
    Methods,
    World,
    default_methods,
    default_worlds,
    spare_worlds,
    users_worlds,
)
from latentens.recommendation.evidence import Evidence
from latentens.recommendation.expected_scores import SCORES, Estimated, TwinScores
from latentens.recommendation.gold_verdict import RESAMPLES, GoldVerdict, judge_by_gold
from latentens.recommendation.minimax import choose, column
from latentens.recommendation.tree_parts import GROUP, recommendation_group
from latentens.recommendation.twin_cells import draw_twins, scored_twins, twin_cells, without_gold
from latentens.recommendation.twin_words import span
from latentens.recommendation.verdicts import contenders, judge
from latentens.recommendation.worlds import (
    FittedWorld,
    checked,
    fit_cells,
    fitted_worlds,
    held_out_cells,
    open_label,
    with_held_out,
)
from latentens.runtime.numerics import numpy_generator
from latentens.scores.statistics import log_losses
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes

if TYPE_CHECKING:
    from distributed import Client

MAX_ITEMS = 10_000
QUICK_ITEMS = 2_000
"""Of more items than this a sample is taken."""

TEMPERED_ABOVE = 0.05
"""The best labels are also tried with tempered probabilities if these are so far from the exact ones, in nats."""

NAME = "votes"

Runner = Callable[[Sequence[Cell]], Mapping[Address, Outcome]]


def recommend(
    votes: Votes,
    methods: Methods | None = None,
    worlds: Methods | None = None,
    *,
    key: jax.Array,
    twins: int = 5,
    gold: Gold | None = None,
    quick: bool = False,
    folder: str | Path | None = None,
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> xr.DataTree:
    """Find the method to use on votes whose labels nobody knows, and what to expect of it.

    Programs of how votes come about, the *worlds*, are fitted to the votes. Those that predict held-out votes clearly
    worse than another are ruled out, and so are those that the votes contradict or whose label is not identified. From
    each of the others *twins* of the votes are drawn: the same items, voters and pattern of who voted on what, with
    known labels and a known exact posterior. Every method is scored on them. The recommended method is the one with the
    smallest loss of balanced accuracy in the worst of these worlds; among equals the one with the smallest loss of log
    score; among these the first in the list, whose order is that of cost.

    With gold labels these come first: every method uses them, each is predicted by a fit that has not seen it, and only
    methods whose labels are within a standard error of the best there are considered. A method whose own fit says that
    its label is not identified is never recommended. Where no world is left, no accuracy is expected: gold labels
    alone decide, and without them the safest method is named (`latentens.recommendation.catalogue.SAFEST`).

    Args:
        votes: The votes.
        methods: Methods to choose from, the cheaper ones first, as in `compare`; by default those that apply.
        worlds: Methods whose fits have a generative model, likewise; by default the catalogue that applies.
        key: Random key; the same key gives the same recommendation.
        twins: Number of twins of each world.
        gold: True labels of some items, as for `Method.fit`. Methods use them, and worlds and methods are judged by
            them, each by fits that have not seen it.
        quick: One twin, a smaller sample of the items, and only the cheap methods and programs; all programs only if
            none of the cheap ones is left and there are no gold labels.
        folder: Where finished fits are kept, as in `compare`.
        client: A Dask client, as in `compare`.
        workers: How many fits run here at a time, as in `compare`.
        on_progress: Called with the numbers of finished fits and of all, in each of the rounds.

    Returns:
        A comparison of the methods on the votes, as `compare` returns it, with a further group `votes/recommendation`
        and the attribute `recommended`: the method as the command line takes it, or empty if there is nothing to find.
    """
    if twins < 1:
        raise LatentensError(f"a recommendation needs at least one twin of each world, not {twins}")
    sample_key, signal_key, work_key = jax.random.split(key, 3)
    codes = None if gold is None else gold_codes(votes, gold)
    codes = codes if codes is not None and (codes >= 0).any() else None
    dataset = _sampled(votes, codes, QUICK_ITEMS if quick else MAX_ITEMS, sample_key)
    found = Evidence(dataset, votes.num_items, check_signal(dataset.votes, key=signal_key))
    usual = default_methods(dataset.votes, quick=quick, has_gold=codes is not None)
    chosen = dict(named_methods(methods) if methods is not None else usual)
    session = _Session(dataset, work_key, lambda cells: run_cells(cells, folder, client, workers, on_progress))
    if found.signal.found:
        choices = default_worlds(dataset.votes, quick=quick) if worlds is None else users_worlds(worlds)
        found = session.fit_worlds(found, choices)
        if quick and worlds is None and len(found.worlds) == 1:
            found = session.fit_worlds(found, {**choices, **spare_worlds(dataset.votes)})
        if quick and worlds is None and not found.kept and codes is None:
            found = session.fit_worlds(found, {**default_worlds(dataset.votes, quick=False), **choices})
        if methods is None:  # what fits a contradicted world may have another label in mind
            chosen |= {world.method_name: world.method for world in found.kept}
        if not found.kept and codes is None and not set(chosen) & set(SAFEST):
            chosen |= {name: method for name, method in usual.items() if name in SAFEST}
        found = session.score(found, chosen, 1 if quick else twins, temper=methods is None and not quick)
    else:
        session.run(cells_of(dataset, chosen, work_key))
    return _tree(found, session.outcomes, key)


def _sampled(votes: Votes, gold: Int[np.ndarray, " item"] | None, most: int, key: jax.Array) -> Dataset:
    """The votes, or those on a random sample of items; items with gold labels stay."""
    whole = Dataset(NAME, votes, np.full(votes.num_items, -1), gold=gold)
    if votes.num_items <= most:
        return whole
    order = numpy_generator(key).permutation(votes.num_items)
    if gold is not None:
        order = order[np.argsort(gold[order] < 0, kind="stable")]
        most = max(most, int((gold >= 0).sum()))
    items = np.sort(order[:most])
    known = None if gold is None else gold[items]
    return Dataset(NAME, votes.take(items), whole.labels[items], gold=known)


class _Session:
    """The rounds of one recommendation, and the outcomes of all cells so far."""

    def __init__(self, dataset: Dataset, key: jax.Array, runner: Runner) -> None:
        self.dataset, self.key, self.runner = dataset, key, runner
        self.outcomes: dict[Address, Outcome] = {}

    def run(self, cells: Sequence[Cell]) -> list[Outcome]:
        """The outcomes of cells, of which only new ones are run."""
        self.outcomes |= self.runner([cell for cell in cells if cell.address not in self.outcomes])
        return [self.outcomes[cell.address] for cell in cells]

    def fit_worlds(self, found: Evidence, worlds: Mapping[str, World]) -> Evidence:
        """Fit the worlds, without gold labels, and judge them."""
        data, votes = without_gold(self.dataset), self.dataset.votes
        cells = fit_cells(data, worlds, self.key)
        fitted, absent = fitted_worlds(votes, worlds, cells, self.run(cells))
        if not fitted:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in absent.items())
            raise LatentensError(f"no program could be fitted to these votes, so that there are no twins ({reasons})")
        cells = held_out_cells(data, fitted, self.key)
        fitted = with_held_out(fitted, votes, cells, self.run(cells), self.key)
        leading, labels = contenders(fitted), self.dataset.gold
        fitted = [checked(world, votes, self.key) if world.name in leading else world for world in fitted]
        gold = {} if labels is None else {w.name: -log_losses(labels, w.posterior)[labels >= 0] for w in fitted}
        verdicts = judge(fitted, gold, self.key)
        back = {name for name, verdict in verdicts.items() if not verdict.ruled_out} - leading  # gold labels say so
        if back:
            fitted = [checked(world, votes, self.key) if world.name in back else world for world in fitted]
            verdicts = judge(fitted, gold, self.key)
        return replace(found, worlds=fitted, absent=absent, verdicts=verdicts)

    def score(
        self, found: Evidence, methods: Mapping[str, Method | MethodFactory], twins: int, *, temper: bool
    ) -> Evidence:
        """Run the methods on the votes and on the twins, and choose."""
        drawn = [(world, draw_twins(world, self.dataset, self.key, twins)) for world in found.kept]
        found = self._chosen(found, drawn, methods)
        if found.choice is None or not found.scores:
            return found
        best = found.choice.equals[0]
        poor = any(part.gain("log_score", None, best).mean > TEMPERED_ABOVE for part in found.scores)
        if not (temper and poor) or best.startswith("Tempered") or f"Tempered({best})" in methods:
            return found
        made = methods[best]
        wrapped = Tempered(made if isinstance(made, Method) else made(self.dataset.votes))
        return self._chosen(found, drawn, {**methods, f"Tempered({best})": wrapped})

    def _chosen(
        self,
        found: Evidence,
        drawn: Sequence[tuple[FittedWorld, Sequence[Dataset]]],
        methods: Mapping[str, Method | MethodFactory],
    ) -> Evidence:
        own = cells_of(self.dataset, methods, self.key, resamples=0 if self.dataset.gold is None else RESAMPLES)
        cells = [*own, *(cell for world, twins in drawn for cell in twin_cells(world, twins, methods, self.key))]
        failed = {
            cell.name: outcome.error
            for cell, outcome in zip(cells, self.run(cells), strict=True)
            if outcome.error and cell.name in methods
        }
        eligible = [name for name in methods if name not in failed]
        if not eligible:
            raise LatentensError(f"every method failed: {'; '.join(f'{n}: {e}' for n, e in failed.items())}")
        mine = {name: self.outcomes[self.dataset.name, 0, name] for name in eligible}
        opened = {name: words for name, outcome in mine.items() if (words := open_label(outcome))}
        posteriors = {name: outcome.label_probs for name, outcome in mine.items() if outcome.label_probs is not None}
        candidates = [name for name in eligible if name not in opened]
        gold = self._gold(mine, opened) if candidates else None
        scores = [scored_twins(world, twins, eligible, self.outcomes, self.key) for world, twins in drawn]
        found = replace(found, posteriors=posteriors, gold=gold, failed=failed, open_labels=opened)
        if gold is not None:
            found, scores = _without_disproved(found, scores, gold)
        columns = {score: [column(part, score, eligible) for part in scores] for score in SCORES}
        choice = choose(columns["balanced_accuracy"], columns["log_score"], candidates, gold) if candidates else None
        return replace(found, scores=scores, columns=columns, choice=choice)

    def _gold(self, outcomes: Mapping[str, Outcome], excluded: Collection[str]) -> GoldVerdict | None:
        """What gold labels say about the methods."""
        if self.dataset.gold is None:
            return None
        scored = {name: outcome.scored_probs(self.dataset) for name, outcome in outcomes.items()}
        posteriors = {name: probs for name, probs in scored.items() if probs is not None}
        return judge_by_gold(self.dataset.gold, posteriors, self.key, excluded)


def _without_disproved(
    found: Evidence, scores: Sequence[TwinScores], gold: GoldVerdict
) -> tuple[Evidence, list[TwinScores]]:
    """Rule out worlds whose twins expect an accuracy of one of the best methods that the gold labels exclude."""
    verdicts, kept = dict(found.verdicts), []
    for part in scores:
        expected = {name: part.expected("balanced_accuracy", name) for name in gold.close}
        apart = [name for name, ends in expected.items() if not _overlap(ends, gold.accuracy[name])]
        if not apart:
            kept.append(part)
            continue
        words = (
            f"leads one to expect that {apart[0]} labels {span(expected[apart[0]])} of the items correctly, where it "
            f"gets {span(gold.accuracy[apart[0]])} of the {gold.number:,} gold labels right"
        )
        verdicts[part.world] = replace(verdicts[part.world], ruled_out=words, weight=0.0)
    total = sum(verdicts[part.world].weight for part in kept)
    for part in kept:
        verdicts[part.world] = replace(verdicts[part.world], weight=verdicts[part.world].weight / total)
    return replace(found, verdicts=verdicts), kept


def _overlap(first: Estimated, second: Estimated) -> bool:
    return first.low <= second.high and second.low <= first.high


def _tree(found: Evidence, outcomes: Mapping[Address, Outcome], key: jax.Array) -> xr.DataTree:
    """The comparison on the votes themselves, with the recommendation beside it."""
    wanted = {*found.posteriors, *found.failed} or {name for *_, name in outcomes}
    own = {address: outcome for address, outcome in outcomes.items() if address[0] == found.dataset.name}
    own = {address: outcome for address, outcome in own.items() if address[2] in wanted}
    tree = assemble([found.dataset], own, key_data(key), {found.dataset.name: found.signal.summary})
    group = recommendation_group(found)
    tree[f"{found.dataset.name}/{GROUP}"] = xr.DataTree(group)
    tree.attrs["recommended"] = group.attrs["recommended"]
    return tree
