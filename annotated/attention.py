"""Scaled dot-product attention (§3.2.1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from annotated.masking import Mask, check_mask


def attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Mask | None = None,
    *,
    return_weights: bool = False,
) -> Float[Tensor, "*batch query d_v"] | tuple[Float[Tensor, "*batch query d_v"], Float[Tensor, "*batch query key"]]:
    """Mix the values by how well each query matches each key: softmax(Q Kᵀ / √d_k) V (§3.2.1, Eq. 1).

    Args:
        query: what each position looks for.
        key: what each position offers to be found by.
        value: what each position hands over when it is found.
        mask: which key each query may attend to, True = may attend; broadcastable to (*batch, query, key).
            A query that may attend to nothing gets zeros, and sends back zero gradients.
        return_weights: also return the weights, (*batch, query, key); each row sums to 1, or to 0 where all is masked.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: the mask does not fit the scores.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    precision = torch.promote_types(scores.dtype, torch.float32)  # 16-bit scores get an exact softmax
    if mask is None:
        weights = scores.softmax(dim=-1, dtype=precision)
    else:
        check_mask(mask, scores.shape)
        # The lowest finite score instead of -inf: a fully masked row stays finite, and the second fill makes it zero.
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, lowest).softmax(dim=-1, dtype=precision).masked_fill(~mask, 0.0)
    weights = weights.to(scores.dtype)
    output = weights @ value
    return (output, weights) if return_weights else output


def fused_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Mask | None = None,
) -> Float[Tensor, "*batch query d_v"]:
    """Compute `attention` by a kernel that never stores the weights (Dao et al., 2022): faster on a GPU.

    Args:
        query, key, value, mask: as in `attention`; here, too, a query that may attend to nothing gets zeros.

    Raises:
        TypeError, ValueError: as in `attention`.
    """
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    check_mask(mask, (*query.shape[:-1], key.size(-2)))
    # Some kernels give NaN where all is masked: let such a query see everything, then make it zero.
    nothing = ~mask.any(dim=-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask | nothing).masked_fill(nothing, 0.0)
