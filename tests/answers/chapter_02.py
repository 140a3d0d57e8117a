"""Wrong answers to the exercises of chapter 02, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch
from torch import nn

from annotated.attention import attention
from annotated.multi_head import MultiHeadAttention


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """The right split."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(mixed: torch.Tensor) -> torch.Tensor:
    """The right way back."""
    return mixed.transpose(1, 2).flatten(2)


def merge_across(mixed: torch.Tensor) -> torch.Tensor:
    """A reshape alone."""
    return mixed.reshape(mixed.size(0), mixed.size(2), -1)


def multi_head(
    finish: Callable[..., torch.Tensor] = lambda mixed, W_o: (mixed @ W_o).sum(1),
    use: Callable[..., torch.Tensor | None] = lambda mask: mask,
    factor: Callable[..., float] = lambda d_model, d_k: 1.0,
    ask: Callable[..., torch.Tensor] = lambda W_q: W_q,
) -> Callable[..., torch.Tensor]:
    """Multi-head attention with stacked matrices and a choice of what is usually got wrong."""

    def answer(x_q, x_kv, W_q, W_k, W_v, W_o, mask):
        queries = factor(x_q.size(-1), W_q.size(-1)) * x_q[:, None] @ ask(W_q)
        return finish(attention(queries, x_kv[:, None] @ W_k, x_kv[:, None] @ W_v, use(mask)), W_o)

    return answer


def multi_head_by_loop(x_q, x_kv, W_q, W_k, W_v, W_o, mask):
    """One head after the other, then concatenated."""
    masks = [None] * len(W_q) if mask is None else mask.expand(len(x_q), len(W_q), -1, -1).unbind(1)
    heads = [attention(x_q @ q, x_kv @ k, x_kv @ v, one) for q, k, v, one in zip(W_q, W_k, W_v, masks, strict=True)]
    return torch.cat(heads, dim=-1) @ W_o.flatten(0, 1)


def multi_head_by_einsum(x_q, x_kv, W_q, W_k, W_v, W_o, mask):
    """Every product by einsum."""
    queries, keys, values = (torch.einsum("bnd,hdk->bhnk", x, W) for x, W in ((x_q, W_q), (x_kv, W_k), (x_kv, W_v)))
    return torch.einsum("bhnv,hvd->bnd", attention(queries, keys, values, mask), W_o)


def by_svd(finish: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., tuple]:
    """W_q and W_k from the singular value decomposition, put together somehow."""

    def answer(scores, d_k):
        U, s, Vh = torch.linalg.svd(scores)
        return finish(U[:, :d_k], s[:d_k], Vh[:d_k].T, d_k)

    return answer


def cut(kept_q: Callable[[int], slice], kept_o: Callable[[int], slice] | None = None) -> Callable[..., nn.Module]:
    """A smaller module from the heads that are kept; of W_o, perhaps from others."""

    def answer(module, head):
        new = MultiHeadAttention(module.W_q.in_features, module.heads - 1, d_k=module.d_k, d_v=module.d_v)
        kept = [i for i in range(module.heads) if i != kept_q(head)]
        kept_in_o = [i for i in range(module.heads) if i != (kept_o or kept_q)(head)]
        with torch.no_grad():
            for old, fresh in ((module.W_q, new.W_q), (module.W_k, new.W_k), (module.W_v, new.W_v)):
                fresh.weight.copy_(old.weight.unflatten(0, (module.heads, -1))[kept].flatten(0, 1))
            new.W_o.weight.copy_(module.W_o.weight.unflatten(1, (module.heads, -1))[:, kept_in_o].flatten(1))
        return new

    return answer


def silenced(module, head):
    module.W_o.weight.data[:, head * module.d_v : (head + 1) * module.d_v] = 0
    return module


def not_smaller(module, head):
    new = MultiHeadAttention(module.W_q.in_features, module.heads, d_k=module.d_k, d_v=module.d_v)
    new.load_state_dict(module.state_dict())
    return silenced(new, head)


def grouped(
    spread: Callable[..., torch.Tensor],
    merge: Callable[..., torch.Tensor] = merge,
    finish: Callable[..., torch.Tensor] = torch.matmul,
    factor: Callable[[int], float] = lambda d_k: 1.0,
) -> Callable[..., torch.Tensor]:
    """Grouped attention with a given way to hand the groups to the heads."""

    def answer(x_q, x_kv, W_q, W_k, W_v, W_o, heads, groups):
        keys, values = (spread(split(x_kv @ W, groups), heads // groups) for W in (W_k, W_v))
        queries = factor(W_q.size(1) // heads) * split(x_q @ W_q, heads)
        return finish(merge(attention(queries, keys, values)), W_o)

    return answer


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """1, 1, 1, 2, 2, 2."""
    return x.repeat_interleave(times, dim=1)


def tiled(x: torch.Tensor, times: int) -> torch.Tensor:
    """1, 2, 1, 2, 1, 2."""
    return x.repeat(1, times, 1, 1)


def by_broadcasting(x_q, x_kv, W_q, W_k, W_v, W_o, heads, groups):
    queries = split(x_q @ W_q, heads).unflatten(1, (groups, -1))
    shape = (-1, -1, heads // groups, -1, -1)
    keys, values = (split(x_kv @ W, groups)[:, :, None].expand(shape) for W in (W_k, W_v))
    return merge(attention(queries, keys, values).flatten(1, 2)) @ W_o


def broadcast_wrong_axis(x_q, x_kv, W_q, W_k, W_v, W_o, heads, groups):
    queries = split(x_q @ W_q, heads).unflatten(1, (-1, groups))
    shape = (-1, heads // groups, -1, -1, -1)
    keys, values = (split(x_kv @ W, groups)[:, None].expand(shape) for W in (W_k, W_v))
    return merge(attention(queries, keys, values).flatten(1, 2)) @ W_o


def first_group(x: torch.Tensor, times: int) -> torch.Tensor:
    """1, 1, 1, 1, 1, 1."""
    return x[:, :1].expand(-1, x.size(1) * times, -1, -1)


WRONG = [
    ("02.1", [6, 7], "multiply by W"),
    ("02.1", [25, 14, 6], "wrong order"),
    ("02.1", [6 + 3 * 6, 12, 6], r"number 0, counted from 0, is not 24\."),
    ("02.1", [13.25, 5.5, 3.5], "those of the other"),
    ("02.1", [16.5, 12, 3.5], "weights of head 0"),
    ("02.1", [6, 12, 0], "head 0 alone"),
    ("02.1", [21, 0, 7], "head 1 alone"),
    ("02.1", [13.5, 6, 3.5], "not averaged"),
    ("02.1", [13 / 3 + 15, 26 / 3, 5], "plain means"),
    ("02.1", 27, r"shape \(3,\)"),
    ("02.2", lambda d_model, heads, d_k, d_v: 3 * d_model * heads * d_k, "one of the four"),
    ("02.2", lambda d_model, heads, d_k, d_v: 2 * d_model * (d_k + d_v), "that is one head"),
    ("02.2", lambda d_model, heads, d_k, d_v: 4 * d_model**2, "only where"),
    ("02.2", lambda d_model, heads, d_k, d_v: 4 * d_model * heads * d_k, "width of the values"),
    ("02.2", lambda d_model, heads, d_k, d_v: 2 * (d_model + 1) * heads * (d_k + d_v), "expected 1300, got 1400"),
    (
        "02.2",
        lambda d_model, heads, d_k, d_v: 2 * d_model * heads * (d_k + d_v) + heads * (2 * d_k + d_v) + d_model,
        "without biases",
    ),
    ("02.2", lambda d_model, heads, d_k, d_v: d_model * heads * (3 * d_k + d_v), "W\\^V has"),
    ("02.2", lambda d_model, heads, d_k, d_v: 2 * d_model * heads**2 * (d_k + d_v), "twice"),
    (
        "02.2",
        lambda d_model, heads, d_k, d_v: d_model * heads * (2 * d_k + d_v) + heads**2 * d_v**2,
        "leads back to d_model",
    ),
    ("02.2", lambda d_model, heads, d_k, d_v: print(end=""), "return"),
    ("02.2", lambda d_model, heads, d_k, d_v: "many", "number, got str"),
    ("02.3", lambda heads: heads.reshape(2, 5, 12), "across heads and positions"),
    ("02.3", lambda heads: heads.transpose(0, 1).reshape(2, 5, 12), "wrong order"),
    ("02.3", lambda heads: heads.permute(1, 2, 3, 0).flatten(2), "interleaved"),
    ("02.3", lambda heads: heads.sum(0), "summed"),
    ("02.3", lambda heads: heads.mean(0), "mean over the heads"),
    ("02.3", lambda heads: heads.permute(1, 2, 0, 3), "not yet joined"),
    ("02.3", lambda heads: heads.permute(1, 2, 0, 3).view(2, 5, 12), "raised RuntimeError: view"),
    ("02.3", lambda heads: torch.cat(list(heads), dim=1), "along the positions"),
    ("02.4", multi_head(lambda mixed, W_o: mixed), "not yet multiplied"),
    ("02.4", multi_head(lambda mixed, W_o: merge(mixed)), "multiply it by W_o"),
    ("02.4", multi_head(lambda mixed, W_o: mixed @ W_o), "not yet added up"),
    ("02.4", multi_head(lambda mixed, W_o: (mixed @ W_o).mean(1)), "averaged"),
    ("02.4", multi_head(lambda mixed, W_o: (mixed.sum(1)[:, None] @ W_o).sum(1)), "added up before W_o"),
    ("02.4", multi_head(lambda mixed, W_o: merge_across(mixed) @ W_o.flatten(0, 1)), "the merge cuts across"),
    ("02.4", multi_head(lambda mixed, W_o: (mixed @ W_o.flip(0)).sum(1)), "reverse order"),
    ("02.4", multi_head(lambda mixed, W_o: mixed[:, 0] @ W_o[0]), "head 0 alone"),
    ("02.4", multi_head(ask=lambda W_q: W_q[:1].expand_as(W_q)), "matrix of head 0"),
    ("02.4", multi_head(factor=lambda d_model, d_k: math.sqrt(d_k / d_model)), "√d_model"),
    ("02.4", multi_head(factor=lambda d_model, d_k: d_k**-0.5), "scaled twice"),
    ("02.4", multi_head(factor=lambda d_model, d_k: d_k**0.5), "not scaled"),
    ("02.4", multi_head(use=lambda mask: None), "has no effect"),
    ("02.4", multi_head(use=lambda mask: mask if mask is None else ~mask), "wrong way round"),
    ("02.4", multi_head(use=lambda mask: mask if mask is None else mask[:, :1]), "with a mask for each head"),
    ("02.4", multi_head(lambda mixed, W_o: (mixed @ W_o.mT).sum(1)), "raised RuntimeError"),
    (
        "02.4",
        lambda x_q, x_kv, W_q, W_k, W_v, W_o, mask: (attention(x_q @ W_q, x_kv @ W_k, x_kv @ W_v, mask) @ W_o).sum(1),
        "raised RuntimeError",
    ),
    ("02.4", lambda x_q, x_kv, W_q, W_k, *rest: multi_head()(x_q, x_kv, W_k, W_q, *rest), "changed places"),
    ("02.5", by_svd(lambda U, s, V, d_k: (U * s, V)), "too small by the factor √d_k"),
    ("02.5", by_svd(lambda U, s, V, d_k: (d_k * U * s, V)), "too large by the factor √d_k"),
    ("02.5", by_svd(lambda U, s, V, d_k: (d_k**0.5 * V * s, U)), "have changed places"),
    ("02.5", by_svd(lambda U, s, V, d_k: (U, V)), "singular values are missing"),
    ("02.5", by_svd(lambda U, s, V, d_k: (U * s, V * s)), "twice"),
    ("02.5", by_svd(lambda U, s, V, d_k: (d_k**0.5 * U * s, V * s)), "twice"),
    ("02.5", lambda scores, d_k: (scores, torch.eye(len(scores))), r"shape \(6, 2\)"),
    ("02.5", by_svd(lambda U, s, V, d_k: ((d_k**0.5 * U * s).T, V.T)), r"shape \(6, 2\); got \(2, 6\)"),
    ("02.5", lambda scores, d_k: scores, "two tensors"),
    ("02.6", cut(lambda head: 0), "another head is gone: head 0, not 1"),
    ("02.6", cut(lambda head: 3), "another head is gone: head 3, not 1"),
    ("02.6", cut(lambda head: head, lambda head: 3), "head 1 is gone, but from W_o head 3"),
    ("02.6", silenced, "has changed"),
    ("02.6", not_smaller, "three heads are left"),
    ("02.6", lambda module, head: module.W_q.weight, "return a module"),
    ("02.6", lambda module, head: MultiHeadAttention(13, 3, d_k=3, d_v=5).requires_grad_(False), "at index"),
    ("02.7", grouped(tiled), "in turn"),
    ("02.7", grouped(first_group), "first group"),
    ("02.7", broadcast_wrong_axis, "in turn"),
    ("02.7", grouped(repeated, merge=merge_across), "the merge cuts across"),
    ("02.7", grouped(repeated, finish=lambda joined, W_o: joined), "multiply it by W_o"),
    ("02.7", grouped(repeated, factor=lambda d_k: d_k**0.5), "not scaled"),
    ("02.7", grouped(lambda x, times: x), "raised"),
]

RIGHT = [
    ("02.1", torch.tensor([27.0, 12.0, 7.0])),
    ("02.2", lambda d_model, heads, d_k, d_v: sum(heads * d_model * width for width in (d_k, d_k, d_v, d_v))),
    ("02.3", lambda heads: torch.cat(list(heads), dim=-1)),
    ("02.4", multi_head()),
    ("02.4", multi_head_by_loop),
    ("02.4", multi_head_by_einsum),
    ("02.5", by_svd(lambda U, s, V, d_k: (d_k**0.5 * U * s, V))),
    ("02.6", cut(lambda head: head)),
    ("02.7", grouped(repeated)),
    ("02.7", by_broadcasting),
]
