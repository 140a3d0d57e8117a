"""One update on one batch or several: the projection onto the vocabulary in chunks, its gradient in closed form."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated import training
from annotated.config import PAD
from annotated.fast.accelerate import accelerate
from annotated.fast.translator import FastModel, Plain
from annotated.training import check_loss, check_smoothing, label_smoothed_loss

LOSS_BYTES, LOSS_CHUNK = 24_000_000, 512  # logits at a time, but not fewer positions: glibc keeps pieces below 32 MB,
GPU_LOSS_CHUNK = 16_384  # and a GPU, which has memory, would wait for the kernels of many small chunks to be launched
Batch = Sequence[Int[Tensor, "_ _"]]  # what is given, such as sources, and last the targets; lengths of its own


def make_optimizer(model: nn.Module, rate: float = 1e-3) -> torch.optim.Adam:
    """Make the Adam of `annotated.training.make_optimizer`, in one pass over memory where this torch has that.

    Args:
        model: what is to be trained.
        rate: the learning rate until `set_rate` changes it.
    """
    plain = training.make_optimizer(model, rate)
    try:
        return torch.optim.Adam(model.parameters(), **plain.defaults | {"fused": True})
    except RuntimeError:  # not on this device, or not in this version
        return plain


def train_step(
    model: nn.Module,
    src: Int[Tensor, "batch source"],
    tgt: Int[Tensor, "batch target"],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Do what `annotated.training.train_step` does, in less time and memory.

    Args:
        model, src, tgt, optimizer, smoothing: as there. The model may be any that translates.
        bf16: compute products in bfloat16; weights, sums, softmax and loss stay in float32.

    Raises:
        TypeError: the model cannot be trained.
        ValueError: smoothing is outside its range, or the loss is not finite; then no weight has changed.
    """
    return update(model, [(src, tgt)], optimizer, smoothing, bf16=bf16)


def update(
    model: nn.Module,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Update the model once on several batches as if they were one: their gradients add up to the joint mean's.

    Args:
        batches: what does not fit into memory at once, each (sources, targets), or (texts,) for a model that continues
            text; other arguments and errors as in `train_step`.

    Raises:
        ValueError: there is no batch.
    """
    if isinstance(model, FastModel):
        raise TypeError(
            f"a {type(model).__name__} only translates: train the model, or the models, that it is made of."
        )
    if not batches:
        raise ValueError("an update needs at least one batch.")
    tokens = sum((batch[-1][:, 1:] != PAD).sum() for batch in batches).clamp(min=1)
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
    """Compute the `label_smoothed_loss` of a batch, summed over its targets; arguments and errors as for `update`.

    The projection onto the vocabulary is the largest product of all. Only positions that count go through it.
    """
    check_smoothing(smoothing)
    fast = accelerate(model, bf16=bf16)
    *given, tgt = batch
    if isinstance(fast, Plain):
        logits = fast.forward(*given, tgt[:, :-1])  # not called: a hook on all modules is for the model inside
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return label_smoothed_loss(logits, tgt[:, 1:], smoothing, reduction="sum")
    target = tgt[:, 1:].flatten()
    places = (target != PAD).nonzero()[:, 0]
    states = fast.states(*given, tgt[:, :-1]).flatten(0, 1)[places]
    weights = [weight for weight in fast.model.output.parameters() if weight.requires_grad]
    return ChunkedLoss.apply(fast, states, target[places], smoothing, *weights)


class ChunkedLoss(torch.autograd.Function):
    """The loss of states that are projected onto the vocabulary, with room for the logits of one chunk of positions.

    Each chunk goes forward and at once backward, because its logits are then free again: the gradients are ready
    before `backward` asks for them.
    """

    @staticmethod
    def forward(ctx: Any, model: FastModel, states: Tensor, target: Tensor, smoothing: float, *weights: Tensor) -> Any:
        """Sum up the loss of states (position, d_model) by the answers (position), and the gradients beside it."""
        size = GPU_LOSS_CHUNK
        if states.device.type == "cpu":
            size = max(LOSS_CHUNK, LOSS_BYTES // (model.config.vocab_size * states.element_size()))
        loss, of_states, of_weights = states.new_zeros((), dtype=torch.float32), [], []
        for chunk, answers in zip(states.detach().split(size), target.split(size), strict=True):
            with torch.enable_grad():
                logits = model.logits(chunk.requires_grad_())  # (position, vocab)
            gradient = logits.detach()
            loss += logits_to_gradient(gradient, answers, smoothing)
            first, *others = torch.autograd.grad(logits, [chunk, *weights], gradient, materialize_grads=True)
            of_states.append(first)
            of_weights = [a.add_(b) for a, b in zip(of_weights, others, strict=True)] if of_weights else others
        ctx.gradients = torch.cat(of_states), *of_weights
        return loss

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        """Return the gradients that `forward` has computed, times the loss's own."""
        of_states, *of_weights = (scale * gradient for gradient in ctx.gradients)
        return None, of_states, None, None, *of_weights


def logits_to_gradient(
    logits: Float[Tensor, "position vocab"], target: Int[Tensor, "position"], smoothing: float
) -> Float[Tensor, ""]:
    """Overwrite logits z by the gradient of the summed `label_smoothed_loss`; return that loss.

    The loss is log Σ exp z − Σ q z, as q sums to 1, and its gradient by z is softmax(z) − q. The first term is taken as
    z − log softmax(z) of the right token: a loss of more than 87 nats counts as 87.

    Args:
        logits: of positions whose target is not padding.
        target: the right ids.
        smoothing: ε.
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
