"""A better single model of the same pairs: it also learns from what other models make of them.

    python -m experiments.diversification runs/diverse [--seeds 0 1 2] [--teachers 3] [--jobs 2]

Data diversification (Nguyen et al., 2020) on Multi30k. Teachers of both directions translate the training sentences.
Students learn from the real pairs, from real sources with the teachers' targets (Kim and Rush, 2016), and from real
targets with the sources of the other direction's teachers (Sennrich et al., 2016). What is there already is kept, and a
run that was broken off goes on.

A teacher takes an hour of one core, a student two. `experiments.scores` then says what students are worth.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from annotated_workbench.data import LANGUAGES, load_corpus
from annotated_workbench.files import write_whole
from annotated_workbench.limits import COUNT
from annotated_workbench.run_folder import METRICS, STATE

DIRECTIONS = (LANGUAGES, LANGUAGES[::-1])
ANNOTATED = (sys.executable, "-m", "annotated")
OPTIONS = "--preset small --dropout 0.2 --vocab-size 6000 --batch-tokens 4096 --average 1"
OPTIONS += " --schedule linear --warmup 1000 --rate 1"
SEARCH = "--beam 4 --alpha 1.8 --max-extra 10"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the teachers, let them translate, and train the students."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, help="folder for the runs, and for what they learn from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the students")
    parser.add_argument("--teachers", type=COUNT, default=3, help="in each direction")
    parser.add_argument("--teacher-epochs", type=COUNT, default=30, help="passes over the real pairs")
    parser.add_argument("--epochs", type=COUNT, default=8, help="a student's passes over all pairs")
    parser.add_argument("--jobs", type=COUNT, default=1, help="processes at a time, which share the cores")
    given = parser.parse_args(arguments)
    out = given.out
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // given.jobs))
    for split in ("train", "val"):
        for language, lines in zip(LANGUAGES, load_corpus("multi30k", split, *LANGUAGES), strict=True):
            write_lines(out / f"{split}.{language}", lines)
    trained, translated, students = [], [], []
    for src, tgt in DIRECTIONS:
        for seed in range(given.teachers):
            run = out / f"teacher-{src}-{tgt}-{seed}"
            trained.append(partial(train, run, src, tgt, "train", given.teacher_epochs, seed))
            translated.append(partial(translate, run, out / f"train.{src}", out / f"{src}-{tgt}-{seed}.{tgt}"))
        for seed in given.seeds:
            run = out / f"{src}-{tgt}-{seed}"
            students.append(partial(train, run, src, tgt, f"{src}-{tgt}", given.epochs, seed))
    written = [partial(write_pairs, out, src, tgt, given.teachers) for src, tgt in DIRECTIONS]
    with ThreadPoolExecutor(given.jobs) as pool:
        for jobs in (trained, translated, written, students):
            list(pool.map(lambda job: job(), jobs))  # raises what a job raises; those that wait are then cancelled


def train(run: Path, src: str, tgt: str, pairs: str, epochs: int, seed: int) -> None:
    """Train by the command line on files beside the run, from the beginning or from where the run stands."""
    metrics = run / METRICS
    if metrics.exists() and json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])["epoch"] >= epochs:
        return
    command = [*ANNOTATED, "train", "--src", src, "--tgt", tgt, "--epochs", str(epochs), "--out", str(run)]
    for option, name in (("", pairs), ("val-", "val")):
        command += [f"--{option}source", str(run.parent / f"{name}.{src}")]
        command += [f"--{option}target", str(run.parent / f"{name}.{tgt}")]
    command += ["--resume"] if (run / STATE).exists() else [*OPTIONS.split(), "--seed", str(seed)]
    print(f"{run.name} begins", flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def translate(run: Path, texts: Path, translations: Path) -> None:
    """Translate a file by the command line, unless that is done."""
    if translations.exists():
        return
    with texts.open("rb") as lines:
        command = [*ANNOTATED, "translate", str(run), *SEARCH.split()]
        write_whole(translations, subprocess.run(command, stdin=lines, stdout=subprocess.PIPE, check=True).stdout)


def write_pairs(out: Path, src: str, tgt: str, teachers: int) -> None:
    """Write what students read: the real pairs, then what each teacher made of a side, with the real other side."""
    real = {language: lines_of(out / f"train.{language}") for language in (src, tgt)}
    sides = {src: list(real[src]), tgt: list(real[tgt])}
    for made, kept in ((tgt, src), (src, tgt)):
        for seed in range(teachers):
            sides[kept] += real[kept]
            sides[made] += lines_of(out / f"{kept}-{made}-{seed}.{made}")
    whole = [pair for pair in zip(sides[src], sides[tgt], strict=True) if all(pair)]  # a teacher may have no words
    for language, lines in zip((src, tgt), zip(*whole, strict=True), strict=True):
        write_lines(out / f"{src}-{tgt}.{language}", lines)


def lines_of(path: Path) -> list[str]:
    """Read a file's lines; empty ones, too, which `read_lines` refuses."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write texts, one a line."""
    write_whole(path, "".join(" ".join(line.split()) + "\n" for line in lines).encode())


if __name__ == "__main__":
    main()
