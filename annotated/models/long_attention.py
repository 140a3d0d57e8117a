"""Attention for long texts: exact without its matrix, and three ways to look at less (§4, and after the paper).

Each takes the place of the paper's:

for layer in encoder.layers:
    layer.self_attention = BigBirdAttention(d_model, heads, block=16)
"""

import math
import random as random_numbers

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from annotated.attention import attention
from annotated.masking import Mask, check_mask
from annotated.multi_head import MultiHeadAttention


def attention_in_blocks(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Mask | None = None,
    *,
    block: int = 128,
) -> Float[Tensor, "*batch query d_v"]:
    """Compute softmax(Q Kᵀ / √d_k) V with never more than block × block scores at a time (Dao et al., 2022).

    For each query three things are kept: the largest score m so far, ℓ = Σ e^(s − m), and o = Σ e^(s − m) v.

    Args:
        query, key, value, mask: as in `annotated.attention.attention`; a query that may attend to nothing gets zeros.
        block: how many queries, and how many keys, are looked at together.

    Raises:
        TypeError, ValueError: the mask is not boolean or does not fit, or the block is below 1.
    """
    if block < 1:
        raise ValueError(f"block={block} must be at least 1.")
    scores_shape = (*query.shape[:-1], key.size(-2))
    if mask is not None:
        check_mask(mask, scores_shape)
        mask = mask.expand(*mask.shape[:-2], *scores_shape[-2:])  # a view: nothing is copied
    outputs = []
    for first in range(0, query.size(-2), block):
        q = query[..., first : first + block, :]
        m = q.new_full((*q.shape[:-1], 1), torch.finfo(q.dtype).min)
        ell, o = torch.zeros_like(m), q.new_zeros(*q.shape[:-1], value.size(-1))
        for start in range(0, key.size(-2), block):
            keys = slice(start, start + block)
            scores = q @ key[..., keys, :].transpose(-2, -1) / math.sqrt(q.size(-1))
            if mask is not None:
                scores = scores.masked_fill(~mask[..., first : first + block, keys], -math.inf)
            larger = torch.maximum(m, scores.amax(dim=-1, keepdim=True))
            e, shrink = (scores - larger).exp(), (m - larger).exp()
            ell, o = shrink * ell + e.sum(dim=-1, keepdim=True), shrink * o + e @ value[..., keys, :]
            m = larger
        outputs.append(o / ell.clamp(min=torch.finfo(o.dtype).tiny))  # ℓ is at least 1 where any key is seen
    return torch.cat(outputs, dim=-2)


def key_mask(mask: Mask, keys: int) -> Bool[Tensor, "batch_or_1 1 keys 1"]:
    """Turn a mask that says the same to every query and head into which keys may be seen.

    Args:
        mask: True = may be seen, (batch, 1, 1, key) or (1, key), such as `padding_mask` makes.
        keys: how many keys there are.

    Raises:
        ValueError: the mask tells queries or heads apart, as a causal mask does, or has another length.
    """
    if mask.ndim not in (2, 4) or any(axis != 1 for axis in mask.shape[-3:-1]) or mask.size(-1) != keys:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} tells queries or heads apart, or does not fit {keys} keys: here it "
            f"may only hide keys from all, (batch, 1, 1, {keys}). For a causal mask take another attention."
        )
    return mask.reshape(mask.size(0), 1, keys, 1)


class LinformerAttention(MultiHeadAttention):
    """Multi-head attention to k mixtures of the keys and values (Linformer; Wang et al., 2020).

    headᵢ = Attention(Q Wᵢ^Q, E K Wᵢ^K, F V Wᵢ^V), with two learned matrices (k, length) that all heads share.

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        length: the longest sequence of keys; of a shorter one the first columns of E and F are used.
        k: how many mixtures.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(self, d_model: int, heads: int, *, length: int, k: int, **sizes):
        super().__init__(d_model, heads, **sizes)
        if min(length, k) < 1:
            raise ValueError(f"length={length} and k={k} must be at least 1.")
        self.E = nn.Parameter(torch.randn(k, length) / math.sqrt(length))
        self.F = nn.Parameter(torch.randn(k, length) / math.sqrt(length))

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Mix the keys and the values of all positions that the mask does not hide, then attend to the mixtures.

        Raises:
            ValueError: there are more keys than `length`, or the mask tells queries apart.
        """
        n = key.size(1)
        if n > self.E.size(1):
            raise ValueError(f"{n} keys are more than length={self.E.size(1)}: build it longer, and train it again.")
        keys, values = self.project(key, value)
        if mask is not None:
            seen = key_mask(mask, n)  # not padding; a causal mask is refused
            keys, values = keys.masked_fill(~seen, 0.0), values.masked_fill(~seen, 0.0)
        return self.attend(query, self.E[:, :n] @ keys, self.F[:, :n] @ values)


def block_pattern(
    blocks: int, *, window: int = 3, first: int = 1, random: int = 0, seed: int = 0
) -> Int[Tensor, "blocks slots"]:
    """List for each block of queries the blocks of keys that it looks at (BigBird; Zaheer et al., 2020).

    These are its neighbours, the first ones, and random others; each once, in rising order, and −1 in empty slots.

    Args:
        blocks: how many blocks the sequence has.
        window: how many neighbours, itself in the middle; odd, or 0 for none.
        first: how many blocks at the beginning are looked at by all.
        random: how many others, drawn without replacement; fewer where fewer are left.
        seed: of the random ones.

    Raises:
        ValueError: the window is even, a number is negative, or there is nothing to look at.
    """
    if min(blocks - 1, window, first, random) < 0 or (window and window % 2 == 0) or window + first + random == 0:
        raise ValueError(
            f"blocks={blocks}, window={window}, first={first}, random={random}: give at least one block, an odd window "
            "or 0, nothing below 0, and something to look at."
        )
    draw, rows = random_numbers.Random(seed), []
    for i in range(blocks):
        near = range(max(0, i - window // 2), min(blocks, i + window // 2 + 1)) if window else ()
        seen = {*near, *range(min(first, blocks))}
        if random:
            drawn = draw.sample(range(blocks), min(blocks, len(seen) + random))  # enough to find `random` new ones
            seen.update([j for j in drawn if j not in seen][:random])
        rows.append(sorted(seen))
    slots = max(map(len, rows))
    return torch.tensor([row + [-1] * (slots - len(row)) for row in rows])


def pattern_mask(pattern: Int[Tensor, "blocks slots"], first: int, block: int) -> Bool[Tensor, "length length"]:
    """Spread a pattern out into the mask that means the same, with length² entries.

    Args:
        pattern: from `block_pattern`; first: how many blocks look at everything.
        block: positions in a block.
    """
    seen = (pattern[:, :, None] == torch.arange(len(pattern), device=pattern.device)).any(dim=1)
    seen[:first] = True
    return seen.repeat_interleave(block, dim=0).repeat_interleave(block, dim=1)


def block_sparse_attention(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    pattern: Int[Tensor, "blocks slots"],
    first: int = 0,
    mask: Mask | None = None,
) -> Float[Tensor, "batch heads query d_v"]:
    """Attend where a pattern allows, and compute nothing else: the keys of each block of queries are gathered.

    The same as `attention` with `pattern_mask`, at a cost of length × slots × block, and of length × block for each of
    the first blocks.

    Args:
        query, key, value: equally long, a multiple of the number of blocks.
        pattern: which blocks of keys each block of queries looks at; −1 for none.
        first: how many blocks at the beginning look at everything, whatever the pattern says of them.
        mask: True = may be seen, the same for every query and head.

    Raises:
        ValueError: the length does not divide into the blocks, or the mask tells queries apart.
    """
    blocks, length = len(pattern), key.size(-2)
    if query.size(-2) != length or length % blocks:
        raise ValueError(
            f"{query.size(-2)} queries and {length} keys do not divide into {blocks} blocks: give as many queries as "
            "keys, padded to a multiple."
        )
    block, first = length // blocks, min(first, blocks)
    rows = pattern[first:]
    seen = key.new_ones(1, 1, length, 1, dtype=torch.bool) if mask is None else key_mask(mask, length)

    def gathered(x: Tensor) -> Tensor:
        """Lay the blocks that each row looks at side by side: (batch, heads, row, slots × block, width)."""
        return x.unflatten(-2, (blocks, block))[..., rows.clamp(min=0), :, :].flatten(-3, -2)

    allowed = gathered(seen).transpose(-2, -1) & (rows >= 0).repeat_interleave(block, dim=-1)[:, None]
    near = attention(
        query.unflatten(-2, (blocks, block))[..., first:, :, :], gathered(key), gathered(value), allowed
    ).flatten(-3, -2)
    everywhere = attention(query[..., : first * block, :], key, value, seen.transpose(-2, -1))
    return torch.cat((everywhere, near), dim=-2)


class BigBirdAttention(MultiHeadAttention):
    """Multi-head self-attention to neighbours, to the first blocks and to random ones (BigBird; Zaheer et al., 2020).

    The first blocks look at everything, and all look at them (BigBird's "internal" global tokens).

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        block: positions in a block. A length that is not a multiple of it is padded inside.
        window, first, random: as in `block_pattern`.

    Raises:
        ValueError: the block is below 1, or as in `block_pattern`.
    """

    def __init__(
        self, d_model: int, heads: int, *, block: int = 64, window: int = 3, first: int = 1, random: int = 0, **sizes
    ):
        super().__init__(d_model, heads, **sizes)
        if block < 1:
            raise ValueError(f"block={block} must be at least 1.")
        self.block, self.first = block, first
        self.choices = dict(window=window, first=first, random=random)
        block_pattern(1, **self.choices)  # refuses what it would refuse later

    def attend(
        self,
        query: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let each block of queries attend to the blocks of its pattern; the weights are not recorded.

        Raises:
            ValueError: there are not as many queries as keys, or the mask tells queries apart.
        """
        length = keys.size(-2)
        missing = -length % self.block
        queries = self.split(self.W_q(query))
        if missing:
            seen = queries.new_ones(1, length) if mask is None else key_mask(mask, length).transpose(-2, -1)
            mask = nn.functional.pad(seen.bool(), (0, missing))  # False
            queries, keys, values = (nn.functional.pad(x, (0, 0, 0, missing)) for x in (queries, keys, values))
        pattern = block_pattern(keys.size(-2) // self.block, **self.choices).to(keys.device)
        mixed = block_sparse_attention(queries, keys, values, pattern, self.first, mask)
        return self.W_o(mixed[..., :length, :].transpose(1, 2).flatten(2))


class CompressedAttention(MultiHeadAttention):
    """Multi-head attention to groups of keys, each made one by a convolution (memory-compressed; Liu et al., 2018).

    A query sees a group only if it may see all of it, so that a causal mask stays causal. Positions at the end that do
    not fill a group are in none.

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        stride: keys in a group.

    Raises:
        ValueError: the stride is below 1.
    """

    def __init__(self, d_model: int, heads: int, *, stride: int = 3, **sizes):
        super().__init__(d_model, heads, **sizes)
        if stride < 1:
            raise ValueError(f"stride={stride} must be at least 1.")
        self.stride = stride
        self.shrink_k = nn.Conv1d(heads * self.d_k, heads * self.d_k, stride, stride, groups=heads, bias=False)
        self.shrink_v = nn.Conv1d(heads * self.d_v, heads * self.d_v, stride, stride, groups=heads, bias=False)

    def project(
        self, key: Float[Tensor, "batch key d_model"], value: Float[Tensor, "batch key d_model"]
    ) -> tuple[Float[Tensor, "batch heads group d_k"], Float[Tensor, "batch heads group d_v"]]:
        """Give each head its keys and values, one for each group.

        Raises:
            ValueError: there are fewer keys than one group holds.
        """
        if key.size(1) < self.stride:
            raise ValueError(f"{key.size(1)} keys do not fill a group of stride={self.stride}: pad them, or hide some.")
        keys = self.shrink_k(self.W_k(key).transpose(1, 2)).transpose(1, 2)
        values = self.shrink_v(self.W_v(value).transpose(1, 2)).transpose(1, 2)
        return self.split(keys), self.split(values)

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Attend to groups; the arguments are those of `MultiHeadAttention`, the mask is one of keys, not of groups."""
        if mask is not None:
            check_mask(mask, (query.size(0), self.heads, query.size(1), key.size(1)))
            groups = key.size(1) // self.stride
            mask = mask.expand(*mask.shape[:-1], key.size(1))[..., : groups * self.stride]
            mask = mask.unflatten(-1, (groups, self.stride)).all(dim=-1)
        return self.attend(query, *self.project(key, value), mask)
