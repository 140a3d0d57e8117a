"""Quality for a minute: validation BLEU against core-minutes, ours beside other people's recipes, all in our loop.

    python -m experiments.quality [data/results/quality.json] [--minutes 20] [--recipes ours joeynmt annotated]
    python -m experiments.quality data/results/quality.json --draw docs/drawings/quality.png

German to English, Multi30k, one thread, float32, one seed. Minutes are CPU time of the updates; validation (greedy
search) is not counted, for a recipe may validate as often as it likes.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from annotated.config import TransformerConfig
from annotated.fast.memory import keep_memory
from annotated.fast.training import make_optimizer, update
from annotated.training import noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_course.bench import processor
from annotated_workbench.data import Encoded, encode_pairs, load_corpus, make_batches
from annotated_workbench.files import write_whole
from annotated_workbench.metrics import bleu
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SubwordTokenizer

SEED, VOCAB = 0, 6000
Rate = Callable[[int, float], float]  # of an update, from 1, and the share of the minutes that is used up


@dataclass(frozen=True)
class Recipe:
    """How somebody trains.

    Args:
        source: where the settings come from.
        sizes: of the model, as in `TransformerConfig`.
        batch_tokens: ids a side in a batch.
        rate: the learning rate.
        accumulate: batches of an update.
    """

    source: str
    sizes: dict[str, Any]
    batch_tokens: int
    rate: Rate
    accumulate: int = 1
    vocab_size: int = VOCAB
    smoothing: float = 0.1


def falling(peak: float, warmup: int) -> Rate:
    """Rise to `peak` in `warmup` updates, then fall in a straight line to 0 at the last minute."""
    return lambda step, share: peak * min(step / warmup, max(0.0, 1 - share))


RECIPES = {
    "ours": Recipe(
        "docs/RESULTS.md, In a hurry",
        dict(d_model=256, d_ff=512, heads=4, layers=2, dropout=0.1, norm_first=True),
        2048,
        falling(0.55 * 256**-0.5 * 250**-0.5, 250),
    ),
    "joeynmt": Recipe(
        "joeynmt, configs/transformer_iwslt14_deen_sp.yaml; its rate falls once validation stands still",
        dict(d_model=256, d_ff=1024, heads=4, layers=6, dropout=0.3, norm_first=True),
        4096,
        lambda step, share: 3e-4,
    ),
    "annotated": Recipe(
        "The Annotated Transformer (2022), its Multi30k example: base, pre-norm, 32 sentences, ten batches an update",
        dict(d_model=512, d_ff=2048, heads=8, layers=6, dropout=0.1, norm_first=True),
        512,
        lambda step, share: noam_rate(step, 512, 3000),
        accumulate=10,
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train by each recipe, write its curve as it grows, or draw what was written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("data/results/quality.json"))
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, default=2, help="minutes between two validations")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--draw", type=Path, help="draw the file's curves instead of training")
    given = parser.parse_args(arguments)
    found = json.loads(given.file.read_text(encoding="utf-8")) if given.file.exists() else {}
    if given.draw:
        draw(found, given.draw)
        return
    torch.set_num_threads(1)
    keep_memory()
    for name in given.recipes:
        machine = {"machine": processor(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        found[name] = {"source": RECIPES[name].source, **machine, "curve": []}
        for minutes, step, score in train(RECIPES[name], given.minutes, given.every):
            found[name]["curve"].append({"minutes": round(minutes, 2), "step": step, "bleu": round(score, 2)})
            print(f"{name:12} {minutes:6.1f} minutes  update {step:6}  BLEU {score:5.2f}", flush=True)
            write_whole(given.file, (json.dumps(found, indent=1) + "\n").encode())


def train(recipe: Recipe, minutes: float, every: float) -> Any:
    """Train for some minutes of one core; now and then give minutes, updates and validation BLEU."""
    torch.manual_seed(SEED)
    pairs, val = (load_corpus("multi30k", split, "de", "en") for split in ("train", "val"))
    tokenizer = SubwordTokenizer.train(pairs, ("de", "en"), recipe.vocab_size)
    encoded = encode_pairs(pairs, tokenizer, "de", "en", 512, drop_long=True)
    model = Transformer(TransformerConfig(len(tokenizer), **recipe.sizes))
    optimizer = make_optimizer(model)
    used, due = 0.0, every
    for step, group in enumerate(groups(recipe, encoded), start=1):
        began = time.process_time()
        set_rate(optimizer, recipe.rate(step, used / minutes))
        model.train()
        update(model, group, optimizer, recipe.smoothing)
        used += (time.process_time() - began) / 60
        if used >= min(due, minutes):
            due += every
            yield used, step, bleu(translate(model, tokenizer, val.source, "de", beam=0), val.target)[0]
        if used >= minutes:
            return


def groups(recipe: Recipe, encoded: Encoded) -> Any:
    """Give batches for one update after the other, epoch by epoch."""
    epoch = 0
    while True:
        batches = make_batches(encoded.sources, encoded.targets, recipe.batch_tokens, seed=1000 * SEED + epoch)
        for i in range(0, len(batches), recipe.accumulate):
            yield [batches[j] for j in range(i, min(i + recipe.accumulate, len(batches)))]
        epoch += 1


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the curves."""
    from matplotlib import pyplot as plt

    names = {"ours": "ours, in a hurry", "joeynmt": "joeynmt's", "annotated": "The Annotated Transformer's"}
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for colour, (name, words) in zip(("C0", "C1", "C2"), names.items(), strict=True):
        curve = found[name]["curve"]
        minutes, scores = ([point[key] for point in curve] for key in ("minutes", "bleu"))
        ax.plot(minutes, scores, "o-", color=colour)
        ax.annotate(words, (minutes[-1], scores[-1]), (6, 2), textcoords="offset points", color=colour)
    ax.set(xlabel="minutes of one core", ylabel="validation BLEU (greedy)", xlim=(0, 1.5 * minutes[-1]), ylim=(0, None))
    ax.set_title(f"In {minutes[-1]:.0f} minutes of one core the larger models have hardly begun")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
