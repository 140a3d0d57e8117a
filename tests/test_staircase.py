"""The command behind section 8 of 13_speed times the lesson's own steps, and its figures are of these rungs."""

import json

import pytest
import torch
from once import once

from annotated_workbench.data import DATA_FOLDER
from experiments.staircase import RUNGS, lesson, main, measure

pytestmark = once


def test_the_recorded_rungs_are_those_of_the_command() -> None:
    recorded = json.loads((DATA_FOLDER / "results" / "staircase.json").read_text(encoding="utf-8"))
    assert list(recorded["rungs"]) == list(RUNGS)
    assert recorded["command"].startswith("python -m experiments.staircase --turns")


def test_the_lesson_hands_over_its_steps() -> None:
    assert {"chunked_step", "fewer_passes"} <= set(lesson())


def test_each_rung_of_our_own_makes_an_update() -> None:
    for name in ("the plain form", "the loss in chunks", "dropout, sum and norm", "annotated.fast"):
        step = RUNGS[name](2)
        weight = step.args[0].output.weight
        before = weight.detach().clone()
        step()
        assert not torch.equal(weight, before), name


def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = {"plain": {"seconds": 0.5, "megabytes": 12}}
    monkeypatch.setattr("experiments.staircase.measure", lambda turns, pairs: rungs)
    monkeypatch.setattr("sys.argv", ["staircase", str(tmp_path / "staircase.json"), "--turns", "1"])
    main()
    assert json.loads((tmp_path / "staircase.json").read_text(encoding="utf-8"))["rungs"] == rungs
    assert capsys.readouterr().out.split() == ["plain", "0.500", "s", "12", "MB"]


def test_turns_keep_the_smallest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.staircase.RUNGS", {"annotated.fast": RUNGS["annotated.fast"]})
    (found,) = measure(turns=1, pairs=2).values()
    assert 0 < found["seconds"] < 60
