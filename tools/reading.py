"""Count what a reader of a lesson meets.

On the main line (all but the exercises and *Deeper*): words, visible lines of code, lines with a tick that are seen,
figures. A formula counts as one word, a table as its words; folded cells are not visible, and checks that
unfold are one line with a tick.
"""

import re
from typing import NamedTuple

from nbformat import NotebookNode

FORMULA = re.compile(r"\$\$.+?\$\$|\$.+?\$", re.DOTALL)
WORD = re.compile(r"\w[\w'.,-]*")
CLAIM = re.compile(r"^[✓✗] ", re.MULTILINE)
SECTION = re.compile(r"^(?=## )", re.MULTILINE)


class Count(NamedTuple):
    """What a reader meets on a lesson's main line."""

    words: int
    lines: int
    ticks: int
    figures: int


def main_line(notebook: NotebookNode) -> list[NotebookNode]:
    """Give the cells of the main line, markdown split at its sections: those before the exercises, and the summary."""
    cells, section = [], ""
    for cell in notebook.cells:
        for part in SECTION.split(cell.source) if cell.cell_type == "markdown" else [cell.source]:
            section = part if cell.cell_type == "markdown" and part.startswith("## ") else section
            if not re.match("## (Exercises|Deeper)$", section, re.MULTILINE):
                cells.append(NotebookNode(cell, source=part))
    return cells


def is_folded(cell: NotebookNode) -> bool:
    """Tell whether a reader sees a cell's output alone: a proof, or what only draws."""
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def count(notebook: NotebookNode) -> Count:
    """Count what a reader meets in an executed lesson."""
    main = main_line(notebook)
    prose = "\n".join(cell.source for cell in main if cell.cell_type == "markdown")
    code = "\n".join(cell.source for cell in main if cell.cell_type == "code" and not is_folded(cell))
    return Count(
        words=len(WORD.findall(FORMULA.sub(" formula ", prose))),
        lines=sum(bool(line.strip()) for line in code.split("\n")),
        ticks=sum(verdicts(cell, "text/plain") for cell in main),
        figures=sum("image/png" in output.get("data", {}) for cell in main for output in cell.get("outputs", [])),
    )


def verdicts(cell: NotebookNode, shown_as: str) -> int:
    """Count a cell's ticks and crosses: folded as a reader sees them ("text/plain"), or unfolded ("text/html")."""
    outputs = cell.get("outputs", []) if "claim(" in cell.source else []
    texts = (output.get("text", "") + output.get("data", {}).get(shown_as, "") for output in outputs)
    return sum(len(CLAIM.findall(text)) for text in texts)
