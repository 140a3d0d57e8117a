"""Every exercise: its stub is seen as untouched, right answers pass, and each mistake earns its own sentence."""

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import jaxtyping
import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.chapters.c12_model_variations.exercises import shuffled_share as share_of
from annotated_course.exercises import CHAPTERS, all_exercises, check, exercises_of
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, difference, on_paper, slip, wrong_answers

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
EXERCISES = all_exercises()
BY_HAND = [number for number, exercise in EXERCISES.items() if exercise.by_hand and number != "08.1"]  # words
IMPORT = re.compile(r"^from annotated_course import .*\bcheck\b", re.MULTILINE)
CHECK = re.compile(r'^check\("(\d\d\.\d+)", (\w+)\)', re.MULTILINE)


def code_cells(chapter: str, folder: Path) -> list[Any]:
    """The code cells of a chapter's notebook."""
    (path,) = folder.glob(f"{chapter}_*.ipynb")
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def verdict(capsys: pytest.CaptureFixture[str], number: str, answer: object) -> str:
    """The one line that `check` prints."""
    check(number, answer)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 95 or " " not in line for line in lines), f"JupyterLab breaks them within words: {lines}"
    return " ".join(lines)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_untouched_stubs_are_not_attempted(chapter: str, capsys: pytest.CaptureFixture[str]) -> None:
    cells, seen = [cell.source for cell in code_cells(chapter, NOTEBOOKS)], []
    names: dict[str, Any] = {}
    exec([cell for cell in cells if IMPORT.search(cell)][-1], names)  # where a reader who comes back starts
    for stub, cell in pairwise(cells):
        if match := CHECK.search(cell):
            number, name = match.groups()
            exec(stub, names)
            line = verdict(capsys, number, names[name])
            assert line == f"○ {number} not attempted yet: {EXERCISES[number].title}"
            seen.append(number)
    assert seen == list(exercises_of(chapter)) == [f"{chapter}.{i + 1}" for i in range(len(seen))]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_solutions_print_what_they_have_saved_and_are_right(chapter: str, capsys, monkeypatch) -> None:
    """Here and not by nbval, whose kernels would take three seconds each to import torch."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no more than the reader's notebook checks
    names: dict[str, Any] = {}
    said = ""
    for cell in code_cells(chapter, NOTEBOOKS / "solutions"):
        exec(cell.source, names)
        printed = capsys.readouterr().out
        assert printed == "".join(output.text for output in cell.outputs), cell.source
        said += printed
    assert all(f"✓ {number} {exercise.title}\n" in said for number, exercise in exercises_of(chapter).items()), said


@pytest.mark.parametrize("number", EXERCISES)
def test_the_right_answer_passes_and_every_mistake_earns_its_own_sentence(number: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no more than the reader's notebook checks
    exercise = EXERCISES[number]
    assert verdict(capsys, number, exercise.right) == f"✓ {number} {exercise.title}"
    wrong = [one for table in (exercise.mistakes, exercise.caught) for one in wrong_answers(table, exercise.right)]
    assert len(wrong) >= 2
    for sentence, answer in wrong:
        line = verdict(capsys, number, answer)
        assert line.startswith(f"✗ {number} {exercise.title}: ")
        told = [one for one in exercise.mistakes if line.endswith(f": {one}")]
        assert told == [sentence] if sentence in exercise.mistakes else sentence in line and not told


UNFIT = [None, "4, 9", 7, 3.5, math.nan, [1, 2], (1,), {}, ["a", "b", "c"], [[1, 2], [3]], [None] * 4, np.ones(2)]
UNFIT += [torch.ones(2).long(), torch.ones(2) > 0, torch.ones(2, 3).double(), torch.full((4,), math.nan), {1}, b"4"]
UNFIT += [
    nn.Linear(2, 2),
    torch.nn,
    type("Empty", (nn.Module,), {}),
    nn.Linear,
    torch.softmax,
    lambda x: x,
    lambda *, a: a,
    slice(3),
    object(),
]
RETURNED = [lambda *given, one=one: one for one in (*UNFIT, ..., [], (torch.ones(2), torch.ones(2)))]
OURS = r"your code raised|not (callable|iterable|subscriptable)|new\(\)|invalid data type|operand|ambiguous|<function"


def raising(*given):
    raise KeyError("mine")


@pytest.mark.parametrize("number", EXERCISES)
def test_an_answer_of_a_wrong_kind_is_told_what_it_is_and_what_is_wanted(number: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no more than the reader's notebook checks
    for answer in UNFIT + RETURNED:
        line = verdict(capsys, number, answer)
        assert line.startswith("✗ ") and not re.search(OURS, line), line
    if callable(EXERCISES[number].right):
        assert re.search(r"your code raised KeyError: 'mine' \(line \d+: raise Key", verdict(capsys, number, raising))


ONE = torch.ones(1, requires_grad=True)
HEADS = lambda: MultiHeadAttention(2, 1), lambda: nn.Linear(1, 1)
LOOPS = lambda: ends(ONE), lambda: {one for one in ONE}, lambda: sum(one for one in ONE)
SOFTMAXES = lambda: F.softmax(ONE, 0), lambda: nn.Softmax(0)(ONE), lambda: ONE.log_softmax(0)
GRADIENTS = lambda: torch.autograd.grad(2 * ONE, ONE), lambda: torch.func.grad(torch.sum)(ONE)
SMALL = TransformerConfig(5, d_model=2, heads=1, layers=1)
RULED_OUT: dict[str, Any] = {
    "01.2": [*SOFTMAXES, *LOOPS],
    **dict.fromkeys(("01.5", "04.5", "05.7", "13.4"), (*GRADIENTS, lambda: (2 * ONE).backward())),
    **dict.fromkeys(("02.2", "09.1"), HEADS),
    "02.3": [*LOOPS, lambda: torch.cat([ONE, ONE])],
    "02.4": [*LOOPS, HEADS[0], lambda: ONE.reshape(1, 1)],
    **dict.fromkeys(("03.2", "06.3", "08.3", "22.4"), LOOPS),
    "04.4": HEADS[:1],
    "05.3": [lambda: Transformer(SMALL).new_cache()],
    "07.2": [lambda: nn.CrossEntropyLoss()(ONE, ONE)],
    "07.5": [lambda: torch.optim.SGD([ONE])],
    "10.2": [lambda: nn.GRUCell(1, 1)(torch.ones(1, 1))],
    "14.3": [*LOOPS, lambda: ONE.unfold(0, 1, 1)],
    "21.3": [*LOOPS, lambda: ONE.repeat(2), lambda: ONE.repeat_interleave(2)],
}


def ends(values):
    while len(values) > 1 or not isinstance(values, list):
        values = [values]


@pytest.mark.parametrize("number", [number for number, exercise in EXERCISES.items() if exercise.forbids])
def test_what_a_card_rules_out_is_seen_wherever_an_answer_calls_it(number: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no more than the reader's notebook checks
    for call in RULED_OUT[number]:
        line = verdict(capsys, number, lambda *given, call=call: (call(), EXERCISES[number].right(*given))[1])
        assert re.search("the result is right, but .*, which the card rules out: ", line), line


@pytest.mark.parametrize("number", BY_HAND)
def test_a_diagnosis_does_not_tell_a_number_that_is_the_answer(number: str, capsys) -> None:
    right = torch.as_tensor(EXERCISES[number].right, dtype=torch.float64)
    for place, secret in enumerate(right.flatten().tolist()):
        wrong = right.clone()
        wrong.view(-1)[place] = 1.37 * secret + 0.11
        said = verdict(capsys, number, wrong.tolist()).split(": ", 1)[1]
        told = [float(one.replace(",", "")) for one in re.findall(r"(?<![\d.\[-])-?\d[\d,]*(?:\.\d+)?(?!\])", said)]
        assert not any(abs(one - secret) <= 2e-3 * abs(secret) for one in told), said


def scaled_in_place(query, key, value):
    query /= query.size(-1) ** 0.5
    with torch.no_grad():  # what a `with` compiles to jumps back, too, and is no loop
        scores = query @ key.mT
    shares = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return shares / shares.sum(-1, keepdim=True) @ value


@pytest.mark.parametrize(
    ("number", "answer", "sign"),
    [
        ("01.2", scaled_in_place, "✓"),
        ("12.5", lambda base, row: share_of(base[:], [row.pop() for _ in row[:]]), "✓"),
        ("01.2", lambda query, key, value: value.zero_()[..., :1, :].expand(*query.shape[:-1], -1), "✗"),
        ("07.5", lambda weight, gradients, *_: [g.zero_() for g in gradients] and weight.clone(), "✗"),
    ],
)
def test_an_answer_may_work_in_place_and_does_not_make_itself_right_by_it(number, answer, sign, capsys) -> None:
    assert verdict(capsys, number, answer).startswith(sign)
    EXERCISES[number].results.clear()
    assert verdict(capsys, number, answer).startswith(sign)  # what an answer changed is not what the next one is given


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
        (lambda x, y: x * y, "with larger numbers: multiplied"),  # as right as any where 2 · 2 = 2 + 2
        (lambda x, y: y + y, "with larger numbers: doubled"),
        (lambda x, y: None, "your function returned None: does it end in a return?"),
    ],
)
def test_a_known_mistake_comes_before_a_general_remark(answer: Any, said: str | None) -> None:
    assert SUM.diagnose(answer) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([4.0, 6.0], "at [0]: 4, expected 2; all numbers are off by the factor 2"),
        ([2.0, torch.inf], "at [1]: inf, expected 3: does an exponential overflow, or is there a logarithm of 0"),
    ],
)
def test_a_general_remark_gives_the_place_the_two_numbers_and_perhaps_a_reason(given: list[float], said: str) -> None:
    assert difference(torch.tensor(given), torch.tensor([2.0, 3.0])).startswith(said)


def test_a_mistake_is_a_change_in_the_source_of_the_right_answer() -> None:
    assert slip(scaled_in_place, "/ shares.sum(-1, keepdim=True) →; exp_() → add_(4)")(*torch.full((3, 1, 1), 2.0)) == 8
    with pytest.raises(ValueError, match=r"'\(4\)' does not stand in scaled_in_place"):
        slip(scaled_in_place, "(4) → (3)")(5)


def test_numbers_by_hand_are_told_one_by_one() -> None:
    three = on_paper("Three", [1.0, 2.0, 3.0], {"squared": AnyOf((1, 4.0), (2, 9.0))})
    assert three.diagnose((1, 2, 3)) is None
    assert three.diagnose([1, 4, 5]) == "number 1: squared"
    assert three.diagnose(torch.tensor([1, 2, 5])) == "number 2: 5 is not right"
    assert three.diagnose([1, 2]) == "expected 3 things, number 0, number 1, number 2; got a list of 2 (each a float)."
    row = EXERCISES["01.1"]
    assert row.diagnose([9, 4]) == "the right numbers, in another order"
    assert row.diagnose([4, 1]).startswith("at [1]: 1 is")
    assert row.diagnose(4) == "expected 2 numbers, in a list, got one number, 4."
