"""A handout has every exercise of its chapter, and no solution, output or dead link."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from once import once

from annotated_course.exercises import all_exercises
from tools import handout as module
from tools.handout import handout
from tools.sync import is_lesson, notebook_paths

pytestmark = once

LESSONS = [path for path in notebook_paths() if is_lesson(path)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_handout_has_every_exercise_and_nothing_to_copy(path: Path) -> None:
    lesson = nbformat.read(path, as_version=4)
    before = nbformat.writes(lesson)
    given = handout(lesson)
    nbformat.validate(given)
    assert nbformat.writes(lesson) == before
    code = [cell for cell in given.cells if cell.cell_type == "code"]
    text = "\n".join(cell.source for cell in given.cells)
    chapter = [number for number in all_exercises() if number.startswith(path.stem[:2])]
    assert re.findall(r"^### Exercise (\d\d\.\d+)", text, re.MULTILINE) == chapter
    assert re.findall(r'^check\("(\d\d\.\d+)"', text, re.MULTILINE) == chapter
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert sum("..." in cell.source for cell in code) >= len(chapter)
    assert not re.search(r"\b[Ss]olutions?\b", text) and ".ipynb" not in text
    assert re.fullmatch(rf"# {path.stem[:2]} · .+: exercises", given.cells[0].source) and "## Summary" not in text


def test_an_answer_in_a_stub_and_a_notebook_without_exercises_are_refused() -> None:
    lesson = nbformat.read(LESSONS[2], as_version=4)
    place = next(i for i, cell in enumerate(lesson.cells) if cell.source.startswith('check("02.3"'))
    lesson.cells[place - 1].source = "my_answer = 3"
    with pytest.raises(ValueError, match=r"exercise 02\.3 has an answer already"):
        handout(lesson)
    with pytest.raises(ValueError, match="no section ## Exercises"):
        handout(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 1 · A chapter")]))


def test_the_command_writes_one_for_each_chapter_which_needs_no_other_cell(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["handout", str(tmp_path / "new" / "folder")])
    module.main()
    written = sorted((tmp_path / "new" / "folder").glob("[!.]*"))
    assert [path.name for path in written] == [f"{path.stem[:2]}_exercises.ipynb" for path in LESSONS]
    assert capsys.readouterr().out.split() == [str(path) for path in written]
    undefined = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    assert subprocess.run(undefined, capture_output=True, text=True).stdout == "All checks passed!\n"
    written[3].write_text("the teacher's")
    with pytest.raises(SystemExit, match=r"03_exercises\.ipynb is yours and would be overwritten"):
        module.main()
