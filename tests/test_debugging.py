"""What experiments.debugging has found is what the recipes of chapter 19 do now."""

import json
from typing import Any

import pytest
import torch

from annotated_workbench.data import DATA_FOLDER
from experiments.debugging import LEARNING, TOGETHER, TRAINED, defined, main, names_of_lesson

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


def test_every_run_is_whole() -> None:
    for runs in RESULTS["runs"].values():
        assert len(runs) == 5
        for run in runs:
            assert (
                len(run["losses"]) * TOGETHER == 150 and 0 <= run["written"] <= 200 and 0 <= run["written alone"] <= 200
            )


def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"losses": [2.5], "loss on new words": 1.25, "written": 7}
    monkeypatch.setattr("experiments.debugging.trained", lambda *given: short)
    monkeypatch.setattr(
        "experiments.debugging.learned_by_heart", lambda *given: {"updates": [1], "losses": [0.5], "written": 3}
    )
    monkeypatch.setattr("sys.argv", ["debugging", str(tmp_path / "found.json"), "--starts", "2"])
    main()
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["runs"].keys() == RESULTS["runs"].keys() and found["runs"]["healthy"] == [short] * 2
    assert found["by heart"].keys() == RESULTS["by heart"].keys()
    assert found["about"]["torch"] == torch.__version__
    assert "healthy               7 (1.25)    7 (1.25)" in capsys.readouterr().out
