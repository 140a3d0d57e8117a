"""The exercises of chapter 18, attention for long texts."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import attention
from annotated.masking import causal_mask
from annotated_course.exercises.exercise import AnyOf, Exercise, LargestTensor, Run, called, calls, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["18.1"] = on_paper(
    "Where it pays, by hand",
    [768.0, 1024.0, 128.0, 94.0],
    {
        "two products make 4 n² d operations, not 2 n² d.": (0, 1536.0),
        "here with the projections, 8 n d².": (1, 1536.0),
        "there both cost the same: the sub-layer is to cost twice as much.": (1, 256.0),
        "the first and the last rows have fewer than 5: count row by row.": (3, 100.0),
        "row 0 looks at all 20 blocks.": AnyOf((3, 77.0), (3, 78.0), (3, 80.0)),
    },
)


def groups(length: int, stride: int) -> Tensor:
    """A mask of which query sees which group; an unfinished group is left out."""
    first = torch.arange(0, length - stride + 1, stride)
    last, i = first + stride - 1, torch.arange(length)[:, None]
    return i >= last


EXERCISES["18.2"] = Exercise(
    "Groups without the future",
    right=groups,
    cases=called("length {}, stride {}: ", (7, 3), (8, 2), (5, 1), (9, 4), (2, 3)),
    mistakes={
        "a query sees a group at its first member: then it hears of the others too early.": "i >= last → i >= first",
        "a query sees a group after its last member: it may see the one that it completes.": "i >= last → i > last",
    },
)


def layers(pattern: Tensor) -> int | None:
    """Multiply patterns until each position knows of each."""
    known = step = (pattern | torch.eye(len(pattern)).bool()).float()
    for count in range(1, 211):
        if (known > 0).all():
            return count
        known = (known @ step > 0).float()
    return None


def chain(length: int) -> Tensor:
    """The pattern in which each position looks at itself and its neighbours."""
    return torch.ones(length, length, dtype=torch.bool).triu(-1).tril(1)


HUB = torch.eye(7).bool() | (torch.arange(7)[:, None] * torch.arange(7) == 0)
HALVES = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool()
CROWD = chain(260) | torch.block_diag(torch.ones(60, 60), torch.zeros(200, 200)).bool()  # more ways than 64 bits hold


def listed(pattern: Tensor) -> Run:
    """Make a case of a pattern; the count stands in a list, since None is an answer, too."""
    return lambda answer: [answer(pattern)]


EXERCISES["18.3"] = Exercise(
    "How many layers are enough?",
    right=layers,
    cases={
        "a window of one to each side, 9 positions: ": listed(chain(9)),
        "all looks at all, 4 positions: ": listed(torch.ones(4, 4).bool()),
        "the first position looks at all, and all at it, 7 positions: ": listed(HUB),
        "each position looks at the next one only, in a ring of 6: ": listed(torch.eye(6).bool().roll(1, 1)),
        "a window of one to each side, 150 positions: ": listed(chain(150)),
        "60 positions that all look at all, and a chain of 200 more: ": listed(CROWD),
        "two halves that do not look at each other: ": listed(HALVES),
        "a causal mask, 5 positions: ": listed(causal_mask(5)),
        "each position looks at itself and all later ones, 5 positions: ": listed(causal_mask(5).T),
    },
    mistakes={
        "the residual keeps what a position has: set the diagonal.": "| torch.eye(len(pattern)).bool() →",
        "off by one. What does one layer, the pattern itself, already reach?": "range(1, 211) → range(211)",
        "the numbers of ways overflow: ask only whether there is one.": "(known @ step > 0).float() → known @ step",
        "never, where a position cannot know of another: return None.": lambda pattern: layers(pattern) or len(pattern),
    },
)


def window(query: Tensor, key: Tensor, value: Tensor, reach: int) -> Tensor:
    """Let a window slide over keys and values, and over zeros beyond the text, which are hidden."""
    before, after = reach, reach
    keys, values = (F.pad(x, (0, 0, before, after)).unfold(-2, before + 1 + after, 1) for x in (key, value))
    real = F.pad(torch.ones(query.size(-2)), (before, after)).unfold(0, before + 1 + after, 1).bool()
    scores = (query[..., None, :] @ keys)[..., 0, :] / math.sqrt(query.size(-1))
    weights = scores.masked_fill(~real, -math.inf).softmax(-1)
    return (values @ weights[..., None])[..., 0]


def masked(query: Tensor, key: Tensor, value: Tensor, reach: int, part: int = 256) -> Tensor:
    """Attend with a mask, some queries at a time, but to all keys."""
    places = torch.arange(query.size(-2))
    near = [(some[:, None] - places).abs() <= reach for some in places.split(part)]
    return torch.cat([attention(q, key, value, mask) for q, mask in zip(query.split(part, -2), near, strict=True)], -2)


def texts(*shape: int) -> list[Tensor]:
    """Draw queries and keys of width 4, and values of width 5."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, width, generator=generator) for width in (4, 4, 5)]


def examine_window(answer: Callable[..., Tensor]) -> str | None:
    """Give a long text, and count the numbers and the operations."""
    with LargestTensor() as seen, FlopCounterMode(display=False) as counter:
        answer(*texts(1, 1, 256), 2)
    if seen.largest >= 256 * 128:
        return (
            f"right, but for 256 positions and a reach of 2 there is a tensor of {seen.largest:,} numbers: that is the "
            "table of all pairs. 256 × 5 are needed, or these times the width."
        )
    if counter.get_total_flops() > 2 * 256 * 256 * 4:  # half of what the table takes
        return (
            f"right, and without the table, but each query meets each key: {counter.get_total_flops():,} operations. "
            "Take only the keys within reach."
        )
    return None


EXERCISES["18.4"] = Exercise(
    "A window without the table",
    right=window,
    cases={
        f"{length} positions, reach {reach}: ": calls(*texts(2, 3, length), reach)
        for length, reach in ((6, 1), (7, 2), (5, 0), (3, 4), (256, 2))
    }
    | {"without an axis before (length, d): ": calls(*texts(6), 1)},
    mistakes={
        "beyond the ends of the text there are no keys: hide them.": ".masked_fill(~real, -math.inf) →",
        "the scores are not divided by √d_k.": "/ math.sqrt(query.size(-1)) →",
        "the window is one-sided: keys on both sides count.": "= reach, reach → = reach, 0",
        "the window is too narrow: `reach` away is still in it.": "= reach, reach → = reach - 1, reach - 1",
        "all keys are seen: only those up to `reach` away may be.": lambda q, k, v, r: attention(q, k, v),
    },
    examine=examine_window,
    caught={
        "65,536 numbers: that is the table of all pairs": masked,
        "but each query meets each key: 1,179,648 operations": lambda q, k, v, r: masked(q, k, v, r, part=64),
    },
)
