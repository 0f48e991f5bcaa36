"""Outputs of the command in two checkouts, side by side: the net under a refactoring.

    python analyses/golden.py record FOLDER [--checkout PATH]   runs the commands of a checkout, by default of this one
    python analyses/golden.py differ BEFORE AFTER               says what differs between two such folders

Recorded are six small comparisons (every array of their trees, CSV files, the words of their pages), fits of single
methods, the public names of every package, and the answers to bad input. Votes are drawn by NumPy alone, so that both
checkouts see the same files. Numbers are compared as numbers, words as words; which differences were meant is for the
reader to say.
"""

import argparse
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

QUICK = ("MajorityVote", "DawidSkeneEM", "Glad", "Ebcc", "Tempered(DawidSkeneEM)")
BINARY = (*QUICK, "SpectralMetaLearner", "LatentSpectral", "RBMStack", "MaximumLikelihood(DawidSkene)")

COMPARISONS = {
    "binary": ("--votes", "binary.csv", "--truth", "binary_truth.csv", *BINARY),
    "three": ("--votes", "three.csv", "--gold", "three_gold.csv", *QUICK, "RBMStack", "Stacked(DawidSkeneEM)"),
    "crowd": ("--votes", "crowd.csv", *QUICK, "Consensus"),
    "repeats": ("--votes", "repeats.csv", "--duplicates", "keep", "DawidSkeneEM", "MajorityVote"),
    "checks": ("--votes", "binary.csv", "--checks", "--folds", "3", "DawidSkeneEM", "MaximumLikelihood(DawidSkene)"),
    "simulated": ("--model", "Tree", "--items", "1000", "DawidSkeneEM", "TreeMLE", "MaximumLikelihood(Tree)"),
}

FITS = {
    "nuts": ("fit", "Nuts(DawidSkene, num_chains=2, num_warmup=100, num_samples=50)", "binary.csv"),
    "hierarchical": ("fit", "MaximumLikelihood(HierarchicalDawidSkene)", "crowd.csv"),
    "cubam": ("fit", "Cubam", "binary.csv"),
    "top_down": ("fit", "TopDownMLE", "binary.csv"),
}

BAD_INPUT = {
    "no file": ("fit", "DawidSkeneEM", "nowhere.csv", "--out", "labels.csv"),
    "no method": ("fit", "DawidSkin", "binary.csv", "--out", "labels.csv"),
    "bad setting": ("fit", "Glad(tolerance=-1)", "binary.csv", "--out", "labels.csv"),
    "no such setting": ("fit", "Glad(tolerances=1)", "binary.csv", "--out", "labels.csv"),
    "two classes only": ("fit", "Cubam", "three.csv", "--out", "labels.csv"),
    "repeated votes": ("fit", "DawidSkeneEM", "repeats.csv", "--out", "labels.csv"),
    "empty file": ("fit", "DawidSkeneEM", "empty.csv", "--out", "labels.csv"),
    "one class": ("fit", "DawidSkeneEM", "constant.csv", "--out", "labels.csv"),
    "unknown gold label": ("fit", "DawidSkeneEM", "three.csv", "--gold", "strange_gold.csv", "--out", "labels.csv"),
    "unknown anchor": ("fit", "DawidSkeneEM", "three.csv", "--anchor", "nobody", "--out", "labels.csv"),
    "folder that is a file": ("compare", "--votes", "binary.csv", "-m", "MajorityVote", "--out", "binary.csv"),
    "unknown column": ("check", "binary.csv", "--item", "nothing"),
    "no model": ("simulate", "Forest", "--out", "forest.csv"),
}


def write_votes(folder: Path) -> None:
    """The files that the commands read."""
    rng = np.random.default_rng(20)
    label = rng.integers(0, 2, 400)
    wrong = rng.random((400, 7)) > [0.9, 0.8, 0.75, 0.7, 0.7, 0.65, 0.6]
    wrong[:, 1] = np.where(rng.random(400) < 0.5, wrong[:, 0], wrong[:, 1])  # a copyist
    names = [f"judge {number}" for number in range(1, 8)]
    items = [f"q{number}" for number in range(1, 401)]
    binary = pd.DataFrame(label[:, None] ^ wrong, index=pd.Index(items, name="item"), columns=names)
    binary.astype(int).replace({0: "no", 1: "yes"}).to_csv(folder / "binary.csv")
    truth = pd.Series(np.array(["no", "yes"])[label], index=binary.index)
    truth.rename("truth").to_csv(folder / "binary_truth.csv")

    label = rng.integers(0, 3, 300)
    shown = np.where(rng.random((300, 6)) < 0.7, label[:, None], rng.integers(0, 3, (300, 6)))
    three = pd.DataFrame(np.array(["a", "b", "c"])[shown], index=pd.Index(range(300), name="item"), columns=names[:6])
    three.mask(rng.random((300, 6)) < 0.15).to_csv(folder / "three.csv")
    gold = pd.Series(np.array(["a", "b", "c"])[label], index=three.index).sample(60, random_state=1)
    gold.rename("gold").to_csv(folder / "three_gold.csv")
    gold[:5].replace({"a": "z", "b": "z", "c": "z"}).rename("gold").to_csv(folder / "strange_gold.csv")

    label = rng.integers(0, 3, 500)
    item = np.repeat(np.arange(500), 4)
    voter = np.concatenate([rng.choice(30, 4, replace=False) for _ in range(500)])
    skill = rng.uniform(0.4, 0.95, 30)
    vote = np.where(rng.random(2000) < skill[voter], label[item], rng.integers(0, 3, 2000))
    crowd = pd.DataFrame({"item": item, "voter": [f"w{number}" for number in voter], "vote": vote})
    crowd.to_csv(folder / "crowd.csv", index=False)
    again = crowd[crowd["item"] < 150]
    pd.concat([again, again.sample(80, random_state=2)]).to_csv(folder / "repeats.csv", index=False)

    (folder / "empty.csv").write_text("")
    binary.iloc[:5].map(lambda _: "yes").to_csv(folder / "constant.csv")


def run_command(checkout: Path, folder: Path, *arguments: str) -> dict[str, object]:
    """What a command of a checkout prints, and its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "latentens", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return {"exit": done.returncode, "out": done.stdout, "err": done.stderr}


def record(folder: Path, checkout: Path) -> None:
    """Run everything in a checkout and keep what it wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    write_votes(folder)
    said = {}
    for name, arguments in COMPARISONS.items():
        # names of methods have capitals, files and options have not
        methods = [word for word in arguments if word[0].isupper() and word != "Tree"]
        rest = [word for word in arguments if word not in methods]
        flags = [flag for method in methods for flag in ("-m", method)]
        said[name] = run_command(checkout, folder, "compare", *rest, *flags, "--workers", "1", "--out", name)
        print(name, said[name]["exit"], flush=True)
    for name, arguments in FITS.items():
        files = ("--out", f"{name}_labels.csv", "--voters", f"{name}_voters.csv")
        said[name] = run_command(checkout, folder, *arguments, *files)
        print(name, said[name]["exit"], flush=True)
    said["check"] = run_command(checkout, folder, "check", "binary.csv")
    for name, arguments in BAD_INPUT.items():
        said[name] = run_command(checkout, folder, *arguments)
    (folder / "said.json").write_text(json.dumps(said, indent=1))


def words_of(page: Path) -> list[str]:
    """The sentences of a page, figures and numbers aside."""
    text = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>|<[^>]+>", "\n", page.read_text())
    return [re.sub(r"[-−+]?\d[\d.,]*", "#", line.strip()) for line in html.unescape(text).splitlines() if line.strip()]


def differing_arrays(before: Path, after: Path) -> list[str]:
    """Arrays of two trees that differ, or that only one has."""
    trees = []
    for path in (before, after):
        tree = xr.open_datatree(path, engine="h5netcdf")
        trees.append({f"{node.path}/{name}": value for node in tree.subtree for name, value in node.data_vars.items()})
    said = [f"only before: {name}" for name in trees[0].keys() - trees[1].keys()]
    said += [f"only after: {name}" for name in trees[1].keys() - trees[0].keys()]
    for name in trees[0].keys() & trees[1].keys():
        one, other = (np.asarray(found[name]) for found in trees)
        if re.search(r"seconds|memory", name):
            continue
        if one.shape != other.shape:
            said.append(f"{name}: shape {one.shape}, then {other.shape}")
        elif one.dtype.kind in "fiub" and not np.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True):
            said.append(f"{name}: differs by up to {np.nanmax(np.abs(one.astype(float) - other)):.2e}")
        elif one.dtype.kind not in "fiub" and (one.astype(str) != other.astype(str)).any():
            said.append(f"{name}: other words")
    return sorted(said)


def without_times(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that hold neither seconds nor bytes."""
    measured = table.astype(str).apply(lambda column: column.str.contains("seconds|memory")).any(axis=1)
    return table[~measured].reset_index(drop=True)


def differing_tables(before: Path, after: Path) -> list[str]:
    if before.read_bytes() == after.read_bytes():
        return []
    one, other = (without_times(pd.read_csv(path)) for path in (before, after))
    if list(one.columns) != list(other.columns) or len(one) != len(other):
        return [f"columns or rows: {one.shape}, then {other.shape}"]
    numbers = one.select_dtypes("number").columns.intersection(other.select_dtypes("number").columns)
    said = [
        f"{name}: differs by up to {(one[name] - other[name]).abs().max():.2e}"
        for name in numbers
        if not np.allclose(one[name], other[name], rtol=1e-6, atol=1e-8, equal_nan=True)
    ]
    rest = one.columns.difference(numbers)
    return said + [f"{name}: other words" for name in rest if not one[name].equals(other[name])]


def differ(before: Path, after: Path) -> None:
    """Say what differs between two recorded folders."""
    for path in sorted(before.rglob("*")):
        other = after / path.relative_to(before)
        if path.suffix not in (".csv", ".nc", ".html") or "cells" in path.parts:
            continue
        if not other.exists():
            said = ["is missing"]
        elif path.suffix == ".csv":
            said = differing_tables(path, other)
        elif path.suffix == ".nc":
            said = differing_arrays(path, other)
        else:
            one, two = words_of(path), words_of(other)
            said = [f"- {line}" for line in one if line not in two] + [f"+ {line}" for line in two if line not in one]
        print(f"{path.relative_to(before)}: {'the same' if not said else ''}")
        print("".join(f"    {line}\n" for line in said), end="")
    one, two = (json.loads((folder / "said.json").read_text()) for folder in (before, after))
    for name in one:
        if one[name]["exit"] != two[name]["exit"] or (one[name]["exit"] == 2 and one[name]["err"] != two[name]["err"]):
            print(f"{name}: exit {one[name]['exit']} {one[name]['err'].strip()}")
            print(f"{' ' * len(name)}  then {two[name]['exit']} {two[name]['err'].strip()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    recording.set_defaults(run=lambda asked: record(asked.folder.resolve(), asked.checkout.resolve()))
    differing = commands.add_parser("differ")
    differing.add_argument("before", type=Path)
    differing.add_argument("after", type=Path)
    differing.set_defaults(run=lambda asked: differ(asked.before, asked.after))
    asked = parser.parse_args()
    asked.run(asked)
