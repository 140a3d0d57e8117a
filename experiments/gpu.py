"""How fast training and decoding are on a GPU, beside `nn.Transformer` and Hugging Face, in one run.

    python -m experiments.gpu [data/results/gpu.json] [--updates 1000] [--quick]

Contestants stay in the GPU's memory and take turns; medians. Then the command line trains the paper's base on text that
is made up. --quick takes every path but torch.compile at tiny sizes, on a processor without a GPU, too.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from annotated.config import EOS, UNK, TransformerConfig
from annotated_course.bench import processor
from annotated_workbench.files import write_whole
from experiments import made_up
from experiments.gpu_contestants import Step, fast, generate, library, ours, ours_on_each, plain, search, textbook
from experiments.paper_run import VOCABULARY, weights_and_operations
from experiments.speed import VOCAB, installed

SEED, PRODUCTS = 0, 10  # products of which the peak is measured
PRESETS = {
    "small": (TransformerConfig.small, VOCAB),
    "base": (TransformerConfig.base, VOCABULARY),
    "big": (TransformerConfig.big, VOCABULARY),
}
COMPILED, IN_FLOAT32 = ("base",), ("small", "base")  # what takes long is measured for these alone


class Sizes(NamedTuple):
    """How much is done, such as positions a side in a batch (§5.1); a call is an update, or a search of all."""

    positions: int = 25_000
    length: int = 30
    turns: int = 5
    calls: int = 3
    sentences: int = 512
    batch: int = 256
    lengths: int = 20
    square: int = 8192  # rows and columns of the matrices whose product shows the peak
    pairs: int = 140_000
    words: int = made_up.WORDS
    settings: tuple[str, ...] = ("--preset", "base", "--batch-tokens", "25000", "--vocab-size", str(VOCABULARY))


TINY = dict(vocab_size=50, d_model=16, d_ff=16, heads=2, layers=1)
QUICK = Sizes(12, 4, 1, 1, 4, 2, 2, 64, 20, 50, ("--preset", "tiny", "--batch-tokens", "1000", "--vocab-size", "300"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all, print tables, and write what was found, after each table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="where to write the figures")
    parser.add_argument("--updates", type=int, default=1000, help="of the paper's base, about; 0: none")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: are all paths alive?")
    args = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        parser.error("there is no GPU that CUDA can use: --quick tries the command without one.")
    name = torch.cuda.get_device_name() if device.type == "cuda" else processor()
    sizes, date = QUICK if args.quick else Sizes(), time.strftime("%Y-%m-%d")
    print(f"{name}, torch {torch.__version__}, {date}")
    torch.manual_seed(SEED)
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "date": date, "seed": SEED}
    found |= sizes._asdict() | {"peak": peaks(sizes, device), "training": {}, "decoding": {}}

    def write() -> None:
        if args.file:
            write_whole(args.file, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())

    configs = {name: TransformerConfig(**TINY) if args.quick else make(size) for name, (make, size) in PRESETS.items()}
    for preset, config in configs.items():
        found["training"][preset] = training(preset, config, sizes, device, found["peak"])
        found["decoding"][preset] = decoding(preset, config, sizes, device)
        write()
    found["new_lengths"] = new_lengths(configs["base"], sizes, device)
    write()
    if args.updates:
        epochs = max(1, round(args.updates * sizes.positions / sizes.pairs / 35))  # tokens of a sentence, with padding
        print(f"\nThe paper's training for {epochs} epochs of {sizes.pairs:,} made-up pairs", flush=True)
        found["run"] = made_up.train(sizes.settings, sizes.pairs, epochs, device, sizes.words, SEED)
        print(f"{found['run']['seconds']:.0f} s in all, {found['run']['gigabytes']:.1f} GB")
        write()


def in_turns(contestants: dict[str, Callable[[], Step]], sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Make each and warm it up, then time all in turn; give the median seconds of a call, and the most GB it took."""
    steps, memory, seconds, gpu = {}, {}, {name: [] for name in contestants}, device.type == "cuda"
    for name, make in contestants.items():
        before = torch.cuda.memory_allocated()  # 0 without a GPU
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        steps[name] = make()
        for _ in range(2):
            steps[name]()
        memory[name] = (torch.cuda.max_memory_allocated() - before) / 1e9
    for _ in range(sizes.turns):
        for name, step in steps.items():
            began = time.perf_counter()
            for _ in range(sizes.calls):
                step()
            if gpu:
                torch.cuda.synchronize()
            seconds[name].append((time.perf_counter() - began) / sizes.calls)
    return {name: {"seconds": statistics.median(times), "gigabytes": memory[name]} for name, times in seconds.items()}


def peaks(sizes: Sizes, device: torch.device) -> dict[str, float]:
    """Measure the operations a second of large matrix products."""

    def products(kind: torch.dtype) -> Step:
        square = torch.randn(sizes.square, sizes.square, device=device).to(kind)
        return lambda: [square @ square for _ in range(PRODUCTS)]

    found = in_turns({name: partial(products, getattr(torch, name)) for name in ("bfloat16", "float32")}, sizes, device)
    peak = {name: PRODUCTS * 2 * sizes.square**3 / row["seconds"] for name, row in found.items()}
    print("measured peak: " + ", ".join(f"{name} {value / 1e12:.0f} TFLOP/s" for name, value in peak.items()))
    return peak


def training(
    preset: str, config: TransformerConfig, sizes: Sizes, device: torch.device, peak: dict[str, float]
) -> dict[str, Any]:
    """Time one update at equal sizes, batch and loss."""
    rows, length = sizes.positions // sizes.length, sizes.length
    batch = [torch.randint(UNK, config.vocab_size, (rows, length + more), device=device) for more in (0, 1)]
    contestants = {
        "ours, bfloat16": partial(ours, config, *batch, bf16=True),
        "nn.Transformer, bfloat16 autocast": partial(textbook, library, config, *batch),
    }
    if preset in COMPILED and device.type == "cuda":
        for name, make in (("ours, bfloat16", fast), ("nn.Transformer, bfloat16 autocast", library)):
            contestants[f"{name}, torch.compile"] = partial(textbook, make, config, *batch, compiled=True)
    if preset in IN_FLOAT32:
        contestants["ours, float32"] = partial(ours, config, *batch, bf16=False)
        contestants["nn.Transformer, float32"] = partial(textbook, library, config, *batch, bf16=False)
        contestants["ours, float32, the plain form"] = partial(plain, config, *batch)
    found, (weights, operations) = in_turns(contestants, sizes, device), weights_and_operations(config, length)
    print(f"\nTraining step, {preset}, {rows} × {length} tokens a side, {operations * rows * length / 1e12:.2f} TFLOP")
    print(f"  {'':50} {'ms':>7} {'tokens/s':>11} {'times ours':>11} {'of peak':>8} {'GB':>6}")
    for name, row in found.items():
        row["tokens_per_second"] = 2 * rows * length / row["seconds"]
        row["times_ours"] = row["seconds"] / found["ours, bfloat16"]["seconds"]
        rate = operations * rows * length / row["seconds"]
        row["of_peak"] = rate / peak["float32" if "float32" in name else "bfloat16"]
        print(
            f"  {name:50} {row['seconds'] * 1e3:7.1f} {row['tokens_per_second']:11,.0f} {row['times_ours']:11.2f} "
            f"{row['of_peak']:8.1%} {row['gigabytes']:6.2f}"
        )
    return {"weights": weights, "operations_per_position": operations, "contestants": found}


def decoding(preset: str, config: TransformerConfig, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Time the translation of sentences that all take as many steps as they have tokens: the weights are random."""
    src = torch.randint(UNK, config.vocab_size, (sizes.sentences, sizes.length), device=device)
    src[:, -1] = EOS
    batches, found = src.split(sizes.batch), {}
    print(f"\nTranslating {len(src):,} sentences of {sizes.length} tokens, {preset}, batches of {sizes.batch}")
    for beam, name in ((1, "greedy"), (4, "beam 4")):
        contestants = {f"{name}, ours, bfloat16": partial(search, config, batches, beam, bf16=True)}
        if preset in IN_FLOAT32:
            contestants[f"{name}, ours, float32"] = partial(search, config, batches, beam, bf16=False)
        if installed("transformers"):
            contestants[f"{name}, Hugging Face generate, bfloat16"] = partial(generate, config, batches, beam)
        found |= in_turns(contestants, sizes._replace(calls=1), device)
    for name, row in found.items():
        row["tokens_per_second"] = src.numel() / row["seconds"]
        print(f"  {name:50} {row['seconds']:7.2f} s {row['tokens_per_second']:11,.0f} tokens/s", flush=True)
    return found


def new_lengths(config: TransformerConfig, sizes: Sizes, device: torch.device) -> dict[str, list[float]]:
    """Time our updates on batches of new lengths, twice: does attention by cuDNN pay for each shape that it meets?"""
    found, usual = {}, torch.backends.cuda.cudnn_sdp_enabled()
    lengths = range(sizes.length + 1, sizes.length + 1 + sizes.lengths)
    sides = [[(sizes.positions // length, length + more) for more in (0, 1)] for length in lengths]
    batches = [[torch.randint(UNK, config.vocab_size, shape, device=device) for shape in side] for side in sides]
    print("\nOur updates on batches of new lengths, and on the same ones again")
    for name, allowed in (("attention by cuDNN", True), ("by PyTorch's own kernels", False)):
        torch.backends.cuda.enable_cudnn_sdp(allowed)
        step, found[name] = ours_on_each(config, batches), []
        for _ in range(2):
            began = time.perf_counter()
            step()
            found[name].append((time.perf_counter() - began) / len(batches))
        print(f"  {name:50} {found[name][0] * 1e3:7.1f} ms, then {found[name][1] * 1e3:7.1f}", flush=True)
    torch.backends.cuda.enable_cudnn_sdp(usual)
    return found


if __name__ == "__main__":
    main()
