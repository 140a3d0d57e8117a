"""How fast this machine is beside others, and how long the course and its trainings will take on it.

    python -m annotated bench

measures for a minute or two; with a file name after `bench`, the figures are kept there. Those of other machines, and
what each lesson took on the first of them, are in `data/results/bench.json`.
"""

import argparse
import json
import os
import platform
import re
import statistics
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from annotated import training as plain
from annotated.config import EOS, UNK, TransformerConfig
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import greedy_decode, in_bfloat16
from annotated.fast.training import bf16_is_fast, make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.files import write_whole

KNOWN = DATA_FOLDER / "results" / "bench.json"
VOCAB, SENTENCES, TOKENS = 6000, 240, 17  # a batch of Multi30k, as in `make train`
PRODUCTS, SIZE, UPDATES = 20, 1024, 20
EPOCH = 934_415  # tokens of Multi30k's training pairs, source and target, in a vocabulary of 6,000
TRAININGS = {"make train: Multi30k, 30 epochs": 30, "the quick recipe on Multi30k, 6 epochs": 6}  # name: epochs
PAPERS_BASE = 9.4e17  # operations of the paper's 100,000 updates: 6 · weights · tokens
ROWS = {  # what is measured: its name and unit
    "product": ("float32 matrix product, one thread", "GFLOP/s"),
    "float32": ("training in float32, one thread", "tokens/s"),
    "float32_all": ("training in float32, all threads", "tokens/s"),
    "bfloat16": ("training in bfloat16, one thread", "tokens/s"),
    "bfloat16_all": ("training in bfloat16, all threads", "tokens/s"),
    "greedy": ("translating greedily, one thread", "sentences/s"),
    "lesson": ("updates as in the lessons, one thread", "updates/s"),
}


def command(args: argparse.Namespace) -> None:
    """Measure this machine, and print what that means."""
    if args.file and Path(args.file).exists():
        raise FileExistsError(f"{args.file} exists: give a new file for the figures of this machine.")
    known = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {"machines": [], "lessons": {}}
    print("Measuring, for a minute or two …", flush=True)
    own = measure(told=lambda row, value: print(f"  {ROWS[row][0]}: {value:,.0f} {ROWS[row][1]}", flush=True))
    print("", *table(own, known["machines"]), "", *durations(own, known), sep="\n")
    if args.file:
        write_whole(Path(args.file), (json.dumps(own, indent=1) + "\n").encode())


def measure(told: Callable[[str, float], Any], sentences: int = SENTENCES, repetitions: int = 3) -> dict[str, Any]:
    """Measure a few typical things, in turn, and return the medians by their names in `ROWS`, and which machine it is.

    `told` hears of each figure as soon as it is there.
    """
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    precisions = (False, True) if bf16_is_fast(torch.device("cpu")) else (False,)
    square = torch.randn(SIZE, SIZE)
    src, tgt = (torch.randint(UNK, VOCAB, (sentences, TOKENS + i)) for i in (0, 1))
    model = Transformer(TransformerConfig.small(VOCAB))
    optimizer = make_optimizer(model, 1e-4)
    translator = accelerate((in_bfloat16(model) if True in precisions else model).eval())
    source = torch.cat((src, torch.full((sentences, 1), EOS)), dim=1)
    small = Transformer(TransformerConfig(100, d_model=32, d_ff=64, heads=4, layers=2))
    ids = torch.randint(UNK, 100, (16, 9))
    update = partial(plain.train_step, small, ids, ids, plain.make_optimizer(small))
    own: dict[str, Any] = {"processor": processor(), "cores": os.cpu_count()}
    own |= {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}

    def note(row: str, call: Callable[[], Any], per_second: float) -> None:
        """Note how many a second: `per_second` of them are in one call."""
        call()
        own[row] = per_second / statistics.median(timeit.repeat(call, number=1, repeat=repetitions))
        told(row, own[row])

    try:
        for count in dict.fromkeys((1, threads)):
            torch.set_num_threads(count)
            everywhere = "" if count == 1 else "_all"
            for bf16 in precisions:
                step = partial(train_step, model.train(), src, tgt, optimizer, bf16=bf16)
                note(f"{'bfloat16' if bf16 else 'float32'}{everywhere}", step, 2 * sentences * TOKENS)
            if count == 1:
                note("product", lambda: [square @ square for _ in range(PRODUCTS)], 2e-9 * PRODUCTS * SIZE**3)
                note("greedy", lambda: greedy_decode(translator, source, max_extra=0), sentences)
                note("lesson", lambda: [update() for _ in range(UPDATES)], UPDATES)
    finally:
        torch.set_num_threads(threads)
    return own


def table(own: dict[str, Any], others: list[dict[str, Any]]) -> list[str]:
    """Write the figures of machines side by side, this one's first."""
    machines = [own, *others]
    heads = ["this machine", *(f"machine {number}" for number in range(1, len(machines)))]
    lines = [f"{'':42}{''.join(f'{head:>14}' for head in heads)}"]
    for row, (name, unit) in ROWS.items():
        figures = "".join(f"{machine[row]:14,.0f}" if row in machine else f"{'–':>14}" for machine in machines)
        lines.append(f"{name:42}{figures}  {unit}")
    which = "  {head}: {processor}, {cores} cores, torch {torch}, {date}"
    return lines + [which.format(head=head, **machine) for head, machine in zip(heads, machines, strict=True)]


def durations(own: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """Estimate how long lessons and trainings take on this machine: lessons by one of their updates."""
    speed = max(own.get(row, 0) for row in ("float32", "float32_all", "bfloat16", "bfloat16_all"))
    lines = ["About how long it takes here, validation left out:"]
    lines += [f"  {name:46}{spell(epochs * EPOCH / speed)}" for name, epochs in TRAININGS.items()]
    operations = own["product"] * 1e9 * speed / own["float32"]  # a second, were all threads and bfloat16 as good there
    lines.append(f"  {'the base model of the paper, 100,000 updates':46}{spell(PAPERS_BASE / operations)}")
    if known["machines"] and known["lessons"]:
        slower = known["machines"][0]["lesson"] / own["lesson"]
        times = {name: seconds * slower for name, seconds in known["lessons"].items()}
        lines += ["", f"Executing a lesson from top to bottom (one thread; all: {spell(sum(times.values()))}):"]
        lines += [f"  {name:46}{spell(seconds)}" for name, seconds in times.items()]
    return lines


def spell(seconds: float) -> str:
    """Write a duration in the largest unit that it has two of."""
    for unit, size in (("years", 365.25 * 86_400), ("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def processor() -> str:
    """Name the processor, the instructions that torch uses, and the generation where the system tells it."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", info)
    generation = re.search(r"cpu family\s*: (\d+)\nmodel\s*: (\d+)", info)  # several may bear one name
    which = name[1] if name else platform.processor() or platform.machine()
    numbers = ", family {}, model {}".format(*generation.groups()) if generation else ""
    return f"{which} ({torch.backends.cpu.get_cpu_capability()}){numbers}"
