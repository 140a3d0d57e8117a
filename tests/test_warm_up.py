"""The command behind section 8 of 04_encoder measures what it says."""

import pytest
import torch
from once import once

from experiments.warm_up import NO_WARM_UP, WARM_UP, difference, train

pytestmark = once


def test_the_first_step_measures_the_model_before_training() -> None:
    first = train(0, WARM_UP[:1])[0]
    torch.testing.assert_close(first, train(0, 5 * WARM_UP[:1])[0])
    assert 2 < first[0] < 4 and (first[1:] > 0.1).all()
    assert difference(torch.tensor([[3.0, 4], [3, -4]])) == pytest.approx(0.8)


def test_smaller_weights_or_no_common_part_keep_the_positions_apart() -> None:
    collapsed, smaller, taken_out = (
        train(0, NO_WARM_UP[:11], **options)[-1, 1]
        for options in ({}, {"initialise": False}, {"take_out_common": True})
    )
    assert smaller > 10 * collapsed and taken_out > 50 * collapsed
