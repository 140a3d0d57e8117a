"""What does the paper's training take? Counts from the module's own models, and how they hold in small.

    python -m experiments.paper_run [--length 30] [--batch-tokens 25000] [--gpus 8] [--check]

Prints for base and big, with the vocabulary of WMT 2014 English–German: weights, operations of an update, memory of a
GPU, and what share of their GPUs' peak the authors used. --check trains a few small and large models on this processor
for some updates and holds memory and time against the same counts; it asks for three minutes.
"""

import argparse
import ctypes
import os
import sys
import threading
import time
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from annotated.config import TransformerConfig
from annotated.fast.accelerate import accelerate
from annotated.fast.training import GPU_LOSS_CHUNK, make_optimizer, update
from annotated.transformer import Transformer

VOCABULARY = 37_000  # §5.1
PAPER = {"base": (100_000, 0.4, 3.3e18), "big": (300_000, 1.0, 2.3e19)}  # updates, seconds of each (§5.2), Table 2
GPUS, P100 = 8, 9.5e12  # the authors' GPUs, and what §6.1 takes for the operations a second that one sustains
COPIES = 5  # of the weights, in float32: they, their gradients, Adam's two moments, and the gradients on their way


class Counts(NamedTuple):
    """What a model takes.

    Args:
        weights: numbers in it.
        operations: of an update, for each position of a source and of its target: products and sums, as two.
        bytes: kept for the backward pass, for each such position.
        fixed: bytes kept whatever the batch: weights merged or in another precision.
    """

    weights: int
    operations: float
    bytes: float
    fixed: float


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--length", type=int, default=30, help="tokens of a sentence")
    parser.add_argument("--batch-tokens", type=int, default=25_000, help="of an update, a side, padding included")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="hold the counts against this processor")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"sentences of {args.length} tokens, {args.batch_tokens:,} a side in an update, {args.gpus} GPUs, bfloat16\n")
    print("model   weights  TFLOP an update  EFLOP in all (Table 2)  of the P100s' 9.5 TFLOP/s  GB a GPU")
    for name, (updates, seconds, table_2) in PAPER.items():
        config = getattr(TransformerConfig, name)(VOCABULARY)
        found = count(config, args.length, bf16=True)
        work = found.operations * args.batch_tokens
        memory = memory_of(found, args.batch_tokens / args.gpus, bf16=True)
        print(
            f"{name:5} {found.weights / 1e6:7.1f} M {work / 1e12:14.1f} {updates * work / 1e18:14.2f} "
            f"({table_2 / 1e18:4.1f}) {work / seconds / GPUS / P100:25.0%} {memory / 1e9:11.2f}",
            flush=True,
        )
    return check(args.length) if args.check else 0


def count(config: TransformerConfig, length: int, *, bf16: bool) -> Counts:
    """Count with models that hold no numbers, and with what the fast forward pass keeps for two sizes of batch."""
    weights, operations = weights_and_operations(config, length)
    few, many = (kept_bytes(config, rows, length, bf16=bf16) for rows in (4, 8))
    slope = (many - few) / (4 * length)
    return Counts(weights, operations, slope, few - 4 * length * slope)


def weights_and_operations(config: TransformerConfig, length: int) -> tuple[int, float]:
    """Count both, as `Counts` has them, with a model that holds no numbers."""
    with torch.device("meta"):
        model = Transformer(config)
        ids = torch.ones(1, length + 1, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            model(ids[:, 1:], ids[:, :-1]).sum().backward()
    return sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() / length


def kept_bytes(config: TransformerConfig, rows: int, length: int, *, bf16: bool) -> float:
    """Add up the tensors that the forward pass keeps for the backward pass, each storage once, without the weights."""
    model = Transformer(config)
    ids = torch.ones(rows, length + 1, dtype=torch.int64)
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        accelerate(model, bf16=bf16).states(ids[:, 1:], ids[:, :-1])
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return float(sum(storage.nbytes() for storage in kept.values()))


def memory_of(found: Counts, positions: float, *, bf16: bool, copies: int = COPIES) -> float:
    """Estimate the bytes of a GPU: weights and their likes, what is kept, and the scores of one chunk, twice."""
    scores = 2 * min(positions, GPU_LOSS_CHUNK) * VOCABULARY * (2 if bf16 else 4)
    return copies * 4 * found.weights + found.fixed + positions * found.bytes + scores


def check(length: int) -> int:
    """Hold the counts against a few updates in float32 on one thread of this processor."""
    print("\non one thread, float32   positions  GB counted  GB measured  ratio  s an update  GFLOP/s")
    for name, rows in (("small", 16), ("small", 48), ("base", 16), ("base", 48), ("big", 16)):
        config = getattr(TransformerConfig, name)(VOCABULARY)
        found, positions = count(config, length, bf16=False), rows * length
        expected = memory_of(found, positions, bf16=False, copies=COPIES - 1)
        measured, seconds = train(config, rows, length)
        print(
            f"{name:22} {positions:11,} {expected / 1e9:11.2f} {measured / 1e9:12.2f} {measured / expected:6.2f} "
            f"{seconds:12.2f} {found.operations * positions / seconds / 1e9:8.0f}",
            flush=True,
        )
    return 0


def train(config: TransformerConfig, rows: int, length: int) -> tuple[float, float]:
    """Make four updates; return the most memory that they took, in bytes, and the processor time of the fastest."""
    trim = ctypes.CDLL(None).malloc_trim
    trim(0)
    before, peak, stop = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = Transformer(config)
    optimizer = make_optimizer(model)
    src, tgt = (torch.randint(4, config.vocab_size, (rows, length + more)) for more in (0, 1))
    times = []
    for _ in range(4):
        began = time.thread_time()
        update(model, [(src, tgt)], optimizer)
        times.append(time.thread_time() - began)
    stop.set()
    watcher.join()
    return peak[0] - before, min(times)


def anonymous() -> int:
    """Read how many bytes this process has to itself, without pages of files."""
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


if __name__ == "__main__":
    sys.exit(main())
