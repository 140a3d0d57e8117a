"""Figures: attention maps, line plots and drawings of dataflow in one quiet style that also reads in greyscale.

`show` shows them, each with its description.
"""

import base64
import html
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from annotated_workbench.extras import load
from annotated_workbench.vocabulary import SPECIALS, Tokenizer

Values = Sequence[Any] | np.ndarray | Tensor

DPI = 100
COLOURS = 128  # of a saved picture
IN_WORDS = "The figure in words"  # what unfolds its description
OPERATION = "#2b5c8a"  # the colour of an operation's box, and of every edge
TENSOR = "#e8f0f8"
ARROW = "#444444"
# The colours of seaborn's "colorblind", the two that are alike far from each other.
PALETTE = ["#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00", "#56b4e9", "#ca9161", "#fbafe4", "#ece133", "#949494"]
ANNOTATE_UP_TO = 8
END_LABEL = 9  # points
WHITE_ABOVE = 0.7  # a number on a darker square is white; both colours keep a contrast of at least 4.3


class Box(NamedTuple):
    """A box of a dataflow drawing, centred at (x, y) in inches from the lower left corner.

    `text` may have several lines: a tensor's name, its shape, its numbers. An `operation` is drawn dark.
    """

    x: float
    y: float
    text: str
    operation: bool = False


class Arrow(NamedTuple):
    """An arrow from one named box to another, with a word beside it; `bend` curves it, to the right if positive."""

    start: str
    end: str
    label: str = ""
    bend: float = 0.0


def palette_colour(index: int) -> tuple[float, float, float]:
    """Give a colour, (red, green, blue), by its number, the same in every figure; after the tenth they begin again."""
    return load("matplotlib.colors").to_rgb(PALETTE[index % len(PALETTE)])


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Give each token as text, "␣" for a space alone, and "�" for bytes that are only a part of a character."""
    return [SPECIALS[i] if i < len(SPECIALS) else tokenizer.decode([i]).strip() or "␣" for i in ids]


def glossed(words: Sequence[str], glosses: Sequence[str]) -> list[str]:
    """Put the translation of each word below it, for labels of two lines: "Hund\\ndog"; "" where there is none."""
    return [f"{word}\n{gloss}" if gloss else word for word, gloss in zip(words, glosses, strict=True)]


def plot_attention(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str | None = None,
    annotate: bool | None = None,
    ax: Any = None,
) -> Any:
    """Draw one attention map: a row per query, a column per key, dark where the weight is large.

    Args:
        weights: the weights, (query, key), each in 0 … 1.
        queries: one label per row: the token that looks; may have two lines, as `glossed` makes them.
        keys: one label per column: the token that is looked at; likewise.
        title: what the map shows.
        annotate: write each weight into its square; by default where there are at most 8 rows and 8 columns.
        ax: where to draw; a new figure by default.
    """
    plt = load("matplotlib.pyplot")
    shape = tuple(weights.shape)
    if len(shape) != 2:
        raise ValueError(f"weights must be a matrix (query, key); got shape {shape}. Take one sentence and one head.")
    if shape != (len(queries), len(keys)):
        needed = f"need {shape[0]} query labels (rows) and {shape[1]} key labels (columns)"
        raise ValueError(f"weights of shape {shape} {needed}; got {len(queries)} and {len(keys)}.")
    if annotate is None:
        annotate = max(weights.shape) <= ANNOTATE_UP_TO
    two_lines = any("\n" in label for label in (*queries, *keys))
    if ax is None:
        size = (1.6 + 0.55 * len(keys), 1.2 + 0.45 * len(queries))
        if two_lines:  # they lie flat, and the squares are as wide as they need
            row, column = (max(len(line) for name in names for line in name.split("\n")) for names in (queries, keys))
            square = max(0.55, 0.1 * column)
            size = ((0.9 if annotate else 1.7) + 0.1 * row + square * len(keys), 1.2 + square * len(queries))
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    squares = ax.pcolormesh(weights.detach().cpu().float(), vmin=0, vmax=1, cmap="Blues", lw=0.5, edgecolor="white")
    ax.set(xlim=(0, len(keys)), ylim=(len(queries), 0), aspect="equal")
    ax.spines[:].set_visible(False)
    if not annotate:
        ax.figure.colorbar(squares, ax=ax, label="weight").outline.set_linewidth(0)
    for axis, labels in ((ax.xaxis, keys), (ax.yaxis, queries)):
        axis.set_ticks([i + 0.5 for i in range(len(labels))], labels, parse_math=False)  # a "$" is a token, too
    for (row, column), weight in np.ndenumerate(weights.detach().cpu().float()) if annotate else ():
        colour = "white" if weight > WHITE_ABOVE else "black"
        ax.text(column + 0.5, row + 0.5, f"{weight:.2f}", ha="center", va="center", size=8, color=colour)
    ax.set(xlabel="key (is looked at)", ylabel="query (looks)", title=title or "")
    slanted = len(keys) > 3 and max(map(len, keys)) > 2 and not two_lines
    ax.tick_params(axis="x", rotation=45 if slanted else 0, length=0)
    ax.tick_params(axis="y", rotation=0, length=0)
    return ax


def plot_lines(
    x: Values,
    lines: Mapping[str, Values],
    *,
    x_label: str,
    y_label: str,
    title: str | None = None,
    log: str = "",
    label_ends: bool = False,
    ax: Any = None,
) -> Any:
    """Draw labelled lines over a common x; colour, dash and marker all tell them apart.

    Args:
        x: where the values were measured.
        lines: for each label of the legend, one value per x.
        x_label, y_label, title: what x and the values are, and what the figure shows, in words.
        log: the axes with a logarithmic scale: "", "x", "y" or "xy".
        label_ends: write each label at the end of its line, in place of a legend.
        ax: where to draw; a new figure by default.
    """
    plt = load("matplotlib.pyplot")
    if ax is None:
        ax = plt.subplots(figsize=(5.5, 3.4), dpi=DPI, layout="constrained")[1]
    markers = "os^Dv" if len(x) <= 12 else [""] * 5
    for index, (label, y) in enumerate(lines.items()):
        style = index % 5
        dashes, marker = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))[style], markers[style]
        ax.plot(x, y, label=label, color=palette_colour(style), linestyle=dashes, marker=marker, markersize=5)
    ax.set(xlabel=x_label, ylabel=y_label, title=title or "")
    if "x" in log:
        ax.set_xscale("log", base=2)
    if "x" in log and any(markers):
        ax.set_xticks(list(x), [f"{float(value):g}" for value in x])
    if "y" in log:
        ax.set_yscale("log")
    if label_ends:
        write_at_ends(ax, float(x[-1]), lines)
    elif len(lines) > 1:
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def write_at_ends(ax: Any, x: float, lines: Mapping[str, Values]) -> None:
    """Write the label of each line at its end, which is at x, in its colour; one that would cover another moves up."""
    ax.autoscale_view()  # else the axes learn only later how far the lines reach

    def height(y: float) -> float:
        return float(ax.transData.transform((x, y))[1]) * 72 / ax.figure.dpi

    ends = [(float(y[-1]), label, palette_colour(index % 5)) for index, (label, y) in enumerate(lines.items())]
    free_from = -math.inf
    for y, label, colour in sorted(ends):
        lifted = max(height(y), free_from)
        offset = 6, lifted - height(y)
        ax.annotate(label, (x, y), offset, textcoords="offset points", va="center", fontsize=END_LABEL, color=colour)
        free_from = lifted + 1.25 * END_LABEL


def plot_dataflow(
    boxes: Mapping[str, Box], arrows: Iterable[Arrow], *, size: tuple[int | float, int | float], title: str
) -> Any:
    """Draw what becomes of a tensor: light boxes for tensors, dark ones for operations, arrows between them.

    Args:
        boxes: each box under a name of its own, by which the arrows find it.
        arrows: from where to where the numbers go.
        size: width and height of the drawing in inches.
        title: what it shows.
    """
    plt = load("matplotlib.pyplot")
    figure = plt.figure(figsize=size, dpi=DPI)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, size[0]), ylim=(0, size[1]))
    ax.axis("off")
    ax.text(size[0] / 2, size[1] - 0.1, title, ha="center", va="top", fontsize=11)
    drawn: dict[str, Any] = {}
    for name, box in boxes.items():
        face, ink = (OPERATION, "white") if box.operation else (TENSOR, "black")
        style: dict[str, Any] = {"boxstyle": "round,pad=0.35", "facecolor": face, "edgecolor": OPERATION}
        text = ax.text(box.x, box.y, box.text, ha="center", va="center", fontsize=9, color=ink, bbox=style)
        text.set_linespacing(1.35)
        drawn[name] = text
    figure.canvas.draw()  # only now do the boxes know their size, at which the arrows end
    extents = {name: text.get_bbox_patch().get_window_extent() for name, text in drawn.items()}
    half = {name: (box.width / figure.dpi / 2, box.height / figure.dpi / 2) for name, box in extents.items()}
    for arrow in arrows:
        start, end = boxes[arrow.start], boxes[arrow.end]
        across, up = end.x - start.x, end.y - start.y
        sideways = abs(across) >= half[arrow.start][0] + half[arrow.end][0]  # else the boxes stand above each other
        axis, sign = (0, math.copysign(1, across)) if sideways else (1, math.copysign(1, up))
        here, there = [start.x, start.y], [end.x, end.y]
        here[axis] += sign * half[arrow.start][axis]
        there[axis] -= sign * half[arrow.end][axis]
        line: dict[str, Any] = {"arrowstyle": "-|>", "color": ARROW, "connectionstyle": f"arc3,rad={arrow.bend}"}
        ax.annotate("", (there[0], there[1]), (here[0], here[1]), arrowprops=line | {"shrinkA": 0, "shrinkB": 1})
        if arrow.label:
            # The middle of the curve lies half the bend away from that of the straight line.
            x = (here[0] + there[0]) / 2 + arrow.bend * (there[1] - here[1]) / 2
            y = (here[1] + there[1]) / 2 - arrow.bend * (there[0] - here[0]) / 2
            paper: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(x, y, arrow.label, ha="center", va="center", fontsize=8, color=ARROW, bbox=paper)
    return ax


class _Picture(dict[str, str]):
    """A picture in several forms, of which a script prints the one in words."""

    def __str__(self) -> str:
        return self["text/plain"]


def show(description: str) -> None:
    """Show the current figure in a notebook, with its description for those who cannot see it.

    The description travels with the picture, as the alternative text of pages that heed it, and unfolds below it:
    JupyterLab and the pages that it exports have no alternative texts.

    Args:
        description: what there is to see, in words.
    """
    plt, ipython = load("matplotlib.pyplot"), load("IPython.display")
    figure = plt.gcf()
    # Its first form needs not be small; and a figure has few colours: with a palette it takes a third of the room.
    png, size = load("IPython.core.pylabtools").retina_figure(figure, base64=False, pil_kwargs={"compress_level": 1})
    smaller = io.BytesIO()
    load("PIL.Image").open(io.BytesIO(png)).convert("RGB").quantize(COLOURS).save(smaller, "png", optimize=True)
    picture = _Picture({"image/png": base64.b64encode(smaller.getvalue()).decode(), "text/plain": repr(figure)})
    ipython.display(picture, raw=True, metadata={"image/png": {"alt": description, **size}})
    plt.close(figure)
    ipython.display(ipython.HTML(f"<details><summary>{IN_WORDS}</summary>{as_html(description)}</details>"))


def as_html(text: str) -> str:
    """Write a text so that a page shows it as it stands, and takes nothing in it for a tag or the edge of a formula."""
    return re.sub(r"[$\\]", r"<span>\g<0></span>", html.escape(text))
