"""What each difference between the paper, its authors' code and today's models changes: for 20_paper_code_today.

    python -m experiments.paper_code_today data/results/paper_code_today.json [--seeds 3]

A small Transformer learns from captions, German to English, for 600 updates: once as the paper has it, and once with
each switch. Kept are the loss on the validation pairs after 120 and after 600 updates, per token and without smoothing,
the number of weights, the multiplications of a forward pass, what a decoder keeps of each token, and an update's time
as a share of the paper's. Then deeper models, with the norm in each place, with and without the warm-up, at half the
rate. More than an hour of one core. The file is written after each run, and the command run again does what is missing.
"""

import itertools
import json
import math
import statistics
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from annotated.config import BOS, EOS, TransformerConfig
from annotated.models.modern import modernise
from annotated.training import label_smoothed_loss, set_rate
from annotated.transformer import Transformer
from annotated_workbench.data import Encoded, Pairs, encode_pairs, load_corpus, make_batches
from annotated_workbench.metrics import loss_per_token
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments.results import about, arguments, save
from experiments.switches import HEADS, PAPER, PLACES, SWITCHES, WIDTH, Switch

UPDATES, BATCH = (120, 600), 500  # UPDATES: after these the loss is measured
LAYERS, DEPTH = 2, 4  # DEPTH: of the models with the norm in each place


def make_model(switch: Switch, vocabulary: int, layers: int = LAYERS) -> Transformer:
    """Make a small model with a switch."""
    sizes: dict[str, Any] = {"d_model": WIDTH, "d_ff": 2 * WIDTH, "heads": HEADS, "layers": layers, "max_length": 128}
    model = Transformer(TransformerConfig(vocabulary, **(sizes | switch.config)))
    if switch.parts:
        modernise(model, **switch.parts)
    switch.change(model)
    return model


def update(model: nn.Module, src: Tensor, tgt: Tensor, optimizer: torch.optim.Optimizer, switch: Switch) -> float:
    """Do what `train_step` does, and clip the gradients if the switch says so."""
    loss = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], switch.smoothing)
    optimizer.zero_grad()
    loss.backward()
    if switch.clip < math.inf:
        nn.utils.clip_grad_norm_(model.parameters(), switch.clip)
    optimizer.step()
    return loss.item()


class Task(NamedTuple):
    """What is learned: encoded pairs for training, pairs for validation, and the tokenizer."""

    training: Encoded
    validation: Pairs
    tokenizer: SubwordTokenizer


def load_task() -> Task:
    """Read the captions."""
    captions = load_corpus("captions", "train")
    tokenizer = SubwordTokenizer.train(captions, vocab_size=600)
    validation = Pairs(*(side[:200] for side in load_corpus("captions", "val")))
    return Task(encode_pairs(captions, tokenizer, "de", "en", max_length=64), validation, tokenizer)


def train(switch: Switch, seed: int, updates: int, task: Task, layers: int = LAYERS) -> float:
    """Train a model, and take its loss per token of the validation pairs, in nats."""
    torch.manual_seed(seed)
    model = make_model(switch, len(task.tokenizer), layers).train()
    optimizer = switch.optimizer(model)
    passes = (make_batches(*task.training[:2], BATCH, seed=100 * seed + epoch) for epoch in itertools.count())
    for step, (src, tgt) in zip(range(1, updates + 1), itertools.chain.from_iterable(passes), strict=False):
        set_rate(optimizer, switch.rate(step, updates))
        update(model, src, tgt, optimizer, switch)
    return round(loss_per_token(model, task.tokenizer, task.validation, "de", "en", plain=True), 4)


def example(vocabulary: int) -> tuple[Tensor, Tensor]:
    """Make a batch of 32 pairs of 16 tokens."""
    words = torch.randint(4, vocabulary, (32, 30), generator=torch.Generator().manual_seed(0))
    first, last = torch.full((32, 1), BOS), torch.full((32, 1), EOS)
    return torch.cat((words[:, :15], last), dim=1), torch.cat((first, words[:, 15:], last), dim=1)


def sizes(switch: Switch, vocabulary: int) -> dict[str, int]:
    """Count weights, the multiplications of one forward pass, and the bytes that a decoder keeps of each token."""
    model, (src, tgt) = make_model(switch, vocabulary).eval(), example(vocabulary)
    cache = model.new_cache()
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            model(src, tgt[:, :-1])
        model.decode(tgt[:1, :1], model.encode(src[:1]), None, cache=cache)
    return {
        "weights": sum(parameter.numel() for parameter in model.parameters()),
        "multiplications": counter.get_total_flops() // 2,
        "bytes kept": sum(tensor.nbytes for layer in cache for tensor in layer.tokens),
    }


def time_ratios(switches: dict[str, Switch], vocabulary: int, turns: int) -> dict[str, float]:
    """Measure an update's time on the processor, as a share of the paper's; they take turns."""
    models = {name: make_model(switch, vocabulary).train() for name, switch in switches.items()}
    optimizers = {name: switch.optimizer(models[name]) for name, switch in switches.items()}
    times: dict[str, list[float]] = {name: [] for name in switches}
    for name in [*switches] * (turns + 1):
        began = time.process_time()
        update(models[name], *example(vocabulary), optimizers[name], switches[name])
        times[name].append(time.process_time() - began)
    medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}  # the first makes Adam's memory
    return {name: round(median / medians[PAPER], 2) for name, median in medians.items()}


def main() -> None:
    """Train with every switch from every seed, and write the results after each run."""
    parser = arguments(__doc__, seeds=3)  # the paper gets two more
    parser.add_argument("--updates", type=int, nargs="+", default=UPDATES, help="measure after these")
    args = parser.parse_args()
    task = load_task()
    results: dict[str, Any] = {"about": {}, "switches": {}, "places": {}}
    if args.results.exists():
        results = json.loads(args.results.read_text(encoding="utf-8"))
    results["about"] |= about()
    for name, switch in SWITCHES.items():
        results["switches"].setdefault(name, {"losses": {}}).update(sizes(switch, len(task.tokenizer)))
    if any("time" not in row for row in results["switches"].values()):
        for name, ratio in time_ratios(SWITCHES, len(task.tokenizer), turns=8).items():
            results["switches"][name]["time"] = ratio
    runs = [(PAPER, SWITCHES[PAPER], seed, LAYERS) for seed in range(args.seeds + 2)]
    for seed in range(args.seeds):
        runs += [(name, switch, seed, DEPTH) for name, switch in PLACES.items()]
        runs += [(name, switch, seed, LAYERS) for name, switch in SWITCHES.items()]
    for (name, switch, seed, layers), updates in itertools.product(runs, sorted({*args.updates})):
        place = results["places"].setdefault(name, {}) if layers == DEPTH else results["switches"][name]["losses"]
        losses = place.setdefault(str(updates), [])
        if len(losses) > seed:
            continue
        losses.append(train(switch, seed, updates, task, layers))
        save(args.results, results)
        print(f"{name:<42} {updates:>4} updates {losses[-1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
