"""How large each room may be, in lines, blank ones counted: what is added to a room is taken from it.

The aims were 3,000 for the workbench, 1,700 for the tools, and 2,300 for JavaScript, whose map shows numbers now; 23's
assistant on the live page brought it 190 lines. Chapters 21 and 22 and the project's text brought the models, the
exercises and all Python 200, 220 and 250. The doctor for real code brought its own room 1,300, and the tests 860; all
other Python gave up 1,050 for it.
"""

import pytest
from once import once

from tools.sync import ROOT

pytestmark = once

DOCTOR = "annotated_course/doctor/*.py"
EXERCISES = ["annotated_course/exercises/*.py", "annotated_course/chapters/*/exercises.py"]
ROOMS = {
    "the paper": (1300, ["annotated/*.py"]),
    "annotated/models": (1650, ["annotated/models/*.py"]),
    "annotated/fast": (750, ["annotated/fast/*.py", "annotated/fast/*.c"]),
    "annotated_workbench": (3540, ["annotated_workbench/**/*.py"]),
    "annotated_course": (1910, ["annotated_course/**/*.py", f"!{DOCTOR}", *(f"!{pattern}" for pattern in EXERCISES)]),
    "the doctor": (2300, [DOCTOR]),
    "the exercises": (4945, EXERCISES),
    "tests": (12365, ["tests/**/*.py"]),
    "experiments": (2605, ["experiments/**/*.py"]),
    "tools": (1670, ["tools/**/*.py"]),
    "all Python": (32990, ["annotated*/**/*.py", "tests/**/*.py", "experiments/**/*.py", "tools/**/*.py"]),
    # Weights and recorded steps are data, and the live page's beam.js is a copy.
    "JavaScript": (2680, ["docs/live/[!rw]*.js", "annotated_course/**/*.js", "!docs/live/beam.js"]),
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    budget, patterns = ROOMS[room]
    files = {path for pattern in patterns if pattern[0] != "!" for path in ROOT.glob(pattern)}
    files -= {path for pattern in patterns if pattern[0] == "!" for path in ROOT.glob(pattern[1:])}
    lines = sum(path.read_text("utf-8").count("\n") for path in files)
    advice = "take it from the same room, or move the number from another room in the same commit"
    assert 0 < lines <= budget, f"{room}: {lines} lines, and {budget} are its budget: {advice}."
