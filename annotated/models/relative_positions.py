"""Positions inside attention: relative (Shaw et al., 2018), rotary (Su et al., 2021), in a tree (Wang et al., 2019).

Each takes the place of the paper's attention, and then nothing is added to the embeddings:

for layer in encoder.layers:
    layer.self_attention = RotaryAttention(d_model, heads)
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.attention import attention, attention_weights, masked_softmax
from annotated.masking import Mask
from annotated.multi_head import MultiHeadAttention


def signed_distances(queries: int, keys: int, *, device: torch.device | str | None = None) -> Int[Tensor, "query key"]:
    """Tell how many places each key stands to the right of each query, j − i; to the left it is negative.

    Args:
        queries: how many queries; they are the last of the keys, as in a decoder with a cache.
        keys: how many keys.
        device: where to make the tensor.

    Raises:
        ValueError: there are more queries than keys.
    """
    if queries > keys:
        raise ValueError(f"{queries} queries are not the last of {keys} keys: distances need one common order.")
    place = torch.arange(keys, device=device)
    return place - place[keys - queries :, None]


def relative_scores(
    query: Float[Tensor, "*batch query d_k"],
    table: Float[Tensor, "distances d_k"],
    rows: Int[Tensor, "*#batch query key"],
) -> Float[Tensor, "*batch query key"]:
    """Compute qᵢ · tableᵣ for the row r of each pair (i, j): all rows first, then each pair picks its own.

    No tensor (query, key, d_k) is built; all batches and heads share the table.

    Args:
        query: what each position looks for.
        table: a vector for each distance; rows: which of them a pair has.
    """
    by_row = query @ table.T  # (*batch, query, distances)
    return by_row.gather(-1, rows.expand(*by_row.shape[:-1], rows.size(-1)))


def relative_values(
    weights: Float[Tensor, "*batch query key"],
    table: Float[Tensor, "distances d_v"],
    rows: Int[Tensor, "*#batch query key"],
) -> Float[Tensor, "*batch query d_v"]:
    """Compute Σⱼ αᵢⱼ tableᵣ with the row r of each pair (i, j): weights of the same row are added up first.

    Args:
        weights: the attention weights α.
        table: a vector for each distance; rows: which of them a pair has.
    """
    by_row = weights.new_zeros(*weights.shape[:-1], len(table)).scatter_add(-1, rows.expand_as(weights), weights)
    return by_row @ table


class RelativeAttention(MultiHeadAttention):
    """Multi-head attention that knows the distance of each key, clipped to −k … k (Shaw et al., 2018).

    eᵢⱼ = qᵢ · (kⱼ + a^Kᵣ) / √d_k and zᵢ = Σⱼ αᵢⱼ (vⱼ + a^Vᵣ) with r = clip(j − i, −k, k). All heads share both tables.

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        k: the largest distance that is told apart; from there on, all count as k.

    Raises:
        ValueError: k is negative.
    """

    def __init__(self, d_model: int, heads: int, *, k: int = 16, **sizes):
        super().__init__(d_model, heads, **sizes)
        if k < 0:
            raise ValueError(f"k={k} must be at least 0.")
        self.k = k
        self.distance_keys = nn.Parameter(torch.randn(2 * k + 1, self.d_k) / math.sqrt(self.d_k))
        self.distance_values = nn.Parameter(torch.randn(2 * k + 1, self.d_v) / math.sqrt(self.d_v))
        self.distances: Tensor | None = None  # see given_distances

    def attend(
        self,
        query: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let the queries, the last of the keys' positions, attend to keys and values; mask as in `forward`.

        Raises:
            ValueError: there are more queries than keys, or the distances that were given do not fit.
        """
        distances = self.distances
        if distances is None:
            distances = signed_distances(query.size(1), keys.size(2), device=query.device)[None]
        if distances.shape[1:] != (query.size(1), keys.size(2)) or distances.size(0) not in (1, query.size(0)):
            raise ValueError(
                f"distances of shape {tuple(distances.shape)} were given for {query.size(0)} texts with "
                f"{query.size(1)} queries and {keys.size(2)} keys: give (batch, query, key)."
            )
        rows = distances[:, None].clamp(-self.k, self.k) + self.k  # (1 or batch, 1, query, key), for all heads
        queries = self.split(self.W_q(query))
        scores = queries @ keys.transpose(-2, -1) + relative_scores(queries, self.distance_keys, rows)
        weights = masked_softmax(scores / math.sqrt(self.d_k), mask)
        for recorder in self.recorders:
            recorder.append(weights.detach())
        mixed = weights @ values + relative_values(weights, self.distance_values, rows)
        return self.W_o(mixed.transpose(1, 2).flatten(2))


@contextmanager
def given_distances(model: nn.Module, distances: Int[Tensor, "batch query key"]) -> Iterator[None]:
    """Let every attention in `model` that asks for distances use these in place of j − i while the context is open.

    Args:
        model: any module that contains a `RelativeAttention`.
        distances: for each text, such as `tree_distances` makes them; batch may be 1.

    Raises:
        ValueError: the model contains none.
    """
    modules = [module for module in model.modules() if hasattr(module, "distances")]
    if not modules:
        raise ValueError(f"{type(model).__name__} contains no RelativeAttention: the distances would change nothing.")
    before = [module.distances for module in modules]
    for module in modules:
        module.distances = distances
    try:
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            module.distances = old


def tree_distances(parents: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length length"]:
    """Count the edges between every two words of a tree, with a sign (after Wang et al., 2019).

    Positive if the key is below the query, negative if it is above it; where neither is above the other, as in
    `signed_distances`, the order of the words decides. Words of two different trees are `length` apart.

    Args:
        parents: for each word the place of the word it depends on; a root, or padding, has its own place.

    Raises:
        ValueError: a place does not exist, or the parents go round in a circle.
    """
    length = parents.size(1)
    if ((parents < 0) | (parents >= length)).any():
        raise ValueError(f"parents are places, 0 … {length - 1}; got {parents.min()} … {parents.max()}.")
    place = torch.arange(length, device=parents.device)
    step = place.expand_as(parents)
    # (batch, word, itself or above)
    above = torch.zeros(*parents.shape, length, dtype=torch.bool, device=parents.device)
    for _ in range(length):
        above |= F.one_hot(step, length).bool()
        step = parents.gather(1, step)
    if (parents.gather(1, step) != step).any():
        raise ValueError("the parents go round in a circle: each word must lead to a root, which is its own parent.")
    below = above.transpose(1, 2)
    depth = above.sum(dim=2)
    common = (above.double() @ below.double()).long()  # how many words are above both
    edges = (depth[:, :, None] + depth[:, None, :] - 2 * common).masked_fill(common == 0, length)
    return edges * torch.where(above, -1, torch.where(below, 1, (place - place[:, None]).sign()))


def rotate(
    x: Float[Tensor, "*batch length d"], start: int = 0, *, base: float = 10000.0, halves: bool = False
) -> Float[Tensor, "*batch length d"]:
    """Turn the pairs of numbers of each row by angles that grow with its position (rotary; Su et al., 2021).

    (a, b) becomes (a cos φ − b sin φ, a sin φ + b cos φ) with φ = position / base^(2i/d) for the pair i.

    Args:
        x: queries or keys.
        start: position of the first row.
        base: how slow the slowest pairs are.
        halves: a pair is (i, i + d/2), as in Hugging Face's Llama; else (2i, 2i + 1), as in the paper of Su et al.

    Raises:
        ValueError: d is odd.
    """
    length, d = x.shape[-2:]
    if d % 2:
        raise ValueError(f"rows of width {d} cannot be turned in pairs: use an even width.")
    position = torch.arange(start, start + length, dtype=torch.float64, device=x.device)[:, None]
    angle = position * base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # (length, d/2)
    a, b = x.chunk(2, dim=-1) if halves else x.unflatten(-1, (-1, 2)).unbind(dim=-1)
    turned = a * cos - b * sin, a * sin + b * cos
    return torch.cat(turned, dim=-1) if halves else torch.stack(turned, dim=-1).flatten(-2)


class RotaryAttention(MultiHeadAttention):
    """Multi-head attention whose queries and keys are turned by their positions (RoPE; Su et al., 2021).

    The values are not turned, so that a position enters the weights alone, and only as a distance.

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        base, halves: as in `rotate`.

    Raises:
        ValueError: d_k is odd.
    """

    def __init__(self, d_model: int, heads: int, *, base: float = 10000.0, halves: bool = False, **sizes):
        super().__init__(d_model, heads, **sizes)
        if self.d_k % 2:
            raise ValueError(
                f"d_k={self.d_k} is odd, but numbers are turned in pairs: choose other heads, or give d_k."
            )
        self.base, self.halves = base, halves

    def attend(
        self,
        query: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let the queries, the last of the keys' positions, attend to keys and values; mask as in `forward`."""
        start = keys.size(2) - query.size(1)
        queries = rotate(self.split(self.W_q(query)), start, base=self.base, halves=self.halves)
        keys = rotate(keys, base=self.base, halves=self.halves)
        for recorder in self.recorders:
            recorder.append(attention_weights(queries, keys, mask).detach())
        return self.W_o(attention(queries, keys, values, mask).transpose(1, 2).flatten(2))
