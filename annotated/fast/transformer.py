"""A Transformer's forward pass with fewer and larger operations, on the weights of the plain one."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.decoder import DecoderLayer
from annotated.encoder import Dropout, EncoderLayer, FeedForward, LayerNorm
from annotated.fast.attention import attend, attend_heads
from annotated.fast.cache import Cache, LayerCache
from annotated.fast.products import linear, prepared
from annotated.fast.residual import add_norm, drop, dropout_mask, scale_before_drop
from annotated.fast.translator import FastTranslator, Wrapper
from annotated.masking import Mask, SourceMask, causal_mask, combine, padding_mask
from annotated.models.alike import changed
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import check_source_mask

Sublayer = Callable[[Tensor, float], Tensor]


class FastBlocks(Wrapper):
    """What the fast models share: the same function of the same weights as a plain one, sooner.

    Queries, keys and values are one product. In bfloat16 each weight is cast once, and activations stay in 16 bits from
    one product to the next; sums that are normalised, softmax and LayerNorm have 32. On a CPU dropout's factor
    1 / (1 − p) goes into the weights before it.
    """

    laid_out: dict[tuple[nn.Linear, ...], Callable[[Tensor], Tensor]] | None = None
    int8 = False

    def difference(self) -> str | None:
        """As `Wrapper.difference`. In a search, or while a program is traced, nobody looks."""
        traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return None if traced or self.laid_out is not None else changed(self.model)

    def require_unchanged(self) -> None:
        """Refuse to compute what the plain model no longer is.

        Raises:
            RuntimeError: the plain model was changed after it was wrapped.
        """
        if difference := self.difference():
            raise RuntimeError(
                f"the model was changed after `accelerate`: {difference}. Call `accelerate` again, or the model itself."
            )

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that are multiplied."""
        return torch.bfloat16 if self.bf16 else self.model.output.weight.dtype

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self._product(states, self.model.output)

    def frozen(self, *, int8: bool = False) -> Any:
        """As `FastModel.frozen`: each weight is laid out once, when it is needed first."""
        if self.laid_out is not None:
            return self
        frozen = copy.copy(self)
        frozen.laid_out, frozen.int8 = {}, int8
        return frozen

    def _product(self, x: Tensor, *layers: nn.Linear, scale: float = 1.0) -> Tensor:
        """Apply layers whose results, times `scale`, stand side by side, in the precision of x."""
        if self.laid_out is None or scale != 1:
            return linear(x, *_merged(*layers, dtype=x.dtype, scale=scale))
        if layers not in self.laid_out:
            self.laid_out[layers] = prepared(*_merged(*layers, dtype=x.dtype), int8=self.int8)
        return self.laid_out[layers](x)

    def _transform(self, x: Tensor, layer: FeedForward, scale: float) -> Tensor:
        return self._product(layer.activation(self._product(x, layer.W_1)), layer.W_2, scale=scale)

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "row length"], start: int = 0
    ) -> Float[Tensor, "row length d_model"]:
        x = self.model.positions(embedding(ids) * math.sqrt(self.config.d_model), start)
        p = _probability(self.model.dropout)
        if p:
            x = x * dropout_mask(x, p) / (1 - p) if x.device.type == "cpu" else drop(x, p)
        return x if self.config.norm_first else x.to(self.dtype)

    def _encoder_layer(
        self, layer: EncoderLayer, x: Tensor, mask: Mask | None, cache: LayerCache | None = None
    ) -> Tensor:
        first, second = layer.residuals
        x = self._residual(first, x, self._look_around(layer.self_attention, mask, cache))
        return self._residual(second, x, lambda x, scale: self._transform(x, layer.feed_forward, scale))

    def _look_around(self, attention: MultiHeadAttention, mask: Mask | None, cache: LayerCache | None) -> Sublayer:
        """Make the sub-layer that looks at all positions, or at those whose keys and values the cache keeps."""

        def look_around(x: Tensor, scale: float) -> Tensor:
            together = self._product(x, attention.W_q, attention.W_k, attention.W_v)
            mixed = attend(together, heads=attention.heads, widths=[_widths(attention)], mask=mask)
            return self._product(mixed, attention.W_o, scale=scale)

        def look_back(x: Tensor, scale: float) -> Tensor:
            assert cache is not None
            together = self._product(x, attention.W_q, attention.W_k, attention.W_v)
            query, key, value = (attention.split(part) for part in together.split(_widths(attention), dim=-1))
            keys, values = cache.append(key, value)
            return self._product(attend_heads(query, keys, values, mask), attention.W_o, scale=scale)

        return look_around if cache is None else look_back

    def _residual(self, residual: Any, x: Tensor, sublayer: Sublayer) -> Tensor:
        p = _probability(residual.dropout)
        scale = scale_before_drop(x.device, p)
        if not residual.norm_first:
            return add_norm(x, sublayer(x, scale), residual.norm, p)
        return x + drop(sublayer(_normalise(x, residual.norm).to(self.dtype), scale), p)

    def _last_norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        return _normalise(x, norm).to(self.dtype) if isinstance(norm, LayerNorm) else x


class FastTransformer(FastBlocks, FastTranslator):
    """The same function of the same weights as a `Transformer`, sooner."""

    def states(
        self, src: Int[Tensor, "batch source"], tgt: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """Compute what `logits` projects onto the vocabulary, all positions at once (teacher forcing)."""
        src_mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, src_mask), src_mask)

    def encode(self, src: Int[Tensor, "sentence source"], src_mask: Mask) -> Float[Tensor, "sentence source d_model"]:
        """Turn source ids into the memory; errors as in `require_unchanged`."""
        self.require_unchanged()
        check_source_mask(src_mask)
        x = self._embed(self.model.src_embedding, src)
        layers: Any = self.model.encoder.layers
        for layer in layers:
            x = self._encoder_layer(layer, x, src_mask)
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
        layers: Any = self.model.decoder.layers
        start = 0 if cache is None else cache.length
        x = self._embed(self.model.tgt_embedding, tgt, start)
        if cache is None:
            if len(memory) < len(tgt):
                memory, src_mask = (x.repeat_interleave(len(tgt) // len(x), dim=0) for x in (memory, src_mask))
            tgt_mask = combine(causal_mask(tgt.size(1), device=tgt.device), padding_mask(tgt))
            for layer in layers:
                x = self._decoder_layer(layer, x, memory, tgt_mask, src_mask)
        else:
            x, tgt_mask = cache.line_up(x, len(memory))
            for layer, layer_cache in zip(layers, cache, strict=True):
                x = cache.reader._decoder_layer(layer, x, memory, tgt_mask, src_mask, layer_cache)
        return self._last_norm(self.model.decoder.norm, x).view(*tgt.shape, self.config.d_model)

    def new_cache(self, capacity: int) -> Cache:
        """Make an empty cache with room for `capacity` target tokens of each sentence, of all its hypotheses."""
        return Cache(self.config.layers, capacity, self.frozen())

    def _decoder_layer(
        self,
        layer: DecoderLayer,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Mask | None,
        src_mask: SourceMask,
        cache: LayerCache | None = None,
    ) -> Tensor:
        first, second, third = layer.residuals
        x = self._residual(first, x, self._look_around(layer.self_attention, tgt_mask, cache))
        x = self._residual(second, x, self._look_at_source(layer.cross_attention, memory, src_mask, cache))
        return self._residual(third, x, lambda x, scale: self._transform(x, layer.feed_forward, scale))

    def _look_at_source(
        self, attention: MultiHeadAttention, memory: Tensor, mask: SourceMask, cache: LayerCache | None
    ) -> Sublayer:
        """Make the sub-layer that looks at the memory, whose keys and values a cache keeps."""
        query_width, *memory_widths = _widths(attention)

        def project_memory() -> Tensor:
            return self._product(memory, attention.W_k, attention.W_v)

        def look_at_source(x: Tensor, scale: float) -> Tensor:
            widths = [[query_width], memory_widths]
            query = self._product(x, attention.W_q)
            mixed = attend(query, project_memory(), heads=attention.heads, widths=widths, mask=mask)
            return self._product(mixed, attention.W_o, scale=scale)

        def look_at_kept_source(x: Tensor, scale: float) -> Tensor:
            assert cache is not None
            if not cache.memory:
                key, value = project_memory().split(memory_widths, dim=-1)
                cache.memory = attention.split(key).contiguous(), attention.split(value).contiguous()
            query = attention.split(self._product(x, attention.W_q))
            keys, values = cache.memory
            return self._product(attend_heads(query, keys, values, mask), attention.W_o, scale=scale)

        return look_at_source if cache is None else look_at_kept_source


def _probability(dropout: Dropout) -> float:
    return dropout.p if dropout.training else 0.0


def _merged(*layers: nn.Linear, dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor | None]:
    """Make of several layers one whose results stand side by side, in another precision and times `scale`."""

    def merge(parts: list[Tensor]) -> Tensor:
        together = torch.cat(parts) if len(parts) > 1 else parts[0]
        return (together if scale == 1 else together * scale).to(dtype)

    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return merge([layer.weight for layer in layers]), merge(biases) if biases else None


def _widths(attention: MultiHeadAttention) -> list[int]:
    """Tell how wide the queries, keys and values of all heads are."""
    return [attention.heads * width for width in (attention.d_k, attention.d_k, attention.d_v)]


def _normalise(x: Tensor, norm: LayerNorm) -> Tensor:
    return F.layer_norm(x, norm.gain.shape, norm.gain, norm.bias, norm.eps)
