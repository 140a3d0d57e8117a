"""The paper's Table 3 in small: one change at a time, trained on Multi30k over several seeds (§6.2).

    python -m experiments.table3 data/results/table3.jsonl [--seeds 3]

The base model is the paper's divided by four in width and by two in depth and heads, pre-norm, trained for ten epochs;
each row changes it in proportion. Every run adds a line to the file, and a run that has its line is not repeated: ten
hours of one core. What they say is written to `table3.json`, of which chapter 12 draws the table.
"""

import json
import math
import statistics
import tempfile
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from io import StringIO
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from annotated.config import TransformerConfig
from annotated.fast.training import bf16_is_fast
from annotated.transformer import Transformer
from annotated_workbench.data import LANGUAGES, Pairs, load_corpus
from annotated_workbench.metrics import bleu, loss_per_token
from annotated_workbench.runs import TrainingOptions, train
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.results import arguments, save

BASE = TransformerConfig(6000, d_model=128, d_ff=512, heads=4, layers=3, dropout=0.1, norm_first=True)
OPTIONS = TrainingOptions(epochs=10, batch_tokens=2048, schedule="linear", warmup=250, rate=0.55, average=1)


class Row(NamedTuple):
    """A row of Table 3: its letter and name, what it changes here, and the paper's perplexity and BLEU."""

    letter: str
    name: str
    changes: dict[str, Any]
    paper_ppl: float
    paper_bleu: float


ROWS = [
    Row("", "base", {}, 4.92, 25.8),
    Row("A", "h = 1 (paper: 1)", {"heads": 1}, 5.29, 24.9),
    Row("A", "h = 16 (32)", {"heads": 16}, 5.01, 25.4),
    Row("B", "d_k = 8 (16)", {"d_k": 8}, 5.16, 25.1),
    Row("C", "N = 1 (2)", {"layers": 1}, 6.11, 23.7),
    Row("C", "N = 4 (8)", {"layers": 4}, 4.88, 25.5),
    Row("C", "d_model = 64 (256)", {"d_model": 64}, 5.75, 24.5),
    Row("C", "d_model = 256 (1024)", {"d_model": 256}, 4.66, 26.0),
    Row("C", "d_ff = 256 (1024)", {"d_ff": 256}, 5.12, 25.4),
    Row("C", "d_ff = 1024 (4096)", {"d_ff": 1024}, 4.75, 26.2),
    Row("D", "dropout 0", {"dropout": 0.0}, 5.77, 24.6),
    Row("D", "dropout 0.2", {"dropout": 0.2}, 4.95, 25.5),
    Row("D", "label smoothing 0", {"smoothing": 0.0}, 4.67, 25.3),
    Row("D", "label smoothing 0.2", {"smoothing": 0.2}, 5.47, 25.7),
    Row("E", "learned positions", {"positions": "learned"}, 4.92, 25.7),
]
SCORES: dict[str, Any] = {"nats": lambda run: math.log(run["ppl"]), "bleu": lambda run: run["bleu"]}


def main() -> None:
    """Do the runs that are missing, then write what all of them say."""
    args = arguments(__doc__, seeds=3).parse_args()
    lines = args.results.read_text(encoding="utf-8").splitlines() if args.results.exists() else []
    done = {(line["row"], line["seed"]): line for line in map(json.loads, lines)}
    missing = [(row.name, seed) for seed in range(args.seeds) for row in ROWS if (row.name, seed) not in done]
    for name, seed in tqdm(missing):
        done[name, seed] = run(name, seed)
        with args.results.open("a", encoding="utf-8") as file:
            print(json.dumps(done[name, seed]), file=file)
    content = {"base": asdict(BASE), "options": asdict(OPTIONS), "rows": summarise([*done.values()])}
    save(args.results.with_suffix(".json"), content)


def run(name: str, seed: int) -> dict[str, Any]:
    """Train and score the model of a row, by its name, from a seed."""
    torch.set_num_threads(1)
    bf16 = bf16_is_fast(torch.device("cpu"))
    changes = dict(next(row.changes for row in ROWS if row.name == name))
    options = replace(OPTIONS, seed=seed, bf16=bf16, smoothing=changes.pop("smoothing", OPTIONS.smoothing))
    pairs, val = (load_corpus("multi30k", split, *LANGUAGES) for split in ("train", "val"))
    tokenizer = SubwordTokenizer.train(pairs, LANGUAGES, BASE.vocab_size)
    torch.manual_seed(seed)
    model = Transformer(replace(BASE, vocab_size=len(tokenizer), **changes))
    few = Pairs(val.source[:100], val.target[:100])  # enough for the scores after each epoch
    with tempfile.TemporaryDirectory() as out, redirect_stdout(StringIO()):
        last = train(model, tokenizer, pairs, few, out, src=LANGUAGES[0], tgt=LANGUAGES[1], options=options)[-1]
    ppl = math.exp(loss_per_token(model.eval(), tokenizer, val, *LANGUAGES))
    score, signature = bleu(translate(model, tokenizer, val.source, LANGUAGES[0], bf16=bf16), val.target)
    line = {"row": name, "seed": seed, "parameters": sum(parameter.numel() for parameter in model.parameters())}
    line |= {"signature": signature, "minutes": round(last["minutes"], 1)}
    return line | {"train_loss": round(last["loss"], 3), "ppl": round(ppl, 3), "bleu": round(score, 2)}


def summarise(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each row its runs, means over the seeds, differences from base, and the standard errors of these.

    The errors come from the variance of runs, pooled over all rows, of which each counts by its runs less one.
    """
    summary = [row._asdict() | {"runs": [line for line in lines if line["row"] == row.name]} for row in ROWS]
    for metric, score in SCORES.items():
        values = [[score(run) for run in entry["runs"]] for entry in summary]
        squares = sum((value - statistics.mean(group)) ** 2 for group in values for value in group)
        variance = squares / max(1, len(lines) - len(ROWS))
        papers = [score({"ppl": row.paper_ppl, "bleu": row.paper_bleu}) for row in ROWS]
        for entry, ours, paper in zip(summary, values, papers, strict=True):
            entry[metric] = statistics.mean(ours)
            entry[f"{metric}_change"] = statistics.mean(ours) - statistics.mean(values[0])
            entry[f"{metric}_error"] = math.sqrt(variance * (1 / len(ours) + 1 / len(values[0])))
            entry[f"{metric}_paper_change"] = round(paper - papers[0], 4)
    return summary


if __name__ == "__main__":
    main()
