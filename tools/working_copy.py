"""Make or bring up to date a reader's own copy of the notebooks, `work/`: `python -m tools.working_copy`.

What a reader writes is never lost. A notebook that nobody has changed is replaced by the course's newer one. In one
that has been worked in, the reader's cells stay as they are, the others become the course's newer ones, and the
notebook as it was before is kept beside, in `kept/`. What was given last is remembered in `.given.json`. The folder's
first page, `start.md`, is written anew each time: the README's table of notebooks, with what is solved.
"""

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from annotated.course.exercises import EXERCISES
from annotated.course.exercises.done import WORK, solved
from annotated.workbench.files import write_whole
from tools.sync import ROOT, notebook_paths

GIVEN = ".given.json"
START = "start.md"
ROW = re.compile(r"^\| \[(\d\d)_\w+\]\(notebooks/.*$", re.MULTILINE)
SECTIONS = ("The notebooks", "Which way through")  # of the README, that the first page has, too

Sources = dict[str, str]  # a notebook's text: the source of each cell, by the cell's id


def main() -> None:
    """Bring the working copy up to date, and say what was done."""
    for line in update(ROOT / "notebooks", WORK):
        print(line)
    write_whole(WORK / START, start_page((ROOT / "README.md").read_text("utf-8"), solved()).encode())


def update(course: Path, work: Path) -> list[str]:
    """Bring a working copy up to date with the course.

    Args:
        course: the folder of the course's notebooks.
        work: the working copy; need not exist.

    Returns:
        A line for each notebook that was worked in and changed, or cannot be read; one for all others that are new.
    """
    remembered = work / GIVEN
    given: dict[str, Sources] = json.loads(remembered.read_text("utf-8")) if remembered.exists() else {}
    lines, replaced = [], 0
    for path in notebook_paths(course.parent):
        name = path.relative_to(course).as_posix()
        new, mine = nbformat.read(path, as_version=4), work / name
        if mine.exists() and given.get(name) == sources(new):
            continue
        if not mine.exists():
            copy(path, mine)
            replaced += 1
        else:
            try:
                reader = nbformat.read(mine, as_version=4)
            except Exception as error:  # nbformat raises what json and its own validation do
                lines.append(f"{mine}: left as it is, for it cannot be read as a notebook ({type(error).__name__}).")
                continue
            own = changed(reader.cells, given.get(name, {}), sources(new))
            if own:
                kept = work / "kept" / f"{mine.stem}-{time.strftime('%Y%m%d-%H%M%S')}.ipynb"
                copy(mine, kept)
                merged = merge(reader.cells, new.cells, own)
                write_whole(mine, nbformat.writes(NotebookNode({**new, "cells": merged})).encode() + b"\n")
                lines.append(f"{mine}: brought up to date around your {len(own)} cells; as it was: {kept}")
            else:
                copy(path, mine)
                replaced += 1
        given[name] = sources(new)
    if replaced:
        lines.append(
            f"{replaced} notebooks of the course copied to {work}: work there, nothing of yours is overwritten."
        )
        lines.sort(key=lambda line: "copied to" in line)
    write_whole(remembered, json.dumps(given, ensure_ascii=False).encode())
    return lines


def copy(path: Path, to: Path) -> None:
    """Copy a file, whole or not at all, into a folder that need not exist."""
    write_whole(to, path.read_bytes())


def sources(notebook: NotebookNode) -> Sources:
    """Give a notebook's text, without outputs."""
    return {cell.id: cell.source for cell in notebook.cells}


def changed(reader: Iterable[NotebookNode], given: Sources, new: Sources) -> set[str]:
    """Give the ids of the cells that a reader has added or changed.

    Args:
        reader: the cells of the reader's notebook.
        given: what the course gave last.
        new: what the course has now: whatever equals that needs no keeping.
    """
    return {
        cell.id for cell in reader if cell.source.strip() and cell.source not in (given.get(cell.id), new.get(cell.id))
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


def start_page(readme: str, done: set[str]) -> str:
    """Write the first page of the working copy.

    Args:
        readme: the README, with the table of notebooks.
        done: the numbers of the solved exercises.
    """

    def with_marks(row: re.Match[str]) -> str:
        numbers = [number for number in EXERCISES if number.startswith(row[1])]
        cells = row[0].split(" | ")
        cells[-1] = "".join("●" if number in done else "○" for number in numbers) + " |"
        return " | ".join(cells)

    parts = [part for part in re.split(r"^(?=## )", readme, flags=re.MULTILINE) if part[3:].startswith(SECTIONS)]
    text = ROW.sub(with_marks, "".join(parts))
    text = (
        re.sub(r"\]\((?!https?:|#|notebooks)", "](../", text)
        .replace("](notebooks/", "](")
        .replace("](notebooks)", "](.)")
    )
    left = [number for number in EXERCISES if number not in done]
    ahead = f" The next one is {left[0]}, {EXERCISES[left[0]].title}." if done and left else ""
    return (
        "# Attention Is All You Need, in notebooks\n\n"
        "This folder is your copy of the course: change what you like. `make lab` brings it up to date with the course "
        "and keeps all that you wrote. Click a notebook to open it; Shift+Enter runs a cell.\n\n"
        f"**{len(done & EXERCISES.keys())} of {len(EXERCISES)} exercises solved** when this page was written.{ahead} "
        "How it stands now, `progress()` prints in a notebook, after "
        "`from annotated.course.exercises import progress`, and `python -m annotated progress` in a terminal.\n\n"
        + text.rstrip()
        + "\n\n[More about the course](../README.md)\n"
    )


if __name__ == "__main__":
    main()
