"""Attention of all heads in one call: few copies, and a backward pass in closed form."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from annotated.fast import native
from annotated.fast.derivative import refuse_second_derivative
from annotated.masking import Mask, check_mask


def attend(
    *projected: Float[Tensor, "batch _ _"],
    heads: int,
    widths: Sequence[Sequence[int]],
    mask: Mask | None = None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Compute `attention` in every head, with queries, keys and values as a product gives them: side by side.

    On a GPU it calls a kernel that never stores the weights (Dao et al., 2022).

    Args:
        projected: one tensor with the queries, keys and values of all heads; or one with the queries and one with the
            keys and values.
        heads: how many there are.
        widths: of each tensor, how wide its parts are.
        mask: broadcastable to (batch, heads, query, key); a query that may attend to nothing gets zeros.

    Raises:
        TypeError, ValueError: the mask is not boolean, or does not fit.
    """
    if mask is not None:
        check_mask(mask, (len(projected[0]), heads, projected[0].size(1), projected[-1].size(1)))
    if projected[0].device.type == "cpu":
        return _Attention.apply(heads, widths, mask, *projected)
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in _parts(projected, widths))
    return attend_heads(query, key, value, mask)


def attend_heads(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: Mask | None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Do what `attend` does with heads that are already apart, whose mask fits. On a CPU, for inference."""
    if query.device.type != "cpu":
        return fused_attention(query, key, value, mask).transpose(1, 2).flatten(2)
    if native.suits(query, key, value):
        return native.attend(query, key, value, mask)
    heads = query.size(1)
    q, k, v = (x.flatten(0, 1) for x in (query, key, value))
    return _merge(torch.bmm(weights_of(q, k, heads, mask), v), heads)


def fused_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Mask | None = None,
) -> Float[Tensor, "*batch query d_v"]:
    """Compute `annotated.attention.attention`, arguments and errors as there, by PyTorch's fused kernels."""
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    check_mask(mask, (*query.shape[:-1], key.size(-2)))
    # Some kernels give NaN where all is masked: let such a query see everything, then make it zero.
    nothing = ~mask.any(dim=-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask | nothing).masked_fill(nothing, 0.0)


def weights_of(
    query: Float[Tensor, "rows query d_k"],
    key: Float[Tensor, "rows key d_k"],
    heads: int,
    mask: Mask | None,
) -> Float[Tensor, "rows query key"]:
    """Compute `attention_weights` of heads that are rows of the batch; of 16-bit scores the softmax has 32 bits."""
    scores = torch.bmm(query, key.transpose(1, 2)).mul_(1 / math.sqrt(query.size(-1)))
    if mask is None:
        return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
    hidden = ~mask
    scores.unflatten(0, (-1, heads)).masked_fill_(hidden, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
    if hidden.all(dim=-1).any():
        weights.unflatten(0, (-1, heads)).masked_fill_(hidden, 0.0)
    return weights


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, heads: int, widths: Sequence[Sequence[int]], mask: Tensor | None, *projected: Tensor
    ) -> Tensor:
        query, key, value = (_split(x, heads) for x in _parts(projected, widths))
        weights = weights_of(query, key, heads, mask)
        ctx.heads, ctx.widths, ctx.shapes = heads, widths, [x.shape for x in projected]
        ctx.save_for_backward(query, key, value, weights)
        return _merge(torch.bmm(weights, value), heads)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        query, key, value, weights = ctx.saved_tensors
        g = _split(gradient, ctx.heads)
        # The gradient of a softmax p: p · (g − Σ p g).
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        products = torch.bmm(g, value.transpose(1, 2)).to(wide.dtype).mul_(wide)
        scores = products.addcmul_(wide, products.sum(dim=-1, keepdim=True), value=-1)
        scores = scores.mul_(1 / math.sqrt(query.size(-1))).to(query.dtype)
        found = torch.bmm(scores, key), torch.bmm(scores.transpose(1, 2), query), torch.bmm(weights.transpose(1, 2), g)
        gradients = [gradient.new_empty(shape) for shape in ctx.shapes]
        for whole, part in zip(_parts(gradients, ctx.widths), found, strict=True):
            whole.unflatten(-1, (ctx.heads, -1)).copy_(part.unflatten(0, (-1, ctx.heads)).transpose(1, 2))
        return None, None, None, *gradients


def _parts(tensors: Sequence[Tensor], widths: Sequence[Sequence[int]]) -> list[Tensor]:
    return [part for x, wide in zip(tensors, widths, strict=True) for part in x.split(list(wide), dim=-1)]


def _split(x: Float[Tensor, "batch length heads_width"], heads: int) -> Float[Tensor, "batch_heads length width"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).flatten(0, 1)


def _merge(x: Float[Tensor, "batch_heads length width"], heads: int) -> Float[Tensor, "batch length heads_width"]:
    return x.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)
