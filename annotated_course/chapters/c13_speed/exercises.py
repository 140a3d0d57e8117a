"""The exercises of chapter 13, speed."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises import exercise
from annotated_course.exercises.exercise import AnyOf, Exercise, Run, calls, each, keeping, resulting

EXERCISES: dict[str, Exercise] = {}


def enough_rows(*, sizes=(4, 2), rates=(100, 400), moved=2, factor=2, ties=False, less=0) -> list[int]:
    """For numbers of two sizes, the fewest rows whose arithmetic takes longer than their memory."""

    def lead(n: int, size: int, rate: int) -> int:
        return factor * n * 256**2 * 20 - size * (256**2 + moved * n * 256) * rate

    pairs = list(zip(sizes, rates, strict=True))
    return [next(n for n in itertools.count(1) if lead(n, *pair) > -ties) - less for pair in pairs]


ROWS_MISSING = "the rows are moved, too: n of them in, n of them out."
WRONG_COUNTS = {
    ROWS_MISSING: dict(moved=0),
    f"{ROWS_MISSING} (And where both take equally long, arithmetic does not take longer.)": dict(moved=0, ties=True),
    "the rows are moved twice: n of them in, n of them out.": dict(moved=1),
    "a number takes 4 bytes in float32 and 2 in bfloat16; you counted numbers.": dict(sizes=(1, 1)),
    "in bfloat16 a number takes 2 bytes, not 4.": dict(sizes=(4, 4)),
    "in bfloat16 the core does 400 GFLOP/s, not 100.": dict(rates=(100, 100)),
    "a factor 2 is missing: the product does 2 · n · 256² operations.": dict(factor=1),
    "float32 comes first, bfloat16 second.": dict(sizes=(2, 4), rates=(400, 100)),
    "you rounded down: with one row less, memory still takes longer.": dict(less=1),
}
EXERCISES["13.1"] = Exercise(
    "Arithmetic or memory?",
    right=enough_rows(),
    cases={"": lambda answer: bool(exercise.as_numbers(answer).frac().any()), "both: ": exercise.as_numbers},
    mistakes={"a number of rows is whole: the smallest with which arithmetic takes longer.": [10.85, 23.7]}
    | each(enough_rows, WRONG_COUNTS),
    by_hand=True,
)


Block = tuple[Tensor, Tensor, Tensor]
PARTS = ("maximum", "total", "output")


def block_of(scores: Tensor, value: Tensor) -> Block:
    """The maximum, the total and the divided output of a softmax over one block of keys."""
    maximum = scores.amax(dim=-1, keepdim=True)
    shares = (scores - maximum.clamp(min=torch.finfo(scores.dtype).min)).exp()
    total = shares.sum(dim=-1, keepdim=True)
    return maximum, total, shares @ value / total.clamp(min=1.0)


def merge(first: Block, second: Block, lowest: float = -1e38, highest: float = 1e38, least: float = 1.0) -> Block:
    """Merge two blocks: count from a maximum within bounds, and divide by no total below `least`."""
    (m, t, o), (m_2, t_2, o_2) = first, second
    larger = torch.maximum(m, m_2)
    share, share_2 = ((old - larger.clamp(lowest, highest)).exp() * total for old, total in ((m, t), (m_2, t_2)))
    total = share + share_2
    return larger, total, (share * o + share_2 * o_2) / total.clamp(min=least)


def wrong_merges(first: Block, second: Block) -> dict[str, list[Tensor]]:
    """What is usually got wrong about one of the three parts, and what that gives."""
    (m, t, o), (m_2, t_2, o_2) = first, second
    larger, total, output = merge(first, second)
    shrink, shrink_2 = (m - larger).exp(), (m_2 - larger).exp()
    share, share_2 = shrink * t, shrink_2 * t_2
    unweighted = shrink * o + shrink_2 * o_2
    maxima = {
        "this is the first block's: take the larger of the two, query by query.": m,
        "this is the second block's: take the larger of the two, query by query.": m_2,
        "this is the smaller of the two; take the larger.": torch.minimum(m, m_2),
        "this is the sum of the two; take the larger.": m + m_2,
        "this is the logarithm of a sum of exponentials; the maximum is a score.": larger + total.log(),
    }
    rescale = "the two count from different maxima: first multiply each by exp(its maximum − the new one)."
    upside_down = "the factor is exp(its maximum − the new one), at most 1; yours is one over it."
    totals = {
        rescale: t + t_2,
        upside_down: t / shrink + t_2 / shrink_2,
        "each total has a factor of its own; yours are exchanged.": shrink_2 * t + shrink * t_2,
        "you rescale the first only: for some queries the second has the smaller maximum.": share + t_2,
        "you rescale the second only: for some queries the first has the smaller maximum.": t + share_2,
        "this is Σ exp(score); it must be Σ exp(score − maximum).": total * larger.exp(),
        "it is the sum over the keys of both blocks, not 1.": torch.ones_like(t),
    }
    as_given = "the outputs count by totals that are not rescaled: these count from different maxima."
    divided = "the given outputs are divided already: multiply each by its own total before you add them."
    alone = "each output counts by its rescaled total; you took the factor exp(its maximum − the new one) alone."
    outputs = {
        "this is the sum of the two: each counts by its share of the new total.": o + o_2,
        "this is the mean of the two: each counts by its share of the new total.": (o + o_2) / 2,
        as_given: (t * o + t_2 * o_2) / (t + t_2),
        divided: unweighted / total,
        alone: unweighted / (shrink + shrink_2),
        "it is not divided by the new total.": output * total,
        "you divide by the sum of the given totals: divide by the new total.": output * total / (t + t_2),
        "each output has a share of its own; yours are exchanged.": (share_2 * o + share * o_2) / total,
    }
    right, tables = [larger, total, output], enumerate((maxima, totals, outputs))
    return {told: [*right[:i], wrong, *right[i + 1 :]] for i, table in tables for told, wrong in table.items()}


def drawn(*axes: int) -> tuple[Tensor, Tensor]:
    """Scores of four queries for nine keys, and the keys' values."""
    generator = torch.Generator().manual_seed(2)
    return 2 * torch.randn(*axes, 4, 9, generator=generator), torch.randn(*axes, 9, 3, generator=generator)


def blocks_of(scores: Tensor, value: Tensor) -> list[Block]:
    """The first five keys and the others."""
    return [block_of(*part) for part in zip(scores.split((5, 4), dim=-1), value.split((5, 4), dim=-2), strict=True)]


def form(answer: Any) -> str | None:
    """Say whether an answer returns three tensors, and the right ones in another order."""
    found, right = answer(*blocks_of(*drawn())), block_of(*drawn())
    if found is None:
        return None
    if not isinstance(found, tuple | list) or [isinstance(one, Tensor) for one in found] != [True] * 3:
        return "not three tensors"
    others = list(itertools.permutations(right))[1:]
    return "another order" if any(exercise.is_same(found, other) for other in others) else "three tensors"


def part_of(place: int, *axes: int) -> Run:
    """Make a case of one of the three parts."""
    return lambda answer: answer(*blocks_of(*drawn(*axes)))[place]


def examine_extremes(answer: Any) -> str | None:
    """Look at large scores, and at blocks that are masked."""
    scores, value = drawn()
    one, both = scores.clone(), scores.clone()
    one[0, :5] = one[1, 5:] = both[2] = -math.inf
    exponent = "Subtract the new maximum in each exponent."
    for remark, hint, extreme in (
        ("with scores around 1000", f"Does an exponential overflow? {exponent}", 1000 + 300 * scores),
        ("with scores around −1000", f"Do all exponentials become 0? {exponent}", scores - 1000),
        ("where one block is all masked", "Does that block count by its total, 0?", one),
        ("where both blocks are all masked", "−∞ − (−∞) and 0 / 0 are no numbers.", both),
    ):
        merged = answer(*blocks_of(extreme, value))
        for name, found, right in zip(PARTS, merged, block_of(extreme, value), strict=True):
            place = f"{remark}: the {name}: "
            if found.isnan().any() or (right.isfinite() & ~found.isfinite()).any():
                return f"{place}it holds NaN or infinity. {hint}"
            if (right.isinf() & found.isfinite()).any():
                return f"{place}of no score at all it is −∞."
            if ((found == 0) & (right != 0)).any():
                return f"{place}it is 0 where it must not be. {hint}"
            if not exercise.is_same(found, right):
                return place + exercise.difference(found, right)
    return None


EXERCISES["13.2"] = Exercise(
    "Two blocks become one",
    right=merge,
    cases={"": form}
    | {f"the {name}: ": part_of(i) for i, name in enumerate(PARTS)}
    | {f"with two axes in front: the {name}: ": part_of(i, 2, 3) for i, name in enumerate(PARTS)},
    mistakes={
        "return three tensors: maximum, total, output.": lambda *blocks: merge(*blocks)[2],
        "all three are right; their order is maximum, total, output.": lambda *blocks: merge(*blocks)[::-1],
    }
    | resulting(wrong_merges, *blocks_of(*drawn())),
    examine=examine_extremes,
    caught={
        "1000: the total: it holds NaN or infinity. Does an exponential overflow?": partial(merge, highest=50.0),
        "−1000: the total: it is 0 where it must not be. Do all exponentials become 0?": partial(merge, lowest=-50.0),
        "one block is all masked: the maximum: it is 0 where it must not be. Does that block count by its total": (
            lambda a, b: [part.where((a[1] > 0) & (b[1] > 0), 0.0) for part in merge(a, b)]
        ),
        "both blocks are all masked: the maximum: of no score at all it is −∞.": (
            lambda *blocks: [part.clamp(min=-1e38) for part in merge(*blocks)]
        ),
        "both blocks are all masked: the total: it holds NaN or infinity. −∞ − (−∞)": partial(merge, lowest=-math.inf),
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


WRONG_TERMS = {
    "this is the number with a cache.": "if cached → if True",
    "this is the number without a cache.": "if cached → if False",
    "you count the additions as well: multiplications alone.": "return total → return 2 * total",
    "you count a step with t = 0: t goes from 1 to length.": "range(1, length + 1) → range(length)",
    "t goes from 1 to length; yours from 2.": "range(1, length + 1) → range(2, length + 2)",
    "this is the last step alone: add up all steps.": "total += → total =",
    "one of the four projections is missing: a position costs 4 · d_model² in them.": "4 * d_model**2 → 3 * d_model**2",
    "the projections are missing: a position costs 4 · d_model² in them.": "4 * d_model**2 + →",
    "the feed-forward network has two matrices: 2 · d_model · d_ff for a position.": (
        "2 * d_model * d_ff → d_model * d_ff"
    ),
    "the feed-forward network is missing: 2 · d_model · d_ff for a position.": "+ 2 * d_model * d_ff →",
    "a pair costs 2 · d_model: once in Q Kᵀ, once in weights · V.": "pairs * 2 → pairs",
    "the pairs are missing.": "+ pairs * 2 * d_model →",
    "a mask saves no multiplications: all t · t pairs count.": "else t * t → else t * (t + 1) // 2",
    "every position asks again: t · t pairs, not t.": "else t * t → else t",
    "only the new position asks: t pairs, not t · t.": "= t if cached → = t * t if cached",
    "the new position asks all t keys, not only its own.": "= t if cached → = 1 if cached",
    "a step computes all t positions, not one.": "= 1 if cached else t → = 1",
    "a step computes one position, not t.": "= 1 if cached else t → = t",
}
EXERCISES["13.3"] = Exercise(
    "What a cache saves",
    right=counted,
    cases={
        f"length {sizes[0]}, {'with' if cached else 'without'} a cache: ": calls(*sizes, cached)
        for sizes in ((6, 17, 29), (1, 17, 29), (11, 5, 13), (1001, 10**6 + 1, 10**6 + 3))
        for cached in (False, True)
    },
    mistakes=WRONG_TERMS,
)


def weighted(p: Tensor, g: Tensor, dim: int = -1) -> Tensor:
    """The mean of g by the weights p."""
    return (p * g).sum(dim, keepdim=True)


def back(p: Tensor, g: Tensor) -> Tensor:
    """The way back through a softmax."""
    return p * (g - weighted(p, g))


OTHERS = "a larger score also makes the other weights of its row smaller."
EACH_ROW = "each row is a softmax of its own, dim=-1."


def wrong_ways_back(p: Tensor, g: Tensor) -> dict[str, Tensor]:
    """What is usually got wrong on the way back through a softmax, and what that gives."""
    total, plain_mean = g.sum(-1, keepdim=True), g.mean(-1, keepdim=True)
    return {
        f"this is p · g alone: {OTHERS}": p * g,
        f"this is p · (1 − p) · g alone: {OTHERS}": p * (1 - p) * g,
        "this is the gradient by the weights, as it came.": g,
        "a factor p is missing, in front of all.": g - weighted(p, g),
        "p stands only before one of the two parts: p · g − Σ p · g.": p * g - weighted(p, g),
        "the sum to subtract is weighted by p: Σ p · g; yours is Σ g.": p * (g - total),
        "the mean to subtract is weighted by p: Σ p · g; yours is the plain mean of g.": p * (g - plain_mean),
        "this is the way back through a log-softmax.": g - p * total,
        "the sign is reversed.": -back(p, g),
        "the sum is added: subtract it.": p * (g + weighted(p, g)),
        "this is p minus what came, as in section 5; there it was a target, here it is a gradient.": p - g,
        "you took a softmax of the weights: they are one already.": back(p.softmax(-1), g),
    }


def weights_and_gradient(*shape: int) -> tuple[Tensor, Tensor]:
    """Draw weights, each row a softmax, and a gradient by them."""
    p, g = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return p.softmax(dim=-1), g


def with_zeros(answer: Any) -> Any:
    """Go back through a row of zeros, and one with a single weight."""
    p, g = weights_and_gradient(2, 3, 4, 6)
    p[0, 1, 2] = p[1, 2, 3] = 0.0
    p[1, 2, 3, 0] = 1.0
    return exercise.nan_throughout(answer(p, g))


def back_by_autograd(p: Tensor, g: Tensor) -> Tensor:
    """The way back by scores that give these weights."""
    scores = p.log().requires_grad_()
    return torch.autograd.grad(scores.softmax(-1), scores, g)[0]


def examine_memory(answer: Any) -> str | None:
    """Look whether a Jacobian matrix is built."""
    p, g = weights_and_gradient(5, 5)
    with exercise.LargestTensor() as seen:
        answer(p, g)
    built = f"you built a tensor of {seen.largest} numbers from {p.numel()} weights; do without a Jacobian matrix."
    return f"the result is right, but {built}" if seen.largest > p.numel() else None


EXERCISES["13.4"] = Exercise(
    "Back through a softmax",
    right=back,
    cases={
        "": keeping(*weights_and_gradient(5, 5)),
        "one row: ": keeping(*weights_and_gradient(6)),
        "with two axes in front: ": keeping(*weights_and_gradient(2, 3, 4, 6)),
        "with weights of 0: ": with_zeros,
    },
    mistakes=resulting(wrong_ways_back, *weights_and_gradient(5, 5))
    | {
        "your function changed the weights it was given: make a new tensor.": lambda p, g: p.mul_(g - weighted(p, g)),
        "your function changed the gradient it was given: make a new tensor.": lambda p, g: g.sub_(weighted(p, g)) * p,
        f"the sum runs over the queries: {EACH_ROW}": lambda p, g: p * (g - weighted(p, g, -2)),
        f"the sum runs over all rows: {EACH_ROW}": lambda p, g: p * (g - (p * g).sum()),
        "each row's sum ended up in a column: keepdim=True.": lambda p, g: p * (g - (p * g).sum(-1)),
        "NaN or infinity. Do you divide by weights, or take their logarithm?": AnyOf(
            back_by_autograd, lambda p, g: back(p, g) / p.sum(-1, keepdim=True)
        ),
    },
    examine=examine_memory,
    caught={
        "but you built a tensor of 125 numbers from 25 weights": (
            lambda p, g: ((p.diag_embed() - p[..., :, None] * p[..., None, :]) @ g[..., None])[..., 0]
        )
    },
    copies=False,
)


def follow(parents: Tensor, i: int) -> int:
    """Follow the parents of these steps from the last one back."""
    for row in reversed(parents):
        i = int(row[i])
    return i


def written(visible: Callable[[Tensor, int], Any] = lambda rows, i: follow(rows[1:], i)) -> Any:
    """The table of a beam: of step t, whose parents and all later ones are `rows`, hypothesis i sees `visible`."""

    def answer(parents: Tensor) -> Tensor:
        steps, beam = parents.shape
        table = torch.zeros(beam, steps, beam, dtype=torch.bool)
        for i, t in itertools.product(range(beam), range(steps)):
            table[i, t, visible(parents[t:], i)] = True
        return table.flatten(1)

    return answer


def wrong_places(rows: Tensor, i: int) -> dict[str, Any]:
    """What is usually taken for the place in a step that hypothesis i sees, as an index."""
    place, last = follow(rows[1:], i), len(rows) == 1
    none: list[int] = []
    one_by_one = "follow them from the last step back, one by one."
    add_last = "take the parents' rows, then add the new tokens; their columns are the identity."
    near = place if len(rows) <= 2 else none
    return {
        "each sees its own last token alone: it also sees what its parent saw.": i if last else none,
        "each sees its own token and its parent's alone: the parent has a parent, too.": near,
        f"the parents of a step are numbers of the step before: {one_by_one}": follow(rows[1:2], i),
        "you followed the parents from the first step on: begin with the last.": follow(rows[1:].flip(0), i),
        "hypothesis i is not the same at all steps: follow the parents.": i,
        "those that continue the same parent do not see one another's tokens.": rows[0] == rows[0, place],
        "the hypotheses of the last step do not see one another's tokens.": slice(None) if last else place,
        f"off by a step: {add_last}": follow(rows, i),
        "off by a step: parents[t] belongs to step t, not to step t + 1.": follow(rows[:-1], i),
        "its own last token is missing.": none if last else place,
    }


def wrong_orders(parents: Tensor) -> dict[str, Tensor]:
    """What is usually got wrong about the form of the table, and what that gives."""
    table = written()(parents).unflatten(1, parents.shape)  # (beam, steps, beam)
    return {
        "all is visible: each sees one token of each step.": torch.ones_like(table).flatten(1),
        "rows are hypotheses and columns stored tokens; yours are the other way round.": table.flatten(1).T,
        "the tokens of a step stand side by side: place t · beam + i, not i · steps + t.": table.mT.flatten(1),
        "the last step comes last: your steps are in reversed order.": table.flip(1).flatten(1),
        "True means that it sees the token; yours is the opposite.": ~table.flatten(1),
    }


def parents_of(steps: int, beam: int) -> Tensor:
    """Draw whom each hypothesis of each step continues."""
    parents = torch.randint(beam, (steps, beam), generator=torch.Generator().manual_seed(3))
    parents[0] = 0
    return parents


EXERCISES["13.5"] = Exercise(
    "Who has written what",
    right=written(),
    cases={
        f"{steps} steps, beam {beam}: ": calls(parents_of(steps, beam))
        for steps, beam in ((5, 3), (2, 4), (1, 3), (4, 1), (9, 4))
    },
    mistakes=each(written, resulting(wrong_places, parents_of(5, 3), 0)) | resulting(wrong_orders, parents_of(5, 3)),
)
