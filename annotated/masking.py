"""Masks: which key each query may attend to (§3.2.3). Boolean, True = may attend."""

from functools import reduce

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(ids: Int[Tensor, "batch length"], pad_id: int = 0) -> Bool[Tensor, "batch 1 1 length"]:
    """Let every query see the real tokens of its sentence and no padding.

    It hides keys, not queries: what a padded position computes is never read by anyone.

    Args:
        ids: token ids, padded with `pad_id`.
        pad_id: the id of the padding token.
    """
    return (ids != pad_id)[:, None, None, :]


def causal_mask(length: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "length length"]:
    """Let position i see the positions 0 … i and none after it: a lower triangle of True (§3.2.3).

    Args:
        length: number of positions, as queries and as keys.
        device: where to make the mask.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def combine(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """Allow what every given mask allows: their logical AND, broadcast; None allows everything.

    Args:
        masks: boolean masks of broadcastable shapes, or None.
    """
    given = [mask for mask in masks if mask is not None]
    return reduce(torch.logical_and, given) if given else None
