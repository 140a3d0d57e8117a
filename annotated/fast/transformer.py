"""A Transformer's forward pass with fewer and larger operations, on the weights of the plain one."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.decoder import DecoderLayer
from annotated.encoder import EncoderLayer, FeedForward, Residual
from annotated.fast.attention import Allowed, attend, prepare
from annotated.fast.cache import Cache, LayerCache
from annotated.fast.model import FastModel, require_unchanged
from annotated.fast.residual import add_dropped, drop, normalise
from annotated.masking import Mask, SourceMask, causal_mask, combine, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import check_source_mask


class FastBlocks(FastModel):
    """What the fast models share: the same function of the same weights as a plain one, sooner.

    Queries, keys and values are one product. In bfloat16 each weight is cast once, and activations stay in 16 bits from
    one product to the next; sums that are normalised, softmax and LayerNorm have 32.

    Args:
        model: the plain model, of which it has the weights and the mode (training or evaluation).
        bf16: compute products in bfloat16.

    Raises:
        TypeError: the model was changed; as do `states`, `encode` and `new_cache` if it is changed later.
    """

    def __init__(self, model: nn.Module, *, bf16: bool = False):
        super().__init__()
        self.model: Any = model
        self.kind, self.bf16, self.training = type(model), bf16, model.training
        self.require_unchanged()

    @property
    def config(self) -> Any:
        """The model's configuration, as it now is."""
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that are multiplied."""
        return torch.bfloat16 if self.bf16 else self.model.output.weight.dtype

    def require_unchanged(self) -> None:
        """Refuse to compute what the plain model no longer is; errors as of the class."""
        require_unchanged(self.model, self.kind)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self.product(states, self.model.output)

    def product(self, x: Float[Tensor, "*batch width"], *layers: nn.Linear) -> Float[Tensor, "*batch _"]:
        """Apply layers whose results stand side by side, in the precision of x."""
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
        weight, bias = (
            torch.cat(parts) if len(parts) > 1 else parts[0] if parts else None for parts in (weights, biases)
        )
        return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))

    def embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "row length"], start: int = 0
    ) -> Float[Tensor, "row length d_model"]:
        """Turn ids into what the first layer reads."""
        x = drop(self.model.positions(embedding(ids) * math.sqrt(self.config.d_model), start), self.model.dropout)
        return x if self.config.norm_first else x.to(self.dtype)

    def encoder_layer(
        self, layer: EncoderLayer, x: Tensor, allowed: Allowed | None, cache: LayerCache | None = None
    ) -> Tensor:
        """Do what an `EncoderLayer` does."""
        first, second = layer.residuals
        x = self.residual(first, x, lambda x: self.self_attention(layer.self_attention, x, allowed, cache))
        return self.residual(second, x, lambda x: self.feed_forward(layer.feed_forward, x))

    def residual(self, residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Do what a `Residual` does."""
        if residual.norm_first:
            return add_dropped(x, sublayer(normalise(x, residual.norm).to(self.dtype)), residual.dropout)
        return normalise(add_dropped(x, sublayer(x), residual.dropout), residual.norm).to(self.dtype)

    def feed_forward(self, layer: FeedForward, x: Tensor) -> Tensor:
        """Do what a `FeedForward` does."""
        return self.product(layer.activation(self.product(x, layer.W_1)), layer.W_2)

    def self_attention(
        self, attention: MultiHeadAttention, x: Tensor, allowed: Allowed | None, cache: LayerCache | None
    ) -> Tensor:
        """Look at all positions of x, or at those whose keys and values the cache keeps."""
        together = self.product(x, attention.W_q, attention.W_k, attention.W_v)
        query, key, value = (attention.split(part) for part in together.split(_widths(attention), dim=-1))
        if cache is not None:
            key, value = cache.append(key, value)
        return self.product(attend(query, key, value, allowed), attention.W_o)

    def last_norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Apply the norm after the last layer, which is `nn.Identity` in post-norm."""
        return x if isinstance(norm, nn.Identity) else normalise(x, norm).to(self.dtype)


class FastTransformer(FastBlocks):
    """The same function of the same weights as a `Transformer`, sooner."""

    def states(
        self, src: Int[Tensor, "batch source"], tgt: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """Compute what `logits` projects onto the vocabulary, all positions at once (teacher forcing)."""
        src_mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, src_mask), src_mask)

    def encode(self, src: Int[Tensor, "sentence source"], src_mask: Mask) -> Float[Tensor, "sentence source d_model"]:
        """Turn source ids into the memory."""
        self.require_unchanged()
        check_source_mask(src_mask)
        x, allowed = self.embed(self.model.src_embedding, src), prepare(src_mask)
        for layer in self.model.encoder.layers:
            x = self.encoder_layer(layer, x, allowed)
        return self.last_norm(self.model.encoder.norm, x)

    def decode(
        self,
        tgt: Int[Tensor, "row target"],
        memory: Float[Tensor, "sentence source d_model"],
        src_mask: SourceMask,
        cache: Cache | None = None,
    ) -> Float[Tensor, "row target d_model"]:
        """Turn target ids and the memory into states; with a cache, of tokens that it has not seen."""
        check_source_mask(src_mask)
        x = self.embed(self.model.tgt_embedding, tgt, 0 if cache is None else cache.length)
        if cache is not None:
            x, tgt_allowed = cache.line_up(x, len(memory))
        else:
            tgt_allowed = prepare(combine(causal_mask(tgt.size(1), device=tgt.device), padding_mask(tgt)))
            if len(memory) < len(tgt):
                memory, src_mask = (x.repeat_interleave(len(tgt) // len(x), dim=0) for x in (memory, src_mask))
        src_allowed = prepare(src_mask)
        for i, layer in enumerate(self.model.decoder.layers):
            x = self.decoder_layer(layer, x, memory, tgt_allowed, src_allowed, None if cache is None else cache[i])
        return self.last_norm(self.model.decoder.norm, x).view(*tgt.shape, self.config.d_model)

    def new_cache(self, capacity: int) -> Cache:
        """Make an empty cache with room for `capacity` target tokens of each sentence, of all its hypotheses."""
        self.require_unchanged()
        return Cache(self.config.layers, capacity)

    def decoder_layer(
        self,
        layer: DecoderLayer,
        x: Tensor,
        memory: Tensor,
        tgt_allowed: Allowed | None,
        src_allowed: Allowed | None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Do what a `DecoderLayer` does."""
        first, second, third = layer.residuals
        x = self.residual(first, x, lambda x: self.self_attention(layer.self_attention, x, tgt_allowed, cache))
        x = self.residual(
            second, x, lambda x: self.cross_attention(layer.cross_attention, x, memory, src_allowed, cache)
        )
        return self.residual(third, x, lambda x: self.feed_forward(layer.feed_forward, x))

    def cross_attention(
        self,
        attention: MultiHeadAttention,
        x: Tensor,
        memory: Tensor,
        allowed: Allowed | None,
        cache: LayerCache | None,
    ) -> Tensor:
        """Look at the memory, whose keys and values a cache keeps."""
        if cache is not None and cache.memory:
            key, value = cache.memory
        else:
            together = self.product(memory, attention.W_k, attention.W_v)
            key, value = (attention.split(part) for part in together.split(_widths(attention)[1:], dim=-1))
            if cache is not None:
                cache.memory = key, value = key.contiguous(), value.contiguous()
        query = attention.split(self.product(x, attention.W_q))
        return self.product(attend(query, key, value, allowed), attention.W_o)


def _widths(attention: MultiHeadAttention) -> list[int]:
    """Tell how wide the queries, keys and values of all heads are."""
    return [attention.heads * width for width in (attention.d_k, attention.d_k, attention.d_v)]
