"""The tables and figures of the pages, written from the files in `results/`, so that no number is copied by hand.

    python analyses/pages.py [--check]

Between `<!-- table NAME -->` and `<!-- end -->` stands what `TABLES[NAME]` makes of its file. Between
`<!-- value FILE / COLUMN / FORMAT / A=x; B=y -->` and `<!-- end -->` stands one number: the value of a column in the
rows in which column A is x and column B is y, in Python's format. There must be one such row; with `max COLUMN`,
`min`, `mean`, `median`, `sum` or `count` there may be several. Between `<!-- figure PATH / TEXT -->` and `<!-- end -->`
stands a picture. Without a file all three say that nothing was measured. Analyses write their files to DIR/NAME, and
`all.py` copies those that a page shows to `results/`.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from paper import ARCHITECTURES

FOLDER = Path(__file__).parent
PAGES = (
    FOLDER / "README.md",
    *sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md"),
    *sorted((FOLDER / "guide").glob("*.md")),
    FOLDER / "paper" / "paper.md",
    FOLDER.parent / "README.md",
)
PLACE = re.compile(r"(<!-- table ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- value ([\w.]+) / ([^/]+?) / (\S+)(?: / ([^>]+?))? -->)[^<]*(<!-- end -->)")
FIGURE = re.compile(r"figures/(\w+\.png)")
DRAWN = re.compile(r"(<!-- figure (figures/\w+\.png) / ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def figure(value: float, digits: int) -> str:
    return "–" if pd.isna(value) else f"{value:.{digits}f}"


def accuracies(table: pd.DataFrame) -> str:
    """Balanced accuracy with its deviation, if there is one, beside the paper's, family by family."""
    table = table.set_index(["family", "estimator"])
    families = list(dict.fromkeys(table.index.get_level_values("family")))
    rows = []
    for method in dict.fromkeys(table.index.get_level_values("estimator")):
        cells = [method]
        for family in families:
            row = table.loc[(family, method)] if (family, method) in table.index else pd.Series(dtype=float)
            spread = row.get("deviation", float("nan"))
            own = figure(row.get("balanced_accuracy", float("nan")), 2)
            cells += [own + ("" if pd.isna(spread) else f" ± {spread:.2f}"), figure(row.get("paper", float("nan")), 2)]
        rows.append(cells)
    return markdown(["", *(name for family in families for name in (family, "paper"))], rows)


def by_family(table: pd.DataFrame, scores: list[str]) -> str:
    """Some scores, family by family."""
    families = list(dict.fromkeys(table["family"]))
    wide = table.pivot(index="estimator", columns="family", values=scores).reindex(dict.fromkeys(table["estimator"]))
    columns = [(score, family) for score in scores for family in families]
    rows = [[str(method), *(figure(row[column], 3) for column in columns)] for method, row in wide.iterrows()]
    return markdown(["", *(f"{family}: {score.replace('_', ' ')}" for score, family in columns)], rows)


def two_scores(table: pd.DataFrame) -> str:
    """Balanced accuracy with its deviation, and log score."""
    rows = [
        [str(row.estimator), f"{row.balanced_accuracy:.2f} ± {row.deviation:.2f}", figure(row.log_score, 2)]
        for row in table.itertuples()
    ]
    return markdown(["", "balanced accuracy", "log score"], rows)


def least_p_values(table: pd.DataFrame) -> str:
    """The smallest p-value of each model's parameters, and what it is worth among so many (Bonferroni)."""
    if "method" in table:
        table = table[table["method"] == "Nuts"]
    rows = []
    for model, part in table.groupby("model", sort=False)["p_value"]:
        rows.append([str(model), str(len(part)), figure(part.min(), 3), figure(min(1.0, len(part) * part.min()), 2)])
    return markdown(["model", "parameters", "smallest p", "times their number"], rows)


def plain(table: pd.DataFrame, below_one: int = 2) -> str:
    """All columns; figures with two digits, or other ones below one."""
    rows = [[_cell(cell, below_one) for cell in row] for row in table.to_numpy(object)]
    return markdown([name.replace("_", " ") for name in table.columns], rows)


def judged(table: pd.DataFrame, folder: str) -> str:
    """The rows of one folder or kind, best accuracy first."""
    rows = table[table.iloc[:, 0] == folder].sort_values("accuracy", ascending=False)
    rows = rows.drop(columns=[table.columns[0], *(name for name in ("worst set",) if name in rows)])
    cells = [
        [str(row.iloc[0]), str(int(row["sets"])), *(_judged_cell(name, row[name]) for name in rows.columns[2:])]
        for _, row in rows.iterrows()
    ]
    return markdown([*rows.columns], cells)


def _judged_cell(name: str, value: float) -> str:
    digits = {"below majority": 0, "log score": 3, "calibration": 3, "rank": 1, "above .99": 1, "of these wrong": 1}
    return figure(value, digits.get(name, 2))


def _cell(value: object, below_one: int) -> str:
    return figure(value, below_one if abs(value) < 1 else 2) if isinstance(value, float) else str(value)


precise = partial(plain, below_one=3)


def mean_by(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means of all numbers in percent, by the values of a column."""
    return (100 * table.groupby(column, sort=False).mean(numeric_only=True)).reset_index()


def against_dawid_skene(table: pd.DataFrame) -> str:
    """Accuracy of the stack and of Dawid–Skene by kind of set, in percent, the worst set, stability and seconds."""
    rows = []
    for kind, part in table.groupby("kind", sort=False):
        by_set = part.groupby("set")
        mean = by_set[["accuracy", "Dawid–Skene"]].mean()
        gain = mean["accuracy"] - mean["Dawid–Skene"]
        unsteady = (by_set["accuracy"].std() > 0.3).sum() if part["key"].nunique() > 1 else "–"
        figures = [mean["accuracy"].mean(), mean["Dawid–Skene"].mean(), gain.mean(), gain.min()]
        seconds = [figure(part["seconds"].median(), 1), figure(part["seconds"].max(), 1)]
        cells = [str(len(mean)), *(figure(value, 2) for value in figures), str(unsteady), *seconds]
        rows.append([str(kind), *cells])
    columns = ["sets", "stack", "Dawid–Skene", "gain", "worst gain", "unsteady", "seconds, median", "longest"]
    return markdown(["", *columns], rows)


def set_by_set(table: pd.DataFrame) -> str:
    """Accuracy in percent and log score of each method of the present version on each set."""
    methods = ["MajorityVote", *(name for name in dict.fromkeys(table["method"]) if name != "MajorityVote")]
    rows = []
    for (folder, name), part in table.groupby(["folder", "set"]):
        part = part.set_index("method").reindex(methods)
        shown = zip(part["accuracy"], part["log_score"], strict=True)
        cells = ["–" if pd.isna(right) else f"{100 * right:.1f}, {loss:.2f}" for right, loss in shown]
        rows.append([f"{folder}/{name}", *cells])
    return markdown(["", *methods], rows)


def accuracy_by_kind(table: pd.DataFrame) -> str:
    """Accuracy and, in brackets, the worst loss to the majority: kinds by methods."""
    methods = list(dict.fromkeys(table["method"]))
    rows = []
    for kind in dict.fromkeys(table["kind"]):
        part = table[table["kind"] == kind].set_index("method")
        cells = [
            f"{part.loc[m, 'accuracy']:.1f} ({part.loc[m, 'worst']:.1f})" if m in part.index else "–" for m in methods
        ]
        rows.append([kind, str(int(part["sets"].iloc[0])), *cells])
    return markdown(["", "sets", *methods], rows)


def approximations(table: pd.DataFrame, items: int) -> str:
    """Each way of inference on sets of one size, a model after the other."""
    table = table[table["items"] == items]
    digits = {"shift": 2, "largest_shift": 2, "ratio": 2, "least_ratio": 2, "coverage": 2, "kl_to_nuts": 5}
    digits |= {"kl_to_exact": 4, "pareto_k": 2, "seconds": 2}
    rows = []
    for _, row in table.iterrows():
        figures = (figure(row[name], places) for name, places in digits.items())
        rows.append([str(row["model"]), str(row["method"]), *figures, str(int(row["sets"]))])
    return markdown(["model", "method", *(name.replace("_", " ") for name in digits), "sets"], rows)


def coverages(table: pd.DataFrame, part: str, kinds: bool = False) -> str:
    """How often intervals of `estimate` hold the truth, for all quantities together or for each kind."""
    table = table[(table["part"] == part) & ((table["quantity"] == "all") != kinds)]
    rows = []
    for row in table.sort_values(["labels"], kind="stable").to_dict("records"):
        pairs = [f"{figure(row[name], 3)} ({figure(row['gold_' + name], 3)})" for name in ("coverage", "lowest")]
        above = f"{figure(100 * row['above_97'], 0)} ({figure(100 * row['gold_above_97'], 0)})"
        shown = [row["lowest_at"], figure(100 * row["below_93"], 1), above, figure(row["width_ratio"], 3)]
        shown += [figure(row["worst_ratio"], 3), figure(row["error_ratio"], 2)]
        rows.append([str(row["labels"]), *([row["quantity"]] if kinds else []), str(row["intervals"]), *pairs, *shown])
    headings = ["labels", *(["quantity"] if kinds else []), "intervals", "coverage (gold alone)", "lowest (gold alone)"]
    headings += ["lowest at", "% below .93", "% above .97 (gold alone)", "width", "widest", "error"]
    return markdown(headings, rows)


def thousandths(table: pd.DataFrame) -> str:
    """All columns, numbers that are no counts with three digits."""
    rows = [
        [figure(cell, 3) if isinstance(cell, float) else str(cell) for cell in row] for row in table.to_numpy(object)
    ]
    return markdown([name.replace("_", " ") for name in table.columns], rows)


def only(table: pd.DataFrame, columns: list[str], digits: int = 3, **where: object) -> str:
    """Some columns of the rows that have these values."""
    for name, value in where.items():
        table = table[table[name] == value]
    rows = [
        [figure(cell, digits) if isinstance(cell, float) else str(cell) for cell in row]
        for row in table[[name for name in columns if name in table]].to_numpy(object)
    ]
    return markdown([name.replace("_", " ").strip() for name in columns if name in table], rows)


def tree_groups(table: pd.DataFrame) -> str:
    """Mean accuracy by number of classes, and the largest and smallest distances from exact Bayes."""
    ways = ["exact Bayes", "true groups", "TreeMLE", "DawidSkeneEM"]
    rows = []
    for classes, part in table.groupby("classes"):
        behind = part["exact Bayes"].to_numpy()[:, None] - part[["TreeMLE", "DawidSkeneEM"]].to_numpy()
        figures = [*part[ways].mean(), behind[:, 0].max(), behind[:, 1].min(), part["rand_index"].min()]
        rows.append([str(classes), str(len(part)), *(figure(value, 2) for value in figures)])
    distances = ["TreeMLE below exact, at most", "DawidSkeneEM below exact, at least", "least Rand index"]
    return markdown(["classes", "sets", *ways, *distances], rows)


def pooled(table: pd.DataFrame) -> str:
    """Accuracy and log score of each method: the mean of the simulated sets, and each crowd."""
    simulated = table["set"].str.startswith("simulated")
    methods = [name.removesuffix(": accuracy") for name in table if name.endswith(": accuracy")]
    means = table[simulated].mean(numeric_only=True).to_dict() | {"set": f"simulated, {simulated.sum()} sets"}
    rows = []
    for row in [means, *table[~simulated].to_dict("records")]:
        pairs = [(row[f"{name}: accuracy"], row[f"{name}: log score"]) for name in methods]
        rows.append([row["set"], *("–" if pd.isna(right) else f"{right:.2f}, {loss:.3f}" for right, loss in pairs)])
    return markdown(["votes", *methods], rows)


TEMPERED = {
    "kind": "",
    "raw: log_score": "log score: raw",
    "tempered: log_score": "tempered",
    "by labels: log_score": "by labels",
    "exact: log_score": "exact",
    "raw: mean_kl": "KL raw",
    "tempered: mean_kl": "KL tempered",
    "raw: calibration_error_debiased": "calibration raw",
    "tempered: calibration_error_debiased": "calibration tempered",
    "temperature": "τ",
    "temperature_error": "its error",
    "temperature by labels": "τ by labels",
    "worst_change": "worst change",
    "hurt": "hurt",
    "sets": "sets",
}


def tempered(table: pd.DataFrame, part: str) -> str:
    """Scores before and after tempering, kind by kind."""
    table = table[table["part"] == part].dropna(axis="columns", how="all")
    shown = {name: title for name, title in TEMPERED.items() if name in table}
    return only(table.rename(columns=shown), list(shown.values()))


def rbm_classes(table: pd.DataFrame) -> str:
    """Means over sets, the worst distance of the stack from exact Bayes, and its sizes."""
    methods = [name for name in table if name not in ("classes", "family", "set", "sizes", "seconds")]
    rows = []
    for (classes, family), part in table.groupby(["classes", "family"]):
        worst = (part["Bayes"] - part["RBM stack"]).max()
        sizes = ", ".join(f"{size} on {count}" for size, count in part["sizes"].value_counts().items())
        figures = [figure(value, 2) for value in (*part[methods].mean(), worst)]
        rows.append([str(classes), str(family), str(len(part)), *figures, sizes])
    return markdown(["classes", "voters", "sets", *methods, "stack below exact, at most", "sizes"], rows)


def pseudo_counts(table: pd.DataFrame) -> str:
    """Means over all crowds, and the worst loss to the best setting on the same set."""
    table, setting = table[table["voters"] == "all"], ["diagonal", "off_diagonal"]
    means, worst = (part.set_index(setting) for part in (table[table["votes"].isna()], table[table["votes"].notna()]))
    rows = [
        [
            f"{pair[0]:g}, {pair[1]:g}",
            *(
                figure(part.loc[pair, name], digits)
                for part in (means, worst)
                for name, digits in (("accuracy", 1), ("log_score", 2))
            ),
        ]
        for pair in means.index
    ]
    return markdown(
        ["diagonal, off", "accuracy", "log score", "worst loss of accuracy", "worst loss of log score"], rows
    )


def chosen_on_real(table: pd.DataFrame) -> str:
    """Held-out log-likelihood and accuracy in percent of every model."""
    models = list(dict.fromkeys(table["model"]))
    rows = []
    for name, part in table.groupby("set", sort=False):
        part = part.set_index("model")
        rows.append([name, *(f"{part.at[m, 'elpd']:,.0f}, {100 * part.at[m, 'accuracy']:.1f}" for m in models)])
    return markdown(["", *models], rows)


def published_figures(table: pd.DataFrame) -> str:
    """How many published figures of each quantity are met, and the first of them."""
    table, rows = table.assign(quantity=table["quantity"].str.replace(r" \[[\d, ]+\]$", "", regex=True)), []
    for (fit, quantity), part in table.groupby(["fit", "quantity"], sort=False):
        first, digits = part.iloc[0], 4 if len(part) == 1 else 3
        pair = [figure(first["here"], digits), figure(first["published"], digits)]
        rows.append([str(fit), str(quantity), *pair, f"{part['agrees'].sum()} of {len(part)}"])
    return markdown(["fit", "quantity", "here (first of several)", "published", "agree"], rows)


def against_paper(table: pd.DataFrame) -> str:
    """Every row of the paper beside the methods here that it can be compared with, and the difference."""
    table = table[table["paper"].notna() & table["balanced_accuracy"].notna()]
    table = table.sort_values("family", kind="stable", key=lambda names: names.map([*dict.fromkeys(names)].index))
    rows = []
    for row in table.to_dict("records"):
        spread = row.get("paper_deviation", float("nan"))
        theirs = figure(row["paper"], 2) + ("" if pd.isna(spread) else f" ± {spread:.2f}")
        ours = figure(row["balanced_accuracy"], 2)
        ours += "" if pd.isna(row.get("deviation", float("nan"))) else f" ± {row['deviation']:.2f}"
        rows.append([row["family"], row["estimator"], theirs, ours, f"{row['balanced_accuracy'] - row['paper']:+.2f}"])
    return markdown(["set", "method", "paper", "here", "difference"], rows)


def paper_sizes(table: pd.DataFrame) -> str:
    """The sizes of the paper's network and of the stack at its defaults, and the accuracy over keys of the latter."""
    rows = [
        [
            row.family,
            "-".join(map(str, ARCHITECTURES[row.family])),
            row.sizes,
            figure(row.average, 2),
            figure(row.worst, 2),
        ]
        for row in table.rename(columns={"mean": "average"}).itertuples()
    ]
    return markdown(["", "paper", "here, fits × sizes", "mean accuracy", "worst"], rows)


def asked(table: pd.DataFrame) -> str:
    """Accuracy by number of votes per item, one row for each way to ask."""
    wide = table.pivot(index=["crowd", "asked"], columns="votes_per_item", values="accuracy")
    rows = [[*map(str, names), *(figure(value, 1) for value in row)] for names, row in wide.iterrows()]
    return markdown(["crowd", "asked", *(f"{number:g} votes" for number in wide.columns)], rows)


TABLES: dict[str, tuple[str, Callable[[pd.DataFrame], str]]] = {
    "jury": ("jury", plain),
    "jury gold": ("jury_gold", plain),
    "jury worth": ("jury_worth", plain),
    "soft labels": ("soft_labels", plain),
    "readers": ("readers", plain),
    "paper table 1": ("table_1", against_paper),
    "paper table 2": ("table_2", against_paper),
    "paper sizes": ("rbm_accuracy", paper_sizes),
    "coin tosses": ("coin_tosses", precise),
    "published checks": ("evidence_published_checks", precise),
    "published loo": ("evidence_published_loo", plain),
    "published figures": ("published", published_figures),
    "model choice": ("model_choice", precise),
    "model choice real": ("model_choice_real", chosen_on_real),
    "label stability": ("label_stability", precise),
    "copyists": ("copyists", plain),
    "effective voters": ("effective_voters", plain),
    "check independence": ("check_independence", plain),
    "tree groups": ("tree_groups", tree_groups),
    "partial pooling": ("partial_pooling", pooled),
    "tempered simulated": ("tempered", partial(tempered, part="simulated")),
    "tempered robustness": ("tempered", partial(tempered, part="robustness")),
    "tempered real": ("tempered", partial(tempered, part="real")),
    "pseudo counts": ("pseudo_counts", pseudo_counts),
    "latent spectral dream": ("latent_spectral_dream", plain),
    "deep belief net": ("appendix_variational", partial(plain, below_one=4)),
    "top down chain": ("appendix_top_down", partial(plain, below_one=4)),
    "rbm classes": ("rbm_classes", rbm_classes),
    "decorrelation": ("decorrelation", partial(only, columns=["set", "sizes", "layer", "nats", "at_hand"])),
    "speed": ("speed", partial(only, columns=["what", "unit", "ours", "baseline", "theirs", "ratio", "load_per_core"])),
    "speed crowds": ("speed_crowds", precise),
    "speed ebcc": ("speed_crowds_ebcc", precise),
    "speed dream": ("speed_crowds_dream", precise),
    "speed commands": ("speed_commands", plain),
    "scaling": (
        "scaling",
        partial(
            only, columns=["axis", "size", "method", "seconds", "cpu_seconds", "mib_beyond_input", "load_per_core"]
        ),
    ),
    "limits": ("scaling_limits", precise),
    "table 1": ("table_1", accuracies),
    "table 1 probabilities": ("table_1", partial(by_family, scores=["log_score", "mean_kl"])),
    "table 2": ("table_2", accuracies),
    "magic": ("magic", two_scores),
    "calibration": ("calibration", partial(by_family, scores=["calibration_error_debiased", "mean_kl"])),
    "sbc": ("sbc", least_p_values),
    "sbc methods": ("sbc_methods", precise),
    "s3 correlations": ("figure_s3_correlations", precise),
    "rbm accuracy": ("rbm_accuracy", plain),
    "rbm real": ("rbm_real", against_dawid_skene),
    "label order panels": ("label_order_panels", plain),
    "label order ensembles": ("label_order_ensembles", plain),
    "recommended families": ("recommend_families", plain),
    "recommended sets": ("recommend_sets", plain),
    "recommend coverage": ("recommend_coverage", precise),
    "recommend coins": ("recommend_coins", plain),
    "ties on panels": ("vote_kinds", lambda table: precise(table[table["sets"] == 1].drop(columns=["sets", "keys"]))),
    "ties simulated": ("vote_kinds", lambda table: precise(table[table["sets"] > 1])),
    "soft votes": ("vote_soft", precise),
    "real ensembles": ("real_votes_summary", partial(judged, folder="ensembles")),
    "real sets": ("real_votes", lambda table: set_by_set(table)),
    "real peers": ("real_votes_peers", precise),
    "real crowds": ("real_votes_summary", partial(judged, folder="crowds")),
    "real panels": ("real_votes_summary", partial(judged, folder="panels")),
    "real references": ("real_votes_references", lambda table: plain(mean_by(table, "folder"))),
    "real simulated": ("real_votes_simulated", partial(judged, folder="all")),
    "real simulated kinds": ("real_votes_simulated", lambda table: accuracy_by_kind(table)),
    "cross fit": ("cross_fit", precise),
    "latent spectral guard": ("latent_spectral_guard", plain),
    "layered graph params": ("layered_graph_params", plain),
    "gold": ("gold", precise),
    "gold sets": ("gold_sets", precise),
    "gold simulated": ("gold_simulated", plain),
    "estimate coverage": ("estimate_coverage", partial(coverages, part="real")),
    "estimate kinds": ("estimate_coverage", partial(coverages, part="real", kinds=True)),
    "estimate simulated": ("estimate_coverage", partial(coverages, part="simulated")),
    "estimate errors": ("estimate_errors", thousandths),
    "estimate sets": (
        "estimate_sets",
        partial(only, columns=["set", "coverage", "lowest", "ratio", "worst_ratio"], labels=50),
    ),
    "estimate active": ("estimate_active", thousandths),
    "estimate ask": ("estimate_ask", asked),
    "install": ("install", plain),
    "install commands": ("install_commands", plain),
    "approximations same kl": ("approximations_same_kl", partial(plain, below_one=5)),
    "reference posteriors": ("reference_posteriors", precise),
    "graded": ("graded", precise),
    "approximations 10000": ("approximations", partial(approximations, items=10_000)),
    "runs": (
        "provenance",
        partial(only, columns=["analysis", "seconds", "processor seconds", "cores", "load"], digits=1),
    ),
}
"""Each table's file and what is made of it."""


def result(name: str) -> pd.DataFrame | None:
    """A file of results, if it is there."""
    if name == "provenance":
        return runs()
    path = FOLDER / "results" / f"{name}.csv"
    return pd.read_csv(path) if path.is_file() else None


def runs() -> pd.DataFrame:
    """The last run of each analysis: how long it took, and the versions that it used."""
    entries = json.loads((FOLDER / "results" / "provenance.json").read_text(encoding="utf-8"))
    rows = [{"analysis": name, **entry, **entry["versions"]} for name, entry in entries.items()]
    return pd.DataFrame(rows).rename(columns={"processor": "processor seconds"})


def value_of(table: pd.DataFrame, column: str, form: str, where: str | None) -> str:
    """One number of a table."""
    for condition in filter(None, (where or "").split(";")):
        name, _, wanted = condition.strip().partition("=")
        table = table[table[name].astype(str) == wanted]
    how, _, name = column.partition(" ") if column.split(" ")[0] in AGGREGATES else ("", "", column)
    if not how and len(table) != 1:
        raise ValueError(f"{len(table)} rows, and not one, have {where}")
    found = table[name].agg(how) if how else table[name].iloc[0]
    return str(found) if form == "s" else f"{found:{form}}"


AGGREGATES = ("max", "min", "mean", "median", "sum", "count")


MISSING = "(no such row)"


def written(page: str) -> str:
    """The page with its tables, values and figures as the files have them."""

    def table(found: re.Match[str]) -> str:
        name, make = TABLES[found[2]]
        read = result(name)
        try:
            content = "Not measured yet.\n" if read is None else make(read)
        except Exception as error:  # one table must not keep a run of hours from writing the others
            content = f"{MISSING}\n"
            print(f"{found[1].strip()}: {type(error).__name__}: {error}", file=sys.stderr)
        return f"{found[1]}\n{content}\n{found[3]}"

    def value(found: re.Match[str]) -> str:
        read = result(found[2])
        try:
            content = "(not measured yet)" if read is None else value_of(read, *found.group(3, 4, 5))
        except (KeyError, ValueError, TypeError) as error:
            content = MISSING
            print(f"{found[1]}: {error}", file=sys.stderr)
        return f"{found[1]}{content}{found[6]}"

    def drawn(found: re.Match[str]) -> str:
        content = f"![{found[3]}]({found[2]})" if (FOLDER / found[2]).is_file() else "Not measured yet."
        return f"{found[1]}\n{content}\n\n{found[4]}"

    return DRAWN.sub(drawn, VALUE.sub(value, PLACE.sub(table, page)))


def shown() -> dict[str, list[Path]]:
    """The pages that show each file of results and each figure."""
    found: dict[str, list[Path]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        names = [TABLES[place[2]][0] for place in PLACE.finditer(text)] + [place[2] for place in VALUE.finditer(text)]
        files = [f"{name}.csv" for name in names if name != "provenance"] + FIGURE.findall(text)
        for file in dict.fromkeys(files):
            found.setdefault(file, []).append(page)
    return found


def outdated() -> list[Path]:
    """The pages that differ from the files."""
    return [page for page in PAGES if (text := page.read_text(encoding="utf-8")) != written(text)]


def rewrite() -> None:
    """Bring the pages up to date."""
    for page in outdated():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    if not parser.parse_args().check:
        rewrite()
    elif found := outdated():
        sys.exit(f"{found[0].name} differs from the files in results: run python analyses/pages.py")


if __name__ == "__main__":
    main()
