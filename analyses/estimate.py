"""Coverage and width of the intervals of `estimate`, what chosen labels are worth, and whom to ask.

    python analyses/estimate.py --data ROOT [--out DIR] [--resamples 1000] [--fewer 200] [--sets 2] [--parts real ask]

ROOT holds `panels` and `ensembles`. Of each set every label is known; gold labels are drawn again and again from all
items with a label (20, 50, 100 and 200; at most a third of them), and the intervals are asked whether they hold the
value of the whole set. The posterior of Dawid–Skene does not see gold labels and is fitted once per set. Quantities
are the prevalence of every class, accuracy (and sensitivity and specificity) of at most 12 voters, and the difference
of two of them. Simulated sets and chosen labels are resampled less often (`--fewer`). What is done is kept in
DIR/estimate, one file per set.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run, write
from gold import real_sets, simulated_sets

from latentens import Dataset, Votes, next_labels, next_votes
from latentens.estimation.estimate import smoothed_shares
from latentens.estimation.quantities import Quantity, list_quantities
from latentens.estimation.rectified import Sample, draw_urn, rectify
from latentens.methods import DawidSkeneEM
from latentens.runtime.parallel import one_blas_thread

COUNTS = (20, 50, 100, 200)
MOST_VOTERS = 12
URNS = 10
"""Resampled populations are drawn anew this many times per number of labels."""


def main(
    data: Path | None,
    out: Path,
    seed: int,
    resamples: int = 1000,
    fewer: int = 200,
    sets: int = 2,
    items: int = 1_000,
    parts: tuple[str, ...] = ("real", "simulated", "active", "ask"),
) -> pd.DataFrame:
    tables = []
    sources = {
        "real": (real_panels(data), resamples),
        "simulated": (simulated_sets(seed, sets, items), fewer),
    }
    if "active" in parts:
        folder = out / "estimate" / "active"
        rows = [row for dataset in real_panels(data) for row in active(dataset, fewer, folder, seed)]
        write(out, "estimate_active", table=pd.DataFrame(rows).set_index("set"))
    if "ask" in parts:
        write(out, "estimate_ask", table=asking(sets, seed).set_index("crowd"))
    for part, (found, number) in sources.items():
        for dataset in found if part in parts else ():
            tables.append(covered(dataset, number, out / "estimate" / part, seed).assign(part=part))
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    write(out, "estimate_coverage", table=summarise(table).set_index(["part", "labels"]))
    write(out, "estimate_sets", table=by_set(table).set_index("set"))
    write(out, "estimate_errors", table=by_errors(table).set_index("part"))
    return table


def real_panels(data: Path | None) -> Iterator[Dataset]:
    """Panels and ensembles, with the items whose label is known."""
    for dataset in real_sets(data):
        if dataset.name in ("bluebird", "dog", "rte", "zencrowd_us"):
            continue
        known = np.flatnonzero(dataset.labels >= 0)
        yield Dataset(dataset.name, dataset.votes.take(known), dataset.labels[known])


def chosen_quantities(dataset: Dataset) -> list[Quantity]:
    """All classes, some voters, and a difference."""
    votes = dataset.votes
    voters = np.unique(np.linspace(0, votes.num_voters - 1, MOST_VOTERS).astype(int))
    names = {str(votes.voter_names[voter]) for voter in voters}
    pair = [votes.voter_names[0], votes.voter_names[1]]
    voter_kinds = ("accuracy", "sensitivity", "specificity")
    return [q for q in list_quantities(votes, pair) if q.name not in voter_kinds or q.of in names]


@one_blas_thread()
def covered(dataset: Dataset, resamples: int, folder: Path, seed: int) -> pd.DataFrame:
    """How often intervals hold the truth, and how wide they are, by quantity and number of labels; kept on disk."""
    path = folder / f"{dataset.name.replace('/', '_')}_{resamples}_{seed}.csv"
    if path.exists():
        return pd.read_csv(path)
    votes, labels = dataset.votes, np.asarray(dataset.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = DawidSkeneEM().fit(votes, key=jax.random.key(seed)).label_probs
    probs = posterior, smoothed_shares(votes)
    known, generator = [], np.random.default_rng(seed)
    for quantity in chosen_quantities(dataset):
        place = np.full(votes.num_items, -1)
        place[quantity.items] = np.arange(len(quantity.items))
        expected = [
            np.stack([(predicted[quantity.items] * values).sum(axis=1) for predicted in probs], axis=1)
            for values in (quantity.top, quantity.bottom)
        ]
        rows = np.arange(len(quantity.items)), labels[quantity.items]
        top, bottom = quantity.top[rows], quantity.bottom[rows]
        if bottom.sum() > 0:
            means = [values.mean(axis=0)[None] for values in expected]
            known.append((quantity, place, expected, means, top, bottom))
    found = []
    for count in COUNTS:
        if 3 * count > votes.num_items:
            continue
        urns = [draw_urn(generator, 1_000, count, votes.num_items) for _ in range(min(URNS, 1 + resamples // 30))]
        sums = np.zeros((len(known), 7))
        for resample in range(resamples):
            drawn = np.sort(generator.choice(votes.num_items, count, replace=False))
            samples, numbers = [], []
            for number, (quantity, place, expected, means, top, bottom) in enumerate(known):
                inside = np.flatnonzero(place[drawn] >= 0)
                at = place[drawn[inside]]
                if bottom[at].any():
                    proxies = (expected[0][at], expected[1][at])
                    rest = np.ones(len(at)), quantity.possible, inside
                    samples.append(Sample(top[at], bottom[at], *proxies, *means, *rest))
                    numbers.append(number)
            for number, result in zip(numbers, rectify(samples, urns[resample % len(urns)]), strict=True):
                *_, top, bottom = known[number]
                truth = top.sum() / bottom.sum()
                gold, best = result
                widths = best.high - best.low, gold.high - gold.low
                inside_both = best.low <= truth <= best.high, gold.low <= truth <= gold.high
                errors = (best.estimate - truth) ** 2, (gold.estimate - truth) ** 2
                sums[number] += [1, *inside_both, *widths, *errors]
        for (quantity, *_, top, bottom), (number, *rest) in zip(known, sums, strict=True):
            hit, gold_hit, width, gold_width, error, gold_error = np.array(rest) / max(number, 1)
            row = {"set": dataset.name, "labels": count, "quantity": quantity.name, "of": quantity.of}
            row |= {"truth": top.sum() / bottom.sum(), "resamples": int(number), "coverage": hit}
            row |= {"gold_coverage": gold_hit, "width": width, "gold_width": gold_width}
            row |= {"error": np.sqrt(error), "gold_error": np.sqrt(gold_error)}
            found.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(found)
    table.to_csv(path, index=False)
    print(dataset.name, flush=True)
    return table


@one_blas_thread()
def active(dataset: Dataset, resamples: int, folder: Path, seed: int, count: int = 50) -> list[dict[str, object]]:
    """Prevalences by 50 labels that `next_labels` chose and by 50 random ones: coverage and width; kept on disk."""
    path = folder / f"{dataset.name}_{resamples}_{seed}.csv"
    if path.exists():
        return pd.read_csv(path).to_dict("records")
    votes, labels = dataset.votes, np.asarray(dataset.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = DawidSkeneEM().fit(votes, key=jax.random.key(seed))
    probs = fit.label_probs, smoothed_shares(votes)
    quantities = [found for found in list_quantities(votes) if found.name == "prevalence"]
    places = {name: place for place, name in enumerate(np.asarray(votes.item_names).tolist())}
    generator, sums = np.random.default_rng(seed), {"active": np.zeros(4), "random": np.zeros(4)}
    for resample in range(resamples):
        key = jax.random.key(seed + resample)
        for kind, floor in (("active", 0.5), ("random", 1.0)):
            table = next_labels(fit, count, key=key, floor=floor)
            items = np.array([places[name] for name in table["item"]])
            weights = table["weight"].to_numpy()
            urn = draw_urn(generator, 500, count, votes.num_items, None, 1 / weights if kind == "active" else None)
            samples, truths = [], []
            for code, quantity in enumerate(quantities):
                expected = np.stack([each[:, code] for each in probs], axis=1)
                rest = np.zeros((count, 2)), expected.mean(axis=0)[None], np.zeros((1, 2))
                hits = (labels[items] == code).astype(float)
                tail = weights, quantity.possible, np.arange(count)
                samples.append(Sample(hits, np.ones(count), expected[items], *rest, *tail))
                truths.append(float(np.mean(labels == code)))
            for truth, (_, best) in zip(truths, rectify(samples, urn), strict=True):
                error = (best.estimate - truth) ** 2
                sums[kind] += [1, best.low <= truth <= best.high, best.high - best.low, error]
    (number, hits, width, error), (other, random_hits, random_width, random_error) = sums["active"], sums["random"]
    row: dict[str, object] = {"set": dataset.name, "coverage": hits / number, "random_coverage": random_hits / other}
    row |= {"width": width / number, "random_width": random_width / other, "ratio": width / random_width}
    row |= {"error_ratio": np.sqrt(error / random_error)}
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([row]).to_csv(path, index=False)
    print(dataset.name, "active", flush=True)
    return [row]


def asking(sets: int, seed: int, items: int = 300, voters: int = 20) -> pd.DataFrame:
    """Accuracy of Dawid–Skene on crowds with 2 to 5 votes per item on average, asked at random or by information."""
    rows = []
    for crowd, spread in (("good and bad voters", (0.5, 0.95)), ("similar voters", (0.65, 0.75))):
        scores: dict[tuple[str, float], list[float]] = {}
        for number in range(min(sets, 5)):
            generator = np.random.default_rng([seed, number])
            labels = generator.integers(0, 2, items)
            skill = generator.uniform(*spread, voters)
            everyone = np.where(generator.random((items, voters)) < skill, labels[:, None], 1 - labels[:, None])
            order = np.argsort(generator.random((items, voters)), axis=1)
            for way in ("random", "information"):
                matrix = np.full((items, voters), -1)
                np.put_along_axis(matrix, order[:, :2], np.take_along_axis(everyone, order[:, :2], axis=1), axis=1)
                for step in range(7):
                    votes = Votes.from_matrix(matrix, num_classes=2)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        fit = DawidSkeneEM().fit(votes, key=jax.random.key(seed))
                    score = float((fit.label_probs.argmax(axis=1) == labels).mean())
                    scores.setdefault((way, 2 + step / 2), []).append(score)
                    if way == "information":
                        asked = next_votes(fit, items // 2)
                        where = asked["item"].to_numpy(int), asked["voter"].to_numpy(int)
                    else:
                        chosen = generator.permutation(items)[: items // 2]
                        free = [generator.choice(np.flatnonzero(matrix[item] == -1)) for item in chosen]
                        where = chosen, np.array(free)
                    matrix[where] = everyone[where]
        for (way, per_item), found in scores.items():
            rows.append({"crowd": crowd, "asked": way, "votes_per_item": per_item, "accuracy": 100 * np.mean(found)})
    return pd.DataFrame(rows)


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Coverage and width by number of labels, of all quantities and of each kind."""
    table = table[table["resamples"] >= 50].assign(ratio=table["width"] / table["gold_width"])
    rows = []
    for (part, labels), found in table.groupby(["part", "labels"], sort=False):
        for quantity in ("all", *found["quantity"].unique()):
            some = found if quantity == "all" else found[found["quantity"] == quantity]
            lowest = some.loc[some["coverage"].idxmin()]
            rows.append(
                {"part": part, "labels": labels, "quantity": quantity, "intervals": len(some)}
                | {"coverage": some["coverage"].mean(), "gold_coverage": some["gold_coverage"].mean()}
                | {"lowest": lowest["coverage"], "gold_lowest": some["gold_coverage"].min()}
                | {"lowest_at": f"{lowest['set']}, {lowest['quantity']} of {lowest['of']}, {lowest['truth']:.3f}"}
                | {"below_93": (some["coverage"] < 0.93).mean(), "above_97": (some["coverage"] > 0.97).mean()}
                | {"gold_above_97": (some["gold_coverage"] > 0.97).mean()}
                | {"width_ratio": some["ratio"].mean(), "worst_ratio": some["ratio"].max()}
                | {"error_ratio": np.sqrt((some["error"] ** 2).sum() / (some["gold_error"] ** 2).sum())}
            )
    return pd.DataFrame(rows)


def by_set(table: pd.DataFrame) -> pd.DataFrame:
    """Each set: mean and lowest coverage, and mean width against gold labels alone."""
    table = table[table["resamples"] >= 50].assign(ratio=table["width"] / table["gold_width"])
    table["set"] = np.where(table["part"] == "real", table["set"], table["set"].str.rpartition("/")[0])
    groups = table.groupby(["set", "labels"], sort=False)
    found = groups.agg(
        coverage=("coverage", "mean"), lowest=("coverage", "min"), ratio=("ratio", "mean"), worst_ratio=("ratio", "max")
    )
    return found.reset_index()


def by_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Coverage by how many errors of size one a sample holds on average, n² times the estimate's mean squared error.

    For gold labels alone these are n p (1 − p) labels of the rarer kind; with votes, items that the votes mispredict.
    """
    table = table[table["resamples"] >= 50]
    bounds, names = [-1.0, 1.0, 2.0, 4.0, 8.0, 16.0, np.inf], ["< 1", "1–2", "2–4", "4–8", "8–16", "> 16"]
    rows = []
    for part, some in table.groupby("part", sort=False):
        for kind, coverage, error in (("votes", "coverage", "error"), ("gold alone", "gold_coverage", "gold_error")):
            errors = pd.cut((some["labels"] * some[error]) ** 2, bounds, labels=names)
            for name, inside in some.groupby(errors, observed=True):
                found = inside[coverage]
                row = {"part": part, "kind": kind, "errors": name, "intervals": len(found), "coverage": found.mean()}
                row |= {"lowest": found.min(), "below_93": (found < 0.93).mean(), "above_97": (found > 0.97).mean()}
                rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main, __doc__)
