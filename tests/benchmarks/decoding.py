"""What beam, length penalty and averaging do to the BLEU of a trained run.

    python tests/benchmarks/decoding.py runs/de-en data/results/decoding.json

All is measured on the validation sentences of Multi30k: nothing is chosen on the test set. Ten minutes on one core.
"""

import json
import sys
from pathlib import Path

from annotated.checkpoint import load_checkpoint, load_tensors, load_weights
from annotated.data import load_corpus
from annotated.decoding import bleu, translate
from annotated.vocabulary import load_tokenizer, write_whole

BEAMS = (1, 2, 4, 8, 16)
ALPHAS = (0.0, 0.6, 1.0)


def main(run: Path, results: Path) -> None:
    """Print one row per setting and write all of them, with BLEU's signature, to `results`."""
    model, info = load_checkpoint(run)
    tokenizer = load_tokenizer(run)
    val = load_corpus("multi30k", "val", info["src"], info["tgt"])
    words = sum(len(reference.split()) for reference in val.target)

    def measure(**options: float) -> dict[str, float]:
        translations = translate(model, tokenizer, val.source, info["src"], **options)
        score, _ = bleu(translations, val.target)
        ratio = sum(len(translation.split()) for translation in translations) / words
        return {"val_bleu": round(score, 2), "length_ratio": round(ratio, 3)}

    searches = []
    for beam in BEAMS:
        for alpha in ALPHAS:
            searches.append({"beam": beam, "alpha": alpha, **measure(beam=beam, alpha=alpha)})
            print(searches[-1], flush=True)
    averages = [{"weights": "average", **measure()}]
    print(averages[-1], flush=True)
    for checkpoint in sorted((run / "checkpoints").glob("*.safetensors")):
        load_weights(model, load_tensors(checkpoint)[0])
        averages.append({"weights": f"step {int(checkpoint.stem)}", **measure()})
        print(averages[-1], flush=True)
    content = {"signature": bleu(val.target, val.target)[1], "searches": searches, "averages": averages}
    write_whole(results, json.dumps(content, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
