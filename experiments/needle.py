"""Which parts of a sparse pattern of attention matter: the needle task of chapter 18.

    python -m experiments.needle    # a few minutes

A text of 64 tokens holds one with a value that every position has to name. Writes its part of
data/results/long_sequences.json.
"""

import json

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.encoder import Encoder
from annotated.models.long_attention import BigBirdAttention, block_pattern, pattern_mask
from experiments.long_sequences import write

LENGTH, BLOCK, LAYERS, WIDTH, VALUES, NOISE = 64, 4, 2, 32, 4, 8
PATTERNS: dict[str, dict[str, int] | None] = {
    "window 1": dict(window=1, first=0),
    "window 3": dict(window=3, first=0),
    "window 5": dict(window=5, first=0),
    "window 9": dict(window=9, first=0),
    "window 1, 2 random": dict(window=1, first=0, random=2),
    "window 3, 2 random": dict(window=3, first=0, random=2),
    "first block": dict(window=0, first=1),
    "window 3, first block": dict(window=3, first=1),
    "window 3, first block, 2 random": dict(window=3, first=1, random=2),
    "everything": None,
}


def make_texts(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts (count, 64) of noise, each with one needle somewhere, and the needles' values (count,)."""
    ids = torch.randint(NOISE, (count, LENGTH), generator=draw)
    values = torch.randint(VALUES, (count,), generator=draw)
    ids[torch.arange(count), torch.randint(LENGTH, (count,), generator=draw)] = NOISE + values
    return ids, values


def all_needles() -> Tensor:
    """Make texts (place, value, 64): one noise, and in it every value at every place."""
    noise = torch.randint(NOISE, (LENGTH,), generator=torch.Generator().manual_seed(1))
    ids = noise.repeat(LENGTH, VALUES, 1)
    ids[torch.arange(LENGTH), :, torch.arange(LENGTH)] = NOISE + torch.arange(VALUES)
    return ids


def reach(choices: dict[str, int] | None) -> tuple[float, Tensor]:
    """Tell the share of pairs that a layer computes, and what each position can know after all layers (64, 64)."""
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    if choices is not None:
        seen = pattern_mask(block_pattern(LENGTH // BLOCK, **choices), choices["first"], BLOCK)
    step = (seen | torch.eye(LENGTH, dtype=torch.bool)).double()  # the residual connection keeps what one has
    return seen.double().mean().item(), torch.linalg.matrix_power(step, LAYERS) > 0


def train(choices: dict[str, int] | None, seed: int, updates: int = 200, batch: int = 16) -> nn.Module:
    """Train a small encoder with this pattern to tell the needle's value at every position."""
    torch.manual_seed(seed)
    config = TransformerConfig(1, d_model=WIDTH, d_ff=2 * WIDTH, heads=2, layers=LAYERS, dropout=0.0, norm_first=True)
    encoder = Encoder(config)
    if choices is not None:
        for layer in encoder.layers:
            layer.self_attention = BigBirdAttention(WIDTH, 2, block=BLOCK, **choices)
    model = nn.Sequential(nn.Embedding(NOISE + VALUES, WIDTH), encoder, nn.Linear(WIDTH, VALUES)).double()
    optimizer, draw = torch.optim.Adam(model.parameters()), torch.Generator().manual_seed(seed)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 5e-3 * min(1, (update + 1) / 20, 2 - 2 * update / updates)
        ids, values = make_texts(batch, draw)
        loss = F.cross_entropy(model(ids).flatten(0, 1), values.repeat_interleave(LENGTH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def answers(model: nn.Module) -> Tensor:
    """Tell whether the model is right, for each needle and position: (place, value, position)."""
    with torch.no_grad():
        found = model(all_needles().flatten(0, 1)).argmax(dim=-1).view(LENGTH, VALUES, LENGTH)
    return found == torch.arange(VALUES)[:, None]


def needle() -> dict:
    """Train every pattern with ten seeds."""
    rows = {}
    for name, choices in PATTERNS.items():
        density, known = reach(choices)
        right = torch.stack([answers(train(choices, seed)).double() for seed in range(10)])
        by_pair = right.mean(dim=2)  # (seed, place, position); `known` is (position, place)
        rows[name] = {
            "density": round(density, 4),
            "reach": round(known.double().mean().item(), 4),
            "right": [round(one.item(), 4) for one in by_pair.mean(dim=(1, 2))],
            "right within reach": [round(one[known.T].mean().item(), 4) for one in by_pair],
            "right beyond": [round(one[~known.T].mean().item(), 4) for one in by_pair] if not known.all() else [],
        }
        print(name, json.dumps(rows[name]), flush=True)
    sizes = {"length": LENGTH, "block": BLOCK, "layers": LAYERS, "d_model": WIDTH, "values": VALUES}
    return {"made by": "python -m experiments.needle", "sizes": sizes, "seeds": list(range(10)), "patterns": rows}


if __name__ == "__main__":
    torch.set_num_threads(1)
    write("needle", needle())
