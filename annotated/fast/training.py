"""The updates of `annotated.training`, sooner: the largest product in chunks, its gradient in closed form."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.optim import Optimizer

from annotated import training
from annotated.config import PAD
from annotated.fast.accelerate import accelerate
from annotated.fast.model import FastModel
from annotated.training import check_loss, check_smoothing

LOSS_BYTES, LOSS_CHUNK = 24_000_000, 512  # a chunk's logits on a CPU; a chunk has at least 512 positions
GPU_LOSS_CHUNK = 16_384  # positions: on a GPU many small chunks would cost more time than the memory is worth
Batch = Sequence[Int[Tensor, "_ _"]]  # the targets, or texts, are its last tensor


def make_optimizer(model: nn.Module, rate: float = 1e-3) -> torch.optim.Adam:
    """Make the Adam of `annotated.training.make_optimizer`, in one pass over memory where this torch has that."""
    plain = training.make_optimizer(model, rate)
    try:
        return torch.optim.Adam(model.parameters(), **plain.defaults | {"fused": True})
    except RuntimeError:  # not on this device, or not in this version
        return plain


def train_step(
    model: nn.Module,
    src: Int[Tensor, "batch source"],
    tgt: Int[Tensor, "batch target"],
    optimizer: Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Do what `annotated.training.train_step` does, sooner; with bf16, products are computed in bfloat16."""
    return update(model, [(src, tgt)], optimizer, smoothing, bf16=bf16)


def update(
    model: nn.Module, batches: Sequence[Batch], optimizer: Optimizer, smoothing: float = 0.1, *, bf16: bool = False
) -> float:
    """Update the model once on several batches as if they were one: their gradients add up to that of the joint mean.

    A batch is (sources, targets), or (texts,) for a language model. Without batches it raises a ValueError.
    """
    if isinstance(model, FastModel):
        raise TypeError(f"a {type(model).__name__} is for use: train the model, or the models, that it is made of.")
    if not batches:
        raise ValueError("an update needs at least one batch.")
    tokens = torch.stack([(batch[-1][:, 1:] != PAD).sum() for batch in batches]).sum().clamp(min=1)
    optimizer.zero_grad()
    losses = []
    for batch in batches:
        loss = summed_loss(model, batch, smoothing, bf16=bf16) / tokens
        loss.backward()
        losses.append(loss.detach())
    mean = float(sum(losses))  # the only place where a GPU's result is waited for
    check_loss(mean)
    optimizer.step()
    return mean


def summed_loss(model: nn.Module, batch: Batch, smoothing: float = 0.1, *, bf16: bool = False) -> Float[Tensor, ""]:
    """Compute the `label_smoothed_loss` of a batch, summed over its targets."""
    check_smoothing(smoothing)
    fast = accelerate(model, bf16=bf16)
    *given, tgt = batch
    target = tgt[:, 1:].flatten()
    places = (target != PAD).nonzero().flatten()
    states = fast.states(*given, tgt[:, :-1]).flatten(0, 1)[places]
    output = fast.model.output
    return _ChunkedLoss.apply(states, output.weight, output.bias, target[places], smoothing)


class _ChunkedLoss(torch.autograd.Function):
    """The summed loss of states (position, d_model), projected onto the vocabulary (vocab, d_model) by chunks.

    The forward pass computes all gradients, too, so that only one chunk's logits are in memory at a time.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Any, target: Tensor, smoothing: float) -> Tensor:
        on_cpu = states.device.type == "cpu"
        size = max(LOSS_CHUNK, LOSS_BYTES // (len(weight) * states.element_size())) if on_cpu else GPU_LOSS_CHUNK
        narrow, narrow_bias = weight.to(states.dtype), None if bias is None else bias.to(states.dtype)
        of_states, of_weight = torch.empty_like(states), torch.zeros_like(weight)
        of_bias = None if bias is None else torch.zeros_like(bias)
        loss = torch.zeros((), device=states.device)
        for part, answers, of_part in zip(states.split(size), target.split(size), of_states.split(size), strict=True):
            logits = F.linear(part, narrow, narrow_bias)  # (position, vocab)
            loss += logits_to_gradient(logits, answers, smoothing)
            torch.mm(logits, narrow, out=of_part)
            of_weight += logits.t() @ part
            if of_bias is not None:
                of_bias += logits.sum(dim=0)
        ctx.save_for_backward(of_states, of_weight, of_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if part is None else part * gradient.to(part.dtype) for part in ctx.saved_tensors), None, None


def logits_to_gradient(
    logits: Float[Tensor, "position vocab"], target: Int[Tensor, "position"], smoothing: float
) -> Float[Tensor, ""]:
    """Overwrite the logits z by the gradient of their summed loss, softmax(z) − q; return that loss.

    The loss is log Σ exp z − Σ q z, where q are the smoothed targets, which sum to 1. Its first term is computed as
    z − log softmax(z) of the right token, which is at most 87.
    """
    places = torch.arange(len(target), device=target.device), target
    uniform = smoothing / (logits.size(-1) - 1)
    loss = smoothing * logits[places].float()
    if uniform:
        loss -= uniform * sum(part.sum(dim=-1).float() for part in (logits[:, :PAD], logits[:, PAD + 1 :]))
    probabilities = torch.softmax(logits, dim=-1, out=logits)
    right, padding = probabilities[places].float(), probabilities[:, PAD].clone()
    loss -= right.clamp(min=torch.finfo(right.dtype).tiny).log()
    gradient = probabilities.sub_(uniform)
    gradient[:, PAD] = padding
    gradient[places] = (right - uniform - (1 - smoothing)).to(gradient.dtype)
    return loss.sum()


def bf16_is_fast(device: torch.device) -> bool:
    """Tell whether the device multiplies bfloat16 in hardware; elsewhere float32 is faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    flags = Path("/proc/cpuinfo")
    if device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX512" or not flags.exists():
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.read_text().split()))
