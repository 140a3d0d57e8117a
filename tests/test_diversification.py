"""What students read, and that all is trained and translated once."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from annotated.__main__ import main as annotated
from annotated_workbench.data import Pairs
from experiments import diversification

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
    print("an epoch")
    sys.exit(breaks_off)
"""


def test_students_read_what_all_teachers_make_of_both_sides(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(
        diversification, "load_corpus", lambda _, split, *sides: Pairs(*(read(split, s) for s in sides))
    )
    log, out = tmp_path / "log", tmp_path / "runs"
    monkeypatch.setattr(diversification, "ANNOTATED", (sys.executable, "-c", STAND_IN, str(log)))
    arguments = [str(out), "--seeds", "7", "8", "--teachers", "2", "--epochs", "5", "--jobs", "2"]
    with pytest.raises(subprocess.CalledProcessError):
        diversification.main(arguments)

    english = ["one", "a second line"]
    assert pairs(out, "de", "en") == [
        *zip(SIDES["de"], english, strict=True),
        *((line, f"teacher-de-en-{seed}: {line}") for seed in (0, 1) for line in SIDES["de"]),
        *((f"teacher-en-de-{seed}: {line}", line) for seed in (0, 1) for line in english[seed:]),
    ]
    assert pairs(out, "en", "de") == [
        *zip(english, SIDES["de"], strict=True),
        *((line, f"teacher-en-de-{seed}: {line}") for seed in (0, 1) for line in english[seed:]),
        *((f"teacher-de-en-{seed}: {line}", line) for seed in (0, 1) for line in SIDES["de"]),
    ]
    assert "en-de-7: an epoch\n" in capfd.readouterr().out
    before = commands(log)
    assert sorted(before) == sorted(
        [("train", f"teacher-{a}-{b}-{seed}") for a, b in (("de", "en"), ("en", "de")) for seed in (0, 1)]
        + [("translate", f"teacher-{a}-{b}-{seed}") for a, b in (("de", "en"), ("en", "de")) for seed in (0, 1)]
        + [("train", f"{a}-{b}-{seed}") for a, b in (("de", "en"), ("en", "de")) for seed in (7, 8)]
    )
    for (command, run), words in before.items():
        if command == "translate":
            assert words[1:] == diversification.SEARCH.split()
            continue
        assert annotated([command, *words, "--device", "nowhere"]) == 2
        assert "device 'nowhere' is not usable" in capfd.readouterr().err  # so it knows all other options
        src, tgt, seed = run.removeprefix("teacher-").split("-")
        teacher, said = run.startswith("teacher"), dict(pairwise(words))
        read_from = "train" if teacher else f"{src}-{tgt}"
        expected = {"--src": src, "--tgt": tgt, "--seed": seed, "--epochs": "30" if teacher else "5"}
        expected |= {"--source": f"{out / read_from}.{src}", "--target": f"{out / read_from}.{tgt}"}
        expected |= {"--val-source": f"{out / 'val'}.{src}", "--val-target": f"{out / 'val'}.{tgt}"}
        assert said.items() >= expected.items()
    assert [(out / f"val.{side}").read_text(encoding="utf-8") for side in SIDES] == ["de for val\n", "en for val\n"]

    log.unlink()
    diversification.main(arguments)  # only what was broken off goes on
    assert list(commands(log)) == [("train", "en-de-8")]
    assert commands(log)["train", "en-de-8"][-1] == "--resume"


def pairs(out: Path, src: str, tgt: str) -> list[tuple[str, str]]:
    """Read what students of a direction read."""
    sides = ((out / f"{src}-{tgt}.{side}").read_text(encoding="utf-8").splitlines() for side in (src, tgt))
    return list(zip(*sides, strict=True))


def commands(log: Path) -> dict[tuple[str, str], list[str]]:
    """Read what was asked, by command and run."""
    asked = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    runs = [Path(words[words.index("--out") + 1] if "--out" in words else words[1]).name for words in asked]
    found = {(words[0], run): words[1:] for words, run in zip(asked, runs, strict=True)}
    assert len(found) == len(asked)  # nothing twice
    return found
