"""Does a recommendation from twins hold? Expected against real accuracy, and the loss of the recommended method.

    python analyses/recommend.py [--data DIR] [--out DIR] [--sets 2] [--items 1000] [--twins 1] [--repetitions 20]
        [--parts families real coins coverage] [--quick 0]

Sets of the four families and real ones are treated as if their labels were unknown. `recommend_sets.csv` has a row for
each set: the recommended method, its real balanced accuracy and that of the best method in hindsight, of Dawid–Skene,
majority vote and the RBM stack; `recommend_methods.csv` has expected and real figures of every method. Coverage: votes
drawn from Dawid & Skene's program; how often the interval of the expected accuracy holds the real one. Every finished
set is kept in the folder `parts` of the results and every fit in `fits`, so that a run resumes where it stopped.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from coin_tosses import COINS, toss
from common import family_of, find, run, write

import latentens as le
from latentens.datasets import PAPER_MODELS, Dataset, simulate_paper
from latentens.methods import DawidSkeneEM, MajorityVote, RBMStack
from latentens.models import DawidSkene
from latentens.runtime.progress import track_late
from latentens.scores.scores import balanced_accuracy

REAL = ("S1", "S3", "magic/1", "bluebird", "rte")
ALWAYS = {"DawidSkeneEM": DawidSkeneEM(), "MajorityVote": MajorityVote(), "RBMStack": RBMStack()}
PARTS = ("families", "real", "coins", "coverage")
REAL_ITEMS = 2000
"""Real sets are cut to so many items drawn at random, so that all of them fit into a quarter of an hour."""


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 1000,
    twins: int = 1,
    repetitions: int = 20,
    parts: tuple[str, ...] = PARTS,
    quick: int = 0,
) -> pd.DataFrame:
    key, frames = jax.random.key(seed), []
    for dataset in track_late(list(_datasets(data, parts, sets, items, seed)), lambda dataset: dataset.name):
        frames.append(_kept(out, dataset, key, twins, quick=bool(quick)))
    if "coins" in parts:
        write(out, "recommend_coins", table=coins(sets, seed))
    if "coverage" in parts:
        write(out, "recommend_coverage", table=coverage(out, repetitions, seed))
    if not frames:
        return pd.DataFrame()
    methods = pd.concat(frames, ignore_index=True)
    write(out, "recommend_methods", table=methods.set_index(["set", "method"]))
    table = summary(methods)
    write(out, "recommend_sets", table=table)
    write(out, "recommend_families", table=by_family(methods, table))
    return table


def _datasets(data: Path | None, parts: tuple[str, ...], sets: int, items: int, seed: int) -> Iterator[Dataset]:
    if "families" in parts:
        for number in range(101, 101 + sets):
            yield from (simulate_paper(family, number, items) for family in PAPER_MODELS)
    if "real" in parts and data is not None:
        for dataset in find(REAL, data):
            order = np.random.default_rng(seed).permutation(dataset.votes.num_items)
            chosen = np.sort(order[:REAL_ITEMS])
            yield Dataset(dataset.name, dataset.votes.take(chosen), dataset.labels[chosen])


def _kept(out: Path, dataset: Dataset, key: jax.Array, twins: int, *, quick: bool) -> pd.DataFrame:
    """The rows of one set, from an earlier run if there was one."""
    path = out / "parts" / f"{dataset.name.replace('/', '-')}-{dataset.votes.num_items}-{twins}-{quick:d}.csv"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        measured(dataset, key, twins, out / "fits", quick=quick).to_csv(path, index=False)
    return pd.read_csv(path)


def measured(dataset: Dataset, key: jax.Array, twins: int, folder: Path, *, quick: bool) -> pd.DataFrame:
    """Expected and real accuracy of every method on one set; labels are looked at only afterwards."""
    tree = le.recommend(dataset.votes, key=key, twins=twins, quick=quick, folder=folder)
    found, recommended = tree["votes/recommendation"].to_dataset(), tree.attrs["recommended"]
    probs = {
        str(name): tree["votes/estimates/label_prob"].sel(repetition=0, estimator=name).values
        for name in tree["votes/estimates/estimator"].values
    }
    for name, method in ALWAYS.items():
        if name not in probs:
            probs[name] = method.fit(dataset.votes, key=key).label_probs
    rows = []
    for name, posterior in probs.items():
        real = balanced_accuracy(dataset.labels, posterior.argmax(axis=1))
        row = {"set": dataset.name, "method": name, "recommended": name == recommended, "real": 100 * real}
        rows.append(row | _expected(found, name))
    kept = [str(w) for w in found["model"].values[found["ruled_out"].values == ""]] if "model" in found else []
    return pd.DataFrame(rows).assign(worlds=" ".join(kept), items=dataset.votes.num_items)


def _expected(found: xr.Dataset, method: str) -> dict[str, float]:
    """The mean over the plausible models, by weight, and the ends of their intervals, in percent."""
    if "model" not in found or method not in found["estimator"] or (found["ruled_out"] != "").all():
        return {"expected": np.nan, "low": np.nan, "high": np.nan}
    mine = found.sel(estimator=method)
    mean = float(mine["balanced_accuracy"].fillna(0.0) @ found["weight"])
    ends = float(mine["balanced_accuracy_low"].min()), float(mine["balanced_accuracy_high"].max())
    return {"expected": 100 * mean, "low": 100 * ends[0], "high": 100 * ends[1]}


def summary(methods: pd.DataFrame) -> pd.DataFrame:
    """One row for each set; losses are against the best method in hindsight, in points."""
    rows = []
    for name, part in methods.groupby("set", sort=False):
        best, real = part["real"].max(), part.set_index("method")["real"]
        chosen = part[part["recommended"]]
        row = {"set": name, "worlds": part["worlds"].iloc[0], "best": best}
        row["recommended"] = chosen["method"].iloc[0] if len(chosen) else "nothing"
        row["its loss"] = best - chosen["real"].iloc[0] if len(chosen) else np.nan
        row |= {f"loss of {always}": best - real[always] for always in ALWAYS}
        gap = (part["expected"] - part["real"]).dropna()
        row |= {"error": gap.abs().mean(), "bias": gap.mean()}
        row["covered"] = ((part["low"] <= part["real"]) & (part["real"] <= part["high"]))[gap.index].mean()
        rows.append(row)
    return pd.DataFrame(rows).set_index("set")


def by_family(methods: pd.DataFrame, sets: pd.DataFrame) -> pd.DataFrame:
    """Means over the sets of each family, with the worst loss of the recommended method; real sets stand alone."""
    family = [name if name in REAL else family_of(str(name)) for name in sets.index]
    groups = sets.groupby(family, sort=False)
    numbers = sets.select_dtypes("number").columns
    table = groups[list(numbers)].mean().assign(worst=groups["its loss"].max(), sets=groups.size())
    known = methods.dropna(subset=["expected"])
    kinds = np.where(known["set"].isin(REAL), "real", "simulated")
    for kind, part in known.groupby(kinds):
        table.loc[f"correlation, {kind}", "error"] = part["expected"].corr(part["real"])
    return table.rename_axis("family")


def coins(sets: int, seed: int) -> pd.DataFrame:
    """How often the answer on coin tosses is that there is nothing to find."""
    rows, generator = [], np.random.default_rng(seed)
    for kind in COINS:
        answers = []
        for number in range(sets):
            votes = toss(kind, 400, 8, generator)
            tree = le.recommend(votes, [MajorityVote()], [DawidSkeneEM()], key=jax.random.key(number), twins=2)
            answers.append(" ".join(tree["votes/recommendation/sentence"].values))
        nothing = np.mean(["There is nothing to find" in words for words in answers])
        little = np.mean(["There may be little" in words for words in answers])
        rows.append((kind, sets, nothing, little))
    return pd.DataFrame(rows, columns=["coins", "sets", "nothing to find", "perhaps little"]).set_index("coins")


def _some_params(voters: int, key: jax.Array) -> dict[str, np.ndarray]:
    """Voters of all kinds, better than chance, and classes that need not be equally frequent."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rates = generator.uniform(0.55, 0.9, (2, voters))
    share = generator.uniform(0.3, 0.7)
    return {"prevalence": np.array([1 - share, share]), "confusion": le.two_class_confusion(*rates)}


def coverage(out: Path, repetitions: int, seed: int) -> pd.DataFrame:
    """How often the real accuracy lies in the interval, on votes from the very program that is fitted."""
    frames = []
    for number in track_late(range(repetitions), "Coverage"):
        path = out / "parts" / f"coverage-{seed}-{number}.csv"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            covered(jax.random.fold_in(jax.random.key(seed), number)).to_csv(path, index=False)
        frames.append(pd.read_csv(path))
    groups = pd.concat(frames).groupby("method", sort=False)
    found = {"covered": ("covered", "mean"), "sets": ("covered", "size")}
    return groups.agg(**found, bias=("bias", "mean"), width=("width", "mean"))


def covered(key: jax.Array, items: int = 300, voters: int = 8, twins: int = 5) -> pd.DataFrame:
    """Whether the real accuracy of each method lies in its interval, on one set."""
    params_key, data_key, key = jax.random.split(key, 3)
    drawn = le.simulate(DawidSkene(voters), items, key=data_key, params=_some_params(voters, params_key))
    methods = {"MajorityVote": MajorityVote(), "DawidSkeneEM": DawidSkeneEM()}
    tree = le.recommend(drawn.votes, methods, {"DawidSkene": DawidSkeneEM()}, key=key, twins=twins)
    found, rows = tree["votes/recommendation"].to_dataset(), []
    estimates = tree["votes/estimates/label_prob"].sel(repetition=0)
    for name in methods if "model" in found else ():
        real = balanced_accuracy(drawn.labels, estimates.sel(estimator=name).values.argmax(axis=1))
        mine = found.sel(model="DawidSkene", estimator=name)
        low, value, high = (float(mine[f"balanced_accuracy{end}"]) for end in ("_low", "", "_high"))
        rows.append((name, low <= real <= high, value - real, high - low))
    return pd.DataFrame(rows, columns=["method", "covered", "bias", "width"])


if __name__ == "__main__":
    run(main, __doc__)
