"""Make or bring up to date a reader's own copy of the notebooks, `work/`: `python -m tools.working_copy`.

What a reader writes is never lost. A notebook that nobody has changed is replaced by the course's newer one. In one
that has been worked in, the reader's cells stay as they are, the others become the course's newer ones, and the
notebook as it was before is kept beside, in `kept/`. What was given last is remembered in `.given.json`. The folder's
first page, `start.md`, is written anew each time: the tour, the ways through (`docs/WAYS.md`), the README's table of
notebooks with what is solved, and below it what the reader has added.
"""

import json
import logging
import os
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from difflib import SequenceMatcher, ndiff
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from annotated_course.exercises import EXERCISES
from annotated_course.exercises.done import SOLVED, WORK, solved
from annotated_workbench.files import write_whole
from tools.renumber import renumber
from tools.sync import ROOT, notebook_paths

GIVEN = ".given.json"
START = "start.md"
NOTES = "## Your notes"
ROW = re.compile(r"^\| \[(\d\d)_\w+\]\(.*$", re.MULTILINE)
TABLE = re.compile(r"^## The notebooks\n.*?^$", re.MULTILINE | re.DOTALL)  # of the README, that the first page has, too
ADDRESS = re.compile(r'(?<=\]\()(?!https?:|#)[^)]+|(?<=src=")[^"]+')  # of what a page links to or shows

Sources = dict[str, str]  # a notebook's text: what each cell says, by the cell's id


def main() -> None:
    """Bring the working copy up to date, and say what was done; what cannot be done keeps nothing else from it."""
    lines = update(ROOT / "notebooks", WORK)
    try:
        done = solved()
    except OSError as error:
        lines.append(f"{SOLVED}: cannot be read, so no exercise counts as solved ({error.strerror}).")
        done = set()
    try:
        lines += update_page(start_page(ROOT, done), WORK)
    except (OSError, ValueError) as error:
        lines.append(f"{WORK / START}: left as it is ({getattr(error, 'strerror', error)}).")
    for line in lines:
        print(line)


def update(course: Path, work: Path) -> list[str]:
    """Bring a working copy up to date with the course.

    Args:
        course: the folder of the course's notebooks.
        work: the working copy; need not exist.

    Returns:
        A line for each notebook that was worked in and changed; one for all others that are new; and one for each
        reason why some are left as they are.
    """
    replaced, failed = 0, defaultdict(list)
    try:
        lines = renumber(work, keep)
    except (OSError, ValueError) as error:
        return [f"{work}: not yet brought over to the chapters' new numbers ({error}). Nothing of yours is lost."]
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return [f"{work}: no folder can be made there ({error.strerror}), so there is no working copy."]
    try:
        given = remembered(work)
    except (OSError, ValueError, RecursionError) as error:
        lines.append(f"{work / GIVEN}: not used, for it cannot be read ({error}). Nothing of yours is lost by that.")
        given = {}
    before = deepcopy(given)
    for name in [name for name, texts in given.items() if not are_sources(texts)]:
        lines.append(
            f"{work / GIVEN}: what it says of {name} is damaged and not used. Nothing of yours is lost by that."
        )
        del given[name]
    for path in notebook_paths(course.parent):
        name = path.relative_to(course).as_posix()
        mine = Path(os.path.realpath(work / name))  # a link stays one
        try:
            new = read(path)
            if mine.exists() and given.get(name) == sources(new):
                continue
            own: set[str] = set()
            if mine.exists():
                reader = read(mine, given.get(name) or sources(new))
                own = changed(reader.cells, given.get(name, {}), sources(new))
            if own:
                kept = keep(mine, work)
                merged = merge(reader.cells, new.cells, own)
                write_whole(mine, nbformat.writes(NotebookNode({**new, "cells": merged})).encode() + b"\n")
                lines.append(f"{mine}: brought up to date around your {len(own)} cells; as it was: {kept}")
            else:
                write_whole(mine, path.read_bytes())
                replaced += 1
            given[name] = sources(new)
        except Exception as error:  # nbformat raises what json and its own validation do; nothing stops the others
            reason = f" or written ({error.strerror})" if isinstance(error, OSError) else " as a notebook"
            failed[reason].append(str(work / name))
    for reason, names in failed.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        lines.append(f"{', '.join(names[:5])}{more}: left as it is, for it cannot be read{reason}.")
    if replaced:
        lines.append(
            f"{replaced} notebooks of the course copied to {work}: work there, nothing of yours is overwritten."
        )
    if given != before:
        try:
            write_whole(work / GIVEN, json.dumps(given, ensure_ascii=False).encode())
        except OSError as error:
            lines.append(f"{work / GIVEN}: cannot be written ({error.strerror}).")
    return lines


def remembered(work: Path) -> dict[str, Sources]:
    """Read what was given last; a notebook's entry may still be damaged.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds something else.
    """
    if not (work / GIVEN).exists():
        return {}
    given = json.loads((work / GIVEN).read_text("utf-8"))
    if not isinstance(given, dict):
        raise ValueError("it is no table of notebooks")
    return given


def are_sources(texts: object) -> bool:
    """Tell whether an entry of the record says what each cell of a notebook was."""
    return isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())


def read(path: Path, known: Sources | None = None) -> NotebookNode:
    """Read a notebook, whichever program has saved it; afterwards each cell has an id of its own.

    Args:
        path: the notebook.
        known: the course's cells. A cell without the id of one of them gets it where it stands in its place.

    Raises:
        ValueError: it is no valid notebook.
    """
    wrong: dict[str, Exception] = {}
    log = logging.getLogger("traitlets")  # where nbformat says what is wrong, at length
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing and double ids: `identify` gives others
        log.disabled = True
        try:
            notebook = nbformat.reads(path.read_text("utf-8"), as_version=4, capture_validation_error=wrong)
        finally:
            log.disabled = False
    if wrong:
        raise ValueError("it is no valid notebook")
    identify(notebook.cells, known or {})
    return notebook


def identify(cells: list[NotebookNode], known: Sources) -> None:
    """Give each cell an id of its own: the course's, or else one that is new; by what the cells say, in order.

    Args:
        cells: a notebook's, perhaps without ids, with double ones, or with those of another program.
        known: the course's cells.
    """
    taken: set[str] = set()
    for cell in cells:
        if cell.get("id") in taken:
            cell.pop("id", None)
        taken.add(cell.get("id"))
    said = [known.get(cell.get("id"), text(cell)) for cell in cells]
    for _, i, i_end, j, j_end in SequenceMatcher(None, list(known.values()), said, autojunk=False).get_opcodes():
        for name, cell in zip(list(known)[i:i_end], cells[j:j_end], strict=False):
            if cell.get("id") not in known and name not in taken:
                cell.id = name
                taken.add(name)
    for place, cell in enumerate(cells):
        if "id" not in cell:
            cell.id = f"cell-{place}"
            while cell.id in taken:
                cell.id += "-"
            taken.add(cell.id)


def keep(path: Path, work: Path) -> Path:
    """Copy what a reader has into `kept/`, under a name that nothing has there; give that."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    places = (work / "kept" / f"{path.stem}-{stamp}{'-' * i}{path.suffix}" for i in count())
    kept = next(place for place in places if not place.exists())
    write_whole(kept, path.read_bytes())
    return kept


def update_page(page: str, work: Path) -> list[str]:
    """Write the first page anew; what a reader has added to it follows under a heading of its own.

    Args:
        page: the page as it is now.
        work: the working copy.

    Returns:
        A line where it cannot be told what the reader has added, so that the whole page is kept.

    Raises:
        OSError: it cannot be read or written.
    """
    mine, given = work / START, work / f".{START}"
    lines, notes = [], ""
    if mine.exists() and not given.exists():
        lines.append(f"{mine}: written anew; as it was: {keep(mine, work)}")
    elif mine.exists():
        difference = ndiff(given.read_text("utf-8").splitlines(), mine.read_text("utf-8-sig").splitlines())
        added = [line[2:] for line in difference if line.startswith("+ ") and line[2:] != NOTES]
        notes = "\n".join(added).strip("\n")
    write_whole(mine, (f"{page}\n{NOTES}\n\n{notes}\n" if notes else page).encode())
    write_whole(given, page.encode())
    return lines


def sources(notebook: NotebookNode) -> Sources:
    """Give a notebook's text, without outputs."""
    return {cell.id: text(cell) for cell in notebook.cells}


def text(cell: NotebookNode) -> str:
    """Give what a cell says, headed by its type: code that became Markdown says something else."""
    return f"{cell.cell_type}\n{cell.source}"


def changed(reader: Iterable[NotebookNode], given: Sources, new: Sources) -> set[str]:
    """Give the ids of the cells that a reader has added or changed.

    Args:
        reader: the cells of the reader's notebook.
        given: what the course gave last.
        new: what the course has now: whatever equals that needs no keeping.
    """
    return {
        cell.id for cell in reader if cell.source.strip() and text(cell) not in (given.get(cell.id), new.get(cell.id))
    }


def merge(reader: list[NotebookNode], new: list[NotebookNode], own: set[str]) -> list[NotebookNode]:
    """Put a reader's own cells into the course's newer ones: in place of those with the same id, or where they stood.

    Args:
        reader: the cells of the reader's notebook.
        new: the course's cells.
        own: which of the reader's are their own.
    """
    answers: dict[str, list[NotebookNode]] = {}
    known, before = {cell.id for cell in new}, ""
    for cell in reader:
        if cell.id in known:
            before = cell.id
        if cell.id in own:
            answers.setdefault(before, []).append(cell)
    merged: list[Any] = answers.pop("", [])
    for cell in new:
        mine = answers.get(cell.id, [])
        merged += mine if any(one.id == cell.id for one in mine) else [cell, *mine]
    return merged


def start_page(course: Path, done: set[str]) -> str:
    """Write the first page of the working copy.

    Args:
        course: the folder with the README, which has the table of notebooks, and `docs/WAYS.md`.
        done: the numbers of the solved exercises.

    Raises:
        OSError: one of the two cannot be read.
    """

    def with_marks(row: re.Match[str]) -> str:
        numbers = [number for number in EXERCISES if number.startswith(row[1])]
        cells = row[0].split(" | ")
        cells[-1] = "".join("●" if number in done else "○" for number in numbers) + " |"
        return " | ".join(cells)

    (table,) = TABLE.findall(relinked(course / "README.md", course))
    ways = relinked(course / "docs" / "WAYS.md", course).replace("# ", "## ", 1)
    left = [number for number in EXERCISES if number not in done]
    ahead = f" The next one is {left[0]}, {EXERCISES[left[0]].title}." if done and left else ""
    return (
        "# Attention Is All You Need, in notebooks\n\n"
        "**Begin with [the tour](00_tour.ipynb)**: half an hour with a trained Transformer; nothing to know first. "
        "Click it, then press Shift+Enter to run one cell after another.\n\n"
        f"{ways}\n"
        f"{ROW.sub(with_marks, table)}\n"
        f"**{len(done & EXERCISES.keys())} of {len(EXERCISES)} exercises solved** when this page was written.{ahead} "
        "How it stands now, `progress()` prints in a notebook, after "
        "`from annotated_course import progress`, and `python -m annotated progress` in a terminal.\n\n"
        "This folder is your copy of the course: change what you like. `make lab` brings it up to date with the course "
        "and keeps all that you wrote. [More about the course](../README.md)\n"
    )


def relinked(page: Path, course: Path) -> str:
    """Give a page's text with the addresses in it as they are seen from the working copy.

    Args:
        page: a file of Markdown.
        course: the folder of the course, in which the working copy lies beside `notebooks/`.
    """

    def follow(address: re.Match[str]) -> str:
        target = Path(os.path.relpath(os.path.normpath(page.parent / address[0]), course))
        return (
            target.relative_to("notebooks").as_posix() if target.parts[0] == "notebooks" else f"../{target.as_posix()}"
        )

    return ADDRESS.sub(follow, page.read_text("utf-8"))


if __name__ == "__main__":
    main()
