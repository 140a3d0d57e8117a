"""Write each chapter's exercises, without solutions, as a notebook to hand out: python -m tools.handout FOLDER

A handout holds the cell that imports what the exercises need, then for each its card, its stub and its check. It needs
the course's environment, and nothing else of the chapter. A stub that somebody has filled in is refused.
"""

import argparse
import re
import sys
from copy import deepcopy
from pathlib import Path

import nbformat

from annotated_workbench.files import write_ours
from tools.address import FIRST
from tools.sync import is_lesson, notebook_paths

CHECK = re.compile(r'^check\("([\d.]+)"', re.MULTILINE)
SOLUTIONS = re.compile(r" ?\[Solutions\]\([^)]*\)[^.]*\.| · \[solution\]\([^)]*\)")  # where they are
LINK = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")  # to something that the handout does not bring


def handout(lesson: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Give a lesson's exercises as a notebook, nothing executed, no link to another file.

    A ValueError says that the lesson has no section "Exercises", or an answer where the reader's is to come.
    """
    given = deepcopy(lesson.cells)
    begin = next((i for i, cell in enumerate(given) if "## Exercises" in cell.source), None)
    if begin is None:
        raise ValueError("the notebook has no section ## Exercises.")
    end = next((i for i in range(begin + 1, len(given)) if re.search("^## ", given[i].source, re.M)), len(given))
    given[begin].source = given[begin].source[given[begin].source.index("## Exercises") :]
    cells = [*(cell for cell in given[:begin] if cell.get("id") == FIRST), *given[begin:end]]
    stub = ""
    for cell in cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if (check := CHECK.search(cell.source)) and "..." not in stub:
                raise ValueError(f"exercise {check[1]} has an answer already: put ... back in its place.")
            stub = cell.source
        else:
            cell.source = LINK.sub(r"\1", SOLUTIONS.sub("", cell.source))
    title = next(line for line in lesson.cells[0].source.splitlines() if line.startswith("# "))  # below a picture
    heading = nbformat.v4.new_markdown_cell(f"{title}: exercises", id="title")
    return nbformat.v4.new_notebook(cells=[heading, *cells], metadata=lesson.metadata)


def main() -> None:
    """Write the handouts of all chapters."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write them, over none that was changed")
    folder, contents = parser.parse_args().folder, {}
    try:
        for path in filter(is_lesson, notebook_paths()):
            text = nbformat.writes(handout(nbformat.read(path, as_version=4)))
            contents[f"{path.stem[:2]}_exercises.ipynb"] = text.encode() + b"\n"
        write_ours(folder, contents)
    except (ValueError, OSError) as error:
        sys.exit(f"{path}: {error}" if isinstance(error, ValueError) else str(error))
    print(*map(folder.joinpath, contents), sep="\n")


if __name__ == "__main__":
    main()
