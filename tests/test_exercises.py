"""Every exercise: its stub is seen as untouched, its solution passes, and wrong answers get a helpful diagnosis."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from annotated.attention import attention
from annotated.exercises import EXERCISES, check
from annotated.exercises.diagnosis import compare

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
    namespace: dict[str, Any] = {"Tensor": torch.Tensor, "torch": torch}
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


def softmax_attention(
    scale: Callable[..., float], axis: int = -1, finish: Callable = torch.matmul
) -> Callable[..., torch.Tensor]:
    """Attention with a choice of what is usually got wrong."""

    def answer(query, key, value):
        return finish((query @ key.transpose(-2, -1) / scale(query, value)).softmax(axis), value)

    return answer


def root(query: torch.Tensor, value: torch.Tensor) -> float:
    """√d_k."""
    return query.size(-1) ** 0.5


def exp_without_maximum(query, key, value):
    exponentials = (query @ key.transpose(-2, -1) / root(query, value)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True) @ value


def without_return(query, key, value):
    query @ key.transpose(-2, -1)


def mask_from(combine: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A decoder mask from the tensors real (batch, length) and near (length, length): the past within the window."""

    def answer(ids, pad_id, window):
        length = ids.size(1)
        return combine(ids != pad_id, torch.ones(length, length, dtype=torch.bool).tril().triu(1 - window))

    return answer


def local(real: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """The right way to join the two: keys that are real and near."""
    return real[:, None] & near


def query_gradient(backward: Callable[..., torch.Tensor], factor: float = 1.0) -> Callable[..., torch.Tensor]:
    """The query's gradient with a given way back through the softmax."""

    def answer(query, key, value, upstream):
        p = (query @ key.T / root(query, value)).softmax(-1)
        return factor * backward(p, upstream @ value.T) @ key / root(query, value)

    return answer


def right_way_back(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The softmax's Jacobian times g."""
    return p * (g - (p * g).sum(-1, keepdim=True))


def in_chunks(finish: Callable[[list[torch.Tensor]], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Attention for each chunk of keys alone, put together somehow."""

    def answer(query, key, value, chunk):
        parts = zip(key.split(chunk), value.split(chunk), strict=True)
        return finish([attention(query, *part) for part in parts])

    return answer


def online(rescale: bool, start: float = -torch.inf, follow: bool = True, root_d: float = 2.0):
    """The online softmax; without rescaling, with a maximum that starts at 0, or with one that is never moved."""

    def answer(query, key, value, chunk):
        highest, total, mixed = torch.full((len(query), 1), start), 0, 0
        for keys, values in zip(key.split(chunk), value.split(chunk), strict=True):
            scores = query @ keys.T / root_d
            new = torch.maximum(highest, scores.amax(-1, keepdim=True)) if follow else highest
            factor = (highest - new).exp() if rescale else 1
            shares = (scores - new).exp()
            total, mixed, highest = factor * total + shares.sum(-1, keepdim=True), factor * mixed + shares @ values, new
        return mixed / total

    return answer


WRONG = [
    ("01.1", [40, 90], "sum to 1"),
    ("01.1", [4.13, 7.83], "√d_k = 2"),
    ("01.1", [0.1, 0.3, 0.6], "these are the weights"),
    ("01.1", [5, 25 / 3], "plain mean"),
    ("01.1", [5, 5], "best key alone"),
    ("01.1", [9, 4], r"expected 4\.000, got 9\.000"),
    ("01.1", "four", "raised (ValueError|TypeError)"),
    ("01.2", softmax_attention(lambda query, value: 1.0), "did you scale"),
    ("01.2", softmax_attention(lambda query, value: query.size(-1)), "square root"),
    ("01.2", softmax_attention(lambda query, value: value.size(-1) ** 0.5), "width of the keys"),
    ("01.2", softmax_attention(root, axis=-2), "over the queries"),
    ("01.2", softmax_attention(root, finish=lambda weights, value: weights), "these are the weights"),
    ("01.2", lambda query, key, value: query @ key.transpose(-2, -1) / 2 @ value, "never went through a softmax"),
    ("01.2", exp_without_maximum, "Subtract each row's maximum"),
    ("01.2", without_return, "return"),
    ("01.2", lambda query, key, value: query @ key, "raised RuntimeError"),
    ("01.2", lambda query, key, value: attention(query, key, value)[..., :2], r"shape \(3, 7\), got \(3, 2\)"),
    ("01.2", lambda query, key, value: 3 * attention(query, key, value), r"constant factor 3\.00"),
    ("01.2", torch.ones(3), "raised"),
    ("01.3", mask_from(lambda real, near: ~(real[:, None] & near)), "polarity"),
    ("01.3", mask_from(lambda real, near: real[:, None] & near.T), "look back"),
    ("01.3", mask_from(lambda real, near: real[:, None] & near.tril(-1)), "diagonal"),
    ("01.3", mask_from(lambda real, near: near.expand(len(real), -1, -1)), "padding is still visible"),
    ("01.3", mask_from(lambda real, near: real[:, :, None] & near), "last axis"),
    ("01.3", mask_from(lambda real, near: real[:, None] & torch.ones_like(near).triu(-2)), "future is still visible"),
    ("01.3", mask_from(lambda real, near: real[:, None] | near), "&"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, 0, window), "is pad_id"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, 5), "no effect"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, window + 1), "one too wide"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, window - 1), "one too narrow"),
    ("01.3", mask_from(lambda real, near: (real[:, None] & near).float()), r"expected torch\.bool"),
    ("01.3", mask_from(lambda real, near: real[:, None, None] & near), "expected shape"),
    ("01.3", mask_from(lambda real, near: torch.ones_like(real[:, None] & near)), r"\d+ of 50 entries"),
    ("01.4", lambda length: (99 * torch.eye(length), torch.eye(length)), "attends to itself"),
    ("01.4", lambda length: (torch.eye(length), torch.eye(length).flip(0)), r"only 0\.\d\d"),
    ("01.4", lambda length: (torch.ones(length, 2), torch.ones(length, 2)), "all weights are equal"),
    ("01.4", lambda length: (99 * torch.eye(5), torch.eye(5).flip(0)), r"length 2.*shape \(2, d_k\)"),
    ("01.4", lambda length: 99 * torch.eye(length), "two tensors"),
    (
        "01.4",
        lambda length: (99 * torch.eye(length), torch.eye(length).roll(1, 1)),
        r"length 5.*position \d attends to",
    ),
    ("01.5", query_gradient(right_way_back, 4.0), r"4\.0 = √d_k"),
    ("01.5", query_gradient(right_way_back, 0.25), "twice"),
    ("01.5", query_gradient(lambda p, g: p * g), "p pᵀ"),
    ("01.5", query_gradient(lambda p, g: g), "through the softmax"),
    ("01.5", query_gradient(lambda p, g: p * (g - g.mean(-1, keepdim=True))), "weighted by p"),
    ("01.5", query_gradient(right_way_back, -1.0), "sign"),
    ("01.5", lambda query, key, value, upstream: key, r"shape \(3, 16\), got \(5, 16\)"),
    ("01.6", in_chunks(lambda outputs: torch.stack(outputs).mean(0)), "mean of the chunks"),
    ("01.6", in_chunks(sum), "sum of the chunks"),
    ("01.6", in_chunks(lambda outputs: outputs[-1]), "last chunk alone"),
    ("01.6", online(rescale=False), "not rescaled"),
    ("01.6", online(rescale=True, root_d=1.0), "did you scale"),
    ("01.6", online(rescale=True, start=0.0, follow=False), "Subtract each row's maximum"),
    ("01.6", lambda query, key, value, chunk: attention(query, key[:28], value[:28]), "last keys are missing"),
    ("01.6", lambda query, key, value, chunk: attention(query, key, value), "a tensor of 720 numbers"),
]


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


def test_another_right_answer_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, "01.1", torch.tensor([4.0, 9.0])).startswith("✓")
    assert verdict(capsys, "01.2", attention).startswith("✓")
    assert verdict(capsys, "01.3", mask_from(local)).startswith("✓")
    assert verdict(capsys, "01.6", online(rescale=True)).startswith("✓")


def test_a_function_that_returns_a_constant_or_nothing_is_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    def constant(query, key, value):
        return 3

    assert verdict(capsys, "01.2", constant).startswith("✗")
    assert verdict(capsys, "01.2", without_return).startswith("✗")
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
