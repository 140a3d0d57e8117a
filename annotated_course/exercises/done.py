"""Which exercises a reader has solved: a line each in `solved.txt`, in the working copy that `make lab` makes."""

import os
import time
from pathlib import Path

# The clone that this is in or, where pip put it elsewhere, the one around the current folder.
PLACES = (Path(__file__).parents[2], Path.cwd(), *Path.cwd().parents)
CLONE = next((place for place in PLACES if (place / "notebooks" / "00_tour.ipynb").is_file()), Path.cwd())
WORK = Path(os.environ.get("ANNOTATED_WORK") or CLONE / "work").absolute()
SOLVED = WORK / "solved.txt"
# The notebook: JupyterLab tells where it lies; elsewhere, in the folder in which this is imported.
NOTEBOOK = Path(os.environ.get("JPY_SESSION_NAME") or "notebook").resolve()


def solved() -> set[str]:
    """Read the numbers of the solved exercises. A line that says something else, or was cut off, does no harm."""
    text = SOLVED.read_text("utf-8", "replace") if SOLVED.exists() else ""
    return {line.split()[0] for line in text.splitlines() if line.strip()}


def record(number: str) -> None:
    """Note that an exercise, "01.3", is solved, if the notebook lies in the working copy, but not in its `solutions/`.

    What tests and solutions solve is no progress. An OSError says that the file cannot be written.
    """
    work = WORK.resolve()
    theirs = NOTEBOOK.is_relative_to(work) and not NOTEBOOK.is_relative_to(work / "solutions")
    if theirs and number not in solved():
        # Appended in one piece, as two notebooks may do it at once, and on a line of its own, whatever stands before.
        with SOLVED.open("a", encoding="utf-8") as file:
            file.write(f"\n{number} {time.strftime('%Y-%m-%d %H:%M')}\n")
