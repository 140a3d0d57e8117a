"""Make or bring up to date a reader's own copy of the notebooks, `work/`: `python -m tools.working_copy`.

What a reader writes is never lost. A notebook that nobody has changed is replaced by the course's newer one. In one
that has been worked in, the reader's cells stay as they are, the others become the course's newer ones, and the
notebook as it was before is kept beside, in `kept/`. `.given.json` remembers what was given last. The first page,
`start.md`, is written anew each time: the tour, the ways through (`docs/WAYS.md`), and the README's table of notebooks
with what is solved.
"""

import json
import os
import re
import sys
import time
import warnings
from functools import cache, partial
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.validator import normalize

from annotated_course.exercises import all_exercises
from annotated_course.exercises.done import WORK, solved
from annotated_workbench.files import write_whole
from tools.chapters import BLOCK
from tools.sync import ROOT, notebook_paths

GIVEN, START = ".given.json", "start.md"
ROW = re.compile(r"^\|.*\]\((\d\d)_\w+\.ipynb\).*$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)#\s]*\.ipynb)#([^)\s]+)")  # to a heading of a notebook
ADDRESS = re.compile(r'(?<=\]\()(?!https?:|#)[^)]+|(?<=src=")[^"]+')  # of what a page links to or shows

Sources = dict[str, str]  # what each cell of a notebook says, by the cell's id


def main() -> None:
    """Bring the working copy up to date, and say what was done."""
    try:
        for line in update(ROOT / "notebooks", WORK):
            print(line)
        for line in update_page(start_page(ROOT, solved()), WORK):
            print(line)
    except OSError as error:
        place = error.filename or WORK
        sys.exit(f"{place}: {error.strerror}. Make room or give access, and try again; nothing is lost.")


def update(course: Path, work: Path) -> list[str]:
    """Bring a working copy up to date with the course, and sign what it gives, or no picture moves before it is run.

    Returns a line for each notebook that was worked in and changed, and one for all others that are new. After an
    OSError, as something cannot be written, the next call goes on.
    """
    lines, replaced, notary = [], 0, NotebookNotary()
    work.mkdir(parents=True, exist_ok=True)
    given = remembered(work)
    for path in notebook_paths(course.parent):
        name = path.relative_to(course).as_posix()
        mine = Path(os.path.realpath(work / name))  # a link stays one
        new = read(path)
        for cell in new.cells:  # JupyterLab finds a heading by its name only in a notebook that's open; a cell, in any
            cell.source = LINK.sub(partial(to_cell, path.parent), cell.source)
        notary.sign(new)
        if mine.exists() and given.get(name) == sources(new):
            continue
        own: set[str] = set()
        if mine.exists():
            try:
                reader = read(mine)
            except Exception as error:  # of the file, of json, and of nbformat's own kinds
                reason = next(iter(str(error).splitlines()), "")
                lines.append(f"{mine}: left as it is, for it cannot be read as a notebook ({reason}).")
                continue
            own = changed(reader.cells, given.get(name, {}), sources(new))
        if own:
            kept = keep(mine, work)
            merged = NotebookNode({**new, "cells": merge(reader.cells, new.cells, own)})
            if notary.check_signature(reader):  # what was trusted stays so
                notary.sign(merged)
            write_whole(mine, nbformat.writes(merged).encode() + b"\n")
            lines.append(f"{mine}: brought up to date around your {len(own)} cells; as it was: {kept}")
        else:
            write_whole(mine, nbformat.writes(new).encode() + b"\n")
            replaced += 1
        given[name] = sources(new)
        write_whole(work / GIVEN, json.dumps(given, ensure_ascii=False).encode())
    if replaced:
        lines.append(f"{replaced} notebooks of the course copied to {work}: nothing of yours is overwritten there.")
    return lines


def to_cell(folder: Path, link: re.Match[str]) -> str:
    """Let a link to a heading lead to the heading's cell."""
    found = headings(folder / link[1]).get(unquote(link[2]))
    return f"{link[1]}#cell-id={found}" if found else link[0]


@cache
def headings(path: Path) -> dict[str, str]:
    """Give the ids of the cells where a notebook's headings stand, by the names that JupyterLab gives to these."""
    cells = [cell for cell in read(path).cells[::-1] if cell.cell_type == "markdown"]
    found = {name: cell.id for cell in cells for name in re.findall(r"^#+ (.*)", cell.source, re.MULTILINE)}
    return {re.sub(r"[`*]", "", name).replace(" ", "-"): place for name, place in found.items()}


def remembered(work: Path) -> dict[str, Sources]:
    """Read what was given last. Without it, or where it is damaged, whatever differs counts as the reader's."""
    try:
        given = json.loads((work / GIVEN).read_text("utf-8"))
        return {name: dict(texts) for name, texts in given.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def read(path: Path) -> NotebookNode:
    """Read a notebook, whichever program has saved it; afterwards each cell has an id of its own."""
    with warnings.catch_warnings(action="ignore"):  # of missing and double ids: `normalize` gives others
        notebook = nbformat.v4.upgrade(nbformat.reads(path.read_text("utf-8"), as_version=4))
        _, notebook = normalize(notebook)
    return notebook


def keep(path: Path, work: Path) -> Path:
    """Copy what a reader has into `kept/`, under a name that nothing has there; give that."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    places = (work / "kept" / f"{path.stem}-{stamp}{'-' * i}{path.suffix}" for i in count())
    kept = next(place for place in places if not place.exists())
    write_whole(kept, path.read_bytes())
    return kept


def sources(notebook: NotebookNode) -> Sources:
    """Give a notebook's text, without outputs."""
    return {cell.id: text(cell) for cell in notebook.cells}


def text(cell: NotebookNode) -> str:
    """Give what a cell says, headed by its type: code that became Markdown says something else."""
    return f"{cell.cell_type}\n{cell.source}"


def changed(reader: list[NotebookNode], given: Sources, new: Sources) -> set[str]:
    """Give the ids of the cells that a reader has added or changed: neither as the course gave them nor as they are."""
    course = [given, new]
    return {cell.id for cell in reader if cell.source.strip() and text(cell) not in [of.get(cell.id) for of in course]}


def merge(reader: list[NotebookNode], new: list[NotebookNode], own: set[str]) -> list[NotebookNode]:
    """Put a reader's own cells among the course's newer ones: in place of their namesakes, or where they stood."""
    answers: dict[str, list[NotebookNode]] = {}  # after which of the course's cells which of the reader's stand
    known, before = {cell.id for cell in new}, ""
    for cell in reader:
        if cell.id in known:
            before = cell.id
        if cell.id in own:
            answers.setdefault(before, []).append(cell)
    merged = answers.pop("", [])
    for cell in new:
        mine = answers.get(cell.id, [])
        merged += mine if cell.id in own else [cell, *mine]
    return merged


def update_page(page: str, work: Path) -> list[str]:
    """Write the first page anew, or raise an OSError; where a reader has changed it, keep what it was."""
    mine, given, lines = work / START, work / f".{START}", []
    if mine.exists() and not (given.exists() and given.read_bytes() == mine.read_bytes()):
        lines.append(f"{mine}: written anew; as it was: {keep(mine, work)}")
    for path in (mine, given):
        write_whole(path, page.encode())
    return lines


def start_page(course: Path, done: set[str]) -> str:
    """Write the first page of the working copy, from the README's table and `docs/WAYS.md`, with what is solved."""
    exercises = all_exercises()

    def with_marks(row: re.Match[str]) -> str:
        marks = ("●" if number in done else "○" for number in exercises if number.startswith(row[1]))
        return f"{row[0].removesuffix(' |')}<br>{''.join(marks)} |"

    table = BLOCK.search(relinked(course / "README.md", course))[0]
    ways = relinked(course / "docs" / "WAYS.md", course).replace("# ", "## ")
    ways = ways.replace("(#a-weekend)", "(#A-weekend)")  # as JupyterLab names it
    left = [number for number in exercises if number not in done]
    ahead = f" The next one is {left[0]}, {exercises[left[0]].title}." if done and left else ""
    return (
        "# Attention Is All You Need, in notebooks\n\n"
        "**Begin with [the tour](00_tour.ipynb)**: half an hour with a trained Transformer; nothing to know first. "
        "Click it, then press Shift+Enter to run one cell after another. Only a minute? "
        "[Watch one translate](../docs/live/index.html).\n\n"
        "This folder is your own copy: change what you like. `make lab` brings it up to date and keeps all that "
        f"you wrote. **{len(done & exercises.keys())} of {len(exercises)} exercises solved** at the last `make lab`."
        f"{ahead} To see how it stands now, run `from annotated_course import progress; progress()` in any notebook. "
        f"[More about the course](../README.md)\n\n{ways}\n## The notebooks\n\n{ROW.sub(with_marks, table)}"
    )


def relinked(page: Path, course: Path) -> str:
    """Give a page's text with the addresses in it as they are seen from the working copy, beside `notebooks/`."""

    def follow(address: re.Match[str]) -> str:
        return Path(os.path.relpath(page.parent / address[0], course / "notebooks")).as_posix()

    return ADDRESS.sub(follow, page.read_text("utf-8"))


if __name__ == "__main__":
    main()
