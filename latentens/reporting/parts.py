"""Parts of a data set's chapter: what the page says beyond scores and figures, one function and one file each.

A part reads what the comparison has on record, a group of `view.node` if need be, and fits nothing. It returns None
where it has nothing to say. `latentens.reporting.chapters` names the parts in the order of the page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from latentens.reporting.drawing import Picture
from latentens.reporting.html import Html
from latentens.reporting.view import View


@dataclass(frozen=True, eq=False)
class Part:
    """A titled part of a chapter.

    Attributes:
        name: Its address within the chapter: letters, digits and dashes.
        title: Its heading.
        words: Paragraphs below the heading.
        pictures: Figures.
        beside: A narrow table, which stands next to the figures where there is room.
        body: Tables and whatever else follows the figures.
        tables: Data frames that become files and downloads, by name; those of several data sets are joined.
    """

    name: str
    title: str
    words: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    beside: Html | None = None
    body: Sequence[Html] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)


MakePart = Callable[[View, Mapping[str, str]], Part | None]
"""Makes a part of a data set and of the colour of each method; figures are drawn in the style of the report."""
