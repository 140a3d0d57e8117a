"""Tensors drawn as grids of coloured cells with their numbers, and a computation as a line of such grids.

`plot_matrices` draws them, `describe` says the same numbers in words.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from annotated_course.lettering import BOLD, one_line, page, text_height, text_width, write
from annotated_course.plotting import ARROW, palette_colour
from annotated_workbench.extras import load

Cell = int | float | str
Parts = Sequence[Any]  # of grids and operators, or of lines of them

GREY = (0.55, 0.55, 0.55)
HIDDEN = {"facecolor": "#f0f0f0", "edgecolor": "#c4c4c4", "hatch": "////"}  # pale enough for a number on it
TINTS = 0.06, 0.7  # how much of its colour a cell of zero has, and the grid's largest; black stays legible on both
HALF = 1e-6  # 0.125 is written 0.13 on every machine, on whichever side of it the last bit falls

# Inches, and points for the letters, before a drawing that is too wide is made smaller.
CELL_WIDTH, CELL_HEIGHT = 0.46, 0.4
BESIDE, ABOVE = 0.09, 0.07  # the room between a grid and what stands beside or above it
BETWEEN_PARTS, BETWEEN_LINES = 0.14, 0.22
NAME, NUMBER, LABEL, SYMBOL = 10.0, 9.0, 8.0, 14.0

IN_WORDS = {"·": "times", "×": "times", "=": "equals", "→": "gives", "÷": "divided by", "+": "plus", "−": "minus"}


@dataclass(frozen=True, eq=False)
class Grid:
    """A matrix or a vector to be drawn as a grid of cells; a vector is one row.

    Args:
        values: the numbers, (row, column) or (column); in nested lists a text may stand for a number, such as "2 ln 2".
        name: what stands above, in words; may have two lines.
        rows, columns: one label per row, to its left, and per column, above it; may have two lines ("Hund\\ndog").
        colour_by: "rows" gives each row a colour of its own, "columns" each column (for a transposed matrix, whose
            columns were rows); None makes all cells grey.
        colours: for each row or column the number of its colour; by default 0, 1, 2 ….
        largest: the number that gets the full tint; by default the grid's largest. One for all grids that are compared.
        signed: tint by the number and not by its distance from zero: the most negative are white, 0 in between.
        hidden: shaped as the values, true where a mask hides the cell: hatched in grey, so that nobody takes its −∞ or
            0 for a number that was computed.
    """

    values: Tensor | np.ndarray | Sequence[Any]
    name: str
    _: KW_ONLY
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    colour_by: str | None = "rows"
    colours: Sequence[int] | None = None
    largest: int | float | None = None
    hidden: Tensor | np.ndarray | Sequence[Any] | None = None
    signed: bool = False

    def __post_init__(self) -> None:
        """Refuse labels that would stand at the wrong rows or columns."""
        height, width = len(self.cells), len(self.cells[0])
        needed = {"rows": height, "columns": width, "colours": width if self.colour_by == "columns" else height}
        for what, count in needed.items():
            if len(given := getattr(self, what) or ()) not in (0, count):
                raise ValueError(f"grid {self.name!r}, {self.shape}, needs {count} {what}; got {len(given)}.")

    @property
    def cells(self) -> list[list[Any]]:
        """The numbers and texts, row by row."""
        return as_rows(self.values)[0]

    @property
    def hides(self) -> list[list[bool]]:
        """For each cell, row by row, whether it is hidden."""
        return [[False] * len(row) for row in self.cells] if self.hidden is None else as_rows(self.hidden)[0]

    @property
    def shape(self) -> str:
        """The size in words, "3 × 4" or "4 numbers", which nobody takes for two numbers of the data."""
        (first, *others), is_matrix = as_rows(self.values)
        if is_matrix:
            return f"{1 + len(others)} × {len(first)}"
        return f"{len(first)} number{'s' if len(first) > 1 else ''}"


def plot_matrices(parts: Parts, *, title: str | None = None, width: int | float = 9) -> Any:
    """Draw a computation with matrices as one would write it, each matrix a grid of its numbers.

    All cells have the same size, and within a colour the tint grows with the number's distance from zero.

    Args:
        parts: from left to right the grids and, as texts, the operators between them: "·", "=", "softmax\\n→". Or a
            list of such lines, drawn one below the other.
        title: what the figure shows.
        width: the most inches that the drawing may take; a wider one is made smaller, letters too.
    """
    lines = as_lines(parts)
    grids = [part for line in lines for part in line if isinstance(part, Grid)]
    in_cells = [(short(cell), NUMBER) for grid in grids for row in grid.cells for cell in row]
    above_cells = [(label, LABEL) for grid in grids for label in grid.columns]
    cell_width = max(CELL_WIDTH, *(text_width(text, size) + 0.14 for text, size in in_cells + above_cells))

    extents = [[extent(part, cell_width) for part in line] for line in lines]
    line_widths = [sum(left + right for left, right, *_ in line) + BETWEEN_PARTS * (len(line) - 1) for line in extents]
    line_heights = [max(up for _, _, up, _ in line) + max(down for *_, down in line) for line in extents]
    down = sum(line_heights) + BETWEEN_LINES * (len(lines) - 1)
    ax = page(max(line_widths), down, title=title, width=width)

    top = down
    for line, sizes, height in zip(lines, extents, line_heights, strict=True):
        x, middle = 0.0, top - max(up for _, _, up, _ in sizes)
        for part, (left, right, *_) in zip(line, sizes, strict=True):
            if isinstance(part, Grid):
                draw_grid(ax, part, x + left, middle, cell_width)
            else:
                draw_operator(ax, part, x + left, middle)
            x += left + right + BETWEEN_PARTS
        top -= height + BETWEEN_LINES
    return ax


def draw_grid(ax: Any, grid: Grid, x: float, y: float, cell_width: float) -> None:
    """Draw a grid whose cells have their middle at (x, y), with all that stands around them."""
    plt = load("matplotlib.pyplot")
    cells = grid.cells
    left, top = x - cell_width * len(cells[0]) / 2, y + CELL_HEIGHT * len(cells) / 2
    shares_of_rows = tints(cells, grid.largest, grid.signed)
    for i, (row, shares, hides) in enumerate(zip(cells, shares_of_rows, grid.hides, strict=True)):
        for j, (cell, share, is_hidden) in enumerate(zip(row, shares, hides, strict=True)):
            corner = left + j * cell_width, top - (i + 1) * CELL_HEIGHT
            index = i if grid.colour_by == "rows" else j
            hue = palette_colour(grid.colours[index] if grid.colours else index) if grid.colour_by else GREY
            face, edge = (tuple(1 - part * (1 - channel) for channel in hue) for part in (share, 0.55))  # with white
            look = HIDDEN if is_hidden else {"facecolor": face, "edgecolor": edge}
            ax.add_patch(plt.Rectangle(corner, cell_width, CELL_HEIGHT, linewidth=0.6, **look))
            write(ax, corner[0] + cell_width / 2, corner[1] + CELL_HEIGHT / 2, short(cell), NUMBER)
    for i, label in enumerate(grid.rows):
        write(ax, left - BESIDE, top - (i + 0.5) * CELL_HEIGHT, label, LABEL, ha="right")
    for j, label in enumerate(grid.columns):
        write(ax, left + (j + 0.5) * cell_width, top + ABOVE + text_height(label, LABEL) / 2, label, LABEL)
    above = top + header(grid.columns) + ABOVE + text_height(grid.shape, LABEL) / 2
    write(ax, x, above, grid.shape, LABEL, color=ARROW)
    above += (text_height(grid.shape, LABEL) + text_height(grid.name, NAME)) / 2
    write(ax, x, above, grid.name, NAME, fontweight="bold", parse_math=True)


def draw_operator(ax: Any, operator: str, x: float, y: float) -> None:
    """Draw an operator with its middle at (x, y): a sign in large letters there, the words above it."""
    words, sign = words_and_sign(operator)
    write(ax, x, y, sign, SYMBOL, fontweight="bold")
    lift = (text_height(sign, SYMBOL) + text_height(words, NUMBER)) / 2 if sign else 0.0
    write(ax, x, y + lift, words, NUMBER)


def describe(parts: Parts) -> str:
    """Say a drawing of `plot_matrices` in words, numbers and all, for `show`."""
    return " ".join(f"{' '.join(in_words(part) for part in line)}." for line in as_lines(parts))


def in_words(part: Grid | str) -> str:
    """Say a grid or an operator in words."""
    if isinstance(part, str):
        return " ".join(IN_WORDS.get(word, word) for word in part.split())
    columns = [f"columns {', '.join(map(one_line, part.columns))}"] if part.columns else []
    labels = [f"{one_line(label)}: " for label in part.rows] or [""] * len(part.cells)
    rows = [
        label + ", ".join(short(cell) + " (hidden)" * hidden for cell, hidden in zip(row, hides, strict=True))
        for label, row, hides in zip(labels, part.cells, part.hides, strict=True)
    ]
    return f"{' '.join(part.name.split())} ({'; '.join([part.shape, *columns, *rows])})"


def as_lines(parts: Parts) -> list[list[Grid | str]]:
    """Give the lines of a drawing, also where it has only one."""
    return [list(parts)] if any(isinstance(part, Grid | str) for part in parts) else [list(line) for line in parts]


def as_rows(values: Any) -> tuple[list[Any], bool]:
    """Give what is in a matrix or a vector row by row, whatever holds it, and whether it is a matrix."""
    listed = [value.tolist() if isinstance(value, Tensor | np.ndarray) else value for value in values]
    is_matrix = bool(listed) and isinstance(listed[0], list | tuple)
    return (listed if is_matrix else [listed]), is_matrix


def short(cell: Cell) -> str:
    """Write a number with two decimals at most and no zeros behind them: 0.5, 8, −1.39, −∞; a text stays as it is."""
    if isinstance(cell, str):
        return cell
    number = f"{cell + math.copysign(HALF, cell):.2f}".replace("inf", "∞").rstrip("0").rstrip(".")
    return "0" if number == "-0" else number.replace("-", "−")


def tints(cells: list[list[Cell]], largest: int | float | None, signed: bool = False) -> list[list[float]]:
    """Say how much of its colour each cell has: the more, the farther its number is from zero, or the larger it is."""
    numbers = [[number_in(cell) for cell in row] for row in cells]
    largest = largest or max((abs(n) for row in numbers for n in row if n is not None), default=0) or 1

    def share(number: float | None) -> float:
        if number is None:
            return 1
        reach = max(-1, min(number / largest, 1))
        return (1 + reach) / 2 if signed else abs(reach)

    pale, full = TINTS
    return [[pale + (full - pale) * share(number) for number in row] for row in numbers]


def number_in(cell: Cell) -> float | None:
    """Give the number in a cell: zero if it is infinite, as −∞ masks; None if it is none."""
    try:
        number = float(cell.replace("−", "-") or 0) if isinstance(cell, str) else float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else 0.0


def words_and_sign(operator: str) -> tuple[str, str]:
    """Split an operator into its words and its sign, the last line if that has no letters."""
    *words, sign = operator.split("\n")
    return ("\n".join(words), sign) if not any(map(str.isalpha, sign)) else (operator, "")


def header(labels: Sequence[str]) -> float:
    """Give the height in inches of the column labels with the room below them."""
    return ABOVE + max(text_height(label, LABEL) for label in labels) if labels else 0.0


def extent(part: Grid | str, cell_width: float) -> tuple[float, float, float, float]:
    """Give how far a part reaches from its middle: to the left, to the right, up and down, in inches."""
    if isinstance(part, str):
        words, sign = words_and_sign(part)
        half = max(text_width(words, NUMBER), text_width(sign, SYMBOL)) / 2
        tall = text_height(words, NUMBER)
        if not sign:
            return half, half, tall / 2, tall / 2
        return half, half, text_height(sign, SYMBOL) / 2 + tall, text_height(sign, SYMBOL) / 2
    cells = part.cells
    half, tall = cell_width * len(cells[0]) / 2, CELL_HEIGHT * len(cells) / 2
    beside = BESIDE + max(text_width(label, LABEL) for label in part.rows) if part.rows else 0.0
    above = ABOVE + header(part.columns) + text_height(part.shape, LABEL) + text_height(part.name, NAME)
    named = max(text_width(part.name, NAME * BOLD, math=True), text_width(part.shape, LABEL)) / 2
    return max(half + beside, named), max(half, named), tall + above, tall
