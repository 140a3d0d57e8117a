"""Count what a reader of each lesson meets: python -m tools.reading

Words and visible lines of code on the main line (all but the exercises and *Deeper*), claims there and in all, folded
proofs, figures, exercises. A formula counts as one word, a table as its words; folded cells are not visible.
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
        claims=_claims(main),
        claims_in_all=_claims(notebook.cells),
        proofs=sum(is_proof(cell) for cell in main),
        figures=sum("image/png" in output.get("data", {}) for cell in main for output in cell.get("outputs", [])),
        exercises=sum(cell.source.startswith("check(") for cell in notebook.cells if cell.cell_type == "code"),
    )


def _claims(cells: list[nbformat.NotebookNode]) -> int:
    outputs = (output for cell in cells if "claim(" in cell.source for output in cell.get("outputs", []))
    return sum(len(CLAIM.findall(output.get("text", ""))) for output in outputs)


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
