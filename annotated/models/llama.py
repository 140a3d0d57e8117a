"""The decoder alone, as it is usual today: Llama (Touvron et al., 2023; Dubey et al., 2024)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.decoder import Cache
from annotated.encoder import Dropout
from annotated.masking import causal_mask
from annotated.models.language_model import CausalLayer
from annotated.models.modern import GatedFeedForward, GroupedQueryAttention, RMSNorm


@dataclass(frozen=True)
class LlamaConfig(TransformerConfig):
    """Sizes and switches of a Llama, by default a small one for two CPU cores.

    The arguments are those of a `TransformerConfig`, and four more; `positions` and `activation` have no meaning here:
    positions are rotary, and the feed-forward network is gated, with three matrices of width d_ff.

    Args:
        groups: of heads that share their keys and values.
        qk_norm: as in `GroupedQueryAttention`; Llama has none, Qwen3 and OLMo 2 do.
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


class Llama(nn.Module):
    """The decoder without a source, as Llama has it: p(next token | all tokens before it)."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(CausalLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.d_model, config.eps)
        for layer in self.layers:  # the paper's, part by part
            layer.self_attention = GroupedQueryAttention(
                config.d_model,
                config.heads,
                config.groups,
                rotary=True,
                base=config.rotary_base,
                qk_norm=config.qk_norm,
                d_k=config.d_k,
                d_v=config.d_v,
                bias=config.attention_bias,
            )
            layer.feed_forward = GatedFeedForward(config.d_model, config.d_ff)
            for residual in layer.residuals:
                residual.norm = RMSNorm(config.d_model, config.eps)
        for linear in (part for part in self.layers.modules() if isinstance(part, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
        for matrix in (self.embedding, self.output):
            nn.init.normal_(matrix.weight, std=config.d_model**-0.5)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Compute the logits of each next token, all positions at once; padding may stand on the right."""
        return self.logits(self.states(ids))

    def states(self, ids: Int[Tensor, "batch new"], cache: Cache | None = None) -> Float[Tensor, "batch new d_model"]:
        """Turn ids into states, as `LanguageModel.states` does."""
        start = 0 if cache is None else cache.length
        mask = causal_mask(start + ids.size(1), device=ids.device)[start:]
        x = self.dropout(self.embedding(ids))
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if cache is None else cache[i])
        return self.norm(x)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self.output(states)

    def new_cache(self) -> Cache:
        """Make an empty cache for `states`."""
        return Cache(self.config.layers)
