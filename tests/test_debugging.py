"""What experiments.debugging has found is what the recipes of chapter 19 do now."""

import json

import pytest

from annotated_workbench.data import DATA_FOLDER
from experiments.debugging import LEARNING, LESSON, TOGETHER, TRAINED
from experiments.results import names_of_lesson


def test_the_file_begins_as_the_lesson_trains() -> None:
    results = json.loads((DATA_FOLDER / "results" / "debugging.json").read_text(encoding="utf-8"))
    lesson = names_of_lesson(*LESSON)
    assert (results["runs"].keys(), results["by heart"].keys()) == ({*TRAINED}, {*LEARNING})
    for name in ("healthy", "no √d_k"):
        _, losses = lesson["fit"](lesson["PATIENTS"][name], updates=TOGETHER, seed=4)
        assert sum(losses) / TOGETHER == pytest.approx(results["runs"][name][4]["losses"][0], abs=2e-3), name
    _, losses = lesson["by_heart"](lesson["PATIENTS"]["softmax twice"], updates=10)
    assert [losses[0], losses[9]] == pytest.approx(results["by heart"]["softmax twice"]["losses"][:2], abs=2e-3)
