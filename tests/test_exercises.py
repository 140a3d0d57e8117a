"""Every exercise: its stub is seen as untouched, its right answer passes, and each mistake earns its own sentence."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import jaxtyping
import nbformat
import numpy as np
import pytest
import torch

from annotated_course.chapters.c12_model_variations.exercises import shuffled_share
from annotated_course.exercises import EXERCISES, check
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, numbers, slip, wrong_answers

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"

# The numbers are the answer.
BY_HAND = [number for number, exercise in EXERCISES.items() if exercise.by_hand or number == "06.1"]

IMPORT = re.compile(r"^from annotated_course import .*\bcheck\b", re.MULTILINE)

CHECK = re.compile(r'^check\("(\d\d\.\d+)", (\w+)\)', re.MULTILINE)

SHAPE = re.compile(
    r"\((?:…|\w+)(?:, [^()]+|,)?\)|any shape|\bn [a-z]+"
)  # (batch, length), (d), of any shape, n changes


@cache
def code(path: Path) -> list[str]:
    """The sources of a notebook's code cells."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def notebook_for(number: str, folder: Path) -> Path:
    """The notebook of an exercise's chapter."""
    (path,) = folder.glob(f"{number[:2]}_*.ipynb")
    return path


def stub(number: str) -> str:
    """The source of what a reader completes: the cell before the check."""
    cells = code(notebook_for(number, NOTEBOOKS))
    return cells[next(i for i, cell in enumerate(cells) if f'check("{number}"' in cell) - 1]


def shows_shapes(source: str) -> bool:
    """Whether a stub has a docstring, with a shape where its signature speaks of tensors; `answer = ...` has none."""
    definition = ast.parse(source).body[0]
    if not isinstance(definition, ast.FunctionDef | ast.ClassDef):
        return True
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return bool(SHAPE.search(" ".join(docstrings)) if "Tensor" in source else docstrings[0])


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
    exec([cell for cell in cells if IMPORT.search(cell)][-1], namespace)  # where one who comes back starts
    exec(cells[place - 1], namespace)
    name = CHECK.search(cells[place])[2]
    line = verdict(capsys, number, namespace[name])
    assert line == f"○ {number} not attempted yet: {EXERCISES[number].title}"


@pytest.mark.parametrize("number", EXERCISES)
def test_every_mistake_earns_its_own_sentence(number: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no more than the reader's notebook checks
    exercise = EXERCISES[number]
    wrong = [one for table in (exercise.mistakes, exercise.caught) for one in wrong_answers(table, exercise.right)]
    assert len(wrong) >= 2
    for sentence, answer in wrong:
        line = verdict(capsys, number, answer)
        assert line.startswith(f"✗ {number} {exercise.title}: ")
        told = [one for one in exercise.mistakes if line.endswith(f": {one}")]
        assert told == [sentence] if sentence in exercise.mistakes else sentence in line and not told


@pytest.mark.parametrize("number", EXERCISES)
def test_the_right_answer_passes(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, number, EXERCISES[number].right) == f"✓ {number} {EXERCISES[number].title}"


@pytest.mark.parametrize("number", BY_HAND)
def test_a_diagnosis_does_not_tell_a_number_that_is_the_answer(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    right = torch.as_tensor(EXERCISES[number].right, dtype=torch.float64).tolist()
    several = right if isinstance(right, list) else [right]
    for place, secret in enumerate(several):
        for wrong in (1.37 * secret + 0.11, secret - 3, 3 * secret + 1, 0.9 * secret):
            if np.isclose(wrong, secret, rtol=0.01):
                continue
            answer = [*several[:place], wrong, *several[place + 1 :]] if several is right else wrong
            diagnosis = re.sub(r"number \d", "", verdict(capsys, number, answer).split(": ", 1)[1])
            told = [float(one.replace(",", "")) for one in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e\+\d+)?", diagnosis)]
            assert not np.isclose(told, secret, rtol=2e-3).any(), diagnosis


def scaled_in_place(query, key, value):
    query /= query.size(-1) ** 0.5
    return (query @ key.transpose(-2, -1)).softmax(-1) @ value


def share_of_one_list(base, row):
    runs = len(base)
    base += row
    return shuffled_share(base[:runs], row)


def layer_in_place(number: str) -> type[torch.nn.Module]:
    """The right layer of an exercise, which also writes its result over its input."""

    class InPlace(EXERCISES[number].right):
        def forward(self, x, *others):
            return x.copy_(super().forward(x, *others))

    return InPlace


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("01.2", scaled_in_place),
        ("04.3", lambda x, gain, eps: x.mul_(gain / (x.square().mean(-1, keepdim=True) + eps).sqrt())),
        ("04.4", layer_in_place("04.4")),
        ("05.4", layer_in_place("05.4")),
        ("12.5", share_of_one_list),
    ],
)
def test_a_right_answer_may_work_in_place(number: str, answer: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, number, answer) == f"✓ {number} {EXERCISES[number].title}"


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("01.2", lambda query, key, value: value.zero_()[..., :1, :].expand(*query.shape[:-1], -1)),
        ("04.3", lambda x, gain, eps: x.zero_()),
        ("07.5", lambda weight, gradients, *_: [g.zero_() for g in gradients] and weight.clone()),
    ],
)
def test_a_wrong_answer_cannot_make_itself_right(
    number: str, answer: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(capsys, number, answer).startswith("✗")


def test_unknown_exercise_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no exercise '99\.9'.*01\.1, 01\.2"):
        check("99.9", ...)


def test_exercises_are_numbered_without_gaps() -> None:
    for chapter in {number[:2] for number in EXERCISES}:
        numbers = [number for number in EXERCISES if number.startswith(chapter)]
        assert numbers == [f"{chapter}.{i + 1}" for i in range(len(numbers))]


@pytest.mark.parametrize("number", EXERCISES)
def test_stubs_show_their_shapes_in_a_docstring(number: str) -> None:
    assert shows_shapes(stub(number))


@pytest.mark.parametrize(
    "docstring", ["", '"""Mix the values."""', '"""Mix the values (those of the keys)."""', "# (batch, length)"]
)
def test_a_stub_without_shapes_is_noticed(docstring: str) -> None:
    assert not shows_shapes(f"def mix(query: Tensor, key: Tensor) -> Tensor:\n    {docstring}\n    ...")
    assert not shows_shapes(f"class Mixer:\n    {docstring}\n    def mix(self, query: Tensor) -> Tensor: ...")
    assert not shows_shapes("def count(heads: int) -> int: ...")


SUM = Exercise(
    "A sum",
    right=lambda x, y: x + y,
    cases={"": calls(2, 2), "with larger numbers: ": calls(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))},
    mistakes={"multiplied": lambda x, y: x * y, "doubled": AnyOf(lambda x, y: 2 * x, lambda x, y: 2 * y)},
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda x, y: y + x, None),
        (lambda x, y: x.add_(y) if isinstance(x, torch.Tensor) else x + y, None),
        (lambda x, y: x * y, "with larger numbers: multiplied"),  # as right as any where 2 · 2 = 2 + 2
        (lambda x, y: y + y, "with larger numbers: doubled"),
        (lambda x, y: x - y, "expected 4, got 0."),
        (lambda x, y: None, "your function returned None: does it end in a return?"),
        (lambda x, y: float(x + y), "expected an int, got a float: divide whole numbers by //, or not at all."),
        (
            lambda x, y: torch.tensor(4) if isinstance(x, int) else 3,
            "with larger numbers: expected a tensor, got an int.",
        ),
        (
            lambda x, y: 4 if isinstance(x, int) else 3 * (x + y),
            "with larger numbers: off by a constant factor 3.00.",
        ),
        (
            lambda x, y: 4 if isinstance(x, int) else (x + y).double(),
            "with larger numbers: expected torch.float32, got torch.float64.",
        ),
        (
            lambda x, y: 4 if isinstance(x, int) else (x + y).flip(0),
            "with larger numbers: at index (0,): expected 7.000, got 10.000.",
        ),
    ],
)
def test_a_known_mistake_comes_before_a_general_remark(answer: Any, said: str | None) -> None:
    assert SUM.diagnose(answer) == said


class Adder:
    """Adds a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, other: int) -> int:
        return self.number + other


def added(x: int) -> int:
    return Adder(2)(x)


def test_a_mistake_is_a_change_in_the_source_of_the_right_answer() -> None:
    assert slip(added, "(2) → (3)")(5) == 8
    assert slip(added, "(2) → (3); (x) → (x) - 1")(5) == 7
    assert slip(Adder, "+ other →")(2)(5) == 2
    assert isinstance(slip(Adder, "+ → -"), type)
    with pytest.raises(ValueError, match=r"'\(4\)' does not stand in added"):
        slip(added, "(4) → (3)")(5)


def test_numbers_by_hand_are_told_one_by_one() -> None:
    three = Exercise("Three", [1.0, 2.0, 3.0], numbers(3), {"squared": [1.0, 4.0, 9.0]}, by_hand=True)
    assert three.diagnose((1, 2, 3)) is None
    assert three.diagnose([1, 4, 5]) == "number 1: squared"
    assert three.diagnose(torch.tensor([1, 2, 5])) == "number 2: it is not 5."
    assert three.diagnose([1, 2]) == "give a list of 3 numbers; this has the shape (2,)."


def test_what_an_examination_finds_comes_last() -> None:
    def examine(answer: Any) -> str | None:
        return "too large" if answer > 100 else None

    assert Exercise("A number", 400, examine=examine).diagnose(400) == "too large"
    assert Exercise("A number", 400, examine=examine).diagnose(300) == "expected 400, got 300."
    assert Exercise("A number", 4, examine=examine).diagnose(4) is None
