"""Votes as tables of labels."""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from latentens.votes.votes import Votes


def long_frame(votes: "Votes") -> pd.DataFrame:
    """One row for each vote that was cast, with the columns item, voter and vote."""
    named = zip(votes.triplets, (votes.item_names, votes.voter_names, votes.class_names), strict=True)
    columns = (pd.Index(names).take(codes) for codes, names in named)
    return pd.DataFrame(dict(zip(("item", "voter", "vote"), columns, strict=True)))


def wide_frame(votes: "Votes") -> pd.DataFrame:
    """One row per item and one column per voter, NA where a vote is missing."""
    votes.refuse_repeats("a table with one column per voter")
    labels = pd.array([*votes.class_names, pd.NA])  # code −1 picks the last
    columns = {name: labels[votes.matrix[:, i]] for i, name in enumerate(votes.voter_names)}
    return pd.DataFrame(columns, index=pd.Index(votes.item_names, name="item"))
