"""The command behind section 4 of 07_training trains with the schedules it names."""

import json

import pytest
from once import once

from annotated.training import noam_rate
from experiments.schedules import PEAK, SCHEDULES, main, means_of_ten

pytestmark = once


def test_without_the_warm_up_only_the_first_updates_differ() -> None:
    paper, without = SCHEDULES["the paper's schedule"], SCHEDULES["without the warm-up"]
    assert [without(step) for step in range(1, 100)] == [PEAK] * 99
    assert [without(step) for step in range(100, 201)] == [paper(step) for step in range(100, 201)]
    assert paper(7) == 0.5 * noam_rate(7, 64, 100)


def test_the_command_writes_means_of_ten_losses(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert means_of_ten([1.0] * 10 + [2.0] * 5 + [4.0] * 5) == [1.0, 3.0]
    monkeypatch.setattr("experiments.schedules.SCHEDULES", {"none": lambda step: 0.0, "some": lambda step: 0.003})
    monkeypatch.setattr("sys.argv", ["schedules", str(tmp_path / "schedules.json"), "--seeds", "1", "--updates", "10"])
    main()
    runs = json.loads((tmp_path / "schedules.json").read_text(encoding="utf-8"))["runs"]
    assert runs["some"][0][0] < runs["none"][0][0] - 0.1
