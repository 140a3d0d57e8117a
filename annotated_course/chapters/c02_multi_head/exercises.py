"""The exercises of chapter 02, multi-head attention."""

import math
from typing import Any

import torch
from torch import Tensor

from annotated.attention import attention
from annotated.masking import padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated_course.exercises.exercise import Exercise, by_hand, calls, is_same

EXERCISES: dict[str, Exercise] = {}
WEIGHTS = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
VALUES = torch.tensor([[4.0, 8.0, 1.0], [3.0, 4.0, 8.0]])
W_O = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
HEADS = torch.tensor([6.0, 7.0])
EXERCISES["02.1"] = by_hand(
    "Concatenate and project by hand",
    [27.0, 12.0, 7.0],
    {
        "these are the two heads' outputs, concatenated. Now multiply by W^O.": HEADS,
        "the heads are in the wrong order: head 0 meets the first row of W^O.": HEADS.flip(0) @ W_O,
        "both heads have the weights of head 0 here: each has its own.": (WEIGHTS[0] * VALUES).sum(-1) @ W_O,
        "this is the part of head 0 alone: add that of head 1.": HEADS[0] * W_O[0],
    },
)

EXERCISES["02.2"] = Exercise(
    "Count the parameters",
    right=lambda d, h, k, v: 2 * d * h * (k + v),  # d_model, heads, d_k, d_v
    cases={
        "d_model=13, h=5, d_k=3, d_v=7: ": calls(13, 5, 3, 7),  # no other formula fits these sizes
        "d_model=512, h=8, d_k=64, d_v=64: ": calls(512, 8, 64, 64),
    },
    mistakes={
        "the output matrix W^O is missing: (h·d_v, d_model).": lambda d, h, k, v: d * h * (2 * k + v),
        "that is one head: every head has its own matrices.": lambda d, h, k, v: 2 * d * (k + v),
        "4·d_model² holds only where h·d_k = h·d_v = d_model.": lambda d, h, k, v: 4 * d**2,
        "W^V and W^O have the width of the values, d_v.": lambda d, h, k, v: 4 * d * h * k,
        "without biases: the matrices alone.": lambda d, h, k, v: 2 * d * h * (k + v) + h * (2 * k + v) + d,
    },
    forbids="annotated torch.nn: the sizes alone tell the entries of the four matrices.",
)


def heads_last(heads: Tensor) -> Tensor:
    """Set the outputs of the heads (heads, batch, length, d_v) side by side."""
    return heads.permute(1, 2, 0, 3).flatten(2)


EXERCISES["02.3"] = Exercise(
    "The way back, heads first",
    right=heads_last,
    cases={"": calls(torch.arange(3 * 2 * 5 * 4.0).view(3, 2, 5, 4))},
    mistakes={
        "a reshape alone deals out across heads and positions: exchange axes first.": (
            "permute(1, 2, 0, 3).flatten(2) → reshape(2, 5, 12)"
        ),
        "the batch comes first, but position and head are still in the wrong order: (batch, length, h, d_v).": (
            "permute(1, 2, 0, 3).flatten(2) → transpose(0, 1).reshape(2, 5, 12)"
        ),
        "the heads are interleaved: all of head 0 must come first, then all of head 1.": "2, 0, 3 → 2, 3, 0",
    },
    forbids="cat concat concatenate hstack column_stack loop: exchange axes, then join two of them.",
)


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Draw tensors of the given shapes, the same ones every time; matrices have columns of about length 1."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) / math.sqrt(shape[-2]) for shape in shapes]


CONCATENATION = "this is the concatenation; multiply it by W_o."
ACROSS = "the merge cuts across positions: transpose head and position back before you join them."


def multi_head(x_q, x_kv, W_q, W_k, W_v, W_o, mask) -> Tensor:
    """Multi-head attention with a matrix for each head."""
    queries, keys, values = x_q[:, None] @ W_q, x_kv[:, None] @ W_k, x_kv[:, None] @ W_v
    heads = attention(queries, keys, values, mask)
    return (heads @ W_o).sum(1)


STACKED = draw((2, 3, 13), (2, 5, 13), (4, 13, 7), (4, 13, 7), (4, 13, 6), (4, 6, 13))
PADDING = padding_mask(torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]))
PER_HEAD = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(1)) < torch.tensor([1, 0.5, 0.5, 0.5, 0.5])
EXERCISES["02.4"] = Exercise(
    "Multi-head attention from scratch",
    right=multi_head,
    cases={
        "": calls(*STACKED, None),
        "right without a mask, but with a padding mask (batch, 1, 1, m): ": calls(*STACKED, PADDING),
        "right without a mask, but with a mask for each head: ": calls(*STACKED, PER_HEAD),
    },
    mistakes={
        CONCATENATION: "(heads @ W_o).sum(1) → heads.transpose(1, 2).flatten(2)",
        ACROSS: "(heads @ W_o).sum(1) → heads.reshape(2, 3, 24) @ W_o.flatten(0, 1)",
        "it has no effect.": "values, mask) → values)",
        "it works the wrong way round: True = may attend.": "values, mask) → values, None if mask is None else ~mask)",
    },
    forbids="view reshape unflatten flatten cat concat concatenate annotated.multi_head loop: let a product broadcast.",
)


def by_svd(scores: Tensor, d_k: int) -> tuple[Tensor, Tensor]:
    """W_q and W_k from the singular value decomposition."""
    U, s, Vh = torch.linalg.svd(scores)
    return math.sqrt(d_k) * (U * s)[:, :d_k], Vh.T[:, :d_k]


def head_made(pair: tuple[Tensor, Tensor]) -> Tensor:
    """Give the scores that W_q and W_k make."""
    W_q, W_k = pair
    return W_q @ W_k.T / math.sqrt(W_q.size(1))


SCORES_6, SCORES_7 = (3 * left @ right.T for left, right in (draw((6, 2), (6, 2)), draw((7, 3), (7, 3))))
EXERCISES["02.5"] = Exercise(
    "A head to order",
    right=by_svd,
    cases={
        "n=7, d_k=5, the shapes of W_q and W_k: ": lambda answer: [tuple(W.shape) for W in answer(SCORES_7, 5)],
        "n=6, d_k=2: ": lambda answer: head_made(answer(SCORES_6, 2)),
        "n=7, d_k=5: ": lambda answer: head_made(answer(SCORES_7, 5)),
    },
    mistakes={
        "the scores are too small by the factor √d_k: the head divides by it.": "math.sqrt(d_k) * →",
        "the scores are too large by the factor √d_k: the head divides by it once.": "math.sqrt(d_k) → d_k",
        "the singular values are missing: U and V alone do not make the table.": "math.sqrt(d_k) * (U * s) → U",
        "the singular values are in twice: one side is enough.": "math.sqrt(d_k) * →; Vh.T → (Vh.T * s)",
    },
    tolerance=1e-3,
)


def four_heads() -> MultiHeadAttention:
    """Build the module that a head is taken out of."""
    module = MultiHeadAttention(13, 4, d_k=3, d_v=5)
    drawn = draw((13, 12), (13, 12), (13, 20), (20, 13))
    module.load_state_dict({name: W.T for name, W in zip(module.state_dict(), drawn, strict=True)})
    return module


def cut(module: MultiHeadAttention, head: int) -> MultiHeadAttention:
    """Take out a head."""
    smaller = MultiHeadAttention(13, module.heads - 1, d_k=module.d_k, d_v=module.d_v)
    weights = {}
    for name, W in module.state_dict().items():
        axis = 1 if name == "W_o.weight" else 0
        parts = W.chunk(module.heads, axis)
        weights[name] = torch.cat([part for i, part in enumerate(parts) if i != head], axis)
    smaller.load_state_dict(weights)
    return smaller


def silenced(module: MultiHeadAttention, head: int) -> MultiHeadAttention:
    """Let a head write nothing, in the given module."""
    module.W_o.weight.data[:, 5 * head : 5 * (head + 1)] = 0
    return module


def leaves_given(answer: Any) -> bool:
    """Tell whether the given module is as before."""
    module = four_heads()
    answer(module, 1)
    return is_same(module.state_dict(), four_heads().state_dict(), 0.0)


TARGET, SOURCE = draw((2, 3, 13), (2, 6, 13))
EXERCISES["02.6"] = Exercise(
    "Take out a head",
    right=cut,
    cases={
        "": leaves_given,
        "with 4 heads, d_k=3 and d_v=5, three heads are left: ": (
            lambda answer: {name: tuple(one.shape) for name, one in answer(four_heads(), 1).named_parameters()}
        ),
    }
    | {
        f"without head {head}: ": lambda answer, head=head: answer(four_heads(), head)(TARGET, SOURCE, SOURCE).detach()
        for head in (1, 0, 3)
    },
    mistakes={
        "the given module has changed: copy its parameters into a new one.": silenced,
        "another head is gone: they are counted from 0.": "!= head → != 3 - head",
        "from W_o another head is gone than from the others.": "i != head → i != (3 - head if axis else head)",
    },
)
