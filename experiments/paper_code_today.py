"""What each difference between the paper, its authors' code and today's models changes: for 20_paper_code_today.

    python -m experiments.paper_code_today data/results/paper_code_today.json [--seeds 3]

A small Transformer learns the grammar's sentences as the paper has it, and with each switch. Kept are the
loss on the validation pairs after 120 and after 600 updates, per token and without smoothing, the number of weights,
the multiplications of a forward pass, what a decoder keeps of each token, and an update's time as a share of the
paper's. Then deeper models, with the norm in each place, with and without the warm-up, at half the rate. 48 minutes of
one core. The file is written after each run, and the command run again does what is missing.
"""

import itertools
import json
import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from annotated.config import TransformerConfig
from annotated.training import label_smoothed_loss, set_rate
from annotated.transformer import Transformer
from annotated_workbench.data import Pairs, encode_pairs, load_corpus, make_batches
from annotated_workbench.metrics import loss_per_token
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.contestants import batch
from experiments.results import about, arguments, save
from experiments.switches import HEADS, PAPER, PLACES, SWITCHES, WIDTH, Switch

UPDATES, BATCH = (120, 600), 500  # UPDATES: after these the loss is measured
PAIRS, TURNS = (32, 16), 8  # sentences and their tokens, on which updates are timed; and how often they are


def make_model(switch: Switch, vocabulary: int) -> Transformer:
    """Make a small model with a switch."""
    sizes: dict[str, Any] = {"d_model": WIDTH, "d_ff": 2 * WIDTH, "heads": HEADS, "layers": 2, "max_length": 128}
    return switch.applied(Transformer(TransformerConfig(vocabulary, **(sizes | switch.config))))


def update(model: nn.Module, src: Tensor, tgt: Tensor, optimizer: torch.optim.Optimizer, switch: Switch) -> None:
    """Do what `train_step` does, and clip the gradients if the switch says so."""
    optimizer.zero_grad()
    label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], switch.smoothing).backward()
    if switch.clip < math.inf:
        nn.utils.clip_grad_norm_(model.parameters(), switch.clip)
    optimizer.step()


def train(switch: Switch, seed: int, updates: int, pairs: Pairs, tokenizer: SubwordTokenizer) -> float:
    """Train a model on the pairs, and take its loss per token of 200 validation pairs, in nats."""
    torch.manual_seed(seed)
    model = make_model(switch, len(tokenizer)).train()
    optimizer = switch.optimizer(model)
    encoded = encode_pairs(pairs, tokenizer, "de", "en", max_length=64)[:2]
    passes = (make_batches(*encoded, BATCH, seed=100 * seed + epoch) for epoch in itertools.count())
    for step, (src, tgt) in zip(range(1, updates + 1), itertools.chain.from_iterable(passes), strict=False):
        set_rate(optimizer, switch.rate(step, updates))
        update(model, src, tgt, optimizer, switch)
    validation = Pairs(*(side[:200] for side in load_corpus("grammar", "val")))
    return round(loss_per_token(model, tokenizer, validation, "de", "en", plain=True), 4)


def sizes(switch: Switch, vocabulary: int) -> dict[str, int]:
    """Count weights, the multiplications of one forward pass, and the bytes that a decoder keeps of each token."""
    model = make_model(switch, vocabulary).eval()
    (src, tgt), cache = batch(model.config, *PAIRS), model.new_cache()
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            model(src, tgt[:, :-1])
        model.decode(tgt[:1, :1], model.encode(src[:1]), None, cache=cache)
    weights = sum(parameter.numel() for parameter in model.parameters())
    kept = sum(tensor.nbytes for layer in cache for tensor in layer.tokens)
    return {"weights": weights, "multiplications": counter.get_total_flops() // 2, "bytes kept": kept}


def time_ratios(vocabulary: int) -> dict[str, float]:
    """Measure an update's time on the processor with each switch, as a share of the paper's; they take turns."""
    models = {name: make_model(switch, vocabulary).train() for name, switch in SWITCHES.items()}
    optimizers = {name: switch.optimizer(models[name]) for name, switch in SWITCHES.items()}
    pairs = batch(models[PAPER].config, *PAIRS)
    times: dict[str, list[float]] = {name: [] for name in SWITCHES}
    for name, switch in [*SWITCHES.items()] * (TURNS + 1):
        began = time.process_time()
        update(models[name], *pairs, optimizers[name], switch)
        times[name].append(time.process_time() - began)
    medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}  # the first makes Adam's memory
    return {name: round(median / medians[PAPER], 2) for name, median in medians.items()}


def main() -> None:
    """Train with every switch from every seed, and write the results after each run."""
    args = arguments(__doc__, seeds=3).parse_args()
    pairs = load_corpus("grammar", "train")
    tokenizer = SubwordTokenizer.train(pairs, vocab_size=600)
    results: dict[str, Any] = {"about": about(), "switches": {}, "places": {}}
    if args.results.exists():
        results |= json.loads(args.results.read_text(encoding="utf-8"))
    else:
        for name, ratio in time_ratios(len(tokenizer)).items():
            results["switches"][name] = {"losses": {}, **sizes(SWITCHES[name], len(tokenizer)), "time": ratio}
    for seed, name, updates in itertools.product(range(args.seeds + 2), PLACES | SWITCHES, UPDATES):
        place = results["places"].setdefault(name, {}) if name in PLACES else results["switches"][name]["losses"]
        losses = place.setdefault(str(updates), [])
        if len(losses) <= seed and (seed < args.seeds or name == PAPER):  # the paper gets two more seeds
            losses.append(train((PLACES | SWITCHES)[name], seed, updates, pairs, tokenizer))
            save(args.results, results)
            print(f"{name:<42} {updates:>4} updates {losses[-1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
