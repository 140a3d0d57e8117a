"""A Transformer's forward pass with fewer and larger operations, on the weights of the plain one."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.encoder import Encoder, EncoderLayer, FeedForward, Residual
from annotated.fast.attention import Allowed, attend, prepare
from annotated.fast.cache import Cache, LayerCache
from annotated.fast.model import FastModel, find_difference
from annotated.fast.residual import add_dropped, drop, normalise
from annotated.masking import Mask, SourceMask, causal_mask, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import check_source_mask


class FastBlocks(FastModel):
    """What the fast models share: each method does what the part of the model with its name does.

    Queries, keys and values are one product. With bf16, products have 16 bits; softmax and normalised sums have 32.
    A model that was changed, also later, raises a TypeError.
    """

    def __init__(self, model: nn.Module, *, bf16: bool = False):
        super().__init__()
        self.model: Any = model
        self.kind, self.config, self.bf16, self.training = type(model), self.model.config, bf16, model.training
        self._check()

    def _check(self) -> None:
        if not torch.compiler.is_compiling() and (found := find_difference(self.model, self.kind, self.config)):
            raise TypeError(f"a model that was changed has no fast form ({found}): use the model itself (--plain).")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that are multiplied."""
        return torch.bfloat16 if self.bf16 else self.model.output.weight.dtype

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self._product(states, self.model.output)

    def _product(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """Apply layers whose results stand side by side, in the precision of x."""
        if len(layers) > 1 and x.device.type == "cpu" and not torch.is_grad_enabled():  # copied weights would cost more
            return torch.cat([self._product(x, layer) for layer in layers], dim=-1)
        weight = torch.cat([layer.weight for layer in layers]) if len(layers) > 1 else layers[0].weight
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        return F.linear(x, weight.to(x.dtype), torch.cat(biases).to(x.dtype) if biases else None)

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "row length"], start: int = 0) -> Tensor:
        x = drop(self.model.positions(embedding(ids) * math.sqrt(self.config.d_model), start), self.model.dropout)
        return x if self.config.norm_first else x.to(self.dtype)

    def _encode(self, embedding: nn.Embedding, encoder: Encoder, ids: Tensor, mask: Mask) -> Tensor:
        self._check()
        x, allowed = self._embed(embedding, ids), prepare(mask)
        for layer in encoder.layers:
            x = self._encoder_layer(layer, x, allowed)
        return self._last_norm(encoder.norm, x)

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
        check_source_mask(src_mask)
        return self._encode(self.model.src_embedding, self.model.encoder, src, src_mask)

    def decode(
        self,
        tgt: Int[Tensor, "row target"],
        memory: Float[Tensor, "sentence source d_model"],
        src_mask: SourceMask,
        cache: Cache | None = None,
    ) -> Float[Tensor, "row target d_model"]:
        """Turn target ids and the memory into states; with a cache, the ids are those of new tokens."""
        check_source_mask(src_mask)
        x = self._embed(self.model.tgt_embedding, tgt, 0 if cache is None else cache.length)
        if cache is not None:
            x, tgt_allowed = cache.line_up(x, len(memory))
        else:
            tgt_allowed = prepare(causal_mask(tgt.size(1), device=tgt.device) & padding_mask(tgt))
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
    """Split queries, keys and values (or those from start to end of the three) and each of them into heads."""
    widths = [attention.heads * width for width in (attention.d_k, attention.d_k, attention.d_v)]
    return [attention.split(part) for part in x.split(widths[start:end], dim=-1)]
