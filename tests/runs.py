"""A small corpus in files, how a small run is started, and what it leaves: for the tests of the command line."""

import json
from itertools import product
from pathlib import Path

from annotated_workbench.data import Pairs

ANIMALS = {"Hund": "dog", "Vogel": "bird", "Bär": "bear", "Käfer": "beetle", "Wolf": "wolf"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "spielt": "plays", "wartet": "waits"}
PLACES = {"hier": "here", "dort": "there", "draußen": "outside"}
WORDS = list(product(ANIMALS.items(), VERBS.items(), PLACES.items()))
GERMAN = [f"Ein {animal} {verb} {place}." for (animal, _), (verb, _), (place, _) in WORDS]
PAIRS = Pairs(GERMAN, [f"A {animal} {verb} {place}." for (_, animal), (_, verb), (_, place) in WORDS])
SMALL = ["--preset", "tiny", "--vocab-size", "280", "--warmup", "7", "--rate", "1", "--batch-tokens", "300"]
SMALL += ["--precision", "fp32"]


def write_corpus(folder: Path, pairs: Pairs = PAIRS) -> tuple[Path, Path]:
    """Write pairs, or sixty of our own, into my.de and my.en."""
    paths = folder / "my.de", folder / "my.en"
    for path, side in zip(paths, pairs, strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


def train_arguments(folder: Path, out: Path | str, *more: str) -> list[str]:
    """Give the arguments that train on what `write_corpus` wrote into a folder."""
    files = ["--source", str(folder / "my.de"), "--target", str(folder / "my.en")]
    return ["train", *files, "--out", str(out), *SMALL, *more]


def contents(out: Path) -> dict[str, bytes]:
    """Read all files of a run, by their names, but for its lock."""
    files = (path for path in out.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def read_metrics(out: Path) -> list[dict]:
    """Read what a run has noted of each epoch."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
