"""Every method and its peers on votes that nobody here made: panels, ensembles and crowds.

    python analyses/real_votes.py --data ROOT [--out DIR] [--keys 3] [--simulated 2] [--most-votes 6500]
        [--methods NAME …] [--folders …] [--sets NAME …] [--kinds …]

ROOT has folders `ensembles`, `panels` and `crowds` of sets: votes (`votes.csv`, wide, or `label.csv`, long) and
`truth.csv`. Votes that are not classes of the truth ("tie", "Unsure") count as missing. Sets of known kinds are drawn
besides (`simulated_kinds.py`, `--simulated` of each). Every fit is kept in DIR, so that an interrupted run resumes.
Methods that take long have one key (`ONE_KEY`), some of them no simulated sets (`SLOW`), and peers that take longest
(`SMALL_SETS`) only sets of up to `--most-votes`. Peers (extra `peers`) run at their defaults, and those that are not
installed are left out.

True labels are used for scoring only, but for two rows that say so: the best single voter, and a supervised reference
(logistic regression of the labels on the votes, by five folds).
"""

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write
from matplotlib.figure import Figure
from real_peers import PEERS
from simulated_kinds import KINDS, draw_set

from latentens import Votes
from latentens.datasets import Dataset
from latentens.datasets.from_files import from_files, read_labels
from latentens.errors import LatentensError
from latentens.methods import (
    Consensus,
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    LatentSpectral,
    MajorityVote,
    RBMStack,
    SpectralMetaLearner,
    Tempered,
    TreeMLE,
)
from latentens.scores import evaluate

FOLDERS = "ensembles", "panels", "crowds"

Posterior = Callable[[Votes, jax.Array], np.ndarray]


def fitted(method: object) -> Posterior:
    """What a method of the package says."""
    return lambda votes, key: method.fit(votes, key=key).label_probs  # type: ignore[attr-defined]


METHODS: dict[str, Posterior] = {
    "MajorityVote": fitted(MajorityVote()),
    "Consensus": fitted(Consensus()),
    "DawidSkeneEM": fitted(DawidSkeneEM()),
    "DawidSkeneEM(4, 1)": fitted(DawidSkeneEM(4.0, 1.0)),
    "Ebcc": fitted(Ebcc()),
    "Glad": fitted(Glad()),
    "Tempered(DawidSkeneEM)": fitted(Tempered(DawidSkeneEM())),
    "Tempered(Ebcc)": fitted(Tempered(Ebcc())),
    "Cubam": fitted(Cubam()),
    "SpectralMetaLearner": fitted(SpectralMetaLearner()),
    "LatentSpectral": fitted(LatentSpectral()),
    "TreeMLE": fitted(TreeMLE()),
    "RBMStack": fitted(RBMStack()),
    **PEERS,
}
"""What is compared, the quick ones first."""

LEFT_OUT = "SpectralMetaLearner", "LatentSpectral", "Cubam", "deem, its own settings"
"""Methods of two classes, and settings of a peer that take hours."""

SLOW = ("TreeMLE", "RBMStack", *PEERS)
ONE_KEY = ("Consensus", "Tempered(DawidSkeneEM)", "Tempered(Ebcc)", *SLOW)
SMALL_SETS = "deem", "deem, its own settings", "crowd-kit GLAD"
MOST_CLASSES = {"TreeMLE": 10}
"""With more classes a fit takes minutes."""
FEW_CLASSES = tuple(kind for kind, (_, classes, _) in KINDS.items() if classes <= 10)
"""The kinds of simulated sets that are drawn by default; with more classes fits take longest."""
NOT_SIMULATED = ("Tempered(Ebcc)",)
LONGEST = 120
"""A fit that has not ended after this many seconds is left out."""

SCORES = "accuracy", "log_score", "calibration_error_debiased", "confident_share", "confident_wrong"

LEAST = 1e-6
"""Smaller probabilities count as this one, so that a single item does not decide a mean log score."""

BEST_VOTER, SUPERVISED = "best single voter, by truth", "supervised, five folds"


def main(
    data: Path | None,
    out: Path,
    seed: int,
    keys: int = 3,
    simulated: int = 2,
    most_votes: int = 6_500,
    methods: tuple[str, ...] = tuple(name for name in METHODS if name not in LEFT_OUT),
    folders: tuple[str, ...] = FOLDERS,
    sets: tuple[str, ...] = ("",),
    kinds: tuple[str, ...] = FEW_CLASSES,
) -> pd.DataFrame:
    os.environ.setdefault("LATENTENS_SECONDS", str(LONGEST))
    for folder, dataset in real_sets(data, folders, sets):
        for name in (name for name in methods if takes(name, dataset, most_votes)):
            for number in range(1 if name in ONE_KEY else keys):
                measured(out / "real", folder, dataset, name, seed + number)
    for folder, dataset in simulated_sets(kinds, simulated, seed):
        for name in (name for name in methods if name not in (*SLOW, *NOT_SIMULATED)):
            measured(out / "simulated", folder, dataset, name, seed)
    table, drawn = means(out / "real"), means(out / "simulated")
    reference = pd.DataFrame(
        [{"folder": folder, "set": known.name, **references(known)} for folder, known in real_sets(data, folders, sets)]
    )
    tables = {"": table, "_references": reference, "_summary": summarise(table).reset_index()}
    if not set(PEERS).isdisjoint(table["method"]):
        tables["_peers"] = on_same_sets(table)
    if len(drawn):
        tables["_simulated"] = simulated_summary(drawn)
    for part, found in tables.items():
        found.round(5).to_csv(out / f"real_votes{part}.csv", index=False)
    write(out, "real_votes", figure=figure(table))
    print(summarise(table).round(3).to_string())
    return table


def takes(name: str, dataset: Dataset, most_votes: int) -> bool:
    """Whether a method is measured on a real set."""
    votes = dataset.votes
    is_small = votes.num_items * votes.num_voters - votes.num_missing <= most_votes
    return (is_small or name not in SMALL_SETS) and votes.num_classes <= MOST_CLASSES.get(name, votes.num_classes)


def real_sets(data: Path | None, folders: tuple[str, ...], sets: tuple[str, ...]) -> Iterator[tuple[str, Dataset]]:
    """The sets of the folders, the small ones first."""
    if data is None:
        raise LatentensError("say by --data where the folders ensembles, panels and crowds are")
    paths = [path for folder in folders for path in (data / folder).glob("*/truth.csv")]
    for path in sorted(paths, key=lambda path: sum(file.stat().st_size for file in path.parent.glob("*.csv"))):
        if sets == ("",) or path.parent.name in sets:
            yield path.parent.parent.name, load_set(path.parent)


def load_set(folder: Path) -> Dataset:
    """Votes and truth; a vote that is not a class of the truth is missing."""
    votes = next(file for file in (folder / "votes.csv", folder / "label.csv") if file.is_file())
    truth = read_labels(folder / "truth.csv")
    classes = sorted(set(truth.values()), key=lambda label: (isinstance(label, str), label))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = pd.read_csv(votes, dtype=str, keep_default_na=False)
        columns = [written["label"]] if "label" in written else [written[name] for name in written.columns[1:]]
        said = {value for column in columns for value in column.unique()} - {""}
        other = said - {str(label) for label in classes}
        if folder.parent.name == "ensembles":  # whole numbers: a class that no item has is a class all the same
            classes, other = sorted({int(label) for label in (*said, *classes)}), set()
        duplicates = {"duplicates": "last"} if "label" in written else {}
        read = from_files(votes, folder / "truth.csv", classes=tuple(classes), missing=tuple(other), **duplicates)
    return Dataset(folder.name, read.votes, read.labels)


def simulated_sets(kinds: tuple[str, ...], number: int, seed: int) -> Iterator[tuple[str, Dataset]]:
    """As many sets of each kind."""
    for place in range(number):
        for kind in kinds:
            yield kind, draw_set(kind, np.random.default_rng([seed, 7919, place, list(KINDS).index(kind)]), place)


def measured(out: Path, folder: str, dataset: Dataset, name: str, seed: int) -> dict[str, object]:
    """The scores of a method on a set by one key, kept on disk."""
    safe = name.replace("/", "_").replace(" ", "")
    path = out / folder / dataset.name / f"{safe}_{seed}.json"
    if path.exists():
        return json.loads(path.read_text())
    start, clock = time.process_time(), time.perf_counter()
    record: dict[str, object] = {"folder": folder, "set": dataset.name, "method": name, "key": seed}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probs = METHODS[name](dataset.votes, jax.random.key(seed))
        record["seconds"], record["elapsed"] = time.process_time() - start, time.perf_counter() - clock
        scores = evaluate(dataset.labels, np.maximum(probs, LEAST))
        record |= {score: scores[score] for score in SCORES}
    except Exception as error:  # other packages fail in ways of their own
        if name not in PEERS and not isinstance(error, LatentensError):
            raise
        record["error"] = f"{type(error).__name__}: {error}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(record.get("error"), str) or "not installed" not in str(record["error"]):
        path.write_text(json.dumps(record))
    print(folder, dataset.name, name, seed, record.get("accuracy"), record.get("seconds"), flush=True)
    return record


def means(out: Path) -> pd.DataFrame:
    """Everything that is kept, averaged over keys; `deviation` is that of the accuracy over keys."""
    records = [json.loads(path.read_text()) for path in sorted(out.glob("*/*/*.json"))]
    table = pd.DataFrame([record for record in records if "accuracy" in record])
    if table.empty:
        return pd.DataFrame(columns=["folder", "set", "method"])
    groups = table.groupby(["folder", "set", "method"])
    return groups[[*SCORES, "seconds"]].mean().assign(deviation=groups["accuracy"].std().fillna(0.0)).reset_index()


def references(dataset: Dataset) -> dict[str, float]:
    """The accuracy of the best single voter, and of a supervised reference."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    known = np.flatnonzero(dataset.labels >= 0)
    votes, labels = dataset.votes.take(known), dataset.labels[known]
    item, voter, vote = votes.triplets
    cast = np.bincount(voter, minlength=votes.num_voters)
    right = np.bincount(voter, vote == labels[item], votes.num_voters)
    often = cast >= votes.num_items / 2
    best = float((right[often] / cast[often]).max()) if often.any() else np.nan
    features = np.zeros((votes.num_items, votes.num_voters, votes.num_classes))
    features[item, voter, vote] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = cross_val_predict(
            LogisticRegression(C=0.3, max_iter=300), features.reshape(votes.num_items, -1), labels
        )
    return {BEST_VOTER: best, SUPERVISED: float(np.mean(predicted == labels))}


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """One row per folder and method: means over sets, mean rank, and how the worst set compares with the majority."""
    wide = table.pivot_table(index=["folder", "set"], columns="method", values="accuracy")
    ranks = wide.rank(axis=1, ascending=False)
    loss = wide.sub(wide["MajorityVote"], axis=0)
    rows = []
    for (folder, method), part in table.groupby(["folder", "method"], sort=False):
        below = loss.loc[folder, method].dropna()
        rows.append(
            {
                "folder": folder,
                "method": method,
                "sets": len(part),
                "accuracy": 100 * part["accuracy"].mean(),
                "rank": ranks.loc[folder, method].mean(),
                "below majority": int((below < -0.01).sum()),
                "worst": 100 * below.min(),
                "worst set": below.idxmin() if len(below) else "",
                "log score": part["log_score"].mean(),
                "calibration": part["calibration_error_debiased"].mean(),
                "above .99": 100 * part["confident_share"].mean(),
                "of these wrong": 100 * part["confident_wrong"].mean(),
                "deviation": 100 * part["deviation"].max(),
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows).set_index(["folder", "method"])


def on_same_sets(table: pd.DataFrame) -> pd.DataFrame:
    """Each peer beside the methods of the package, on the ensembles on which the peer has run."""
    ensembles = table[table["folder"] == "ensembles"]
    rows = []
    for peer in (name for name in PEERS if name in set(ensembles["method"])):
        sets = set(ensembles[ensembles["method"] == peer]["set"])
        for method in ("Consensus", "DawidSkeneEM", "MajorityVote", peer):
            part = ensembles[(ensembles["method"] == method) & ensembles["set"].isin(sets)]
            found = part[["accuracy", "log_score", "seconds"]].mean() * [100, 1, 1]
            rows.append({"peer": peer, "sets": len(part), "method": method, **found})
    return pd.DataFrame(rows)


def simulated_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the simulated sets on which all methods ran, by structure, number of classes and density."""
    ran = table.groupby(["folder", "set"])["method"].transform("nunique")
    table = table[ran == ran.max()]
    parts = table["folder"].str.split(", ", expand=True)
    table = table.assign(structure=parts[0], classes=parts[1], density=parts[2], all="all")
    rows = []
    for kind in ("all", "structure", "classes", "density"):
        for name in dict.fromkeys(table[kind]):
            some = table[table[kind] == name].assign(set=lambda part: part["folder"] + part["set"].astype(str))
            found = summarise(some.assign(folder=name)).reset_index()
            rows.append(found[["folder", "method", *SIMULATED_COLUMNS]].rename(columns={"folder": "kind"}))
    return pd.concat(rows, ignore_index=True)


SIMULATED_COLUMNS = "sets", "accuracy", "below majority", "worst", "log score", "calibration", "seconds"


def figure(table: pd.DataFrame) -> Figure:
    """Accuracy beyond the majority of every set, one row per method."""
    wide = table.pivot_table(index=["folder", "set"], columns="method", values="accuracy")
    gain = 100 * wide.sub(wide["MajorityVote"], axis=0)
    names = [name for name in METHODS if name in gain and name != "MajorityVote"]
    drawn, axes = plt.subplots(figsize=(8, 0.4 * len(names) + 1.2), layout="constrained")
    for folder, marker in zip(FOLDERS, "o^s", strict=True):
        if folder in gain.index.get_level_values(0):
            part = gain.loc[folder]
            places = np.tile(np.arange(len(names)), len(part)) + {"o": -0.15, "^": 0.0, "s": 0.15}[marker]
            axes.plot(part[names].to_numpy().ravel(), places, marker, markersize=3.5, alpha=0.6, label=folder)
    axes.axvline(0, color="k", linewidth=0.8)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="accuracy beyond the majority, points")
    axes.set_xlim(max(-25, np.nanmin(gain)), min(25, np.nanmax(gain)) + 1)
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return drawn


if __name__ == "__main__":
    run(main, __doc__)
