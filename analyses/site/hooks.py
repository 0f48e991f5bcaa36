"""Pages of the site: documents of the repository at the same paths, so that their links hold, and one page per package.

Nothing is copied into the repository. The start page is `start.md` followed by the README from its installation on.
"""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("CHANGELOG.md", "CONTRIBUTING.md", "models/README.md", "latentens/methods/README.md")
FIGURES = ("analyses/figures/*.png", "analyses/figures/plates/*.svg")
PATTERNS = ("analyses/*.md", "analyses/guide/*.md", "models/*.py", *FIGURES)
PACKAGES = {
    "votes": "Votes, and files of them.",
    "votes.readers": "Votes in the files that other tools write.",
    "datasets": "Votes with what is known of the truth; simulation.",
    "models": "Generative models.",
    "programs": "The contract of a generative program, its exact posterior and its likelihood.",
    "methods": "Methods that infer labels from votes.",
    "methods.base": "What all methods share: `Method`, `Estimate`, `Fit`.",
    "rbm": "Restricted Boltzmann machines.",
    "scores": "Scores, intervals and paired tests.",
    "checks": "Checks that need no label.",
    "comparison": "Comparisons of methods.",
    "recommendation": "Which method to trust.",
    "estimation": "Numbers from few gold labels, and what to label next.",
    "reporting": "The report.",
    "sklearn": "Estimators for scikit-learn.",
    "inspect": "A panel of graders in Inspect.",
    "inference.orient": "The order of labels in draws.",
    "inference.density": "The density of a model as a function, for any sampler.",
    "errors": "Errors and warnings.",
}
OBJECTS = {
    "recommendation": ("recommend.recommend",),
    "reporting": ("page.report", "figures.rank_figure"),
}
"""What mkdocstrings does not find in a package: a function named as its module, and names imported on first use."""
HEADED = "{show_root_heading: true, show_root_full_path: false}"


def on_files(files: Files, config: Any) -> Files:
    """Add the documents, their figures and the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = Path(__file__).with_name("start.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "README.md", content=start + readme[readme.index("## Install") :]))
    found = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
    for path in [*(ROOT / name for name in DOCUMENTS), *found]:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    rows = "\n".join(f"| [`latentens.{name}`]({name}.md) | {words} |" for name, words in PACKAGES.items())
    overview = (
        f"# Reference\n\nCommon names are available as `latentens.…` too.\n\n| module | contents |\n|---|---|\n{rows}\n"
    )
    files.append(File.generated(config, "reference/index.md", content=overview))
    for name in PACKAGES:
        content = f"# latentens.{name}\n\n::: latentens.{name}\n"
        for found in OBJECTS.get(name, ()):
            content += f"\n::: latentens.{name}.{found}\n    options: {HEADED}\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files
