"""The command behind section 8 of 13_speed times the lesson's own steps, and its figures are of these rungs."""

import json

import torch
from once import once

from annotated_workbench.data import DATA_FOLDER
from experiments.staircase import RUNGS

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
