"""How much memory do training pairs take? In memory and in files, up to five million of them.

    python -m experiments.mapped [--pairs 50000 500000 5000000] [--most-in-memory 500000] [--out FILE]

Writes pairs of 4 to 20 random numbers a side, turns them into ids and makes the batches of one epoch, of which it reads
five hundred; each line of the table in a process of its own. What a process takes of its own is sampled every 20 ms
(RssAnon in Linux's /proc). Pages of mapped files are not counted: the system takes them back when it needs the memory.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from annotated_workbench.data import encode_pairs, make_batches, read_pairs
from annotated_workbench.files import write_whole
from annotated_workbench.mapped import encode_files
from annotated_workbench.vocabulary import SPECIALS

BATCH_TOKENS, MAX_LENGTH, BATCHES = 25_000, 100, 500
WORDS = 32_000


class Numbers:
    """A tokenizer for texts that are numbers already."""

    def encode(self, text: str, language: str) -> list[int]:
        """Read the numbers."""
        return [int(word) for word in text.split()]

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Read the numbers of many texts."""
        return [self.encode(text, language) for text in texts]

    def decode(self, ids: Iterable[int] | torch.Tensor) -> str:
        """Write numbers."""
        return " ".join(str(int(i)) for i in ids)

    def __len__(self) -> int:
        return WORDS

    def content(self) -> bytes:
        """Say that there is nothing to know."""
        return b"numbers"

    def save(self, folder: str | Path) -> None:
        """Write nothing."""


def main() -> int:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 500_000, 5_000_000])
    parser.add_argument("--most-in-memory", type=int, default=500_000, help="more are only kept in files")
    parser.add_argument("--out", type=Path, default=Path("data/results/mapped.json"))
    args = parser.parse_args()
    lines = []
    print(
        f"{'pairs':>10}  {'kept':10}  {'ids, s':>7}  {'batches, s':>10}  {'500 read, s':>11}  {'peak, MB':>8}",
        flush=True,
    )
    for count in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_pairs(folder, count)
            for kind in ("in memory", "in files"):
                if kind == "in memory" and count > args.most_in_memory:
                    continue
                line = {"pairs": count, "kept": kind, **in_a_process(kind, folder)}
                lines.append(line)
                print(
                    f"{count:10,}  {kind:10}  {line['ids']:7.1f}  {line['batches']:10.1f}  {line['read']:11.2f}  "
                    f"{line['peak_mb'] - line['start_mb']:8,.0f}",
                    flush=True,
                )
    versions = {"python": platform.python_version(), "torch": torch.__version__, "date": str(date.today())}
    write_whole(
        args.out, (json.dumps({**versions, "command": " ".join(sys.argv), "lines": lines}, indent=1) + "\n").encode()
    )
    return 0


def write_pairs(folder: Path, count: int) -> None:
    """Write pairs of numbers as text."""
    draw = random.Random(0)
    words = [str(i) for i in range(len(SPECIALS), WORDS)]
    with open(folder / "source", "w") as source, open(folder / "target", "w") as target:
        for _ in tqdm(range(count), desc="pairs", leave=False, disable=None):
            length = draw.randint(4, 20)
            for file in (source, target):
                file.write(" ".join(draw.choices(words, k=max(1, length + draw.randint(-3, 3)))) + "\n")


def in_a_process(kind: str, folder: Path) -> dict[str, float]:
    """Measure in a fresh process, which has no memory left from before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, kind, folder).result()


def measure(kind: str, folder: Path) -> dict[str, float]:
    """Make ids and batches, read some; return the seconds of each and the megabytes before and at most."""
    make: dict[str, Callable[[Path], tuple[Any, Callable[[Any], Any]]]] = {"in memory": in_memory, "in files": in_files}
    start = anonymous()
    peak, stop = [start], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            peak.append(max(peak.pop(), anonymous()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    times = [time.perf_counter()]
    rows, batches_of = make[kind](folder)
    times.append(time.perf_counter())
    batches = batches_of(rows)
    times.append(time.perf_counter())
    for i in range(0, len(batches), max(1, len(batches) // BATCHES)):
        batches[i][0].sum()
    times.append(time.perf_counter())
    stop.set()
    watcher.join()
    ids, made, read = (end - begin for begin, end in pairwise(times))
    return {"ids": ids, "batches": made, "read": read, "start_mb": start, "peak_mb": peak[0], "count": len(batches)}


def in_memory(folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    """Encode as a `TranslationTask` does."""
    pairs = read_pairs(folder / "source", folder / "target")
    encoded = encode_pairs(pairs, Numbers(), "de", "en", MAX_LENGTH)
    return (pairs, encoded), lambda rows: make_batches(rows[1].sources, rows[1].targets, BATCH_TOKENS, seed=0)


def in_files(folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    """Encode as a `TranslationTask` with `mapped` does."""
    sides = folder / "source", folder / "target"
    found = encode_files(folder / "ids", *sides, Numbers(), "de", "en", MAX_LENGTH)
    return found, lambda rows: make_batches(*rows, BATCH_TOKENS, seed=0)


def anonymous() -> float:
    """Read how many megabytes this process has to itself, without pages of files."""
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
