"""The exercises of chapter 01, attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.attention import attention, attention_weights
from annotated.masking import causal_mask, padding_mask
from annotated_course.exercises.exercise import AnyOf, Exercise, LargestTensor, Run, WrongFormError, by_hand, calls

EXERCISES: dict[str, Exercise] = {}


def inputs(queries: int, keys: int, d_k: int, d_v: int) -> list[Tensor]:
    """Draw a query, key and value of the given sizes, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for shape in ((queries, d_k), (keys, d_k), (keys, d_v))]


VALUES = torch.tensor([[10.0, 0.0], [0.0, 20.0], [5.0, 5.0]])
WEIGHTS = torch.tensor([1.0, 3.0, 6.0])
EXERCISES["01.1"] = by_hand(
    "One row by hand",
    [4.0, 9.0],
    {
        "did you divide the dot products by √d_k = 2 before the exponential?": WEIGHTS**2 / 46 @ VALUES,
        "the weights must sum to 1: divide each exponential by their sum, 10.": WEIGHTS @ VALUES,
        "these are the weights. Now mix the values with them.": WEIGHTS / 10,
        "this is the value of the best key alone: attention mixes all three.": VALUES[2],
    },
)


def from_scratch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention, Eq. 1."""
    scores = query @ key.mT / math.sqrt(query.size(-1))
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = shares / shares.sum(-1, keepdim=True)
    return weights @ value


EXERCISES["01.2"] = Exercise(
    "Attention from scratch",
    right=from_scratch,
    cases={
        "": calls(*inputs(3, 5, 4, 7)),
        "with a batch axis, and larger scores: ": calls(*(torch.stack([one, 300 * one]) for one in inputs(3, 5, 4, 7))),
    },
    mistakes={
        "it is Eq. 1 without the division by √d_k: did you scale?": "/ math.sqrt(query.size(-1)) →",
        "you divided by d_k; divide by its square root.": "math.sqrt(query.size(-1)) → query.size(-1)",
        "your softmax runs over the queries; over the keys, dim=-1, weights sum to 1.": "(-1, keepdim → (-2, keepdim",
        "these are the weights; multiply them by the values.": "@ value →",
        "the scores never went through a softmax.": "return weights → return scores",
    },
    forbids="attention softmax logsumexp loop: write it with exp, amax, sums and matrix products.",
)


def local_mask(ids: Tensor, pad_id: int, window: int) -> Tensor:
    """A decoder's mask, in which each token sees the last ones up to itself."""
    real, past = padding_mask(ids, pad_id)[:, 0], causal_mask(ids.size(1))
    return real & past.triu(1 - window)


IDS = torch.tensor([[1, 5, 0, 7, 2], [1, 8, 2, 9, 9], [9, 9, 1, 5, 2]])  # only padding in front tells if it is hidden
EXERCISES["01.3"] = Exercise(
    "A decoder's mask with a window",
    right=local_mask,
    cases={"": calls(IDS, 9, 3), "with another padding and window: ": calls(IDS.where(IDS != 9, 4), 4, 2)},
    mistakes={
        "the polarity is reversed: True must mean 'may attend'.": "return real & past → return ~real | ~past",
        "the padding is still visible: hide the keys whose id is pad_id.": "real & past → (real | True) & past",
        "the padding mask works on the queries; hide the keys: the last axis.": "return real → return real.mT",
        "the future is still visible: a position sees itself and what is before it.": "& past → & (past | True)",
        "the window is one too wide: the position itself is one of the `window`.": "1 - window → -window",
    },
)


def mirror(length: int, sharp: float = 300.0) -> tuple[Tensor, Tensor]:
    """Queries and keys with which attention reverses a sequence."""
    return sharp * torch.eye(length), torch.eye(length).flip(0)


def looks(length: int) -> Run:
    """Make a case of where each position looks, if its largest weight is at least 0.99."""

    def run(answer: Callable[[int], Any]) -> Tensor:
        pair = answer(length)
        if not isinstance(pair, tuple) or [tuple(one.shape)[0:1] for one in pair] != [(length,), (length,)]:
            raise WrongFormError(f"return two tensors: query and key, both ({length}, d_k)", pair)
        largest, place = attention_weights(*(one.float() for one in pair)).max(-1)
        return torch.where(largest < 0.99, -1, place)

    return run


EXERCISES["01.4"] = Exercise(
    "A mirror made of attention",
    right=mirror,
    cases={f"length {n}, where each position looks with at least 0.99 (else −1): ": looks(n) for n in (2, 5, 9, 500)},
    mistakes={
        "each position attends to itself: flip queries or keys.": lambda n: (300 * torch.eye(n), torch.eye(n)),
        "a weight must be at least 0.99: larger vectors give larger scores.": lambda length: mirror(length, sharp=20.0),
    },
    caught={"return two tensors": AnyOf(lambda length: 99 * torch.eye(length), lambda length: mirror(5))},
)


def query_gradient(query: Tensor, key: Tensor, value: Tensor, upstream: Tensor) -> Tensor:
    """The query's gradient, back through the softmax."""
    p, g = attention_weights(query, key), upstream @ value.T
    mean = (p * g).sum(-1, keepdim=True)
    return p * (g - mean) @ key / math.sqrt(query.size(-1))


EXERCISES["01.5"] = Exercise(
    "The gradient by hand",
    right=query_gradient,
    cases={"": calls(*inputs(3, 5, 16, 7), torch.randn(3, 7, generator=torch.Generator().manual_seed(1)))},
    mistakes={
        "the scores were divided by √d_k, and so is the gradient.": "/ math.sqrt(query.size(-1)) →",
        "this is diag(p) alone: the part − p pᵀ of the Jacobian is missing.": "(g - mean) → g",
        "this is the gradient at the weights: pass it through the softmax.": "p * (g - mean) → g",
        "the mean to subtract is weighted by p: (p * g).sum(-1, keepdim=True).": "(p * g).sum → g.mean",
    },
    forbids="backward grad: write down the formula that you find on paper.",
)


def streaming(query: Tensor, key: Tensor, value: Tensor, chunk: int) -> Tensor:
    """Attention by a softmax on the go, which rescales its two sums when the maximum rises."""
    total = mixed = torch.zeros(len(query), 1)
    highest = torch.full((len(query), 1), -math.inf)
    for keys, values in zip(key.split(chunk), value.split(chunk), strict=True):
        scores = query @ keys.T / math.sqrt(query.size(-1))
        new = torch.maximum(highest, scores.amax(-1, keepdim=True))
        shares, shrink = (scores - new).exp(), (highest - new).exp()
        total = shrink * total + shares.sum(-1, keepdim=True)
        mixed = shrink * mixed + shares @ values
        highest = new
    return mixed / total


def scores_kept(query: Tensor, key: Tensor, value: Tensor, chunk: int) -> Tensor:
    """Keep the scores of all chunks for a second pass."""
    scores = [query @ keys.T / math.sqrt(query.size(-1)) for keys in key.split(chunk)]
    total = torch.stack([s.logsumexp(-1, keepdim=True) for s in scores]).logsumexp(0)
    return sum((s - total).exp() @ values for s, values in zip(scores, value.split(chunk), strict=True))


def examine_memory(answer: Callable[..., Tensor]) -> str | None:
    """Look at the largest tensor, at scores that overflow, and at all that is alive at once."""
    query, key, value = inputs(24, 30, 4, 5)
    many = inputs(24, 600, 4, 5)
    with LargestTensor() as seen:
        answer(query, key, value, 7)
    with LargestTensor() as seen_many:
        answer(*many, 7)
    if seen.largest >= 24 * 30 or seen_many.most >= 24 * 600:
        return (
            f"the result is right, but of 24 × 30 weights you built {seen.largest} at once, and of 24 × 600 you "
            f"kept {seen_many.most} numbers alive. Score one chunk of keys at a time, and let it go."
        )
    # A running maximum that starts at 0 stays there where all scores are below it.
    for size, large, keys in (("1,000", 300 * query, key), ("−1,000", -300 * query.abs(), key.abs())):
        if not answer(large, keys, value, 7).isfinite().all():
            return (
                f"with scores around {size} the result is not finite: the running maximum starts at −∞, and the old "
                "sums are multiplied by exp(old maximum − new maximum), which is at most 1."
            )
    return None


EXERCISES["01.6"] = Exercise(
    "Attention without the matrix",
    right=streaming,
    cases={"": calls(*inputs(24, 30, 4, 5), 7)},
    mistakes={
        "the maximum rose, and the old sums were not rescaled: multiply both by exp(old − new maximum).": "shrink * →",
        "you rescaled the sum of the exponentials, but not the mixed values.": "shrink * mixed → mixed",
    },
    examine=examine_memory,
    caught={
        "you built 720 at once": lambda query, key, value, chunk: attention(query, key, value),
        "around −1,000 the result is not finite": "-math.inf → 0.0",
        "Score one chunk of keys at a time": scores_kept,
    },
)
