"""Every exercise: its stub is seen as untouched, its solution passes, and wrong answers get a helpful diagnosis."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from annotated.exercises import CHAPTERS, EXERCISES, check, is_untouched
from annotated.exercises.diagnosis import compare
from tests.answers import chapter_01

# Each chapter of exercises has a module of answers with the same name.
ANSWERS = [import_module(f"tests.answers.{chapter.__name__.rpartition('.')[2]}") for chapter in CHAPTERS]
WRONG = [answer for answers in ANSWERS for answer in answers.WRONG]
RIGHT = [answer for answers in ANSWERS for answer in answers.RIGHT]

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
CHECK = re.compile(r'^check\("(\d\d\.\d+)", (\w+)\)', re.MULTILINE)


def code(path: Path) -> list[str]:
    """The sources of a notebook's code cells."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def notebook_for(number: str, folder: Path) -> Path:
    """The notebook of an exercise's chapter."""
    (path,) = folder.glob(f"{number[:2]}_*.ipynb")
    return path


def verdict(capsys: pytest.CaptureFixture[str], number: str, answer: object) -> str:
    """The one line that `check` prints."""
    check(number, answer)
    (line,) = capsys.readouterr().out.splitlines()
    return line


@pytest.mark.parametrize("number", EXERCISES)
def test_untouched_stub_is_not_attempted(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    cells = code(notebook_for(number, NOTEBOOKS))
    place = next(i for i, cell in enumerate(cells) if f'check("{number}"' in cell)
    namespace: dict[str, Any] = {}
    exec(cells[0], namespace)  # the imports
    exec(cells[place - 1], namespace)
    name = CHECK.search(cells[place])[2]
    line = verdict(capsys, number, namespace[name])
    assert line == f"○ {number} not attempted yet: {EXERCISES[number].title}"


@pytest.mark.parametrize("chapter", sorted({number[:2] for number in EXERCISES}))
def test_solutions_pass(chapter: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for cell in code(notebook_for(chapter, NOTEBOOKS / "solutions")):
        exec(cell, namespace)
    expected = [f"✓ {number} {EXERCISES[number].title}" for number in EXERCISES if number.startswith(chapter)]
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize(("number", "answer", "pattern"), WRONG)
def test_wrong_answer_gets_a_diagnosis(
    number: str, answer: object, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = verdict(capsys, number, answer)
    assert line.startswith(f"✗ {number} {EXERCISES[number].title}: ")
    assert re.search(pattern, line)


def test_every_exercise_has_at_least_two_wrong_answers_here() -> None:
    wrong = [number for number, *_ in WRONG]
    assert all(wrong.count(number) >= 2 for number in EXERCISES)


@pytest.mark.parametrize(("number", "answer"), RIGHT)
def test_another_right_answer_passes(number: str, answer: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, number, answer) == f"✓ {number} {EXERCISES[number].title}"


def test_a_class_is_untouched_until_one_of_its_methods_is_written() -> None:
    class Stub:
        """What to build."""

        def __init__(self, width): ...

        def forward(self, x): ...

    class Begun(Stub):
        def forward(self, x):
            self.x = x

    class Derived(torch.nn.Linear):
        """Nothing of its own: an answer."""

    assert is_untouched(Stub)
    assert not is_untouched(Begun)
    assert not is_untouched(Derived)


def test_a_function_that_returns_a_constant_or_nothing_is_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    def constant(query, key, value):
        return 3

    assert verdict(capsys, "01.2", constant).startswith("✗")
    assert verdict(capsys, "01.2", chapter_01.without_return).startswith("✗")
    assert verdict(capsys, "01.2", None).startswith("✗")


def test_what_a_reader_raises_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def careless(query, key, value):
        raise KeyError("first\nsecond")

    assert "your code raised KeyError" in verdict(capsys, "01.2", careless)

    def speechless(query, key, value):
        raise NotImplementedError

    assert verdict(capsys, "01.2", speechless).endswith("your code raised NotImplementedError: no message")


def test_unknown_exercise_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no exercise '99\.9'.*01\.1, 01\.2"):
        check("99.9", ...)


def test_compare_prefers_a_known_mistake_to_a_general_remark() -> None:
    expected = torch.tensor([[2.0, 3.0], [5.0, 7.0]])
    assert compare(expected + 1e-5, expected, {}) is None
    assert compare(expected.T, expected, {"transposed": expected.T}) == "transposed"
    assert compare(expected.T, expected, {}) == "at index (0, 1): expected 3.000, got 5.000."
    assert compare(expected.double(), expected, {}) == "expected torch.float32, got torch.float64."
    assert compare([2.0], expected, {}) == "expected a tensor, got list."
    assert compare(0 * expected, expected, {}) == "at index (1, 1): expected 7.000, got 0.000."


def test_exercises_are_numbered_without_gaps() -> None:
    for chapter in {number[:2] for number in EXERCISES}:
        numbers = [number for number in EXERCISES if number.startswith(chapter)]
        assert numbers == [f"{chapter}.{i + 1}" for i in range(len(numbers))]


def test_stubs_show_their_shapes_in_a_docstring() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        for cell in code(path):
            if re.search(r"^ +\.\.\.$", cell, re.MULTILINE):
                assert ast.get_docstring(ast.parse(cell).body[0])
