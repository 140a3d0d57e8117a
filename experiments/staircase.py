"""What each step of 13_speed gains in 32 bits: one update in CPU seconds and in memory, and under `torch.compile`.

    python -m experiments.staircase [data/results/staircase.json] [--turns 12] [--pairs 240]

The steps are the lesson's own: its cells with the tag "staircase" are run. The smallest CPU time counts: what other
processes do can only make it longer. The lesson draws the file in *Deeper*.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from annotated.fast import training as fast
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import DATA_FOLDER
from experiments.contest import Call, contest
from experiments.contestants import RATE, batch
from experiments.results import about, names_of_lesson, save
from experiments.speed import SENTENCES, SMALL, TOKENS


def main() -> None:
    """Time all rungs in turns, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA_FOLDER / "results" / "staircase.json")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=SENTENCES)
    given = parser.parse_args()
    times = contest({name: partial(make, given.pairs) for name, make in RUNGS.items()}, given.turns)
    command, origin = f"python -m experiments.staircase --turns {given.turns} --pairs {given.pairs}", about()
    result = {"command": command, "machine": f"{origin.pop('processor')}, one thread", **origin}
    result["rungs"] = {
        name: {"seconds": round(min(rung.cpu), 4), "megabytes": round(rung.megabytes)} for name, rung in times.items()
    }
    save(given.file, result)


def of_lesson(pairs: int, *, change: str | None = None) -> Call:
    """Make the lesson's update, whose loss is in chunks; with the name of a change, of a model changed by it."""
    steps = names_of_lesson("13_speed.ipynb", "staircase")
    return update(steps["chunked_step"], pairs, change=steps[change] if change else lambda model: None)


def update(
    step: Callable[..., float],
    pairs: int,
    *,
    change: Callable[[Any], None] = lambda model: None,
    optimizer: Callable[..., torch.optim.Optimizer] = make_optimizer,
    wrap: Callable[[Any], Any] = lambda model: model,
) -> Call:
    """Make an update of a new model, which was changed before and is wrapped for the step."""
    model = Transformer(SMALL)
    change(model)
    return partial(step, wrap(model), *batch(SMALL, pairs, TOKENS), optimizer(model, RATE))


RUNGS: dict[str, Callable[[int], Call]] = {
    "the plain form": partial(update, train_step),
    "the loss in chunks": of_lesson,
    "dropout, sum and norm": partial(of_lesson, change="fewer_passes"),
    "annotated.fast": partial(update, fast.train_step, optimizer=fast.make_optimizer),
    "torch.compile": partial(update, train_step, wrap=torch.compile),
}


if __name__ == "__main__":
    main()
