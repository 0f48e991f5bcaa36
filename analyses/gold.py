"""What few gold labels are worth: every method with 20 to 200 of them, scored on the items that have none.

    python analyses/gold.py --data ROOT [--out DIR] [--draws 1] [--sets 2] [--methods NAME …] [--parts real simulated]

ROOT holds `panels`, `ensembles` and `crowds`, one folder per set; of large sets 4,000 items are drawn. A set takes part
with a number of gold labels if it has three times as many labels. Votes for what is not a class of the truth (ties,
"unsure") count as missing. Simulated sets are drawn anew. Beside the methods stand label-free fits, the best voter by
gold labels, a plain penalised logit (votes, log-posterior of Dawid–Skene and log vote shares; one penalty, by five
folds), and a supervised reference: a penalised multinomial logit of the votes that is fitted to half of all labels
and scored on the other half. Accuracies are in percent, log scores in nats per item. What is done is kept in
DIR/gold, one file per set and method.
"""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from common import run, write
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from latentens import Dataset, Votes, simulate
from latentens.inference.orient import vote_shares
from latentens.methods import DawidSkeneEM, Ebcc, Glad, MajorityVote, Stacked, Tempered
from latentens.methods.base import Method
from latentens.models import Confounder, DawidSkene, ItemDifficulty, Tree, TruncatedGaussian

METHODS: dict[str, Method] = {
    "MajorityVote": MajorityVote(),
    "DawidSkeneEM": DawidSkeneEM(),
    "Ebcc": Ebcc(),
    "Glad": Glad(),
    "Tempered(DawidSkeneEM)": Tempered(DawidSkeneEM()),
    "Stacked": Stacked(),
    "Stacked(DawidSkeneEM)": Stacked(DawidSkeneEM()),
}
"""Methods that are given the gold labels."""

WITHOUT: dict[str, Method] = {
    "DawidSkeneEM, no labels": DawidSkeneEM(),
    "Stacked, no labels": Stacked(),
}
"""Methods that are not."""

SHOWN = (
    "MajorityVote",
    *WITHOUT,
    "Stacked",
    "penalised logit",
    "best voter by gold",
    "DawidSkeneEM",
    "supervised",
)
"""What runs by default; the other methods only by `--methods`."""

COUNTS = (20, 50, 100, 200)
MOST_ITEMS = 4_000
PENALTIES = (0.3, 1, 3, 10, 30, 100)
TOO_SMALL = 1e-12
"""No log-probability is below this one's."""

Scores = dict[str, float]


class Case(NamedTuple):
    """A set with the labels that are given away: code of the label, −1 elsewhere."""

    dataset: Dataset
    gold: np.ndarray
    seed: int

    @property
    def others(self) -> np.ndarray:
        """The labelled items that are scored."""
        return (self.dataset.labels >= 0) & (self.gold < 0)


def main(
    data: Path | None,
    out: Path,
    seed: int,
    draws: int = 1,
    sets: int = 2,
    items: int = 1_000,
    methods: tuple[str, ...] = SHOWN,
    parts: tuple[str, ...] = ("real", "simulated"),
) -> pd.DataFrame:
    tables = []
    for part, datasets in {"real": real_sets(data), "simulated": simulated_sets(seed, sets, items)}.items():
        if part not in parts:
            continue
        number = draws if part == "real" else 1
        rows = [
            row
            for dataset in datasets
            for name in methods
            for row in measured(dataset, name, number, out / "gold" / part, seed)
        ]
        if rows:
            tables.append(pd.DataFrame(rows).assign(part=part))
    table = pd.concat(tables)
    real, simulated = (table[table["part"] == part] for part in ("real", "simulated"))
    if len(real):
        write(out, "gold", table=summarise(real[real["labelled"] >= 3 * max(COUNTS)]).set_index("labels"))
        write(out, "gold_sets", table=by_set(real).set_index("set"))
    if len(simulated):
        write(out, "gold_simulated", table=by_family(simulated).set_index("family"))
    return table


def real_sets(data: Path | None) -> Iterator[Dataset]:
    """The panels, ensembles and crowds that are there."""
    parts = () if data is None else ("panels", "ensembles", "crowds")
    folders = [folder for part in parts for folder in (data / part).glob("*")]  # type: ignore[operator]
    for folder in sorted(folders):
        if (folder / "votes.csv").is_file():
            wide = pd.read_csv(folder / "votes.csv", dtype=str, keep_default_na=False).set_index("item")
        else:
            long = pd.read_csv(folder / "label.csv", dtype=str).drop_duplicates(["item", "worker"])
            wide = long.pivot(index="item", columns="worker", values="label")
        truth = pd.read_csv(folder / "truth.csv", dtype=str).drop_duplicates("item").set_index("item")["truth"]
        classes = sorted(set(truth.dropna()))
        codes = {name: code for code, name in enumerate(classes)}
        labels = truth.reindex(wide.index).map(codes).fillna(-1).astype(int).to_numpy()
        matrix = np.full(wide.shape, -1)
        for name, code in codes.items():
            matrix[wide.to_numpy() == name] = code
        if len(matrix) > MOST_ITEMS:
            some = np.random.default_rng(0).choice(len(matrix), MOST_ITEMS, replace=False)
            matrix, labels = matrix[some], labels[some]
        yield Dataset(folder.name, Votes.from_matrix(matrix, num_classes=len(classes)), labels)


FAMILIES: dict[str, Callable[[], object]] = {
    "independent, 2 classes": lambda: DawidSkene(8),
    "independent, 5 classes": lambda: DawidSkene(8, num_classes=5),
    "groups (tree), 2 classes": lambda: Tree((0, 0, 0, 0, 1, 1, 1, 2, 2, 3)),
    "groups (tree), 3 classes": lambda: Tree((0, 0, 0, 0, 1, 1, 1, 2, 2, 3), num_classes=3),
    "truncated Gaussian": lambda: TruncatedGaussian(10),
    "confounder": lambda: Confounder(8),
    "hard items, 2 classes": lambda: ItemDifficulty(8),
    "hard items, 3 classes": lambda: ItemDifficulty(8, num_classes=3),
}


def simulated_sets(seed: int, sets: int, items: int) -> Iterator[Dataset]:
    """Sets of every family, each with parameters of its own, and panels with copies of one judge."""
    for family, make in FAMILIES.items():
        for number in range(sets):
            model: object = make()
            params_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed + 1), number))
            drawn = simulate(model, items, key=key, params=model.example_params(params_key))  # type: ignore[arg-type,attr-defined]
            yield Dataset(f"{family}/{number}", drawn.votes, drawn.labels, drawn.model, drawn.params)
    for classes in (2, 4):
        for number in range(sets):
            generator = np.random.default_rng([seed, classes, number])
            yield Dataset(f"copies of a judge, {classes} classes/{number}", *copied_judges(generator, items, classes))


def copied_judges(generator: np.random.Generator, items: int, classes: int) -> tuple[Votes, np.ndarray]:
    """Four judges, and six copies of the first, who differ from them on one item in ten."""
    labels = generator.integers(0, classes, items)
    right = generator.random((items, 4)) < generator.uniform(0.55, 0.85, 4)
    wrong = (labels[:, None] + generator.integers(1, classes, (items, 4))) % classes
    own = np.where(right, labels[:, None], wrong)
    copies = np.repeat(own[:, :1], 6, axis=1)
    slips = generator.random(copies.shape) < 0.1
    copies[slips] = generator.integers(0, classes, slips.sum())
    return Votes.from_matrix(np.hstack([own, copies]), num_classes=classes), labels


def measured(dataset: Dataset, name: str, draws: int, folder: Path, seed: int) -> list[dict[str, object]]:
    """The scores of one method on one set with every number of gold labels; kept on disk."""
    path = folder / f"{dataset.name.replace('/', '_')}_{name}_{draws}_{seed}.csv"
    if path.exists():
        return pd.read_csv(path).to_dict("records")
    known, rows = np.flatnonzero(dataset.labels >= 0), []
    prepared = prepare(dataset, name, seed)
    for count in COUNTS:
        for draw in range(draws if 3 * count <= len(known) else 0):
            given = np.random.default_rng(seed + draw).choice(known, count, replace=False)
            gold = np.full(dataset.votes.num_items, -1)
            gold[given] = dataset.labels[given]
            case = Case(dataset, gold, seed + draw)
            place = {"set": dataset.name, "method": name, "labels": count, "draw": draw, "labelled": len(known)}
            rows.append(place | prepared(case))
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)
    print(dataset.name, name, flush=True)
    return rows


def prepare(dataset: Dataset, name: str, seed: int) -> Callable[[Case], Scores]:
    """What scores a method; what does not hang on the gold labels is done once."""
    votes, key = dataset.votes, jax.random.key(seed)
    if name in METHODS:
        return lambda case: score(METHODS[name].fit(votes, key=key, gold=case.gold).label_probs, case)
    if name in WITHOUT:
        probs = WITHOUT[name].fit(votes, key=key).label_probs
        return lambda case: score(probs, case)
    if name == "best voter by gold":
        return lambda case: score(best_voter(case), case)
    if name == "supervised":
        reference = supervised(dataset, seed)
        return lambda case: score(reference, case)
    probs = DawidSkeneEM().fit(votes, key=key).label_probs
    return lambda case: score(penalised_logit(probs, case), case)


def score(probs: np.ndarray, case: Case) -> Scores:
    """Accuracy and log score on the items without a gold label."""
    labels, probs = case.dataset.labels[case.others], probs[case.others]
    of_label = probs[np.arange(len(labels)), labels]
    return {
        "accuracy": 100 * float(np.mean(probs.argmax(axis=1) == labels)),
        "log_score": float(-np.log(np.maximum(of_label, TOO_SMALL)).mean()),
    }


def best_voter(case: Case) -> np.ndarray:
    """The votes of the voter who is right most often on the gold labels, with the error rate seen there."""
    votes, given = case.dataset.votes, case.gold >= 0
    right = ((votes.matrix == case.gold[:, None]) & given[:, None]).sum(axis=0)
    cast = ((votes.matrix >= 0) & given[:, None]).sum(axis=0)
    best = int(np.argmax((right + 1) / (cast + votes.num_classes)))
    rate = (right[best] + 1) / (cast[best] + votes.num_classes)
    said = votes.matrix[:, best]
    probs = np.where(said[:, None] == np.arange(votes.num_classes), rate, (1 - rate) / (votes.num_classes - 1))
    return np.where(said[:, None] >= 0, probs, 1 / votes.num_classes)


def penalised_logit(posterior: np.ndarray, case: Case) -> np.ndarray:
    """Votes, log-posterior and log vote shares weighted by one penalised conditional logit, its penalty by folds."""
    votes, labels, given = case.dataset.votes, case.gold, np.flatnonzero(case.gold >= 0)
    classes = np.arange(votes.num_classes)
    shares = votes.tally + 0.5
    shares = shares / shares.sum(axis=1, keepdims=True)
    of_votes = (votes.matrix[:, None] == classes[:, None]).astype(float)
    features = np.concatenate([of_votes, np.log(np.stack([posterior.clip(1e-6), shares], axis=2))], axis=2)
    centre = np.append(np.zeros(votes.num_voters), [0.3, 0.5])

    def weights(items: np.ndarray, penalty: float) -> np.ndarray:
        def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
            log_probs = log_softmax(features[items] @ w, axis=1)
            residual = np.exp(log_probs) - (labels[items][:, None] == classes)
            value = -log_probs[np.arange(len(items)), labels[items]].sum() + penalty / 2 * ((w - centre) ** 2).sum()
            return value, np.einsum("nk,nkm->m", residual, features[items]) + penalty * (w - centre)

        return np.asarray(minimize(cost, centre, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x)

    fold = np.random.default_rng(case.seed).permutation(len(given)) % 5
    losses = [0.0 for _ in PENALTIES]
    for place, penalty in enumerate(PENALTIES):
        for part in range(5):
            test = given[fold == part]
            log_probs = log_softmax(features[test] @ weights(given[fold != part], penalty), axis=1)
            losses[place] -= float(log_probs[np.arange(len(test)), labels[test]].clip(np.log(TOO_SMALL)).sum())
    return softmax(features @ weights(given, PENALTIES[int(np.argmin(losses))]), axis=1)


def supervised(dataset: Dataset, seed: int) -> np.ndarray:
    """Posteriors of each half of the labelled items by a penalised multinomial logit fitted to the other half."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegressionCV

    votes, labels, known = dataset.votes, dataset.labels, np.flatnonzero(dataset.labels >= 0)
    inputs = (votes.matrix[:, :, None] == np.arange(votes.num_classes)).reshape(votes.num_items, -1).astype(float)
    half = np.random.default_rng(seed).permutation(len(known)) % 2
    probs = vote_shares(votes)
    for part in range(2):
        train, test = known[half != part], known[half == part]
        train = train[np.bincount(labels[train], minlength=votes.num_classes)[labels[train]] >= 3]
        model = LogisticRegressionCV(Cs=6, cv=3, scoring="neg_log_loss", max_iter=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model.fit(inputs[train], labels[train])
        probs[test] = 1e-6  # of classes too rare to be learnt
        probs[np.ix_(test, model.classes_)] = model.predict_proba(inputs[test])
    return probs


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Means over draws: one row for each set, method and number of labels."""
    return table.groupby(["set", "method", "labels"], sort=False)[["accuracy", "log_score"]].mean()


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Means over sets, and the largest losses of accuracy on a set against the majority and the label-free fit."""
    found, rows = means(table), []
    for count in COUNTS:
        wide = found.xs(count, level="labels").unstack("method")
        for method in dict.fromkeys(table["method"]):
            accuracy = wide["accuracy"]
            row = {"labels": count, "method": method, "accuracy": accuracy[method].mean()}
            row["log_score"] = wide["log_score"][method].mean()
            for name, base in {"majority": "MajorityVote", "label-free fit": "DawidSkeneEM, no labels"}.items():
                loss = accuracy[base] - accuracy[method]
                row[f"worst loss to the {name}"] = f"{max(loss.max(), 0):.2f} ({loss.idxmax()})"
            rows.append(row | {"sets": int(accuracy[method].notna().sum())})
    return pd.DataFrame(rows)


def by_set(table: pd.DataFrame, count: int = 50) -> pd.DataFrame:
    """Each set with 50 gold labels: accuracy and log score."""
    wide = means(table).xs(count, level="labels").unstack("method")
    shown = (
        "MajorityVote",
        "DawidSkeneEM, no labels",
        "best voter by gold",
        "penalised logit",
        "Stacked",
        "supervised",
    )
    columns = {
        name: [f"{a:.1f} / {b:.3f}" for a, b in zip(wide["accuracy"][name], wide["log_score"][name], strict=True)]
        for name in shown
        if name in wide["accuracy"]
    }
    return pd.DataFrame(columns, index=wide.index).reset_index()


def by_family(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the simulated sets of a family, and the largest losses of `Stacked`."""
    found, rows = means(table).reset_index(), []
    found["family"] = found["set"].str.rpartition("/")[0]
    for (family, count), part in found.groupby(["family", "labels"], sort=False):
        wide = part.pivot(index="set", columns="method")
        accuracy, log_score = wide["accuracy"], wide["log_score"]
        row: dict[str, object] = {"family": family, "labels": count}
        for name in ("MajorityVote", "DawidSkeneEM, no labels", "DawidSkeneEM", "penalised logit", "Stacked"):
            row |= {name: f"{accuracy[name].mean():.2f} / {log_score[name].mean():.3f}"}
        for name, base in {"majority": "MajorityVote", "label-free fit": "DawidSkeneEM, no labels"}.items():
            row[f"worst loss to the {name}"] = float((accuracy[base] - accuracy["Stacked"]).max())
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main, __doc__)
