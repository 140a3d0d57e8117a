"""Five sizes on three amounts of text, and the largest predicted before it is trained; for 22_scale.

    python -m experiments.scaling data/results/scaling.json [--seeds 2]

Llamas of 27,000 to 3 million weights learn Shakespeare's characters, for two, one and four million of them. Of
each amount first the four smaller sizes; to their losses L = E + A·N^−a is fitted, and a straight line through the
logarithms; what both say of the largest is kept, and only then is it trained, once. Each run is kept when it ends: a
command that was stopped goes on. An hour of one core.
"""

import itertools
import json
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.models.llama import Llama, LlamaConfig
from annotated.training import set_rate
from annotated_workbench.data import load_text, split_text
from experiments.results import about, arguments, save

SIZES = {32: 2, 48: 3, 64: 4, 96: 5, 224: 5}  # width: layers
AMOUNTS = (2, 1, 4)  # million characters; several seeds for the first
LENGTH, BATCH = 128, 8  # characters of a row, rows of a step


def make_model(width: int, characters: int) -> Llama:
    """Make a Llama of a width of `SIZES`, all alike: heads of 16 numbers, networks 8/3 as wide as the stream."""
    heads = {"heads": width // 16, "groups": width // 16}
    sizes = {"d_model": width, "d_ff": 8 * round(width / 3), "layers": SIZES[width]}
    return Llama(LlamaConfig(vocab_size=characters, max_length=LENGTH, **heads, **sizes))


def train(model: Llama, text: Tensor, steps: int, seed: int) -> list[float]:
    """Train on random pieces of a text, the same for all sizes; return the loss of each step."""
    rate = 3e-3 * math.sqrt(64 / model.config.d_model)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    drawn, losses = torch.Generator().manual_seed(seed), list[float]()
    warm_up = min(100, steps / 10)
    for step in range(steps):
        done = max(0, (step - warm_up) / (steps - warm_up))
        cosine = 0.55 + 0.45 * math.cos(math.pi * done)  # from 1 to a tenth
        set_rate(optimizer, rate * min(1, (step + 1) / warm_up) * cosine)
        starts = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=drawn)
        rows = text[starts + torch.arange(LENGTH + 1)]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def held_out_loss(model: Llama, text: Tensor) -> float:
    """Measure the loss on a text, in pieces that do not overlap, nats a character."""
    rows = text[: (len(text) - 1) // LENGTH * LENGTH + 1].unfold(0, LENGTH + 1, LENGTH)
    sums = [F.cross_entropy(model(part[:, :-1]).mT, part[:, 1:], reduction="sum") for part in rows.split(64)]
    return torch.stack(sums).sum().item() / (len(rows) * LENGTH)


def fit(sizes: Sequence[float], losses: Sequence[float]) -> tuple[float, float, float]:
    """Fit L = E + A·N^−a: each exponent is tried, and for it E and A are a straight line's; return E, A and a."""
    exponents = torch.arange(0.01, 2, 0.001, dtype=torch.float64)
    x = torch.tensor(sizes, dtype=torch.float64)[:, None] ** -exponents
    y = torch.tensor(losses, dtype=torch.float64)[:, None]
    slopes = ((x - x.mean(0)) * (y - y.mean())).sum(0) / (x - x.mean(0)).square().sum(0)
    levels = y.mean() - slopes * x.mean(0)
    best = (y - levels - slopes * x).square().sum(0).argmin()
    return levels[best].item(), slopes[best].item(), exponents[best].item()


def predict(sizes: Sequence[float], losses: Sequence[float], size: float) -> float:
    """Say by the fitted curve what another size will reach."""
    level, slope, a = fit(sizes, losses)
    return level + slope * size**-a


def straight_line(sizes: Sequence[float], losses: Sequence[float], size: float) -> float:
    """Say it by the line of least squares through the logarithms, a power law without E."""
    slope, level = statistics.linear_regression([math.log(n) for n in sizes], [math.log(loss) for loss in losses])
    return math.exp(level + slope * math.log(size))


def foretell(sizes: Sequence[int], losses: Sequence[Sequence[float]], size: int) -> dict[str, Any]:
    """Predict a size from the losses of smaller ones, of all seeds; also from one seed each, and without one size."""
    means = [statistics.mean(of_size) for of_size in losses]
    level, slope, a = fit(sizes, means)
    by_seed = [predict(sizes, combination, size) for combination in itertools.product(*losses)]
    without = [predict([*sizes[:i], *sizes[i + 1 :]], [*means[:i], *means[i + 1 :]], size) for i in range(len(sizes))]
    return {
        "E": level,
        "A": slope,
        "a": a,
        "curve": level + slope * size**-a,
        "straight line": straight_line(sizes, means, size),
        "one seed each, least and most": [min(by_seed), max(by_seed)],
        "without one size": without,
    }


def main() -> None:
    """Train, predict, train the largest, and write the results after each run."""
    args = arguments(__doc__, seeds=2).parse_args()
    content: dict[str, Any] = {"about": about(), "runs": [], "predictions": []}
    if args.results.exists():
        content = json.loads(args.results.read_text(encoding="utf-8"))
    text = load_text("tinyshakespeare")
    characters = sorted(set(text))
    training, held_out = (torch.tensor([characters.index(c) for c in part]) for part in split_text(text))
    *small, largest = SIZES
    weights = {width: sum(p.numel() for p in make_model(width, len(characters)).parameters()) for width in SIZES}

    def losses(width: int, million: float) -> list[float]:
        return [run["loss"] for run in content["runs"] if (run["width"], run["million"]) == (width, million)]

    for million in AMOUNTS:
        seeds = args.seeds if million == AMOUNTS[0] else 1
        runs = [(width, seed) for seed in range(seeds) for width in small]
        for width, seed in [*runs, (largest, 0)]:
            if seed < len(losses(width, million)):
                continue
            if width == largest and million not in [told["million"] for told in content["predictions"]]:
                known = [losses(each, million) for each in small]
                told = foretell([weights[each] for each in small], known, weights[largest])
                content["predictions"].append({"million": million} | told)
                print(f"{weights[largest]:,} weights, not yet trained:", content["predictions"][-1], flush=True)
                save(args.results, content, indent=None)
            begin = time.process_time()
            torch.manual_seed(seed)
            model = make_model(width, len(characters))
            history = train(model, training, round(million * 1e6 / (LENGTH * BATCH)), seed)
            run = {"width": width, "weights": weights[width], "million": million, "seed": seed}
            run |= {"loss": held_out_loss(model, held_out), "seconds": round(time.process_time() - begin)}
            parts = torch.tensor(history).tensor_split(20)
            run["training"] = [round(part.mean().item(), 4) for part in parts if len(part)]
            content["runs"].append(run)
            print({key: value for key, value in run.items() if key != "training"}, flush=True)
            save(args.results, content, indent=None)
    for told in content["predictions"]:
        found = " ".join(f"{statistics.mean(losses(width, told['million'])):.3f}" for width in SIZES)
        said = f"predicted {told['curve']:.3f}, straight line {told['straight line']:.3f}"
        print(f"{told['million']} million: {found}; {said}")


if __name__ == "__main__":
    main()
