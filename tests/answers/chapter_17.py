"""Wrong answers to the exercises of chapter 17, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

# 17.2


def table_with(lead: float = 12.0, *, offset: int = 0, sign: int = -1, by_norm=True, by_root=True, refuse="n >= k"):
    """A table whose one row leads, with a choice of mistakes."""

    def look(n, k, query):
        if (refuse == "n >= k" and n >= k) or (refuse == "n > k" and n > k):
            raise ValueError("all that is far has one row")
        table = torch.zeros(2 * k + 1, len(query))
        row = min(max(k + sign * n + offset, 0), 2 * k)
        scale = (math.sqrt(len(query)) if by_root else 1) / (query @ query if by_norm else 1)
        table[row] = lead * scale * query
        return table

    return look


def others_lower(n, k, query):
    """The right row stays 0, and all others are pushed down."""
    if n >= k:
        raise ValueError("no row of its own")
    table = (-20 * math.sqrt(len(query)) / query.square().sum() * query).repeat(2 * k + 1, 1)
    table[k - n] = 0
    return table


def by_pinv(n, k, query):
    """Solve for scores of 15 and 0."""
    if k - n < 1:
        raise ValueError("no row of its own")
    scores = torch.zeros(2 * k + 1)
    scores[k - n] = 15 * math.sqrt(query.numel())
    return scores[:, None] @ torch.linalg.pinv(query[:, None])


def infinite(n, k, query):
    table = torch.full((2 * k + 1, len(query)), -math.inf)
    table[k - n] = 0
    return table


# 17.3


def skew(x):
    length = x.size(-2)
    padded = F.pad(x, (1, 0)).flatten(-2)  # each row one longer: 2 T
    return padded[..., length:].unflatten(-1, (length, 2 * length - 1))[..., :length]


def skew_padded_behind(x):
    length = x.size(-2)
    flat = F.pad(x, (0, 1)).flatten(-2)  # rows of 2 T; entry (i, j) is at i · 2 T + j − i + T − 1
    flat = F.pad(flat[..., length - 1 :], (0, length))
    return flat[..., : length * (2 * length - 1)].unflatten(-1, (length, 2 * length - 1))[..., :length]


def skew_strided(x):
    length = x.size(-2)
    x = x.contiguous()
    *front, step, one = x.stride()
    return x.as_strided((*x.shape[:-1], length), (*front, step - one, one), (length - 1) * one)


def skew_gathered(x):
    length = x.size(-2)
    place = torch.arange(length)
    columns = place - place[:, None] + length - 1
    return x.gather(-1, columns.expand(*x.shape[:-1], length))


def skew_looped(x):
    length = x.size(-2)
    rows = [x[..., i, length - 1 - i : 2 * length - 1 - i] for i in range(length)]
    return torch.stack(rows, dim=-2)


# 17.4


def halves(weight, heads):
    by_head = weight.unflatten(0, (heads, -1, 2))  # (heads, pair, first or second, d_model)
    return by_head.transpose(1, 2).reshape(weight.shape)


def halves_by_slices(weight, heads):
    parts = []
    for head in weight.chunk(heads):
        parts += [head[0::2], head[1::2]]
    return torch.cat(parts)


def halves_by_permutation(weight, heads):
    d_k = len(weight) // heads
    order = torch.cat((torch.arange(0, d_k, 2), torch.arange(1, d_k, 2)))
    return weight[torch.cat([h * d_k + order for h in range(heads)])]


# 17.5


def up_and_down(parents):
    n = len(parents)
    paths = []
    for i in range(n):
        path = [i]
        while parents[path[-1]] != path[-1]:
            path.append(parents[path[-1]])
        paths.append(path)
    found = torch.zeros(n, n, 2, dtype=torch.long)
    for i in range(n):
        for j in range(n):
            up = next(step for step, word in enumerate(paths[i]) if word in paths[j])
            found[i, j, 0], found[i, j, 1] = up, paths[j].index(paths[i][up])
    return found


def up_and_down_by_matrices(parents):
    step = torch.tensor(parents)
    above = torch.eye(len(parents))
    for _ in parents:
        above[torch.arange(len(parents)), step] = 1
        step = step[torch.tensor(parents)]
    common, depth = above @ above.T, above.sum(dim=1)
    return torch.stack((depth[:, None] - common, depth - common), dim=-1)


def by_root(parents):
    depth = up_and_down(parents)[:, :, 0].amax(dim=1)
    n = len(parents)
    return torch.stack((depth[:, None].expand(n, n), depth.expand(n, n)), dim=-1)


def changed(function: Callable, change: Callable) -> Callable:
    """Another function, whose result is changed."""
    return lambda *given: change(function(*given))


def never_ending_root(parents):
    return torch.tensor([[[0, 0]] * len(parents)] * len(parents))


WRONG = [
    ("17.1", [3, 4, -7, 1], r"number 0: the values have their vectors"),
    ("17.1", [44 / 7, 4, -7, 1], "number 0: token 0 is missing .* −3 is clipped to −2"),
    ("17.1", [11, 4, -7, 1], "number 0: a.V is weighted like the value"),
    ("17.1", [2.4, 4, -7, 1], "number 0: to the left of the query distances are negative"),
    ("17.1", [48, 4, -7, 1], "number 0: this is the sum before"),
    ("17.1", [0.75, 4, -7, 1], "number 0: these are the weights"),
    ("17.1", [6, 6.5, -7, 1], "number 1: to the left"),
    ("17.1", [6, 20, -7, 1], "number 1: divide by"),
    ("17.1", [6, 5, -7, 1], "number 1: .3 is clipped"),
    ("17.1", [6, 4, 7, 1], "number 2: this is q · k without any turn"),
    ("17.1", [6, 4, -1, 1], "number 2: this is one place"),
    ("17.1", [6, 4, -7, -1], "number 3: this is the key one place after"),
    ("17.1", [6, 4, -7, 7], "number 3: this is q · k without any turn"),
    ("17.1", [6, 4, -7, 2], "number 3: expected another number than 2"),
    ("17.1", [6, 4, -7], "give four numbers"),
    ("17.2", table_with(7.0), "among 1,000 keys the weight falls to"),
    ("17.2", table_with(11.0), "among 1,000 keys the weight falls to 0.98"),
    ("17.2", table_with(by_root=False), "among 1,000 keys|is only"),
    ("17.2", table_with(by_norm=False), "among 1,000 keys|is only"),
    ("17.2", table_with(sign=1), "it looks 1 to the right"),
    ("17.2", table_with(-12.0), "looks most at key"),
    ("17.2", table_with(offset=1), "looks most at key"),
    ("17.2", table_with(offset=-1), "looks most at key"),
    ("17.2", table_with(0.0), "looks most at key|is only"),
    ("17.2", table_with(refuse="never"), "n = 3, k = 3 cannot"),
    ("17.2", table_with(refuse="n > k"), "n = 3, k = 3 cannot"),
    ("17.2", infinite, "NaN or infinity"),
    ("17.2", lambda n, k, query: table_with()(n, k, query)[k:], r"expected shape \(7, 16\), got \(4, 16\)"),
    ("17.2", lambda n, k, query: table_with()(n, k, query).tolist(), "expected a tensor, got list"),
    ("17.2", lambda n, k, query: print(end=""), "does it end in a return"),
    ("17.3", lambda x: x[..., : x.size(-2)], "these are the first T columns"),
    ("17.3", lambda x: x[..., x.size(-2) - 1 :], "these are the last T columns"),
    ("17.3", lambda x: skew(x.flip(-1)), "it runs the other way"),
    ("17.3", lambda x: skew(x).transpose(-2, -1), "rows and columns are exchanged|it runs the other way"),
    ("17.3", lambda x: skew(x.roll(1, -1)), "too far to the left"),
    ("17.3", lambda x: skew(x.roll(-1, -1)), "too far to the right"),
    (
        "17.3",
        lambda x: F.pad(x, (1, 0)).flatten(-2)[..., x.size(-2) :].unflatten(-1, (x.size(-2), -1)),
        "expected shape",
    ),
    ("17.3", skew_gathered, "with a table of indices"),
    ("17.3", skew_looped, "right, but with .* operations"),
    ("17.3", lambda x: skew(x)[..., 0], "expected shape"),
    ("17.3", lambda x: skew(x).tolist(), "expected a tensor, got list"),
    ("17.3", lambda x: F.pad(x, (1, 0)).view(2 * x.size(0), -1)[1:].view(x.shape)[:, : x.size(0)], "raised"),
    ("17.3", lambda x: print(end=""), "does it end in a return"),
    ("17.4", lambda weight, heads: weight, "nothing has changed place"),
    ("17.4", lambda weight, heads: halves(weight, 1), "the heads are mixed"),
    (
        "17.4",
        lambda weight, heads: weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape),
        "the way back",
    ),
    ("17.4", lambda weight, heads: torch.cat((weight[:, 0::2], weight[:, 1::2]), dim=1), "order of columns"),
    (
        "17.4",
        lambda weight, heads: weight.unflatten(0, (heads, -1, 2)).flip(2).transpose(1, 2).reshape(weight.shape),
        "come first",
    ),
    ("17.4", changed(halves, lambda x: x.T), "transposed"),
    ("17.4", lambda weight, heads: halves(weight, heads).unflatten(0, (heads, -1)), "expected the two axes"),
    ("17.4", changed(halves, lambda x: 2 * x), "constant factor 2.00"),
    ("17.4", changed(halves, lambda x: x.double()), "expected torch.float32, got torch.float64"),
    ("17.4", changed(halves, lambda x: x[:-1]), "expected shape"),
    (
        "17.4",
        lambda weight, heads: weight.unflatten(0, (heads, 3, -1)).transpose(1, 2).reshape(weight.shape),
        "at index|raised|way back",
    ),
    ("17.4", changed(halves, lambda x: x.tolist()), "expected a tensor, got list"),
    ("17.4", lambda weight, heads: print(end=""), "does it end in a return"),
    ("17.5", changed(up_and_down, lambda x: x.flip(-1)), "up and down are exchanged"),
    ("17.5", changed(up_and_down, lambda x: x.transpose(0, 1)), "up and down are exchanged"),
    ("17.5", changed(up_and_down, lambda x: x.sum(dim=-1)), "this is the sum of both"),
    ("17.5", by_root, "both paths go up to the root"),
    ("17.5", changed(up_and_down, lambda x: x + 1), "words are counted"),
    ("17.5", changed(up_and_down, lambda x: x + (x.amin(-1, keepdim=True) > 0)), "one step too many"),
    (
        "17.5",
        changed(up_and_down, lambda x: x + torch.eye(len(x), dtype=torch.long)[..., None]),
        "from a word to itself",
    ),
    ("17.5", changed(up_and_down, lambda x: x.movedim(-1, 0)), "belongs to the end"),
    ("17.5", changed(up_and_down, lambda x: x + 0.5), "expected torch.int64"),
    ("17.5", changed(up_and_down, lambda x: x.clamp(max=3)), "parents .0, 0, 1, 2, 3, 4, 5.: .*wrong"),
    ("17.5", never_ending_root, "entries are wrong"),
    ("17.5", changed(up_and_down, lambda x: x.tolist()), "expected a tensor, got list"),
    ("17.5", lambda parents: parents[99], "raised IndexError"),
    ("17.5", lambda parents: print(end=""), "does it end in a return"),
]

RIGHT = [
    ("17.1", (6, 4, -7, 1)),
    ("17.1", torch.tensor([6.0, 4, -7, 1])),
    ("17.2", table_with()),
    ("17.2", table_with(100.0)),
    ("17.2", others_lower),
    ("17.2", by_pinv),
    ("17.3", skew),
    ("17.3", skew_padded_behind),
    ("17.3", skew_strided),
    ("17.4", halves),
    ("17.4", halves_by_slices),
    ("17.4", halves_by_permutation),
    ("17.5", up_and_down),
    ("17.5", up_and_down_by_matrices),
    ("17.5", changed(up_and_down, lambda x: x.int())),
    ("17.5", changed(up_and_down, lambda x: x.to(torch.int8))),
]
