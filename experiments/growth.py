"""How the cost of training grows with each size, ours beside `nn.Transformer`, and two processes beside two threads.

    python -m experiments.growth [data/results/growth.json] [--quick] [--draw docs/drawings/growth.png]

In float32. Each contestant has a process of its own at each size, and all sizes of one kind take turns; medians. The
limit is what the processor's fastest product (1,024 × 1,024, same run) would take for the products alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from annotated.config import UNK, TransformerConfig
from annotated.fast.memory import keep_memory
from annotated.fast.products import linear
from annotated.fast.training import make_optimizer, train_step
from annotated.training import make_optimizer as make_plain_optimizer
from annotated.transformer import Transformer
from annotated_course.bench import processor
from annotated_workbench.files import write_whole
from experiments import peers
from experiments.speed import RATE, VOCAB, Contestant, contest, multiplications, textbook_step

TOKENS = 4096  # a side where the length grows
USUAL = {"d_model": 256, "length": 32, "batch": 32, "threads": 1}
SIZES = {
    "d_model": (64, 128, 256, 512, 1024),
    "length": (16, 32, 64, 128, 256, 512, 1024, 2048),
    "batch": (4, 8, 16, 32, 64, 128),
}
NAMES = {"ours": "ours", "library": "nn.Transformer"}
AXES = {
    "d_model": "width of the model, $d_{model}$",
    "length": "tokens a sentence",
    "batch": "sentences a batch",
    "threads": "threads",
}
TWO = ("--nproc-per-node", "2", "--master-port", "29517")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write what was found, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("data/results/growth.json"))
    parser.add_argument("--quick", action="store_true", help="small sizes once: are all paths alive?")
    parser.add_argument("--draw", type=Path, help="draw the file's figures instead of measuring")
    given = parser.parse_args(arguments)
    if given.draw:
        draw(json.loads(given.file.read_text(encoding="utf-8")), given.draw)
        return
    found: dict[str, Any] = {"machine": processor(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    found["peak"] = peaks(2 if given.quick else 50)
    found["sizes"] = {}
    threads = range(1, (os.cpu_count() or 1) + 1)
    for kind, sizes in (SIZES | {"threads": tuple(threads)}).items():
        found["sizes"][kind] = series(kind, sizes[:2] if given.quick else sizes, 1 if given.quick else 3)
        write_whole(given.file, (json.dumps(found, indent=1) + "\n").encode())
    found["processes"] = processes(0.05 if given.quick else 0.7)
    write_whole(given.file, (json.dumps(found, indent=1) + "\n").encode())


def series(kind: str, sizes: Sequence[int], repetitions: int) -> list[dict[str, float]]:
    """Time one update at each size; print and return tokens a second, operations a token and megabytes."""
    print(f"\n{kind:10}{'ours':>10}{'nn.Transformer':>16}   tokens/s{'ours':>12}{'nn.Transformer':>16} MB", flush=True)
    rows = []
    for size in sizes:
        chosen = USUAL | ({"batch": max(1, TOKENS // size)} if kind == "length" else {}) | {kind: size}
        tokens = 2 * chosen["batch"] * chosen["length"]
        contestants = {name: Contestant(partial(make, chosen), passive=True) for name, make in MAKERS.items()}
        measured = contest(contestants, chosen["threads"], repetitions)
        operations = 6 * multiplications(_config(chosen), chosen["batch"], chosen["length"])
        row: dict[str, float] = {"size": size, "operations": operations / tokens}
        for name, (seconds, megabytes) in measured.items():
            row |= {name: tokens / seconds, f"{name}_mb": megabytes}
        rows.append(row)
        print(
            "{size:<10}{ours:10,.0f}{library:16,.0f}   {empty:8}{ours_mb:12,.0f}{library_mb:16,.0f}".format(
                **row, empty=""
            ),
            flush=True,
        )
    return rows


def _config(chosen: dict[str, int]) -> TransformerConfig:
    d_model = chosen["d_model"]
    return TransformerConfig.small(VOCAB, d_model=d_model, d_ff=2 * d_model, max_length=chosen["length"] + 1)


def _pair(chosen: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    src, tgt = (torch.randint(UNK, VOCAB, (chosen["batch"], chosen["length"] + i)) for i in (0, 1))
    return src, tgt


def _ours(chosen: dict[str, int]) -> Callable[[], object]:
    keep_memory()
    model = Transformer(_config(chosen))
    return partial(train_step, model, *_pair(chosen), make_optimizer(model, RATE))


def _library(chosen: dict[str, int]) -> Callable[[], object]:
    config, (src, tgt) = _config(chosen), _pair(chosen)
    model = peers.LibraryTransformer(config, Transformer(config).positions)
    return textbook_step(lambda: model(src, tgt[:, :-1]), tgt, make_plain_optimizer(model, RATE), False)


MAKERS = {"ours": _ours, "library": _library}


def peaks(products: int) -> dict[str, float]:
    """Measure operations a second of the fastest product, by the number of threads."""
    square, found, before = torch.randn(1024, 1024), {}, torch.get_num_threads()
    for threads in range(1, (os.cpu_count() or 1) + 1):
        torch.set_num_threads(threads)
        seconds = []
        for _ in range(6):
            for multiply in (torch.matmul, linear):
                began = time.perf_counter()
                for _ in range(products):
                    multiply(square, square)
                seconds.append(time.perf_counter() - began)
        found[str(threads)] = 2 * products * 1024**3 / min(seconds)
    torch.set_num_threads(before)
    return found


def processes(minutes: float) -> dict[str, float]:
    """Train by the command line for a while, in one process with two threads and in two with one each: tokens/s."""
    found = {}
    train = ["-m", "annotated", "train", "--corpus", "captions", "--preset", "small", "--precision", "fp32"]
    train += ["--batch-tokens", "4096", "--max-minutes", str(minutes), "--epochs", "1000"]
    for name, launcher, threads in (
        ("two threads", [], 2),
        ("two processes", ["-m", "torch.distributed.run", *TWO], 1),
    ):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
            command = [sys.executable, *launcher, *train, "--out", f"{folder}/run"]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = json.loads(lines[-1])["tokens_per_second"]
        print(f"{name}: {found[name]:,.0f} tokens/s", flush=True)
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw tokens a second against each size, with the limit."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(AXES), figsize=(14, 3.6), sharey=True, layout="constrained")
    for ax, (kind, words) in zip(axes, AXES.items(), strict=True):
        rows = found["sizes"][kind]
        sizes = [row["size"] for row in rows]
        threads = [str(row["size"] if kind == "threads" else USUAL["threads"]) for row in rows]
        limit = [found["peak"][count] / row["operations"] for count, row in zip(threads, rows, strict=True)]
        ax.plot(sizes, limit, "--", color="0.5", label="limit: products alone")
        ax.plot(sizes, [row["ours"] for row in rows], "o-", color="C0", label="ours")
        ax.plot(sizes, [row["library"] for row in rows], "s-", color="C1", label="nn.Transformer")
        ax.set(xlabel=words, xscale="log", yscale="log")
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45 if len(sizes) > 5 else 0)
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("tokens a second")
    axes[0].legend(frameon=False, loc="lower left")
    figure.suptitle("Cost grows with the width, and with the length only once sentences are long")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
