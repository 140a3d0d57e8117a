"""What beam, length penalty and averaging do to a trained run, with what chance can do.

    python -m experiments.decoding runs/de-en data/results/decoding.json

All is compared on the validation sentences of Multi30k. The test set chooses nothing; it is scored once, with
the defaults. Intervals are from sacrebleu's bootstrap, p-values from its approximate randomisation, which is two-sided.
Ten minutes on one core.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from annotated_workbench.checkpoint import load_checkpoint, load_tensors, load_weights
from annotated_workbench.data import Pairs, load_corpus
from annotated_workbench.metrics import bleu, chrf, loss_per_token
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import load_tokenizer
from experiments.results import save

BEAMS = (1, 2, 4, 8, 16)
ALPHAS = (0.0, 0.6, 1.0)
TEST = "test_2016_flickr"


def main(run: Path, results: Path) -> None:
    """Print one row per setting and write all of them, with the metrics' signatures, to `results`."""
    model, info = load_checkpoint(run)
    tokenizer = load_tokenizer(run)
    val, test = (load_corpus("multi30k", split, info["src"], info["tgt"]) for split in ("val", TEST))

    searches, translations = [], []
    for beam in BEAMS:
        for alpha in ALPHAS:
            translations.append(translate(model, tokenizer, val.source, info["src"], beam=beam, alpha=alpha))
            searches.append({"beam": beam, "alpha": alpha, "length_ratio": length_ratio(translations[-1], val)})
    compare(searches, translations, val)

    hypotheses = translate(model, tokenizer, test.source, info["src"])
    chrf_score, chrf_signature = chrf(hypotheses, test.target)
    scored = {"split": TEST, "beam": 4, "alpha": 0.6, "chrf": round(chrf_score, 2), "chrf_signature": chrf_signature}
    compare([scored], [hypotheses], test)

    averages, translations = [], []
    for path in (run / "model.safetensors", *sorted((run / "checkpoints").glob("*.safetensors"))):
        load_weights(model, load_tensors(path)[0])
        translations.append(translate(model, tokenizer, val.source, info["src"]))
        weights = "average" if path.parent == run else f"step {int(path.stem)}"
        loss = round(loss_per_token(model, tokenizer, val, info["src"], info["tgt"]), 4)
        averages.append({"weights": weights, "val_loss": loss, "length_ratio": length_ratio(translations[-1], val)})
    compare(averages, translations, val)

    signature = bleu(val.target, val.target)[1]
    save(results, {"signature": signature, "searches": searches, "averages": averages, "test": scored})


def compare(rows: list[dict], translations: list[list[str]], pairs: Pairs) -> None:
    """Give each row its BLEU, half its 95 % interval, and p for "no different from the first row"; print them."""
    bootstrap = paired_test(translations, pairs.target, "bs", 1000)
    randomisation = paired_test(translations, pairs.target, "ar", 10_000)
    for row, interval, test, lines in zip(rows, bootstrap, randomisation, translations, strict=True):
        p_value = None if lines == translations[0] else round(float(test.p_value), 4)
        row |= {"bleu": round(interval.score, 2), "ci": round(float(interval.ci), 2), "p_value": p_value}
        print(row, flush=True)


def paired_test(systems: Sequence[Sequence[str]], references: Sequence[str], kind: str, samples: int) -> list[Any]:
    """Compare systems with the first: kind "bs" is the bootstrap, for intervals, "ar" randomisation, for p-values."""
    named = [(str(number), list(lines)) for number, lines in enumerate(systems)]
    return PairedTest(named, {"BLEU": BLEU()}, [list(references)], test_type=kind, n_samples=samples)()[1]["BLEU"]


def length_ratio(translations: list[str], pairs: Pairs) -> float:
    """Words written for each word of the references."""
    words = [sum(len(line.split()) for line in lines) for lines in (translations, pairs.target)]
    return round(words[0] / words[1], 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
