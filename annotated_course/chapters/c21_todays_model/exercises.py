"""The exercises of chapter 21, today's model."""

import math

import torch
from torch import Tensor

from annotated_course.exercises.exercise import AnyOf, Exercise, calls, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["21.1"] = on_paper(
    "A config on paper",
    [3672, 48, 8088, 5208],
    {
        "the matrices for words and logits are two here: nothing is tied.": (0, 2872),
        "the RMSNorms have gains: two of them in each layer, and one at the end.": AnyOf((0, 3616), (0, 3664)),
        "W^K and W^V make keys and values for two groups, not for four heads.": (0, 3864),
        "a gated network has three matrices.": (0, 3192),
        "count groups, not heads: the four heads share two keys and two values.": (1, 96),
        "a token leaves a key *and* a value.": (1, 24),
        "16 bits are 2 bytes.": (1, 24 * 16),
        "each layer has a router, too, with a row for each expert.": AnyOf((2, 7992), (3, 5112)),
    },
)


def cache_bytes(layers: int, d_model: int, heads: int, groups: int, d_k: int | None, tokens: int, each: int) -> int:
    """Count what a decoder keeps: keys and values of each layer and group."""
    width = d_k or d_model // heads
    return 2 * layers * groups * width * tokens * each


EXERCISES["21.2"] = Exercise(
    "What Llama keeps",
    right=cache_bytes,
    cases={
        "Llama 3 with 8 billion parameters, 8,192 tokens: ": calls(32, 4096, 32, 8, None, 8192, 2),
        "3 layers, d_model = 20, 10 heads, 5 groups, 7 tokens of 4 bytes: ": calls(3, 20, 10, 5, None, 7, 4),
        "the same with d_k = 11: ": calls(3, 20, 10, 5, 11, 7, 4),
    },
    mistakes={
        "each group keeps keys and values: twice as many.": "2 * layers → layers",
        "the heads of a group share: count groups, not heads.": "* groups * width → * heads * width",
        "a head is d_model / heads wide, whatever the groups.": "d_model // heads → d_model // groups",
        "d_k is given here, and need not be d_model / heads.": "d_k or d_model // heads → d_model // heads",
    },
)

GENERATOR = torch.Generator().manual_seed(0)
QUERIES = torch.randn(6, 5, 4, dtype=torch.float64, generator=GENERATOR)
KEYS, VALUES = torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=GENERATOR)


def grouped(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Let the heads of a group meet its one key together."""
    length, d_k = queries.shape[1:]
    queries = queries.unflatten(0, (len(keys), -1))
    scores = queries @ keys[:, None].mT / math.sqrt(d_k)
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
    return (scores.softmax(dim=-1) @ values[:, None]).flatten(0, 1)


EXERCISES["21.3"] = Exercise(
    "Share without copying",
    right=grouped,
    cases={
        "6 heads, 3 groups: ": calls(QUERIES, KEYS, VALUES),
        "6 heads, 1 group: ": calls(QUERIES, KEYS[:1], VALUES[:1]),
        "3 heads, 3 groups: ": calls(QUERIES[:3], KEYS, VALUES),
    },
    mistakes={
        "neighbouring heads share: 0 and 1 read group 0, and so on.": (
            "queries.unflatten(0, (len(keys), -1)) → queries.unflatten(0, (-1, len(keys))).transpose(0, 1); "
            "values[:, None]) → values[:, None]).transpose(0, 1)"
        ),
        "a position must not see later ones.": ".triu(1) → .triu(length)",
        "scores are divided by √d_k.": " / math.sqrt(d_k) → ",
        "the root is that of a key's width, not of the text's length.": "math.sqrt(d_k) → math.sqrt(length)",
    },
    forbids="repeat_interleave repeat loop: let broadcasting do it, with an axis of 1 in keys and values.",
)

W_K = torch.randn(24, 5, dtype=torch.float64, generator=GENERATOR)


def to_groups(weight: Tensor, heads: int, groups: int) -> Tensor:
    """Give each group the mean of its heads' matrices."""
    return weight.unflatten(0, (groups, heads // groups, -1)).mean(dim=1).flatten(0, 1)


EXERCISES["21.4"] = Exercise(
    "Heads into groups",
    right=to_groups,
    cases={"6 heads, 3 groups: ": calls(W_K, 6, 3), "8 heads, 2 groups: ": calls(W_K, 8, 2)},
    mistakes={
        "neighbouring heads share: 0 and 1 become group 0, and so on.": (
            "(groups, heads // groups, -1) → (heads // groups, groups, -1); dim=1 → dim=0"
        ),
        "take the mean of the heads, not their sum.": "mean → sum",
        "take the mean of all heads of a group, not the first of them.": ".mean(dim=1) → [:, 0]",
        "a head is a block of neighbouring rows.": (
            "(groups, heads // groups, -1)).mean(dim=1) → (groups, -1, heads // groups)).mean(dim=2)"
        ),
    },
)

SCORES = torch.randn(50, 4, dtype=torch.float64, generator=GENERATOR) + torch.tensor([1.0, 0, 0, -1])


def level(scores: Tensor, chosen: int, step: float, rounds: int) -> Tensor:
    """Make the crowded experts less attractive, and the idle ones more."""
    bias = torch.zeros_like(scores[0])
    for _ in range(rounds):
        picked = (scores + bias).topk(chosen, dim=1).indices
        load = picked.flatten().bincount(minlength=len(bias)).double()
        bias = bias - step * (load - load.mean()).sign()
    return bias


EXERCISES["21.5"] = Exercise(
    "No favourites",
    right=level,
    cases={
        "one round: ": calls(SCORES, 2, 0.1, 1),
        "a hundred rounds: ": calls(SCORES, 2, 0.01, 100),
        "one expert for each token: ": calls(SCORES, 1, 0.03, 60),
    },
    mistakes={
        "an expert with too many tokens must become less attractive, not more.": "bias - step → bias + step",
        "from the second round on the biases take part in the choice.": "(scores + bias) → scores",
        "each bias moves by the same step, however far its load is off.": ".sign() → ",
        "compare with the mean load, not with none.": "(load - load.mean()) → load",
    },
)
