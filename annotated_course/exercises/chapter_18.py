"""The exercises of chapter 18, attention for long texts."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import attention
from annotated.masking import causal_mask
from annotated.models.long_attention import block_pattern, pattern_mask
from annotated_course.exercises.diagnosis import Exercise, LargestTensor, compare


def where_it_pays(answer: Any) -> str | None:
    """Where attention overtakes the feed-forward, where Linformer pays, and how many squares BigBird computes."""
    found = torch.as_tensor(answer, dtype=torch.float32)
    if found.shape != (4,):
        return "give four numbers, in the order of the questions."
    questions = (
        (768, {1536: "two products make 4 n² d operations, not 2 n² d.", 256: "here without the projections."}),
        (256, {768: "here with the projections, 8 n d².", 512: "there are four projections, not two."}),
        (128, {64: "mixing the keys and the values costs operations, too.", 256: "8 n k d = 4 n² d."}),
        (
            94,
            {
                100: "the first block and the last two or three have fewer than 5 new ones: count row by row.",
                80: "row 0 looks at all 20 blocks.",
                78: "row 0 looks at all 20 blocks.",
                77: "that is how many the window and the column alone make: row 0 looks at all 20 blocks.",
                58: "this is the window of 3 alone.",
                95: "row 1 has 3: its left neighbour is the first block, which counts once.",
                96: "rows 1 and 19 have only 3 each.",
            },
        ),
    )
    for place, ((right, mistakes), given) in enumerate(zip(questions, found.tolist(), strict=True)):
        if not math.isclose(given, right, rel_tol=1e-4):
            return f"number {place}: {mistakes.get(round(given), f'expected another number than {given:g}.')}"
    return None


def groups_without_future(group_mask: Callable) -> str | None:
    """The causal mask of queries and groups of keys."""
    for length, stride in ((7, 3), (8, 2), (5, 1), (9, 4), (2, 3)):
        count = length // stride
        ends = stride * torch.arange(1, count + 1) - 1
        query = torch.arange(length)[:, None]
        mistakes = {
            "a query sees a group when its first member is there: then it hears of the others, which are still to "
            "come.": query >= ends - stride + 1,
            "a query sees a group only after its last member. It may see itself, so it may see the group that it "
            "completes.": query > ends,
            "True where the query may NOT see the group: turn it round.": query < ends,
            "every query sees every group: the future is there.": torch.ones(length, count, dtype=torch.bool),
            "queries that see nothing yet stay so: let nobody look at an unfinished group.": (query >= ends)
            | (query < stride - 1),
            "groups count from 0: the last position of group j is (j + 1) · stride − 1.": query
            >= ends + 1 - stride - 1,
        }
        diagnosis = compare(group_mask(length, stride), query >= ends, mistakes)
        if diagnosis:
            more = length % stride and f" (The {length % stride} positions at the end fill no group.)"
            return f"length {length}, stride {stride}: {diagnosis}{more if more and 'shape' in diagnosis else ''}"
    return None


def hops(pattern: Tensor, residual: bool = True) -> int | None:
    """How many layers it takes until each position can know of each."""
    step = pattern | torch.eye(len(pattern), dtype=torch.bool) if residual else pattern
    known = step
    for layers in range(1, 2 * len(pattern)):
        if known.all():
            return layers
        known = (known.double() @ step.double()) > 0
    return None


def enough_layers(layers_needed: Callable) -> str | None:
    """The number of layers after which each position can know of each."""
    positions = torch.arange(6)
    ring = positions[None] == (positions[:, None] + 1) % 6
    cases = {
        "a window of one to each side, 9 positions": (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 1,
        "all looks at all, 4 positions": torch.ones(4, 4, dtype=torch.bool),
        "the first position looks at all, and all at it, 7 positions": pattern_mask(
            block_pattern(7, window=1, first=1), 1, 1
        ),
        "each position looks at the next one only, in a ring of 6": ring,
        "two halves that do not look at each other": torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool(),
        "a causal mask, 5 positions": causal_mask(5),
        "each position looks at itself and all later ones, 5 positions": causal_mask(5).T,
        "a window of one to each side, 150 positions": (torch.arange(150)[:, None] - torch.arange(150)).abs() <= 1,
    }
    crowded = (torch.arange(260)[:, None] - torch.arange(260)).abs() <= 1
    crowded[:60, :60] = True  # more ways than 64 bits hold
    cases["60 positions that all look at all, and a chain of 200 more"] = crowded
    for name, pattern in cases.items():
        given, right = layers_needed(pattern.clone()), hops(pattern)
        if isinstance(given, Tensor) and given.numel() == 1:
            given = given.item()
        if given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
            return f"expected a number of layers or None, got {type(given).__name__}."
        if given == right:
            continue
        if "150" in name or "chain" in name:
            return f"{name}: got {given}. The numbers of ways overflow: after each layer ask only whether there is one."
        if right is None:
            return f"{name}: never, so None is expected; got {given}."
        if given == hops(pattern, residual=False):
            return f"{name}: the residual connection keeps what a position has: set the diagonal to True."
        if given == right - 1 or given == right + 1:
            return f"{name}: expected {right}, got {given}. What does one layer, the pattern itself, already reach?"
        return f"{name}: expected {right}, got {given}."
    return None


def window_without_table(sliding_window: Callable) -> str | None:
    """Attention to the neighbours, without the table of all pairs."""
    draw = torch.Generator().manual_seed(0)
    for length, reach in ((6, 1), (7, 2), (5, 0), (3, 4)):
        q, k, v = (torch.randn(2, 3, length, width, generator=draw) for width in (4, 4, 5))
        apart = torch.arange(length)[:, None] - torch.arange(length)
        near = apart.abs() <= reach

        def empty_places(scale: float, q: Tensor = q, k: Tensor = k, v: Tensor = v, reach: int = reach) -> Tensor:
            """What comes out where zeros beyond the ends count as keys."""
            edge = (0, 0, reach, reach)
            keys, values = (torch.nn.functional.pad(x, edge).unfold(-2, 2 * reach + 1, 1) for x in (k, v))
            weights = ((q[..., None, :] @ keys)[..., 0, :] * scale).softmax(dim=-1)
            return (values @ weights[..., None])[..., 0]

        mistakes = {
            "beyond the ends of the text there are no keys: yours are zeros, and get a weight.": empty_places(0.5),
            "the scores are not divided by √d_k.": attention(2 * q, k, v, near),
            "the window is one-sided: keys on both sides count.": attention(q, k, v, near & (apart >= 0)),
            "the window is one-sided: keys on both sides count, earlier ones too.": attention(
                q, k, v, near & (apart <= 0)
            ),
            "all keys are seen: only those up to `reach` away may be.": attention(q, k, v),
            "the window is one key too narrow on each side: `reach` away is still in it.": attention(
                q, k, v, apart.abs() < reach
            ),
            "the window is one key too narrow on the right: `reach` away is still in it.": attention(
                q, k, v, near & (apart > -reach)
            ),
            "the window is too wide.": attention(q, k, v, apart.abs() <= reach + 1),
            "the softmax is missing.": (q @ k.transpose(-2, -1) / 2).masked_fill(~near, 0) @ v,
        }
        diagnosis = compare(sliding_window(q, k, v, reach), attention(q, k, v, near), mistakes)
        if diagnosis:
            return f"{length} positions, reach {reach}: {diagnosis}"
    q = torch.randn(6, 4, generator=draw)
    try:
        found = sliding_window(q, q, q, 1)
    except (RuntimeError, ValueError, IndexError) as error:
        return f"right with two axes before (length, d), but without any it raises {type(error).__name__}: {error}"
    near = (torch.arange(6)[:, None] - torch.arange(6)).abs() <= 1
    if diagnosis := compare(found, attention(q, q, q, near), {}):
        return f"right with two axes before (length, d), but without any: {diagnosis}"
    q = torch.randn(1, 1, 256, 4, generator=draw)
    with LargestTensor() as seen, FlopCounterMode(display=False) as counter:
        found = sliding_window(q, q, q, 2)
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
    apart = torch.arange(256)[:, None] - torch.arange(256)
    return compare(found, attention(q, q, q, apart.abs() <= 2), {})


EXERCISES = {
    "18.1": Exercise("Where it pays, by hand", where_it_pays),
    "18.2": Exercise("Groups without the future", groups_without_future),
    "18.3": Exercise("How many layers are enough?", enough_layers),
    "18.4": Exercise("A window without the table", window_without_table),
}
