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

from tools import chapters as module
from tools import sync
from tools.address import FIRST, read_address, with_first_cell
from tools.chapters import PART, SIZE, Chapter, chapters, picture, read
from tools.sync import ROOT, notebook_paths

pytestmark = once

CHAPTERS = chapters(ROOT)
NUMBERED = [chapter for chapter in CHAPTERS if chapter.number]
DRAWINGS = ROOT / "docs" / "drawings"
NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-\d+)?")


@pytest.fixture(params=NUMBERED, ids=lambda chapter: chapter.notebook.stem)
def chapter(request: pytest.FixtureRequest) -> Chapter:
    return request.param


def prose(notebook: Path) -> str:
    return "\n".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")


def headings(notebook: Path) -> set[str]:
    return set(re.findall(r"^#+ (.*)", prose(notebook), re.MULTILINE))


def test_nothing_differs_from_its_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sync", "--check"])
    assert sync.main() == 0, f"{capsys.readouterr().out}: run make sync"


def test_every_notebook_has_a_folder_and_every_folder_a_notebook() -> None:
    assert [chapter.notebook for chapter in CHAPTERS] == [
        path for path in notebook_paths() if path.parent.name == "notebooks"
    ]
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
    said = [str(cell.source) for cell in read(chapter.notebook).cells]
    for output in (output for cell in read(chapter.notebook).cells for output in cell.get("outputs", [])):
        said += [
            output.get("text", ""),
            *(str(text) for kind, text in output.get("data", {}).items() if "text" in kind),
        ]
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
        code, chapter, heading = re.fullmatch(
            r".*: (\S+), chapter (\d\d), (.*)", box.findtext(f"{svg}title", "")
        ).groups()
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


def test_a_figure_or_a_heading_that_is_not_there_is_named() -> None:
    for words, number in {"Nothing begins like this": 0, "A map": 2}.items():
        about = CHAPTERS[0].about | {"picture": {"figure": words}}
        with pytest.raises(ValueError, match=f"00_tour: {number} figures are described as “{words} …”"):
            picture(CHAPTERS[0]._replace(about=about))
    with pytest.raises(ValueError, match=r"c00_tour/about\.toml: 00_tour\.ipynb has no heading 'None'"):
        module.linked(CHAPTERS[0], "None", "none")


ABOUT = """title = "A dummy"
build = "nothing"
paper = "after"
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

FOUR = Exercise("Four", right=4.0, cases={"": as_numbers}, mistakes={"one less.": 3.0})
EXERCISES = {f"99.{i}": FOUR for i in range(1, 5)}
"""
CARD = """### Exercise 99.{i} · Four

Give 4. <details><summary>Hint</summary>4</details> **Why it matters**: no.
**Difficulty** ★☆☆☆ · 2 minutes · [solution](solutions/99_solutions.ipynb#Exercise-99.{i}:-Four)"""


LISTS = """
from annotated_course import check, progress
from tools import working_copy
check("99.1", 4), check("99.2", 3), progress()
working_copy.main()
"""


def write_notebook(path: Path, cells: list[nbformat.NotebookNode]) -> None:
    """Write a notebook as if it had been executed."""
    metadata = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    notebook = with_first_cell(new_notebook(cells=cells, metadata=metadata), read_address(ROOT))
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the course's first two chapters, with one folder and two notebooks more."""
    course = tmp_path_factory.mktemp("course")

    def others(folder: str, names: list[str]) -> list[str]:
        later = [name for name in names if (number := re.match(r"c?(\d\d)_", name)) and int(number[1]) > 1]
        return [*later, "__pycache__"]

    for path in ROOT.iterdir():
        if path.name in ("annotated_course", "docs", "notebooks", "tests", "tools"):
            shutil.copytree(path, course / path.name, ignore=others)
        elif path.name in ("README.md", "CITATION.cff"):  # which are written anew
            shutil.copy(path, course)
        elif path.is_file() or path.name in ("annotated", "annotated_workbench", "data"):
            (course / path.name).symlink_to(path)
    folder = course / module.FOLDERS / "c99_dummy"
    folder.mkdir()
    (folder / "about.toml").write_text(ABOUT)
    (folder / "exercises.py").write_text(EXERCISES)
    image = read(ROOT / "notebooks" / "01_attention.ipynb")
    drawn = next(out for cell in image.cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {}))
    described = {"image/png": {"alt": "A dummy's figure"}}
    words = new_output("display_data", {"text/html": "<details><summary>?</summary>A dummy&#x27;s figure</details>"})
    lesson = [
        new_markdown_cell("# 99 · A dummy\n\n5 minutes, if any.\n\n## 1. Nothing"),
        new_code_cell("draw()", outputs=[new_output("display_data", dict(drawn.data), metadata=described), words]),
        new_markdown_cell("## Exercises"),
        new_code_cell("from annotated_course import check"),
    ]
    solutions = [new_code_cell("from annotated_course import check")]
    for i in range(1, 5):
        printed = [new_output("stream", text=f"{sign} 99.{i} Four\n") for sign in "○✓"]
        lesson += [new_markdown_cell(CARD.format(i=i)), new_code_cell("answer = ...")]
        lesson.append(new_code_cell(f'check("99.{i}", answer)', outputs=[printed[0]]))
        solutions += [new_markdown_cell(f"## Exercise 99.{i}: Four"), new_code_cell("answer = 4")]
        solutions.append(new_code_cell(f'check("99.{i}", answer)', outputs=[printed[1]]))
    write_notebook(course / "notebooks" / "99_dummy.ipynb", lesson)
    write_notebook(course / "notebooks" / "solutions" / "99_solutions.ipynb", solutions)
    return course


def run(course: Path, *arguments: str) -> str:
    """Run Python on the copy, and give what it prints."""
    environment = os.environ | {"PYTHONPATH": str(course), "ANNOTATED_WORK": str(course / "work")}
    done = subprocess.run([sys.executable, *arguments], cwd=course, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_chapter_is_one_folder_and_two_notebooks(course: Path) -> None:
    assert FIRST in (course / "notebooks" / "99_dummy.ipynb").read_text("utf-8")
    run(course, "-m", "tools.sync")
    assert (course / module.FOLDERS / "c99_dummy" / "thumb.png").is_file()
    (row,) = re.findall(r"^\| \[99_dummy\].*", (course / "README.md").read_text("utf-8"), re.MULTILINE)
    assert row.endswith('alt="A square"> | nothing | after | 5 | 4 |')
    assert "## 99 · A dummy\n\n| they think" in (course / module.MISCONCEPTIONS).read_text("utf-8")
    printed = run(course, "-c", LISTS)
    assert "✓ 99.1 Four\n✗ 99.2 Four: one less.\n" in printed and "\n99  ○○○○" in printed
    assert "| 5 | ○○○○ |" in (course / "work" / "start.md").read_text("utf-8").partition("[99_dummy]")[2]
    assert " passed" in run(
        course, "-m", "pytest", "-q", "-k", "99", "tests/test_notebooks.py", "tests/test_chapters.py"
    )
