"""Pictures of ideas: points in a plane, the tree of a beam search, the hands of clocks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from annotated_course.lettering import BOLD, one_line, page, scale_of, text_height, text_width, write
from annotated_course.plotting import ARROW, DPI, OPERATION, TENSOR, Values, palette_colour
from annotated_workbench.extras import load

LABEL = 8.5  # points
ROOM = 0.2  # around the points, as a share of what they span
PALE, FAINT = "#707070", "#b0b0b0"  # of letters, still legible on white, and of lines
KEY_HEIGHT, INSET, DIAL = 0.3, 0.035, 0.56  # inches: the line below a tree, from frame to frame, a clock
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # behind what is written on an edge
FROM_POINT = 8  # points from a dot's middle to its label
Pair = tuple[float, float]  # in inches: x and y, or width and height


def plot_plane(
    points: Mapping[str, Values],
    *,
    corners: Sequence[str] = (),
    colours: Mapping[str, int] | None = None,
    labels: bool = True,
    x_label: str = "",
    y_label: str = "",
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw points in a plane, some of them as the corners of an area.

    Args:
        points: for each label its (x, y); a label may have several lines, one of them its coordinates.
        corners: the points that are joined to an area, in this order; they are drawn large.
        colours: the number of a point's colour; by default corners are counted 0, 1, 2 …, and so are other points.
        labels: write the labels; without them many points may be drawn.
        x_label, y_label, title: what x and y are, and what the figure shows, in words.
        ax: where to draw; a new figure by default.
    """
    plt = load("matplotlib.pyplot")
    places = {name: tuple(float(number) for number in point) for name, point in points.items()}
    if ax is None:
        ax = plt.subplots(figsize=(5.2, 4.4), dpi=DPI, layout="constrained")[1]
    others = [name for name in places if name not in corners]
    numbers = {name: i for group in (corners, others) for i, name in enumerate(group)} | dict(colours or {})
    ax.grid(color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    if corners:
        area: dict[str, Any] = {"facecolor": "#f2f2f2", "edgecolor": "#999999", "linewidth": 0.8}
        ax.add_patch(plt.Polygon([places[name] for name in corners], **area))
    for name, (x, y) in places.items():
        size = 110 if name in corners else 30
        ax.scatter(x, y, s=size, color=[palette_colour(numbers[name])], edgecolor="white", zorder=3)
    leave_room(ax, list(places.values()))
    ax.set(xlabel=x_label, ylabel=y_label, title=title or "")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelcolor=ARROW, labelsize=LABEL)
    if labels:
        write_labels(ax, places)
    return ax


def leave_room(ax: Any, places: Sequence[Sequence[float]]) -> None:
    """Leave room for labels around all points, also those of panels that share an axis, and make the grid square."""
    ticker = load("matplotlib.ticker")
    xs, ys = zip(*places, strict=True)
    room = ROOM * max(max(xs) - min(xs), max(ys) - min(ys)) or 1
    ax.margins(0)
    ax.update_datalim([(min(xs) - room, min(ys) - room), (max(xs) + room, max(ys) + room)])
    ax.autoscale_view()
    ax.set_aspect("equal", adjustable="box")
    longest = max(high - low for low, high in (ax.get_xlim(), ax.get_ylim()))
    first, second = ticker.MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(0, longest)[:2]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(ticker.MultipleLocator(second - first))


def write_labels(ax: Any, places: Mapping[str, Sequence[float]]) -> None:
    """Write each label above or below its point, away from the middle of all."""
    stroke = load("matplotlib.patheffects").withStroke(linewidth=2.5, foreground="white")
    heights = [y for _, y in places.values()]
    middle = (min(heights) + max(heights)) / 2
    for name, (x, y) in places.items():
        side, offset = ("bottom", FROM_POINT) if y >= middle else ("top", -FROM_POINT)
        look = {"ha": "center", "va": side, "fontsize": LABEL, "linespacing": 1.2, "path_effects": [stroke]}
        ax.annotate(name, (x, y), (0, offset), textcoords="offset points", zorder=4, parse_math=False, **look)


class Node(NamedTuple):
    """A hypothesis of a beam search, drawn as a box: its last word, with the score below it.

    Args:
        label: the word; may have two lines.
        score: as it is to be written; may be empty.
        parent: the place, among all nodes, of the hypothesis that it continues; None for the start.
        kept: whether it stays in the beam.
        finished: whether it is complete and not continued.
        factor: what stands on the edge that leads to it, such as "× 25 %"; nothing by default.
    """

    label: str
    score: str = ""
    parent: int | None = None
    kept: bool = True
    finished: bool = False
    factor: str = ""


def plot_tree(nodes: Sequence[Node], *, best: int | None = None, title: str | None = None) -> Any:
    """Draw a beam search as a tree that grows to the right, each level the hypotheses of one step.

    Kept ones are filled, dropped ones pale and dashed, finished ones framed twice; a line below says so.

    Args:
        nodes: the hypotheses, each after its parent.
        best: the place of the node in which the best hypothesis ends; the path to it is drawn thick.
        title: what the figure shows.
    """
    rows = rows_of(nodes)
    on_path = path_to(nodes, best)
    texts = ["\n".join(filter(None, (node.label, node.score))) for node in nodes]
    wide = max(text_width(text, LABEL * BOLD) for text in texts) + 0.2
    high = max(text_height(text, LABEL) for text in texts) + 0.1
    on_edges = max(text_width(node.factor, LABEL * BOLD) for node in nodes)
    step = max(wide + 0.45, wide + on_edges + 0.3)
    most = max(map(len, rows)) * (high + 0.12)
    meanings = {
        "filled: kept": True,
        "dashed: dropped": not all(node.kept for node in nodes),
        "double frame: finished": any(node.finished for node in nodes),
        "thick: the best": best is not None,
    }
    key = "   ·   ".join(meaning for meaning, is_there in meanings.items() if is_there)
    across = max((len(rows) - 1) * step + wide, text_width(key, LABEL))
    ax = page(across, KEY_HEIGHT + most, title=title)

    places: dict[int, Pair] = {}  # of the middle of each box's left side
    for depth, members in enumerate(rows):
        for row, i in enumerate(members):
            up = most / 2 + ((len(members) - 1) / 2 - row) * (high + 0.12)
            places[i] = depth * step, KEY_HEIGHT + up
    for i, (node, text) in enumerate(zip(nodes, texts, strict=True)):
        if node.parent is not None:
            x, y = places[node.parent]
            draw_edge(ax, (x + wide, y), places[i], kept=node.kept, best=i in on_path)
            middle = (x + wide + places[i][0]) / 2, (y + places[i][1]) / 2
            if node.factor:
                weight = "bold" if i in on_path else "normal"
                write(ax, *middle, node.factor, LABEL, color=ARROW, fontweight=weight, bbox=PAPER)
        draw_box(ax, places[i], (wide, high), node, text, best=i in on_path)
    write(ax, 0.0, KEY_HEIGHT / 2 - 0.05, key, LABEL, ha="left", color=ARROW)
    return ax


def draw_edge(ax: Any, start: Pair, end: Pair, *, kept: bool, best: bool) -> None:
    """Draw the curve from a hypothesis to one that continues it, the stronger above the paler."""
    path, patches = load("matplotlib.path"), load("matplotlib.patches")
    middle = (start[0] + end[0]) / 2
    curve = path.Path([start, (middle, start[1]), (middle, end[1]), end], [path.Path.MOVETO, *[path.Path.CURVE4] * 3])
    colour, thick, order = (OPERATION, 2.6, 0.7) if best else (ARROW, 1.0, 0.6) if kept else (FAINT, 0.8, 0.5)
    ax.add_patch(patches.PathPatch(curve, fill=False, edgecolor=colour, linewidth=thick * scale_of(ax), zorder=order))


def draw_box(ax: Any, place: Pair, size: Pair, node: Node, text: str, *, best: bool) -> None:
    """Draw a hypothesis, the middle of whose left side is at `place`."""
    rectangle = load("matplotlib.patches").Rectangle
    (x, y), (wide, high) = place, size
    thin, thick = 0.8 * scale_of(ax), 2.2 * scale_of(ax)
    style = {"facecolor": TENSOR, "edgecolor": OPERATION}
    if not node.kept:
        style = {"facecolor": "white", "edgecolor": FAINT, "linestyle": "--"}
    ax.add_patch(rectangle((x, y - high / 2), wide, high, linewidth=thick if best else thin, **style))
    if node.finished:
        corner = x + INSET, y - high / 2 + INSET
        ax.add_patch(rectangle(corner, wide - 2 * INSET, high - 2 * INSET, linewidth=thin, **style))
    look = {"color": "black" if node.kept else PALE, "fontweight": "bold" if best else "normal"}
    write(ax, x + wide / 2, y, text, LABEL, **look)


def describe_tree(nodes: Sequence[Node], *, best: int | None = None) -> str:
    """Say a drawing of `plot_tree` in words, scores and all, for `show`."""
    sentences = []
    for depth, members in enumerate(rows_of(nodes)):
        hypotheses = []
        for i in members:
            node = nodes[i]
            words = [" ".join(one_line(nodes[place].label) for place in sorted(path_to(nodes, i)))]
            words += [one_line(text) for text in (node.factor, node.score) if text]
            words += ["kept" if node.kept else "dropped"] if depth else []
            words += ["finished"] if node.finished else []
            words += ["the best"] if i == best else []
            hypotheses.append(", ".join(words))
        sentences.append(f"Level {depth}: {'; '.join(hypotheses)}.")
    return " ".join(sentences)


def rows_of(nodes: Sequence[Node]) -> list[list[int]]:
    """Give the nodes of each level from top to bottom, in the order of their parents, so that no two edges cross."""
    for i, node in enumerate(nodes):
        if node.parent is not None and not 0 <= node.parent < i:
            raise ValueError(f"node {i} ({node.label!r}) must stand after its parent; got parent {node.parent}.")
    rows = [[i for i, node in enumerate(nodes) if node.parent is None]]
    while below := [i for parent in rows[-1] for i, node in enumerate(nodes) if node.parent == parent]:
        rows.append(below)
    return rows


def path_to(nodes: Sequence[Node], end: int | None) -> set[int]:
    """Give the places of a node and of all that it continues."""
    return set() if end is None else {end} | path_to(nodes, nodes[end].parent)


def plot_dials(angles: Values, *, rows: Sequence[str], columns: Sequence[str], title: str | None = None) -> Any:
    """Draw angles as the hands of clocks, a dial for each: zero points upwards, so that a hand's tip is (sin, cos).

    Args:
        angles: (row, column) in radians, clockwise: a row per frequency, a column per position.
        rows, columns: one label per row, to its left, and per column, above it; may have two lines.
        title: what the figure shows.
    """
    patches = load("matplotlib.patches")
    table = np.asarray(angles, dtype=float)
    side = max([DIAL, *(text_width(label, LABEL) + 0.1 for label in columns)])
    beside = max(text_width(label, LABEL) for label in rows) + 0.12
    above = max(text_height(label, LABEL) for label in columns) + 0.04
    down = DIAL * len(table)
    ax = page(beside + side * len(table[0]), down + above, title=title)
    for i, row in enumerate(table.tolist()):
        for j, angle in enumerate(row):
            x, y, radius = beside + (j + 0.5) * side, down - (i + 0.5) * DIAL, DIAL * 0.42
            ax.add_patch(patches.Circle((x, y), radius, facecolor="white", edgecolor=FAINT, linewidth=0.8))
            ax.plot([x, x], [y + 0.85 * radius, y + radius], color=FAINT, linewidth=0.8)  # where zero is
            tip = x + 0.85 * radius * math.sin(angle), y + 0.85 * radius * math.cos(angle)
            ax.plot([x, tip[0]], [y, tip[1]], color=palette_colour(i), linewidth=2.2, solid_capstyle="round")
    for i, label in enumerate(rows):
        write(ax, beside - 0.1, down - (i + 0.5) * DIAL, label, LABEL, ha="right")
    for j, label in enumerate(columns):
        write(ax, beside + (j + 0.5) * side, down + 0.02 + text_height(label, LABEL) / 2, label, LABEL)
    return ax
