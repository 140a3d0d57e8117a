"""A better single model of the same pairs: sentences in other words, too, as a model of the other direction puts them.

    python -m experiments.diversification runs/diverse [--teacher RUN] [--seeds 0 1 2] [--epochs 5] [--dropout 0.3 …]

Back-translation (Sennrich et al., 2016) of the training sentences themselves (data diversification, Nguyen et al.,
2020), on Multi30k. The teacher translates them from German into English, greedily and by chance. Models from English to
German learn from the real pairs, and as often from German with the teacher's English. The first of them is the teacher
of models from German to English. What is there already is kept, and a run that was broken off goes on. Any further
options are for `train`. An hour of one core for each model; `experiments.scores` then says what it is worth.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from annotated.config import BOS, EOS
from annotated.decoding import longest_translations, next_log_probs
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import in_bfloat16
from annotated.fast.training import bf16_is_fast
from annotated.masking import padding_mask
from annotated.models.language_model import draw, sampling_probabilities
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import load_corpus, pad
from annotated_workbench.files import write_whole
from annotated_workbench.run_folder import METRICS, STATE
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import Tokenizer

BY_CHANCE = 2  # translations of a sentence that are drawn, beside the greedy one
TEMPERATURE, TOP_K = 0.8, 10
LONGER, SENTENCES = 10, 128  # tokens more than the source at most; sentences at a time
OPTIONS = (
    "--preset small --dropout 0.2 --vocab-size 6000 --batch-tokens 4096 --schedule linear --warmup 1000 --rate 1 "
    "--average 1"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the pairs and train the models, one direction after the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, help="folder for the runs, and for what they learn from")
    parser.add_argument("--teacher", type=Path, default=Path("data/checkpoints/de-en"), help="from German to English")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=5, help="passes over all pairs, the real ones thrice among them")
    given, further = parser.parse_known_args(arguments)
    teacher = given.teacher
    for src, tgt in (("en", "de"), ("de", "en")):
        texts = {language: given.out / f"{src}-{tgt}.{language}" for language in (src, tgt)}
        if not all(path.exists() for path in texts.values()):
            pairs = load_corpus("multi30k", "train", src, tgt)
            made = other_words(teacher, pairs.target, tgt, src)
            real = [line for _ in made for line in pairs.source]
            write_lines(texts[src], real + [line for lines in made for line in lines])
            write_lines(texts[tgt], list(pairs.target) * 2 * len(made))
        runs = [given.out / f"{src}-{tgt}-{seed}" for seed in given.seeds]
        for seed, run in zip(given.seeds, runs, strict=True):
            train(run, src, tgt, texts, given.epochs, ["--seed", str(seed), *further])
        teacher = runs[0]


def other_words(teacher: Path, texts: Sequence[str], src: str, tgt: str) -> list[list[str]]:
    """Translate all texts by a run, greedily and then by chance.

    Raises:
        ValueError: the run translates something else.
    """
    model, tokenizer, info = load_translator([teacher])
    if (info["src"], info["tgt"]) != (src, tgt):
        raise ValueError(f"{teacher} translates {info['src']} into {info['tgt']}: give a run from {src} to {tgt}.")
    if bf16_is_fast(next(model.parameters()).device):
        model = in_bfloat16(model)
    torch.manual_seed(0)
    made = [translate(model, tokenizer, texts, src, beam=0, max_extra=LONGER)]
    print(f"{teacher}: {len(texts):,} sentences from {src} into {tgt}, greedily", flush=True)
    for _ in range(BY_CHANCE):
        made.append(translate_by_chance(model, tokenizer, texts, src))
        print("and once more, by chance", flush=True)
    return made


def translate_by_chance(model: Any, tokenizer: Tokenizer, texts: Sequence[str], language: str) -> list[str]:
    """Draw a translation of each text, in batches of similar length."""
    fast, rows = accelerate(model).frozen(), [[*ids, EOS] for ids in tokenizer.encode_batch(list(texts), language)]
    order, drawn = sorted(range(len(rows)), key=lambda i: len(rows[i])), [""] * len(rows)
    for start in range(0, len(order), SENTENCES):
        batch = order[start : start + SENTENCES]
        for i, ids in zip(batch, draw_translations(fast, pad([rows[i] for i in batch])), strict=True):
            drawn[i] = tokenizer.decode(ids)
    return drawn


@torch.inference_mode()
def draw_translations(model: Any, src: Int[Tensor, "batch source"]) -> list[list[int]]:
    """Draw each token from the likeliest ten by their probabilities at temperature 0.8, until <eos>."""
    model.eval()
    src_mask = padding_mask(src)
    memory, limit = model.encode(src, src_mask), int(longest_translations(model, src_mask, LONGER).max())
    cache, ids = model.new_cache(limit), torch.full((len(src), 1), BOS)
    while ids.size(1) <= limit and not (ids == EOS).any(dim=1).all():
        log_probs, tokens = next_log_probs(model, ids, memory, src_mask, cache).topk(TOP_K)
        ids = torch.cat((ids, tokens.gather(1, draw(sampling_probabilities(log_probs, TEMPERATURE)))), dim=1)
    return [row[1 : row.index(EOS) if EOS in row else None] for row in ids.tolist()]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write texts, one a line."""
    write_whole(path, "".join(" ".join(line.split()) + "\n" for line in lines).encode())


def train(run: Path, src: str, tgt: str, texts: dict[str, Path], epochs: int, further: list[str]) -> None:
    """Train by the command line, from the beginning or from where the run stands; validate on the real pairs."""
    metrics = run / METRICS
    if metrics.exists() and json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])["epoch"] >= epochs:
        return
    options = ["--resume"] if (run / STATE).exists() else [*OPTIONS.split(), *further]
    val = {}
    for language, lines in zip((src, tgt), load_corpus("multi30k", "val", src, tgt), strict=True):
        val[language] = run.parent / f"val.{language}"
        write_lines(val[language], lines)
    files = ["--source", texts[src], "--target", texts[tgt], "--val-source", val[src], "--val-target", val[tgt]]
    command = [sys.executable, "-m", "annotated", "train", "--src", src, "--tgt", tgt, "--epochs", epochs, "--out", run]
    subprocess.run([str(word) for word in [*command, *files, *options]], check=True)


if __name__ == "__main__":
    main()
