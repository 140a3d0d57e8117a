"""The exercises of chapter 13, speed."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.diagnosis import Exercise, LargestTensor, compare


def enough_rows(
    *, size: int, rate: int, moved_rows: int = 2, factor: int = 2, ties: bool = False, below: bool = False
) -> int:
    """The smallest number of rows whose arithmetic takes longer than their memory, with a choice of mistakes."""
    n = 0
    while True:
        n += 1
        arithmetic, memory = factor * n * 256**2 * 20, size * (256**2 + moved_rows * n * 256) * rate
        if arithmetic > memory or (ties and arithmetic == memory):
            return n - below


def arithmetic_or_memory(answer: Any) -> str | None:
    """100 GFLOP/s and 4 bytes, then 400 GFLOP/s and 2 bytes, both with 20 GB/s."""

    def both(sizes: tuple[int, int] = (4, 2), rates: tuple[int, int] = (100, 400), **change: Any) -> Tensor:
        pairs = zip(sizes, rates, strict=True)
        return torch.tensor([float(enough_rows(size=size, rate=rate, **change)) for size, rate in pairs])

    found = torch.as_tensor(answer, dtype=torch.float32)
    if found.shape != (2,):
        return "give two numbers: for float32, then for bfloat16."
    if found.frac().any():
        return "a number of rows is whole: the smallest with which arithmetic takes longer."
    rows_missing = "the rows are moved, too: n of them in, n of them out."
    mistakes = {
        rows_missing: both(moved_rows=0),
        f"{rows_missing} (And where both take equally long, arithmetic does not take longer.)": (
            both(moved_rows=0, ties=True)
        ),
        "the rows are moved twice: n of them in, n of them out.": both(moved_rows=1),
        "a number takes 4 bytes in float32 and 2 in bfloat16; you counted numbers.": both(sizes=(1, 1)),
        "in bfloat16 a number takes 2 bytes, not 4.": both(sizes=(4, 4)),
        "in bfloat16 the core does 400 GFLOP/s, not 100.": both(rates=(100, 100)),
        "a factor 2 is missing: the product does 2 · n · 256² operations.": both(factor=1),
        "float32 comes first, bfloat16 second.": both().flip(0),
        "you rounded down: with one row less, memory still takes longer.": both(below=True),
    }
    return compare(found, both(), mistakes, by_hand=True)


Block = tuple[Tensor, Tensor, Tensor]


def block_of(scores: Tensor, value: Tensor) -> Block:
    """The maximum, the total and the divided output of a softmax over one block of keys."""
    maximum = scores.amax(dim=-1, keepdim=True)
    shares = (scores - maximum.clamp(min=torch.finfo(scores.dtype).min)).exp()
    total = shares.sum(dim=-1, keepdim=True)
    return maximum, total, shares @ value / total.clamp(min=1.0)


def wrong_merges(first: Block, second: Block) -> tuple[dict[str, Tensor], ...]:
    """For the maximum, the total and the output: what is usually got wrong, and what that gives."""
    (m, t, o), (m_2, t_2, o_2) = first, second
    larger = torch.maximum(m, m_2)
    shrink, shrink_2 = (m - larger).exp(), (m_2 - larger).exp()
    share, share_2 = shrink * t, shrink_2 * t_2
    total = share + share_2
    return (
        {
            "this is the first block's: take the larger of the two, query by query.": m,
            "this is the second block's: take the larger of the two, query by query.": m_2,
            "this is the smaller of the two; take the larger.": torch.minimum(m, m_2),
            "this is the sum of the two; take the larger.": m + m_2,
            "this is the logarithm of a sum of exponentials; the maximum is a score.": larger + total.log(),
        },
        {
            "the two count from different maxima: first multiply each by exp(its maximum − the new one).": t + t_2,
            "the factor is exp(its maximum − the new one), at most 1; yours is one over it.": (
                t / shrink + t_2 / shrink_2
            ),
            "each total has a factor of its own; yours are exchanged.": shrink_2 * t + shrink * t_2,
            "you rescale the first only: for some queries the second has the smaller maximum.": share + t_2,
            "you rescale the second only: for some queries the first has the smaller maximum.": t + share_2,
            "this is Σ exp(score); it must be Σ exp(score − maximum).": total * larger.exp(),
            "it is the sum over the keys of both blocks, not 1.": torch.ones_like(t),
        },
        {
            "this is the sum of the two: each counts by its share of the new total.": o + o_2,
            "this is the mean of the two: each counts by its share of the new total.": (o + o_2) / 2,
            "the outputs count by totals that are not rescaled: these count from different maxima.": (
                (t * o + t_2 * o_2) / (t + t_2)
            ),
            "the given outputs are divided already: multiply each by its own total before you add them.": (
                (shrink * o + shrink_2 * o_2) / total
            ),
            "each output counts by its rescaled total; you took the factor exp(its maximum − the new one) alone.": (
                (shrink * o + shrink_2 * o_2) / (shrink + shrink_2)
            ),
            "it is not divided by the new total.": share * o + share_2 * o_2,
            "you divide by the sum of the given totals: divide by the new total.": (
                (share * o + share_2 * o_2) / (t + t_2)
            ),
            "each output has a share of its own; yours are exchanged.": (share_2 * o + share * o_2) / total,
        },
    )


def two_blocks(answer: Callable[[Block, Block], Block]) -> str | None:
    """Two blocks, against the softmax over all keys: with axes in front, large scores, and blocks that are masked."""
    generator = torch.Generator().manual_seed(2)

    def drawn(*axes: int) -> tuple[Tensor, Tensor]:
        scores = 2 * torch.randn(*axes, 4, 9, generator=generator)
        return scores, torch.randn(*axes, 9, 3, generator=generator)

    scores, value = drawn()
    one, both = scores.clone(), scores.clone()
    one[0, :5] = one[1, 5:] = both[2] = -math.inf
    exponent = "Subtract the new maximum in each exponent."
    cases = [
        ("", "", scores, value),
        ("with two axes in front: ", "", *drawn(2, 3)),
        ("with scores around 1000: ", f"Does an exponential overflow? {exponent}", 1000 + 300 * scores, value),
        ("with scores around −1000: ", f"Do all exponentials become 0? {exponent}", scores - 1000, value),
        ("where one block is all masked: ", "Does that block count by its total, 0?", one, value),
        ("where both blocks are all masked: ", "−∞ − (−∞) and 0 / 0 are no numbers.", both, value),
    ]
    for remark, hint, all_scores, all_values in cases:
        parts = zip(all_scores.split((5, 4), dim=-1), all_values.split((5, 4), dim=-2), strict=True)
        blocks = [block_of(*part) for part in parts]
        expected = block_of(all_scores, all_values)
        for first, second in (blocks, blocks[::-1]):
            found = answer(_copied(first), _copied(second))
            if found is None:
                return "your function returned None: does it end in a return?"
            if not isinstance(found, tuple | list) or [isinstance(one, Tensor) for one in found] != [True] * 3:
                return "return three tensors: maximum, total, output."
            if _are_in_another_order(found, expected):
                return "all three are right; their order is maximum, total, output."
            mistakes = wrong_merges(first, second)
            for place, name in enumerate(("maximum", "total", "output")):
                if diagnosis := _part(found[place], expected[place], mistakes[place], hint):
                    return f"{remark}the {name}: {diagnosis}"
    return None


def _copied(block: Block) -> Block:
    maximum, total, output = block
    return maximum.clone(), total.clone(), output.clone()


def _are_in_another_order(found: Sequence[Tensor], expected: Block) -> bool:
    return any(
        order != (0, 1, 2) and all(compare(found[i], expected[j], {}) is None for i, j in enumerate(order))
        for order in itertools.permutations(range(3))
    )


def _part(found: Tensor, expected: Tensor, mistakes: dict[str, Tensor], hint: str) -> str | None:
    if found.shape == expected.shape:
        if (expected.isfinite() & ~found.isfinite()).any() or found.isnan().any():
            return f"it holds NaN or infinity. {hint}".rstrip()
        if (expected.isinf() & found.isfinite()).any():
            return "of no score at all it is −∞."
        if ((found == 0) & (expected != 0)).any():
            return f"it is 0 where it must not be. {hint}".rstrip()
    return compare(found, expected, mistakes)


def count_multiplications(
    length: int,
    d_model: int,
    d_ff: int,
    cached: bool,
    *,
    start: int = 1,
    last_only: bool = False,
    projections: int = 4,
    feed_forward: int = 2,
    each_pair: int = 2,
    positions: Callable[[int, bool], int] = lambda t, cached: 1 if cached else t,
    pairs: Callable[[int, bool], int] = lambda t, cached: t if cached else t * t,
) -> int:
    """A decoder layer's multiplications while tokens are written, with a choice of what is usually got wrong."""
    steps = range(start, start + length)
    position = projections * d_model**2 + feed_forward * d_model * d_ff
    return sum(
        positions(t, cached) * position + pairs(t, cached) * each_pair * d_model
        for t in (steps[-1:] if last_only else steps)
    )


def saved_by_a_cache(answer: Callable[[int, int, int, bool], int]) -> str | None:
    """Both counts, for several lengths, and for numbers that no float holds."""
    mistakes: dict[str, dict[str, Any]] = {
        "you count a step with t = 0: t goes from 1 to length.": {"start": 0},
        "t goes from 1 to length; yours from 2.": {"start": 2},
        "this is the last step alone: add up all steps.": {"last_only": True},
        "one of the four projections is missing: a position costs 4 · d_model² in them.": {"projections": 3},
        "the projections are missing: a position costs 4 · d_model² in them.": {"projections": 0},
        "the feed-forward network has two matrices: 2 · d_model · d_ff for a position.": {"feed_forward": 1},
        "the feed-forward network is missing: 2 · d_model · d_ff for a position.": {"feed_forward": 0},
        "a pair costs 2 · d_model: once in Q Kᵀ, once in weights · V.": {"each_pair": 1},
        "the pairs are missing.": {"each_pair": 0},
        "a mask saves no multiplications: all t · t pairs count.": {
            "pairs": lambda t, cached: t if cached else t * (t + 1) // 2
        },
        "every position asks again: t · t pairs, not t.": {"pairs": lambda t, cached: t},
        "only the new position asks: t pairs, not t · t.": {"pairs": lambda t, cached: t * t},
        "the new position asks all t keys, not only its own.": {"pairs": lambda t, cached: 1 if cached else t * t},
        "a step computes all t positions, not one.": {"positions": lambda t, cached: 1},
        "a step computes one position, not t.": {"positions": lambda t, cached: t},
    }
    for sizes in ((6, 17, 29), (1, 17, 29), (11, 5, 13), (1001, 10**6 + 1, 10**6 + 3)):
        for cached in (False, True):
            found, expected = answer(*sizes, cached), count_multiplications(*sizes, cached)
            if isinstance(found, Tensor) and found.dim() == 0:
                found = int(found) if not found.is_floating_point() else float(found)
            if found is None:
                return "your function returned None: does it end in a return?"
            if isinstance(found, bool) or not isinstance(found, int):
                hint = ": divide whole numbers by //, or not at all." if isinstance(found, float) else "."
                return f"expected an int, got {type(found).__name__}{hint}"
            if found == expected:
                continue
            known = {
                f"this is the number {'without' if cached else 'with'} a cache.": (
                    count_multiplications(*sizes, not cached)
                ),
                "you count the additions as well: multiplications alone.": 2 * expected,
            } | {text: count_multiplications(*sizes, cached, **change) for text, change in mistakes.items()}
            diagnosis = next((text for text, wrong in known.items() if found == wrong), f"expected {expected:,}.")
            return f"length {sizes[0]}, {'with' if cached else 'without'} a cache: {diagnosis}"
    return None


def through_a_softmax(answer: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """The gradient by the scores, against autograd: a square of weights, one row, axes in front, a row of zeros."""
    generator = torch.Generator().manual_seed(0)
    for shape, remark in (((5, 5), ""), ((6,), "one row: "), ((2, 3, 4, 6), "with two axes in front: ")):
        scores = torch.randn(*shape, generator=generator).requires_grad_()
        g = torch.randn(*shape, generator=generator)
        (expected,) = torch.autograd.grad(scores.softmax(dim=-1), scores, g)
        p = scores.detach().softmax(dim=-1)
        if diagnosis := _kept(answer, p, g, expected, wrong_ways_back(p, g)):
            return remark + diagnosis
    p[0, 1, 2] = expected[0, 1, 2] = 0.0
    p[1, 2, 3, 1:] = expected[1, 2, 3] = 0.0
    p[1, 2, 3, 0] = 1.0
    found = answer(p.clone(), g.clone())
    if isinstance(found, Tensor) and found.shape == p.shape and not found.isfinite().all():
        return "with weights of 0: NaN or infinity. Do you divide by weights, or take their logarithm?"
    diagnosis = compare(found, expected, {})
    return diagnosis and f"with weights of 0: {diagnosis}"


def wrong_ways_back(p: Tensor, g: Tensor) -> dict[str, Tensor]:
    """What is usually got wrong on the way back through a softmax, and what that gives."""
    inner = p * g
    mean = inner.sum(dim=-1, keepdim=True)
    again = p.softmax(dim=-1)
    wrong = {
        "this is p · g alone: a larger score also makes the other weights of its row smaller.": inner,
        "this is p · (1 − p) · g alone: a larger score also makes the other weights of its row smaller.": (
            p * (1 - p) * g
        ),
        "this is the gradient by the weights, as it came.": g,
        "a factor p is missing, in front of all.": g - mean,
        "p stands only before one of the two parts: p · g − Σ p · g.": inner - mean,
        "the sum to subtract is weighted by p: Σ p · g; yours is Σ g.": p * (g - g.sum(dim=-1, keepdim=True)),
        "the mean to subtract is weighted by p: Σ p · g; yours is the plain mean of g.": (
            p * (g - g.mean(dim=-1, keepdim=True))
        ),
        "this is the way back through a log-softmax.": g - p * g.sum(dim=-1, keepdim=True),
        "the sign is reversed.": p * (mean - g),
        "the sum is added: subtract it.": p * (g + mean),
        "this is p minus what came, as in section 4; there it was a target, here it is a gradient.": p - g,
        "you took a softmax of the weights: they are one already.": (
            again * (g - (again * g).sum(dim=-1, keepdim=True))
        ),
    }
    if p.dim() > 1:
        wrong["the sum runs over the queries: each row is a softmax of its own, dim=-1."] = p * (
            g - inner.sum(dim=-2, keepdim=True)
        )
        wrong["the sum runs over all rows: each row is a softmax of its own, dim=-1."] = p * (g - inner.sum())
    if p.dim() == 2 and p.size(0) == p.size(1):
        wrong["each row's sum ended up in a column: keepdim=True."] = p * (g - inner.sum(dim=-1))
    return wrong


def _kept(
    answer: Callable[[Tensor, Tensor], Tensor], p: Tensor, g: Tensor, expected: Tensor, mistakes: dict[str, Tensor]
) -> str | None:
    weights, gradient = p.clone(), g.clone()
    with LargestTensor() as seen:
        found = answer(weights, gradient)
    for name, given, before in (("weights", weights, p), ("gradient", gradient, g)):
        if not torch.equal(given, before):
            return f"your function changed the {name} it was given: make a new tensor."
    if diagnosis := compare(found, expected, mistakes):
        return diagnosis
    if seen.largest > p.numel():
        return (
            f"the result is right, but you built a tensor of {seen.largest} numbers from {p.numel()} weights; "
            "do without a matrix of slopes."
        )
    return None


def who_sees(parents: Tensor, *, after: bool = False, late: bool = False, siblings: bool = False) -> Tensor:
    """Which stored tokens each of the last hypotheses sees, with a choice of what is usually got wrong."""
    steps, beam = parents.shape
    table = torch.zeros(beam, 0, dtype=torch.bool)
    eye = torch.eye(beam).bool()
    for t in range(steps):
        row = parents[max(t - 1, 0)] if late else parents[t]
        own = parents[t, :, None] == parents[t] if siblings else eye
        table = torch.cat((table, own), dim=1)[row] if after else torch.cat((table[row], own), dim=1)
    return table


def wrong_tables(parents: Tensor) -> dict[str, Tensor]:
    """What is usually got wrong about whose past holds what, and what that gives."""
    steps, beam = parents.shape
    expected, eye = who_sees(parents), torch.eye(beam).bool()
    never, last = torch.zeros(beam, beam).bool(), parents[-1]
    blocks = list(expected.split(beam, dim=1))
    places = torch.arange(beam * steps).view(steps, beam).T.flatten()  # steps of one hypothesis side by side
    straight = [eye[parents[t + 1]] for t in range(steps - 1)]
    backwards = expected.clone()
    for t in range(steps - 1):
        path = torch.arange(beam)
        for row in parents[t + 1 :]:
            path = row[path]
        backwards[:, t * beam : (t + 1) * beam] = eye[path]
    return {
        "all is visible: each sees one token of each step.": torch.ones_like(expected),
        "each sees its own last token alone: it also sees what its parent saw.": torch.cat(
            [never] * (steps - 1) + [eye], dim=1
        ),
        "each sees its own token and its parent's alone: the parent has a parent, too.": torch.cat(
            [never] * (steps - 2) + [eye[last], eye], dim=1
        )[:, -beam * steps :],
        "the parents of a step are numbers of the step before: follow them from the last step back, one by one.": (
            torch.cat([*straight, eye], dim=1)
        ),
        "you followed the parents from the first step on: begin with the last.": backwards,
        "hypothesis i is not the same at all steps: follow the parents.": torch.cat([eye] * steps, dim=1),
        "rows are hypotheses and columns stored tokens; yours are the other way round.": expected.T,
        "those that continue the same parent do not see one another's tokens.": who_sees(parents, siblings=True),
        "the hypotheses of the last step do not see one another's tokens.": torch.cat([*blocks[:-1], ~never], dim=1),
        "off by a step: take the parents' rows, then add the new tokens; their columns are the identity.": who_sees(
            parents, after=True
        ),
        "off by a step: parents[t] belongs to step t, not to step t + 1.": who_sees(parents, late=True),
        "its own last token is missing.": torch.cat([*blocks[:-1], never], dim=1),
        "the tokens of a step stand side by side: place t · beam + i, not i · steps + t.": expected[:, places],
        "the last step comes last: your steps are in reversed order.": torch.cat(blocks[::-1], dim=1),
        "True means that it sees the token; yours is the opposite.": ~expected,
    }


def who_has_written_what(answer: Callable[[Tensor], Tensor]) -> str | None:
    """The table of a beam, built from the parents of each step; also for one step, and for one hypothesis."""
    generator = torch.Generator().manual_seed(3)
    for steps, beam in ((5, 3), (2, 4), (1, 3), (4, 1), (9, 4)):
        parents = torch.randint(beam, (steps, beam), generator=generator)
        parents[0] = 0
        if diagnosis := compare(answer(parents.clone()), who_sees(parents), wrong_tables(parents)):
            return f"{steps} steps, beam {beam}: {diagnosis}"
    return None


EXERCISES = {
    "13.1": Exercise("Arithmetic or memory?", arithmetic_or_memory),
    "13.2": Exercise("Two blocks become one", two_blocks),
    "13.3": Exercise("What a cache saves", saved_by_a_cache),
    "13.4": Exercise("Back through a softmax", through_a_softmax, copies=False),
    "13.5": Exercise("Who has written what", who_has_written_what),
}
