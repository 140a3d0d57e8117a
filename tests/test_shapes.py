"""The check of shapes that all tests run under: what has passed once is not looked at again, and what has not is."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from shapes import check_once
from torch import Tensor

from annotated.attention import attention
from annotated.decoding import greedy_decode
from annotated.multi_head import MultiHeadAttention


def test_each_kind_of_call_is_checked_once() -> None:
    results = [torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3), torch.zeros(3, 2)]

    @check_once
    def turn(x: Float[Tensor, "rows columns"], some: list[int] | None = None) -> Float[Tensor, "columns rows"]:
        return results.pop(0)

    right = torch.ones(2, 3)
    for wrong in (torch.ones(3), right.long(), right.tolist()):
        with pytest.raises(TypeCheckError, match="parameters"):
            turn(wrong)
    with pytest.raises(TypeCheckError, match="return value"):
        turn(right)
    assert turn(right).shape == (3, 2)
    assert turn(right).shape == (2, 3)  # no longer looked at
    turn(right, [1])
    with pytest.raises(TypeCheckError, match="parameters"):
        turn(right, ["1"])


def test_functions_methods_and_what_a_decorator_wraps_are_checked() -> None:
    flat, pair = torch.ones(2, 3), torch.ones(2, 2, 4)
    for call in (
        lambda: attention(flat, flat, torch.ones(3, 3)),
        lambda: MultiHeadAttention(4, 2)(pair, pair, pair[0]),
        lambda: greedy_decode(None, torch.ones(1, 2, dtype=torch.long)),
    ):
        with pytest.raises(TypeCheckError):
            call()
