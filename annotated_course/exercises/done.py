"""Which exercises a reader has solved: a line each in `solved.txt`, in the working copy that `make lab` makes."""

import os
import time
from pathlib import Path

WORK = Path(os.environ.get("ANNOTATED_WORK") or Path(__file__).parents[2] / "work").absolute()
SOLVED = WORK / "solved.txt"
# Where the notebook lies: JupyterLab tells it; elsewhere it is where this is imported. It may change its folder later.
NOTEBOOK = Path(os.environ.get("JPY_SESSION_NAME") or "notebook").absolute()


def solved() -> set[str]:
    """Read the numbers of the solved exercises. A line that says something else, or was cut off, does no harm."""
    text = SOLVED.read_text("utf-8", "replace") if SOLVED.exists() else ""
    return {line.split()[0] for line in text.splitlines() if line.strip()}


def record(number: str) -> None:
    """Note that an exercise is solved, if this runs anywhere in the working copy but in its `solutions/`.

    What tests and solutions solve is no progress.

    Args:
        number: chapter and place, as "01.3".

    Raises:
        OSError: the file cannot be written.
    """
    folders = [folder for place in (NOTEBOOK, Path.cwd() / "here") for folder in _inside(place)]
    if not folders or folders[0] == "solutions" or number in solved():
        return
    # Appended in one piece, as two notebooks may do it at once, and on a line of its own, whatever stands before.
    with SOLVED.open("a", encoding="utf-8") as file:
        file.write(f"\n{number} {time.strftime('%Y-%m-%d %H:%M')}\n")
        file.flush()
        os.fsync(file.fileno())


def _inside(place: Path) -> tuple[str, ...]:
    """Give the way to a file from the working copy, through whatever links; nothing where it lies elsewhere."""
    for folder in place.parents:
        if folder.exists() and WORK.exists() and folder.samefile(WORK):
            return place.relative_to(folder).parts
    return ()
