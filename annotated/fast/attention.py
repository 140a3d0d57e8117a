"""Attention by PyTorch's fused kernels, and the masks that they need, computed once for all layers."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from annotated.attention import attention
from annotated.masking import Mask, check_boolean


class Allowed(NamedTuple):
    """A mask, and one for kernels that give NaN to a query that sees nothing: there it sees all, and 0 replaces it."""

    mask: Mask
    seen: Mask
    nothing: Bool[Tensor, "*#batch #query 1"] | None  # the queries that see nothing; None if there are none


def prepare(mask: Mask) -> Allowed:
    """Look at a mask once, for the attention of every layer; a TypeError if it is not boolean."""
    check_boolean(mask)
    nothing = ~mask.any(dim=-1, keepdim=True)
    if mask.device.type == "cpu" and not (torch.compiler.is_compiling() or nothing.any()):  # a GPU would be waited for
        return Allowed(mask, mask, None)
    return Allowed(mask, mask | nothing, nothing)


def attend(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    allowed: Allowed | None = None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Compute `annotated.attention.attention` in every head, and put the heads side by side."""
    if query.device.type == "cpu" and query.dtype in (torch.bfloat16, torch.float16):
        # In 16 bits the CPU's kernel is slower than these few operations, with one query or backwards many times.
        mixed = attention(query, key, value, None if allowed is None else allowed.mask)
    else:
        mixed = F.scaled_dot_product_attention(query, key, value, None if allowed is None else allowed.seen)
        if allowed is not None and allowed.nothing is not None:
            mixed = mixed.masked_fill(allowed.nothing, 0.0)
    return mixed.transpose(1, 2).flatten(2)
