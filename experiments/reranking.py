"""Choose again among the translations of several runs, with the help of models of the other direction.

    python -m experiments.reranking data/results/scores.json --forward runs/en-de-0 … --backward runs/de-en-0 …

The candidates for a sentence x are what the forward runs translate, each alone and all together, with three searches.
The one with the largest log p(y | x) + λ log p(x | y) + β |y| wins (Yee et al., 2019; |y| counts tokens): from a good
translation the other direction finds its way back. Ensembles give both probabilities. λ and β are chosen on the
validation sentences of Multi30k; once more with λ = 0, which shows what the candidates alone are worth. Then the test
set is scored once. p is for "no different from the forward ensemble", whose search is taken from the file: run
`experiments.scores` first. The result is added to the file. A quarter of an hour on one core for three runs of
each direction.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from annotated.fast.decoding import in_bfloat16
from annotated.fast.training import bf16_is_fast
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import Pairs, load_corpus
from annotated_workbench.files import write_whole
from annotated_workbench.metrics import bleu, log_probs
from annotated_workbench.translation import translate
from experiments.scores import PAPER, TEST, p_value, score

SEARCHES = [PAPER, {"beam": 8, "alpha": 1.0, "max_extra": 10}, {"beam": 8, "alpha": 1.8, "max_extra": 10}]
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class Candidate(NamedTuple):
    """A translation, its tokens, log p(y | x) and log p(x | y)."""

    text: str
    tokens: int
    forward: float
    backward: float


def main() -> None:
    """Collect candidates, choose the weights, score, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="file of experiments.scores; the result is added")
    parser.add_argument("--forward", type=Path, nargs="+", required=True, help="runs that translate")
    parser.add_argument("--backward", type=Path, nargs="+", required=True, help="runs of the other direction")
    args = parser.parse_args()
    if len(args.forward) < 2:
        parser.error(f"--forward names one run, {args.forward[0]}: give several, whose translations can differ.")
    content = json.loads(args.results.read_text())
    forward, tokenizer, info = load_translator(args.forward)
    backward, other_tokenizer, other_info = load_translator(args.backward)
    src, tgt = info["src"], info["tgt"]
    if (other_info["src"], other_info["tgt"]) != (tgt, src):
        parser.error(f"--backward must translate {tgt} to {src}, not {other_info['src']} to {other_info['tgt']}.")
    if "together" not in content.get(f"{src}-{tgt}", {}):
        parser.error(f"{args.results} has no {src}-{tgt} ensemble: run experiments.scores with several runs first.")
    if bf16_is_fast(next(forward.parameters()).device):
        forward, backward = in_bfloat16(forward), in_bfloat16(backward)
    systems = [forward, *forward.models]

    def candidates(split: str) -> tuple[Pairs, list[list[Candidate]]]:
        """Translate the sentences of a split in every way, and score what is found."""
        pairs = load_corpus("multi30k", split, src, tgt)
        versions = [translate(x, tokenizer, pairs.source, src, **search) for x in systems for search in SEARCHES]
        distinct = [sorted(set(texts)) for texts in zip(*versions, strict=True)]
        found = Pairs(
            [source for source, texts in zip(pairs.source, distinct, strict=True) for _ in texts],
            [text for texts in distinct for text in texts],
        )
        print(f"{split}: {len(found.target) / len(distinct):.1f} candidates a sentence", flush=True)
        there = log_probs(forward, tokenizer, found, src, tgt)
        back = log_probs(backward, other_tokenizer, Pairs(found.target, found.source), tgt, src)
        tokens = map(len, tokenizer.encode_batch(found.target, tgt))
        scored = map(Candidate, found.target, tokens, there, back)
        return pairs, [[next(scored) for _ in texts] for texts in distinct]

    val, val_candidates = candidates("val")
    tried = [
        {"lambda": x, "beta": y, "bleu": bleu(choose(val_candidates, x, y), val.target)[0]}
        for x in LAMBDAS
        for y in BETAS
    ]
    test, test_candidates = candidates(TEST)
    setting = content[f"{src}-{tgt}"]["together"]["setting"]
    rival = translate(forward, tokenizer, test.source, src, **setting)
    rows = {}
    for name, allowed in (("without_backward", [x for x in tried if not x["lambda"]]), ("with_backward", tried)):
        best = max(allowed, key=lambda x: x["bleu"])
        chosen = choose(test_candidates, best["lambda"], best["beta"])
        p = p_value(rival, chosen, test.target)
        rows[name] = {"setting": best, "test": score(chosen, test.target, tgt) | {"p_value": p}}
        print(name, rows[name], flush=True)
    names = {"forward": [run.name for run in args.forward], "backward": [run.name for run in args.backward]}
    content[f"{src}-{tgt}"]["reranked"] = names | {"validation": tried} | rows
    write_whole(args.results, json.dumps(content, indent=1).encode() + b"\n")


def choose(candidates: Sequence[Sequence[Candidate]], weight: float, bonus: float) -> list[str]:
    """Take each sentence's best candidate: `weight` is λ, `bonus` is β."""

    def total(candidate: Candidate) -> float:
        return candidate.forward + weight * candidate.backward + bonus * candidate.tokens

    return [max(group, key=total).text for group in candidates]


if __name__ == "__main__":
    main()
