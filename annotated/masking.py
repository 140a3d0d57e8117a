"""Masks: which key each query may attend to (§3.2.3). Boolean, True = may attend."""

from collections.abc import Sequence
from functools import reduce

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# Broadcast to the scores (batch, head, query, key). A decoder's mask of the source says the same to every query.
Mask = Bool[Tensor, "*#batch #query #key"]
SourceMask = Bool[Tensor, "*#batch 1 #source"]


def padding_mask(ids: Int[Tensor, "batch length"], pad_id: int = 0) -> Bool[Tensor, "batch 1 1 length"]:
    """Let every query see the real tokens of its sentence and no padding.

    It hides keys, not queries: what a padded position computes is never read by anyone.

    Args:
        ids: token ids, padded with `pad_id`.
        pad_id: the id of the padding token.
    """
    return (ids != pad_id)[:, None, None, :]  # the same for every head and every query


def causal_mask(length: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "length length"]:
    """Let position i see the positions 0 … i and none after it: a lower triangle of True (§3.2.3).

    Args:
        length: number of positions, as queries and as keys.
        device: where to make the mask.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def combine(*masks: Mask | None) -> Mask | None:
    """Allow what every given mask allows: their logical AND, broadcast; None allows everything.

    Args:
        masks: boolean masks of broadcastable shapes, or None.

    Raises:
        TypeError: a mask is not boolean.
    """
    given = [mask for mask in masks if mask is not None]
    for mask in given:
        check_boolean(mask)
    return reduce(torch.logical_and, given) if given else None


def check_boolean(mask: Tensor) -> None:
    """Refuse a mask of numbers: nobody can tell whether 0 means "hidden" or "nothing added to the score".

    Raises:
        TypeError: the mask is not boolean.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean, True = may attend; got {mask.dtype}. "
            "Convert a mask of 1 and 0 with mask.bool(), one of 0 and -inf with mask == 0."
        )


def check_mask(mask: Tensor, scores: Sequence[int]) -> None:
    """Refuse a mask that is not boolean, or that does not broadcast to scores of this shape.

    Args:
        mask: what the caller was given.
        scores: the shape of the scores, (*batch, query, key).

    Raises:
        TypeError: the mask is not boolean.
        ValueError: it has neither 2 axes nor as many as the scores, or one of another length that is not 1.
    """
    check_boolean(mask)
    pairs = zip(mask.shape, scores[-mask.ndim :], strict=False)
    if mask.ndim not in (2, len(scores)) or any(given not in (1, wanted) for given, wanted in pairs):
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(scores)}: give (query, key) or "
            f"all {len(scores)} axes, each as long as the scores' or 1. Of three axes for four nobody can tell which "
            "is missing: of (batch, query, key) make mask[:, None], of (heads, query, key) mask[None]."
        )
