"""What students read, and that all is trained and translated once."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from once import once

from annotated.__main__ import main as annotated
from annotated_workbench.data import Pairs
from experiments import diversification

pytestmark = once

SIDES = {"de": ["eins", "zwei"], "en": ["one", " a\tsecond\u2028line "]}


def read(split: str, side: str) -> list[str]:
    return SIDES[side] if split == "train" else [f"{side} for {split}"]


# In the place of the command line: notes what it is asked, and leaves behind what training and translation leave. A run
# breaks off at first, and a teacher has no words for a sentence.
STAND_IN = """
import json, pathlib, sys
log, command, *words = sys.argv[1:]
with open(log, "a") as file:
    file.write(json.dumps([command, *words]) + "\\n")
if command == "translate":
    name = pathlib.Path(words[0]).name
    for number, line in enumerate(sys.stdin):
        print("" if (name, number) == ("teacher-en-de-1", 0) else f"{name}: {line.strip()}")
else:
    option = dict(zip(words, words[1:]))
    run = pathlib.Path(option["--out"])
    state = run / "state.safetensors"
    breaks_off = run.name == "en-de-8" and not state.exists()
    run.mkdir(exist_ok=True)
    state.touch()
    (run / "metrics.jsonl").write_text(json.dumps({"epoch": 1 if breaks_off else int(option["--epochs"])}) + "\\n")
    sys.exit(breaks_off)
"""


def test_students_read_what_all_teachers_make_of_both_sides(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(diversification, "load_corpus", lambda _, part, *sides: Pairs(*(read(part, s) for s in sides)))
    log, out = tmp_path / "log", tmp_path / "runs"
    monkeypatch.setattr(diversification, "ANNOTATED", (sys.executable, "-c", STAND_IN, str(log)))
    arguments = [str(out), "--seeds", "7", "8", "--teachers", "2", "--epochs", "5", "--jobs", "2"]
    with pytest.raises(subprocess.CalledProcessError):
        diversification.main(arguments)

    english = ["one", "a second line"]
    by_de = [(line, f"teacher-de-en-{seed}: {line}") for seed in (0, 1) for line in SIDES["de"]]
    by_en = [(line, f"teacher-en-de-{seed}: {line}") for seed in (0, 1) for line in english[seed:]]
    real = list(zip(SIDES["de"], english, strict=True))
    assert pairs(out, "de", "en") == [*real, *by_de, *(pair[::-1] for pair in by_en)]
    assert pairs(out, "en", "de") == [*(pair[::-1] for pair in real), *by_en, *(pair[::-1] for pair in by_de)]
    before = commands(log)
    directions = ["de-en", "en-de"]
    teachers = [f"teacher-{direction}-{seed}" for direction in directions for seed in (0, 1)]
    students = [f"{direction}-{seed}" for direction in directions for seed in (7, 8)]
    assert before.keys() == {("translate", run) for run in teachers} | {("train", run) for run in teachers + students}
    for (command, run), words in before.items():
        if command == "train":
            assert annotated([command, *words, "--device", "nowhere"]) == 2
            assert "device 'nowhere' is not usable" in capsys.readouterr().err  # so it knows all other options
            src, tgt, seed = run.removeprefix("teacher-").split("-")
            pairs_of, epochs = ("train", "30") if run in teachers else (f"{src}-{tgt}", "5")
            expected = {"--src": src, "--tgt": tgt, "--seed": seed, "--epochs": epochs}
            expected |= {"--source": f"{out / pairs_of}.{src}", "--target": f"{out / pairs_of}.{tgt}"}
            assert dict(pairwise(words)).items() >= expected.items()
    log.unlink()
    diversification.main(arguments)  # only what was broken off goes on
    assert commands(log).keys() == {("train", "en-de-8")} and commands(log)["train", "en-de-8"][-1] == "--resume"


def pairs(out: Path, src: str, tgt: str) -> list[tuple[str, str]]:
    """Read what students of a direction read."""
    sides = ((out / f"{src}-{tgt}.{side}").read_text(encoding="utf-8").splitlines() for side in (src, tgt))
    return list(zip(*sides, strict=True))


def commands(log: Path) -> dict[tuple[str, str], list[str]]:
    """Read what was asked, by command and run."""
    asked = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    runs = [Path(words[words.index("--out") + 1] if "--out" in words else words[1]).name for words in asked]
    by_run = {(words[0], run): words[1:] for words, run in zip(asked, runs, strict=True)}
    assert len(by_run) == len(asked)  # nothing twice
    return by_run
