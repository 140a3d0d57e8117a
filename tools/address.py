"""What is written from the course's public address, which stands once, as `Repository` in pyproject.toml.

`make sync` writes it into the notebooks' first cell, the README, INSTALL.md and CITATION.cff. While the owner is the
placeholder `OWNER`, the two pages show no badges, which would lead nowhere, and link to the live page as a file.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import nbformat

# A document, the places in it, what stands there.
Edit = tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]

PLACEHOLDER = "OWNER"
LIVE = "docs/live/index.html"
BADGES = re.compile(r"(?<=<!-- in one click: begin -->\n).*?(?=<!-- in one click: end -->)", re.DOTALL)
TO_LIVE = re.compile(rf'(?<=\]\(|=")(?:https://[\w.-]+/[\w.-]+/)?{re.escape(LIVE)}')
CLONED = re.compile(r"(?<=git clone )https://\S+")
CITED = re.compile(r"(?<=^repository-code: ).*$", re.MULTILINE)
UNSEEN = """\
On GitHub that link shows source: download the repository (*Code → Download ZIP*) and open `docs/live/index.html`.
"""
NOWHERE = """\
This copy of the course has no public address yet, so the three below can't fetch it.
[CONTRIBUTING.md](../CONTRIBUTING.md#where-it-can-be-fetched) says how to give it one.
"""
FIRST = "find-the-course"  # the id of a notebook's first cell of code
FIRST_CELL = """\
import sys
from importlib.util import find_spec

if "google.colab" in sys.modules and not find_spec("annotated"):  # Colab begins empty: fetch the course
    get_ipython().system("git clone -q --depth 1 https://github.com/{repository} course")
    get_ipython().system(f"{{sys.executable}} -m pip install -q -e 'course[download,plots,words]'")
sys.path += [] if find_spec("annotated") else ["course", "..", "../.."]  # where it may be, seen from here
if not all(map(find_spec, ("annotated", "jaxtyping", "torch"))):
    raise ModuleNotFoundError("The course isn't here. Start it with `make lab`, or choose .venv as the kernel.")"""


def read_address(root: Path) -> str:
    """Read which repository holds the course, as "owner/name"; a ValueError says that its address is not on GitHub."""
    url = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    if not (address := re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", url)):
        raise ValueError(f"pyproject.toml: Repository is {url!r}; it must be https://github.com/OWNER/NAME.")
    return address[1]


def pages(repository: str) -> str:
    """Give the address of the live page on the site that GitHub publishes from a repository."""
    owner, name = repository.split("/")
    return LIVE if owner == PLACEHOLDER else f"https://{owner.lower()}.github.io/{name}/{LIVE}"


def badges(repository: str, drawings: str) -> str:
    """Write what opens the course in one click; nothing while there is no address."""
    if repository.startswith(f"{PLACEHOLDER}/"):
        return ""
    tour = f"github/{repository}/blob/main/notebooks/00_tour.ipynb"
    places = {
        "live": ("See it work", pages(repository)),
        "codespaces": ("Open in Codespaces", f"https://codespaces.new/{repository}"),
        "binder": ("Open in Binder", f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/work/start.md"),
        "colab": ("Open the tour in Colab", f"https://colab.research.google.com/{tour}"),
    }
    shown = (
        f'<a href="{target}"><img src="{drawings}/badges/{name}.svg" alt="{words}"></a>'
        for name, (words, target) in places.items()
    )
    return " ".join(shown) + "\n"


def edits(repository: str) -> list[Edit]:
    """List what stands where the documents name the address."""
    url = f"https://github.com/{repository}"
    return [
        ("README.md", BADGES, badges(repository, "docs/drawings") or UNSEEN),
        ("README.md", TO_LIVE, pages(repository)),
        ("docs/INSTALL.md", BADGES, badges(repository, "drawings") or NOWHERE),
        ("docs/INSTALL.md", CLONED, url),
        ("CITATION.cff", CITED, url),
    ]


def with_first_cell(notebook: nbformat.NotebookNode, repository: str) -> nbformat.NotebookNode:
    """Give a notebook with the cell in front of its other code that finds the course, or on Colab fetches it."""
    cells = list(notebook.cells)
    place = next(i for i, cell in enumerate(cells) if cell.cell_type == "code")
    old = cells.pop(place) if cells[place].get("id") == FIRST else {"execution_count": None}
    first = nbformat.v4.new_code_cell(
        FIRST_CELL.format(repository=repository),
        id=FIRST,
        metadata={"jupyter": {"source_hidden": True}, "tags": ["hide-input", "remove-cell"]},
        execution_count=old["execution_count"],
    )
    return nbformat.NotebookNode({**notebook, "cells": [*cells[:place], first, *cells[place:]]})
