"""How fast training and decoding are on a GPU, beside `nn.Transformer` and Hugging Face, in one run.

    python -m experiments.gpu [data/results/gpu.json] [--quick]

Contestants stay in the GPU's memory and take turns; medians. --quick takes every path but torch.compile at tiny sizes,
without a GPU, too.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from annotated.config import TransformerConfig
from annotated.fast.training import make_optimizer
from experiments.contest import Call
from experiments.contestants import generate, our_module, ours, ours_plain, products, search, textbook
from experiments.paper_run import VOCABULARY, weights_and_operations
from experiments.peers import LibraryTransformer, installed
from experiments.results import about, save

PRODUCTS = 10  # matrix products in one timing of the peak
CONFIGS = {"small": TransformerConfig.small(6000), "base": TransformerConfig.base(VOCABULARY)}
CONFIGS["big"] = TransformerConfig.big(VOCABULARY)
FULL = {"update": (833, 30), "translated": (512, 30, 256), "turns": 5, "calls": 3, "square": 8192}  # 25,000 ids a side
QUICK = {"update": (3, 4), "translated": (4, 4, 2), "turns": 1, "calls": 1, "square": 64}
TINY = dict.fromkeys(CONFIGS, TransformerConfig(50, d_model=16, d_ff=16, heads=2, layers=1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all, and write the figures after each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="where to write the figures")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: are all paths alive?")
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.quick:
        parser.error("there is no GPU that CUDA can use: --quick tries the command without one.")
    sizes, configs = (QUICK, TINY) if args.quick else (FULL, CONFIGS)
    origin = about()
    machine = torch.cuda.get_device_name() if device == "cuda" else origin["processor"]
    torch.manual_seed(0)
    squares = {kind: partial(products, kind, PRODUCTS, sizes["square"], device) for kind in ("bfloat16", "float32")}
    work = PRODUCTS * 2 * sizes["square"] ** 3
    peaks = {kind: work / row["seconds"] for kind, row in in_turns(squares, sizes, device).items()}
    results = origin | {"device": machine, "sizes": sizes, "peak": peaks, "training": {}, "decoding": {}}
    for preset, config in configs.items():
        results["training"][preset] = training(preset, config, sizes, device, peaks)
        results["decoding"][preset] = decoding(preset, config, sizes, device)
        if args.file:
            save(args.file, results)


def in_turns(contestants: Mapping[str, Callable[[], Call]], sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """Make each and warm it up, then time all in turn; give the median seconds of a call, and the most GB it took."""
    steps, memory, seconds = {}, {}, {name: [] for name in contestants}
    for name, make in contestants.items():
        before = torch.cuda.memory_allocated()  # 0 without a GPU
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        steps[name] = make()
        steps[name]()
        memory[name] = (torch.cuda.max_memory_allocated() - before) / 1e9
    for name, step in [*steps.items()] * sizes["turns"]:
        began = time.perf_counter()
        for _ in range(sizes["calls"]):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds[name].append((time.perf_counter() - began) / sizes["calls"])
    return {name: {"seconds": statistics.median(times), "gigabytes": memory[name]} for name, times in seconds.items()}


def training(preset: str, config: TransformerConfig, sizes: dict, device: str, peaks: dict[str, float]) -> dict:
    """Time one update at equal sizes, batch, loss and Adam; ours in bfloat16 first."""
    update, adam = (config, *sizes["update"], device), {"optimizer": make_optimizer}
    contestants = {
        "ours, bfloat16": partial(ours, *update, bf16=True),
        "nn.Transformer, bfloat16 autocast": partial(textbook, LibraryTransformer, *update, bf16=True, **adam),
    }
    if preset == "base" and device == "cuda":
        for name, make in (("ours", our_module), ("nn.Transformer", LibraryTransformer)):
            compiled = partial(textbook, make, *update, bf16=True, compiled=True, **adam)
            contestants[f"{name}, bfloat16, torch.compile"] = compiled
    if preset != "big":
        contestants["ours, float32"] = partial(ours, *update)
        contestants["nn.Transformer, float32"] = partial(textbook, LibraryTransformer, *update, **adam)
        contestants["ours, float32, the plain form"] = partial(ours_plain, *update)
    rows, length = sizes["update"]
    work = weights_and_operations(config, length)[1] * rows * length
    timed = in_turns(contestants, sizes, device)
    for name, row in timed.items():
        row["tokens_per_second"] = 2 * rows * length / row["seconds"]
        row["times_ours"] = row["seconds"] / timed["ours, bfloat16"]["seconds"]
        row["of_peak"] = work / row["seconds"] / peaks["float32" if "float32" in name else "bfloat16"]
        print(preset, name, row, flush=True)
    return timed


def decoding(preset: str, config: TransformerConfig, sizes: dict, device: str) -> dict:
    """Time the translation of sentences that all take as many steps as they have tokens."""
    translated, timed = (config, sizes["translated"], device), {}
    for beam, name in ((1, "greedy"), (4, "beam 4")):
        contestants = {f"{name}, ours": partial(search, *translated, beam=beam, bf16=True)}
        if installed("transformers"):
            contestants[f"{name}, Hugging Face generate"] = partial(generate, *translated, beam=beam, bf16=True)
        timed |= in_turns(contestants, sizes | {"calls": 1}, device)
    for name, row in timed.items():
        row["tokens_per_second"] = sizes["translated"][0] * sizes["translated"][1] / row["seconds"]
        print(preset, name, row, flush=True)
    return timed


if __name__ == "__main__":
    main()
