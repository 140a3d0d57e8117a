"""The command behind section 8 of 13_speed times the lesson's own steps, and its figures are of these rungs."""

import json

import pytest
import torch
from once import once

from annotated_workbench.data import DATA_FOLDER
from experiments import staircase
from experiments.staircase import RUNGS, main

pytestmark = once


def test_the_recorded_rungs_are_those_of_the_command() -> None:
    recorded = json.loads((DATA_FOLDER / "results" / "staircase.json").read_text(encoding="utf-8"))
    assert list(recorded["rungs"]) == list(RUNGS)
    assert recorded["command"].startswith("python -m experiments.staircase --turns")


def test_each_rung_of_our_own_makes_an_update() -> None:
    for name in ("the plain form", "the loss in chunks", "dropout, sum and norm", "annotated.fast"):
        step = RUNGS[name](2)
        weight = step.args[0].output.weight
        before = weight.detach().clone()
        step()
        assert not torch.equal(weight, before), name


def test_the_command_writes_what_it_measures(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staircase, "RUNGS", {"annotated.fast": RUNGS["annotated.fast"]})
    monkeypatch.setattr("sys.argv", ["staircase", str(tmp_path / "found.json"), "--turns", "1", "--pairs", "2"])
    main()
    (rung,) = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["rungs"].values()
    assert 0 < rung["seconds"] < 60 and rung["megabytes"] >= 0
