"""Count what a reader of each lesson, and of each notebook beside them, meets: python -m tools.reading

On the main line (all but the exercises and *Deeper*): words, visible lines of code, lines with a tick that are seen,
claims, folded proofs, figures; claims and exercises in all. A formula counts as one word, a table as its words; folded
cells are not visible, and checks that unfold are one line with a tick.
"""

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

from tools.sync import notebook_paths

FORMULA = re.compile(r"\$\$.+?\$\$|\$.+?\$", re.DOTALL)
WORD = re.compile(r"\w[\w'.,-]*")
CLAIM = re.compile(r"^[✓✗] ", re.MULTILINE)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


class Count(NamedTuple):
    """What a reader meets in one lesson."""

    words: int
    lines: int
    ticks: int
    claims: int
    claims_in_all: int
    proofs: int
    figures: int
    exercises: int


def main_line(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Give the cells of the main line: those before the exercises, and the summary behind them.

    Args:
        notebook: a lesson as nbformat reads it.
    """
    cells, section = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (headings := SECTION.findall(cell.source)):
            section = headings[-1]
        if section not in ("Exercises", "Deeper"):
            cells.append(cell)
    return cells


def is_proof(cell: nbformat.NotebookNode) -> bool:
    """Tell whether a cell only checks.

    Args:
        cell: one cell of a notebook.
    """
    return "proof" in cell.metadata.get("tags", [])


def is_folded(cell: nbformat.NotebookNode) -> bool:
    """Tell whether a reader sees a cell's output alone: a proof, or what only draws.

    Args:
        cell: one cell of a notebook.
    """
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def count(notebook: nbformat.NotebookNode) -> Count:
    """Count what a reader meets in a lesson.

    Args:
        notebook: a lesson as nbformat reads it, executed.
    """
    main = main_line(notebook)
    prose = "\n".join(cell.source for cell in main if cell.cell_type == "markdown")
    code = "\n".join(cell.source for cell in main if cell.cell_type == "code" and not is_folded(cell))
    return Count(
        words=len(WORD.findall(FORMULA.sub(" formula ", prose))),
        lines=sum(bool(line.strip()) for line in code.split("\n")),
        ticks=sum(map(ticks_seen, main)),
        claims=sum(map(claims_shown, main)),
        claims_in_all=sum(map(claims_shown, notebook.cells)),
        proofs=sum(is_proof(cell) for cell in main),
        figures=sum("image/png" in output.get("data", {}) for cell in main for output in cell.get("outputs", [])),
        exercises=sum(cell.source.startswith("check(") for cell in notebook.cells if cell.cell_type == "code"),
    )


def ticks_seen(cell: nbformat.NotebookNode) -> int:
    """Count the lines with a tick or a cross that a reader sees below a cell: of checks that unfold, only the first.

    Args:
        cell: one cell of a lesson, executed.
    """
    return _verdicts(cell, "text/plain")


def claims_shown(cell: nbformat.NotebookNode) -> int:
    """Count all claims of a cell, unfolded.

    Args:
        cell: one cell of a lesson, executed.
    """
    return _verdicts(cell, "text/html")


def _verdicts(cell: nbformat.NotebookNode, shown_as: str) -> int:
    """Count what a cell has printed of its claims, and displayed of them in one form or the other."""
    outputs = cell.get("outputs", []) if "claim(" in cell.source else []
    texts = (output.get("text", "") + output.get("data", {}).get(shown_as, "") for output in outputs)
    return sum(len(CLAIM.findall(text)) for text in texts)


def main(paths: list[Path]) -> None:
    """Print the table.

    Args:
        paths: the lessons.
    """
    print(f"{'':28}" + "".join(f"{name.replace('_', ' '):>15}" for name in Count._fields))
    for path in paths:
        counted = count(nbformat.read(path, as_version=4))
        print(f"{path.stem:28}" + "".join(f"{number:15,}" for number in counted))


if __name__ == "__main__":
    main([path for path in notebook_paths() if path.parent.name == "notebooks"])
