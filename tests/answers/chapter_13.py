"""Wrong answers to the exercises of chapter 13, each with a pattern of its diagnosis; and other right answers."""

import functools
import math
from collections.abc import Callable

import torch

from annotated_course.exercises.chapter_13 import count_multiplications, who_sees


def merged(
    *,
    maximum=torch.maximum,
    shrink=lambda old, new: (old - new).nan_to_num(nan=-math.inf).exp(),
    total=lambda s, t, s_2, t_2: s * t + s_2 * t_2,
    output=lambda s, t, o, s_2, t_2, o_2: s * t * o + s_2 * t_2 * o_2,
    divide=lambda mixed, total, t, t_2: mixed / total.clamp(min=1),
) -> Callable:
    """The merge of two blocks, of which parts can be exchanged."""

    def merge(first, second):
        (m, t, o), (m_2, t_2, o_2) = first, second
        larger = maximum(m, m_2)
        s, s_2 = shrink(m, larger), shrink(m_2, larger)
        both = total(s, t, s_2, t_2)
        return larger, both, divide(output(s, t, o, s_2, t_2, o_2), both, t, t_2)

    return merge


def plain_merge(first, second):
    """Without care for blocks that are masked."""
    return merged(shrink=lambda old, new: (old - new).exp(), divide=lambda mixed, total, *_: mixed / total)(
        first, second
    )


def zero_when_both_masked(first, second):
    """The maximum of nothing becomes a number."""
    larger, total, output = merged()(first, second)
    return larger.clamp(min=torch.finfo(larger.dtype).min), total, output


def merge_above_zero(first, second):
    """Count from −50 at the lowest, so that −∞ becomes a number."""
    return merged(
        shrink=lambda old, new: (old - new.clamp(min=-50)).exp(), divide=lambda mixed, total, *_: mixed / (total + 1e-9)
    )(first, second)


def merge_by_halves(first, second):
    """Where a block is masked, the other one; else the plain formula."""
    found = []
    for mine, first_s, second_s in zip(plain_merge(first, second), first, second, strict=True):
        one = torch.where(second[1] == 0, first_s, mine)
        found.append(torch.where(first[1] == 0, second_s, one))
    return found


def merge_by_logarithms(first, second):
    """Each block's share of the whole is a softmax of the logarithms of the sums."""
    logs = torch.stack([maximum + total.log() for maximum, total, _ in (first, second)])
    share = logs.softmax(0).nan_to_num()
    larger = torch.maximum(first[0], second[0])
    total = (logs.logsumexp(0) - larger).exp().nan_to_num()
    return larger, total, share[0] * first[2] + share[1] * second[2]


def merge_in_place(first, second):
    """Write over what it is given."""
    larger = torch.maximum(first[0], second[0])
    for maximum, total, output in (first, second):
        total.mul_((maximum - larger.clamp(min=-1e30)).exp())
        output.mul_(total)
    first[1].add_(second[1])
    first[2].add_(second[2]).div_(first[1].clamp(min=1e-30))
    return larger, first[1], first[2]


def counted(**change) -> Callable[..., int]:
    """The count of multiplications with a mistake in it."""
    return lambda *given: count_multiplications(*given, **change)


def counted_without_loop(length, d_model, d_ff, cached):
    once, squares = length * (length + 1) // 2, length * (length + 1) * (2 * length + 1) // 6
    positions, pairs = (length, once) if cached else (once, squares)
    return positions * (4 * d_model**2 + 2 * d_model * d_ff) + pairs * 2 * d_model


def counted_by_torch(length, d_model, d_ff, cached):
    t = torch.arange(1, length + 1)
    positions, pairs = (torch.ones_like(t), t) if cached else (t, t * t)
    return (positions * (4 * d_model**2 + 2 * d_model * d_ff) + pairs * 2 * d_model).sum()


def summed(p, g, dim=-1):
    return (p * g).sum(dim, keepdim=True)


def back(p, g):
    return p * (g - summed(p, g))


def back_in_place(p, g):
    return g.sub_(summed(p, g)).mul_(p)


def weights_in_place(p, g):
    inner = p.mul_(g)
    return inner - inner.sum(-1, keepdim=True) * p


def back_by_jacobian(p, g):
    slopes = p.diag_embed() - p[..., :, None] * p[..., None, :]
    return (slopes @ g[..., None])[..., 0]


def back_by_shares(p, g):
    """Divide by a sum that is 1, but for rows of zeros."""
    return (p / p.sum(-1, keepdim=True)) * (g - summed(p, g))


def back_by_autograd(p, g):
    scores = p.log().requires_grad_()
    return torch.autograd.grad(scores.softmax(-1), scores, g)[0]


def back_at_zero(p, g):
    """Take a weight of 0 for a small one."""
    return torch.where(p == 0, 0.1, p) * (g - summed(p, g))


def seen(**change) -> Callable:
    """The table of what is seen, with a mistake in it."""
    return lambda parents: who_sees(parents, **change)


def seen_along(path_of) -> Callable:
    """The table, built place by place: `path_of` maps parents, a hypothesis and a step to who stood there."""

    def table(parents):
        steps, beam = parents.shape
        found = torch.zeros(beam, steps * beam, dtype=torch.bool)
        for i in range(beam):
            for t in range(steps):
                place = path_of(parents, i, t)
                if place is not None:
                    found[i, t * beam + place] = True
        return found

    return table


def ancestor(parents, i, t):
    return functools.reduce(lambda here, row: int(row[here]), reversed(parents[t + 1 :]), i)


def own_alone(parents, i, t):
    return i if t == len(parents) - 1 else None


def parent_alone(parents, i, t):
    return ancestor(parents, i, t) if t >= len(parents) - 2 else None


def parents_of_today(parents, i, t):
    return i if t == len(parents) - 1 else int(parents[t + 1, i])


def forwards(parents, i, t):
    return functools.reduce(lambda here, row: int(row[here]), parents[t + 1 :], i)


def no_own(parents, i, t):
    return None if t == len(parents) - 1 else ancestor(parents, i, t)


def seen_by_steps(parents):
    """The right table, with the steps of a hypothesis side by side."""
    return seen()(parents).unflatten(1, parents.shape).transpose(1, 2).flatten(1)


def seen_from_the_end(parents):
    return seen()(parents).unflatten(1, parents.shape).flip(1).flatten(1)


def siblings_at_the_end(parents):
    found = seen()(parents)
    found[:, -parents.size(1) :] = True
    return found


WRONG = [
    ("13.1", [24, 11], "float32 comes first"),
    ("13.1", (11, 21), "n of them in, n of them out.$"),
    ("13.1", (10, 20), "equally long"),
    ("13.1", (11, 22), "moved twice"),
    ("13.1", (3, 11), "you counted numbers"),
    ("13.1", (11, 59), "2 bytes, not 4"),
    ("13.1", (11, 6), "400 GFLOP/s, not 100"),
    ("13.1", (24, 59), "factor 2"),
    ("13.1", (10, 23), "rounded down"),
    ("13.1", (10.85, 23.7), "whole"),
    ("13.1", 11, "give two numbers"),
    ("13.1", (11, 30), "number 1, counted from 0, is not 30"),
    ("13.1", "11, 24", "raised (ValueError|TypeError)"),
    ("13.2", merged(maximum=lambda m, m_2: m), "^.{25,40}the maximum: this is the first block's"),
    ("13.2", merged(maximum=lambda m, m_2: m_2), "the maximum: this is the second block's"),
    ("13.2", merged(maximum=torch.minimum), "the maximum: this is the smaller"),
    ("13.2", merged(maximum=torch.add), "the maximum: this is the sum"),
    (
        "13.2",
        lambda a, b: (torch.logaddexp(a[0] + a[1].log(), b[0] + b[1].log()), *plain_merge(a, b)[1:]),
        "is a score",
    ),
    ("13.2", merged(total=lambda s, t, s_2, t_2: t + t_2), "the total: the two count from different maxima"),
    ("13.2", merged(shrink=lambda old, new: (new - old).exp()), "the total: the factor is"),
    ("13.2", merged(total=lambda s, t, s_2, t_2: s_2 * t + s * t_2), "the total: .*exchanged"),
    ("13.2", merged(total=lambda s, t, s_2, t_2: s * t + t_2), "the total: you rescale the first only"),
    ("13.2", merged(total=lambda s, t, s_2, t_2: t + s_2 * t_2), "the total: you rescale the second only"),
    ("13.2", merged(shrink=lambda old, new: old.exp()), "the total: this is Σ exp"),
    (
        "13.2",
        merged(total=lambda s, t, s_2, t_2: torch.ones_like(t)),
        "the total: it is the sum over the keys of both blocks, not 1",
    ),
    ("13.2", lambda a, b: (*plain_merge(a, b)[:2], a[2] + b[2]), "the output: this is the sum"),
    ("13.2", lambda a, b: (*plain_merge(a, b)[:2], (a[2] + b[2]) / 2), "the output: this is the mean"),
    (
        "13.2",
        lambda a, b: (*plain_merge(a, b)[:2], (a[1] * a[2] + b[1] * b[2]) / (a[1] + b[1])),
        "the output: .*not rescaled",
    ),
    ("13.2", merged(output=lambda s, t, o, s_2, t_2, o_2: s * o + s_2 * o_2), "the output: .*divided already"),
    (
        "13.2",
        lambda a, b: (
            *plain_merge(a, b)[:2],
            torch.lerp(b[2], a[2], (a[0] - b[0]).sigmoid()),
        ),
        "the output: .*alone",
    ),
    ("13.2", merged(divide=lambda mixed, *_: mixed), "the output: it is not divided"),
    ("13.2", merged(divide=lambda mixed, total, t, t_2: mixed / (t + t_2)), "the output: .*the given totals"),
    (
        "13.2",
        merged(output=lambda s, t, o, s_2, t_2, o_2: s_2 * t_2 * o + s * t * o_2),
        "the output: .*exchanged",
    ),
    ("13.2", plain_merge, "where both blocks are all masked: the total: it holds NaN or infinity. −∞"),
    ("13.2", merge_above_zero, "with scores around −1000: the total: it is 0 where it must not be. Do all"),
    ("13.2", zero_when_both_masked, "where both blocks are all masked: the maximum: of no score at all"),
    (
        "13.2",
        merged(
            shrink=lambda old, new: old.exp(),
            total=lambda s, t, s_2, t_2: s * t + s_2 * t_2,
            divide=lambda mixed, total, *_: mixed / total,
        ),
        "Σ exp",
    ),
    (
        "13.2",
        lambda a, b: (
            torch.maximum(a[0], b[0]),
            (a[0].exp() * a[1] + b[0].exp() * b[1]) / torch.maximum(a[0], b[0]).exp(),
            a[2],
        ),
        "the output: at index",
    ),
    (
        "13.2",
        lambda a, b: (
            *plain_merge(a, b)[:1],
            (a[0].exp() * a[1] + b[0].exp() * b[1]) / torch.maximum(a[0], b[0]).exp(),
            merged()(a, b)[2],
        ),
        "with scores around 1000: the total: it holds NaN or infinity. Does an exp",
    ),
    ("13.2", lambda a, b: (lambda m, t, o: (m, o, t))(*merged()(a, b)), "their order is maximum, total, output"),
    ("13.2", lambda a, b: tuple(part[..., 0] for part in merged()(a, b)), r"expected shape \(4, 1\), got \(4,\)"),
    ("13.2", lambda a, b: merged()(a, b)[2], "return three tensors"),
    ("13.2", lambda a, b: merged()(a, b) and None, "does it end in a return"),
    ("13.2", lambda a, b: (None, None, None), "return three tensors"),
    ("13.3", lambda a, b, c, cached: count_multiplications(a, b, c, not cached), "number with a cache"),
    ("13.3", lambda a, b, c, cached: count_multiplications(a, b, c, False), "with a cache: .*number without a cache"),
    ("13.3", lambda *given: 2 * count_multiplications(*given), "additions"),
    ("13.3", counted(start=0), "t goes from 1"),
    ("13.3", counted(start=2), "yours from 2"),
    ("13.3", counted(last_only=True), "last step alone"),
    ("13.3", counted(projections=3), "one of the four projections"),
    ("13.3", counted(projections=0), "the projections are missing"),
    ("13.3", counted(feed_forward=1), "two matrices"),
    ("13.3", counted(feed_forward=0), "feed-forward network is missing"),
    ("13.3", counted(each_pair=1), "once in Q Kᵀ"),
    ("13.3", counted(each_pair=0), "the pairs are missing"),
    ("13.3", counted(pairs=lambda t, cached: t if cached else t * (t + 1) // 2), "a mask saves no"),
    ("13.3", counted(pairs=lambda t, cached: t), "without a cache: .*every position asks again"),
    ("13.3", counted(pairs=lambda t, cached: t * t), "with a cache: only the new position asks"),
    ("13.3", counted(pairs=lambda t, cached: 1 if cached else t * t), "asks all t keys"),
    ("13.3", counted(positions=lambda t, cached: 1), "without a cache: a step computes all t positions, not one"),
    ("13.3", counted(positions=lambda t, cached: t), "with a cache: a step computes one position, not t"),
    ("13.3", lambda *given: count_multiplications(*given) + 1, "length 6, without a cache: expected 48,"),
    ("13.3", lambda *given: float(count_multiplications(*given)), "expected an int, got float"),
    ("13.3", lambda *given: torch.tensor(1.0), "expected an int, got float"),
    ("13.3", lambda *given: True, "expected an int, got bool"),
    ("13.3", lambda *given: [count_multiplications(*given)], "expected an int, got list"),
    ("13.3", lambda *given: print(end=""), "does it end in a return"),
    ("13.4", lambda p, g: p * g, "p · g alone"),
    ("13.4", lambda p, g: p * (1 - p) * g, r"p · \(1 − p\)"),
    ("13.4", lambda p, g: g.clone(), "as it came"),
    ("13.4", lambda p, g: g - summed(p, g), "in front of all"),
    ("13.4", lambda p, g: p * g - summed(p, g), "one of the two parts"),
    ("13.4", lambda p, g: p * (g - g.sum(-1, keepdim=True)), "yours is Σ g"),
    ("13.4", lambda p, g: p * (g - g.mean(-1, keepdim=True)), "plain mean"),
    ("13.4", lambda p, g: g - p * g.sum(-1, keepdim=True), "log-softmax"),
    ("13.4", lambda p, g: p * (summed(p, g) - g), "sign"),
    ("13.4", lambda p, g: p * (g + summed(p, g)), "is added"),
    ("13.4", lambda p, g: p - g, "section 4"),
    ("13.4", lambda p, g: back(p.softmax(-1), g), "softmax of the weights"),
    ("13.4", lambda p, g: p * (g - summed(p, g, -2)), "over the queries"),
    ("13.4", lambda p, g: p * (g - (p * g).sum()), "over all rows"),
    ("13.4", lambda p, g: p * (g - (p * g).sum(-1)), "keepdim"),
    ("13.4", lambda p, g: p * (g - (p * g).sum(1, keepdim=True)), "raised IndexError"),
    ("13.4", lambda p, g: back(p, g).double(), "expected torch.float32, got torch.float64"),
    ("13.4", lambda p, g: back(p, g).tolist(), "expected a tensor, got list"),
    ("13.4", lambda p, g: back(p, g)[None], "expected shape"),
    ("13.4", lambda p, g: print(end=""), "does it end in a return"),
    ("13.4", back_by_jacobian, "25 weights; do without"),
    ("13.4", back_in_place, "changed the gradient"),
    ("13.4", weights_in_place, "changed the weights"),
    ("13.4", back_by_shares, "with weights of 0: NaN"),
    ("13.4", back_by_autograd, "with weights of 0: NaN"),
    ("13.4", back_at_zero, "with weights of 0: at index"),
    ("13.5", seen_along(own_alone), "its own last token alone"),
    ("13.5", seen_along(parent_alone), "its parent's alone"),
    ("13.5", seen_along(parents_of_today), "from the last step back, one by one"),
    ("13.5", seen_along(forwards), "begin with the last"),
    ("13.5", seen_along(lambda parents, i, t: i), "not the same at all steps"),
    ("13.5", seen_along(no_own), "own last token is missing"),
    ("13.5", lambda parents: seen()(parents).T, "other way round"),
    ("13.5", seen(siblings=True), "continue the same parent"),
    ("13.5", siblings_at_the_end, "of the last step do not see"),
    ("13.5", lambda parents: torch.ones_like(seen()(parents)), "all is visible"),
    ("13.5", seen(after=True), "take the parents' rows"),
    ("13.5", seen(late=True), r"parents\[t\] belongs to step t"),
    ("13.5", seen_by_steps, r"not i · steps \+ t"),
    ("13.5", seen_from_the_end, "reversed order"),
    ("13.5", lambda parents: ~seen()(parents), "opposite"),
    ("13.5", lambda parents: seen()(parents).int(), "expected torch.bool, got torch.int32"),
    ("13.5", lambda parents: seen()(parents)[:, parents.size(1) :], r"expected shape \(3, 15\), got \(3, 12\)"),
    ("13.5", lambda parents: seen()(parents).tolist(), "expected a tensor, got list"),
    ("13.5", lambda parents: print(end=""), "does it end in a return"),
]

RIGHT = [
    ("13.1", (11, 24)),
    ("13.1", [11.0, 24.0]),
    ("13.1", torch.tensor([11, 24])),
    ("13.2", merged()),
    ("13.2", merge_by_halves),
    ("13.2", merge_by_logarithms),
    ("13.2", merge_in_place),
    ("13.3", counted()),
    ("13.3", counted_without_loop),
    ("13.3", counted_by_torch),
    ("13.4", back),
    ("13.4", lambda p, g: p * (g - torch.einsum("...j,...j->...", p, g)[..., None])),
    ("13.4", lambda p, g: p * g - p * summed(p, g)),
    ("13.5", seen()),
    ("13.5", seen_along(ancestor)),
]
