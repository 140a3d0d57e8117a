"""Scaled dot-product attention (§3.2.1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from annotated.masking import Mask, check_mask


def masked_softmax(
    scores: Float[Tensor, "*batch query key"], mask: Mask | None = None
) -> Float[Tensor, "*batch query key"]:
    """Turn scores into weights: a row of them sums to 1, and what is hidden gets 0.

    Args:
        scores: how well each query matches each key.
        mask: as in `attention_weights`, and so are the errors.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    check_mask(mask, scores.shape)
    # The lowest finite score instead of -inf: a fully masked row stays finite, and the second fill makes it zero.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention_weights(
    query: Float[Tensor, "*batch query d_k"], key: Float[Tensor, "*batch key d_k"], mask: Mask | None = None
) -> Float[Tensor, "*batch query key"]:
    """Tell how much of its attention each query gives to each key: softmax(Q Kᵀ / √d_k) (§3.2.1).

    Each row sums to 1, except that of a query that may attend to nothing: it is all zeros, and so are its gradients.

    Args:
        query: what each position looks for.
        key: what each position offers to be found by.
        mask: which key each query may attend to, True = may attend; broadcastable to (*batch, query, key), with 2 axes
            or with all.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: the mask does not fit the scores.
    """
    return masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), mask)


def attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Mask | None = None,
) -> Float[Tensor, "*batch query d_v"]:
    """Mix the values by how well each query matches each key: softmax(Q Kᵀ / √d_k) V (§3.2.1, Eq. 1).

    Args:
        query, key, mask: as in `attention_weights`; a query that may attend to nothing gets zeros.
        value: what each position hands over when it is found.

    Raises:
        TypeError, ValueError: as in `attention_weights`.
    """
    return attention_weights(query, key, mask) @ value
