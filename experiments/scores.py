"""What trained runs score, over several seeds: beam and length penalty chosen on validation, the test set scored once.

    python -m experiments.scores data/results/scores.json runs/de-en-0 runs/de-en-1 runs/de-en-2

The runs differ in their seed alone. One setting is chosen for them as single models, the one with the highest mean BLEU
on the validation sentences of Multi30k, and one for all of them together, as an ensemble. The test set is then
translated with it and, for comparison, with the paper's setting. p is from sacrebleu's approximate randomisation,
two-sided: a run against itself with the paper's setting, the ensemble against the best of its runs. German targets are
also scored as the literature does: lower-cased, in the tokens of Moses. Results are added to the file under the
languages' names. A quarter of an hour on one core for three runs.
"""

import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from sacremoses import MosesTokenizer

from annotated.fast.training import bf16_is_fast
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import load_corpus
from annotated_workbench.metrics import bleu, chrf
from annotated_workbench.translation import translate
from experiments.results import arguments, save

PAPER = {"beam": 4, "alpha": 0.6, "max_extra": 50}
# A larger exponent favours loops that never end: with little room they do no harm.
CANDIDATES = [PAPER] + [
    {"beam": beam, "alpha": alpha, "max_extra": 10} for beam in (4, 8) for alpha in (0.6, 1.0, 1.4, 1.8, 2.2)
]
TEST = "test_2016_flickr"


def main() -> None:
    """Choose, score, print, and write down."""
    parser = arguments(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs that differ in their seed alone")
    args = parser.parse_args()
    singles, together = [(run,) for run in args.runs], [tuple(args.runs)] * (len(args.runs) > 1)
    searches = {}
    for group in singles + together:
        model, tokenizer, info = load_translator(group)
        bf16 = bf16_is_fast(next(model.parameters()).device)
        searches[group] = partial(translate, model, tokenizer, language=info["src"], bf16=bf16)
    src, tgt = info["src"], info["tgt"]
    val, test = (load_corpus("multi30k", split, src, tgt) for split in ("val", TEST))

    found, translations = {}, {}
    for name, groups in (("alone", singles), ("together", together)):
        if not groups:
            continue
        tried = []
        for setting in CANDIDATES:
            scores = [bleu(searches[group](val.source, **setting), val.target)[0] for group in groups]
            tried.append(setting | {"bleu": [round(score, 2) for score in scores], "mean": statistics.mean(scores)})
            print(name, tried[-1], flush=True)
        best = CANDIDATES[max(range(len(tried)), key=lambda i: tried[i]["mean"])]
        rows = []
        for group in groups:
            translations[group] = searches[group](test.source, **best)
            with_papers = searches[group](test.source, **PAPER)
            rivals = [with_papers] if groups is singles else [translations[run] for run in singles]
            rival = max(rivals, key=lambda lines: bleu(lines, test.target)[0])
            row = {"runs": [run.name for run in group]} | score(translations[group], test.target, tgt)
            row["bleu_with_papers_setting"] = bleu(with_papers, test.target)[0]
            _, result = paired_test([rival, translations[group]], test.target, "ar", 10_000)
            rows.append(row | {"p_value": float(result.p_value)})
            print(rows[-1], flush=True)
        found[name] = {"setting": best, "validation": tried, "test": rows, "summary": summarise(rows)}
        print(json.dumps(found[name]["summary"], indent=1), flush=True)
    content = json.loads(args.results.read_text()) if args.results.exists() else {}
    content[f"{src}-{tgt}"] = {
        "split": TEST,
        "signature": bleu(test.target, test.target)[1],
        "chrf_signature": chrf(test.target, test.target)[1],
    } | found
    save(args.results, content)


def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """Score translations in each way that is usual for the language."""
    scores = {"bleu": bleu(hypotheses, references)[0], "chrf": chrf(hypotheses, references)[0]}
    if language == "de":
        scores["bleu_lower_cased_tokens"] = lower_cased_token_bleu(hypotheses, references)
    return scores


def lower_cased_token_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Score as the literature on Multi30k does: lower-cased, split by Moses's rules for German."""
    split = MosesTokenizer("de").tokenize
    sides = [[split(line.lower(), return_str=True, escape=False) for line in side] for side in (hypotheses, references)]
    return BLEU(tokenize="none", force=True).corpus_score(sides[0], [sides[1]]).score


def paired_test(systems: Sequence[Sequence[str]], references: Sequence[str], kind: str, samples: int) -> list[Any]:
    """Compare systems with the first: kind "bs" is the bootstrap, for intervals, "ar" randomisation, for p-values."""
    named = [(str(number), list(lines)) for number, lines in enumerate(systems)]
    return PairedTest(named, {"BLEU": BLEU()}, [list(references)], test_type=kind, n_samples=samples)()[1]["BLEU"]


def summarise(rows: Sequence[dict]) -> dict[str, dict[str, float | None]]:
    """Give the mean of each score and, of several rows, the standard deviation."""
    summary = {}
    for name in rows[0]:
        if name.startswith(("bleu", "chrf")):
            values = [row[name] for row in rows]
            deviation = round(statistics.stdev(values), 2) if len(values) > 1 else None
            summary[name] = {"mean": round(statistics.mean(values), 2), "sd": deviation}
    return summary


if __name__ == "__main__":
    main()
