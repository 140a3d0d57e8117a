"""Dropout, the residual sum and LayerNorm in few passes over memory."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from annotated.encoder import Dropout, LayerNorm


def dropout_mask(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Draw a mask like x, on a CPU: 0 with probability p, else 1.

    Random 16-bit integers are compared with a threshold, so p is met to within 2⁻¹⁷; the same mask on every version of
    torch for the same seed.
    """
    # numpy's generators are faster than torch's; the seed comes from torch, so that manual_seed governs all.
    generator = np.random.SFC64(int(torch.randint(2**62, ())))
    # each 64-bit number makes four of 16 bits, from −2¹⁵ to 2¹⁵ − 1
    draws = torch.from_numpy(generator.random_raw(-(-x.numel() // 4)).view(np.int16))[: x.numel()].view(x.shape)
    threshold = min(round(p * 2**16), 2**16 - 1) - 2**15
    return torch.ge(draws, threshold, out=torch.empty_like(x))


def drop(x: Float[Tensor, "*shape"], dropout: Dropout) -> Float[Tensor, "*shape"]:
    """Do what a `Dropout` does, with cheaper random numbers."""
    p = dropout.p if dropout.training else 0.0
    if p and x.device.type == "cpu" and not torch.compiler.is_compiling():  # torch.compile can't trace numpy
        return x * dropout_mask(x, p) / (1 - p)
    return F.dropout(x, p)


def add_dropped(
    x: Float[Tensor, "*batch d_model"], change: Float[Tensor, "*batch d_model"], dropout: Dropout
) -> Float[Tensor, "*batch d_model"]:
    """Compute x + dropout(change), in at least 32 bits."""
    wide = torch.promote_types(x.dtype, torch.float32)
    x, change = x.to(wide), change.to(wide)
    p = dropout.p if dropout.training else 0.0
    if p and x.device.type == "cpu" and not torch.compiler.is_compiling():  # x + change · mask / (1 − p) in one pass
        return torch.addcmul(x, change, dropout_mask(change, p), value=1 / (1 - p))
    return x + F.dropout(change, p)


def normalise(x: Float[Tensor, "*batch d_model"], norm: LayerNorm) -> Float[Tensor, "*batch d_model"]:
    """Do what a `LayerNorm` does in one pass, in the precision of x."""
    return F.layer_norm(x, norm.gain.shape, norm.gain.to(x.dtype), norm.bias.to(x.dtype), norm.eps)
