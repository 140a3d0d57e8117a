"""The exercises of chapter 17, relative positions."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.models.relative_positions import signed_distances
from annotated_course.exercises.exercise import AnyOf, Exercise, LargestTensor, WrongFormError, calls, draw, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["17.1"] = on_paper(
    "Distances by hand",
    [6.0, 4.0, -7.0, 1.0],
    {
        "the values have their vectors, too: a^V of the row −1 is missing.": (0, 3.0),
        "divide by the sum of the exponentials.": AnyOf((0, 48.0), (1, 20.0)),
        "+3 is clipped to +2: token 3 is in the softmax, too.": (1, 5.0),
        "query and key stand at different places; here they are turned alike.": (2, 7.0),
        "this is the key one place after the query: before it, the key is turned back.": (3, -1.0),
    },
    tolerance=2e-3,
)


def leading(n: int, k: int, query: Tensor) -> Tensor:
    """A table of zeros with one row whose score leads by 12."""
    if n >= k:
        raise ValueError(f"all that is {k} or more to the left has one row")
    table = torch.zeros(2 * k + 1, len(query))
    table[k - n] = 12.0 * math.sqrt(len(query)) / (query @ query) * query
    return table


def looking(n: int, k: int, width: int, size: float) -> Callable[[Any], Any]:
    """Make a case of where a text's last query looks most, and whether each query gives enough; short, then long."""
    query = size * F.normalize(draw(width), dim=0)

    def run(answer: Any) -> list[Any]:
        table, looks = answer(n, k, query), []
        if not isinstance(table, Tensor) or table.shape != (2 * k + 1, width) or not table.isfinite().all():
            raise WrongFormError(f"expected finite numbers, ({2 * k + 1}, {width}) for n = {n}, k = {k}", table)
        for length in (k + 2, 1000):
            rows = signed_distances(length, length).clamp(-k, k) + k  # (length, length): the row of each pair
            weights = (table.double() @ query.double() / math.sqrt(width))[rows].softmax(-1)
            enough = weights.diagonal(-n).min() >= 0.99 - 1e-6  # a lead of ln(99 · 999) is just enough, up to rounding
            looks += [int(weights[-1].argmax()), "at least 0.99" if enough else "less than 0.99"]
        return looks

    return run


def refused(n: int, k: int) -> Callable[[Any], Any]:
    """Make a case of what no table can do."""

    def run(answer: Any) -> str:
        try:
            answer(n, k, torch.ones(8))
        except ValueError:
            return "a ValueError"
        return "a table"

    return run


SIZES = [(1, 3, 16, 1.0), (2, 4, 64, 1.0), (0, 2, 4, 1.0), (3, 8, 16, 0.1), (2, 3, 32, 5.0)]
SIZES += [(0, 1, 8, 1.0), (7, 8, 8, 1.0), (40, 50, 8, 1.0)]
EXERCISES["17.2"] = Exercise(
    "A table that looks back",
    right=leading,
    cases={f"n = {n}, k = {k}, d_k = {d_k}, |q| = {size:g}: ": looking(n, k, d_k, size) for n, k, d_k, size in SIZES}
    | {f"n = {n}, k = {k}: ": refused(n, k) for n, k in ((3, 3), (5, 3), (0, 0))},
    mistakes={
        "row 0 is the distance −k; to the left is −n.": "k - n → k + n",
        "the weight falls below 0.99: by how much must one score lead 999 others?": AnyOf("12.0 → 7.0", "12.0 → 2.0"),
        "all that is k or more to the left has one row: raise a ValueError.": "if n >= k → if n > k",
    },
)


def skew(x: Tensor) -> Tensor:
    """Make each row one longer, and cut the line of all rows anew."""
    length = x.size(-2)
    line = F.pad(x, (1, 0)).flatten(-2)[..., length:]
    return line.unflatten(-1, (length, 2 * length - 1))[..., :length]


def examine_skew(answer: Callable[[Tensor], Tensor]) -> str | None:
    """Look for a table of indices, and for a loop."""
    with LargestTensor() as seen:
        answer(torch.zeros(2, 40, 79))
    if not all(kind.is_floating_point for kind in seen.dtypes):
        return "right, but with a table of indices: padding, reshaping and cutting suffice."
    if (count := len(seen.dtypes)) > 39:
        return f"right, but with {count} operations for 40 positions: it can be done at once, without a loop."
    return None


EXERCISES["17.3"] = Exercise(
    "Skew",
    right=skew,
    cases={f"shape {one}: ": calls(draw(*one)) for one in ((4, 7), (7, 13), (2, 3, 5, 9), (1, 1), (3, 2, 3))},
    mistakes={
        "it runs the other way: entry (i, j) is that of the distance j − i, not i − j.": "F.pad(x → F.pad(x.flip(-1)",
        "nothing is shifted: these are the first T columns.": lambda x: x[..., : x.size(-2)],
        "distance 0 belongs onto the diagonal: yours is one column off.": "F.pad(x → F.pad(x.roll(1, -1)",
    },
    examine=examine_skew,
    caught={
        "right, but with a table of indices": lambda x: skew(x + 0 * torch.arange(x.size(-1))),
        "operations for 40 positions": lambda x: skew(torch.stack([row + 0 for row in x.unbind(-2)], dim=-2)),
    },
)


def halves(weight: Tensor, heads: int) -> Tensor:
    """Put the first rows of each head's pairs before the second ones."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


EXERCISES["17.4"] = Exercise(
    "From pairs to halves",
    right=halves,
    cases={
        f"{heads} heads of width {d_k}: ": calls(draw(heads * d_k, d_model), heads)
        for heads, d_k, d_model in ((3, 6, 5), (1, 8, 3), (4, 2, 7), (2, 10, 4))
    },
    mistakes={
        "this is the way back, from halves to pairs.": "(heads, -1, 2) → (heads, 2, -1)",
        "the heads are mixed: each head has pairs and halves of its own.": lambda weight, heads: halves(weight, 1),
    },
)


def steps(parents: list[int]) -> Tensor:
    """Count the steps up from i to the first word that is above both, and down to j."""
    above, word = torch.eye(len(parents)), torch.tensor(parents)
    for _ in parents:
        above[torch.arange(len(parents)), word] = 1
        word = torch.tensor(parents)[word]
    common = above @ above.T  # how many words are above both
    depth = common.diagonal()
    return torch.stack((depth[:, None] - common, depth - common), dim=-1).long()


TREES = ([4, 3, 3, 0, 4], [0, 0, 1, 2], [2, 2, 2, 2], [0], [3, 0, 5, 5, 3, 5, 4, 0], [0, 0, 1, 2, 3, 4, 5])
EXERCISES["17.5"] = Exercise(
    "Up and down",
    right=steps,
    cases={f"parents {tree}: ": calls(tree) for tree in TREES},
    mistakes={
        "first the steps up from i, then those down to j.": "dim=-1) → dim=-1).flip(-1)",
        "both paths go up to the root; turn round at the first word that is on both.": "- common → - 1 + 0 * common",
    },
)
