"""The check of shapes that all tests run under: what has passed once is not looked at again, and what has not is."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from shapes import check_once
from torch import Tensor


def test_each_kind_of_what_is_given_and_returned_is_checked() -> None:
    results = [torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(2, 3), torch.zeros(3, 2)]

    @check_once(typechecker=beartype)
    def turn(x: Float[Tensor, "rows columns"], some: list[int] | None = None) -> Float[Tensor, "columns rows"]:
        return results.pop(0)

    right = torch.ones(2, 3)
    assert turn(right) is not turn(right)
    for wrong in (torch.ones(3), right.long(), right.tolist()):
        with pytest.raises(TypeCheckError, match="parameters"):
            turn(wrong)
    with pytest.raises(TypeCheckError, match="return value"):
        turn(right)
    turn(right, [1])
    with pytest.raises(TypeCheckError, match="parameters"):
        turn(right, ["1"])
