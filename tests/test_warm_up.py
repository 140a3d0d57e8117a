"""The command behind 04_encoder's *What a warm-up can be for* measures what it says."""

import pytest
import torch
from once import once

from experiments.warm_up import CASES, difference, train

pytestmark = once


def test_the_first_step_measures_the_model_before_training() -> None:
    (first,) = train(0, CASES["warm-up"], steps=1)
    torch.testing.assert_close(first, train(0, CASES["no warm-up"], steps=1)[0])
    assert 2 < first[0] < 4 and (first[1:] > 0.1).all()
    assert difference(torch.tensor([[3.0, 4], [3, -4]])) == pytest.approx(0.8)


def test_smaller_weights_or_no_common_part_keep_the_positions_apart() -> None:
    names = ("no warm-up", "no warm-up, PyTorch's own weights", "no warm-up, common part taken out")
    collapsed, smaller, taken_out = (train(0, CASES[name], steps=11)[-1, 1] for name in names)
    assert smaller > 10 * collapsed and taken_out > 50 * collapsed
