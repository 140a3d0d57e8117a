"""Answers to the exercises of chapter 18: wrong ones, each with a pattern of its diagnosis, and other right ones."""

import math

import torch
from torch.nn import functional as F

from annotated.attention import attention


def groups(rule, count=lambda length, stride: length // stride):
    """A mask of groups, with a rule from query, first and last member of a group."""

    def mask(length, stride):
        query, group = torch.arange(length)[:, None], torch.arange(count(length, stride))
        return rule(query, group * stride, (group + 1) * stride - 1)

    return mask


def groups_by_all(length, stride):
    """From the causal mask of positions: all members must be seen."""
    whole = torch.ones(length, length).tril().bool()[:, : length // stride * stride]
    return whole.unflatten(-1, (length // stride, stride)).all(dim=-1)


def groups_by_any(length, stride):
    whole = torch.ones(length, length).tril().bool()[:, : length // stride * stride]
    return whole.unflatten(-1, (length // stride, stride)).any(dim=-1)


def groups_by_loops(length, stride):
    mask = torch.zeros(length, length // stride, dtype=torch.bool)
    for i in range(length):
        for j in range(length // stride):
            mask[i, j] = (j + 1) * stride <= i + 1
    return mask


def layers(*, residual=True, start=1, number=torch.float64, cut=True, limit=None):
    """Multiply until everything is reached."""

    def needed(pattern):
        step = (pattern | torch.eye(len(pattern), dtype=torch.bool) if residual else pattern).to(number)
        known = step
        for count in range(start, start + (limit or len(pattern))):
            if (known > 0).all():
                return count
            known = known @ step
            if cut:
                known = (known > 0).to(number)
        return None

    return needed


def layers_by_search(pattern):
    """Breadth first, from every position."""
    looks, deepest = [row.nonzero().flatten().tolist() for row in pattern], 1
    for start in range(len(looks)):
        distance, front = {start: 0}, [start]
        for position in front:
            for other in looks[position]:
                if other not in distance:
                    distance[other] = distance[position] + 1
                    front.append(other)
        if len(distance) < len(looks):
            return None
        deepest = max(deepest, *distance.values())
    return deepest


def layers_until_the_last_is_known(pattern):
    step = known = (pattern | torch.eye(len(pattern), dtype=torch.bool)).double()
    for count in range(1, len(pattern)):
        if (known[:, -1] > 0).all():
            return count
        known = (known @ step > 0).double()
    return None


def layers_always(pattern):
    return layers()(pattern) or len(pattern)


def window(*, left=0, right=0, scale=None, hide=True, soft=True):
    """Gather the neighbours; `left` and `right` move the ends of the window."""

    def attend(query, key, value, reach):
        shift = torch.arange(-reach - left, reach + right + 1)
        places = torch.arange(query.size(-2))[:, None] + shift
        inside = (places >= 0) & (places < query.size(-2))
        places = places.clamp(0, query.size(-2) - 1)
        keys, values = key[..., places, :], value[..., places, :]
        if not hide:
            keys, values = (x.masked_fill(~inside[..., None], 0) for x in (keys, values))
        scores = (query[..., None, :] @ keys.transpose(-2, -1))[..., 0, :] * (scale or query.size(-1) ** -0.5)
        if hide:
            scores = scores.masked_fill(~inside, -math.inf if soft else 0)
        weights = scores.softmax(dim=-1) if soft else scores
        return (weights[..., None, :] @ values)[..., 0, :]

    return attend


def window_by_mask(query, key, value, reach):
    places = torch.arange(query.size(-2))
    return attention(query, key, value, (places[:, None] - places).abs() <= reach)


def window_by_rows_of_the_table(query, key, value, reach):
    """A few queries at a time, but all keys."""
    places = torch.arange(query.size(-2))
    return torch.cat(
        [
            attention(query[..., some, :], key, value, (some[:, None] - places).abs() <= reach)
            for some in places.split(64)
        ],
        dim=-2,
    )


def window_for_heads(query, key, value, reach):
    batch, heads, *_ = query.shape
    return window()(query, key, value, reach).view(batch, heads, query.size(-2), -1)


def window_by_blocks(query, key, value, reach):
    """A few queries at a time, and their keys."""
    places, found = torch.arange(query.size(-2)), []
    for some in places.split(16):
        near = slice(max(0, int(some[0]) - reach), int(some[-1]) + reach + 1)
        mask = (some[:, None] - places[near]).abs() <= reach
        found.append(attention(query[..., some, :], key[..., near, :], value[..., near, :], mask))
    return torch.cat(found, dim=-2)


def window_by_loop(query, key, value, reach):
    """A query at a time."""
    rows = []
    for i in range(query.size(-2)):
        near = slice(max(0, i - reach), i + reach + 1)
        rows.append(attention(query[..., i : i + 1, :], key[..., near, :], value[..., near, :]))
    return torch.cat(rows, dim=-2)


def window_by_unfold(query, key, value, reach):
    """Pad, and let a window slide over it."""
    edge = (0, 0, reach, reach)
    keys, values = (F.pad(x, edge).unfold(-2, 2 * reach + 1, 1) for x in (key, value))
    real = F.pad(query.new_ones(query.size(-2)), (reach, reach)).unfold(0, 2 * reach + 1, 1).bool()
    scores = (query[..., None, :] @ keys)[..., 0, :] / math.sqrt(query.size(-1))
    weights = scores.masked_fill(~real, -math.inf).softmax(dim=-1)
    return (values @ weights[..., None])[..., 0]


WRONG = [
    ("18.1", [1536, 256, 128, 94], "number 0: two products make 4 n² d"),
    ("18.1", [256, 256, 128, 94], "number 0: here without the projections"),
    ("18.1", [768, 768, 128, 94], "number 1: here with the projections"),
    ("18.1", [768, 512, 128, 94], "number 1: there are four projections"),
    ("18.1", [768, 256, 64, 94], "number 2: mixing .* costs operations"),
    ("18.1", [768, 256, 256, 94], "number 2: 8 n k d = 4 n² d"),
    ("18.1", [768, 256, 100, 94], "number 2: expected another number than 100"),
    ("18.1", [768, 256, 128, 100], "number 3: .* count row by row"),
    ("18.1", [768, 256, 128, 78], "number 3: row 0 looks at all 20"),
    ("18.1", [768, 256, 128, 58], "number 3: this is the window of 3 alone"),
    ("18.1", [768, 256, 128, 95], "number 3: row 1 has 3"),
    ("18.1", [768, 256, 128, 96], "number 3: rows 1 and 19"),
    ("18.1", [768, 256, 128], "give four numbers"),
    ("18.1", "768", "raised (ValueError|TypeError)"),
    ("18.2", groups_by_any, "when its first member is there"),
    ("18.2", groups(lambda i, a, b: i >= a), "when its first member is there"),
    ("18.2", groups(lambda i, a, b: i > b), "the group that it completes"),
    ("18.2", groups(lambda i, a, b: i < b), "turn it round"),
    ("18.2", groups(lambda i, a, b: (i >= a) | (i < a)), "the future is there"),
    ("18.2", groups(lambda i, a, b: (i >= b) | (i < b - a)), "stay so"),
    ("18.2", groups(lambda i, a, b: i >= a - 1), "groups count from 0"),
    ("18.2", groups(lambda i, a, b: (i >= b).T), r"expected shape \(7, 2\), got \(2, 7\)"),
    ("18.2", groups(lambda i, a, b: i >= b, lambda n, s: -(-n // s)), r"got \(7, 3\).*The 1 positions at the end"),
    ("18.2", groups(lambda i, a, b: (i >= b).float()), "expected torch.bool, got torch.float32"),
    ("18.2", groups(lambda i, a, b: (i >= b).tolist()), "expected a tensor, got list"),
    ("18.2", lambda length, stride: torch.ones(length, length // stride).tril().bool(), "entries are wrong"),
    ("18.2", lambda length, stride: print(end=""), "does it end in a return"),
    ("18.3", layers(residual=False), "residual connection keeps"),
    ("18.3", layers(start=0), "expected 8, got 7"),
    ("18.3", layers(start=2), "expected 8, got 9"),
    ("18.3", layers(cut=False, number=torch.float32), "numbers of ways overflow"),
    ("18.3", layers(cut=False, number=torch.int64), "numbers of ways overflow"),
    ("18.3", layers(cut=False), "chain of 200 more: got None. The numbers of ways overflow"),
    ("18.3", layers_until_the_last_is_known, "later ones, 5 positions: never, so None is expected; got 1"),
    ("18.3", layers_always, "never, so None is expected; got 5"),
    ("18.3", lambda pattern: len(pattern), "expected 8, got 9"),
    ("18.3", lambda pattern: len(pattern) - 1, "all looks at all, 4 positions: expected 1, got 3"),
    ("18.3", layers(limit=5), "expected 8, got None"),
    ("18.3", lambda pattern: 2, "expected 8, got 2"),
    ("18.3", lambda pattern: pattern, "expected a number of layers or None, got Tensor"),
    ("18.3", lambda pattern: True, "got bool"),
    ("18.3", lambda pattern: "8", "got str"),
    ("18.4", window(hide=False), "beyond the ends of the text there are no keys"),
    ("18.4", window(scale=1), "not divided by √d_k"),
    ("18.4", lambda q, k, v, r: window(right=-r)(q, k, v, r), "one-sided"),
    ("18.4", lambda q, k, v, r: window(left=-r)(q, k, v, r), "one-sided: .* earlier ones too"),
    ("18.4", lambda q, k, v, r: attention(q, k, v), "all keys are seen"),
    ("18.4", window(left=-1, right=-1), "one key too narrow on each side"),
    ("18.4", window(left=0, right=-1), "one-sided|too narrow on the right"),
    ("18.4", window(left=1, right=1), "too wide"),
    ("18.4", window(soft=False), "the softmax is missing"),
    ("18.4", window_by_mask, "right, but .* 65,536 numbers: that is the table"),
    ("18.4", window_by_rows_of_the_table, "right, .* but each query meets each key: 1,048,576 operations"),
    ("18.4", window_for_heads, r"right with two axes .* without any it raises RuntimeError"),
    ("18.4", lambda q, k, v, r: window()(q, k, v, r).transpose(-2, -1), r"expected shape \(2, 3, 6, 5\)"),
    ("18.4", lambda q, k, v, r: v, "too narrow on each side"),
    ("18.4", lambda q, k, v, r: q @ q.transpose(-2, -1) @ v, "at index"),
    ("18.4", lambda q, k, v, r: 2 * window()(q, k, v, r), "constant factor 2"),
    ("18.4", lambda q, k, v, r: print(end=""), "does it end in a return"),
]

RIGHT = [
    ("18.1", (768, 256, 128, 94)),
    ("18.1", torch.tensor([768.0, 256.0, 128.0, 94.0])),
    ("18.2", groups(lambda i, a, b: i >= b)),
    ("18.2", groups_by_all),
    ("18.2", groups_by_loops),
    ("18.3", layers()),
    ("18.3", layers_by_search),
    ("18.4", window()),
    ("18.4", window_by_loop),
    ("18.4", window_by_blocks),
    ("18.4", window_by_unfold),
]
