"""What long texts cost, and how near Linformer's mixtures come: measurements of chapter 18.

    python -m experiments.long_sequences cost        # time and memory against the length; a few minutes
    python -m experiments.long_sequences mixtures    # Linformer's E and F, fitted to one text; half a minute

Each writes its part of `data/results/long_sequences.json`. Cost is that of one sub-layer, forward, without gradients,
on one thread: the least processor time of several turns, and how much the memory of its process grew.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.attention import attention
from annotated.encoder import FeedForward
from annotated.models import long_attention as long
from annotated.multi_head import MultiHeadAttention
from annotated.training import set_rate
from annotated_workbench.checkpoint import load_run
from annotated_workbench.data import DATA_FOLDER
from experiments.contest import Call, contest
from experiments.results import about, save

RESULTS = DATA_FOLDER / "results" / "long_sequences.json"
LENGTHS, TURNS = [256, 512, 1024, 2048, 4096, 8192], 9
D_MODEL, HEADS, D_FF, K = 256, 4, 1024, 128


class StreamedAttention(MultiHeadAttention):
    """Multi-head attention by a function that does not store the matrix, our own or PyTorch's."""

    def __init__(self, mix: Callable[..., Tensor]):
        super().__init__(D_MODEL, HEADS)
        self.mix = mix

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend as `MultiHeadAttention` does."""
        mixed = self.mix(self.split(self.W_q(query)), keys, values, mask)
        return self.W_o(mixed.transpose(1, 2).flatten(2))


def kinds(length: int) -> dict[str, Callable[[], nn.Module]]:
    """What is measured: for each name, what makes it for texts of this length."""
    return {
        "feed-forward": lambda: FeedForward(D_MODEL, D_FF),
        "dense": lambda: MultiHeadAttention(D_MODEL, HEADS),
        "dense, in blocks": lambda: StreamedAttention(partial(long.attention_in_blocks, block=256)),
        "dense, PyTorch's": lambda: StreamedAttention(F.scaled_dot_product_attention),
        "Linformer": lambda: long.LinformerAttention(D_MODEL, HEADS, length=length, k=K),
        "BigBird": lambda: long.BigBirdAttention(D_MODEL, HEADS, block=64, window=3, first=2, random=3),
        "compressed": lambda: long.CompressedAttention(D_MODEL, HEADS, stride=3),
    }


def sublayer(name: str, length: int) -> Call:
    """Make one sub-layer's call on a text; what is loaded at the first call is not counted."""
    module, inputs = kinds(length)[name]().eval(), torch.randn(1, length, D_MODEL)

    @torch.no_grad()
    def call(x: Tensor = inputs) -> None:
        module(x) if name == "feed-forward" else module(x, x, x)

    call(inputs[:, :128])
    return call


def cost() -> dict[str, Any]:
    """Measure every kind at every length: seconds, and megabytes."""
    seconds, megabytes = ({name: [] for name in kinds(1)} for _ in range(2))
    for length in LENGTHS:
        for name, times in contest({name: partial(sublayer, name, length) for name in seconds}, TURNS).items():
            seconds[name].append(round(min(times.cpu), 5))
            megabytes[name].append(round(times.megabytes, 1))
    machine = "{processor}, torch {torch}, one thread, {date}".format(**about())
    sizes = {"d_model": D_MODEL, "heads": HEADS, "d_ff": D_FF, "k": K}
    return {"machine": machine, "sizes": sizes, "lengths": LENGTHS, "seconds": seconds, "megabytes": megabytes}


def mixtures(steps: int = 400) -> dict[str, Any]:
    """Fit k mixtures of keys and of values, shared by the heads, so that attention's output is as without them."""
    translator, tokenizer, _ = load_run(DATA_FOLDER / "checkpoints" / "de-en")
    sentences = (DATA_FOLDER / "grammar" / "test.de").read_text(encoding="utf-8").splitlines()
    ids = torch.tensor([tokenizer.encode(" ".join(sentences[:24]), "de")])
    layer = translator.encoder.layers[0].self_attention
    with torch.no_grad():
        states = translator.positions(translator.src_embedding(ids) * math.sqrt(translator.config.d_model))
        keys, values = layer.project(states, states)
        queries = layer.split(layer.W_q(states))
        exact = attention(queries, keys, values)
    off = {}
    for k in (16, 64, 128):
        means = F.one_hot(torch.arange(ids.size(1)) * k // ids.size(1)).T.float()
        means /= means.sum(dim=-1, keepdim=True)
        for_keys, for_values = (nn.Parameter(means.clone()) for _ in range(2))
        optimizer, errors = torch.optim.Adam([for_keys, for_values]), []
        for step in range(steps + 1):
            set_rate(optimizer, 0.01 * (1 - step / (steps + 1)))
            error = (attention(queries, for_keys @ keys, for_values @ values) - exact).norm() / exact.norm()
            errors.append(error.item())
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
        off[k] = {"means of neighbours": round(errors[0], 3), "fitted": round(min(errors), 3)}
    return {"tokens": ids.size(1), "off": off}


def write(part: str, measured: dict[str, Any]) -> None:
    """Put one part into the file, beside the others."""
    save(RESULTS, json.loads(RESULTS.read_text(encoding="utf-8")) | {part: measured})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["cost", "mixtures"])
    part = parser.parse_args().part
    torch.set_num_threads(1)
    write(part, {"cost": cost, "mixtures": mixtures}[part]())
