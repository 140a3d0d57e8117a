"""What each difference between the paper, its authors' code and today's models changes: for 20_paper_code_today.

    python -m experiments.paper_code_today data/results/paper_code_today.json [--seeds 3]

A small Transformer learns from captions, German to English, for 600 updates: once as the paper has it, and once with
each switch. Kept are the loss on the validation pairs after 120 and after 600 updates, per token and without smoothing,
the number of weights, the multiplications of a forward pass, what a decoder keeps of each token, and an update's time
as a share of the paper's. Then deeper models, with the norm in each place, with and without the warm-up, at half the
rate. More than an hour of one core. The file is written after each run, and the command run again does what is missing
in the file: delete it to measure anew.
"""

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import attention_weights
from annotated.config import BOS, EOS, TransformerConfig
from annotated.encoder import Dropout, LayerNorm
from annotated.models.modern import modernise
from annotated.multi_head import MultiHeadAttention
from annotated.training import label_smoothed_loss, make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_course.bench import processor
from annotated_workbench.data import Encoded, Pairs, encode_pairs, load_corpus, make_batches
from annotated_workbench.files import write_whole
from annotated_workbench.metrics import loss_per_token
from annotated_workbench.vocabulary import SubwordTokenizer

UPDATES, WARM_UP, BATCH = (120, 600), 40, 500  # UPDATES: after these the loss is measured
PEAK = 0.006  # the highest learning rate
WIDTH, HEADS, LAYERS, DEPTH = 64, 4, 2, 4  # DEPTH: of the models with the norm in each place
PAPER = "the paper"


# Changes that need more than a configuration


def layers_of(model: Transformer) -> Iterator[Any]:
    """Go through the layers of the encoder and the decoder."""
    yield from (*model.encoder.layers, *model.decoder.layers)


def attentions_of(model: Transformer) -> Iterator[MultiHeadAttention]:
    """Go through all attentions."""
    return (part for part in model.modules() if isinstance(part, MultiHeadAttention))


def set_last_norm(model: Transformer, norm: Callable[[], nn.Module]) -> None:
    """Let both stacks end in another norm, or in none."""
    model.encoder.norm, model.decoder.norm = norm(), norm()


def norm_the_branches(model: Transformer) -> None:
    """Put a LayerNorm after each sub-layer, before its output is added."""
    for layer in layers_of(model):
        layer.feed_forward.W_2 = nn.Sequential(layer.feed_forward.W_2, LayerNorm(WIDTH))
    for attention in attentions_of(model):
        attention.W_o = nn.Sequential(attention.W_o, LayerNorm(WIDTH))


def norm_only_the_branches(model: Transformer) -> None:
    """Do the same, and take away the norm before the sub-layer."""
    norm_the_branches(model)
    for layer in layers_of(model):
        for residual in layer.residuals:
            residual.norm = nn.Identity()


class DroppingAttention(MultiHeadAttention):
    """Multi-head attention with dropout on its weights."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in `MultiHeadAttention`."""
        weights = self.dropout(attention_weights(self.split(self.W_q(query)), keys, mask))
        return self.W_o((weights @ values).transpose(1, 2).flatten(2))


def drop_in_four_places(model: Transformer) -> None:
    """Add dropout on the attention weights and after the ReLU."""
    for attention in attentions_of(model):
        attention.__class__ = DroppingAttention
        attention.dropout = Dropout(model.config.dropout)
    for layer in layers_of(model):
        layer.feed_forward.activation = nn.Sequential(nn.ReLU(), Dropout(model.config.dropout))


def concatenate_sinusoids(model: Transformer) -> None:
    """Put all sines before all cosines, the slowest of them with 10000 for its wavelength / 2π (tensor2tensor)."""
    table: Any = model.positions.table
    length, width = table.shape
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(width // 2) / (width // 2 - 1))
    model.positions.table = torch.cat((angle.sin(), angle.cos()), dim=1)


class Unscaled(nn.Module):
    """Positions added to embeddings without the factor √d_model."""

    def __init__(self, positions: nn.Module):
        super().__init__()
        self.positions = positions

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Undo the factor, then add."""
        return self.positions(x / math.sqrt(WIDTH), start)


def draw_embeddings(model: Transformer, draw: Callable[[Tensor], object], *, scaled: bool = True) -> None:
    """Draw the embeddings in another way; unless they are tied, the output projection stays as it is."""
    draw(model.src_embedding.weight)
    if model.tgt_embedding.weight is not model.src_embedding.weight:
        draw(model.tgt_embedding.weight)
    if not scaled:
        model.positions = Unscaled(model.positions)


def draw_as_one_matrix(model: Transformer) -> None:
    """Draw the matrices of an attention as parts of one (tensor2tensor, June 2017): Q, K, V, or K, V to the memory."""
    for name, attention in model.named_modules():
        if isinstance(attention, MultiHeadAttention):
            together = [attention.W_k, attention.W_v] + [attention.W_q] * name.endswith("self_attention")
            for part in together:
                bound = math.sqrt(6 / (WIDTH + len(together) * WIDTH))
                nn.init.uniform_(part.weight, -bound, bound)


def draw_small(model: Transformer) -> None:
    """Draw all matrices from N(0, 0.02²), the last of each sub-layer by √(2N) smaller (GPT-2)."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("W_o.weight", "W_2.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)


def without_biases(model: Transformer) -> None:
    """Take away the biases of the feed-forward networks."""
    for layer in layers_of(model):
        layer.feed_forward.W_1.bias = layer.feed_forward.W_2.bias = None


def as_in_june_2017(model: Transformer) -> None:
    """Do what else the authors' code of June 2017 did."""
    concatenate_sinusoids(model)
    draw_as_one_matrix(model)


def as_tensor2tensor_is_now(model: Transformer) -> None:
    """Do what else the last tensor2tensor does."""
    concatenate_sinusoids(model)
    drop_in_four_places(model)


# Ways to train

Rate = Callable[[int], float]


def paper_rate(step: int) -> float:
    """Follow the paper's schedule, for a short training."""
    return PEAK * noam_rate(step, WIDTH, WARM_UP) / noam_rate(WARM_UP, WIDTH, WARM_UP)


def at_once(step: int) -> float:
    """Begin with the highest rate."""
    return paper_rate(max(step, WARM_UP))


def twice(step: int) -> float:
    """Follow the schedule of the last tensor2tensor: twice the rate, and twice as long a warm-up."""
    return 2 * PEAK * noam_rate(step, WIDTH, 2 * WARM_UP) / noam_rate(WARM_UP, WIDTH, WARM_UP)


def cosine(step: int, updates: int) -> float:
    """Warm up to the paper's highest rate in a tenth of the updates, then fall to a tenth of it along a cosine."""
    short = updates / 10
    fallen = 0.5 - 0.5 * math.cos(math.pi * max(0, step - short) / (updates - short))
    return PEAK * min(1, step / short) * (1 - 0.9 * fallen)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Make AdamW as nanoGPT has it: decay of the matrices alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-9)


@dataclass(frozen=True)
class Switch:
    """One difference: changes of the configuration, parts for `modernise`, a change of the model, ways to train.

    A `plan` stands in for the rate where that depends on the number of updates, too.
    """

    config: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Transformer], object] = lambda model: None
    rate: Rate = paper_rate
    plan: Callable[[int, int], float] | None = None
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = make_optimizer
    smoothing: float = 0.1
    clip: float = math.inf


PRE = {"norm_first": True}
NORMS = {
    "norm first, and one at the end": Switch(PRE),
    "norm first, none at the end": Switch(PRE, change=partial(set_last_norm, norm=nn.Identity)),
    "norm after, and one more at the end": Switch(change=partial(set_last_norm, norm=partial(LayerNorm, WIDTH))),
    "norm before and after": Switch(PRE, change=norm_the_branches),
    "norm on the branch alone": Switch(PRE, change=norm_only_the_branches),
}
SWITCHES = {
    PAPER: Switch(),
    **NORMS,
    "RMSNorm": Switch(parts={"rms_norm": True}),
    "dropout in four places": Switch(change=drop_in_four_places),
    "no dropout": Switch({"dropout": 0.0}),
    "sines, then cosines": Switch(change=concatenate_sinusoids),
    "learned positions": Switch({"positions": "learned"}),
    "rotary positions": Switch(parts={"rotary": True}),
    "untied matrices": Switch({"tie_embeddings": False}),
    "untied, N(0, 1) × √d_model": Switch(
        {"tie_embeddings": False}, change=partial(draw_embeddings, draw=partial(nn.init.normal_, std=1.0))
    ),
    "untied, Xavier × √d_model": Switch(
        {"tie_embeddings": False}, change=partial(draw_embeddings, draw=nn.init.xavier_uniform_)
    ),
    "N(0, 0.02²), no √d_model": Switch(
        change=partial(draw_embeddings, draw=partial(nn.init.normal_, std=0.02), scaled=False)
    ),
    "all matrices N(0, 0.02²)": Switch(change=draw_small),
    "Q, K, V drawn as one matrix": Switch(change=draw_as_one_matrix),
    "biases in Q, K, V, O": Switch({"attention_bias": True}),
    "no biases in the feed-forward": Switch(change=without_biases),
    "heads twice as wide": Switch({"d_k": 2 * WIDTH // HEADS, "d_v": 2 * WIDTH // HEADS}),
    "QK norm": Switch(parts={"qk_norm": True}),
    "2 groups for 4 heads": Switch(parts={"groups": 2}),
    "1 group for 4 heads": Switch(parts={"groups": 1}),
    "GELU": Switch({"activation": "gelu"}),
    "SwiGLU": Switch(parts={"gated": True}),
    "Adam, β₂ = 0.997": Switch(
        optimizer=lambda model: torch.optim.Adam(model.parameters(), betas=(0.9, 0.997), eps=1e-9)
    ),
    "AdamW, decay 0.1": Switch(optimizer=adamw),
    "twice the rate and the warm-up": Switch(rate=twice),
    "cosine schedule": Switch(plan=cosine),
    "gradients clipped at 1": Switch(clip=1.0),
    "no label smoothing": Switch(smoothing=0.0),
    "all of June 2017": Switch({"attention_bias": True}, change=as_in_june_2017),
    "all of the last tensor2tensor": Switch(
        PRE,
        change=as_tensor2tensor_is_now,
        rate=twice,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), betas=(0.9, 0.997), eps=1e-9),
    ),
    "all of today": Switch(
        PRE | {"dropout": 0.0},
        {"rms_norm": True, "qk_norm": True, "groups": 2, "rotary": True, "gated": True},
        plan=cosine,
        optimizer=adamw,
        clip=1.0,
        smoothing=0.0,
    ),
}
PLACES = {
    "after": Switch(),
    "first": NORMS["norm first, and one at the end"],
}


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


def train(switch: Switch, seed: int, updates: Sequence[int], task: Task, layers: int = LAYERS) -> list[float]:
    """Train a model; after each number of updates, take its loss per token of the validation pairs, in nats.

    A plan for 600 updates is not the plan for 120: with one, each number of updates is a training of its own.
    """
    if switch.plan:
        rates = [partial(switch.plan, updates=number) for number in updates]
        alone = [replace(switch, plan=None, rate=rate) for rate in rates]
        return [train(one, seed, [number], task, layers)[0] for one, number in zip(alone, updates, strict=True)]
    torch.manual_seed(seed)
    model = make_model(switch, len(task.tokenizer), layers).train()
    optimizer = switch.optimizer(model)
    passes = (make_batches(*task.training[:2], BATCH, seed=100 * seed + epoch) for epoch in itertools.count())
    losses = []
    for step, (src, tgt) in zip(range(1, max(updates) + 1), itertools.chain.from_iterable(passes), strict=False):
        set_rate(optimizer, switch.rate(step))
        update(model, src, tgt, optimizer, switch)
        if step in updates:
            losses.append(loss_per_token(model, task.tokenizer, task.validation, "de", "en", plain=True))
    return [round(loss, 4) for loss in losses]


# What it costs


def example(vocabulary: int) -> tuple[Tensor, Tensor]:
    """Make a batch of 32 pairs of 16 tokens."""
    words = torch.randint(4, vocabulary, (32, 30), generator=torch.Generator().manual_seed(0))
    first, last = torch.full((32, 1), BOS), torch.full((32, 1), EOS)
    return torch.cat((words[:, :15], last), dim=1), torch.cat((first, words[:, 15:], last), dim=1)


def sizes(switch: Switch, vocabulary: int) -> dict[str, int]:
    """Count weights, the multiplications of one forward pass, and the bytes that a decoder keeps of each token."""
    model, (src, tgt) = make_model(switch, vocabulary).eval(), example(vocabulary)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(src, tgt[:, :-1])
    cache = model.new_cache()
    with torch.no_grad():
        model.decode(tgt[:1, :1], model.encode(src[:1]), None, cache=cache)
    return {
        "weights": sum(parameter.numel() for parameter in model.parameters()),
        "multiplications": counter.get_total_flops() // 2,
        "bytes kept": sum(tensor.nbytes for layer in cache for tensor in layer.tokens),
    }


def time_ratios(switches: dict[str, Switch], vocabulary: int, rounds: int) -> dict[str, float]:
    """Measure an update's time on the processor, as a share of the paper's; each round they take turns."""
    batch, contestants = example(vocabulary), []
    for switch in switches.values():
        model = make_model(switch, vocabulary).train()
        contestants.append((model, switch.optimizer(model), switch))
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds + 1):
        for (model, optimizer, switch), seconds in zip(contestants, times, strict=True):
            began = time.process_time()
            update(model, *batch, optimizer, switch)
            seconds.append(time.process_time() - began)
    medians = [statistics.median(seconds[1:]) for seconds in times]  # the first one makes Adam's memory
    return {name: round(median / medians[0], 2) for name, median in zip(switches, medians, strict=True)}


def main() -> None:
    """Train with every switch from every seed, write the results after each run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file to write; the runs that it has are not made again")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each switch, from 0; the paper gets two more")
    parser.add_argument("--updates", type=int, nargs="+", default=UPDATES, help="measure after these, in one run")
    args = parser.parse_args()
    if min(args.seeds, *args.updates) < 1:
        parser.error("give at least one seed and one update.")
    counts = sorted({*args.updates})
    task = load_task()
    vocabulary = len(task.tokenizer)
    began = time.process_time()
    results: dict[str, Any] = {"about": {}, "switches": {}, "places": {}}
    if args.results.exists():
        results = json.loads(args.results.read_text(encoding="utf-8"))
    minutes = results["about"].get("minutes of one core", 0.0)
    results["about"] |= {"torch": torch.__version__, "processor": processor(), "date": time.strftime("%Y-%m-%d")}
    for name, switch in SWITCHES.items():
        row = results["switches"].setdefault(name, {"losses": {}})
        row |= sizes(switch, vocabulary)
    if any("time" not in row for row in results["switches"].values()):
        for name, ratio in time_ratios(SWITCHES, vocabulary, rounds=min(8, *counts)).items():
            results["switches"][name]["time"] = ratio

    def measure(runs: dict[str, list[float]], name: str, switch: Switch, seed: int, layers: int = LAYERS) -> None:
        """Make a run unless the file has all of it."""
        if all(len(runs.get(str(number), [])) > seed for number in counts):
            return
        losses = train(switch, seed, counts, task, layers)
        for number, loss in zip(counts, losses, strict=True):
            runs.setdefault(str(number), [])[seed : seed + 1] = [loss]
        results["about"]["minutes of one core"] = round(minutes + (time.process_time() - began) / 60, 1)
        write_whole(args.results, (json.dumps(results, ensure_ascii=False, indent=1) + "\n").encode())
        print(f"{name:<42}" + "".join(f"{loss:>8.3f}" for loss in losses), flush=True)

    for seed in range(args.seeds + 2):
        measure(results["switches"][PAPER]["losses"], PAPER, SWITCHES[PAPER], seed)
    for seed in range(args.seeds):
        for name, switch in PLACES.items():
            for how, rate in (("warm-up", paper_rate), ("no warm-up", at_once)):
                deep = replace(switch, rate=lambda step, rate=rate: rate(step) / 2)
                case = f"{name}, {how}"
                measure(results["places"].setdefault(case, {}), case, deep, seed, DEPTH)
        for name, switch in SWITCHES.items():
            measure(results["switches"][name]["losses"], name, switch, seed)


if __name__ == "__main__":
    main()
