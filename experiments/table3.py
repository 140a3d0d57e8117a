"""The paper's Table 3 in small: one change at a time, trained on Multi30k over several seeds (§6.2).

    python -m experiments.table3 data/results/table3.jsonl [--seeds 3] [--processes 2]

The base model is the paper's divided by four in width and by two in depth and heads; each row changes it in proportion.
Ten epochs, by the end of which the rate has fallen to 0; LayerNorm stands before the sub-layers, which learns faster in
so short a run. Every run adds a line to the file, and a run that has its line is not repeated: stop and start again as
you like. About five hours for everything on two cores, one process each. What the runs say is written beside them
(`table3.json`), where notebook 12 reads it and draws the table.
"""

import json
import math
import multiprocessing
import statistics
import tempfile
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch

from annotated.config import TransformerConfig
from annotated.fast.training import bf16_is_fast
from annotated.transformer import Transformer
from annotated_workbench.data import Pairs, load_corpus
from annotated_workbench.metrics import bleu, loss_per_token
from annotated_workbench.runs import TrainingOptions, train
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.results import arguments, save

SRC, TGT, VOCAB = "de", "en", 6000
BASE = TransformerConfig(VOCAB, d_model=128, d_ff=512, heads=4, layers=3, dropout=0.1, norm_first=True)
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
# Perplexities are compared by their logarithms, the loss in nats per token.
SCORES: dict[str, Any] = {"nats": lambda run: math.log(run["ppl"]), "bleu": lambda run: run["bleu"]}


def main() -> None:
    """Do the runs that are missing, then write what all of them say."""
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--processes", type=int, default=2, help="runs side by side, one thread each")
    args = parser.parse_args()
    done = read(args.results)
    wanted = [(row.name, seed) for seed in range(args.seeds) for row in ROWS]
    missing = [run for run in wanted if run not in {(line["row"], line["seed"]) for line in done}]
    print(f"{len(done)} runs are done, {len(missing)} are missing.", flush=True)
    if missing:
        with multiprocessing.get_context("spawn").Pool(args.processes) as pool, args.results.open("a") as file:
            for line in pool.imap_unordered(run, missing):
                print(json.dumps(line), file=file, flush=True)
                print(line, flush=True)
    setup = {"base": asdict(BASE), "options": asdict(OPTIONS)}
    save(args.results.with_suffix(".json"), setup | {"rows": summarise(read(args.results))})


def read(results: Path) -> list[dict[str, Any]]:
    """Read the lines of the runs done so far."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def run(task: tuple[str, int]) -> dict[str, Any]:
    """Train and score the model of a row, by its name, from a seed."""
    name, seed = task
    torch.set_num_threads(1)
    bf16 = bf16_is_fast(torch.device("cpu"))
    changes = dict(next(row.changes for row in ROWS if row.name == name))
    options = replace(OPTIONS, seed=seed, bf16=bf16, smoothing=changes.pop("smoothing", OPTIONS.smoothing))
    pairs, val = (load_corpus("multi30k", split, SRC, TGT) for split in ("train", "val"))
    tokenizer = SubwordTokenizer.train(pairs, (SRC, TGT), VOCAB)
    torch.manual_seed(seed)
    model = Transformer(replace(BASE, vocab_size=len(tokenizer), **changes))
    with tempfile.TemporaryDirectory() as out, redirect_stdout(StringIO()):
        # The loop scores after each epoch; a hundred sentences are enough for that.
        few = Pairs(val.source[:100], val.target[:100])
        metrics = train(model, tokenizer, pairs, few, out, src=SRC, tgt=TGT, options=options)
    nats = loss_per_token(model.eval(), tokenizer, val, SRC, TGT)
    score, signature = bleu(translate(model, tokenizer, val.source, SRC, bf16=bf16), val.target)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    line = {"row": name, "seed": seed, "parameters": parameters, "train_loss": round(metrics[-1]["loss"], 3)}
    line |= {"ppl": round(math.exp(nats), 3), "bleu": round(score, 2), "signature": signature}
    return line | {"minutes": round(metrics[-1]["minutes"], 1)}


def summarise(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each row its runs, means over the seeds, differences from base, and what chance does to such a difference.

    The runs of a row differ by chance alone. Their variance, pooled over all rows (each counts by its runs less one),
    gives the standard error of a difference of two means.
    """
    runs = {row.name: [line for line in lines if line["row"] == row.name] for row in ROWS}
    if not runs["base"]:
        return []
    summary = [row._asdict() | {"runs": runs[row.name]} for row in ROWS if runs[row.name]]
    for metric, score in SCORES.items():
        values = {name: [score(line) for line in group] for name, group in runs.items() if group}
        freedom = sum(len(group) - 1 for group in values.values())
        squares = sum((value - statistics.mean(group)) ** 2 for group in values.values() for value in group)
        variance = squares / freedom if freedom else math.nan
        base = values["base"]
        for entry in summary:
            ours = values[entry["name"]]
            entry[metric] = statistics.mean(ours)
            entry[f"{metric}_change"] = statistics.mean(ours) - statistics.mean(base)
            entry[f"{metric}_error"] = math.sqrt(variance * (1 / len(ours) + 1 / len(base)))
            papers, papers_base = (score({"ppl": x["paper_ppl"], "bleu": x["paper_bleu"]}) for x in (entry, summary[0]))
            entry[f"{metric}_paper_change"] = round(papers - papers_base, 4)
    return summary


if __name__ == "__main__":
    main()
