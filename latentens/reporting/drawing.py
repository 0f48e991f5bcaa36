"""The style of the figures of a report, and how they become pictures."""

import io
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from latentens.comparison import EXACT

WIDTH = 4.3
"""Inches of every figure: narrow enough that its letters are readable on a phone."""

EXACT_COLOUR = "#222222"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f", "#a6761d", "#66a61e")
"""Colours of methods that people with any kind of colour vision can tell apart, as far as ten can be."""

Point = tuple[Axes, float, float, str]
"""A place in the axes' data, and its tooltip."""

Spot = tuple[float, float, str]
"""The same as shares of the picture's width and height, from the left and the top."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Attributes:
        name: Name of its file, without suffix.
        title: Heading above it.
        caption: Its content, and how to read it.
        alternative: Text for readers who cannot see it.
        png: The picture itself.
        spots: Its tooltips with their places.
    """

    name: str
    title: str
    caption: str
    alternative: str
    png: bytes
    spots: tuple[Spot, ...] = ()

    @property
    def height(self) -> float:
        """As a share of its width."""
        with Image.open(io.BytesIO(self.png)) as image:
            return image.height / image.width


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the report. Characters that the font lacks become boxes; tables show them."""
    with mpl.rc_context(fname=Path(__file__).with_name("page.mplstyle")), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def picture(
    figure: Figure, name: str, title: str, caption: str, alternative: str, points: Iterable[Point] = ()
) -> Picture:
    """A picture of a figure, with tooltips at points of its axes' data; the other arguments are those of `Picture`."""
    return Picture(name, title, caption, alternative, _render(figure), _spots(figure, points))


def _render(figure: Figure, resolution: int = 170, num_colours: int = 256) -> bytes:
    """The figure as a PNG of few colours."""
    figure.set_dpi(resolution)
    canvas, reduced = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()  # once, where savefig would draw a first time to lay the figure out
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(num_colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(reduced, "PNG")
    return reduced.getvalue()


def _spots(figure: Figure, points: Iterable[Point]) -> tuple[Spot, ...]:
    """Where points of the axes' data are in a figure that has been rendered, for `Picture.spots`."""
    found = []
    for axes, mine in groupby(points, key=lambda point: point[0]):  # by panel: each call of `transform` takes long
        _, *places, words = zip(*mine, strict=True)
        shares = axes.transData.transform(np.transpose(places)) / figure.bbox.size
        inside = ((shares >= 0) & (shares <= 1)).all(axis=1)
        rounded = np.round(np.stack([shares[:, 0], 1 - shares[:, 1]], axis=1), 4).tolist()
        found += [(*place, text) for place, text, shown in zip(rounded, words, inside, strict=True) if shown]
    return tuple(found)


def colours(methods: Sequence[str]) -> dict[str, str]:
    """The colour of each method, the same in every figure."""
    found = {method: PALETTE[i % len(PALETTE)] for i, method in enumerate(name for name in methods if name != EXACT)}
    return {EXACT: EXACT_COLOUR, **found}


def wrapped(name: str, width: int = 20) -> str:
    """A name on at most three lines."""
    lines = [line.replace("( ", "(") for line in textwrap.wrap(name.replace("(", "( "), width)]
    return "\n".join(lines if len(lines) <= 3 else [*lines[:2], lines[2][: width - 1] + "…"])


def one_line(names: Sequence[str], width: int) -> list[str]:
    """Each name on one line, long ones cut in the middle; all differ, if need be by more letters or by a number."""
    names = [" ".join(name.split()) for name in names]
    for room in range(width, 2 * width):
        head, tail = room // 2, room - 1 - room // 2
        short = [name if len(name) <= room else f"{name[:head]}…{name[-tail:]}" for name in names]
        if len(set(short)) == len(names):
            return short
    return [
        f"{number} {name if len(name) <= width else name[: width - 1] + '…'}" for number, name in enumerate(names, 1)
    ]


def panels(number: int, panel_height: float, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure with that many panels in columns."""
    columns = min(columns, number)
    figure = Figure(figsize=(WIDTH, -(-number // columns) * panel_height + 0.2))
    return figure, _grid(figure, number, columns)


def _grid(figure: Figure, number: int, columns: int) -> list[Axes]:
    grid = figure.subplots(-(-number // columns), columns, squeeze=False).ravel()
    for unused in grid[number:]:
        unused.remove()
    return list(grid[:number])


def unit_squares(
    titles: Sequence[str], xlabel: str, ylabel: str, square: float = 1.61, line: float = 0.14, ticks: float = 0.3
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel from 0 to 1 both ways for each title, two side by side, and a dotted diagonal in each.

    All panels have the same few ticks, so that margins are known and no layout has to be found, which takes long.
    """
    rows = -(-len(titles) // 2)
    head = line * (1 + max(title.count("\n") for title in titles)) + 0.06
    height = rows * (square + head) + (rows - 1) * ticks + 0.5
    figure = Figure(figsize=(WIDTH, height), layout="none")  # type: ignore[arg-type]  # their stubs lack it
    grid = _grid(figure, len(titles), min(2, len(titles)))
    spaces = {"wspace": 0.45 / square, "hspace": (head + ticks) / square}
    figure.subplots_adjust(0.53 / WIDTH, 0.5 / height, 1 - 0.1 / WIDTH, 1 - head / height, **spaces)
    for axes, title in zip(grid, titles, strict=True):
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], title=title)
        axes.set_aspect("equal")
        axes.plot([0, 1], [0, 1], color=EXACT_COLOUR, linewidth=0.8, linestyle=":")
    figure.supxlabel(xlabel, y=0.03 / height, fontsize=8.5)
    figure.supylabel(ylabel, x=0.03 / WIDTH, fontsize=8.5)
    return figure, grid


def row_axes(methods: Sequence[str], columns: int = 1, above: float = 0.0) -> tuple[Figure, list[Axes]]:
    """Panels side by side with one row per method, the first on top; `above` leaves inches for a legend."""
    lines = sum(max(1.0, 0.62 * wrapped(method).count("\n") + 0.62) for method in methods)
    figure = Figure(figsize=(WIDTH, 0.3 * lines + 0.75 + above))
    grid = list(figure.subplots(1, columns, sharey=True, squeeze=False).ravel())
    for axes in grid:
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    grid[0].set_yticks(np.arange(len(methods)), [wrapped(method) for method in methods])
    return figure, grid


def evenly_spaced(number: int, most: int) -> np.ndarray:
    """At most `most` of the first `number` integers, evenly spaced: a sample that is the same each time."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int))
