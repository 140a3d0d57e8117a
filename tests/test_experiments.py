"""Each command, at a tiny size, writes a file of the form of the recorded one, which a lesson reads."""

import importlib
import json
from typing import Any

import pytest
import torch
from once import once

from annotated_workbench.data import DATA_FOLDER
from experiments import inductive_bias, paper_code_today, schedules, warm_up

pytestmark = once

PAPER, PLACE = paper_code_today.PAPER, "first, warm-up"
TEXT = {"load_text": lambda name: "to be or not to be\n" * 100}
COMMANDS: dict[str, dict[str, Any]] = {
    "counting": TEXT,
    "inductive_bias": {
        "UPDATES": 1,
        "TESTED": 100,
        "RATES": (1e-3,),
        "TASKS": {"two places": inductive_bias.TASKS["two places"]},
    },
    "paper_code_today": {
        "SWITCHES": {PAPER: paper_code_today.SWITCHES[PAPER]},
        "PLACES": {PLACE: paper_code_today.PLACES[PLACE]},
        "UPDATES": (120,),
        "TURNS": 1,
        "train": lambda *arguments: 3.0,
    },
    "riddle": {
        "TRAINING": "train --corpus grammar --preset tiny --layers 1 --vocab-size 300 --max-minutes 0.001",
        "CORPORA": {"grammar": "grammar", "photographs": "grammar"},
    },
    "reversing": {"WIDTHS": (16,), "UPDATES": (2,), "TESTED": 4},
    "sampling": TEXT | {"TEXTS": 10, "COUNT": 40, "WORDS": 4, "WAYS": {"k = 2": {"top_k": 2}}},
    "schedules": {"UPDATES": 10, "SCHEDULES": {"a tenth of the peak": schedules.SCHEDULES["a tenth of the peak"]}},
    "warm_up": {"CASES": {"two layers, no warm-up": warm_up.CASES["two layers, no warm-up"]}},
}
WITHOUT_SEEDS = ("counting", "sampling")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_what_its_lesson_reads(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, file = importlib.import_module(f"experiments.{name}"), tmp_path / f"{name}.json"
    for constant, value in COMMANDS[name].items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(torch, "set_default_dtype", lambda dtype: None)  # which would stay for other tests
    monkeypatch.setattr("sys.argv", [name, str(file), *([] if name in WITHOUT_SEEDS else ["--seeds", "1"])])
    module.main()
    written = json.loads(file.read_text(encoding="utf-8"))
    compare(written, json.loads((DATA_FOLDER / "results" / file.name).read_text(encoding="utf-8")))


def compare(written: Any, recorded: Any) -> None:
    """Demand the same keys, or in a table by names some of its rows; and numbers where there are numbers."""
    if isinstance(recorded, dict):
        assert written and written.keys() <= recorded.keys()
        assert written.keys() == recorded.keys() or len({type(value) for value in recorded.values()}) == 1
        for key in written:
            compare(written[key], recorded[key])
    elif isinstance(recorded, list) and recorded:
        compare(written[0], recorded[0])
    else:
        assert isinstance(written, int | float) == isinstance(recorded, int | float)
