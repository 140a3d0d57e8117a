"""What each step of 13_speed gains in 32 bits: one update in CPU seconds and in memory, and under `torch.compile`.

    python -m experiments.staircase [data/results/staircase.json] [--turns 12] [--pairs 240]

The steps are the lesson's own: its cells with the tag "staircase" are run. Each rung has a process of its own, on one
thread, and they take turns. The smallest CPU time counts: what other processes do can only make it longer.
"""

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from annotated.config import UNK, TransformerConfig
from annotated.fast import training as fast
from annotated.fast.memory import keep_memory
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import DATA_FOLDER
from experiments.speed import RATE, SENTENCES, TOKENS, VOCAB, processor

LESSON = Path(__file__).resolve().parents[1] / "notebooks" / "13_speed.ipynb"
TAG = "staircase"


def main() -> None:
    """Time all rungs in turns, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA_FOLDER / "results" / "staircase.json")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=SENTENCES)
    given = parser.parse_args()
    found = measure(given.turns, given.pairs)
    for name, rung in found.items():
        print(f"{name:36} {rung['seconds']:6.3f} s {rung['megabytes']:6.0f} MB")
    result = {
        "command": f"python -m experiments.staircase --turns {given.turns} --pairs {given.pairs}",
        "machine": f"{processor()}, one thread",
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "rungs": found,
    }
    given.file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def lesson() -> dict[str, Any]:
    """Run the lesson's cells that define its steps; give the names that they make."""
    names: dict[str, Any] = {}
    for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"]:
        if TAG in cell["metadata"].get("tags", []):
            source = "".join(cell["source"])
            exec("".join(line for line in source.splitlines(keepends=True) if not line.startswith("%")), names)
    return names


def plain(pairs: int) -> Callable[[], object]:
    """Make the update of chapters 01 to 07."""
    return _update(train_step, pairs)


def in_chunks(pairs: int) -> Callable[[], object]:
    """Make the update whose loss is in closed form and in chunks."""
    return _update(lesson()["chunked_step"], pairs)


def few_passes(pairs: int, keep: bool = False) -> Callable[[], object]:
    """Make the update that drops, adds and normalises in fewer passes, too; and one whose process keeps its memory."""
    if keep:
        keep_memory()
    steps = lesson()
    return _update(steps["chunked_step"], pairs, change=steps["fewer_passes"])


def whole(pairs: int) -> Callable[[], object]:
    """Make the update of `annotated.fast` in 32 bits, as the command line does."""
    keep_memory()
    return _update(fast.train_step, pairs, optimizer=fast.make_optimizer)


def compiled(pairs: int) -> Callable[[], object]:
    """Make the plain update of a model that `torch.compile` has translated."""
    return _update(train_step, pairs, wrap=torch.compile)


RUNGS: dict[str, Callable[[int], Callable[[], object]]] = {
    "the plain form": plain,
    "the loss in chunks": in_chunks,
    "dropout, sum and norm": few_passes,
    "memory kept": partial(few_passes, keep=True),
    "annotated.fast": whole,
    "torch.compile": compiled,
}


def measure(turns: int, pairs: int) -> dict[str, dict[str, float]]:
    """Time each rung `turns` times, one after the other; give seconds, and the most memory beyond the model's."""
    context, ends, processes, found = multiprocessing.get_context("spawn"), {}, [], {}
    for name in RUNGS:
        ends[name], end = context.Pipe()
        processes.append(context.Process(target=_climb, args=(end, name, pairs), daemon=True))
        processes[-1].start()
        found[name] = {"seconds": float("inf"), "megabytes": ends[name].recv()}
    for _ in range(turns):
        for name, end in ends.items():
            end.send("go")
            found[name]["seconds"] = min(found[name]["seconds"], round(end.recv(), 4))
    for process in processes:
        process.terminate()
    return found


def _climb(end: Connection, name: str, pairs: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = RUNGS[name](pairs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    end.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1000)
    while end.recv():
        began = time.process_time()
        step()
        end.send(time.process_time() - began)


def _update(
    step: Callable[..., float],
    pairs: int,
    *,
    change: Callable[[Any], None] = lambda model: None,
    optimizer: Callable[..., torch.optim.Optimizer] = make_optimizer,
    wrap: Callable[[Any], Any] = lambda model: model,
) -> Callable[[], object]:
    model = Transformer(TransformerConfig.small(VOCAB))
    change(model)
    src, tgt = (torch.randint(UNK, VOCAB, (pairs, TOKENS + extra)) for extra in (0, 1))
    return partial(step, wrap(model), src, tgt, optimizer(model, RATE))


if __name__ == "__main__":
    main()
