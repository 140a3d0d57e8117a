"""Five sizes on three amounts of text, and the largest predicted before it is trained; for 22_scale.

    python -m experiments.scaling data/results/scaling.json [--seeds 2]

The lesson's Llamas of 27,000 to 3 million weights learn Shakespeare's characters, two, one and four million of them;
from several seeds the four smaller ones on the first amount. Of each amount these come first; to their losses
L = E + A·N^−a is fitted, and a straight line through the logarithms; what both say of the largest is kept, and only
then is it trained, once. Each run is kept when it ends: a command that was stopped goes on. An hour of one core.
"""

import itertools
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from annotated_workbench.data import load_text, split_text
from experiments.results import about, arguments, names_of_lesson, save

LESSON = names_of_lesson("22_scale.ipynb", "scaling")
SIZES: dict[int, int] = LESSON["LAYERS"]  # width: layers
AMOUNTS = (2, 1, 4)  # million characters
make_model, train, fit, predict = (LESSON[name] for name in ("make_model", "learn_plays", "fit", "predict"))


def foretell(sizes: Sequence[int], losses: Sequence[Sequence[float]], size: int) -> dict[str, Any]:
    """Predict a size from the losses of smaller ones, of all seeds; also from one seed each, and without one size."""
    means = [statistics.mean(of_size) for of_size in losses]
    by_seed = [predict(sizes, combination, size) for combination in itertools.product(*losses)]
    pairs = [*zip(sizes, means, strict=True)]
    without = [predict(*zip(*pairs[:i], *pairs[i + 1 :], strict=True), size) for i in range(len(pairs))]
    return {
        **dict(zip(("E", "A", "a"), fit(sizes, means), strict=True)),
        "curve": predict(sizes, means, size),
        "straight line": LESSON["straight_line"](sizes, means, size),
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
    models = {width: make_model(width, SIZES[width], len(characters)) for width in SIZES}
    weights = {width: sum(p.numel() for p in model.parameters()) for width, model in models.items()}

    def losses(width: int, million: float) -> list[float]:
        return [run["loss"] for run in content["runs"] if (run["width"], run["million"]) == (width, million)]

    for million in AMOUNTS:
        seeds = args.seeds if million == AMOUNTS[0] else 1
        for width, seed in [*((width, seed) for seed in range(seeds) for width in small), (largest, 0)]:
            if seed < len(losses(width, million)):
                continue
            if width == largest and million not in [told["million"] for told in content["predictions"]]:
                known = [losses(each, million) for each in small]
                told = {"million": million} | foretell([weights[each] for each in small], known, weights[largest])
                content["predictions"].append(told)
                print(f"{weights[largest]:,} weights, not yet trained:", told, flush=True)
                save(args.results, content, indent=None)
            begin = time.process_time()
            torch.manual_seed(seed)
            model = make_model(width, SIZES[width], len(characters))
            history = train(model, training, round(million * 1e6 / (LESSON["LENGTH"] * LESSON["BATCH"])), seed)
            run = {"width": width, "weights": weights[width], "million": million, "seed": seed}
            run |= {"loss": LESSON["held_out_loss"](model, held_out), "seconds": round(time.process_time() - begin)}
            parts = torch.tensor(history).tensor_split(20)
            content["runs"].append(run | {"training": [round(part.mean().item(), 4) for part in parts if len(part)]})
            print(run, flush=True)
            save(args.results, content, indent=None)
    for told in content["predictions"]:
        found = " ".join(f"{statistics.mean(losses(width, told['million'])):.3f}" for width in SIZES)
        said = f"predicted {told['curve']:.3f}, straight line {told['straight line']:.3f}"
        print(f"{told['million']} million: {found}; {said}")


if __name__ == "__main__":
    main()
