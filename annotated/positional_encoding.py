"""Positional encodings: how attention learns where a token stands (§3.5)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Tabulate PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(same) (§3.5).

    Args:
        length: number of positions, from 0.
        d_model: width of the encoding; even, because sines and cosines come in pairs.

    Raises:
        ValueError: d_model is odd.
    """
    if d_model % 2:
        raise ValueError(
            f"d_model={d_model} is odd, but each sine needs its cosine: use {d_model - 1} or {d_model + 1}."
        )
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(torch.get_default_dtype())


class _Encoding(nn.Module):
    """Add one row of `table`, (max_length, d_model), to the embedding at each position."""

    table: Tensor

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the encodings of the positions start, start + 1, …

        Args:
            x: embeddings.
            start: position of the first of them.

        Raises:
            ValueError: the input reaches beyond max_length, or begins before position 0.
        """
        end = start + x.size(1)
        if start < 0:
            raise ValueError(f"start={start} must be at least 0, the first position.")
        if end > len(self.table):
            raise ValueError(
                f"position {end - 1} is asked for, but there are encodings for {len(self.table)} positions: "
                "shorten the input or build the model with a larger max_length."
            )
        return x + self.table[start:end].to(x.dtype)


class SinusoidalEncoding(_Encoding):
    """Add fixed sines and cosines of the position to the embeddings (§3.5).

    Args:
        d_model: width of the embeddings, even.
        max_length: number of positions to tabulate.

    Raises:
        ValueError: d_model is odd.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        self.register_buffer("table", sinusoids(max_length, d_model), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SinusoidalEncoding":
        # `to_empty` drops the numbers, the meta device has none, and no checkpoint brings them back.
        self.table = numbers = sinusoids(*self.table.shape) if self.table.is_meta else self.table
        super()._apply(fn, recurse)
        self.table = numbers.to(self.table)
        return self


class LearnedEncoding(_Encoding):
    """Add a learned vector for each position to the embeddings (§3.5; Table 3, row E).

    Args:
        d_model: width of the embeddings.
        max_length: number of positions that can be learned.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)
