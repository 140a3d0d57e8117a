"""Training: schedule, label smoothing and updates (§5.2–§5.4)."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import PAD


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


def label_smoothed_loss(
    logits: Float[Tensor, "*batch vocab"],
    target: Int[Tensor, "*batch"],
    smoothing: float = 0.1,
    pad_id: int | None = PAD,
    *,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Compare with a target that keeps 1 − ε and spreads ε evenly over all but padding (§5.4; Szegedy et al., 2016).

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
    check_smoothing(smoothing)
    vocab = logits.size(-1)
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction={reduction!r} is unknown: choose "mean" or "sum".')
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"targets of shape {tuple(target.shape)} do not fit logits of shape {tuple(logits.shape)}: "
            "give one target for each row of logits."
        )
    if pad_id is not None and not 0 <= pad_id < vocab:
        raise ValueError(f"pad_id={pad_id} must lie in the vocabulary, 0 … {vocab - 1}, or be None.")

    log_p = logits.log_softmax(dim=-1)
    uniform = smoothing / (vocab if pad_id is None else vocab - 1)
    q = torch.full_like(log_p, uniform).scatter(-1, target[..., None], 1 - smoothing + uniform)
    asked = torch.ones_like(target, dtype=torch.bool)
    if pad_id is not None:
        q[..., pad_id] = 0.0
        asked = target != pad_id
    # Where q is 0 the cost is 0, even if log p is −∞; 0 · −∞ would be NaN.
    losses = -(q * log_p.masked_fill(q == 0, 0.0)).sum(dim=-1)
    total = losses.masked_fill(~asked, 0.0).sum()
    return total / asked.sum().clamp(min=1) if reduction == "mean" else total


def check_smoothing(smoothing: float) -> None:
    """Refuse an ε outside 0 ≤ ε < 1.

    Raises:
        ValueError: it is.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1.")


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
    model: nn.Module,
    src: Int[Tensor, "batch source"],
    tgt: Int[Tensor, "batch target"],
    optimizer: torch.optim.Optimizer,
    smoothing: float = 0.1,
) -> float:
    """Update the model once on one batch; return the loss per target token in nats.

    Args:
        model: in training mode; gives logits for source and target ids, as a `Transformer` does.
        src: source ids with <eos>, padded.
        tgt: target ids with <bos> and <eos>, padded. All but the last are read, all but the first are predicted.
        optimizer: over the model's parameters, with its rate set.
        smoothing: ε of the label smoothing, 0 ≤ ε < 1.

    Raises:
        ValueError: smoothing is outside its range, or the loss is not finite; then no weight has changed.
    """
    # The decoder reads all columns except the last; each position predicts the token after it.
    loss = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
    check_loss(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def check_loss(loss: float) -> None:
    """Refuse to learn from a loss that is no number.

    Raises:
        ValueError: it is not finite.
    """
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss is {loss}: nothing was changed. Lower the rate, or go back to weights from before it grew."
        )
