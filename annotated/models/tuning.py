"""What is done to a model that has learned to write on: LoRA, a preference, fewer bits."""

import copy
import math
from collections import Counter

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class LoRA(nn.Module):
    """A linear map that stays as it is, with a correction that learns: x Wᵀ + (α/r) x Aᵀ Bᵀ (Hu et al., 2021).

    Args:
        linear: W, and its bias if it has one; frozen.
        rank: r, the rows of A and the columns of B. B is 0 at first, so that nothing changes yet.
        alpha: α; 2r unless given.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float | None = None):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        self.scale = 2.0 if alpha is None else alpha / rank
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # as `nn.Linear` draws its weights

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Map each row by W + (α/r) B A, without ever making this matrix."""
        return self.linear(x) + self.scale * (x @ self.A.mT @ self.B.mT)


def add_lora(model: nn.Module, rank: int, alpha: float | None = None) -> nn.Module:
    """Freeze a model and give each `nn.Linear` a `LoRA`, unless it shares its matrix; in place, and return it."""
    owners = Counter(id(part.weight) for part in model.modules() if isinstance(part, nn.Linear | nn.Embedding))
    for parent in [*model.requires_grad_(False).modules()]:
        for name, part in parent.named_children():
            if isinstance(part, nn.Linear) and owners[id(part.weight)] == 1:
                setattr(parent, name, LoRA(part, rank, alpha))
    return model


@torch.no_grad()
def merge_lora(model: nn.Module) -> nn.Module:
    """Copy a model, with W + (α/r) B A in a plain `nn.Linear` in place of each `LoRA`."""
    model = copy.deepcopy(model).requires_grad_(True)
    for parent in [*model.modules()]:
        for name, part in parent.named_children():
            if isinstance(part, LoRA):
                part.linear.weight += part.scale * part.B @ part.A
                setattr(parent, name, part.linear)
    return model


def dpo_loss(
    better: Float[Tensor, "pair"], worse: Float[Tensor, "pair"], before: Float[Tensor, "pair"], beta: float = 0.1
) -> Float[Tensor, ""]:
    """Compute the mean of −log σ(β ((log p(better) − log p(worse)) − before)) (Rafailov et al., 2023).

    Args:
        better, worse: log-probabilities of two answers to a question, by the model that learns.
        before: log p(better) − log p(worse) by the model as it was before.
        beta: β; the smaller it is, the further the model goes from what it was.
    """
    return -F.logsigmoid(beta * (better - worse - before)).mean()


@torch.no_grad()
def quantise(weight: Float[Tensor, "*shape"], bits: int, share: int) -> Float[Tensor, "*shape"]:
    """Round to multiples of a scale, s · (−n … n) with n = 2^(bits − 1) − 1 and s = max |w| / n (absmax).

    Args:
        weight: w.
        bits: at least 2.
        share: how many neighbours in a row share a scale: w.numel() for one in all, w.size(-1) for one a row.
    """
    groups, n = weight.reshape(-1, share), 2 ** (bits - 1) - 1
    scales = groups.abs().amax(dim=1, keepdim=True) / n
    return (scales * (groups / scales.masked_fill(scales == 0, 1.0)).round()).view_as(weight)
