"""The exercises of chapter 02, multi-head attention."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated.attention import attention
from annotated.masking import padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated_course.exercises.exercise import Exercise, as_numbers, calls, each, form, is_same

EXERCISES: dict[str, Exercise] = {}

WEIGHTS = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
VALUES = torch.tensor([[4.0, 8.0, 1.0], [3.0, 4.0, 8.0]])
W_O = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
HEADS = torch.tensor([6.0, 7.0])
EXERCISES["02.1"] = Exercise(
    "Concatenate and project by hand",
    right=[27.0, 12.0, 7.0],
    cases={"": as_numbers},
    mistakes={
        "these are the two heads' outputs, concatenated. Now multiply by W^O.": HEADS,
        "the heads are in the wrong order: head 0 meets the first row of W^O.": HEADS.flip(0) @ W_O,
        "each head has its own weights: you used those of the other.": (WEIGHTS.flip(0) * VALUES).sum(-1) @ W_O,
        "both heads have the weights of head 0 here: each has its own.": (WEIGHTS[0] * VALUES).sum(-1) @ W_O,
        "these are the plain means of the values, projected: use the weights.": VALUES.mean(-1) @ W_O,
        "the outputs of the heads are not averaged; W^O adds their parts up.": HEADS @ W_O / 2,
        "this is the part of head 0 alone: add that of head 1.": HEADS[0] * W_O[0],
        "this is the part of head 1 alone: add that of head 0.": HEADS[1] * W_O[1],
    },
    tolerance=0.006,
    by_hand=True,
)

EXERCISES["02.2"] = Exercise(
    "Count the parameters",
    right=lambda d, h, k, v: 2 * d * h * (k + v),  # d_model, heads, d_k, d_v
    cases={
        "d_model=13, h=5, d_k=3, d_v=7: ": calls(13, 5, 3, 7),  # no other formula fits these sizes
        "d_model=512, h=8, d_k=64, d_v=64: ": calls(512, 8, 64, 64),
    },
    mistakes={
        "one of the four matrices is missing: query, key, value and output.": lambda d, h, k, v: 3 * d * h * k,
        "the output matrix W^O is missing: (h·d_v, d_model).": lambda d, h, k, v: d * h * (2 * k + v),
        "that is one head: every head has its own matrices.": lambda d, h, k, v: 2 * d * (k + v),
        "4·d_model² holds only where h·d_k = h·d_v = d_model.": lambda d, h, k, v: 4 * d**2,
        "W^V and W^O have the width of the values, d_v.": lambda d, h, k, v: 4 * d * h * k,
        "W^V has the width of the values, d_v.": lambda d, h, k, v: d * h * (3 * k + v),
        "without biases: the matrices alone.": lambda d, h, k, v: 2 * d * h * (k + v) + h * (2 * k + v) + d,
        "W^O leads back to d_model: it is (h·d_v, d_model).": lambda d, h, k, v: d * h * (2 * k + v) + (h * v) ** 2,
        "h is counted twice.": lambda d, h, k, v: 2 * d * h**2 * (k + v),
    },
)

EXERCISES["02.3"] = Exercise(
    "The way back, heads first",
    right=lambda heads: heads.permute(1, 2, 0, 3).flatten(2),
    cases={"": calls(torch.arange(3 * 2 * 5 * 4.0).view(3, 2, 5, 4))},
    mistakes={
        "a reshape alone deals the numbers out in index order, across heads and positions: exchange axes first.": (
            lambda heads: heads.reshape(2, 5, 12)
        ),
        "the batch comes first, but position and head are still in the wrong order: (batch, length, h, d_v).": (
            lambda heads: heads.transpose(0, 1).reshape(2, 5, 12)
        ),
        "the heads are interleaved: all of head 0 must come first, then all of head 1.": (
            lambda heads: heads.permute(1, 2, 3, 0).flatten(2)
        ),
        "the heads are summed; set them side by side.": lambda heads: heads.sum(0),
        "the axes are in the right order, but not yet joined.": lambda heads: heads.permute(1, 2, 0, 3),
        "the heads are joined along the positions; join them along the last axis.": (
            lambda heads: heads.transpose(0, 1).flatten(1, 2)
        ),
        "this is the mean over the heads; set them side by side.": lambda heads: heads.mean(0),
    },
)


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Draw tensors of the given shapes, the same ones every time; matrices have columns of about length 1."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) / math.sqrt(shape[-2]) for shape in shapes]


CONCATENATION = "this is the concatenation; multiply it by W_o."
ACROSS = "the merge cuts across positions: transpose head and position back before you join them."


def multi_head(
    finish=lambda heads, W_o: (heads @ W_o).sum(1), ask=lambda W_q: W_q, use=lambda mask: mask, factor=1.0, swap=False
) -> Any:
    """Multi-head attention with a way from the heads to the output, to use W_q and the mask, and who asks."""

    def answer(x_q, x_kv, W_q, W_k, W_v, W_o, mask):
        W_q, W_k = (W_k, W_q) if swap else (factor * ask(W_q), W_k)
        queries, keys, values = x_q[:, None] @ W_q, x_kv[:, None] @ W_k, x_kv[:, None] @ W_v
        return finish(attention(queries, keys, values, None if mask is None else use(mask)), W_o)

    return answer


STACKED = draw((2, 3, 13), (2, 5, 13), (4, 13, 7), (4, 13, 7), (4, 13, 6), (4, 6, 13))
PADDING = padding_mask(torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]))
PER_HEAD = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(1)) < torch.tensor([1, 0.5, 0.5, 0.5, 0.5])
STACKED_HEADS = {
    "these are the heads' outputs, not yet multiplied by W_o.": lambda heads, W: heads,
    CONCATENATION: lambda heads, W: heads.transpose(1, 2).flatten(2),
    "the parts of the heads are not yet added up (section 5).": torch.matmul,
    "the outputs of the heads are averaged; W_o adds them up.": lambda heads, W: (heads @ W).mean(1),
    "the heads are added up before W_o; each needs its own part of W_o first.": lambda heads, W: (
        heads.sum(1) @ W.sum(0)
    ),
    ACROSS: lambda heads, W: heads.reshape(2, 3, 24) @ W.flatten(0, 1),
    "the heads meet the parts of W_o in reverse order.": lambda heads, W: (heads @ W.flip(0)).sum(1),
    "this is head 0 alone: add the others.": lambda heads, W: heads[:, 0] @ W[0],
    "all heads ask with the matrix of head 0.": dict(ask=lambda W_q: W_q[:1].expand_as(W_q)),
    "the scores are divided by √d_model; it is √d_k, the width of one head.": dict(factor=math.sqrt(7 / 13)),
    "the scores are not scaled: `attention` does it, with the width of one head.": dict(factor=math.sqrt(7)),
    "the scores are scaled twice: `attention` divides by √d_k already.": dict(factor=1 / math.sqrt(7)),
    "queries and keys have changed places: x_q @ W_q asks.": dict(swap=True),
    "it has no effect.": dict(use=lambda mask: None),
    "it works the wrong way round: True = may attend.": dict(use=torch.logical_not),
}
EXERCISES["02.4"] = Exercise(
    "Multi-head attention from scratch",
    right=multi_head(),
    cases={
        "": calls(*STACKED, None),
        "right without a mask, but with a padding mask (batch, 1, 1, m): ": calls(*STACKED, PADDING),
        "right without a mask, but with a mask for each head: ": calls(*STACKED, PER_HEAD),
    },
    mistakes=each(multi_head, STACKED_HEADS),
)


def by_svd(root=1, left=1, right=0, swap=False) -> Any:
    """W_q and W_k from the singular value decomposition: the power of √d_k, and of s in either."""

    def answer(scores: Tensor, d_k: int) -> tuple[Tensor, Tensor]:
        U, s, Vh = torch.linalg.svd(scores.T if swap else scores)
        return math.sqrt(d_k) ** root * (U * s**left)[:, :d_k], (Vh.T * s**right)[:, :d_k]

    return answer


def head_made(pair: tuple[Tensor, Tensor]) -> Tensor:
    """Give the scores that W_q and W_k make."""
    W_q, W_k = pair
    return W_q @ W_k.T / math.sqrt(W_q.size(1))


SCORES_6, SCORES_7 = (3 * left @ right.T for left, right in (draw((6, 2), (6, 2)), draw((7, 3), (7, 3))))
MISSING = "the singular values are missing: U and V alone do not make the table"
TWICE = "the singular values are in twice: to one side only, or their root to either"
HEADS_TO_ORDER = {
    "the scores are too small by the factor √d_k: the head divides by it.": dict(root=0),
    "the scores are too large by the factor √d_k: the head divides by it once.": dict(root=2),
    "rows and columns are exchanged: queries and keys have changed places.": dict(swap=True),
    f"{MISSING}.": dict(root=0, left=0),
    f"{MISSING} (the factor √d_k is there).": dict(left=0),
    f"{TWICE}.": dict(root=0, right=1),
    f"{TWICE} (the factor √d_k is right).": dict(right=1),
}
EXERCISES["02.5"] = Exercise(
    "A head to order",
    right=by_svd(),
    cases={
        "n=7, d_k=5: W_q and W_k must both have the shape (7, 5): ": lambda answer: form(answer(SCORES_7, 5)),
        "n=6, d_k=2: ": lambda answer: head_made(answer(SCORES_6, 2)),
        "n=7, d_k=5: ": lambda answer: head_made(answer(SCORES_7, 5)),
    },
    mistakes={"return two tensors: W_q, W_k.": lambda scores, d_k: scores} | each(by_svd, HEADS_TO_ORDER),
    tolerance=1e-3,
)


def four_heads() -> MultiHeadAttention:
    """Build the module that a head is taken out of."""
    module = MultiHeadAttention(13, 4, d_k=3, d_v=5)
    drawn = draw((13, 12), (13, 12), (13, 20), (20, 13))
    module.load_state_dict({name: W.T for name, W in zip(module.state_dict(), drawn, strict=True)})
    return module


def cut(asked=0, other=0, only_W_o=False) -> Any:
    """Take out a head; where it is `asked`, take out another one, from all matrices or from W_o alone."""

    def answer(module: MultiHeadAttention, head: int) -> MultiHeadAttention:
        smaller = MultiHeadAttention(13, module.heads - 1, d_k=module.d_k, d_v=module.d_v)
        weights = {}
        for name, W in module.state_dict().items():
            axis = 1 if name == "W_o.weight" else 0
            gone = other if head == asked and (axis or not only_W_o) else head
            weights[name] = torch.cat([part for i, part in enumerate(W.chunk(module.heads, axis)) if i != gone], axis)
        smaller.load_state_dict(weights)
        return smaller

    return answer


def silenced(module: MultiHeadAttention, head: int) -> MultiHeadAttention:
    """Let a head write nothing, in the given module."""
    module.W_o.weight.data[:, 5 * head : 5 * (head + 1)] = 0
    return module


def leaves_given(answer: Any) -> list[bool]:
    """Tell whether the result is a module, and the given one as before."""
    module = four_heads()
    smaller = answer(module, 1)
    return [isinstance(smaller, nn.Module), is_same(module.state_dict(), four_heads().state_dict(), 0.0)]


TARGET, SOURCE = draw((2, 3, 13), (2, 6, 13))
SWAPS = [(head, other) for head in (1, 0, 3) for other in range(4) if other != head]
EXERCISES["02.6"] = Exercise(
    "Take out a head",
    right=cut(),
    cases={
        "": leaves_given,
        "with 4 heads, d_k=3 and d_v=5, three heads are left: ": (
            lambda answer: {name: tuple(one.shape) for name, one in answer(four_heads(), 1).named_parameters()}
        ),
    }
    | {
        f"without head {head}: ": (
            lambda answer, head=head: answer(four_heads(), head)(TARGET, SOURCE, SOURCE).detach()
        )
        for head in (1, 0, 3)
    },
    mistakes={
        "return a module.": lambda module, head: module.W_q.weight,
        "the given module has changed: copy its weights into a new one.": silenced,
    }
    | {f"another head is gone: head {other}, not {head}.": cut(head, other) for head, other in SWAPS}
    | {
        f"from W_q, W_k and W_v head {head} is gone, but from W_o head {other}.": cut(head, other, only_W_o=True)
        for head, other in SWAPS
    },
)


def grouped(
    of_keys=None, of_values=None, join=lambda heads: heads.transpose(1, 2).flatten(2), finish=torch.matmul, factor=1.0
) -> Any:
    """Attention with shared keys and values: the groups of the heads, and a way from the heads to the output."""

    def answer(x_q, x_kv, W_q, W_k, W_v, W_o, heads, groups):
        split = [(x_q @ W_q, heads), (x_kv @ W_k, groups), (x_kv @ W_v, groups)]
        queries, keys, values = (x.unflatten(-1, (parts, -1)).transpose(1, 2) for x, parts in split)
        own = [head * groups // heads for head in range(heads)]
        return finish(join(attention(factor * queries, keys[:, of_keys or own], values[:, of_values or own])), W_o)

    return answer


IN_TURN = [0, 1, 0, 1, 0, 1]
GROUPINGS = {
    "the heads take the groups in turn (1, 2, 1, 2, …); neighbouring heads share a group (1, 1, 1, 2, …).": (
        dict(of_keys=IN_TURN, of_values=IN_TURN)
    ),
    "all heads use the first group.": dict(of_keys=[0] * 6, of_values=[0] * 6),
    "keys and values of a head come from different groups.": dict(of_values=IN_TURN),
    "the values of a head come from another group than its keys.": dict(of_keys=IN_TURN),
    CONCATENATION: dict(finish=lambda joined, W_o: joined),
    ACROSS: dict(join=lambda heads: heads.reshape(2, 3, 24)),
    "the heads are joined in the wrong order: heads of a group are neighbours, group after group.": (
        dict(join=lambda heads: heads[:, [0, 3, 1, 4, 2, 5]].transpose(1, 2).flatten(2))
    ),
    "the scores are not scaled: divide by √d_k.": dict(factor=math.sqrt(7)),
}
EXERCISES["02.7"] = Exercise(
    "Shared keys and values",
    right=grouped(),
    cases={
        f"6 heads, {groups} groups: ": calls(
            *draw((2, 3, 13), (2, 5, 13), (13, 42), (13, 7 * groups), (13, 4 * groups), (24, 13)), 6, groups
        )
        for groups in (2, 1, 6)
    },
    mistakes=each(grouped, GROUPINGS),
)
