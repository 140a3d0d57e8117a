"""A chapter is one folder: what its about.toml says is true, stands where readers look, and is all that it needs."""

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from once import once
from PIL import Image
from test_seams import prose

from tools import chapters as module
from tools import sync
from tools.address import FIRST
from tools.chapters import PART, SIZE, Chapter, chapters, read
from tools.sync import ROOT, notebook_paths

pytestmark = once

CHAPTERS = chapters(ROOT)
NUMBERED = [chapter for chapter in CHAPTERS if chapter.number]
DRAWINGS = ROOT / "docs" / "drawings"
NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-\d+)?")


@pytest.fixture(params=NUMBERED, ids=lambda chapter: chapter.notebook.stem)
def chapter(request: pytest.FixtureRequest) -> Chapter:
    return request.param


def headings(notebook: Path) -> set[str]:
    return set(re.findall(r"^#+ (.*)", prose(notebook), re.MULTILINE))


def test_nothing_differs_from_its_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sync", "--check"])
    assert sync.main() == 0, f"{capsys.readouterr().out}: run make sync"


def test_every_notebook_has_a_folder_and_every_folder_a_notebook() -> None:
    beside = [path for path in notebook_paths() if path.parent.name == "notebooks"]
    assert [chapter.notebook for chapter in CHAPTERS] == beside
    for chapter in CHAPTERS:
        assert (chapter.folder / "exercises.py").is_file() == bool(chapter.number)
        with Image.open(chapter.folder / "thumb.png") as opened:
            assert opened.size == SIZE
    assert sum((chapter.folder / "thumb.png").stat().st_size for chapter in CHAPTERS) <= 250_000


def test_title_and_minutes_are_the_lesson_s(chapter: Chapter) -> None:
    assert f"{chapter.number} · {chapter.about['title']}" in headings(chapter.notebook)
    begins = prose(chapter.notebook).partition("\n## ")[0]
    (minutes,) = re.findall(r"(?:The main line takes about |^)(\d+) minutes(?:,| if| ·)", begins, re.MULTILINE)
    assert int(minutes) == chapter.about["minutes"]


def test_misconceptions_are_settled_with_the_chapter_s_own_numbers(chapter: Chapter) -> None:
    cells = read(chapter.notebook).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    said = [cell.source for cell in cells] + [output.get("text", "") for output in outputs]
    said += [str(shown) for output in outputs for kind, shown in output.get("data", {}).items() if "text" in kind]
    numbers = set(NUMBER.findall("\n".join(said).replace("−", "-")))
    assert 1 <= len(chapter.about["misconceptions"]) <= 4
    for row in chapter.about["misconceptions"]:
        assert "?" in row["ask"] and row["think"].endswith((".", "…"))
        assert set(NUMBER.findall(f"{row['ask']} {row['answer']}".replace("−", "-"))) <= numbers, row


def test_the_code_and_tests_of_the_paper_s_parts_are_there(chapter: Chapter) -> None:
    for place in chapter.about.get("places", ()):
        assert bool(place.get("code")) == bool(place.get("tests"))
        for name in place.get("code", ()):
            assert pkgutil.resolve_name(name)
        for name in place.get("tests", ()):
            file, function = name.split(".")
            assert f"\ndef {function}(" in (ROOT / "tests" / f"{file}.py").read_text("utf-8"), name


def test_all_that_the_paper_numbers_has_a_row() -> None:
    rows = module.PLACE.findall((ROOT / module.PAPER_MAP).read_text("utf-8"))
    parts = [part for _, part in rows]
    subsections = {"": 7, "3.": 5, "3.2.": 3, "5.": 4, "6.": 3}  # how many the paper has of each
    sections = [f"§{section}{i}" for section, count in subsections.items() for i in range(1, count + 1)]
    assert [part for part in parts if part[0] == "§"] == sorted(sections)
    assert {part for part in parts if part[0] != "§"} == {
        *("Equation 1", "Equation 2", "Equation 3", "Figure 1", "Figure 2", "Figures 3, 4 and 5"),
        *("Table 1", "Table 2", "Table 3", "Table 4"),
    }
    for link, part in rows:  # the names that arXiv's pages give to sections
        levels = zip(("S", ".SS", ".SSS"), part[1:].split("."), strict=False)
        assert part[0] != "§" or link.endswith(f"#{''.join(level + count for level, count in levels)})")
    assert {place["part"] for chapter in CHAPTERS for place in chapter.about.get("places", ())} <= set(parts)


@pytest.mark.parametrize("name", ["transformer", "attention", "where"])
def test_a_drawing_s_boxes_name_code_and_lead_to_its_heading(name: str) -> None:
    svg = "{http://www.w3.org/2000/svg}"
    boxes = ElementTree.parse(DRAWINGS / f"{name}.svg").findall(f"{svg}a")
    assert len(boxes) > 20
    for box in boxes:
        code, chapter, heading = re.fullmatch(r".*: (\S+), chapter (\d\d), (.*)", box.findtext(f"{svg}title")).groups()
        assert callable(pkgutil.resolve_name(code)), code
        file, anchor = box.attrib["href"].split("#")
        assert file.startswith(f"../../notebooks/{chapter}_") and unquote(anchor) == heading.replace(" ", "-")
        assert heading in headings((DRAWINGS / file).resolve())
    assert "\n\n" not in (DRAWINGS / f"{name}.svg").read_text("utf-8"), "an empty line ends the HTML of a page"


def test_each_chapter_of_the_paper_lights_its_own_parts() -> None:
    drawn = PART.findall((DRAWINGS / "where.svg").read_text("utf-8"))
    parts = {name for _, names in drawn for name in names.split(", ")}
    lights = [frozenset(chapter.about["where"]["lights"]) for chapter in NUMBERED[1:10]]
    assert len(set(lights)) == 9 and all(lit <= parts for lit in lights)
    assert (DRAWINGS / "where_09.svg").read_text("utf-8").count(' lit"') == len(drawn)
    for chapter in NUMBERED[1:10]:
        words = f"lit up where you are: {chapter.about['where']['here']}.](../docs/drawings/where_{chapter.number}.svg)"
        assert words in read(chapter.notebook).cells[0].source.split("\n")[0]


def test_a_heading_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"c00_tour/about\.toml: 00_tour\.ipynb has no heading 'None'"):
        module.linked(CHAPTERS[0], "None", "none")


ABOUT = """title = "A dummy"
build = "nothing"
minutes = 5

[picture]
shows = "A square"
figure = "A dummy's figure"
cut = [0, 0, 1, 1]

[[misconceptions]]
think = "It is real."
ask = "Is it?"
answer = "no"
settled = "1. Nothing"
"""
EXERCISES = """from annotated_course.exercises.exercise import Exercise, as_numbers

EXERCISES = {"99.1": Exercise("Four", right=4.0, cases={"": as_numbers}, mistakes={"one less.": 3.0})}
"""
LISTS = """
from annotated_course import check, progress
from tools import working_copy
check("99.1", 3), check("99.1", 4), progress()
working_copy.main()
"""


def test_a_new_chapter_is_one_folder_and_two_notebooks(tmp_path: Path) -> None:
    def others(folder: str, names: list[str]) -> list[str]:  # all chapters but the first
        return [name for name in names if re.match(r"__pyc|project|questions|c?(?!00)\d\d_", name)]

    for path in ROOT.iterdir():
        if path.name in ("annotated_course", "docs", "notebooks", "tools"):
            shutil.copytree(path, tmp_path / path.name, ignore=others)
        elif path.name in ("README.md", "CITATION.cff"):  # which are written anew
            shutil.copy(path, tmp_path)
        elif path.name in ("annotated", "annotated_workbench", "data", "pyproject.toml"):
            (tmp_path / path.name).symlink_to(path)
    folder, notebooks = tmp_path / module.FOLDERS / "c99_dummy", tmp_path / "notebooks"
    folder.mkdir()
    (folder / "about.toml").write_text(ABOUT)
    (folder / "exercises.py").write_text(EXERCISES)
    cells = read(ROOT / "notebooks" / "01_attention.ipynb").cells
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    drawn = next(output.data for output in outputs if "image/png" in output.get("data", {}))
    figure = new_output("display_data", drawn, metadata={"image/png": {"alt": "A dummy's figure"}})
    exercise = [new_code_cell("answer = ..."), new_code_cell('check("99.1", answer)')]
    heading = new_markdown_cell("# 99 · A dummy\n\n## 1. Nothing")
    lesson = [heading, new_code_cell("draw()", outputs=[figure]), *exercise]
    for name, cells in {"99_dummy": lesson, "solutions/99_solutions": exercise}.items():
        nbformat.write(new_notebook(cells=cells), notebooks / f"{name}.ipynb")

    for _, write in sync.refresh(tmp_path):
        write()
    assert FIRST in (notebooks / "99_dummy.ipynb").read_text("utf-8") and (folder / "thumb.png").is_file()
    (row,) = re.findall(r"^.*\[99 · .*", (tmp_path / "README.md").read_text("utf-8"), re.MULTILINE)
    assert row.endswith('alt="A square"> | **[99 · A dummy](notebooks/99_dummy.ipynb)** · 5&nbsp;minutes<br>nothing |')
    assert "## 99 · A dummy\n\n| they think" in (tmp_path / module.MISCONCEPTIONS).read_text("utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "ANNOTATED_WORK": str(tmp_path / "work")}
    printed = subprocess.check_output([sys.executable, "-c", LISTS], cwd=tmp_path, env=environment, text=True)
    assert "✗ 99.1 Four: one less.\n✓ 99.1 Four\n" in printed and "\n99  ○\n" in printed
    assert "<br>nothing<br>○ |" in (tmp_path / "work" / "start.md").read_text("utf-8").partition("[99 · ")[2]
