"""What is written from the course's public address, which stands once, as `Repository` in pyproject.toml.

`make sync` writes it into the notebooks' first cell, the README, INSTALL.md and CITATION.cff. As long as the owner is
the placeholder `OWNER`, the two pages show no badges, which would lead nowhere, and link to the live page as a file.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import nbformat

PLACEHOLDER = "OWNER"
LIVE = "docs/live/index.html"
BADGES = re.compile(r"(?<=<!-- in one click: begin -->\n).*?(?=<!-- in one click: end -->)", re.DOTALL)
TO_LIVE = re.compile(rf'(?<=\]\(|=")(?:https://[\w.-]+/[\w.-]+/)?{re.escape(LIVE)}')
CLONED = re.compile(r"(?<=git clone )https://\S+")
CITED = re.compile(r"(?<=^repository-code: ).*$", re.MULTILINE)
NOWHERE = """\
This copy of the course has no public address yet, so the three below can't fetch it.
[CONTRIBUTING.md](../CONTRIBUTING.md#where-it-can-be-fetched) says how to give it one.
"""
FIRST = "find-the-course"  # the id of a notebook's first cell of code
FIRST_CELL = """\
import sys
from importlib.util import find_spec

if "google.colab" in sys.modules and not find_spec("annotated"):  # Colab begins empty: fetch the course
    get_ipython().system("git clone -q --depth 1 {url} course")
    get_ipython().system(f"{{sys.executable}} -m pip install -q -e 'course[download,plots,words]'")
sys.path += [] if find_spec("annotated") else ["course", "..", "../.."]  # where it may be, seen from here
if not all(map(find_spec, ("annotated", "jaxtyping", "torch"))):
    raise ModuleNotFoundError("The course isn't here. Start it with `make lab`, or choose .venv as the kernel.")"""


class Address(NamedTuple):
    """Where the course can be fetched."""

    owner: str
    name: str

    @property
    def is_placeholder(self) -> bool:
        """Whether nobody has said yet where that is."""
        return self.owner == PLACEHOLDER

    @property
    def url(self) -> str:
        """The repository."""
        return f"https://github.com/{self.owner}/{self.name}"

    @property
    def pages(self) -> str:
        """The site that GitHub publishes from it."""
        return f"https://{self.owner.lower()}.github.io/{self.name}/"


def read_address(root: Path) -> Address:
    """Read the address.

    Args:
        root: the folder that holds pyproject.toml.

    Raises:
        ValueError: it is none of GitHub's.
    """
    url = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    if not (found := re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?", url)):
        raise ValueError(f"pyproject.toml: Repository is {url!r}; it must be https://github.com/OWNER/NAME.")
    return Address(found[1], found[2])


def badges(address: Address, drawings: str) -> str:
    """Write what opens the course in one click; nothing while there is no address.

    Args:
        address: where the course can be fetched.
        drawings: the folder of drawings, seen from the page.
    """
    if address.is_placeholder:
        return ""
    repository = f"{address.owner}/{address.name}"
    start = "?urlpath=lab/tree/work/start.md"
    places = {
        "live": ("See it work", f"{address.pages}{LIVE}"),
        "codespaces": ("Open in Codespaces", f"https://codespaces.new/{repository}"),
        "binder": ("Open in Binder", f"https://mybinder.org/v2/gh/{repository}/HEAD{start}"),
        "colab": (
            "Open the tour in Colab",
            f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/00_tour.ipynb",
        ),
    }
    shown = (
        f'<a href="{target}"><img src="{drawings}/badges/{name}.svg" alt="{words}"></a>'
        for name, (words, target) in places.items()
    )
    return " ".join(shown) + "\n"


def addressed(root: Path) -> dict[Path, str]:
    """Give the text that each file should have that names the address, by its path.

    Args:
        root: the folder of the course.

    Raises:
        ValueError: pyproject.toml names no address, or a file has lost the place for it.
    """
    address = read_address(root)
    live = LIVE if address.is_placeholder else f"{address.pages}{LIVE}"
    changes = {
        "README.md": [(BADGES, badges(address, "docs/drawings"))],
        "docs/INSTALL.md": [(BADGES, badges(address, "drawings") or NOWHERE), (CLONED, address.url)],
        "CITATION.cff": [(CITED, address.url)],
    }
    texts = {}
    for name, edits in changes.items():
        text = (root / name).read_text(encoding="utf-8")
        for place, new in edits:
            text, count = place.subn(lambda _, new=new: new, text)
            if count != 1:
                raise ValueError(f"{name}: {count} places for the address like {place.pattern!r}; it must be one.")
        texts[root / name] = TO_LIVE.sub(live, text) if name == "README.md" else text
    return texts


def with_first_cell(notebook: nbformat.NotebookNode, address: Address) -> nbformat.NotebookNode:
    """Give a notebook with the cell in front of its others that finds the course, or on Colab fetches it.

    Args:
        notebook: a notebook as nbformat reads it, executed or not, with that cell or without; it stays as it is.
        address: where the course can be fetched.
    """
    cells = [cell.copy() for cell in notebook.cells if cell.get("id") != FIRST]
    place = next(i for i, cell in enumerate(cells) if cell.cell_type == "code")
    first = nbformat.v4.new_code_cell(
        FIRST_CELL.format(url=address.url),
        id=FIRST,
        metadata={"jupyter": {"source_hidden": True}, "tags": ["hide-input", "remove-cell"]},
        execution_count=cells[place].execution_count and 1,
    )
    cells.insert(place, first)
    executed = (cell for cell in cells if cell.cell_type == "code" and cell.execution_count)
    for number, cell in enumerate(executed, 1):
        cell.execution_count = number
        cell.outputs = [
            nbformat.NotebookNode({**output, **({"execution_count": number} if "execution_count" in output else {})})
            for output in cell.outputs
        ]
    return nbformat.NotebookNode({**notebook, "cells": cells})
