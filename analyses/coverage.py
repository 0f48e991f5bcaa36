"""How often the 90 % intervals of NUTS hold the true parameters, over data sets simulated from the priors.

    python analyses/coverage.py [--datasets 100] [--items 500] [--voters 6] [--seed 1] [--out out/coverage.csv]

Parameters are drawn from the priors of Dawid–Skene, data from the parameters; the intervals of a correct sampler then
hold the truth in 90 % of the cases. Voters worse than chance on the whole are drawn as well; label switching is
resolved by the votes, so a data set whose majority is wrong counts against the coverage.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from rich.progress import track

from latentens import simulate
from latentens.methods import Nuts
from latentens.models import DawidSkene


def main(datasets: int, items: int, voters: int, seed: int, out: Path) -> pd.DataFrame:
    model, records = DawidSkene(voters), []
    method = Nuts(model, num_chains=2, num_warmup=300, num_samples=500)
    for number in track(range(datasets), description="coverage"):
        data_key, fit_key = jax.random.split(jax.random.key(seed + number))
        dataset = simulate(model, items, key=data_key)
        fit = method.fit(dataset.votes, key=fit_key)
        assert fit.draws is not None
        assert dataset.params is not None
        for name, draws in fit.draws.items():
            low, high = np.quantile(draws, [0.05, 0.95], axis=(0, 1))
            held = (low <= dataset.params[name]) & (dataset.params[name] <= high)
            worst = max(fit.diagnostics["r_hat"].values())
            records += [(number, name, bool(value), worst) for value in np.ravel(held)]
    frame = pd.DataFrame(records, columns=["dataset", "parameter", "held", "worst_r_hat"])
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out, index=False)
    by_parameter = frame.groupby("parameter")["held"].agg(["mean", "size"])
    overall = frame.groupby("dataset")["held"].mean()
    print(by_parameter.round(3))
    print(f"overall {overall.mean():.3f} ± {overall.std() / np.sqrt(len(overall)):.3f}")
    return frame


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--voters", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/coverage.csv"))
    main(**vars(parser.parse_args()))
