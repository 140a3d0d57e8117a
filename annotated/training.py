"""Training: schedule, label smoothing and updates (§5.2–§5.4)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from annotated.data import Batch
from annotated.translator import Translator

LOSS_CHUNK = 2048  # positions projected onto the vocabulary at a time
CACHED_ROWS = 256  # rows of logits worked on at a time, so that they stay in the processor's cache


def noam_rate(step: int, d_model: int, warmup: int) -> float:
    """Warm up linearly, then decay: d_model^−0.5 · min(step^−0.5, step · warmup^−1.5) (§5.3, Eq. 3).

    Args:
        step: number of the update, from 1.
        d_model: width of the model.
        warmup: updates until the highest rate.

    Raises:
        ValueError: step or warmup is below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} count from 1.")
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
        ValueError: step or warmup is below 1, or left is not a share.
    """
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
        ValueError: smoothing is outside its range.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1.")
    log_probs = logits.float().log_softmax(dim=-1)
    total = log_probs.sum(dim=-1)
    possible = logits.size(-1)
    if pad_id is not None:
        total = total - log_probs[..., pad_id]
        possible -= 1
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)
    losses = -(1 - smoothing) * right - smoothing / possible * total
    counts = torch.ones_like(target, dtype=torch.bool) if pad_id is None else target != pad_id
    loss = losses.masked_fill(~counts, 0.0).sum()
    return loss / counts.sum().clamp(min=1) if reduction == "mean" else loss


def make_optimizer(model: Translator) -> torch.optim.Adam:
    """Make Adam with β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (§5.3); the schedule sets its rate before each update."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)


def train_step(
    model: Translator,
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
        smoothing: ε of the label smoothing.
        bf16: compute products in bfloat16; weights, softmax and loss stay in float32.
    """
    return update(model, [Batch(src, tgt)], optimizer, smoothing, bf16=bf16)


def update(
    model: Translator,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
    *,
    bf16: bool = False,
) -> float:
    """Update the model once on several batches as if they were one: their gradients add up to the joint mean's.

    Args:
        batches: what does not fit into memory at once; other arguments as in `train_step`.
    """
    pad_id = model.config.pad_id
    tokens = max(1, sum(int((tgt[:, 1:] != pad_id).sum()) for _, tgt in batches))
    optimizer.zero_grad()
    with autocast(batches[0].src.device, bf16):
        loss = sum(_add_gradients(model, batch, smoothing, tokens) for batch in batches)
    optimizer.step()
    return float(loss)


def _add_gradients(model: Translator, batch: Batch, smoothing: float, tokens: int) -> Tensor:
    """Add the gradients of this batch's share of the mean loss over `tokens`; return that share.

    The projection onto the vocabulary is the largest product of all. Only positions that count go through it, a chunk
    at a time, forward and at once backward; the chunks' gradients together then go through the rest of the model.
    """
    src, tgt = batch
    target = tgt[:, 1:]
    counts = target != model.config.pad_id
    states = model.states(src, tgt[:, :-1])[counts]
    leaf = states.detach().requires_grad_()
    loss = torch.zeros((), device=src.device)
    for chunk, answers in zip(leaf.split(LOSS_CHUNK), target[counts].split(LOSS_CHUNK), strict=True):
        logits = model.logits(chunk)
        gradient = logits.detach()
        loss += _logits_to_gradient(gradient, answers, smoothing, model.config.pad_id, tokens)
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
        expected = (1 - smoothing) * z.gather(-1, answers) + uniform * (z.sum(-1, True) - z[:, pad_id, None])
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
