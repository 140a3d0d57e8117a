"""An induction head is born: the trainings of chapter 22 from many seeds, its controls, and the moment in frames.

    python -m experiments.induction data/results/induction.json [--seeds 10]

Texts, model and training are the lesson's own. Of each run: the loss on what repeats and the best prefix-matching
score, look by look; at the end, how far layer 0 looks one back, what can be read from the stream by the lens and by
translators, at each stop, of the symbols here, before and next; and the loss with heads off or on other periods.
"""

from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from annotated.multi_head import record_attention
from experiments.results import about, arguments, names_of_lesson, save

LESSON = "22_scale.ipynb", "induction"
STEPS, EVERY = 600, 20
CASES: dict[str, Any] = {"two layers": {}, "one layer": {"layers": 1}, "always 20": {"shortest": 20, "longest": 20}}
SHOWN, PERIOD, FRAMES, BETWEEN = 24, 10, 40, 10  # places of the text of the moment; its frames, and steps between them


def main() -> None:
    """Train every case from every seed, record the moment, and write the results."""
    args = arguments(__doc__, seeds=10).parse_args()
    lesson, content = names_of_lesson(*LESSON), {"about": about(), "steps": STEPS, "every": EVERY}
    runs = {name: [run(lesson, seed, **case) for seed in tqdm(range(args.seeds), name)] for name, case in CASES.items()}
    save(args.results, content | {"cases": runs, "moment": moment(lesson)}, indent=None)


def texts(lesson: dict[str, Any], dice: int = 1000, **periods: int) -> tuple[Tensor, Tensor]:
    """Draw texts to look at, which no training draws."""
    return lesson["draw_texts"](64, torch.Generator().manual_seed(dice), **periods)


def run(lesson: dict[str, Any], seed: int, layers: int = 2, **periods: int) -> dict[str, Any]:
    """Train from a seed; give the loss and the best head's score, look by look, and more at the end."""
    torch.manual_seed(seed)
    model, look = lesson["AttentionOnly"](layers), lesson["look"]
    trained = lesson["train"](model, seed, STEPS, **periods)  # step by step
    looks = [look(model, *texts(lesson, **periods)) for step in trained if step % EVERY == 0]
    loss, back, prefix = (torch.stack(kind) for kind in zip(*looks, strict=True))  # (look), twice (look, layer, head)
    kept = {"loss": loss, "prefix matching": prefix.amax(dim=(1, 2)), "layer 0 looks one back, at the end": back[-1, 0]}
    ends = {"other texts": look(model, *texts(lesson, 1001, **({"shortest": 21} if periods else {})))[0]}
    if layers > 1 and not periods:
        below, above = int(back[-1, 0].argmax()), int(prefix[-1, 1].argmax())
        off = {"the head that looks one back": (0, below), "the other head of layer 0": (0, 1 - below)}
        off |= {"the best induction head": (1, above), "the other head of layer 1": (1, 1 - above)}
        off |= {f"layer {layer}": (layer, 0, 1) for layer in range(2)}
        ends |= {name: look(lesson["without"](model, *heads), *texts(lesson))[0] for name, heads in off.items()}
        kept["read"] = lesson["share_read"](model).flatten()
    rounded = {name: [round(value, 3) for value in values.tolist()] for name, values in kept.items()}
    return rounded | {"end": {name: round(value.item(), 3) for name, value in ends.items()}}


def moment(lesson: dict[str, Any]) -> dict[str, Any]:
    """Record two heads of seed 0 on one text while they are born: each weight as a digit, 9 for all of it."""
    torch.manual_seed(0)
    model = lesson["AttentionOnly"]()
    letters = torch.randperm(26, generator=torch.Generator().manual_seed(0))[:PERIOD]
    shown, looks, maps = letters[torch.arange(SHOWN) % PERIOD][None], [], []
    for step in lesson["train"](model, 0, FRAMES * BETWEEN):
        if step % BETWEEN == 0:
            looks.append(lesson["look"](model, *texts(lesson)))
            with record_attention(model) as recorded, torch.no_grad():
                model(shown)
            maps.append([weights[0] for (weights,) in recorded.values()])
    heads = looks[-1][1][0].argmax(), looks[-1][2][1].argmax()
    content = {"letters": "".join(chr(ord("A") + i) for i in shown[0]), "period": PERIOD, "between": BETWEEN}
    scores = [(back[0, heads[0]].item(), to[1, heads[1]].item()) for _, back, to in looks]
    return content | {
        "loss": [round(loss.item(), 2) for loss, _, _ in looks],
        "scores": [[round(score, 2) for score in both] for both in scores],
        "maps": [[digits(layer[head]) for layer, head in zip(pair, heads, strict=True)] for pair in maps],
    }


def digits(weights: Tensor) -> str:
    """Write the lower triangle row by row, a digit for each weight."""
    return "".join(str(round(9 * weight)) for i, row in enumerate(weights.tolist()) for weight in row[: i + 1])


if __name__ == "__main__":
    main()
