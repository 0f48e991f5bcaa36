"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Items = Annotated[int, Option(min=1, help="Number of items of each simulated set.")]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Seed; the same seed gives the same result.")]
Workers = Annotated[
    int | None,
    Option(min=1, help="Fits at a time, by default one for each core unless items are many; 1 measures memory too."),
]
VotesFile = Annotated[Path, Argument(help="CSV or Parquet file: columns item, voter, vote, or one column per voter.")]
GoldFile = Annotated[Path | None, Option(help="CSV or Parquet file of known labels (item, gold) for methods to use.")]
Anchor = Annotated[
    list[str] | None,
    Option(help="A voter known to be better than chance: which label is which follows its votes. May be repeated."),
]
MethodNames = Annotated[
    list[str] | None,
    Option("--methods", "-m", help="Such as 'RBMStack(hidden=(3, 1))' or 'short=Nuts(Tree)'. May be repeated."),
]
