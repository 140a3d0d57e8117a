"""The exercises of chapter 01, attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.attention import attention, attention_weights
from annotated.course.exercises.diagnosis import Exercise, LargestTensor, compare
from annotated.masking import causal_mask, padding_mask


def one_row_by_hand(answer: Any) -> str | None:
    """Weights 0.1, 0.3, 0.6 over the values (10, 0), (0, 20), (5, 5)."""
    values = torch.tensor([[10.0, 0.0], [0.0, 20.0], [5.0, 5.0]])
    weights = torch.tensor([1.0, 3.0, 6.0])
    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        weights / 10 @ values,
        {
            "did you divide the dot products by √d_k = 2 before the exponential?": weights**2 / 46 @ values,
            "the weights must sum to 1: divide each exponential by their sum, 10.": weights @ values,
            "these are the weights. Now mix the values with them.": weights / 10,
            "this is the plain mean of the values: use the weights.": values.mean(0),
            "this is the value of the best key alone: attention mixes all three.": values[2],
        },
        tolerance=0.006,
        by_hand=True,
    )


def attention_from_scratch(answer: Callable[..., Tensor]) -> str | None:
    """Eq. 1, also with a batch axis, and with scores that overflow a plain exponential."""
    query, key, value = random_inputs(3, 5, 4, 7)
    scores = query @ key.T
    mistakes = {
        "it is Eq. 1 without the division by √d_k: did you scale?": scores.softmax(-1) @ value,
        "you divided by d_k; divide by its square root.": (scores / 4).softmax(-1) @ value,
        "you scaled by the width of the values; √d_k takes the width of the keys.": (
            (scores / math.sqrt(7)).softmax(-1) @ value
        ),
        "your softmax runs over the queries; each row of weights, over the keys, must sum to 1: dim=-1.": (
            (scores / 2).softmax(0) @ value
        ),
        "these are the weights; multiply them by the values.": (scores / 2).softmax(-1),
        "the scores never went through a softmax.": scores / 2 @ value,
    }
    diagnosis = compare(answer(query, key, value), attention(query, key, value), mistakes)
    if diagnosis:
        return diagnosis
    batch = [torch.stack([one, 300 * one]) for one in (query, key, value)]
    return compare(answer(*batch), attention(*batch), {})


def decoder_mask(answer: Callable[..., Tensor]) -> str | None:
    """The causal mask of a batch, with its padding hidden, and seen through a window.

    Padding behind a sentence lies in every real word's future; only padding in front tells whether it is hidden.
    """
    ids = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 9, 9], [9, 9, 1, 5, 2]])
    return masked_window(answer, ids, 9, 3) or masked_window(answer, ids.where(ids != 9, 4), 4, 2)


def masked_window(answer: Callable[..., Tensor], ids: Tensor, pad_id: int, window: int) -> str | None:
    """Compare a mask with the right one, for one padding id and one window."""
    length = ids.size(1)
    real, past = padding_mask(ids, pad_id)[:, 0], causal_mask(length)
    near = past.triu(1 - window)
    expected = real & near
    mistakes = {
        "the polarity is reversed: True must mean 'may attend'.": ~expected,
        "your window shows the future and hides the past: look back, not ahead.": real & near.T,
        "no position sees itself: keep the diagonal.": real & near.tril(-1),
        "the padding is still visible: hide the keys whose id is pad_id.": near.expand(3, length, length),
        "the padding mask works on the queries; hide the keys: the last axis.": real.transpose(1, 2) & near,
        "you hid the rows of padded queries too: hide keys only, a padded query is treated as any other.": (
            expected & real.transpose(1, 2)
        ),
        "you let a query see its own padding; where its window holds nothing else, its row is all False.": (
            expected | (~expected.any(-1, keepdim=True) & torch.eye(length, dtype=torch.bool))
        ),
        "this is the paper's neighbourhood, centred on the query; a decoder looks back only.": (
            real & torch.ones_like(past).triu(-(window // 2)).tril(window // 2)
        ),
        "the future is still visible: a position sees itself and what is before it.": (
            real & torch.ones_like(past).triu(1 - window)
        ),
        "any one condition alone lets a key through here; all must allow it: use &.": real | near,
        "the padding of id 0 is hidden; the id to hide is pad_id.": padding_mask(ids)[:, 0] & near,
        "the window has no effect: hide what lies `window` or more positions back.": real & past,
        "the window is one too wide: the position itself is one of the `window`.": real & past.triu(-window),
        "the window is one too narrow: it holds `window` positions, itself included.": real & past.triu(2 - window),
    }
    return compare(answer(ids, pad_id, window), expected, mistakes)


def mirror(answer: Callable[..., tuple[Tensor, Tensor]]) -> str | None:
    """Queries and keys with which attention reverses a sequence of any length."""
    for length in (2, 5, 9, 500):
        pair = answer(length)
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(one, Tensor) for one in pair):
            return "return two tensors: query, key."
        query, key = pair
        if query.shape != key.shape or query.dim() != 2 or len(query) != length:
            return (
                f"for length {length}, query and key must both have the shape ({length}, d_k); "
                f"got {tuple(query.shape)} and {tuple(key.shape)}."
            )
        weights = attention_weights(query.float(), key.float())
        largest, found = weights.max(-1)
        wrong = (found != torch.arange(length).flip(0)).nonzero().flatten().tolist()
        if torch.allclose(weights, torch.full_like(weights, 1 / length)):
            return "all weights are equal: the queries cannot tell the keys apart."
        if wrong == [row for row in range(length) if row != length - 1 - row]:
            itself = torch.equal(found, torch.arange(length))
            return f"length {length}: " + (
                "each position attends to itself; flip the order of the queries or of the keys."
                if itself
                else f"no position finds its mirror; position 0 attends to {int(found[0])}, not to {length - 1}."
            )
        if wrong:
            row = wrong[0]
            return f"length {length}: position {row} attends to {int(found[row])}, not to {length - 1 - row}."
        if largest.min() < 0.99:
            return (
                f"length {length}: every position finds its mirror, but a weight there is only {largest.min():.4f}; "
                "it must be at least 0.99. Longer vectors give larger scores; the scores are divided by √d_k."
            )
    return None


def gradient_of_the_query(answer: Callable[..., Tensor]) -> str | None:
    """The gradient of attention with respect to the query, against autograd."""
    query, key, value = random_inputs(3, 5, 16, 7)
    upstream = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    leaf = query.clone().requires_grad_()
    (expected,) = torch.autograd.grad(attention(leaf, key, value), leaf, upstream)
    weights, inner = attention_weights(query, key), upstream @ value.T
    with_plain_mean = weights * (inner - inner.mean(-1, keepdim=True)) @ key / 4
    mistakes = {
        "off by a constant factor 4.0 = √d_k: the scores were divided by it, and so is the gradient.": expected * 4,
        "off by a constant factor 0.25 = 1/√d_k: you divided twice, or by d_k.": expected / 4,
        "this is diag(p) alone: the part − p pᵀ of the Jacobian is missing.": weights * inner @ key / 4,
        "this is the upstream gradient at the weights, sent on to the scores: pass it through the softmax.": (
            inner @ key / 4
        ),
        "the mean to subtract is weighted by p: (p * g).sum(-1, keepdim=True).": with_plain_mean,
        "the sign is reversed.": -expected,
    }
    return compare(answer(query, key, value, upstream), expected, mistakes)


def streaming_attention(answer: Callable[..., Tensor]) -> str | None:
    """Attention in chunks of keys, without ever holding all weights."""
    query, key, value = random_inputs(24, 30, 4, 5)
    chunk = 7
    expected = attention(query, key, value)
    parts = list(zip(key.split(chunk), value.split(chunk), strict=True))
    scores = [query @ keys.T / 2 for keys, _ in parts]
    chunks = [attention(query, *part) for part in parts]

    def stream(total_follows: bool, mixed_follows: bool) -> Tensor:
        total = mixed = torch.zeros(24, 1)
        highest = torch.full((24, 1), -math.inf)
        for s, (_, values) in zip(scores, parts, strict=True):
            risen = torch.maximum(highest, s.amax(-1, keepdim=True))
            shares, factor, highest = (s - risen).exp(), (highest - risen).exp(), risen
            total = (total * factor if total_follows else total) + shares.sum(-1, keepdim=True)
            mixed = (mixed * factor if mixed_follows else mixed) + shares @ values
        return mixed / total

    own = [(s - s.amax(-1, keepdim=True)).exp() for s in scores]
    mistakes = {
        "the maximum rose, and the old sums were not rescaled: multiply both by exp(old − new maximum).": stream(
            False, False
        ),
        "the maximum rose: you rescaled the sum of the exponentials, but not the mixed values.": stream(True, False),
        "the maximum rose: you rescaled the mixed values, but not the sum of the exponentials.": stream(False, True),
        "each chunk's exponentials are taken from its own maximum: sums of different chunks need one common maximum.": (
            sum(shares @ values for shares, (_, values) in zip(own, parts, strict=True))
            / sum(shares.sum(-1, keepdim=True) for shares in own)
        ),
        "this is the mean of the chunks' outputs: a chunk counts by the sum of its exponentials.": (
            torch.stack(chunks).mean(0)
        ),
        "this is the sum of the chunks' outputs: one softmax over all keys has one denominator.": torch.stack(
            chunks
        ).sum(0),
        "this is the last chunk alone: carry the sums from chunk to chunk.": chunks[-1],
        "the last keys are missing: 30 keys in chunks of 7 leave a last chunk of 2.": (
            attention(query, key[:28], value[:28])
        ),
        "it is right without the division by √d_k: did you scale?": attention(2 * query, key, value),
    }
    with LargestTensor() as seen:
        result = answer(query, key, value, chunk)
    diagnosis = compare(result, expected, mistakes)
    if diagnosis:
        return diagnosis
    if seen.largest >= 24 * 30:
        return (
            f"the result is right, but you built a tensor of {seen.largest} numbers; 24 queries × 30 keys = 720 is the "
            "matrix to avoid. Score one chunk of keys at a time."
        )
    for large, keys, hint in (
        (300 * query, key, "with scores around 1,000"),
        (-300 * query.abs(), key.abs(), "with scores around −1,000"),  # a maximum that starts at 0 stays there
    ):
        result = answer(large, keys, value, chunk)
        if isinstance(result, Tensor) and not result.isfinite().all():
            return (
                f"{hint} the result is not finite: the running maximum starts at −∞, and the old sums are multiplied "
                "by exp(old maximum − new maximum), which is at most 1."
            )
        if diagnosis := compare(result, attention(large, keys, value), {}):
            return f"{hint}: {diagnosis}"
    many = random_inputs(24, 600, 4, 5)
    with LargestTensor() as seen:
        answer(*many, chunk)
    if seen.most >= 24 * 600:
        return (
            f"the result is right, but {seen.most} numbers were alive at once, and 24 queries × 600 keys have 14400 "
            "weights: let the scores of a chunk go when the next one comes."
        )
    return None


def random_inputs(queries: int, keys: int, d_k: int, d_v: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a query, key and value of the given sizes, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(*shape, generator=generator) for shape in ((queries, d_k), (keys, d_k), (keys, d_v))
    )
    return query, key, value


EXERCISES = {
    "01.1": Exercise("One row by hand", one_row_by_hand),
    "01.2": Exercise("Attention from scratch", attention_from_scratch),
    "01.3": Exercise("A decoder's mask with a window", decoder_mask),
    "01.4": Exercise("A mirror made of attention", mirror),
    "01.5": Exercise("The gradient by hand", gradient_of_the_query),
    "01.6": Exercise("Attention without the matrix", streaming_attention),
}
