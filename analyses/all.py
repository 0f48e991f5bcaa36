"""One run of everything: every table and figure of every page, from the present code.

    python analyses/all.py [--data ROOT] [--out out] [--only NAME …] [--quick] [--again] [--check]

Analyses run side by side, one per core, those that measure speed alone and last. One whose results are up to date is
left out (`--again` runs it nevertheless), one that fails is reported and the others continue. An interrupted run goes
on where it stopped: each analysis keeps its finished work in DIR/NAME, and comparisons keep their fits in DIR/fits. As
soon as an analysis has ended, its tables and figures that a page shows are copied to `results/` and `figures/`, the
pages are written from them, and `results/provenance.json` records version, code, seed, data, seconds and load.

Sizes are such that all of it takes less than an hour on two cores: sets, keys, draws and resamples are few, and slow
methods run on fewer sets than quick ones. A larger run is that of a script by its options (`gold.py --draws 5`).

`--check` runs nothing and lists the results whose code has changed since, with the pages that show them. `--quick` runs
every analysis with tiny settings, to see that it runs, and publishes nothing.
"""

import argparse
import hashlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pages
import sources

FOLDER = Path(__file__).parent
PROVENANCE = FOLDER / "results" / "provenance.json"
PACKAGES = ("latentens", "jax", "numpyro", "numpy", "scipy")

ANALYSES = {
    "real_votes": "--keys 1 --simulated 0 --methods MajorityVote DawidSkeneEM --sets cmc bluebird",
    "vote_kinds": "--sets 1 --keys 1 --methods MajorityVote DawidSkeneEM --designs 'uninformative, 2 classes'",
    "vote_soft": "--sets 1 --keys 1 --designs 'calibrated, 2 classes'",
    "approximations": "--sets 1 --items 60 --draws 40 --models DawidSkene --methods NUTS Laplace",
    "table_1": "--sets 1 --items 200 --families condInd --methods Vote SML",
    "gold": "--draws 1 --sets 1 --items 300 --parts simulated",
    "recommend": "--sets 1 --items 100 --twins 1 --repetitions 1 --quick 1 --parts families",
    "sbc": "--simulations 2 --items 20 --draws 9 --warmup 20 --models DawidSkene --methods Nuts --alarms 2",
    "reference_posteriors": "--steps 20 --thin 1 --posteriors anesthesia",
    "estimate": "--fewer 50 --sets 1 --items 100 --parts simulated",
    "model_choice": "--sets 1 --items 200 --families condInd --real S0",
    "label_stability": "--sets 1 --items 200 --families condInd",
    "effective_voters": "--sets 1 --items 200 --resamples 2 --families condInd",
    "label_order": "--keys 1 --methods MajorityVote",
    "rbm_real": "--keys 1 --kinds crowds Tree --sets 1 --items 400",
    "cross_fit": "--sets 1 --items 200 --sources condInd --programs condInd",
    "partial_pooling": "--sets 1 --items 60 --voters 8 --draws 20",
    "tempered": "--sets 1 --items 80 --parts robustness",
    "figure_s3_correlations": "--epochs 1 --trainings 'persistent chains'",
    "table_2": "--methods Vote SML",
    "magic": "--blocks 1 --methods Vote SML",
    "calibration": "--families condInd --methods Vote",
    "latent_spectral_dream": "--sizes 3",
    "evidence_published": "--draws 20",
    "published": "--fits em --random-starts 10",
    "rbm_accuracy": "--keys 1 --names condInd/1",
    "check_independence": "--simulations 1",
    "coin_tosses": "--sets 2",
    "copyists": "--sets 1 --items 200",
    "appendix_variational": "--most-items 200 --sweeps coupling",
    "appendix_top_down": "--draws 1 --items 200 --overlaps 0.1",
    "latent_spectral_guard": "--sets 1 --keys 1 --items 500",
    "layered_graph_params": "--max-iterations 5",
    "pseudo_counts": "--sets 1 --items 60 --voters 10 --classes 2 --votes 3",
    "graded": "--sets 1 --items 60 --keys 0 --designs 'response styles'",
    "tree_groups": "--sets 1 --items 300 --classes 3",
    "rbm_classes": "--sets 1 --items 300 --classes 3",
    "decorrelation": "--items 300 --families condInd",
    "jury": "--draws 1 --parts gold",
    "soft_labels": "--sets 1",
    "readers": "",
    "figure_correlations": "",
    "figure_rbm_weights": "",
    "figure_recovery": "",
    "figure_singular_values": "",
    "figure_tree": "",
    "guide": "crowd",
    "speed": "--small 1",
    "speed_crowds": "--parts crowds --shapes 1",
    "speed_commands": "--names fit-em",
    "scaling": "--largest 2e5 --axes items",
}
"""What stands on the pages, long ones first, with the settings of a quick run; files begin with the analysis' name."""

ALONE = ("speed", "speed_crowds", "speed_commands", "scaling")
"""Measurements of speed: nothing runs beside them."""

ON_DEMAND = ("reference_posteriors",)
"""Runs of hours whose outcome comes with the package: only by `--only`."""

SCRIPTS = {"guide": FOLDER / "guide" / "figures.py"}
"""Scripts that are not called as their analysis."""

BY_HAND = ("install.csv", "install_commands.csv", "report.png")
"""New environments, by `install.py`, which needs an index of packages; a picture of a browser's window, by
`guide/report_picture.py`, which needs chromium."""


def script_of(name: str) -> Path:
    return SCRIPTS.get(name, FOLDER / f"{name}.py")


@cache
def code_of(name: str) -> dict[str, str]:
    """The code that an analysis runs through, a hash for each module."""
    extra = sorted((FOLDER / "guide").glob("*.md")) if name == "guide" else []
    return {module: digest for path in (script_of(name), *extra) for module, digest in sources.code_of(path).items()}


def owner_of(file: str) -> str | None:
    """The analysis that makes a file: the longest name that the file's begins with."""
    return max((name for name in ANALYSES if file.startswith(name)), key=len, default=None)


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def digest_of_data(data: Path | None) -> str | None:
    """Names and sizes of all files, as a hash."""
    if data is None:
        return None
    files = sorted((str(path.relative_to(data)), path.stat().st_size) for path in data.rglob("*") if path.is_file())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:12]


def published(file: str) -> Path:
    return FOLDER / ("figures" if file.endswith(".png") else "results") / file


def recorded() -> dict[str, dict[str, Any]]:
    """What is known of the last run of each analysis."""
    return json.loads(PROVENANCE.read_text(encoding="utf-8")) if PROVENANCE.is_file() else {}


def record(entries: dict[str, dict[str, Any]]) -> None:
    """One line for each analysis."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(entries.items())]
    part = PROVENANCE.with_suffix(".part")
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    part.replace(PROVENANCE)


def changes(name: str, entry: dict[str, Any] | None) -> list[str]:
    """Why the results of an analysis are not those of the present code; nothing if they are."""
    if entry is None:
        return ["never recorded"]
    now, then = code_of(name), entry["code"]
    found = [module for module in sorted({*now, *then}) if now.get(module) != then.get(module)]
    lost = [file for file, digest in entry["files"].items() if not matches(file, digest)]
    return found + [f"{file} is not the one that was recorded" for file in lost]


def matches(file: str, digest: str) -> bool:
    return published(file).is_file() and digest_of(published(file)) == digest


def check() -> int:
    """Say which results are older than their code, and which pages show them; the number of such analyses."""
    entries, shown, stale = recorded(), pages.shown(), 0
    for name in ANALYSES:
        if why := changes(name, entries.get(name)):
            stale += 1
            where = sorted({page.name for file in shown if owner_of(file) == name for page in shown[file]})
            more = f" and {len(why) - 4} more" if len(why) > 4 else ""
            print(f"{name}: {', '.join(why[:4])}{more}; shown in {', '.join(where) or 'no page'}")
    print(f"{len(ANALYSES) - stale} of {len(ANALYSES)} analyses are up to date")
    return stale


@dataclass
class Run:
    """The settings of a run, and what is under way."""

    data: Path | None
    out: Path
    seed: int
    quick: bool
    again: bool
    entries: dict[str, dict[str, Any]] = field(default_factory=recorded)
    children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False

    def is_due(self, name: str) -> bool:
        entry = self.entries.get(name)
        if self.quick or self.again or entry is None or changes(name, entry):
            return True
        return (entry["seed"], entry["data"]) != (self.seed, digest_of_data(self.data))

    def folder(self, name: str) -> Path:
        """Where an analysis works; what other code than the present one has left there is removed."""
        folder = self.out / name
        if state(folder).get("code") != code_of(name):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            keep_state(folder, code=code_of(name), seconds=0.0)
        return folder

    def call(self, name: str, cores: Sequence[int]) -> dict[str, Any]:
        """Run an analysis in a process of its own, its words in DIR/NAME.log."""
        folder, alone = self.folder(name), name in ALONE
        command = [sys.executable, str(script_of(name)), "--out", str(folder), "--seed", str(self.seed)]
        command += ["--data", str(self.data)] if self.data else []
        command += shlex.split(ANALYSES[name]) if self.quick else []
        environment = {**os.environ, "MPLBACKEND": "agg", "LOKY_MAX_CPU_COUNT": str(len(cores))}
        if not alone:  # programs that one analysis has compiled serve the others
            environment |= {"JAX_COMPILATION_CACHE_DIR": str((self.out / "compiled").absolute())}
            environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
        start, load = time.perf_counter(), os.getloadavg()[0]
        with (self.out / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            self.children.add(child)
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(child.pid, cores)
            _, status, usage = os.wait4(child.pid, 0)
            code = child.returncode = os.waitstatus_to_exitcode(status)
            self.children.discard(child)
        seconds = state(folder)["seconds"] + time.perf_counter() - start
        keep_state(folder, code=code_of(name), seconds=0.0 if code == 0 else seconds)
        about = {
            "seconds": seconds,
            "processor": usage.ru_utime + usage.ru_stime,
            "load": (load + os.getloadavg()[0]) / 2,
        }
        return {"exit": code, "cores": len(cores)} | {name: round(value, 1) for name, value in about.items()}

    def finish(self, name: str, found: dict[str, Any]) -> None:
        """Publish the results of an analysis, and record where they come from."""
        with self.lock:
            before = self.entries.get(name, {})
            if self.quick or found["exit"] or (before.get("data") and self.data is None):
                return
            files = [file for file in pages.shown() if owner_of(file) == name and (self.out / name / file).is_file()]
            for file in files:
                shutil.copy(self.out / name / file, published(file))
            about = {key: value for key, value in found.items() if key != "exit"}
            about |= {"seed": self.seed, "data": digest_of_data(self.data)}
            about |= {"versions": {package: version(package) for package in PACKAGES}}
            about |= {"files": {file: digest_of(published(file)) for file in sorted(files)}}
            self.entries = recorded() | {name: about | {"code": code_of(name)}}  # with those of a run beside this one
            record(self.entries)
            pages.rewrite()

    def expected(self, name: str) -> float | None:
        return self.entries.get(name, {}).get("seconds")

    def stop(self) -> None:
        self.stopped = True
        for child in list(self.children):
            child.terminate()


def state(folder: Path) -> dict[str, Any]:
    """The code that the kept work of an analysis was made by, and the seconds that it has taken so far."""
    path = folder / "state.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def keep_state(folder: Path, **about: Any) -> None:
    (folder / "state.json").write_text(json.dumps(about), encoding="utf-8")


def time_left(waiting: dict[str, float | None], cores: int) -> str:
    """How long analyses took last time: those that measure speed one after the other, the others on all cores."""
    alone = sum(seconds or 0.0 for name, seconds in waiting.items() if name in ALONE)
    beside = [seconds or 0.0 for name, seconds in waiting.items() if name not in ALONE]
    minutes = (alone + max([sum(beside) / cores, *beside])) / 60
    unknown = sum(seconds is None for seconds in waiting.values())
    return f"about {minutes:.0f} min" + (f" and {unknown} never timed" if unknown else "")


def run(settings: Run, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run analyses side by side, and those that measure speed one after the other at the end."""
    everywhere = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    free: queue.Queue[int] = queue.Queue()
    for core in everywhere:
        free.put(core)
    found: dict[str, dict[str, Any]] = {}
    waiting = {name: settings.expected(name) for name in names}

    def one(name: str, cores: Sequence[int] | None) -> dict[str, Any]:
        core = free.get() if cores is None else -1
        try:
            if settings.stopped:
                return {"exit": -1}
            outcome = settings.call(name, [core] if cores is None else cores)
            settings.finish(name, outcome)
            return outcome
        finally:
            if cores is None:
                free.put(core)

    def tell(name: str, outcome: dict[str, Any]) -> None:
        found[name] = outcome
        del waiting[name]
        how = "done" if outcome["exit"] == 0 else f"FAILED, see {settings.out / f'{name}.log'};"
        rest = f"{time_left(waiting, len(everywhere))} left" if waiting else "all done"
        taken = f"{outcome.get('seconds', 0)} s ({outcome.get('processor', 0)} s of processor time)"
        print(f"{len(found)} of {len(names)}: {name} {how} in {taken}; {rest}", flush=True)

    if waiting:
        print(f"{time_left(waiting, len(everywhere))} by the last run", flush=True)
    order = sorted(names, key=lambda name: -(settings.expected(name) or float("inf")))
    with ThreadPoolExecutor(len(everywhere)) as pool:
        try:
            jobs: dict[Future[dict[str, Any]], str] = {
                pool.submit(one, name, None): name for name in order if name not in ALONE
            }
            for job in as_completed(jobs):
                tell(jobs[job], job.result())
            for name in (name for name in names if name in ALONE):
                tell(name, one(name, everywhere))
        except BaseException:
            settings.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the data; without it the simulated analyses run")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the work and its logs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=tuple(ANALYSES), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="tiny settings, nothing is published")
    parser.add_argument("--again", action="store_true", help="run what is up to date, too")
    parser.add_argument("--check", action="store_true", help="only list what is out of date")
    given = parser.parse_args(arguments)
    if given.check:
        return int(check() > 0)
    out = given.out / "quick" if given.quick else given.out
    out.mkdir(parents=True, exist_ok=True)
    settings = Run(given.data, out, given.seed, given.quick, given.again)
    wanted = given.only or [name for name in ANALYSES if name not in ON_DEMAND]
    names = [name for name in ANALYSES if name in wanted and settings.is_due(name)]
    print(f"{len(wanted) - len(names)} analyses are up to date, {len(names)} run", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(settings, names)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here")
        return 130
    failed = [name for name, outcome in found.items() if outcome["exit"]]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
