"""docs/PAPER_MAP.md names all that the paper numbers, and everything that it leads to is there."""

import importlib
import re
from urllib.parse import unquote

import nbformat
import pytest
from once import once

from tools.sync import ROOT

pytestmark = once

ROWS = re.findall(
    r"^\| \[(.+?)\]\((https:\S+)\) \| (.*) \| (.*) \| (.*) \|$",
    (ROOT / "docs" / "PAPER_MAP.md").read_text("utf-8"),
    re.M,
)
LINK = re.compile(r"\[`?([^]`]*)`?\]\(([^)#]+)#?([^)]*)\)")
SUBSECTIONS = {"": 7, "3.": 5, "3.2.": 3, "5.": 4, "6.": 3}  # how many the paper has of each


def test_all_that_the_paper_numbers_is_there_in_its_order() -> None:
    names = [re.sub(r" [A-Z][a-z].*", "", name) if name.startswith("§") else name for name, *_ in ROWS]
    sections = [f"§{section}{i}" for section, count in SUBSECTIONS.items() for i in range(1, count + 1)]
    assert [name for name in names if name.startswith("§")] == sorted(sections)
    assert sorted(name for name in names if not name.startswith("§")) == [
        *("Equation 1", "Equation 2", "Equation 3", "Figure 1", "Figure 2", "Figures 3, 4 and 5"),
        *("Table 1", "Table 2", "Table 3", "Table 4"),
    ]


@pytest.mark.parametrize(("name", "address", "here", "code", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_it_leads_to_what_is_there(name: str, address: str, here: str, code: str, tests: str) -> None:
    number = re.match(r"§([\d.]+) ", name)
    if number:  # the names that arXiv's pages give to sections
        levels = zip(("S", ".SS", ".SSS"), number[1].split("."), strict=False)
        assert address.endswith("#" + "".join(level + count for level, count in levels))
    assert address.startswith("https://arxiv.org/html/1706.03762v7")
    if here == "not in this course":
        assert name in ("§6.3 English Constituency Parsing", "Table 4") and code == tests == "–"
        return
    sections, functions, checks = (LINK.findall(cell.replace("](../", "](")) for cell in (here, code, tests))
    assert sections and bool(functions) == bool(checks)
    for label, file, anchor in sections:
        notebook = nbformat.read(ROOT / file, as_version=4)
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        headings = [heading.replace(" ", "-") for heading in re.findall(r"^#+ (.*)", prose, re.MULTILINE)]
        assert unquote(anchor) in headings
        chapter, place = label.split(", ")
        assert file.startswith(f"notebooks/{chapter}_")
        assert place == "Deeper" or unquote(anchor).startswith(f"{place}.-")
    for label, file, _ in functions:
        assert hasattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), label)
    for label, file, _ in checks:
        assert f"\ndef {label}(" in (ROOT / file).read_text("utf-8")
