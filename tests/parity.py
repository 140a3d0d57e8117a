"""Hold our layers against PyTorch's: with the same parameters, the same outputs and the same gradients."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

from annotated.decoder import Decoder, DecoderLayer
from annotated.encoder import Encoder, EncoderLayer, FeedForward, LayerNorm
from annotated.multi_head import MultiHeadAttention

assert_near = partial(assert_close, atol=1e-5, rtol=1e-5)


def randomise(module: nn.Module) -> nn.Module:
    """Give every parameter values of its own: no bias stays 0, no gain stays 1."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def maker(kind: Callable[..., nn.Module], config: Callable[..., Any], **sizes: Any) -> Callable[..., Any]:
    """Give a function that makes a model of these sizes, or of those it is told, in which every weight counts."""
    return lambda **changes: randomise(kind(config(**(sizes | changes)))).eval()


def torch_parameters(ours: nn.Module) -> dict[str, Tensor]:
    """Arrange our parameters under the names that PyTorch's module of the same kind has for them."""
    match ours:
        case LayerNorm():
            return {"weight": ours.gain, "bias": ours.bias}
        case MultiHeadAttention(W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o):
            weights = {"in_proj_weight": torch.cat((W_q.weight, W_k.weight, W_v.weight)), "out_proj.weight": W_o.weight}
            if W_o.bias is None:  # PyTorch's own biases start as zeros
                return weights
            return weights | {"in_proj_bias": torch.cat((W_q.bias, W_k.bias, W_v.bias)), "out_proj.bias": W_o.bias}
        case FeedForward():
            parts = {"linear1": ours.W_1, "linear2": ours.W_2}
        case EncoderLayer() | DecoderLayer():
            parts = {"self_attn": ours.self_attention, "": ours.feed_forward}
            parts |= {f"norm{number}": residual.norm for number, residual in enumerate(ours.residuals, 1)}
            if isinstance(ours, DecoderLayer):
                parts["multihead_attn"] = ours.cross_attention
        case Encoder() | Decoder():
            parts = {f"layers.{number}": layer for number, layer in enumerate(ours.layers)} | {"norm": ours.norm}
        case _:
            return dict(ours.named_parameters())
    inside = {part: torch_parameters(module).items() for part, module in parts.items()}
    return {f"{part}.{name}".lstrip("."): parameter for part, named in inside.items() for name, parameter in named}


def assert_same_gradients(
    ours: Tensor, theirs: Tensor, sources: list[Tensor], assert_equal: Callable[[Tensor, Tensor], None] = assert_near
) -> None:
    """Assert that the gradients of a random mix of the outputs are equal, to 1e-5 unless told otherwise."""
    direction = torch.randn_like(ours) / ours.numel() ** 0.5
    for source in zip(*(torch.autograd.grad(output, sources, direction) for output in (ours, theirs)), strict=True):
        assert_equal(*source)


def assert_parity(
    ours: nn.Module,
    theirs: nn.Module,
    inputs: tuple[Tensor, ...],
    our_options: Mapping[str, Any] | None = None,
    their_options: Mapping[str, Any] | None = None,
) -> None:
    """Assert that outputs and gradients, of every input and every parameter of ours, are equal to 1e-5."""
    inputs = tuple(x.requires_grad_() for x in inputs)
    output = ours(*inputs, **(our_options or {}))
    expected = functional_call(theirs, torch_parameters(ours), inputs, dict(their_options or {}))
    if isinstance(expected, tuple):
        expected, _ = expected
    assert_near(output, expected)
    assert_same_gradients(output, expected, [*inputs, *ours.parameters()])
