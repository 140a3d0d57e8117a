"""How fast training is, beside PyTorch's own model, in one run: `make bench`.

    python -m experiments.speed [--quick]

The tables are in docs/RESULTS.md. Times are medians of turns; quote the ratios.
"""

import argparse
import time
from functools import partial

import torch

from annotated.config import TransformerConfig
from annotated.fast.training import bf16_is_fast
from experiments.contest import contest
from experiments.contestants import ours, ours_plain, products, textbook
from experiments.paper_run import weights_and_operations
from experiments.results import processor

SMALL = TransformerConfig.small(6000)
UPDATE = SENTENCES, TOKENS = 240, 17
PRODUCTS = 50  # matrix products in one timing of the peak: a single one is over before all threads are awake


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one turn of everything: are all paths alive?")
    turns = 1 if parser.parse_args().quick else 7
    print(f"{processor()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}", flush=True)
    for threads in (1, 2):
        for bf16 in (False, True) if bf16_is_fast(torch.device("cpu")) else (False,):
            training(bf16, threads, turns)


def training(bf16: bool, threads: int, turns: int) -> None:
    """Time one update at equal sizes, batch and loss, and the matrix product of which each is mostly made."""
    kind = "bfloat16" if bf16 else "float32"
    contestants = {
        "ours": partial(ours, SMALL, *UPDATE, bf16=bf16),
        f"torch.nn.Transformer{', autocast' * bf16}": partial(textbook, SMALL, *UPDATE, bf16=bf16),
        "product": partial(products, kind, PRODUCTS, 1024),
    }
    if not bf16:
        contestants["ours, the plain form"] = partial(ours_plain, SMALL, *UPDATE)
    seconds = {name: times.median for name, times in contest(contestants, turns, threads=threads).items()}
    peak = PRODUCTS * 2 * 1024**3 / seconds.pop("product")
    operations = weights_and_operations(SMALL, TOKENS)[1] * SENTENCES * TOKENS
    print(
        f"\nTraining step, {SENTENCES} × {TOKENS} tokens a side, {threads} thread{'s' * (threads > 1)}, {kind};", end=""
    )
    print(f" {operations / 1e9:.0f} GFLOP of products\n  {'':34} {'ms':>6} {'tokens/s':>9} {'times ours':>11}")
    for name, time_ in seconds.items():
        print(f"  {name:34} {time_ * 1e3:6.0f} {2 * SENTENCES * TOKENS / time_:9,.0f} {time_ / seconds['ours']:11.2f}")
    share = operations / seconds["ours"] / peak
    print(f"  PyTorch's product of 1,024 × 1,024: {peak / 1e9:.0f} GFLOP/s; ours runs at {share:.0%} of it", flush=True)


if __name__ == "__main__":
    main()
