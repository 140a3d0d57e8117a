"""The exercises of chapter 20, the paper, its code and today."""

from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.exercise import AnyOf, Exercise, WrongFormError, called, calls, on_paper

EXERCISES: dict[str, Exercise] = {}


def gated_width(d_model: int, d_ff: int, multiple: int) -> int:
    """Give the smallest multiple that makes a gated network as large as the paper's."""
    paper = 2 * d_model * d_ff + d_ff + d_model
    least = -(-paper // (3 * d_model))
    return -(-least // multiple) * multiple


EXERCISES["20.1"] = Exercise(
    "How wide a gate",
    right=gated_width,
    cases=called("d_model = {}, d_ff = {}, multiples of {}: ", (8, 75, 1), (5, 23, 1), (512, 2048, 256), (5, 20, 3)),
    mistakes={
        "the paper's network has biases, too: d_ff and d_model of them.": "+ d_ff + d_model →",
        "a gated network has three matrices.": "(3 * d_model) → (2 * d_model)",
        "round up, not down, to a width that is large enough.": "-(-paper // (3 * d_model)) → paper // (3 * d_model)",
        "round up to the next multiple, not down.": "-(-least // multiple) * multiple → least // multiple * multiple",
    },
)

EXERCISES["20.2"] = on_paper(
    "Two doors",
    [2.0, 2.0, 0.05, 0.0142],
    {
        "embeddings are multiplied by √d_model at the entrance.": (0, 0.1),
        "the sum of 400 products has √400 times the standard deviation of one.": AnyOf((1, 0.1), (1, 40.0)),
        "√d_model, not d_model: the variances add up, and the deviation is their root.": (2, 0.0025),
        "0.71 is for words with an r.m.s. of 1; these have 0.02.": (3, 0.71),
    },
    tolerance=1e-3,
)

WIDTH = 10
GENERATOR = torch.Generator().manual_seed(0)
EMBEDDING = torch.randn(6, WIDTH, dtype=torch.float64, generator=GENERATOR)
W_Q = torch.randn(4, WIDTH, dtype=torch.float64, generator=GENERATOR)


def to_interleaved(embedding: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Take the columns of the first half and of the second in turn."""
    order = torch.arange(embedding.size(1)).unflatten(0, (2, -1)).T.flatten()
    return embedding[:, order], weight[:, order]


EXERCISES["20.3"] = Exercise(
    "Move a model to the other layout",
    right=to_interleaved,
    cases={"width 10: ": calls(EMBEDDING, W_Q), "width 4: ": calls(EMBEDDING[:3, :4], W_Q[:2, :4])},
    mistakes={
        "the embedding is in the old order: it is added to the positions.": "embedding[:, order] → embedding",
        "the weight is in the old order: its columns meet the embedding.": "weight[:, order] → weight",
        "this is section 4's way, from sines and cosines in turn to sines first.": "(2, -1) → (-1, 2)",
    },
)

# Of the card's layer, by the number of a line: what departs from the paper, and what only looks so.
DEPARTURES = {
    5: "among the lines that make the matrices",
    17: "between the scores and the mixed values",
    19: "where a sub-layer's output is added",
    20: "in the feed-forward network",
}
IN_THE_PAPER = {
    6: "there is no bias in W^O.",
    7: "Eq. 2 has a bias, b₁.",
    8: "Eq. 2 has a bias, b₂.",
    9: "each sub-layer has a LayerNorm of its own; the paper gives no ε.",
    10: "each sub-layer has a LayerNorm of its own; the paper gives no ε.",
    13: "the product with one wide matrix, cut into three, is three products.",
    14: "to cut a wide product into heads is the same as h small products.",
    15: "to divide the queries is to divide the scores.",
    16: "−1e9 gives the same weights as −∞ wherever one key may be seen.",
    18: "the heads are concatenated, as in §3.2.2.",
    21: "this is LayerNorm(x + Dropout(Sublayer(x))), as in §5.4.",
}


def examine_lines(answer: Any) -> str | None:
    """Look for lines that are no departures, then for departures that are not listed."""
    if not isinstance(answer, list | tuple | set) or not all(type(line) is int for line in answer):
        raise WrongFormError("give a list of line numbers, such as [1, 2, 3, 4]", answer)
    for line in sorted({*answer} - DEPARTURES.keys()):
        why = IN_THE_PAPER.get(line, "nothing in it departs from the paper.")
        return f"line {line} is not one of them: {why}"
    missing = sorted(DEPARTURES.keys() - {*answer})
    if missing:
        return f"{len(missing)} of them not found yet. Look once more {DEPARTURES[missing[0]]}."
    return None


EXERCISES["20.4"] = Exercise(
    "Find the departures",
    right=[5, 17, 19, 20],
    examine=examine_lines,
    caught={
        "give a list of line numbers": ["5"],
        "line 16 is not one of them: −1e9": [5, 16, 17, 19, 20],
        "2 of them not found yet. Look once more where": [17, 5],
    },
)
