"""A handout has every exercise of its chapter, and no solution, output or dead link."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
from once import once

from annotated_course.exercises import all_exercises, check
from tools import handout as module
from tools.handout import handout
from tools.sync import ROOT, is_lesson, notebook_paths

pytestmark = once

LESSONS = [path for path in notebook_paths() if is_lesson(path)]
CHECK = re.compile(r'^check\("(\d\d\.\d+)", (\w+)\)', re.MULTILINE)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_handout_has_every_exercise_and_nothing_to_copy(path) -> None:
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
    assert list(answers(path)) == chapter and told(given, path) == []


def strings(node: Any) -> Iterator[str]:
    """All text in a notebook: sources, outputs and metadata."""
    if isinstance(node, str):
        yield node
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from strings(part)


def answers(path) -> dict[str, list[str]]:
    """The lines of each exercise's answer, as the solutions have it."""
    found, before = {}, ""
    for source, number, _ in code(nbformat.read(ROOT / f"notebooks/solutions/{path.name[:2]}_solutions.ipynb", 4)):
        if number:
            found[number] = [line for line in map(str.strip, before.split("\n")) if len(line) > 7]
        before = source
    return found


def told(given: nbformat.NotebookNode, path) -> list[str]:
    """The exercises whose answer a notebook tells: it has more than 0.7 of its lines (a stub has some, as its head)."""
    lines = {line.strip() for text in strings(given) for line in text.split("\n")}
    return [
        number for number, answer in answers(path).items() if sum(map(lines.__contains__, answer)) > 0.7 * len(answer)
    ]


def test_an_answer_in_a_stub_is_refused() -> None:
    lesson = nbformat.read(LESSONS[2], as_version=4)
    place = next(i for i, cell in enumerate(lesson.cells) if cell.source.startswith('check("02.3"'))
    lesson.cells[place - 1].source = "\n".join(answers(LESSONS[2])["02.3"])
    assert told(lesson, LESSONS[2]) == ["02.3"]
    with pytest.raises(ValueError, match=r"exercise 02\.3 has an answer already"):
        handout(lesson)


def code(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str, str]]:
    """The source of each code cell; where it is a check, also the exercise and the answer's name."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield cell.source, *(CHECK.findall(cell.source) or [("", "")])[0]


@pytest.mark.thorough
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_handout_runs_by_itself_and_passes_with_the_right_answers(path, capsys: pytest.CaptureFixture[str]) -> None:
    solutions: dict[str, Any] = {}
    right = {}
    for source, number, name in code(nbformat.read(ROOT / f"notebooks/solutions/{path.stem[:2]}_solutions.ipynb", 4)):
        if number:
            right[number] = solutions[name]
        else:
            exec(source, solutions)
    capsys.readouterr()
    scope: dict[str, Any] = {}
    for source, number, name in code(handout(nbformat.read(path, as_version=4))):
        if number:
            check(number, scope[name])
            scope[name] = right[number]
        exec(source, scope)
    plt.close("all")
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:1] in ("○", "✓", "✗")]
    assert lines == [
        line
        for number, exercise in all_exercises().items()
        if number in right
        for line in (f"○ {number} not attempted yet: {exercise.title}", f"✓ {number} {exercise.title}")
    ]


def test_the_command_writes_one_for_each_chapter(tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["handout", str(tmp_path / "new" / "folder")])
    module.main()
    written = sorted((tmp_path / "new" / "folder").iterdir())
    assert [path.name for path in written] == [f"{path.stem[:2]}_exercises.ipynb" for path in LESSONS]
    assert capsys.readouterr().out.split() == [str(path) for path in written]
    with pytest.raises(ValueError, match="no section ## Exercises"):
        handout(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 1 · A chapter")]))
    undefined = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    assert subprocess.run(undefined, capture_output=True, text=True).stdout == "All checks passed!\n"
