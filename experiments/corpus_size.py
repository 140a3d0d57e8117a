"""What 400, 3,000, 12,000 or 29,000 pairs need: the rule of `defaults_for` against a search by hand.

    python -m experiments.corpus_size data/results/corpus_size.jsonl [--pairs 400 3000] [--src de en]
        [--set '{"dropout": 0.3}']

The corpora are the first pairs of Multi30k's training split. A run ends with its epochs, or with the epoch in which it
has seen `TOKENS` tokens: ten minutes of two cores, counted in tokens, because other work on the machine slows a clock.
Without --set the rule is run, else the rule with these changes, a try by hand. Every run adds a line to the file, and a
run that has its line is not repeated. At the end the table is printed, from what is there.
"""

import argparse
import json
import math
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from annotated.fast.training import bf16_is_fast
from annotated.transformer import Transformer
from annotated_workbench.architectures import PRESETS
from annotated_workbench.data import Pairs, encode_pairs, load_corpus, make_batches
from annotated_workbench.metrics import bleu
from annotated_workbench.runs import train
from annotated_workbench.training_options import TrainingOptions, defaults_for, length_of
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.table3 import read

SIZES, DIRECTIONS = (400, 3000, 12_000, 29_000), (("de", "en"), ("en", "de"))
TOKENS = 11_000_000  # source and target, without padding
SEEN, SCORED = 10, 300  # validation pairs scored after each epoch, and at the end
FIXED = {"norm_first": False, "schedule": "noam", "average": 5, "seed": 0}


def main() -> None:
    """Do the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="a line of JSON for each run")
    parser.add_argument("--pairs", type=int, nargs="*", default=SIZES, help="sizes of the corpora")
    parser.add_argument("--src", nargs="*", default=("de", "en"), help="languages to translate from")
    parser.add_argument("--set", type=json.loads, nargs="*", default=[{}], help="changes to the rule, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for size in args.pairs:
        for src, tgt in DIRECTIONS:
            for changes in args.set if src in args.src else ():
                options = FIXED | defaults_for(size) | changes
                if not any(same(line, size, src, options) for line in read(args.results)):
                    line = run(size, src, tgt, options)
                    with args.results.open("a") as file:
                        print(json.dumps(line), file=file)
                    print({name: value for name, value in line.items() if name != "curve"}, flush=True)
    print(*table(read(args.results)), sep="\n")


def same(line: dict[str, Any], size: int, src: str, options: dict[str, Any]) -> bool:
    """Tell whether a line is that of this run."""
    return (line["pairs"], line["src"], line["options"]) == (size, src, options)


def run(size: int, src: str, tgt: str, options: dict[str, Any]) -> dict[str, Any]:
    """Train one model until its epochs or the tokens are used up, and score it."""
    began, bf16 = time.time(), bf16_is_fast(torch.device("cpu"))
    corpus, val, test = (load_corpus("multi30k", split, src, tgt) for split in ("train", "val", "test_2016_flickr"))
    pairs = Pairs(corpus.source[:size], corpus.target[:size])
    tokenizer = SubwordTokenizer.train(pairs, (src, tgt), options["vocab_size"])
    changes = {"dropout": options["dropout"], "norm_first": options["norm_first"]}
    config = PRESETS[options["preset"]](len(tokenizer), **changes)
    sources, targets, _ = encode_pairs(pairs, tokenizer, src, tgt, config.max_length, drop_long=True)
    epoch_tokens = sum(map(len, sources + targets))
    updates = len(make_batches(sources, targets, options["batch_tokens"]))
    names = [field.name for field in fields(TrainingOptions) if field.name in options]
    given = TrainingOptions(**{name: options[name] for name in names}, bf16=bf16)
    length = length_of(given, updates)
    length = length._replace(epochs=min(length.epochs, math.ceil(TOKENS / epoch_tokens)))
    given = replace(given, **length._asdict())
    torch.manual_seed(options["seed"])
    model = Transformer(config)
    with tempfile.TemporaryDirectory() as out, redirect_stdout(StringIO()):
        few = Pairs(val.source[:SEEN], val.target[:SEEN])
        metrics = train(model, tokenizer, pairs, few, out, src=src, tgt=tgt, options=given)
    line = {"pairs": size, "src": src, "options": options, "vocab": len(tokenizer)}
    line |= length._asdict()
    line |= {"updates": metrics[-1]["step"], "tokens": epoch_tokens * length.epochs, "loss": metrics[-1]["loss"]}
    for name, (source, target) in (("val", (val.source[:SCORED], val.target[:SCORED])), ("test", test)):
        for search, beam in (("greedy", 0), ("beam", 4)):
            found = translate(model, tokenizer, source, src, beam=beam, bf16=bf16)
            line[f"{name}_{search}"] = round(bleu(found, target)[0], 2)
    line |= {"seconds": round(time.time() - began), "curve": [round(entry["val_bleu"], 1) for entry in metrics]}
    return line


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Lay the figures out in lines: of each search by hand the run that is best on validation (beam 4)."""
    text = [f"{'pairs':>7} {'':8}{'rule':>7}{'by hand':>9}{'difference':>12}  test BLEU with beam 4; the best by hand"]
    for size in SIZES:
        for src, tgt in DIRECTIONS:
            runs = [line for line in lines if (line["pairs"], line["src"]) == (size, src)]
            rule = [line for line in runs if same(line, size, src, FIXED | defaults_for(size))]
            if not runs:
                continue
            best = max(runs, key=lambda line: line["val_beam"])
            cells = f"{rule[0]['test_beam']:7.2f}" if rule else f"{'–':>7}"
            cells += f"{best['test_beam']:9.2f}"
            cells += f"{rule[0]['test_beam'] - best['test_beam']:12.2f}" if rule else f"{'–':>12}"
            changes = {k: v for k, v in best["options"].items() if (FIXED | defaults_for(size)).get(k) != v}
            text.append(f"{size:7} {src} → {tgt} {cells}  {changes or 'the rule itself'}, {len(runs)} runs")
    return text


if __name__ == "__main__":
    main()
