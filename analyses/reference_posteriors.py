"""Reference posteriors of models with discrete unknowns: parameters by draws, labels by exact marginals.

    python analyses/reference_posteriors.py [--out DIR] [--steps 10000] [--thin 10] [--posteriors DATA-MODEL …]

`DIR/posterior_database` has the layout of posteriordb: data, the model as a NumPyro program, draws of ten chains,
thinned, with what they were checked by, and beside the draws the marginal posterior of every label, averaged over
them. Labels are summed out of the density, so each draw has the exact probabilities of its labels. Each posterior is
sampled a second time by blackjax on `log_density`, and those of Dawid–Skene a third time by a Gibbs sampler that
draws labels and knows nothing of this package. The order of labels follows the votes, draw by draw. Votes, moments and
marginals of those that meet the criteria, without draws, go into one file, `reference_posteriors.json.gz`, which comes
with the package. An interrupted run resumes where it stopped.
"""

import gzip
import inspect
import json
import zipfile
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from common import run
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

import latentens as le
from latentens import Fit, GenerativeModel
from latentens.datasets import load
from latentens.methods import Nuts
from latentens.models import ClassConditional, DawidSkene, HierarchicalDawidSkene, Mace, OneCoin
from latentens.votes import Votes

CHAINS = 10
SIMULATED: dict[str, GenerativeModel] = {
    "simulated_dawid_skene": DawidSkene(5),
    "simulated_one_coin": OneCoin(5, 3),
    "simulated_class_conditional": ClassConditional(5, 3),
    "simulated_mace": Mace(5, 3),
    "simulated_hierarchical": HierarchicalDawidSkene(6),
}
ITEMS = 60
LARGEST_Z = 5.0
"""Means may differ by this many Monte Carlo errors: there are up to 84 parameters and 14 posteriors."""


def cases(seed: int) -> dict[str, tuple[Votes, GenerativeModel]]:
    """Votes and model of each posterior by its name."""
    votes = {name: load(name).votes for name in ("anesthesia", "caries")}
    for number, (name, model) in enumerate(SIMULATED.items()):
        votes[name] = le.simulate(model, ITEMS, key=jax.random.fold_in(jax.random.key(seed), number)).votes
    found: dict[str, tuple[Votes, GenerativeModel]] = {}
    for name, one in votes.items():
        shape = one.num_voters, one.num_classes
        own = [SIMULATED[name]] if name in SIMULATED else [OneCoin(*shape), ClassConditional(*shape)]
        for model in {type(model): model for model in (DawidSkene(*shape), *own)}.values():
            found[f"{name}-{type(model).__name__}"] = one, model
    return found


def thinned(fit: Fit, thin: int) -> dict[str, np.ndarray]:
    assert fit.draws is not None, "NUTS has draws"
    return {name: value[:, thin - 1 :: thin] for name, value in fit.draws.items()}


def by_blackjax(model: GenerativeModel, votes: Votes, key: jax.Array, chains: int, draws: int) -> Fit:
    """A fit from draws of another implementation of NUTS on the same density."""
    density = le.log_density(model, votes)

    def chain(start: jax.Array, key: jax.Array) -> jax.Array:
        tune_key, key = jax.random.split(key)
        (state, settings), _ = blackjax.window_adaptation(blackjax.nuts, density).run(tune_key, start, 500)
        step = blackjax.nuts(density, **settings).step

        def advance(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(advance, state, jax.random.split(key, draws))[1]

    with jax.enable_x64(True):
        keys = jax.random.split(key, chains)
        starts = jnp.stack([jnp.asarray(density.start(one)) for one in keys])
        points = jax.jit(lambda starts, keys: jax.lax.map(lambda pair: chain(*pair), (starts, keys)))(starts, keys)
        return le.fit_from_draws(model, votes, density.unravel(points))


def by_gibbs(votes: Votes, sweeps: int, generator: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws (chain, draw, …) of Dawid–Skene and the labels' marginals, by alternating labels and parameters in NumPy.

    The priors are those that `DawidSkene` documents.
    """
    size = votes.num_classes
    item, voter, vote = (np.asarray(column) for column in votes.triplets[:3])
    counts = np.zeros((votes.num_items, votes.num_voters, size))
    np.add.at(counts, (item, voter, vote), 1)
    rows, place, number = np.unique(counts.reshape(len(counts), -1), axis=0, return_inverse=True, return_counts=True)
    right, wrong = (4.0, 2.0) if size == 2 else (size + 1.0, 1.0)
    prior = np.where(np.eye(size), right, wrong)
    # labels are ordered, as those of a fit, such that the product of their agreements with the votes is greatest
    ballots = rows.reshape(len(rows), -1, size).sum(axis=1)
    ballots = number[:, None] * ballots / ballots.sum(axis=1, keepdims=True)
    orders = np.array(list(permutations(range(size))))
    prevalence, confusion, total = [], [], 0.0
    theta, shares = np.tile(prior / prior.sum(axis=1, keepdims=True), (votes.num_voters, 1, 1)), np.full(size, 1 / size)
    for sweep in range(sweeps + sweeps // 10):
        log_joint = np.log(shares) + rows @ np.log(theta).transpose(0, 2, 1).reshape(-1, size)
        probs = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        labels = generator.multinomial(number, probs)  # how many of the items with each row have each label
        shares = generator.dirichlet(2.0 + labels.sum(axis=0))
        seen = np.einsum("rl,rjv->jlv", labels, rows.reshape(len(rows), -1, size))
        theta = generator.gamma(prior + seen)
        theta /= theta.sum(axis=2, keepdims=True)
        if sweep >= sweeps // 10:
            now = np.exp(np.log(shares) + rows @ np.log(theta).transpose(0, 2, 1).reshape(-1, size))
            now /= now.sum(axis=1, keepdims=True)
            order = orders[np.argmax(np.log(ballots.T @ now + 1 / size)[np.arange(size), orders].sum(axis=1))]
            prevalence.append(shares[order])
            confusion.append(theta[:, order])
            total = total + now[:, order] / sweeps
    draws = {"prevalence": np.stack(prevalence)[None], "confusion": np.stack(confusion)[None]}
    return draws, np.asarray(total)[place.ravel()]


def ess_of(values: np.ndarray) -> np.ndarray:
    """Effective sample size of each element of (chain, draw, …)."""
    return np.atleast_1d(effective_sample_size(values))


def largest_z(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest difference of two runs' means, in Monte Carlo standard errors."""
    largest = 0.0
    for name, one in ours.items():
        other = theirs[name]
        error = one.var(axis=(0, 1)) * (1 / ess_of(one) + 1 / ess_of(other)).reshape(one.shape[2:])
        largest = max(largest, float(np.max(np.abs(one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / np.sqrt(error))))
    return largest


def reference(name: str, votes: Votes, model: GenerativeModel, steps: int, thin: int, key: jax.Array) -> dict[str, Any]:
    """Draws, marginals and what they were checked by."""
    nuts_key, other_key = jax.random.split(key)
    method = Nuts(model, num_chains=CHAINS, num_warmup=1000, num_samples=steps, target_accept=0.9)
    fit = method.fit(votes, key=nuts_key)
    draws = thinned(fit, thin)
    energy = np.asarray(fit.diagnostics["sample_stats"].get("energy", np.nan))
    marginals = le.fit_from_draws(model, votes, draws).label_probs
    r_hat = max(float(np.max(split_gelman_rubin(value))) for value in draws.values())
    ess = min(float(ess_of(value).min()) for value in draws.values())
    checks = {"r_hat": r_hat, "ess": ess, "divergences": fit.diagnostics["divergences"]}
    if np.ndim(energy) == 2:
        checks["e_fmi"] = float(((np.diff(energy, axis=1) ** 2).mean(axis=1) / energy.var(axis=1)).min())
    other = by_blackjax(model, votes, other_key, 4, max(steps // 4, 50))
    assert other.draws is not None, "it is made of draws"
    checks["blackjax_z"] = largest_z(draws, dict(other.draws))
    checks["blackjax_labels"] = float(np.abs(other.label_probs - marginals).max())
    if isinstance(model, DawidSkene):
        gibbs, labels = by_gibbs(votes, 5 * steps, np.random.default_rng(0))
        checks["gibbs_z"] = largest_z(draws, gibbs)
        checks["gibbs_labels"] = float(np.abs(labels - marginals).max())
    return {"name": name, "draws": draws, "marginals": marginals, "checks": checks}


def meets_criteria(checks: dict[str, float]) -> bool:
    """Chains agree, draws are nearly independent, none diverged, and the other samplers find the same means."""
    agree = max(checks["blackjax_z"], checks.get("gibbs_z", 0.0)) < LARGEST_Z
    return agree and checks["r_hat"] < 1.01 and checks["ess"] > 5000 and checks["divergences"] == 0


def dump(path: Path, content: Any) -> None:
    """JSON, zipped if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=None if path.suffix == ".zip" else 2)
    if path.suffix != ".zip":
        path.write_text(text, encoding="utf-8")
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(path.stem, text)


def write_entry(root: Path, votes: Votes, model: GenerativeModel, found: dict[str, Any], thin: int) -> None:
    """The files of one posterior in posteriordb's layout."""
    name, kind = found["name"], type(model).__name__
    data = name.removesuffix(f"-{kind}")
    draws, references = found["draws"], root / "reference_posteriors"
    shapes = {parameter: list(value.shape[2:]) for parameter, value in draws.items()}
    triplets = {key: np.asarray(c).tolist() for key, c in zip(("item", "voter", "vote"), votes.triplets, strict=False)}
    sizes = {"items": votes.num_items, "voters": votes.num_voters, "classes": votes.num_classes}
    dump(root / "data" / "data" / f"{data}.json.zip", sizes | triplets)
    dump(root / "data" / "info" / f"{data}.info.json", {"name": data, "title": f"Votes: {data}", "keywords": []})
    (root / "models" / "numpyro").mkdir(parents=True, exist_ok=True)
    program = inspect.getsource(inspect.getmodule(type(model)) or type(model))
    (root / "models" / "numpyro" / f"{kind}.py").write_text(program, encoding="utf-8")
    implementation = {"numpyro": {"model_code": f"models/numpyro/{kind}.py"}}
    dump(root / "models" / "info" / f"{kind}.info.json", {"name": kind, "model_implementations": implementation})
    entry = {"name": name, "data_name": data, "model_name": kind, "reference_posterior_name": name}
    dump(root / "posteriors" / f"{name}.json", entry | {"model_settings": settings_of(model), "dimensions": shapes})
    elements = [
        {
            f"{parameter}[{','.join(str(i + 1) for i in index)}]" if index else parameter: chain[(..., *index)].tolist()
            for parameter, value in draws.items()
            for chain in [value[number]]
            for index in np.ndindex(*value.shape[2:])
        }
        for number in range(CHAINS)
    ]
    dump(references / "draws" / "draws" / f"{name}.json.zip", elements)
    inference = {"method": "nuts", "chains": CHAINS, "thin": thin, "draws": int(next(iter(draws.values())).shape[1])}
    dump(references / "draws" / "info" / f"{name}.info.json", {"name": name, "inference": inference} | found["checks"])
    dump(references / "label_marginals" / f"{name}.json", found["marginals"].round(6).tolist())


def settings_of(model: GenerativeModel) -> dict[str, Any]:
    """The settings that are not defaults, as JSON."""
    default = {name: field.default for name, field in type(model).__dataclass_fields__.items()}
    return {name: value for name, value in asdict(model).items() if value is not None and value != default[name]}


def summary_of(votes: Votes, model: GenerativeModel, found: dict[str, Any], simulated: bool) -> dict[str, Any]:
    """Moments of the parameters and marginals of the labels; of items with the same votes only the first."""
    params = {
        name: {"mean": value.mean(axis=(0, 1)).round(6).tolist(), "deviation": value.std(axis=(0, 1)).round(6).tolist()}
        for name, value in found["draws"].items()
    }
    kept = {} if not simulated else {"votes": votes.matrix.astype(int).tolist()}
    marginals = found["marginals"]
    if not simulated:
        _, first = np.unique(marginals.round(9), axis=0, return_index=True)
        kept["items"] = np.sort(first).tolist()
        marginals = marginals[np.sort(first)]
    about = {"model": type(model).__name__, "settings": settings_of(model), "checks": found["checks"]}
    return about | {"params": params, "label_probs": marginals.round(5).tolist()} | kept


def main(
    data: Path | None,
    out: Path,
    seed: int,
    steps: int = 10_000,
    thin: int = 10,
    posteriors: tuple[str, ...] = ("",),
) -> pd.DataFrame:
    del data  # what is not simulated comes with the package
    root, parts = out / "posterior_database", out / "reference_posteriors"
    summaries = {}
    for number, (name, (votes, model)) in enumerate(cases(seed).items()):
        if not name.startswith(tuple(posteriors)):
            continue
        path = parts / f"{name}.json"
        if not path.is_file():
            key = jax.random.fold_in(jax.random.key(seed + 1), number)
            found = reference(name, votes, model, steps, thin, key)
            write_entry(root, votes, model, found, thin)
            dump(path, summary_of(votes, model, found, name.startswith("simulated")))
            print(name, {check: round(value, 4) for check, value in found["checks"].items()}, flush=True)
        summaries[name] = json.loads(path.read_text(encoding="utf-8"))
    good = {name: summary for name, summary in summaries.items() if meets_criteria(summary["checks"])}
    with (out / "reference_posteriors.json.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
        file.write(json.dumps(good).encode())
    table = pd.DataFrame({name: summary["checks"] for name, summary in summaries.items()}).T
    table["shipped"] = [name in good for name in table.index]
    table.index.name = "posterior"
    table.to_csv(out / "reference_posteriors.csv")
    print(table.round(4).to_string())
    return table


if __name__ == "__main__":
    run(main, __doc__)
