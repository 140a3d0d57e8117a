"""One update on one batch or several: the projection onto the vocabulary in chunks, its gradient in closed form."""

from collections.abc import Sequence
from pathlib import Path

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
    check_smoothing(smoothing)
    fast = accelerate(model, bf16=bf16)
    add_gradients = _add_plain_gradients if isinstance(fast, Plain) else _add_gradients
    places = [(batch[-1][:, 1:] != PAD).flatten().nonzero()[:, 0] for batch in batches]  # a GPU is waited for here,
    tokens = max(1, sum(map(len, places)))
    optimizer.zero_grad()
    losses = [add_gradients(fast, *batch, smoothing, tokens) for batch in zip(batches, places, strict=True)]
    loss = float(sum(losses)) / tokens  # and here
    check_loss(loss)
    optimizer.step()
    return loss


def _add_gradients(model: FastModel, batch: Batch, places: Tensor, smoothing: float, tokens: int) -> Tensor:
    """Add the gradients of this batch's summed loss over `tokens`; return that sum.

    `places` are those of the flattened targets, the first column left out, that are no padding.

    The projection onto the vocabulary is the largest product of all. Only positions that count go through it, a chunk
    at a time, forward and at once backward; the chunks' gradients together then go through the rest of the model.
    """
    *given, tgt = batch
    target = tgt[:, 1:].flatten()[places]
    states = model.states(*given, tgt[:, :-1]).flatten(0, 1)[places]
    size = GPU_LOSS_CHUNK
    if tgt.device.type == "cpu":
        size = max(LOSS_CHUNK, LOSS_BYTES // (model.config.vocab_size * states.element_size()))
    chunks = [chunk.requires_grad_(states.requires_grad) for chunk in states.detach().split(size)]
    loss = torch.zeros((), device=tgt.device)
    for chunk, answers in zip(chunks, target.split(size), strict=True):
        logits = model.logits(chunk)
        gradient = logits.detach()
        loss += logits_to_gradient(gradient, answers, smoothing, 1 / tokens)
        logits.backward(gradient)
    if states.requires_grad:  # not where only the projection learns
        states.backward(torch.cat([chunk.grad for chunk in chunks]))
    return loss


def _add_plain_gradients(model: FastModel, batch: Batch, _: Tensor, smoothing: float, tokens: int) -> Tensor:
    """Do what `_add_gradients` does with a model of which only the whole forward pass is known."""
    *given, tgt = batch
    logits = model.forward(*given, tgt[:, :-1])  # not called: a hook on all modules is for the model inside
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = label_smoothed_loss(logits, tgt[:, 1:], smoothing, reduction="sum")
    (loss / tokens).backward()
    return loss.detach()


def logits_to_gradient(
    logits: Float[Tensor, "position vocab"], target: Int[Tensor, "position"], smoothing: float, scale: float = 1.0
) -> Float[Tensor, ""]:
    """Overwrite logits z by the gradient of the summed `label_smoothed_loss`, times `scale`; return that loss.

    The loss is log Σ exp z − Σ q z, as q sums to 1, and its gradient by z is softmax(z) − q. The first term is taken as
    z − log softmax(z) of the right token: a loss of more than 87 nats counts as 87.

    Args:
        logits: of positions whose target is not padding.
        target: the right ids.
        smoothing: ε.
        scale: a factor on the gradient; the loss has none.
    """
    places = torch.arange(len(target), device=target.device), target
    uniform = smoothing / (logits.size(-1) - 1)
    loss = smoothing * logits[places].float()
    if uniform:
        loss -= uniform * sum(part.sum(dim=-1).float() for part in (logits[:, :PAD], logits[:, PAD + 1 :]))
    probabilities = torch.softmax(logits, dim=-1, out=logits)
    right, padding = probabilities[places].float(), probabilities[:, PAD].clone()
    loss -= right.clamp(min=torch.finfo(right.dtype).tiny).log()
    gradient = torch.add(logits.new_tensor(-scale * uniform), probabilities, alpha=scale, out=probabilities)
    gradient[:, PAD] = scale * padding
    gradient[places] = (scale * (right - uniform - (1 - smoothing))).to(gradient.dtype)
    return loss.sum()


def bf16_is_fast(device: torch.device) -> bool:
    """Tell whether the device multiplies bfloat16 in hardware; elsewhere float32 is faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    flags = Path("/proc/cpuinfo")
    if device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX512" or not flags.exists():
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.read_text().split()))
