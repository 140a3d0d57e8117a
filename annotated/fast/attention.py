"""Attention of all heads in one call: few copies, and a backward pass in closed form."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from annotated.masking import Mask, check_mask


def attend(
    query: Float[Tensor, "batch query heads_d_k"],
    key: Float[Tensor, "batch key heads_d_k"],
    value: Float[Tensor, "batch key heads_d_v"],
    heads: int,
    mask: Mask | None = None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Compute `attention` in every head, the heads side by side in the last dimension of all arguments.

    On a GPU it calls a kernel that never stores the weights (Dao et al., 2022).

    Args:
        query, key, value, mask: as in `annotated.attention.attention`, the mask broadcastable to (batch, heads, query,
            key); here, too, a query that may attend to nothing gets zeros.
        heads: how many there are.

    Raises:
        TypeError, ValueError: the mask is not boolean, or does not fit.
    """
    if mask is not None:
        check_mask(mask, (query.size(0), heads, query.size(1), key.size(1)))
    if query.device.type == "cpu":
        return _Attention.apply(query, key, value, heads, mask)
    return attend_heads(*(x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value)), mask)


def attend_heads(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: Mask | None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Do what `attend` does with heads that are already apart, whose mask fits. On a CPU, for inference."""
    if query.device.type != "cpu":
        return fused_attention(query, key, value, mask).transpose(1, 2).flatten(2)
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
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None) -> Tensor:
        q, k, v = (_split(x, heads) for x in (query, key, value))
        weights = weights_of(q, k, heads, mask)
        ctx.heads = heads
        ctx.save_for_backward(q, k, v, weights)
        return _merge(torch.bmm(weights, v), heads)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        g = _split(gradient, ctx.heads)
        # The gradient of a softmax p: p · (g − Σ p g).
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        products = torch.bmm(g, v.transpose(1, 2)).to(wide.dtype).mul_(wide)
        scores = products.addcmul_(wide, products.sum(dim=-1, keepdim=True), value=-1)
        scores = scores.mul_(1 / math.sqrt(q.size(-1))).to(q.dtype)
        parts = torch.bmm(scores, k), torch.bmm(scores.transpose(1, 2), q), torch.bmm(weights.transpose(1, 2), g)
        return *(_merge(part, ctx.heads) for part in parts), None, None


def _split(x: Float[Tensor, "batch length heads_width"], heads: int) -> Float[Tensor, "batch_heads length width"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).flatten(0, 1)


def _merge(x: Float[Tensor, "batch_heads length width"], heads: int) -> Float[Tensor, "batch length heads_width"]:
    return x.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)
