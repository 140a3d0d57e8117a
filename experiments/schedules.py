"""What the paper's schedule is worth: the runs of section 4 of 07_training, which draws them.

    python -m experiments.schedules data/results/schedules.json [--seeds 10]

A Transformer of three layers learns the grammar's sentences for 200 updates, once with each schedule. Kept
are the means of each ten losses. A quarter of an hour.
"""

import itertools
import statistics
from collections.abc import Callable

import torch

from annotated.config import TransformerConfig
from annotated.fast.training import train_step
from annotated.training import make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_workbench.data import Encoded, encode_pairs, load_corpus, make_batches
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.results import about, arguments, save

UPDATES, WIDTH, WARM_UP, FACTOR = 200, 64, 100, 0.5  # UPDATES: of each run, a multiple of ten
PEAK = FACTOR * noam_rate(WARM_UP, WIDTH, WARM_UP)
SCHEDULES: dict[str, Callable[[int], float]] = {
    "the paper's schedule": lambda step: FACTOR * noam_rate(step, WIDTH, WARM_UP),
    "without the warm-up": lambda step: FACTOR * noam_rate(max(step, WARM_UP), WIDTH, WARM_UP),
    "a tenth of the peak": lambda step: PEAK / 10,
    "a third of the peak": lambda step: PEAK / 3,
}


def train(schedule: Callable[[int], float], seed: int, pairs: Encoded, vocabulary: int) -> list[float]:
    """Train on the pairs; return the loss of each update."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig.tiny(vocabulary, d_model=WIDTH, layers=3)).train()
    optimizer = make_optimizer(model)
    passes = (make_batches(pairs.sources, pairs.targets, 500, seed=100 * seed + epoch) for epoch in itertools.count())
    losses = []
    for step, (src, tgt) in zip(range(1, UPDATES + 1), itertools.chain.from_iterable(passes), strict=False):
        set_rate(optimizer, schedule(step))
        losses.append(train_step(model, src, tgt, optimizer))
    return losses


def main() -> None:
    """Train with every schedule from every seed, and write the results."""
    args = arguments(__doc__, seeds=10).parse_args()
    pairs = load_corpus("grammar", "train")
    tokenizer = SubwordTokenizer.train(pairs, vocab_size=2000)
    pairs = encode_pairs(pairs, tokenizer, "de", "en", max_length=64)
    runs: dict[str, list[list[float]]] = {name: [] for name in SCHEDULES}
    for seed in range(args.seeds):
        for name, schedule in SCHEDULES.items():
            losses = train(schedule, seed, pairs, len(tokenizer))
            runs[name].append([round(statistics.mean(losses[i : i + 10]), 3) for i in range(0, UPDATES, 10)])
            print(f"{name:<24}seed {seed}{runs[name][-1][-1]:>10.3f}", flush=True)
    content = {"about": about(), "measured": "mean loss of each ten updates, from each seed", "runs": runs}
    save(args.results, content, indent=None)


if __name__ == "__main__":
    main()
