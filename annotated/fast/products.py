"""A linear layer's product by the kernel that suits the processor, with weights laid out once, or in eight bits."""

import math
import platform
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry, shape_wrapper

from annotated.fast.derivative import refuse_second_derivative

# On x86 PyTorch leaves products in float32 to Intel's MKL, which runs below its best on other makers' processors.
# oneDNN, which is inside PyTorch as well, makes its instructions for the processor that it finds.
ONEDNN = platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()
PACKED = [torch.float32]  # which numbers it lays out for the processor
if ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported():
    PACKED.append(torch.bfloat16)


def linear(
    x: Float[Tensor, "*batch width"], weight: Float[Tensor, "out width"], bias: Float[Tensor, "out"] | None = None
) -> Float[Tensor, "*batch out"]:
    """Compute x Wᵀ + b, as `F.linear` does. In bfloat16 that calls oneDNN itself."""
    if ONEDNN and x.device.type == "cpu" and x.dtype == torch.float32 and not _is_one(x):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, len(weight))
        return (
            _multiply(gradient, weight.t()) if of_x else None,
            # A sum over all positions: of those MKL is the faster one.
            rows.t() @ x.reshape(-1, weight.size(1)) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
        )


def prepared(
    weight: Float[Tensor, "out width"], bias: Float[Tensor, "out"] | None, *, int8: bool = False
) -> Callable[[Float[Tensor, "*batch width"]], Float[Tensor, "*batch out"]]:
    """Make the function x Wᵀ + b of weights that will not change: it reads them in the order that suits the processor.

    Args:
        weight, bias: of float32, or what x will be of.
        int8: round each row of W to whole numbers from −127 to 127, times a factor of its own. In each call x is
            rounded, too, to 256 steps from its smallest number to its largest, or to 128 where the processor holds no
            more; products and sums of such numbers are exact (Jacob et al., 2018).

    Raises:
        ValueError: eight bits are asked for on another device than a CPU.
    """
    if int8:
        return _in_eight_bits(weight, bias)
    if not (ONEDNN and weight.device.type == "cpu" and weight.dtype in PACKED):
        return lambda x: F.linear(x, weight, bias)
    packed: list[Tensor] = []

    def multiply(x: Tensor) -> Tensor:
        if x.dtype == torch.float32 and _is_one(x):
            return F.linear(x, weight, bias)
        if not packed:
            packed.append(torch.ops.mkldnn._reorder_linear_weight(weight.detach()))
        return _multiply(x, packed[0], bias)

    return multiply


def _in_eight_bits(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    if weight.device.type != "cpu":
        raise ValueError(f"eight bits are for a CPU, and the model is on {weight.device}: give --device cpu.")
    packed = _quantised(weight.detach().float(), None if bias is None else bias.detach().float())
    return lambda x: torch.ops.quantized.linear_dynamic(x, packed, _overflows())


def _quantised(weight: Tensor, bias: Tensor | None) -> Any:
    steps = weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():  # PyTorch announces that such tensors will go; it has no other product of them yet
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(weight), dtype=torch.long)
        rounded = torch.quantize_per_channel(weight, steps.double(), zeros, 0, torch.qint8)
        try:
            if ONEDNN:
                torch.backends.quantized.engine = "onednn"
            return torch.ops.quantized.linear_prepack(rounded, bias)
        finally:
            torch.backends.quantized.engine = engine


@cache
def _overflows() -> bool:
    """Tell whether this processor adds two products in 16 bits, which may not hold them: then x gets half the steps."""
    ones = torch.ones(1, 64)
    return bool(torch.ops.quantized.linear_dynamic(ones, _quantised(ones, None), False) < 63)


def _is_one(x: Tensor) -> bool:
    """Tell whether there is one row: its product is over before oneDNN has found its way."""
    return x.numel() == x.size(-1)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _operations(x_shape: Sequence[int], weight_shape: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * math.prod(x_shape) * weight_shape[0]


if ONEDNN:  # PyTorch's counter of operations knows its own products alone
    flop_registry[torch.ops.mkldnn._linear_pointwise] = shape_wrapper(_operations)
