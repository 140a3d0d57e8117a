"""What long texts cost, and what cheaper attention can find: the measurements of chapter 18.

    python -m experiments.long_sequences cost      # time and memory against the length; a few minutes
    python -m experiments.long_sequences needle    # patterns of attention on the needle task; a few minutes
    python -m experiments.long_sequences mixtures     # Linformer's E and F, fitted to one text; half a minute

Each writes its part of `data/results/long_sequences.json`. Cost is that of one sub-layer, forward, without gradients,
on one thread: the least processor time of several calls, and how much the memory of the process grew at its peak.
Every measurement has a process of its own, and all take turns. Where time is measured, the process keeps memory that it
has freed: else the system's fresh pages, for each large tensor anew, would be up to half of what is measured.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.attention import attention
from annotated.config import TransformerConfig
from annotated.encoder import Encoder, FeedForward
from annotated.models.long_attention import (
    BigBirdAttention,
    BlockedAttention,
    CompressedAttention,
    LinformerAttention,
    block_pattern,
    pattern_mask,
)
from annotated.multi_head import MultiHeadAttention
from annotated_course.bench import processor
from annotated_workbench.checkpoint import load_run
from annotated_workbench.data import DATA_FOLDER

RESULTS = Path(__file__).parent.parent / "data" / "results" / "long_sequences.json"
LENGTHS = [256, 512, 1024, 2048, 4096, 8192]
D_MODEL, HEADS, D_FF, K = 256, 4, 1024, 128
ROUNDS, CALLS = 3, 3
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}  # of glibc; other systems have other ways


class FusedAttention(MultiHeadAttention):
    """Multi-head attention by PyTorch's own function, which does not store the matrix either."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend as `MultiHeadAttention` does."""
        mixed = F.scaled_dot_product_attention(self.split(self.W_q(query)), keys, values, mask)
        return self.W_o(mixed.transpose(1, 2).flatten(2))


def kinds(length: int) -> dict[str, Callable[[], nn.Module]]:
    """What is measured: for each name, what makes it for texts of this length."""
    return {
        "feed-forward": lambda: FeedForward(D_MODEL, D_FF),
        "dense": lambda: MultiHeadAttention(D_MODEL, HEADS),
        "dense, in blocks": lambda: BlockedAttention(D_MODEL, HEADS, block=256),
        "dense, PyTorch's": lambda: FusedAttention(D_MODEL, HEADS),
        "Linformer": lambda: LinformerAttention(D_MODEL, HEADS, length=length, k=K),
        "BigBird": lambda: BigBirdAttention(D_MODEL, HEADS, block=64, window=3, first=2, random=3),
        "compressed": lambda: CompressedAttention(D_MODEL, HEADS, stride=3),
    }


def measure(name: str, length: int, results: multiprocessing.Queue) -> None:
    """Put the seconds of processor time and the MiB of one sub-layer into the queue."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, inputs = kinds(length)[name]().eval(), torch.randn(1, length, D_MODEL)

    def call(x: Tensor) -> None:
        module(x) if name == "feed-forward" else module(x, x, x)

    with torch.no_grad():
        call(inputs[:, :128])  # what is loaded at the first call is not counted
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        call(inputs)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        seconds = []
        for _ in range(CALLS):
            began = time.process_time()
            call(inputs)
            seconds.append(time.process_time() - began)
    results.put((min(seconds), grown))


def cost() -> dict:
    """Measure every kind at every length."""
    context = multiprocessing.get_context("spawn")
    seconds: dict = {name: {n: [] for n in LENGTHS} for name in kinds(1)}
    megabytes: dict = {name: {n: [] for n in LENGTHS} for name in kinds(1)}
    for turn, length, name in itertools.product(range(ROUNDS), LENGTHS, seconds):
        for keeping in (KEEPING, {}):
            with mock.patch.dict(os.environ, keeping):
                results = context.Queue()
                process = context.Process(target=measure, args=(name, length, results))
                process.start()
                time_, grown = results.get(timeout=300)
                process.join()
            (seconds if keeping else megabytes)[name][length].append(time_ if keeping else grown)
        print(
            f"round {turn}  {name:20}{length:6}{1000 * seconds[name][length][-1]:10.1f} ms{grown:10.1f} MiB", flush=True
        )
    return {
        "made by": "python -m experiments.long_sequences cost",
        "machine": f"{processor()}, torch {torch.__version__}, one thread, {time.strftime('%Y-%m-%d')}",
        "sizes": {"d_model": D_MODEL, "heads": HEADS, "d_ff": D_FF, "k": K},
        "lengths": LENGTHS,
        "seconds": {name: [round(min(row[n]), 5) for n in LENGTHS] for name, row in seconds.items()},
        "megabytes": {name: [round(statistics.median(row[n]), 1) for n in LENGTHS] for name, row in megabytes.items()},
    }


# The needle: a text of 64 tokens, one of which has a value that every position has to name

LENGTH, BLOCK, LAYERS, WIDTH, VALUES, NOISE = 64, 4, 2, 32, 4, 8
PATTERNS: dict[str, dict[str, int] | None] = {
    "window 1": dict(window=1, first=0),
    "window 3": dict(window=3, first=0),
    "window 5": dict(window=5, first=0),
    "window 9": dict(window=9, first=0),
    "window 1, 2 random": dict(window=1, first=0, random=2),
    "window 3, 2 random": dict(window=3, first=0, random=2),
    "first block": dict(window=0, first=1),
    "window 3, first block": dict(window=3, first=1),
    "window 3, first block, 2 random": dict(window=3, first=1, random=2),
    "everything": None,
}


def make_texts(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts (count, 64) of noise, each with one needle somewhere, and the needles' values (count,)."""
    ids = torch.randint(NOISE, (count, LENGTH), generator=draw)
    values = torch.randint(VALUES, (count,), generator=draw)
    ids[torch.arange(count), torch.randint(LENGTH, (count,), generator=draw)] = NOISE + values
    return ids, values


def all_needles() -> Tensor:
    """Make texts (place, value, 64): one noise, and in it every value at every place."""
    noise = torch.randint(NOISE, (LENGTH,), generator=torch.Generator().manual_seed(1))
    ids = noise.repeat(LENGTH, VALUES, 1)
    ids[torch.arange(LENGTH), :, torch.arange(LENGTH)] = NOISE + torch.arange(VALUES)
    return ids


def reach(choices: dict[str, int] | None) -> tuple[float, Tensor]:
    """Tell the share of pairs that a layer computes, and what each position can know after all layers (64, 64)."""
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    if choices is not None:
        seen = pattern_mask(block_pattern(LENGTH // BLOCK, **choices), choices["first"], BLOCK)
    step = (seen | torch.eye(LENGTH, dtype=torch.bool)).double()  # the residual connection keeps what one has
    return seen.double().mean().item(), torch.linalg.matrix_power(step, LAYERS) > 0


def train(choices: dict[str, int] | None, seed: int, updates: int = 200, batch: int = 16) -> nn.Module:
    """Train a small encoder with this pattern to tell the needle's value at every position."""
    torch.manual_seed(seed)
    config = TransformerConfig(1, d_model=WIDTH, d_ff=2 * WIDTH, heads=2, layers=LAYERS, dropout=0.0, norm_first=True)
    encoder = Encoder(config)
    if choices is not None:
        for layer in encoder.layers:
            layer.self_attention = BigBirdAttention(WIDTH, 2, block=BLOCK, **choices)
    model = nn.Sequential(nn.Embedding(NOISE + VALUES, WIDTH), encoder, nn.Linear(WIDTH, VALUES)).double()
    optimizer, draw = torch.optim.Adam(model.parameters()), torch.Generator().manual_seed(seed)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 5e-3 * min(1, (update + 1) / 20, 2 - 2 * update / updates)
        ids, values = make_texts(batch, draw)
        loss = F.cross_entropy(model(ids).flatten(0, 1), values.repeat_interleave(LENGTH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def answers(model: nn.Module) -> Tensor:
    """Tell whether the model is right, for each needle and position: (place, value, position)."""
    with torch.no_grad():
        found = model(all_needles().flatten(0, 1)).argmax(dim=-1).view(LENGTH, VALUES, LENGTH)
    return found == torch.arange(VALUES)[:, None]


def needle() -> dict:
    """Train every pattern with ten seeds."""
    rows = {}
    for name, choices in PATTERNS.items():
        density, known = reach(choices)
        right = torch.stack([answers(train(choices, seed)).double() for seed in range(10)])
        by_pair = right.mean(dim=2)  # (seed, place, position); `known` is (position, place)
        rows[name] = {
            "density": round(density, 4),
            "reach": round(known.double().mean().item(), 4),
            "right": [round(one.item(), 4) for one in by_pair.mean(dim=(1, 2))],
            "right within reach": [round(one[known.T].mean().item(), 4) for one in by_pair],
            "right beyond": [round(one[~known.T].mean().item(), 4) for one in by_pair] if not known.all() else [],
        }
        print(name, json.dumps(rows[name]), flush=True)
    return {
        "made by": "python -m experiments.long_sequences needle",
        "sizes": {"length": LENGTH, "block": BLOCK, "layers": LAYERS, "d_model": WIDTH, "values": VALUES},
        "seeds": list(range(10)),
        "patterns": rows,
    }


# Mixtures: E and F of Linformer, fitted to the tables of the translator's first layer for one text


def mixtures(steps: int = 400) -> dict:
    """Fit k mixtures of keys and of values, shared by the heads, so that attention's output is as without them."""
    translator, tokenizer, _ = load_run(DATA_FOLDER / "checkpoints" / "de-en")
    captions = (DATA_FOLDER / "captions" / "test.de").read_text(encoding="utf-8").splitlines()
    ids = torch.tensor([tokenizer.encode(" ".join(captions[:24]), "de")])
    layer = translator.encoder.layers[0].self_attention
    with torch.no_grad():
        states = translator.positions(translator.src_embedding(ids) * math.sqrt(translator.config.d_model))
        keys, values = layer.project(states, states)
        queries = layer.split(layer.W_q(states))
        exact = attention(queries, keys, values)
    found = {}
    for k in (16, 64, 128):
        means = F.one_hot(torch.arange(ids.size(1)) * k // ids.size(1)).T.float()
        means /= means.sum(dim=-1, keepdim=True)
        for_keys, for_values = (nn.Parameter(means.clone()) for _ in range(2))
        optimizer = torch.optim.Adam([for_keys, for_values], lr=0.01)
        errors = []
        for step in range(steps + 1):
            optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / (steps + 1))
            error = (attention(queries, for_keys @ keys, for_values @ values) - exact).norm() / exact.norm()
            errors.append(error.item())
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
        found[k] = {"means of neighbours": round(errors[0], 3), "fitted": round(min(errors), 3)}
        print(k, found[k], flush=True)
    return {"made by": "python -m experiments.long_sequences mixtures", "tokens": ids.size(1), "off": found}


def main() -> None:
    """Measure one part and write it beside the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["cost", "needle", "mixtures"])
    part = parser.parse_args().part
    torch.set_num_threads(1)
    measures = {"cost": cost, "needle": needle, "mixtures": mixtures}
    found = measures[part]()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(results | {part: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
