"""Training: schedule, label smoothing and updates (§5.2–§5.4)."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.models.recurrence import RecurrentTranslator
from annotated.transformer import Transformer
from annotated.translator import Ensemble
from annotated.workbench.data import Batch
from annotated.workbench.vocabulary import PAD

LOSS_CHUNK = 2048  # positions projected onto the vocabulary at a time
CACHED_ROWS = 256  # rows of logits worked on at a time, so that they stay in the processor's cache


def noam_rate(step: int, d_model: int, warmup: int) -> float:
    """Warm up linearly, then decay: d_model^−0.5 · min(step^−0.5, step · warmup^−1.5) (§5.3, Eq. 3).

    Args:
        step: number of the update, from 1.
        d_model: width of the model.
        warmup: updates until the highest rate.

    Raises:
        ValueError: a number is below 1.
    """
    if min(step, d_model, warmup) < 1:
        raise ValueError(f"step={step}, d_model={d_model} and warmup={warmup} must be at least 1.")
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def linear_rate(step: int, d_model: int, warmup: int, left: float) -> float:
    """Warm up as `noam_rate` does, then fall linearly to 0 at the end of the run: a departure from §5.3.

    (d_model · warmup)^−0.5 · min(step / warmup, left).

    Args:
        step: number of the update, from 1.
        d_model: width of the model.
        warmup: updates until Noam's highest rate.
        left: the share of the run that is left, from 1 to 0.

    Raises:
        ValueError: a number is below 1, or left is not a share.
    """
    if step < 1:
        raise ValueError(f"step={step} must be at least 1.")
    if not 0 <= left <= 1:
        raise ValueError(f"left={left} must lie in 0 … 1.")
    return noam_rate(warmup, d_model, warmup) * min(step / warmup, left)


def label_smoothed_loss(
    logits: Float[Tensor, "*batch vocab"],
    target: Int[Tensor, "*batch"],
    smoothing: float = 0.1,
    pad_id: int | None = 0,
    *,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Compare with a target that keeps 1 − ε and spreads ε evenly over all tokens (§5.4; Szegedy et al., 2016).

    The cross-entropy −Σ q log p, in nats, with q = (1 − ε) · [target] + ε / n over the n tokens that are not padding,
    the target among them. Padding gets no mass, and a position whose target is padding counts for nothing.

    Args:
        logits: unnormalised scores.
        target: the right ids.
        smoothing: ε, 0 ≤ ε < 1.
        pad_id: the padding token; None if there is none, which is the convention of `F.cross_entropy`.
        reduction: "mean" over the positions that count (0 if none does), or "sum".

    Raises:
        ValueError: smoothing or pad_id is outside its range, the reduction is unknown, or the shapes do not fit.
    """
    _check_smoothing(smoothing)
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction={reduction!r} is unknown: choose "mean" or "sum".')
    vocab = logits.size(-1)
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"targets of shape {tuple(target.shape)} do not fit logits of shape {tuple(logits.shape)}: "
            "give one target for each row of logits."
        )
    if pad_id is not None and not 0 <= pad_id < vocab:
        raise ValueError(f"pad_id={pad_id} must lie in the vocabulary, 0 … {vocab - 1}, or be None.")
    log_probs = logits.float().log_softmax(dim=-1)
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)
    losses = -(1 - smoothing) * right
    if smoothing:  # without it −∞ for another token costs nothing, where 0 · ∞ would be NaN
        parts = [log_probs] if pad_id is None else [log_probs[..., :pad_id], log_probs[..., pad_id + 1 :]]
        possible = sum(part.size(-1) for part in parts)
        losses = losses - smoothing / possible * sum(part.sum(dim=-1) for part in parts)
    counts = torch.ones_like(target, dtype=torch.bool) if pad_id is None else target != pad_id
    loss = losses.masked_fill(~counts, 0.0).sum()
    return loss / counts.sum().clamp(min=1) if reduction == "mean" else loss


def make_optimizer(model: nn.Module, rate: float = 1e-3) -> torch.optim.Adam:
    """Make Adam with β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (§5.3).

    Args:
        model: what is to be trained.
        rate: the learning rate until `set_rate` changes it, as a schedule does before each update.
    """
    return torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters.

    Args:
        optimizer: over any groups of parameters.
        rate: finite, at least 0.

    Raises:
        ValueError: the rate is outside its range.
    """
    if not 0 <= rate < math.inf:
        raise ValueError(f"rate={rate} must be finite and at least 0.")
    for group in optimizer.param_groups:
        group["lr"] = rate


def train_step(
    model: Transformer | RecurrentTranslator,
    src: Int[Tensor, "batch source"],
    tgt: Int[Tensor, "batch target"],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Update the model once on one batch; return the loss per target token in nats.

    Args:
        model: in training mode.
        src: source ids with <eos>, padded.
        tgt: target ids with <bos> and <eos>, padded. All but the last are read, all but the first are predicted.
        optimizer: over the model's parameters, with its rate set.
        smoothing: ε of the label smoothing, 0 ≤ ε < 1.
        bf16: compute products in bfloat16; weights, sums, softmax and loss stay in float32.

    Raises:
        TypeError: the model is an ensemble.
        ValueError: smoothing is outside its range, or the loss is not finite; then no weight has changed.
    """
    return update(model, [Batch(src, tgt)], optimizer, smoothing, bf16=bf16)


def update(
    model: Transformer | RecurrentTranslator,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Update the model once on several batches as if they were one: their gradients add up to the joint mean's.

    Args:
        batches: what does not fit into memory at once; other arguments and errors as in `train_step`.

    Raises:
        ValueError: there is no batch.
    """
    if isinstance(model, Ensemble):
        raise TypeError("an ensemble only translates: train its models one by one, and put them together afterwards.")
    if not batches:
        raise ValueError("an update needs at least one batch.")
    _check_smoothing(smoothing)
    tokens = max(1, sum(int((tgt[:, 1:] != PAD).sum()) for _, tgt in batches))
    optimizer.zero_grad()
    loss = float(sum(_add_gradients(model, batch, smoothing, tokens, bf16) for batch in batches))
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss is {loss}: nothing was changed. Lower the rate, or go back to weights from before it grew."
        )
    optimizer.step()
    return loss


def _check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1.")


def _add_gradients(
    model: Transformer | RecurrentTranslator, batch: Batch, smoothing: float, tokens: int, bf16: bool
) -> Tensor:
    """Add the gradients of this batch's share of the mean loss over `tokens`; return that share.

    The projection onto the vocabulary is the largest product of all. Only positions that count go through it, a chunk
    at a time, forward and at once backward; the chunks' gradients together then go through the rest of the model.
    """
    src, tgt = batch
    target = tgt[:, 1:]
    counts = target != PAD
    with autocast(src.device, bf16):
        states = model.states(src, tgt[:, :-1])[counts]
    leaf = states.detach().requires_grad_()
    loss = torch.zeros((), device=src.device)
    for chunk, answers in zip(leaf.split(LOSS_CHUNK), target[counts].split(LOSS_CHUNK), strict=True):
        with autocast(src.device, bf16):
            logits = model.logits(chunk)
        gradient = logits.detach()
        loss += _logits_to_gradient(gradient, answers, smoothing, PAD, tokens)
        logits.backward(gradient)
    states.backward(leaf.grad)
    return loss


def _logits_to_gradient(
    logits: Float[Tensor, "position vocab"], target: Int[Tensor, "position"], smoothing: float, pad_id: int, tokens: int
) -> Float[Tensor, ""]:
    """Overwrite logits z by the gradient of `label_smoothed_loss`, summed and divided by `tokens`; return that loss.

    The loss is log Σ exp z − Σ q z, as q sums to 1, and its gradient by z is softmax(z) − q.
    """
    rows = CACHED_ROWS if logits.device.type == "cpu" else len(logits)
    z = logits.new_empty(rows, logits.size(-1), dtype=torch.promote_types(logits.dtype, torch.float32))
    uniform = smoothing / (logits.size(-1) - 1)
    loss = z.new_zeros(())
    for part, answers in zip(logits.split(rows), target[:, None].split(rows), strict=True):
        z = z[: len(part)].copy_(part)
        expected = (1 - smoothing) * z.gather(-1, answers)
        if uniform:
            expected += uniform * (z[:, :pad_id].sum(-1, True) + z[:, pad_id + 1 :].sum(-1, True))
        highest = z.amax(dim=-1, keepdim=True)
        exps = z.sub_(highest).exp_()
        total = exps.sum(dim=-1, keepdim=True)
        loss += (highest + total.log() - expected).sum() / tokens
        gradient = exps.div_(total * tokens).sub_(uniform / tokens)
        gradient[:, pad_id] += uniform / tokens
        gradient.scatter_add_(-1, answers, gradient.new_full((1, 1), (smoothing - 1) / tokens).expand_as(answers))
        part.copy_(gradient)
    return loss


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager:
    """Compute products in bfloat16 inside this context, or change nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else nullcontext()


def bf16_is_fast(device: torch.device) -> bool:
    """Tell whether the device multiplies bfloat16 in hardware; elsewhere float32 is faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    flags = Path("/proc/cpuinfo")
    if device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX512" or not flags.exists():
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.read_text().split()))
