"""The exercises of chapter 02, multi-head attention."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated.attention import attention
from annotated.masking import padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated_course.exercises.diagnosis import Exercise, compare


def project_by_hand(answer: Any) -> str | None:
    """Heads 6 and 7, through the matrix (1, 2, 0), (3, 0, 1)."""
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    values = torch.tensor([[4.0, 8.0, 1.0], [3.0, 4.0, 8.0]])
    W_o = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
    heads = (weights * values).sum(-1)
    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        heads @ W_o,
        {
            "these are the two heads' outputs, concatenated. Now multiply by W^O.": heads,
            "the heads are in the wrong order: head 0 meets the first row of W^O.": heads.flip(0) @ W_o,
            "each head has its own weights: you used those of the other.": (weights.flip(0) * values).sum(-1) @ W_o,
            "both heads have the weights of head 0 here: each has its own.": (weights[0] * values).sum(-1) @ W_o,
            "these are the plain means of the values, projected: use the weights.": values.mean(-1) @ W_o,
            "the outputs of the heads are not averaged; W^O adds their parts up.": heads @ W_o / 2,
            "this is the part of head 0 alone: add that of head 1.": heads[0] * W_o[0],
            "this is the part of head 1 alone: add that of head 0.": heads[1] * W_o[1],
        },
        tolerance=0.006,
        by_hand=True,
    )


def count_parameters(answer: Callable[..., int]) -> str | None:
    """d_model · h · (2 d_k + 2 d_v), on sizes that no other formula fits."""
    for d_model, heads, d_k, d_v in ((13, 5, 3, 7), (512, 8, 64, 64)):
        count = answer(d_model, heads, d_k, d_v)
        if count is None:
            return "your function returned None: does it end in a return?"
        if isinstance(count, bool) or not isinstance(count, int | float):
            return f"expected a number, got {type(count).__name__}."
        expected = 2 * d_model * heads * (d_k + d_v)
        if count == expected:
            continue
        mistakes = {
            3 * d_model * heads * d_k: "one of the four matrices is missing: query, key, value and output.",
            d_model * heads * (2 * d_k + d_v): "the output matrix W^O is missing: (h·d_v, d_model).",
            2 * d_model * (d_k + d_v): "that is one head: every head has its own matrices.",
            4 * d_model**2: "4·d_model² holds only where h·d_k = h·d_v = d_model.",
            4 * d_model * heads * d_k: "W^V and W^O have the width of the values, d_v.",
            d_model * heads * (3 * d_k + d_v): "W^V has the width of the values, d_v.",
            expected + heads * (2 * d_k + d_v) + d_model: "without biases: the matrices alone.",
            d_model * heads * (2 * d_k + d_v) + heads**2 * d_v**2: "W^O leads back to d_model: it is (h·d_v, d_model).",
            heads * expected: "h is counted twice.",
        }
        general = f"expected {expected}, got {count:g}."
        return f"d_model={d_model}, h={heads}, d_k={d_k}, d_v={d_v}: {mistakes.get(count, general)}"
    return None


def merge_heads(answer: Callable[..., Tensor]) -> str | None:
    """(h, batch, length, d_v) to (batch, length, h·d_v), on numbered entries."""
    heads = torch.arange(3 * 2 * 5 * 4.0).view(3, 2, 5, 4)
    mistakes = {
        "a reshape alone deals the numbers out in index order, across heads and positions: exchange axes first.": (
            heads.reshape(2, 5, 12)
        ),
        "the batch comes first, but position and head are still in the wrong order: (batch, length, h, d_v).": (
            heads.transpose(0, 1).reshape(2, 5, 12)
        ),
        "the heads are interleaved: all of head 0 must come first, then all of head 1.": (
            heads.permute(1, 2, 3, 0).flatten(2)
        ),
        "the heads are summed; set them side by side.": heads.sum(0),
        "the axes are in the right order, but not yet joined.": heads.permute(1, 2, 0, 3),
        "the heads are joined along the positions; join them along the last axis.": (
            heads.transpose(0, 1).flatten(1, 2)
        ),
        "this is the mean over the heads; set them side by side.": heads.mean(0),
    }
    return compare(answer(heads.clone()), heads.permute(1, 2, 0, 3).flatten(2), mistakes)


def multi_head_from_scratch(answer: Callable[..., Tensor]) -> str | None:
    """§3.2.2 with stacked matrices and unequal sizes; without a mask, with padding, and with a mask for each head."""
    batch, n, m, heads, d_model, d_k, d_v = 2, 3, 5, 4, 13, 7, 6
    x_q, x_kv, W_q, W_k, W_v, W_o = matrices(
        (batch, n, d_model),
        (batch, m, d_model),
        (heads, d_model, d_k),
        (heads, d_model, d_k),
        (heads, d_model, d_v),
        (heads, d_v, d_model),
    )
    W_q, W_k, W_v, W_o = (W / math.sqrt(W.size(1)) for W in (W_q, W_k, W_v, W_o))

    def mixed(mask: Tensor | None = None, factor: float = 1.0, W_q: Tensor = W_q, W_k: Tensor = W_k) -> Tensor:
        return attention(factor * x_q[:, None] @ W_q, x_kv[:, None] @ W_k, x_kv[:, None] @ W_v, mask)

    def right(mask: Tensor | None = None, factor: float = 1.0) -> Tensor:
        return (mixed(mask, factor) @ W_o).sum(1)

    joined = W_o.flatten(0, 1)
    mistakes = {
        "these are the heads' outputs, not yet multiplied by W_o.": mixed(),
        "this is the concatenation; multiply it by W_o.": mixed().transpose(1, 2).flatten(2),
        "the parts of the heads are not yet added up (section 5).": mixed() @ W_o,
        "the outputs of the heads are averaged; W_o adds them up.": (mixed() @ W_o).mean(1),
        "the heads are added up before W_o; each needs its own part of W_o first.": (mixed().sum(1)[:, None] @ W_o).sum(
            1
        ),
        "the merge cuts across positions: transpose head and position back before you join them.": (
            mixed().reshape(batch, n, -1) @ joined
        ),
        "the heads meet the parts of W_o in reverse order.": (mixed() @ W_o.flip(0)).sum(1),
        "queries and keys have changed places: x_q @ W_q asks.": (mixed(W_q=W_k, W_k=W_q) @ W_o).sum(1),
        "this is head 0 alone: add the others.": mixed()[:, 0] @ W_o[0],
        "all heads ask with the matrix of head 0.": (mixed(W_q=W_q[:1].expand_as(W_q)) @ W_o).sum(1),
        "the scores are divided by √d_model; it is √d_k, the width of one head.": right(
            factor=math.sqrt(d_k / d_model)
        ),
        "the scores are not scaled: `attention` does it, with the width of one head.": right(factor=math.sqrt(d_k)),
        "the scores are scaled twice: `attention` divides by √d_k already.": right(factor=d_k**-0.5),
    }
    diagnosis = compare(answer(x_q, x_kv, W_q, W_k, W_v, W_o, None), right(), mistakes)
    if diagnosis:
        return diagnosis
    ids = torch.tensor([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]])
    per_head = torch.rand(batch, heads, n, m, generator=torch.Generator().manual_seed(1)) < 0.5
    per_head[..., 0] = True
    for name, mask in (("a padding mask (batch, 1, 1, m)", padding_mask(ids)), ("a mask for each head", per_head)):
        masked = {
            f"right without a mask, but {name} has no effect.": right(),
            f"right without a mask, but {name} works the wrong way round: True = may attend.": right(~mask),
        }
        diagnosis = compare(answer(x_q, x_kv, W_q, W_k, W_v, W_o, mask), right(mask), masked)
        if diagnosis:
            return diagnosis if diagnosis in masked else f"right without a mask, but with {name}: {diagnosis}"
    return None


def head_to_order(answer: Callable[..., tuple[Tensor, Tensor]]) -> str | None:
    """W_q and W_k of a given width whose head makes a given table of scores."""
    for n, rank, d_k in ((6, 2, 2), (7, 3, 5)):
        left, right = matrices((n, rank), (n, rank))
        scores = 3 * left @ right.T
        pair = answer(scores.clone(), d_k)
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(one, Tensor) for one in pair):
            return "return two tensors: W_q, W_k."
        W_q, W_k = pair
        case = f"n={n}, d_k={d_k}"
        if W_q.shape != (n, d_k) or W_k.shape != (n, d_k):
            return (
                f"{case}: W_q and W_k must both have the shape ({n}, {d_k}); "
                f"got {tuple(W_q.shape)} and {tuple(W_k.shape)}."
            )
        made = W_q @ W_k.T / math.sqrt(d_k)
        root = math.sqrt(d_k)
        U, singular, Vh = torch.linalg.svd(scores)
        bare, squared = U[:, :d_k] @ Vh[:d_k], (U * singular**2) @ Vh
        missing = "the singular values are missing: U and V alone do not make the table."
        twice = "the singular values are in twice: to one side only, or their root to either."
        mistakes = {
            "the scores are too small by the factor √d_k: the head divides by it.": scores / root,
            "the scores are too large by the factor √d_k: the head divides by it once.": scores * root,
            "rows and columns are exchanged: queries and keys have changed places.": scores.T,
            missing: bare / root,
            missing[:-1] + " (the factor √d_k is there).": bare,
            twice: squared / root,
            twice[:-1] + " (the factor √d_k is right).": squared,
        }
        diagnosis = compare(made, scores, mistakes, tolerance=1e-3)
        if diagnosis:
            return f"{case}: {diagnosis}"
    return None


def without_head(answer: Callable[..., nn.Module]) -> str | None:
    """A module with one head less, which computes the sum of the other heads' parts."""
    with torch.random.fork_rng(devices=[]):  # the reader's random numbers stay as they are
        module = MultiHeadAttention(13, 4, d_k=3, d_v=5)
    with torch.no_grad():
        for linear, weight in zip(
            (module.W_q, module.W_k, module.W_v, module.W_o),
            matrices((13, 12), (13, 12), (13, 20), (20, 13)),
            strict=True,
        ):
            linear.weight.copy_(weight.T)
    before = copy.deepcopy(module.state_dict())
    target, source = matrices((2, 3, 13), (2, 6, 13))
    for head in (1, 0, 3):
        smaller = answer(module, head)
        if smaller is None:
            return "your function returned None: does it end in a return?"
        if not isinstance(smaller, nn.Module):
            return f"return a module; got {type(smaller).__name__}."
        if any(not torch.equal(before[name], value) for name, value in module.state_dict().items()):
            return "the given module has changed: copy its weights into a new one."
        sizes = {name: tuple(value.shape) for name, value in smaller.named_parameters()}
        expected_sizes = {"W_q.weight": (9, 13), "W_k.weight": (9, 13), "W_v.weight": (15, 13), "W_o.weight": (13, 15)}
        if sizes != expected_sizes:
            return f"with 4 heads, d_k=3 and d_v=5, three heads are left: expected {expected_sizes}, got {sizes}."
        with torch.no_grad():
            result = smaller(target, source, source)
            right = pruned(module, head, target, source)
            mistakes = {
                f"another head is gone: head {other}, not {head}.": pruned(module, other, target, source)
                for other in range(4)
                if other != head
            }
            for other in range(4):
                if other != head:
                    mixed_up = f"from W_q, W_k and W_v head {head} is gone, but from W_o head {other}."
                    mistakes[mixed_up] = pruned(module, head, target, source, head_of_W_o=other)
            diagnosis = compare(result, right, mistakes)
        if diagnosis:
            return f"without head {head}: {diagnosis}"
    return None


def pruned(
    module: MultiHeadAttention, head: int, target: Tensor, source: Tensor, head_of_W_o: int | None = None
) -> Tensor:
    """Compute the attention of all heads but one; of W_o, leave out the part of that head or of another."""
    kept = [i for i in range(4) if i != head]
    kept_of_W_o = [i for i in range(4) if i != (head if head_of_W_o is None else head_of_W_o)]
    queries = module.W_q(target).unflatten(-1, (4, 3)).transpose(1, 2)[:, kept]
    keys, values = (x[:, kept] for x in module.project(source, source))
    mixed = attention(queries, keys, values).transpose(1, 2).flatten(2)
    return mixed @ module.W_o.weight.T.unflatten(0, (4, 5))[kept_of_W_o].flatten(0, 1)


def grouped_attention(answer: Callable[..., Tensor]) -> str | None:
    """Six heads with two groups of keys and values; and, as limits, one group and one for each head."""
    batch, n, m, heads, d_model, d_k, d_v = 2, 3, 5, 6, 13, 7, 4
    for groups in (2, 1, 6):
        x_q, x_kv, W_q, W_k, W_v, W_o = matrices(
            (batch, n, d_model),
            (batch, m, d_model),
            (d_model, heads * d_k),
            (d_model, groups * d_k),
            (d_model, groups * d_v),
            (heads * d_v, d_model),
        )
        queries = (x_q @ W_q).unflatten(-1, (heads, d_k)).transpose(1, 2)
        keys = (x_kv @ W_k).unflatten(-1, (groups, d_k)).transpose(1, 2)
        values = (x_kv @ W_v).unflatten(-1, (groups, d_v)).transpose(1, 2)

        def output(
            group_of_key: list[int],
            group_of_value: list[int],
            factor: float = 1.0,
            queries: Tensor = queries,
            keys: Tensor = keys,
            values: Tensor = values,
        ) -> Tensor:
            mixed = attention(factor * queries, keys[:, group_of_key], values[:, group_of_value])
            return mixed.transpose(1, 2).flatten(2)

        own = [i // (heads // groups) for i in range(heads)]
        dealt = [i % groups for i in range(heads)]
        expected = output(own, own) @ W_o
        mixed = attention(queries, keys[:, own], values[:, own])
        mistakes = {
            "the heads take the groups in turn (1, 2, 1, 2, …); neighbouring heads share a group (1, 1, 1, 2, …).": (
                output(dealt, dealt) @ W_o
            ),
            "all heads use the first group.": output([0] * heads, [0] * heads) @ W_o,
            "keys and values of a head come from different groups.": output(own, dealt) @ W_o,
            "the values of a head come from another group than its keys.": output(dealt, own) @ W_o,
            "this is the concatenation; multiply it by W_o.": output(own, own),
            "the merge cuts across positions: transpose head and position back before you join them.": (
                mixed.reshape(batch, n, -1) @ W_o
            ),
            "the heads are joined in the wrong order: heads of a group are neighbours, group after group.": (
                mixed.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2).transpose(1, 2).flatten(2) @ W_o
            ),
            "the scores are not scaled: divide by √d_k.": output(own, own, math.sqrt(d_k)) @ W_o,
        }
        diagnosis = compare(answer(x_q, x_kv, W_q, W_k, W_v, W_o, heads, groups), expected, mistakes)
        if diagnosis:
            return f"{heads} heads, {groups} groups: {diagnosis}"
    return None


def matrices(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Draw tensors of the given shapes, the same ones every time; those with two axes scaled to keep sizes near 1."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    return tuple(one / math.sqrt(len(one)) if one.dim() == 2 else one for one in drawn)


EXERCISES: dict[str, Exercise] = {
    "02.1": Exercise("Concatenate and project by hand", project_by_hand),
    "02.2": Exercise("Count the parameters", count_parameters),
    "02.3": Exercise("The way back, heads first", merge_heads),
    "02.4": Exercise("Multi-head attention from scratch", multi_head_from_scratch),
    "02.5": Exercise("A head to order", head_to_order),
    "02.6": Exercise("Take out a head", without_head),
    "02.7": Exercise("Shared keys and values", grouped_attention),
}
