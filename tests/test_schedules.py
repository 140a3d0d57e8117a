"""The command behind section 4 of 07_training trains with the schedules it names."""

from once import once

from annotated.training import noam_rate
from experiments.schedules import PEAK, SCHEDULES

pytestmark = once


def test_without_the_warm_up_only_the_first_updates_differ() -> None:
    paper, without = SCHEDULES["the paper's schedule"], SCHEDULES["without the warm-up"]
    assert [without(step) for step in range(1, 100)] == [PEAK] * 99
    assert [without(step) for step in range(100, 201)] == [paper(step) for step in range(100, 201)]
    assert paper(7) == 0.5 * noam_rate(7, 64, 100)
