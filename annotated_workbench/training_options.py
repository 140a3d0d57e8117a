"""How to train: the options, and what is chosen where one is not given (§5)."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from annotated_workbench.limits import BATCH_TOKENS, COUNT, LARGEST_BATCH, MINUTES, RATE, SEED, SHARE

SCHEDULES = ("noam", "linear")
UPDATES, LEAST_EPOCHS, WARMUP = 3800, 5, 1000  # of a run whose length is not given


@dataclass(frozen=True)
class TrainingOptions:
    """How to train. Defaults are the paper's where a small corpus allows it (§5).

    The metadata of a field are what argparse needs to know of the option of `train`. The paper has 25,000 ids a side in
    a batch (§5.1), the "noam" schedule with a warm-up of 4,000 updates and no factor on the rate (§5.3), a smoothing
    ε_ls of 0.1 (§5.4), and averages 5 or 20 checkpoints (§6.1). `length_of` chooses epochs, warm-up and rate where
    they are None. `bf16` computes products in bfloat16; `plain` validates by the paper's own files, too, and takes a
    batch an update.

    Raises:
        ValueError: a number that makes no sense; the message says which.
    """

    epochs: int | None = field(
        default=None, metadata=dict(type=COUNT, help="passes over the training pairs at most; follows from the corpus")
    )
    max_minutes: float | None = field(
        default=None, metadata=dict(type=MINUTES, help="minutes of training at most, validation included")
    )
    batch_tokens: int = field(
        default=4096,
        metadata=dict(type=BATCH_TOKENS, help="ids a side in a batch, padding included; follows from the corpus"),
    )
    accumulate: int = field(default=1, metadata=dict(type=COUNT, default=1, help="batches per update"))
    schedule: str = field(
        default="noam",
        metadata=dict(
            choices=SCHEDULES,
            help="of the learning rate: the paper's, or linear to 0 where epochs or minutes end (with --resume and "
            "more of them, it jumps up); follows from the task",
        ),
    )
    warmup: int | None = field(
        default=None, metadata=dict(type=COUNT, help="updates until the highest rate; follows from the corpus")
    )
    rate: float | None = field(
        default=None, metadata=dict(type=RATE, help="factor on the paper's learning rate; 1, or less in a short run")
    )
    smoothing: float = field(default=0.1, metadata=dict(type=SHARE, help="label smoothing; follows from the task"))
    average: int = field(
        default=5,
        metadata=dict(type=COUNT, help="last checkpoints, one an epoch, to average; follows from the task"),
    )
    seed: int = field(
        default=0, metadata=dict(type=SEED, default=0, help="of weights, batches and dropout, or of what is drawn")
    )
    bf16: bool = False
    plain: bool = field(
        default=False,
        metadata=dict(
            action="store_true", help="compute by the paper's own files as they are printed: slower, in float32"
        ),
    )

    def __post_init__(self):
        for name in ("epochs", "max_minutes", "batch_tokens", "accumulate", "warmup", "rate", "average"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be above 0 and finite.")
        if self.batch_tokens > LARGEST_BATCH:
            raise ValueError(f"batch_tokens={self.batch_tokens} must be at most {LARGEST_BATCH}: use --accumulate.")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is unknown: choose from {', '.join(SCHEDULES)}.")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1.")
        if self.plain and (self.bf16 or self.accumulate > 1):
            raise ValueError(
                "plain training computes in float32, a batch an update: leave --precision bf16 and --accumulate."
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must lie in 0 … {2**32 - 1}.")


def defaults_for(pairs: int) -> dict[str, Any]:
    """Choose sizes by the number of training pairs: the fewer, the smaller the model, its vocabulary and its batches.

    Tried with the first 400, 3,000, 12,000 and all 29,000 pairs of Multi30k and ten minutes of two cores, one seed
    (`experiments/corpus_size.py`). Where the small model begins is a guess between 12,000 and 29,000; as it takes four
    times as long over a token, it gets smaller batches, so that ten minutes hold enough updates.

    Args:
        pairs: number of training pairs.

    Returns:
        The command line's options by name: preset, vocab_size, batch_tokens and dropout.
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

    The highest rate stays that of a warm-up of `WARMUP`: with a higher one the paper's post-norm layers are stuck.

    Args:
        options: how to train.
        updates: number of updates in an epoch.
    """
    epochs = options.epochs or max(LEAST_EPOCHS, math.ceil(UPDATES / updates))
    warmup = options.warmup or min(WARMUP, max(1, epochs * updates // 3))
    rate = options.rate or (math.sqrt(warmup / WARMUP) if options.warmup is None else 1.0)
    return Length(epochs, warmup, rate)
