"""Dropout, the residual sum and LayerNorm in few passes over memory, and a backward pass in closed form."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from annotated.encoder import LayerNorm
from annotated.fast.derivative import refuse_second_derivative


def dropout_mask(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Draw a mask like x: 0 with probability p, else 1.

    For a CPU: random 16-bit integers are compared with a threshold, so p is met to within 2⁻¹⁷; the same mask on every
    version of torch for the same seed.

    Args:
        x: what is to be multiplied with the mask.
        p: probability of a zero, 0 ≤ p < 1.
    """
    # numpy's generators are faster than torch's; the seed comes from torch, so that manual_seed governs all.
    generator = np.random.SFC64(int(torch.randint(2**62, ())))
    # each 64-bit number makes four of 16 bits, from −2¹⁵ to 2¹⁵ − 1
    draws = torch.from_numpy(generator.random_raw(-(-x.numel() // 4)).view(np.int16))[: x.numel()].view(x.shape)
    threshold = min(round(p * 2**16), 2**16 - 1) - 2**15
    return torch.ge(draws, threshold, out=torch.empty_like(x))


def scale_before_drop(device: torch.device, p: float) -> float:
    """Tell by what the weights before `drop` are multiplied: 1 / (1 − p), which dropout on a GPU has inside."""
    return 1 / (1 - p) if device.type == "cpu" else 1.0


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Set elements to zero with probability p, in what has already been multiplied by `scale_before_drop`."""
    if not p:
        return x
    return x * dropout_mask(x, p) if x.device.type == "cpu" else F.dropout(x, p)


def add_norm(
    x: Float[Tensor, "*batch d_model"], change: Float[Tensor, "*batch d_model"], norm: LayerNorm, p: float
) -> Float[Tensor, "*batch d_model"]:
    """Compute LayerNorm(x + drop(change)). Of 16-bit numbers the sum has 32 bits until it is normalised.

    Args:
        x: what went into the sub-layer.
        change: what came out of it, already multiplied by `scale_before_drop`.
        norm: the LayerNorm.
        p: probability of dropping an element of the change.
    """
    if change.device.type == "cpu" and torch.is_grad_enabled():
        kept = dropout_mask(change, p) if p else None
        return _AddNorm.apply(x, change, norm.gain, norm.bias, norm.eps, kept)
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) + drop(change, p)
    return F.layer_norm(total, norm.gain.shape, norm.gain.to(wide), norm.bias.to(wide), norm.eps).to(x.dtype)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, change: Tensor, gain: Tensor, bias: Tensor, eps: float, kept: Tensor | None
    ) -> Tensor:
        total = torch.empty_like(x, dtype=torch.promote_types(x.dtype, torch.float32)).copy_(x)
        total.add_(change if kept is None else change * kept)
        wide = gain.to(total.dtype), bias.to(total.dtype)
        output, mean, deviation = torch.native_layer_norm(total, gain.shape, *wide, eps)
        ctx.save_for_backward(total, mean, deviation, *wide, kept)
        return output.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        total, mean, deviation, gain, bias, kept = ctx.saved_tensors
        wide, of_gain, of_bias = torch.ops.aten.native_layer_norm_backward(
            gradient.to(total.dtype), total, gain.shape, mean, deviation, gain, bias, [True, True, True]
        )
        of_x = wide.to(gradient.dtype)
        return of_x, of_x if kept is None else of_x * kept, of_gain, of_bias, None, None
