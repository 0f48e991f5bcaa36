"""Which method to trust on votes without labels: models are fitted, twins are simulated, methods are scored on them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from latentens.checks import check_signal
from latentens.comparison.cell import Cell
from latentens.comparison.data_tree import Address, collect, to_tree
from latentens.comparison.result import EXACT, Outcome
from latentens.comparison.sweep import MethodFactory, Progress, cells_of, key_data, named_methods, run_cells
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.methods.base import GoldCodes, Method
from latentens.recommendation import candidates, decision
from latentens.recommendation.candidates import SAFEST, Candidate, Methods, unidentified_label
from latentens.recommendation.decision import SCORES, GoldScores, Recommendation, without_gold
from latentens.recommendation.text import sentences, span
from latentens.runtime.numerics import numpy_generator
from latentens.scores import log_losses
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes

if TYPE_CHECKING:
    from distributed import Client


def recommend(
    votes: Votes,
    methods: Methods | None = None,
    models: Methods | None = None,
    *,
    key: jax.Array,
    twins: int = 5,
    gold: Gold | None = None,
    quick: bool = False,
    max_items: int | None = None,
    folder: str | Path | None = None,
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> xr.DataTree:
    """Recommend a method for votes whose labels are unknown, and say what to expect of it.

    Candidate generative models are fitted to the votes. Models that predict held-out votes clearly worse than another
    are ruled out, as are those that the votes contradict or that do not identify the label. From each of the others
    *twins* of the votes are simulated: the same items, voters and pattern of who voted on what, with known labels and a
    known exact posterior. Every method is scored on them. The recommended method has the smallest worst-case loss of
    balanced accuracy over these models; if tied, the smallest worst-case loss of log score; if tied again, it comes
    first in the list, which is ordered by cost.

    Gold labels come first: every method uses them, each is predicted by a fit that has not seen it, and only methods
    whose labels are within a standard error of the best on them are considered. A method whose own fit does not
    identify the label is never recommended. Where no model is plausible, no accuracy is expected: gold labels alone
    decide, and without them the safest method is named (`latentens.recommendation.candidates.SAFEST`).

    Args:
        votes: The votes.
        methods: Methods to choose from, the cheaper ones first, as in `compare`; by default those that apply.
        models: The candidate models, given by methods whose fits have a generative model; by default those that apply.
        key: Random key; the same key gives the same recommendation.
        twins: Number of twins of each plausible model.
        gold: True labels of some items, as for `Method.fit`.
        quick: Use one twin, a smaller sample of the items, and only cheap methods and models; all models only if none
            of the cheap ones is plausible and there are no gold labels.
        max_items: Of more items a random sample is taken, which contains all gold labels; by default 10,000, or 2,000
            for a quick answer.
        folder: Folder in which finished fits are kept, as in `compare`.
        client: A Dask client, as in `compare`.
        workers: Number of fits that run here at a time, as in `compare`.
        on_progress: Called with the numbers of finished fits and of all, in each of the rounds.

    Returns:
        A comparison of the methods on the votes, as `compare` returns it, with a further group `votes/recommendation`
        and the attribute `recommended`: the method as the command line takes it, or empty if there is none.
    """
    if twins < 1:
        raise LatentensError(f"a recommendation needs at least one twin of each model, not {twins}")
    sample_key, signal_key, work_key = jax.random.split(key, 3)
    votes.refuse_other_votes("recommend")
    codes = None if gold is None else gold_codes(votes, gold)
    codes = codes if codes is not None and (codes >= 0).any() else None
    dataset = _sample(votes, codes, max_items or (2_000 if quick else 10_000), sample_key)
    found = Recommendation(dataset, votes.num_items, check_signal(dataset.votes, key=signal_key))
    usual = candidates.default_methods(dataset.votes, quick=quick, has_gold=codes is not None)
    chosen = dict(named_methods(methods) if methods is not None else usual)
    rounds = _Rounds(dataset, work_key, lambda cells: run_cells(cells, folder, client, workers, on_progress))
    if not found.signal.found:
        rounds.run(cells_of(dataset, chosen, work_key))
        return _tree(found, rounds.outcomes, key)
    usual_models = candidates.default_candidates(dataset.votes, quick=quick)
    tried = usual_models
    if models is not None:
        tried = {name: Candidate(name, method) for name, method in named_methods(models).items()}
    found = rounds.fit_models(found, tried)
    if quick and models is None and len(found.models) == 1:
        found = rounds.fit_models(found, {**tried, **candidates.spare_candidates(dataset.votes)})
    if quick and models is None and not found.plausible and codes is None:
        found = rounds.fit_models(found, {**candidates.default_candidates(dataset.votes, quick=False), **tried})
    if methods is None:  # the fit of an implausible model may mean another label
        chosen |= {model.method_name: model.method for model in found.plausible}
    if not found.plausible and codes is None and not set(chosen) & set(SAFEST):
        chosen |= {name: method for name, method in usual.items() if name in SAFEST}
    found = rounds.score(found, chosen, 1 if quick else twins)
    return _tree(found, rounds.outcomes, key)


def _sample(votes: Votes, gold: GoldCodes | None, max_items: int, key: jax.Array) -> Dataset:
    """The votes, or those on a random sample of items that contains all gold labels."""
    votes = votes.to_hard()  # whose models are of votes that are cast
    whole = Dataset("votes", votes, np.full(votes.num_items, -1), gold=gold)
    if votes.num_items <= max_items:
        return whole
    order = numpy_generator(key).permutation(votes.num_items)
    if gold is not None:
        order = order[np.argsort(gold[order] < 0, kind="stable")]
        max_items = max(max_items, int((gold >= 0).sum()))
    items = np.sort(order[:max_items])
    known = None if gold is None else gold[items]
    return Dataset("votes", votes.take(items), whole.labels[items], gold=known)


class _Rounds:
    """The rounds of fits behind one recommendation, and the outcomes of all cells so far."""

    def __init__(
        self, dataset: Dataset, key: jax.Array, run_new: Callable[[Sequence[Cell]], Mapping[Address, Outcome]]
    ) -> None:
        self.dataset, self.key, self.run_new = dataset, key, run_new
        self.outcomes: dict[Address, Outcome] = {}

    def run(self, cells: Sequence[Cell]) -> list[Outcome]:
        """The outcomes of cells; only new ones are run."""
        self.outcomes |= self.run_new([cell for cell in cells if cell.address not in self.outcomes])
        return [self.outcomes[cell.address] for cell in cells]

    def fit_models(self, found: Recommendation, tried: Mapping[str, Candidate]) -> Recommendation:
        """Fit the candidate models without gold labels, and judge them."""
        data, votes, labels = without_gold(self.dataset), self.dataset.votes, self.dataset.gold
        fitted, failed = candidates.fit_candidates(data, tried, self.key, self.run)
        if not fitted:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise LatentensError(f"no candidate model could be fitted to these votes ({reasons})")
        fitted = candidates.with_held_out(fitted, data, self.key, self.run)
        gold = {} if labels is None else {m.name: -log_losses(labels, m.posterior)[labels >= 0] for m in fitted}
        check = partial(candidates.checked, votes=votes, key=self.key)
        return replace(found, models=candidates.judge(fitted, gold, self.key, check), not_fitted=failed)

    def score(
        self, found: Recommendation, methods: Mapping[str, Method | MethodFactory], num_twins: int
    ) -> Recommendation:
        """Run the methods on the votes and on twins of each plausible model, and choose one."""
        dataset, key = self.dataset, self.key
        drawn = [(model, decision.draw_twins(model, dataset, key, num_twins)) for model in found.plausible]
        cells = cells_of(dataset, methods, key, resamples=0 if dataset.gold is None else 1000)
        cells += [cell for model, twins in drawn for cell in decision.twin_cells(model, twins, methods, key)]
        done = zip(cells, self.run(cells), strict=True)
        failed = {cell.name: outcome.error for cell, outcome in done if outcome.error and cell.name in methods}
        usable = [name for name in methods if name not in failed]
        if not usable:
            raise LatentensError(f"every method failed: {'; '.join(f'{n}: {e}' for n, e in failed.items())}")
        outcomes = {name: self.outcomes[dataset.name, 0, name] for name in usable}
        posteriors = {name: probs for name, each in outcomes.items() if (probs := each.label_probs) is not None}
        unidentified = {name: reason for name, each in outcomes.items() if (reason := unidentified_label(each))}
        eligible = [name for name in usable if name not in unidentified]
        scored = [decision.score_twins(model, twins, usable, self.outcomes, key) for model, twins in drawn]
        found = replace(found, twins=scored, posteriors=posteriors, failed=failed, unidentified=unidentified)
        if not eligible:
            return found
        if dataset.gold is not None:
            predicted = {
                name: probs for name, each in outcomes.items() if (probs := each.scored_probs(dataset)) is not None
            }
            found = without_disproved(found, decision.score_on_gold(dataset.gold, predicted, key, unidentified))
        losses = {score: {part.model: part.losses(score, usable) for part in found.twins} for score in SCORES}
        return replace(found, choice=decision.choose(losses, eligible, found.gold))


def without_disproved(found: Recommendation, gold: GoldScores) -> Recommendation:
    """Rule out models whose twins make one expect an accuracy that the gold labels exclude."""
    models, left = {model.name: model for model in found.models}, []
    for part in found.twins:
        for name in gold.close:
            expected, seen = part.expected("balanced_accuracy", name), gold.accuracy[name]
            if expected.low > seen.high or seen.low > expected.high:
                reason = (
                    f"implies that {name} labels {span(expected)} of the items correctly, but it predicts {span(seen)} "
                    f"of the {gold.number:,} gold labels correctly"
                )
                models[part.model] = replace(models[part.model], ruled_out=reason, weight=0.0)
                break
        else:
            left.append(part)
    total = sum(models[part.model].weight for part in left)
    models |= {part.model: replace(models[part.model], weight=models[part.model].weight / total) for part in left}
    return replace(found, gold=gold, models=[*models.values()], twins=left)


GROUP = "recommendation"
"""Name of the group in a data set's part of a comparison.

`twin_SCORE[model, twin, estimator]` are the scores on each twin, with the exact posterior among the estimators.
`SCORE[model, estimator]`, `SCORE_low` and `SCORE_high` are what to expect on the votes, with 90 % intervals;
`SCORE_regret` is the loss against the exact posterior, `SCORE_loss` the loss against the best method under that model.
Scores are `balanced_accuracy` and `log_score`. Along `model` there are also `difference` and `error` (held-out
log-likelihood minus that of the best model), `weight`, `ruled_out` (why, or empty), `program`, `fitted_by`,
`check_p_value` and `check`. Models that are ruled out have no twins, and nothing is expected from them. Attributes:
`recommended`. `sentence[line]` is the text.
"""


def recommendation_group(found: Recommendation) -> xr.Dataset:
    """The group; without models where the voters agree no more than by chance."""
    gold = found.dataset.gold
    about = {
        "recommended": found.choice.method if found.choice else "",
        "signal_p_value": found.signal.p_value,
        "num_items": found.num_items,
        "num_gold": 0 if gold is None else int((gold >= 0).sum()),
    }
    text = {"sentence": ("line", np.array(sentences(found), dtype=str))}
    if not found.models:
        return xr.Dataset(text, attrs=about)
    names, methods = [model.name for model in found.models], [None, *found.posteriors]
    num_twins = len(found.twins[0].twins) if found.twins else 0
    texts = {
        "ruled_out": [model.ruled_out for model in found.models],
        "program": [str(model.model) for model in found.models],
        "fitted_by": [model.method_name for model in found.models],
        "check": [model.check_summary for model in found.models],
    }
    variables: dict[str, Any] = {name: ("model", np.array(values, dtype=str)) for name, values in texts.items()}
    for name in ("difference", "error", "weight", "check_p_value"):
        variables[name] = "model", [getattr(model, name) for model in found.models]
    kinds = ("", "_low", "_high", "_regret", "_loss")
    for score in SCORES:
        expected = np.full((len(kinds), len(names), len(methods)), np.nan)
        on_twins = np.full((len(names), num_twins, len(methods)), np.nan)
        for part in found.twins:
            place, losses = names.index(part.model), part.losses(score, [*found.posteriors])
            for number, method in enumerate(methods):
                loss = losses.get(method or "", np.nan)
                expected[:, place, number] = *part.expected(score, method), part.gain(score, None, method), loss
                on_twins[place, :, number] = part.scores(score, method)
        for kind, values in zip(kinds, expected, strict=True):
            variables[f"{score}{kind}"] = ("model", "estimator"), values
        variables[f"twin_{score}"] = ("model", "twin", "estimator"), on_twins
    axes = {"model": names, "twin": np.arange(num_twins), "estimator": [EXACT, *found.posteriors]}
    return xr.Dataset(variables | text, axes, about)


class Expectation(NamedTuple):
    """What to expect of a method under a model, as text: shares in percent, log score in nats."""

    accuracy: str
    interval: str
    log_score: str
    regret: str


def plausible_models(group: xr.Dataset) -> list[str]:
    """The models of a recommendation that are not ruled out."""
    return [str(model) for model in group["model"].values[group["ruled_out"].values == ""]]


def method_rows(group: xr.Dataset) -> Iterator[tuple[str, list[Expectation]]]:
    """Each method with what to expect of it under each plausible model, the exact posterior first."""
    for method in group["estimator"].values:
        rows = []
        for model in plausible_models(group):
            row = group.sel(model=model, estimator=method)
            low, value, high, regret = (
                100 * float(row[f"balanced_accuracy{kind}"]) for kind in ("_low", "", "_high", "_regret")
            )
            score = f"{float(row['log_score']):.2f}"
            rows.append(Expectation(f"{value:.1f}", f"{low:.1f}–{high:.1f}", score, f"{regret:.1f}"))
        yield str(method), rows


def _tree(found: Recommendation, outcomes: Mapping[Address, Outcome], key: jax.Array) -> xr.DataTree:
    """The comparison of the methods on the votes, with the recommendation as a further group."""
    name = found.dataset.name
    wanted = {*found.posteriors, *found.failed} or {method for *_, method in outcomes}
    own = {address: each for address, each in outcomes.items() if address[0] == name and address[2] in wanted}
    tree = to_tree(collect([found.dataset], own, key_data(key), {name: found.signal.summary}))
    group = recommendation_group(found)
    tree[f"{name}/{GROUP}"] = xr.DataTree(group)
    tree.attrs["recommended"] = group.attrs["recommended"]
    return tree
