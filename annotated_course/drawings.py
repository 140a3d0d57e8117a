"""Pictures of ideas: points in a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from annotated_course.plotting import ARROW, DPI, Values, palette_colour
from annotated_workbench.extras import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL = 8.5  # points
AROUND = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]  # where a label may stand at its point
ROOM = 0.2  # around the points, as a share of what they span
FROM_POINT = 8  # points from a dot's middle to its label


def plot_plane(
    points: Mapping[str, Values],
    *,
    corners: Sequence[str] = (),
    outputs: Sequence[str] = (),
    colours: Mapping[str, int] | None = None,
    labels: bool = True,
    x_label: str = "",
    y_label: str = "",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw points in a plane, some of them as the corners of an area, some as what has been computed from them.

    Args:
        points: for each label its (x, y); a label may have several lines, one of them its coordinates.
        corners: the points that are joined to an area, in this order; they are drawn large.
        outputs: the points that are drawn as diamonds.
        colours: the number of a point's colour. By default corners are counted 0, 1, 2 …, and so are outputs and the
            other points: output 0 has the colour of corner 0.
        labels: write the labels; without them many points may be drawn.
        x_label: what x is, in words.
        y_label: what y is, in words.
        title: what the figure shows.
        ax: where to draw; a new figure by default.

    Raises:
        ValueError: there are no points, one is not (x, y), or a corner, an output or a colour names no point.
    """
    plt = load("matplotlib.pyplot")

    places = {name: tuple(float(number) for number in point) for name, point in points.items()}
    if not places:
        raise ValueError("there are no points: give at least one.")
    for name, place in places.items():
        if len(place) != 2:
            raise ValueError(f"point {name!r} must be (x, y); got {len(place)} numbers.")
    for name in [*corners, *outputs, *(colours or {})]:
        if name not in places:
            raise ValueError(f"there is no point {name!r}; there are {', '.join(map(repr, places))}.")
    if ax is None:
        ax = plt.subplots(figsize=(5.2, 4.4), dpi=DPI, layout="constrained")[1]
    others = [name for name in places if name not in {*corners, *outputs}]
    numbers = {name: i for group in (corners, outputs, others) for i, name in enumerate(group)} | dict(colours or {})
    ax.grid(color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    if corners:
        area: dict[str, Any] = {"facecolor": "#f2f2f2", "edgecolor": "#999999", "linewidth": 0.8}
        ax.add_patch(plt.Polygon([places[name] for name in corners], **area))
    for name, (x, y) in places.items():
        marker, size = ("D", 60) if name in outputs else ("o", 110 if name in corners else 30)
        ax.scatter(x, y, s=size, marker=marker, color=[palette_colour(numbers[name])], edgecolor="white", zorder=3)
    leave_room(ax, list(places.values()))
    ax.set(xlabel=x_label, ylabel=y_label, title=title or "")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelcolor=ARROW, labelsize=LABEL)
    if labels:
        write_labels(ax, places, [places[name] for name in corners])
    return ax


def leave_room(ax: Axes, places: Sequence[Sequence[float]]) -> None:
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


def write_labels(ax: Axes, places: Mapping[str, Sequence[float]], corners: Sequence[Sequence[float]]) -> None:
    """Write each label beside its point, where it hides least; if all sides are free, away from the other points."""
    bbox, effects = load("matplotlib.transforms").Bbox, load("matplotlib.patheffects")

    figure: Any = ax.figure
    figure.draw_without_rendering()  # only now is it known how far apart the points are on paper
    dots = ax.transData.transform(list(places.values()))
    middle = dots.mean(axis=0)
    reach = FROM_POINT / 72 * figure.dpi
    taken = [bbox.from_extents(*(dot - reach / 2), *(dot + reach / 2)) for dot in dots]
    sides = [ax.transData.transform(side) for side in zip(corners, [*corners[1:], *corners[:1]], strict=True)]
    for name, place, dot in zip(places, places.values(), dots, strict=True):
        text = ax.annotate(
            name, (place[0], place[1]), (0, 0), textcoords="offset points", fontsize=LABEL, linespacing=1.2, zorder=4
        )
        text.set_path_effects([effects.withStroke(linewidth=2.5, foreground="white")])

        def put(where: tuple[int, int], text: Any = text) -> Any:
            across, up = where
            text.set(ha=("center", "left", "right")[across], va=("center", "bottom", "top")[up])
            text.set_position((across * FROM_POINT / math.hypot(*where), up * FROM_POINT / math.hypot(*where)))
            return text.get_window_extent()

        def cost(where: tuple[int, int], dot: Any = dot, put: Any = put) -> tuple[int, int, float]:
            box = put(where)
            outside = not (ax.bbox.contains(box.x0, box.y0) and ax.bbox.contains(box.x1, box.y1))
            hidden = sum(box.overlaps(other) for other in taken)
            crossed = sum(any(box.contains(*(a + (b - a) * i / 50)) for i in range(51)) for a, b in sides)
            return hidden + outside, crossed, -((dot - middle) @ where) / math.hypot(*where)

        taken.append(put(min(AROUND, key=cost)))
