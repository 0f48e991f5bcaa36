"""Plate diagrams of the generative models, drawn by NumPyro from their programs.

    python analyses/plates.py [--out analyses/figures/plates]

Writes one SVG per model; the page of models shows them. Needs Graphviz (the program `dot`, and `pip install graphviz`).
Votes are observed, and so are grey.
"""

import argparse
import re
from pathlib import Path

import numpy as np
import numpyro

from latentens import models
from latentens.programs import GenerativeModel

FOLDER = Path(__file__).parent / "figures" / "plates"
VOTERS = 6
STRUCTURES = {
    "Tree": models.Tree((0, 0, 0, 1, 1, 1)),
    "TopDown": models.TopDown(VOTERS, 2),
    "LayeredGraph": models.LayeredGraph(VOTERS, (2, 2)),
}
MODELS: dict[str, GenerativeModel] = {
    name: STRUCTURES.get(name) or getattr(models, name)(VOTERS) for name in models.__all__
}


def drawn(model: GenerativeModel) -> str:
    """The diagram as SVG, without the comments that name the version of Graphviz."""
    votes = np.zeros((2, VOTERS), int)
    graph = numpyro.render_model(model.program, model_args=(len(votes),), model_kwargs={"votes": votes})
    graph.attr(label=type(model).__name__, labelloc="t", fontsize="16")
    text = graph.pipe(format="svg", encoding="utf-8")
    return re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, model in MODELS.items():
        (out / f"{name}.svg").write_text(drawn(model), encoding="utf-8")
        print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
