"""What today's models have in place of the paper's parts; `modernise` puts it into the paper's model."""

from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.attention import attention, attention_weights
from annotated.encoder import FeedForward, LayerNorm
from annotated.masking import Mask
from annotated.models.language_model import LanguageModel
from annotated.models.relative_positions import rotate
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer


class RMSNorm(nn.Module):
    """Give a position the root mean square 1, and scale it: γ x / √(mean(x²) + ε) (Zhang & Sennrich, 2019).

    Args:
        d_model, eps: as for `LayerNorm`.
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise over the last dimension."""
        return self.gain * x / (x.square().mean(dim=-1, keepdim=True) + self.eps).sqrt()


class GatedFeedForward(nn.Module):
    """SwiGLU: (silu(x W_gate) ⊙ x W₁) W₂ (Shazeer, 2020).

    Args:
        d_model, d_ff: as for `FeedForward`; two thirds of its d_ff make as many weights.
    """

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.W_gate = nn.Linear(d_model, d_ff, bias=False)
        self.W_1 = nn.Linear(d_model, d_ff, bias=False)
        self.W_2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each position by itself."""
        return self.W_2(F.silu(self.W_gate(x)) * self.W_1(x))


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention in which several heads share their keys and values (Ainslie et al., 2023).

    Args:
        d_model, heads, d_k, d_v, bias: as for `MultiHeadAttention`.
        groups: how many different keys and values there are; it divides heads.
        qk_norm: RMSNorm over each head's queries and keys, before they are turned (Dehghani et al., 2023).
        rotary, base: turn queries and keys by their positions, as `RotaryAttention` does.

    Raises:
        ValueError: heads do not divide into the groups.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        groups: int,
        *,
        qk_norm: bool = False,
        rotary: bool = False,
        base: float = 10000.0,
        **sizes: Any,
    ):
        super().__init__(d_model, heads, **sizes)
        if groups < 1 or heads % groups:
            raise ValueError(f"{heads} heads do not divide into {groups} groups of equal size.")
        self.groups, self.rotary, self.base = groups, rotary, base
        bias = self.W_k.bias is not None
        self.W_k = nn.Linear(d_model, groups * self.d_k, bias=bias)
        self.W_v = nn.Linear(d_model, groups * self.d_v, bias=bias)
        self.query_norm, self.key_norm = (RMSNorm(self.d_k) if qk_norm else nn.Identity() for _ in range(2))

    def project(
        self, key: Float[Tensor, "batch key d_model"], value: Float[Tensor, "batch key d_model"]
    ) -> tuple[Float[Tensor, "batch groups key d_k"], Float[Tensor, "batch groups key d_v"]]:
        """Give each group its keys and values. A decoder's cache keeps no more than these."""
        keys, values = (x.unflatten(-1, (self.groups, -1)).transpose(1, 2) for x in (self.W_k(key), self.W_v(value)))
        return self.key_norm(keys), values

    def attend(
        self,
        query: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch groups key d_k"],
        values: Float[Tensor, "batch groups key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let the queries, the last of the keys' positions, attend to keys and values; mask as in `forward`."""
        queries = self.query_norm(self.split(self.W_q(query)))
        if self.rotary:
            start = keys.size(2) - queries.size(2)
            queries, keys = rotate(queries, start, base=self.base), rotate(keys, base=self.base)
        share = self.heads // self.groups  # heads 0 … share − 1 read group 0, and so on
        keys, values = keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)
        for recorder in self.recorders:
            recorder.append(attention_weights(queries, keys, mask).detach())
        return self.W_o(attention(queries, keys, values, mask).transpose(1, 2).flatten(2))


class MixtureOfExperts(nn.Module):
    """Let a router send each position to k of many networks: Σ gₑ FFNₑ(x) (Shazeer et al., 2017).

    Args:
        d_model, d_ff: as for `GatedFeedForward`, of each expert.
        experts: how many networks there are; chosen: k, how many of them a position uses.

    Raises:
        ValueError: more experts are to be chosen than there are, or none.
    """

    def __init__(self, d_model: int, d_ff: int, experts: int, chosen: int):
        super().__init__()
        if not 1 <= chosen <= experts:
            raise ValueError(f"of {experts} experts a position cannot choose {chosen}: choose 1 … {experts}.")
        self.chosen = chosen
        self.router = nn.Linear(d_model, experts, bias=False)
        self.experts = nn.ModuleList(GatedFeedForward(d_model, d_ff) for _ in range(experts))
        self.scores: Tensor | None = None  # of the last forward pass, for `imbalance`

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Send each position to the experts with the highest scores; g is the softmax of these scores alone."""
        self.scores = self.router(x)
        best, experts = self.scores.topk(self.chosen, dim=-1)
        gates = torch.zeros_like(self.scores).scatter(-1, experts, best.softmax(dim=-1))  # 0: not chosen
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            sent = gates[..., number] > 0
            mixed[sent] += gates[sent][:, number, None] * expert(x[sent])  # it computes nothing for the others
        return mixed


def imbalance(scores: Float[Tensor, "*batch experts"], chosen: int) -> Float[Tensor, ""]:
    """Compute E · Σ fₑ pₑ, which is 1 where all E experts have the same load (Fedus et al., 2021).

    fₑ is the share of all choices that fell on the expert e, pₑ the mean of its probability, softmax(scores).

    Args:
        scores: of a router; chosen: how many experts each position chooses.
    """
    experts = scores.size(-1)
    loads = torch.zeros_like(scores).scatter(-1, scores.topk(chosen, dim=-1).indices, 1 / chosen)
    return experts * loads.flatten(0, -2).mean(dim=0) @ scores.softmax(dim=-1).flatten(0, -2).mean(dim=0)


class NoPositions(nn.Module):
    """Add nothing to the embeddings; the positions are in the attention."""

    def forward(self, x: Float[Tensor, "*batch d_model"], start: int = 0) -> Float[Tensor, "*batch d_model"]:
        """Return the embeddings."""
        return x


Model = TypeVar("Model", Transformer, LanguageModel)


def modernise(
    model: Model,
    *,
    groups: int | None = None,
    qk_norm: bool = False,
    rotary: bool = False,
    gated: bool = False,
    rms_norm: bool = False,
) -> Model:
    """Give the paper's Transformer, or its decoder alone, parts of today, and draw all weights anew; return it.

    Args:
        model: changed in place, so that `annotated.fast` refuses it.
        groups, qk_norm, rotary: of a `GroupedQueryAttention` in place of each attention; the one to the memory is not
            rotary, and the embeddings get `NoPositions` then.
        gated: a `GatedFeedForward`, two thirds as wide, in place of each feed-forward network.
        rms_norm: an `RMSNorm` in place of each LayerNorm.
    """
    config, parts = model.config, list[nn.Module]([model])
    sizes: dict[str, Any] = dict(d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias, qk_norm=qk_norm)
    for parent in parts:  # to which the loop adds: new parts have parts of their own
        for name, part in parent.named_children():
            turned = rotary and name == "self_attention"
            if isinstance(part, MultiHeadAttention) and (groups is not None or qk_norm or turned):
                part = GroupedQueryAttention(
                    config.d_model, config.heads, config.heads if groups is None else groups, rotary=turned, **sizes
                )
            elif name == "positions" and rotary:
                part = NoPositions()
            elif isinstance(part, FeedForward) and gated:
                part = GatedFeedForward(config.d_model, 2 * config.d_ff // 3)
            elif isinstance(part, LayerNorm) and rms_norm:
                part = RMSNorm(config.d_model)
            setattr(parent, name, part)
            parts.append(part)
    model._initialise()
    return model
