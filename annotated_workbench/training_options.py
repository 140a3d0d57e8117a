"""How to train: the options, and what is chosen where one is not given (§5)."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from annotated_workbench.limits import BATCH_TOKENS, COUNT, MINUTES, RATE, SEED, SHARE

SCHEDULES = ("noam", "linear")
UPDATES, LEAST_EPOCHS, WARMUP = 3800, 5, 1000  # of a run whose length is not given


def _option(value: Any, text: str, kind: Any = None, **words: Any) -> Any:
    """Make a field with its default here, and with what argparse needs to know of the option of `train`."""
    return field(default=value, metadata=words | {"help": text} | ({"type": kind} if kind else {}))


@dataclass(frozen=True)
class TrainingOptions:
    """How to train. Defaults are the paper's where a small corpus allows it (§5).

    The paper has 25,000 ids a side in a batch (§5.1), the "noam" schedule with a warm-up of 4,000 updates and no factor
    on the rate (§5.3), a smoothing ε_ls of 0.1 (§5.4), and averages 5 or 20 checkpoints (§6.1). `length_of` chooses
    epochs, warm-up and rate where they are None. `plain` trains and validates by the paper's own files.
    """

    epochs: int | None = _option(None, "passes over the training pairs at most; follows from the corpus", COUNT)
    patience: int | None = _option(
        None, "end after so many epochs without a better score in validation; no such end unless given", COUNT
    )
    max_minutes: float | None = _option(None, "minutes of training at most, validation included", MINUTES)
    batch_tokens: int = _option(4096, "ids a side in a batch, padding included; follows from the corpus", BATCH_TOKENS)
    accumulate: int = _option(1, "batches per update", COUNT, default=1)
    schedule: Literal["noam", "linear"] = _option(
        "noam",
        "of the learning rate: the paper's, or linear to 0 where epochs or minutes end (with --resume and more of "
        "them, it jumps up); follows from the task",
        choices=SCHEDULES,
    )
    warmup: int | None = _option(None, "updates until the highest rate; follows from the corpus", COUNT)
    rate: float | None = _option(
        None, "factor on the paper's learning rate; 1, or less with a short warm-up, so that it gets no higher", RATE
    )
    smoothing: float = _option(0.1, "label smoothing; follows from the task", SHARE)
    average: int = _option(5, "last checkpoints, one an epoch, to average; follows from the task", COUNT)
    seed: int = _option(0, "of weights, batches and dropout, or of what is drawn", SEED, default=0)
    plain: bool = _option(
        False, "compute by the paper's own files as they are printed: slower, in float32", action="store_true"
    )
    bf16: bool = False

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is unknown: choose from {', '.join(SCHEDULES)}.")


def defaults_for(pairs: int) -> dict[str, Any]:
    """Choose options of `train` by the number of training pairs: the fewer, the smaller model, vocabulary and batches.

    Tried with the first 400, 3,000, 12,000 and all 29,000 pairs of Multi30k and ten minutes of two cores, one seed
    (`experiments/corpus_size.py`). Where the small model begins is a guess between 12,000 and 29,000; as it takes four
    times as long over a token, it gets smaller batches, so that ten minutes hold enough updates.
    """
    root = math.sqrt(pairs)
    if pairs >= 20_000:
        return {"preset": "small", "vocab_size": 6000, "batch_tokens": 2048, "dropout": 0.1}
    return {
        "preset": "tiny",
        "vocab_size": min(6000, max(500, round(60 * root))),
        "batch_tokens": max(256, round(25 * root)),
        "dropout": 0.3 if pairs < 10_000 else 0.2,
    }


class Length(NamedTuple):
    """What `TrainingOptions` may leave open: epochs, updates of warm-up, and the factor on the learning rate."""

    epochs: int
    warmup: int
    rate: float


def length_of(options: TrainingOptions, updates: int) -> Length:
    """Choose epochs, warm-up and rate where they are not given: as many updates in all, whatever the corpus.

    The highest rate stays that of a warm-up of `WARMUP` where the warm-up is shorter, given or not: with a higher one
    the paper's post-norm layers are stuck. `updates` are those of an epoch.
    """
    epochs = options.epochs or max(LEAST_EPOCHS, math.ceil(UPDATES / updates))
    warmup = options.warmup or min(WARMUP, max(1, epochs * updates // 3))
    return Length(epochs, warmup, options.rate or math.sqrt(min(warmup, WARMUP) / WARMUP))
