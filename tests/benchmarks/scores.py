"""What trained runs score, over several seeds: beam and length penalty chosen on validation, the test set scored once.

    python -m tests.benchmarks.scores data/results/scores.json runs/de-en-0 runs/de-en-1 runs/de-en-2

The runs differ in their seed alone. One setting is chosen for all: the highest mean BLEU on the validation sentences of
Multi30k. The test set is then scored with it and, for comparison, with the paper's. p is from sacrebleu's approximate
randomisation between the two, two-sided. German targets are also scored as the literature does: lower-cased, in the
tokens of Moses. Results are added to the file under the languages' names. Ten minutes on one core for three runs.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from sacremoses import MosesTokenizer

from annotated.checkpoint import load_checkpoint
from annotated.data import load_corpus
from annotated.decoding import bleu, chrf, translate
from annotated.training import bf16_is_fast
from annotated.vocabulary import load_tokenizer, write_whole

PAPER = {"beam": 4, "alpha": 0.6, "max_extra": 50}
# A larger exponent favours loops that never end: with little room they do no harm.
CANDIDATES = [PAPER] + [
    {"beam": beam, "alpha": alpha, "max_extra": 10} for beam in (4, 8) for alpha in (0.6, 1.0, 1.4, 1.8, 2.2)
]
TEST = "test_2016_flickr"


def main() -> None:
    """Choose, score, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="file to add the results to")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs that differ in their seed alone")
    args = parser.parse_args()
    translators, languages = [], set()
    for run in args.runs:
        model, info = load_checkpoint(run)
        languages.add((info["src"], info["tgt"]))
        search = partial(translate, model, load_tokenizer(run), language=info["src"])
        translators.append(partial(search, bf16=bf16_is_fast(next(model.parameters()).device)))
    if len(languages) > 1:
        raise SystemExit(f"the runs translate between different languages: {languages}. Score one pair at a time.")
    ((src, tgt),) = languages
    val, test = (load_corpus("multi30k", split, src, tgt) for split in ("val", TEST))

    tried = []
    for setting in CANDIDATES:
        scores = [bleu(run(val.source, **setting), val.target)[0] for run in translators]
        tried.append(setting | {"bleu": [round(score, 2) for score in scores], "mean": statistics.mean(scores)})
        print(tried[-1], flush=True)
    best = CANDIDATES[max(range(len(tried)), key=lambda i: tried[i]["mean"])]

    rows = []
    for path, run in zip(args.runs, translators, strict=True):
        papers, chosen = (run(test.source, **setting) for setting in (PAPER, best))
        compared = PairedTest(
            [("paper", papers), ("chosen", chosen)], {"BLEU": BLEU()}, [test.target], test_type="ar", n_samples=10_000
        )()[1]["BLEU"]
        rows.append(
            {
                "run": path.name,
                "bleu": bleu(chosen, test.target)[0],
                "chrf": chrf(chosen, test.target)[0],
                "bleu_with_papers_setting": bleu(papers, test.target)[0],
                "p_value": float(compared[1].p_value),
            }
        )
        if tgt == "de":
            rows[-1]["bleu_lower_cased_tokens"] = lower_cased_token_bleu(chosen, test.target)
        print(rows[-1], flush=True)
    summary = {
        name: {
            "mean": round(statistics.mean(values), 2),
            "sd": round(statistics.stdev(values), 2) if rows[1:] else None,
        }
        for name in rows[0]
        if name.startswith(("bleu", "chrf"))
        for values in [[row[name] for row in rows]]
    }
    print(summary)
    content = json.loads(args.results.read_text()) if args.results.exists() else {}
    content[f"{src}-{tgt}"] = {
        "split": TEST,
        "signature": bleu(test.target, test.target)[1],
        "chrf_signature": chrf(test.target, test.target)[1],
        "setting": best,
        "validation": tried,
        "runs": rows,
        "summary": summary,
    }
    write_whole(args.results, json.dumps(content, indent=1).encode() + b"\n")


def lower_cased_token_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Score as the literature on Multi30k does: lower-cased, split by Moses's rules for German."""
    split = MosesTokenizer("de").tokenize
    sides = [[split(line.lower(), return_str=True, escape=False) for line in side] for side in (hypotheses, references)]
    return BLEU(tokenize="none", force=True).corpus_score(sides[0], [sides[1]]).score


if __name__ == "__main__":
    main()
