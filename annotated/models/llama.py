"""The decoder alone, as it is usual today: Llama (Touvron et al., 2023; Dubey et al., 2024)."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from annotated.config import TransformerConfig
from annotated.encoder import Dropout
from annotated.models.language_model import CausalLayer, CausalModel
from annotated.models.modern import GatedFeedForward, GroupedQueryAttention, RMSNorm


@dataclass(frozen=True)
class LlamaConfig(TransformerConfig):
    """Sizes and switches of a Llama, by default a small one for two CPU cores.

    The arguments are those of a `TransformerConfig`, and four more; `positions` and `activation` have no meaning here:
    positions are rotary, and the feed-forward network is gated, with three matrices of width d_ff.

    Args:
        groups: of heads that share their keys and values.
        qk_norm: as in `GroupedQueryAttention`; Llama 2 and 3 have none, Qwen3 does.
        rotary_base: how slow the slowest pair of numbers turns; 500,000 in Llama 3.
        eps: ε of every RMSNorm.
    """

    d_model: int = 128
    d_ff: int = 352
    heads: int = 4
    layers: int = 4
    dropout: float = 0.0
    max_length: int = 256
    norm_first: bool = True
    groups: int = 2
    qk_norm: bool = False
    rotary_base: float = 10000.0
    eps: float = 1e-5


class Llama(CausalModel):
    """The decoder without a source, as Llama has it: p(next token | all tokens before it)."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(CausalLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.d_model, config.eps)
        switches: dict[str, Any] = dict(rotary=True, base=config.rotary_base, qk_norm=config.qk_norm)
        sizes: dict[str, Any] = dict(d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias)
        for layer in self.layers:  # the paper's, part by part
            layer.self_attention = GroupedQueryAttention(
                config.d_model, config.heads, config.groups, **switches, **sizes
            )
            layer.feed_forward = GatedFeedForward(config.d_model, config.d_ff)
            for residual in layer.residuals:
                residual.norm = RMSNorm(config.d_model, config.eps)
        self._initialise()
