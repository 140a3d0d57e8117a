"""What each part of today's decoder changes, alone and all together: for 21_todays_model.

    python -m experiments.todays_model data/results/todays_model.json [--seeds 3]

The paper's decoder without a source reads tiny Shakespeare, letter by letter: as it is, with one part of today, with
all that make it a Llama, and as a Llama without one of them. Kept are the loss on the last tenth in nats a character,
the number of parameters, and the bytes that a cache keeps of a token. The file is written after each run, and the
command run again does what is missing. Ten minutes of one core.
"""

import itertools
import json
from functools import partial, reduce
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.training import make_optimizer, set_rate
from annotated_workbench.data import load_text, split_text
from annotated_workbench.metrics import text_loss
from annotated_workbench.vocabulary import CharacterTokenizer
from experiments.model_changes import without_factor
from experiments.results import about, arguments, save
from experiments.switches import Switch, cosine

SIZES: dict[str, Any] = {"d_model": 48, "d_ff": 192, "heads": 4, "layers": 2, "max_length": 64, "dropout": 0.0}
PAPERS = {"positions": "sinusoidal", "norm_first": False, "activation": "relu"}
UPDATES, BATCH, VALIDATED = 600, 8, 20_000  # BATCH: windows; VALIDATED: characters


def set_biases(model: LanguageModel, *, bias: bool) -> None:
    """Give the feed-forward networks biases, or take them away."""
    for name, part in model.named_modules():
        if "feed_forward" in name and isinstance(part, nn.Linear):
            part.bias = nn.Parameter(torch.zeros(part.out_features)) if bias else None


PARTS = {
    "pre-norm": Switch({"norm_first": True}),
    "RMSNorm": Switch(parts={"rms_norm": True}),
    "rotary positions": Switch(parts={"rotary": True}),
    "SwiGLU": Switch(parts={"gated": True}, changes=(partial(set_biases, bias=True),)),
    "2 groups for 4 heads": Switch(parts={"groups": 2}),
    "no biases": Switch(changes=(partial(set_biases, bias=False),)),
    "no √d_model": Switch(changes=(without_factor,)),
}
OTHERS = {"1 group for 4 heads": Switch(parts={"groups": 1}), "QK norm": Switch(parts={"qk_norm": True})}
PAPER, LLAMA = "the paper's decoder", "Llama"


def together(*switches: Switch) -> Switch:
    """Switch several at once."""
    return reduce(lambda a, b: Switch(a.config | b.config, a.parts | b.parts, a.changes + b.changes), switches)


SETTINGS = {PAPER: Switch(), **PARTS, **OTHERS, LLAMA: together(*PARTS.values())}
for without in PARTS:
    SETTINGS[f"{LLAMA} without: {without}"] = together(*(PARTS[name] for name in PARTS if name != without))
for name, part in OTHERS.items():
    SETTINGS[f"{LLAMA} with: {name}"] = together(*PARTS.values(), part)


def make_model(switch: Switch, vocabulary: int) -> LanguageModel:
    """Make the paper's decoder, small, with some parts of today."""
    return switch.applied(LanguageModel(LanguageModelConfig(vocabulary, **(SIZES | PAPERS | switch.config))))


def train(switch: Switch, seed: int, text: torch.Tensor, held_out: torch.Tensor, vocabulary: int) -> float:
    """Train a model on windows of the text, and take its loss on the other one, in nats a character."""
    torch.manual_seed(seed)
    model, drawn = make_model(switch, vocabulary), torch.Generator().manual_seed(seed)
    optimizer, windows = make_optimizer(model), text.unfold(0, SIZES["max_length"] + 1, 1)
    for step in range(1, UPDATES + 1):
        set_rate(optimizer, cosine(step, UPDATES))
        ids = windows[torch.randint(len(windows), (BATCH,), generator=drawn)]
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return round(text_loss(model, held_out, plain=True), 4)


@torch.no_grad()
def sizes(switch: Switch, vocabulary: int) -> dict[str, int]:
    """Count parameters, and the bytes that a cache keeps of each token."""
    model = make_model(switch, vocabulary)
    cache = model.new_cache()
    model.states(torch.tensor([[4]]), cache)
    kept = sum(tensor.nbytes for layer in cache for tensor in layer.tokens)
    return {"parameters": sum(parameter.numel() for parameter in model.parameters()), "bytes kept": kept}


def main() -> None:
    """Train every setting from every seed, and write the results after each run."""
    args = arguments(__doc__, seeds=3).parse_args()
    parts = split_text(load_text("tinyshakespeare"))
    tokenizer = CharacterTokenizer.train(parts[0])
    text, held_out = (torch.tensor(tokenizer.encode(part, "")) for part in parts)
    results: dict[str, Any] = {"about": about(), "settings": {}}
    if args.results.exists():
        results = json.loads(args.results.read_text(encoding="utf-8"))
    for seed, name in itertools.product(range(args.seeds + 2), SETTINGS):
        row = results["settings"].setdefault(name, {"losses": [], **sizes(SETTINGS[name], len(tokenizer))})
        if len(row["losses"]) <= seed and (seed < args.seeds or name in (PAPER, LLAMA)):  # both are compared with many
            row["losses"].append(train(SETTINGS[name], seed, text, held_out[:VALIDATED], len(tokenizer)))
            save(args.results, results)
            print(f"{name:<34} {row['losses'][-1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
