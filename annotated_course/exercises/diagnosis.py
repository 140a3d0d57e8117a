"""What exercises share: compare an answer with the right one and with known mistakes; see how large its tensors get."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from annotated_course.exercises.exercise import LargestTensor as LargestTensor
from annotated_course.exercises.exercise import on_copies


class Exercise(NamedTuple):
    """An exercise in the old form, until its chapter is data."""

    title: str
    look: Callable[..., str | None]
    copies: bool = True

    def diagnose(self, answer: Any) -> str | None:
        """Say what is wrong with an answer, or None."""
        return self.look(
            on_copies(answer) if self.copies and callable(answer) and not isinstance(answer, type) else answer
        )


def compare(
    answer: object,
    expected: Tensor,
    mistakes: Mapping[str, Tensor],
    tolerance: float = 1e-4,
    by_hand: bool = False,
) -> str | None:
    """Return what is wrong with a tensor, or None when it is the expected one.

    Args:
        answer: what the reader's code gave.
        expected: the right result.
        mistakes: for each known mistake, what to tell the reader, and the result that the mistake gives.
        tolerance: how far a number may be off, absolutely and relatively.
        by_hand: whether the numbers are the answer, not what a reader's function gave: then the right ones stay secret.
    """
    if answer is None:
        return "your function returned None: does it end in a return?"
    if not isinstance(answer, Tensor):
        return f"expected a tensor, got {type(answer).__name__}."
    if is_close(answer, expected, tolerance):
        return None
    for diagnosis, wrong in mistakes.items():
        if is_close(answer, wrong, tolerance):
            return diagnosis
    if answer.dtype != expected.dtype:
        return f"expected {expected.dtype}, got {answer.dtype}."
    if answer.shape != expected.shape:
        return f"expected shape {tuple(expected.shape)}, got {tuple(answer.shape)}."
    if not answer.isfinite().all():
        return (
            "the result holds NaN or infinity: does an exponential overflow? Subtract each row's maximum first. "
            "Or is there a logarithm of 0, or a division by 0?"
        )
    if not answer.is_floating_point():
        return f"{int((answer != expected).sum())} of {answer.numel()} entries are wrong."
    if not expected.dim():
        return (
            f"it is not {float(answer):.4g}."
            if by_hand
            else f"expected {float(expected):.4g}, got {float(answer):.4g}."
        )
    factor = float((answer * expected).sum() / (expected * expected).sum())
    if expected.numel() > 1 and factor and is_close(answer, factor * expected, tolerance):
        return f"off by a constant factor {factor:.2f}."
    where = torch.unravel_index((answer - expected).abs().argmax(), expected.shape)
    index = tuple(int(i) for i in where)
    if by_hand:
        return f"number {', '.join(map(str, index))}, counted from 0, is not {float(answer[index]):.4g}."
    return f"at index {index}: expected {float(expected[index]):.3f}, got {float(answer[index]):.3f}."


def is_close(answer: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Tell whether two tensors have the same shape and type, and values within the tolerance.

    Args:
        answer: one of them.
        expected: the other.
        tolerance: how far a number may be off, absolutely and relatively.
    """
    return (
        answer.shape == expected.shape
        and answer.dtype == expected.dtype
        and torch.allclose(answer, expected, rtol=tolerance, atol=tolerance)
    )
