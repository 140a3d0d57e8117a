"""A page measured in inches, and texts whose size is known before they are written on it."""

import math
from typing import Any

from annotated_course.plotting import DPI
from annotated_workbench.extras import load

LINE = 1.3  # from one line of a text to the next, in heights of its letters
MIDDLE = 0.36  # from the foot of a capital letter to its middle
BOLD = 1.12  # how much wider bold letters are
TITLE = 0.4
EDGE = 0.02  # inches around the page: a line on the very edge would be cut in half


def page(across: float, down: float, *, title: str | None, width: int | float = 9) -> Any:
    """Make an empty figure whose coordinates are inches, x to the right and y upwards from zero.

    The drawing is so many inches across and, without the title above it, down; one wider than `width` is made smaller,
    and its letters with it.
    """
    plt = load("matplotlib.pyplot")
    scale = min(1, width / (across + 2 * EDGE))
    # In whole tenths of an inch: a notebook prints the size of a figure, which must not depend on a hair's breadth.
    wide, high = (math.ceil((side + 2 * EDGE) * scale * 10 - 1e-6) / 10 for side in (across, down))
    wide, above = min(wide, width), TITLE if title else 0.0
    figure = plt.figure(figsize=(wide, high + above), dpi=DPI)
    ax = figure.add_axes((0, 0, 1, high / (high + above)))
    ax.set(xlim=(-EDGE, wide / scale - EDGE), ylim=(down + EDGE - high / scale, down + EDGE))
    ax.axis("off")
    if title:
        ax.set_title(title, fontsize=11, pad=9)
    return ax


def scale_of(ax: Any) -> float:
    """Give how much smaller than it was measured a page is: its letters and lines must be, too."""
    left, right = ax.get_xlim()
    return ax.figure.get_figwidth() / (right - left)


def text_width(text: str, points: float, *, math: bool = False) -> float:
    """Give the width of a text in inches; only with `math` do dollar signs make a formula of it."""
    path = load("matplotlib.textpath").TextPath
    lines = [line if math else line.replace("$", r"\$") for line in text.split("\n") if line.strip()]
    return max((path((0, 0), line, size=points).get_extents().width for line in lines), default=0.0) / 72


def text_height(text: str, points: float) -> float:
    """Give the height of a text in inches: zero if there is none."""
    return len(text.split("\n")) * LINE * points / 72 if text else 0.0


def write(ax: Any, x: float, y: float, text: str, points: float, *, ha: str = "center", **style: Any) -> None:
    """Write a text of one or more lines on a page, with its middle at the height y; no formula, but for `parse_math`.

    Matplotlib aligns texts by what their letters fill, and so puts "jagt" higher than "Hund".
    """
    lines = text.split("\n") if text else []
    foot = y + ((len(lines) - 1) * LINE / 2 - MIDDLE) * points / 72
    style = {"ha": ha, "fontsize": points * scale_of(ax), "parse_math": False} | style
    for i, line in enumerate(lines):
        ax.text(x, foot - i * LINE * points / 72, line, **style)


def one_line(label: str) -> str:
    """Put the second line of a label in parentheses: "Hund (dog)"."""
    first, *others = label.split("\n")
    return f"{first} ({' '.join(others)})" if others else first
