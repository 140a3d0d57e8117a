"""What experiments.debugging has found is what the recipes of chapter 19 do now."""

import json
from typing import Any

import pytest

from annotated_workbench.data import DATA_FOLDER
from experiments.debugging import LEARNING, TOGETHER, TRAINED, defined, names_of_lesson

RESULTS = json.loads((DATA_FOLDER / "results" / "debugging.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lesson() -> dict[str, Any]:
    return names_of_lesson()


def test_the_names_of_a_cell_are_those_that_it_imports_defines_and_assigns() -> None:
    code = "from a import b\nc, (d, e) = 1, (2, 3)\nclass F:\n    g = 1\ndef h():\n    i = 1\nprint(c)"
    assert defined(code) == {"b", "c", "d", "e", "F", "h"}


def test_the_file_begins_as_the_lesson_trains(lesson: dict[str, Any]) -> None:
    assert RESULTS["runs"].keys() == {*TRAINED}
    assert RESULTS["by heart"].keys() == {*LEARNING}
    for name in ("healthy", "no √d_k"):
        _, losses = lesson["fit"](lesson["PATIENTS"][name], updates=TOGETHER, seed=4)
        first = sum(losses) / TOGETHER
        assert first == pytest.approx(RESULTS["runs"][name][4]["losses"][0], abs=2e-3), name
    _, losses = lesson["by_heart"](lesson["PATIENTS"]["softmax twice"], updates=10)
    assert [losses[0], losses[9]] == pytest.approx(RESULTS["by heart"]["softmax twice"]["losses"][:2], abs=2e-3)
