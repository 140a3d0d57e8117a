"""The exercises of chapter 17, relative positions."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from annotated.models.relative_positions import rotate, signed_distances
from annotated_course.exercises.diagnosis import Exercise, compare


def distances_by_hand(answer: Any) -> str | None:
    """Two outputs of relative attention, and two products of turned vectors."""
    found = torch.as_tensor(answer, dtype=torch.float32)
    if found.shape != (4,):
        return "give four numbers, in the order of the questions."
    left, right = "to the left of the query distances are negative: j − i.", "−3 is clipped to −2."
    questions: tuple[tuple[float, dict[float, str]], ...] = (
        (
            6.0,
            {
                3.0: "the values have their vectors, too: a^V of the row −1 is missing.",
                44 / 7: f"token 0 is missing from the row −2, or its score is 0: {right}",
                11.0: "a^V is weighted like the value: it is 3/8 of 8, not 8.",
                2.4: left,
                48.0: "this is the sum before it is divided by the sum of the exponentials, 8.",
                0.75: "these are the weights times the row, without values.",
            },
        ),
        (
            4.0,
            {
                6.5: left,
                20.0: "divide by the sum of the exponentials, 5.",
                5.0: "+3 is clipped to +2: token 3 is in the softmax, too.",
            },
        ),
        (
            -7.0,
            {
                7.0: "this is q · k without any turn, or both turned alike: the key stands two places further.",
                -1.0: "this is one place; turn the key twice.",
                1.0: "this is one place; turn the key twice.",
            },
        ),
        (
            1.0,
            {
                -1.0: "this is the key one place after the query: before it, the key is turned back.",
                7.0: "this is q · k without any turn: the key stands one place before.",
            },
        ),
    )
    for place, ((expected, mistakes), given) in enumerate(zip(questions, found.tolist(), strict=True)):
        if not math.isclose(given, expected, rel_tol=2e-3, abs_tol=2e-3):
            known = [text for wrong, text in mistakes.items() if math.isclose(given, wrong, rel_tol=2e-3)]
            return f"number {place}: {known[0] if known else f'expected another number than {given:g}.'}"
    return None


def _weights(table: Tensor, query: Tensor, length: int, k: int) -> Tensor:
    rows = signed_distances(length, length).clamp(-k, k) + k
    return ((table.double() @ query.double()) / math.sqrt(len(query)))[rows].softmax(dim=-1)


def look_left(answer: Callable[[int, int, Tensor], Tensor]) -> str | None:
    """Short and long texts, queries of several widths and lengths, the distance 0, and what cannot be."""
    generator = torch.Generator().manual_seed(0)
    cases = [(1, 3, 16, 1.0), (2, 4, 64, 1.0), (0, 2, 4, 1.0), (3, 8, 16, 0.1), (2, 3, 32, 5.0)]
    for n, k, width, size in [*cases, (0, 1, 8, 1.0), (7, 8, 8, 1.0), (40, 50, 8, 1.0)]:
        query = torch.randn(width, generator=generator)
        query = size * query / query.norm()
        given = f"n = {n}, k = {k}, d_k = {width}, a query of length {size:g}"
        table = answer(n, k, query)
        if table is None:
            return "your function returned None: does it end in a return?"
        if not isinstance(table, Tensor):
            return f"expected a tensor, got {type(table).__name__}."
        if table.shape != (2 * k + 1, width):
            return f"{given}: expected shape {(2 * k + 1, width)}, got {tuple(table.shape)}."
        if not table.isfinite().all():
            return f"{given}: the table holds NaN or infinity; a lead that is large enough will do."
        for length in (k + 2, 1000):
            weights = _weights(table, query, length, k)
            least = weights.diagonal(-n).min()
            if least >= 0.99 - 1e-6:  # a lead of ln(99 · 999) is just enough, up to rounding
                continue
            if (weights.diagonal(n).amin() > 0.5) and n:
                return f"{given}: it looks {n} to the right. Row 0 is the distance −k; to the left is −n."
            if length == 1000 and least > 0.05:
                return (
                    f"{given}: enough in a short text; among 1,000 keys the weight falls to {least:.2f}. By how much "
                    "must one score lead 999 others?"
                )
            best = int(weights[length - 1].argmax())
            if best != length - 1 - n:
                return f"{given}: the last of {length} positions looks most at key {best}; {length - 1 - n} is wanted."
            return (
                f"{given}: the right key leads, but its weight is only {least:.2f} in a text of {length} tokens. The "
                "score is the product with the query, divided by √d_k."
            )
    query = torch.randn(8, generator=generator)
    for n, k in ((3, 3), (5, 3), (0, 0)):
        try:
            answer(n, k, query)
        except ValueError:
            continue
        return (
            f"right where it can be done. But n = {n}, k = {k} cannot: all that is {k} or more to the left has one "
            "row. Raise a ValueError."
        )
    return None


class _Seen(TorchFunctionMode):
    """Note whether torch functions make tensors of integers, and how many are called."""

    def __init__(self) -> None:
        super().__init__()
        self.integers, self.calls = False, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.calls += 1
            self.integers |= not result.is_floating_point()
        return result


def skewed(answer: Callable[[Tensor], Tensor]) -> str | None:
    """One, four and seven positions, with axes in front or none; no table of indices and no loop."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((4, 7), (7, 13), (2, 3, 5, 9), (1, 1), (3, 2, 3)):
        x = torch.randn(*shape, generator=generator)
        length = shape[-2]
        rows = signed_distances(length, length)
        pick = x.unsqueeze(0).flatten(0, -3) if x.dim() > 2 else x[None]
        place = torch.arange(length)

        def at(columns: Tensor, pick: Tensor = pick, shape: tuple[int, ...] = shape, place: Tensor = place) -> Tensor:
            return pick[:, place[:, None], columns].reshape(*shape[:-1], len(place))

        expected = at(rows + length - 1)
        mistakes = {
            "it runs the other way: entry (i, j) is that of the distance j − i, not i − j.": at(length - 1 - rows),
            "nothing is shifted: these are the first T columns.": x[..., :length],
            "nothing is shifted: these are the last T columns.": x[..., length - 1 :],
            "one column too far to the left: distance 0 belongs onto the diagonal.": at(
                (rows + length - 2) % shape[-1]
            ),
            "one column too far to the right: distance 0 belongs onto the diagonal.": at((rows + length) % shape[-1]),
            "rows and columns are exchanged: a row belongs to a query.": expected.transpose(-2, -1),
        }
        if diagnosis := compare(answer(x.clone()), expected, mistakes):
            return f"shape {shape}: {diagnosis}"
    x = torch.randn(2, 40, 79, generator=generator)
    with _Seen() as seen:
        answer(x)
    if seen.integers:
        return "right, but with a table of indices: padding, reshaping and cutting suffice."
    if seen.calls > 39:
        return f"right, but with {seen.calls} operations for 40 positions: it can be done at once, without a loop."
    return None


def from_pairs_to_halves(answer: Callable[[Tensor, int], Tensor]) -> str | None:
    """Three heads of width 6, one head, narrow heads; the products of turned queries and keys must stay."""
    generator = torch.Generator().manual_seed(0)
    for heads, d_k, d_model in ((3, 6, 5), (1, 8, 3), (4, 2, 7), (2, 10, 4)):
        weight = torch.randn(heads * d_k, d_model, generator=generator)
        by_head = weight.view(heads, d_k, d_model)
        expected = torch.cat((by_head[:, 0::2], by_head[:, 1::2]), dim=1).reshape(weight.shape)
        turned = torch.cat((by_head[:, 1::2], by_head[:, 0::2]), dim=1).reshape(weight.shape)
        back = torch.stack(by_head.chunk(2, dim=1), dim=2).reshape(weight.shape)
        found = answer(weight.clone(), heads)
        mistakes = {}
        if d_k > 2:
            mistakes = {
                "nothing has changed place.": weight,
                "this is the way back, from halves to pairs.": back,
                "the heads are mixed: each head has pairs and halves of its own.": torch.cat(
                    (weight[0::2], weight[1::2])
                ),
                "that is the right order of columns; the rows of W make the numbers of a query.": (
                    torch.cat((weight[:, 0::2], weight[:, 1::2]), dim=1)
                ),
            }
        mistakes |= {
            "the second numbers of the pairs come first: the turn then runs the other way.": turned,
            "this is transposed: a row of W makes one number of the query.": expected.T,
            "expected the two axes (heads · d_k, d_model), as the weight had them.": expected.view(heads, d_k, d_model),
        }
        if diagnosis := compare(found, expected, mistakes):
            return f"{heads} heads of width {d_k}: {diagnosis}"
        x = torch.randn(4, d_model, generator=generator)
        pairs, halves = ((x @ w.T).view(4, heads, d_k).transpose(0, 1) for w in (weight, found))
        by_pairs = rotate(pairs) @ rotate(pairs, 3).mT
        by_halves = rotate(halves, halves=True) @ rotate(halves, 3, halves=True).mT
        if not torch.allclose(by_pairs, by_halves, atol=1e-4):
            return "the products of turned queries and keys have changed."
    return None


def up_and_down(answer: Callable[[list[int]], Tensor]) -> str | None:
    """A chain, a star, the tree of the lesson, a random one, a single word."""
    trees = ([4, 3, 3, 0, 4], [0, 0, 1, 2], [2, 2, 2, 2], [0], [3, 0, 5, 5, 3, 5, 4, 0], [0, 0, 1, 2, 3, 4, 5])
    for parents in trees:
        n = len(parents)
        paths = []
        for i in range(n):
            path = [i]
            while parents[path[-1]] != path[-1]:
                path.append(parents[path[-1]])
            paths.append(path)
        expected = torch.zeros(n, n, 2, dtype=torch.long)
        for i in range(n):
            for j in range(n):
                meet = next(word for word in paths[i] if word in paths[j])
                expected[i, j] = torch.tensor([paths[i].index(meet), paths[j].index(meet)])
        depth = torch.tensor([len(path) - 1 for path in paths])
        found = answer(list(parents))
        if isinstance(found, Tensor):
            if found.shape == expected.shape and found.is_floating_point():
                found = found.long() if torch.equal(found, found.round()) else found
            if found.dtype in (torch.int8, torch.uint8, torch.int16, torch.int32):
                found = found.long()
        by_root = torch.stack((depth[:, None].expand(n, n), depth.expand(n, n)), dim=-1)
        mistakes = {
            "up and down are exchanged: first the steps up from i, then those down to j.": expected.flip(-1),
            "this is the sum of both; they are wanted one by one.": expected.sum(dim=-1),
            "both paths go up to the root; turn round at the first word that is on both.": by_root,
            "words are counted, not steps: a word and its parent are one step apart.": expected + 1,
            "one step too many where the paths go up and down: count edges.": (
                expected + (expected.min(dim=-1, keepdim=True).values > 0).long()
            ),
            "from a word to itself it is (0, 0); else right.": (expected + torch.eye(n, dtype=torch.long)[..., None]),
            "the axis of the two numbers belongs to the end: (n, n, 2).": expected.movedim(-1, 0),
        }
        if diagnosis := compare(found, expected, mistakes):
            return f"parents {parents}: {diagnosis}"
    return None


EXERCISES = {
    "17.1": Exercise("Distances by hand", distances_by_hand),
    "17.2": Exercise("A table that looks back", look_left),
    "17.3": Exercise("Skew", skewed),
    "17.4": Exercise("From pairs to halves", from_pairs_to_halves),
    "17.5": Exercise("Up and down", up_and_down),
}
