"""The exercises of chapter 13, speed."""

import math

import torch
from torch import Tensor

from annotated_course.exercises.exercise import Exercise, as_numbers, calls, draw, keeping, no_larger, parts

EXERCISES: dict[str, Exercise] = {}
EXERCISES["13.1"] = Exercise(
    "Arithmetic or memory?",
    right=[11, 24],
    cases={"": lambda answer: bool(as_numbers(answer).frac().any()), "both: ": as_numbers},
    mistakes={
        "a number of rows is whole: the smallest with which arithmetic takes longer.": [10.85, 23.7],
        "the rows are moved, too: n of them in, n of them out.": [11, 21],
        "a number takes 4 bytes in float32 and 2 in bfloat16; you counted numbers.": [3, 11],
        "in bfloat16 a number takes 2 bytes, not 4.": [11, 59],
        "a factor 2 is missing: the product does 2 · n · 256² operations.": [24, 59],
    },
    by_hand=True,
)


Block = tuple[Tensor, Tensor, Tensor]


def block_of(scores: Tensor, value: Tensor) -> Block:
    """The maximum, the total and the divided output of a softmax over one block of keys."""
    maximum = scores.amax(dim=-1, keepdim=True)
    shares = (scores - maximum.clamp(min=-1e38)).exp()
    total = shares.sum(dim=-1, keepdim=True)
    return maximum, total, shares @ value / total.clamp(min=1.0)


def merge(first: Block, second: Block) -> Block:
    """Merge two blocks: each total counts from the new maximum, and each output by its total."""
    (m, t, o), (m_2, t_2, o_2) = first, second
    larger = torch.maximum(m, m_2)
    finite = larger.clamp(min=-1e38)  # −∞ − (−∞) is NaN
    share, share_2 = (m - finite).exp() * t, (m_2 - finite).exp() * t_2
    total = share + share_2
    return larger, total, (share * o + share_2 * o_2) / total.clamp(min=1.0)


def blocks_of(scores: Tensor) -> list[Block]:
    """Cut scores (…, query, 9) and random values into a block of the first five keys and one of the others."""
    value = draw(*scores.shape[:-2], 9, 3, seed=2)
    return [block_of(*block) for block in zip(scores.split((5, 4), dim=-1), value.split((5, 4), dim=-2), strict=True)]


SCORES = 2 * draw(2, 3, 4, 9, seed=3)
MASKED = SCORES[0, 0].clone()
MASKED[0, :5] = MASKED[1, 5:] = MASKED[2] = -math.inf
EXERCISES["13.2"] = Exercise(
    "Two blocks become one",
    right=merge,
    cases={
        remark: run
        for place, scores in {
            "": SCORES[0, 0],
            "with two axes in front: ": SCORES,
            "with scores around 1000: ": 1000 + 300 * SCORES[0, 0],
            "with scores around −1000: ": SCORES[0, 0] - 1000,
            "where blocks are masked: ": MASKED,
        }.items()
        for remark, run in parts(calls(*blocks_of(scores)), "maximum", "total", "output", place=place).items()
    },
    mistakes={
        "multiply each total by exp(its maximum − the new one) first.": "= share + share_2 → = t + t_2",
        "rescale the second, too: it may have the smaller maximum.": "(m_2 - finite).exp() * t_2 → t_2",
    },
)


def counted(length: int, d_model: int, d_ff: int, cached: bool) -> int:
    """Count a decoder layer's multiplications."""
    total = 0
    for t in range(1, length + 1):
        positions = 1 if cached else t
        pairs = t if cached else t * t
        total += positions * (4 * d_model**2 + 2 * d_model * d_ff) + pairs * 2 * d_model
    return total


EXERCISES["13.3"] = Exercise(
    "What a cache saves",
    right=counted,
    cases={
        f"length {sizes[0]}, {'with' if cached else 'without'} a cache: ": calls(*sizes, cached)
        for sizes in ((6, 17, 29), (1, 17, 29), (11, 5, 13), (1001, 10**6 + 1, 10**6 + 3))
        for cached in (False, True)
    },
    mistakes={
        "this is the last step alone: add up all steps.": "total += → total =",
        "the projections cost 4 · d_model² for a position: Q, K, V and the output.": "4 * d_model**2 → 3 * d_model**2",
        "the feed-forward network has two matrices: 2 · d_model · d_ff for a position.": "+ 2 * → +",
        "a mask saves no multiplications: all t · t pairs count.": "else t * t → else t * (t + 1) // 2",
        "only the new position asks: t pairs, not t · t.": "= t if cached → = t * t if cached",
    },
)


def back(p: Tensor, g: Tensor) -> Tensor:
    """The way back through a softmax."""
    return p * (g - (p * g).sum(-1, keepdim=True))


def weights_and_gradient(*shape: int) -> tuple[Tensor, Tensor]:
    """Draw weights, each row a softmax, and a gradient by them."""
    p, g = draw(2, *shape)
    return p.softmax(dim=-1), g


JACOBIAN = "right, but you built a tensor of {} numbers from 25 weights; do without a Jacobian matrix."
SEES_KEYS = torch.tensor([1, 0, 1])[:, None]  # the second query is not allowed to see anything
EXERCISES["13.4"] = Exercise(
    "Back through a softmax",
    right=back,
    cases={
        "": keeping(*weights_and_gradient(5, 5)),
        "one row: ": keeping(*weights_and_gradient(6)),
        "with two axes in front: ": keeping(*weights_and_gradient(2, 4, 3, 6)),
        "with weights of 0: ": keeping(weights_and_gradient(3, 6)[0] * SEES_KEYS, weights_and_gradient(3, 6)[1]),
    },
    mistakes={
        "this is p · g alone: a larger score also makes the other weights of its row smaller.": lambda p, g: p * g,
        "p stands before both parts; yours is p · g − Σ p · g.": "p * (g - (p * g).sum → (p * g - (p * g).sum",
        "the sum to subtract is weighted by p: Σ p · g; yours is Σ g.": "(p * g).sum → g.sum",
        "each row is a softmax of its own: sum over dim=-1, and keep the axis (keepdim=True).": "-1, keepdim=True →",
    },
    forbids="backward grad: write down the formula that you find on paper.",
    examine=no_larger(25, JACOBIAN, *weights_and_gradient(5, 5)),
    caught={
        "your function changed argument 0, counted from 0": lambda p, g: p.mul_(back(p, g) / p),
        "you built a tensor of 125 numbers from 25 weights": (
            lambda p, g: ((p.diag_embed() - p[..., :, None] * p[..., None, :]) @ g[..., None])[..., 0]
        ),
    },
    copies=False,
)


def written(parents: Tensor) -> Tensor:
    """Build the table step by step: the parents' rows, (beam, t · beam), and a column for each new token."""
    beam = parents.size(1)
    table = torch.zeros(beam, 0, dtype=torch.bool)
    for row in parents:
        table = torch.cat((table[row], torch.eye(beam).bool()), dim=1)
    return table


def parents_of(steps: int, beam: int) -> Tensor:
    """Draw whom each hypothesis of each step continues."""
    parents = torch.randint(beam, (steps, beam), generator=torch.Generator().manual_seed(3))
    parents[0] = 0
    return parents


EXERCISES["13.5"] = Exercise(
    "Who has written what",
    right=written,
    cases={f"{n} steps, beam {k}: ": calls(parents_of(n, k)) for n, k in ((5, 3), (2, 4), (1, 3), (4, 1), (9, 4))},
    mistakes={
        "each sees its own last token alone: it also sees what its parent saw.": "table[row] → table[row] & False",
        "hypothesis i is not the same at all steps: follow the parents.": "table[row] → table",
        "first take the parents' rows, then add the new tokens.": "table[row] → table; dim=1) → dim=1)[row]",
        "rows are hypotheses and columns stored tokens; exchange yours.": "return table → return table.T",
    },
)
