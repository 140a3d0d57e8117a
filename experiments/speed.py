"""How fast training and decoding are, beside other people's code, in one run: `make bench`.

    python -m experiments.speed [--quick] [--parts training decoding]

The tables are in docs/RESULTS.md. Times are medians of turns; quote the ratios. Peers that are not installed are left
out: Hugging Face and CTranslate2 come with the newer torch, which `make bench` takes.
"""

import argparse
import importlib.metadata
import time
from functools import partial

import torch

from annotated.config import TransformerConfig
from annotated.fast.training import bf16_is_fast
from experiments.contest import contest
from experiments.contestants import engine, generate, ours, ours_plain, products, search, textbook
from experiments.paper_run import weights_and_operations
from experiments.peers import LibraryTransformer, Marian, installed
from experiments.results import processor

SMALL = TransformerConfig.small(6000)
UPDATE = SENTENCES, TOKENS = 240, 17
TRANSLATED = 1000, 16, 128  # sentences, their tokens, sentences in a batch
PARTS = ("training", "decoding")
PRODUCTS = 50  # matrix products in one timing of the peak: a single one is over before all threads are awake


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one turn of everything: are all paths alive?")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to time")
    given = parser.parse_args()
    names = [name for name in ("transformers", "ctranslate2") if installed(name)]
    versions = "".join(f"{name} {importlib.metadata.version(name)}, " for name in names)
    print(f"{processor()}, torch {torch.__version__}, {versions}{time.strftime('%Y-%m-%d')}", flush=True)
    began, precisions = time.perf_counter(), (False, True) if bf16_is_fast(torch.device("cpu")) else (False,)
    for threads in (1, 2) if "training" in given.parts else ():
        for bf16 in precisions:
            training(bf16, threads, 1 if given.quick else 7)
    for beam in (1, 4) if "decoding" in given.parts else ():
        decoding(beam, precisions, 1 if given.quick else 3)
    print(f"\n{(time.perf_counter() - began) / 60:.1f} minutes in all")


def training(bf16: bool, threads: int, turns: int) -> None:
    """Time one update at equal sizes, batch and loss, and the matrix product of which each is mostly made."""
    kind = "bfloat16" if bf16 else "float32"
    contestants = {
        "ours": partial(ours, SMALL, *UPDATE, bf16=bf16),
        f"torch.nn.Transformer{', autocast' * bf16}": partial(textbook, LibraryTransformer, SMALL, *UPDATE, bf16=bf16),
        "product": partial(products, kind, PRODUCTS, 1024),
    }
    if installed("transformers"):
        contestants[f"Hugging Face Marian{', autocast' * bf16}"] = partial(textbook, Marian, SMALL, *UPDATE, bf16=bf16)
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


def decoding(beam: int, precisions: tuple[bool, ...], turns: int) -> None:
    """Time the translation of sentences that all take as many steps as they have tokens: the weights are random."""
    contestants = {
        f"ours, {'bfloat16' if bf16 else 'float32'}": partial(search, SMALL, TRANSLATED, beam=beam, bf16=bf16)
        for bf16 in precisions
    }
    for precision in ("float32", "int8") if installed("ctranslate2") else ():
        contestants[f"CTranslate2, {precision}"] = partial(engine, SMALL, TRANSLATED, beam=beam, precision=precision)
    if installed("transformers"):
        contestants["Hugging Face generate"] = partial(generate, SMALL, TRANSLATED, beam=beam, bf16=False)
    seconds = {name: times.median for name, times in contest(contestants, turns).items()}
    what = f"beam {beam}" if beam > 1 else "greedy"
    print(f"\nTranslating {TRANSLATED[0]:,} sentences of {TRANSLATED[1]} tokens, {what}, one thread", end="")
    print(f"\n  {'':34} {'s':>6} {'times ours':>11}")
    for name, time_ in seconds.items():
        print(f"  {name:34} {time_:6.2f} {time_ / seconds['ours, float32']:11.2f}", flush=True)


if __name__ == "__main__":
    main()
