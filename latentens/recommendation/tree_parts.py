"""A recommendation as the group `recommendation` of a data set's part of a comparison.

`twin_SCORE[world, twin, estimator]` are the scores on each twin, with the exact posterior among the estimators.
`SCORE[world, estimator]`, `SCORE_low` and `SCORE_high` are what is to be expected on the votes, with 90 % intervals;
`SCORE_regret` is what is lost against the exact posterior, `SCORE_loss` against the best method of that world, which
decides among the methods that gold labels leave. Scores are `balanced_accuracy` and `log_score`. Along `world` there
are also `difference` and `error` (held-out log-likelihood less that of the best world), `weight`, `ruled_out` (why, or
empty), `program`, `check_p_value` and `check`. Worlds that are ruled out, such as those that the votes contradict, have
no twins, and nothing is expected from them. Attributes: `recommended`, and `sentences` as JSON.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from latentens.comparison.data_tree import EXACT
from latentens.recommendation.evidence import Evidence
from latentens.recommendation.expected_scores import SCORES, TwinScores
from latentens.recommendation.twin_words import sentences

GROUP = "recommendation"


class CellText(NamedTuple):
    """What is expected of a method in a world, as text: shares in percent, log score in nats."""

    accuracy: str
    interval: str
    log_score: str
    regret: str


def plausible_worlds(found: xr.Dataset) -> list[str]:
    """The worlds of a recommendation that are not ruled out."""
    return [str(world) for world in found["world"].values[found["ruled_out"].values == ""]]


def method_rows(found: xr.Dataset) -> Iterator[tuple[str, list[CellText]]]:
    """Each method with what is expected of it in each plausible world, the exact posterior first."""
    for method in found["estimator"].values:
        rows = [found.sel(world=world, estimator=method) for world in plausible_worlds(found)]
        yield str(method), [_cell_text(row) for row in rows]


def _cell_text(row: xr.Dataset) -> CellText:
    low, value, high = (100 * float(row[f"balanced_accuracy{end}"]) for end in ("_low", "", "_high"))
    regret = 100 * float(row["balanced_accuracy_regret"])
    return CellText(f"{value:.1f}", f"{low:.1f}–{high:.1f}", f"{float(row['log_score']):.2f}", f"{regret:.1f}")


def recommendation_group(found: Evidence) -> xr.Dataset:
    """The group; without worlds where there is nothing to find."""
    said = {
        "recommended": found.choice.method if found.choice else "",
        "sentences": json.dumps(sentences(found), ensure_ascii=False),
        "signal_p_value": found.signal.p_value,
        "num_items": found.num_items,
        "num_gold": 0 if found.dataset.gold is None else int((found.dataset.gold >= 0).sum()),
    }
    if not found.worlds:
        return xr.Dataset(attrs=said)
    axes: dict[str, list[str] | np.ndarray] = {
        "world": [world.name for world in found.worlds],
        "twin": np.arange(len(found.scores[0].twins) if found.scores else 0),
        "estimator": [EXACT, *found.posteriors],
    }
    return xr.Dataset({**_world_variables(found), **_score_variables(found, axes)}, axes, said)


def _world_variables(found: Evidence) -> dict[str, tuple[str, list[float] | np.ndarray]]:
    verdicts = [found.verdicts[world.name] for world in found.worlds]
    variables: dict[str, tuple[str, list[float] | np.ndarray]] = {
        name: ("world", [getattr(verdict, name) for verdict in verdicts]) for name in ("difference", "error", "weight")
    }
    texts = {
        "ruled_out": [verdict.ruled_out for verdict in verdicts],
        "program": [str(world.model) for world in found.worlds],
        "fitted_by": [world.method_name for world in found.worlds],
        "check": [world.check_words for world in found.worlds],
    }
    variables["check_p_value"] = "world", [world.check_p_value for world in found.worlds]
    return variables | {name: ("world", np.array(values, dtype=str)) for name, values in texts.items()}


def _score_variables(
    found: Evidence, axes: dict[str, list[str] | np.ndarray]
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    shape = len(axes["world"]), len(axes["estimator"])
    kinds = ("", "_low", "_high", "_regret", "_loss")
    table = {f"{score}{kind}": np.full(shape, np.nan) for score in SCORES for kind in kinds}
    twins = {f"twin_{score}": np.full((shape[0], len(axes["twin"]), shape[1]), np.nan) for score in SCORES}
    for part in found.scores:
        place = list(axes["world"]).index(part.world)
        for number, method in enumerate(axes["estimator"]):
            for name, value in _entries(part, None if method == EXACT else method, found).items():
                table[name][place, number] = value
            for score in SCORES:
                twins[f"twin_{score}"][place, :, number] = part.scores(score, None if method == EXACT else method)
    named = {name: (("world", "estimator"), values) for name, values in table.items()}
    return named | {name: (("world", "twin", "estimator"), values) for name, values in twins.items()}


def _entries(part: TwinScores, method: str | None, found: Evidence) -> dict[str, float]:
    entries: dict[str, float] = {}
    for score in SCORES:
        expected = part.expected(score, method)
        entries |= {score: expected.value, f"{score}_low": expected.low, f"{score}_high": expected.high}
        entries[f"{score}_regret"] = part.gain(score, None, method).mean
        if method is not None:
            column = next(column for column in found.columns[score] if column.name == part.world)
            entries[f"{score}_loss"] = column.losses[method].mean
    return entries
