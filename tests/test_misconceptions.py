"""The questions for each meeting: two to four a chapter, each settled where it says, with the chapter's own numbers."""

import re
from collections import Counter
from urllib.parse import unquote

import nbformat
import pytest

from tools.sync import ROOT, is_lesson, notebook_paths

TEXT = (ROOT / "docs" / "MISCONCEPTIONS.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?!they think|---)(.+) \| (.+) \| (.+) \| \[(.+)\]\(\.\./(notebooks/(\d\d)_\w+\.ipynb)#(\S+)\) \|$", re.M
)
ROWS = ROW.findall(TEXT)
LESSONS = {path.name[:2]: path for path in notebook_paths() if is_lesson(path)}
NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-\d+)?")


def chapter(path) -> tuple[list[str], str]:
    """A chapter's headings, and all that it says, in text, code and output."""
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    said = [prose, *(cell.source for cell in cells if cell.cell_type == "code")]
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        said.append(output.get("text", ""))
        said += [str(value) for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
    return re.findall(r"^#+ (.*)", prose, re.MULTILINE), "\n".join(said).replace("−", "-")


def test_each_chapter_has_two_to_four_in_one_form() -> None:
    assert len(ROWS) == len(re.findall(r"^\| (?!they think|---)", TEXT, re.MULTILINE))
    under = re.split(r"^## (\d\d) · ", TEXT, flags=re.MULTILINE)
    assert under[1::2] == list(LESSONS)
    for number, text in zip(under[1::2], under[2::2], strict=True):
        assert {row[5] for row in ROW.findall(text)} == {number}
    assert all(2 <= count <= 4 for count in Counter(row[5] for row in ROWS).values())
    assert all("?" in asked and think.endswith((".", "…")) for think, asked, *_ in ROWS)
    assert "http" not in TEXT


@pytest.mark.parametrize("number", LESSONS)
def test_what_settles_it_is_there_with_its_numbers(number: str) -> None:
    headings, said = chapter(LESSONS[number])
    numbers = set(NUMBER.findall(said))
    for _, asked, answer, label, file, where, anchor in ROWS:
        if where == number:
            assert LESSONS[number].name == file.removeprefix("notebooks/")
            heading = next(one for one in headings if one.replace(" ", "-") == unquote(anchor))
            assert label in (heading.split(" (")[0], f"section {heading.split('.')[0]}")
            assert set(NUMBER.findall(f"{asked} {answer}".replace("−", "-"))) <= numbers
