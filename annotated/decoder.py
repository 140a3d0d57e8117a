"""The decoder and its cache of keys and values (§3.1, §3.2.3)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.encoder import FeedForward, LayerNorm, Residual
from annotated.masking import Mask, SourceMask
from annotated.multi_head import MultiHeadAttention


class LayerCache:
    """What one decoder layer need not compute again: keys and values of the tokens so far, and of the memory."""

    tokens: tuple[Float[Tensor, "batch heads length _"], ...] = ()
    memory: tuple[Float[Tensor, "batch heads source _"], ...] = ()

    def append(
        self, keys: Float[Tensor, "batch heads new d_k"], values: Float[Tensor, "batch heads new d_v"]
    ) -> tuple[Float[Tensor, "batch heads length _"], ...]:
        """Put the keys and values of new tokens behind those so far; return all."""
        if self.tokens:
            keys, values = torch.cat((self.tokens[0], keys), dim=2), torch.cat((self.tokens[1], values), dim=2)
        self.tokens = keys, values
        return self.tokens


class Cache(list[LayerCache]):
    """One `LayerCache` for each decoder layer.

    Args:
        layers: number of decoder layers.
    """

    def __init__(self, layers: int):
        super().__init__(LayerCache() for _ in range(layers))

    @property
    def length(self) -> int:
        """How many tokens it has seen."""
        return self[0].tokens[0].size(2) if self[0].tokens else 0

    def select(self, rows: Int[Tensor, "kept"]) -> None:
        """Keep these rows of the batch, in this order; a row may be kept more than once.

        Args:
            rows: numbers of rows.
        """
        for layer in self:
            layer.tokens = tuple(x[rows] for x in layer.tokens)
            layer.memory = tuple(x[rows] for x in layer.memory)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward, each in a residual connection (§3.1).

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.self_attention, self.cross_attention = (
            MultiHeadAttention(config.d_model, config.heads, d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias)
            for _ in range(2)
        )
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.residuals = nn.ModuleList(Residual(config.d_model, config.dropout, config.norm_first) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tgt_mask: Mask | None = None,
        src_mask: SourceMask | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Look at the target so far, then at the source, then transform each position by itself.

        Args:
            x: the target so far; with a cache, only its new positions.
            memory: the encoder's output.
            tgt_mask: broadcastable to (batch, heads, target, target); with a cache, (…, new, target).
            src_mask: broadcastable to (batch, heads, 1, source).
            cache: keys and values from earlier calls; this call adds its own.
        """

        def attend_to_target(x: Tensor) -> Tensor:
            if cache is None:
                return self.self_attention(x, x, x, tgt_mask)
            keys, values = cache.append(*self.self_attention.project(x, x))  # of the new positions, then of all so far
            return self.self_attention.attend(x, keys, values, tgt_mask)

        def attend_to_memory(x: Tensor) -> Tensor:
            if cache is None:
                return self.cross_attention(x, memory, memory, src_mask)
            if not cache.memory:  # it stays the same while the target grows
                cache.memory = self.cross_attention.project(memory, memory)
            keys, values = cache.memory
            return self.cross_attention.attend(x, keys, values, src_mask)

        x = self.residuals[0](x, attend_to_target)
        x = self.residuals[1](x, attend_to_memory)
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of N decoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one.

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tgt_mask: Mask | None = None,
        src_mask: SourceMask | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Turn target embeddings and the memory into states from which the next tokens are predicted.

        Args:
            x, memory, tgt_mask, src_mask: as in `DecoderLayer`.
            cache: a `Cache` with as many layers, or None to compute every position anew.
        """
        caches = [None] * len(self.layers) if cache is None else cache
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory, tgt_mask, src_mask, layer_cache)
        return self.norm(x)
