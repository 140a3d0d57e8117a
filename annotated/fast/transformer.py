"""A Transformer's forward pass with fewer and larger operations, on the weights of the plain one."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.encoder import EncoderLayer, FeedForward, Residual
from annotated.fast.attention import Allowed, attend, prepare
from annotated.fast.cache import Cache, LayerCache
from annotated.fast.model import FastModel, require_unchanged
from annotated.fast.residual import add_dropped, drop, normalise
from annotated.masking import Mask, SourceMask, causal_mask, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import check_source_mask


class FastBlocks(FastModel):
    """What the fast models share: each method does what the plain part of its name does.

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
        self.kind, self.config, self.bf16, self.training = type(model), self.model.config, bf16, model.training
        self._check()

    def _check(self) -> None:
        require_unchanged(self.model, self.kind, self.config)

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that are multiplied."""
        return torch.bfloat16 if self.bf16 else self.model.output.weight.dtype

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self._product(states, self.model.output)

    def _product(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """Apply layers whose results stand side by side, in the precision of x."""
        weights: list[Tensor] = [layer.weight for layer in layers]
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        weight = (torch.cat(weights) if len(weights) > 1 else weights[0]).to(x.dtype)
        return F.linear(x, weight, torch.cat(biases).to(x.dtype) if biases else None)

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "row length"], start: int = 0) -> Tensor:
        x = drop(self.model.positions(embedding(ids) * math.sqrt(self.config.d_model), start), self.model.dropout)
        return x if self.config.norm_first else x.to(self.dtype)

    def _encoder_layer(
        self, layer: EncoderLayer, x: Tensor, allowed: Allowed | None, cache: LayerCache | None = None
    ) -> Tensor:
        x = self._residual(layer.residuals[0], x, partial(self._look_around, layer.self_attention, allowed, cache))
        return self._residual(layer.residuals[1], x, partial(self._feed_forward, layer.feed_forward))

    def _residual(self, residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if residual.norm_first:
            return add_dropped(x, sublayer(normalise(x, residual.norm).to(self.dtype)), residual.dropout)
        return normalise(add_dropped(x, sublayer(x), residual.dropout), residual.norm).to(self.dtype)

    def _feed_forward(self, layer: FeedForward, x: Tensor) -> Tensor:
        return self._product(layer.activation(self._product(x, layer.W_1)), layer.W_2)

    def _look_around(
        self, attention: MultiHeadAttention, allowed: Allowed | None, cache: LayerCache | None, x: Tensor
    ) -> Tensor:
        """Attend to all positions of x, or to those whose keys and values the cache keeps."""
        query, key, value = _heads(self._product(x, attention.W_q, attention.W_k, attention.W_v), attention)
        if cache is not None:
            key, value = cache.append(key, value)
        return self._product(attend(query, key, value, allowed), attention.W_o)

    def _last_norm(self, norm: Any, x: Tensor) -> Tensor:
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
        self._check()
        check_source_mask(src_mask)
        x, allowed = self._embed(self.model.src_embedding, src), prepare(src_mask)
        for layer in self.model.encoder.layers:
            x = self._encoder_layer(layer, x, allowed)
        return self._last_norm(self.model.encoder.norm, x)

    def decode(
        self,
        tgt: Int[Tensor, "row target"],
        memory: Float[Tensor, "sentence source d_model"],
        src_mask: SourceMask,
        cache: Cache | None = None,
    ) -> Float[Tensor, "row target d_model"]:
        """Turn target ids and the memory into states; with a cache, of tokens that it has not seen."""
        check_source_mask(src_mask)
        x = self._embed(self.model.tgt_embedding, tgt, 0 if cache is None else cache.length)
        if cache is not None:
            x, tgt_allowed = cache.line_up(x, len(memory))
        else:
            tgt_allowed = prepare(causal_mask(tgt.size(1), device=tgt.device) & padding_mask(tgt))
            if len(memory) < len(tgt):
                memory, src_mask = (x.repeat_interleave(len(tgt) // len(x), dim=0) for x in (memory, src_mask))
        src_allowed = prepare(src_mask)
        for i, layer in enumerate(self.model.decoder.layers):
            (first, second, third), kept = layer.residuals, None if cache is None else cache[i]
            x = self._residual(first, x, partial(self._look_around, layer.self_attention, tgt_allowed, kept))
            x = self._residual(second, x, partial(self._look_at, memory, layer.cross_attention, src_allowed, kept))
            x = self._residual(third, x, partial(self._feed_forward, layer.feed_forward))
        return self._last_norm(self.model.decoder.norm, x).view(*tgt.shape, self.config.d_model)

    def new_cache(self, capacity: int) -> Cache:
        """Make an empty cache with room for `capacity` target tokens of each sentence, of all its hypotheses."""
        self._check()
        return Cache(self.config.layers, capacity)

    def _look_at(
        self, memory: Tensor, attention: MultiHeadAttention, allowed: Allowed, cache: LayerCache | None, x: Tensor
    ) -> Tensor:
        """Attend to the memory, whose keys and values a cache keeps."""
        (query,) = _heads(self._product(x, attention.W_q), attention, 0, 1)
        kept = () if cache is None else cache.memory
        key, value = kept or _heads(self._product(memory, attention.W_k, attention.W_v), attention, 1)
        if cache is not None and not kept:
            cache.memory = key, value = key.contiguous(), value.contiguous()
        return self._product(attend(query, key, value, allowed), attention.W_o)


def _heads(
    x: Float[Tensor, "batch length _"], attention: MultiHeadAttention, start: int = 0, end: int = 3
) -> list[Float[Tensor, "batch heads length _"]]:
    """Cut what stands side by side, queries, keys and values or some of them, and each of these into heads."""
    widths = [attention.heads * width for width in (attention.d_k, attention.d_k, attention.d_v)]
    return [attention.split(part) for part in x.split(widths[start:end], dim=-1)]
