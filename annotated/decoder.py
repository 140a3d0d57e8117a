"""The decoder and its cache of keys and values (§3.1, §3.2.3)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from annotated.encoder import FeedForward, LayerNorm, Residual
from annotated.masking import Mask, SourceMask, causal_mask
from annotated.multi_head import MultiHeadAttention


class LayerCache:
    """What one decoder layer need not compute again: keys and values of the memory and of the tokens so far.

    The room for tokens is set aside at the start, so that a step writes and never copies.

    Args:
        capacity: the largest number of target tokens for one sentence, of all hypotheses it has or had.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.length = 0
        self.keys: Float[Tensor, "sentence heads capacity d_k"] | None = None
        self.values: Float[Tensor, "sentence heads capacity d_v"] | None = None
        self.memory: tuple[Tensor, Tensor] | None = None

    def append(
        self, keys: Float[Tensor, "sentence heads new d_k"], values: Float[Tensor, "sentence heads new d_v"]
    ) -> tuple[Float[Tensor, "sentence heads total d_k"], Float[Tensor, "sentence heads total d_v"]]:
        """Store the keys and values of new tokens; return those of all tokens so far.

        Raises:
            ValueError: there is no room for them.
        """
        end = self.end(keys.size(2))
        if self.keys is None:
            self.keys = keys.new_empty(*keys.shape[:2], self.capacity, keys.size(3))
            self.values = values.new_empty(*values.shape[:2], self.capacity, values.size(3))
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def end(self, new: int) -> int:
        """Tell how many tokens there are with `new` more.

        Raises:
            ValueError: there is no room for them.
        """
        end = self.length + new
        if end > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} tokens of a sentence and {end} are needed: give it more capacity."
            )
        return end


class Cache(list[LayerCache]):
    """One `LayerCache` for each decoder layer, and whose past each stored token belongs to.

    A row is a hypothesis. A sentence's hypotheses (consecutive rows, equally many for each sentence) share what is
    stored for it: a table of booleans says which tokens each has written. So they branch, change places and are dropped
    without a key or a value being moved.

    Args:
        layers: number of decoder layers.
        capacity: the largest number of target tokens for one sentence, of all hypotheses it has or had.
    """

    def __init__(self, layers: int, capacity: int):
        super().__init__(LayerCache(capacity) for _ in range(layers))
        self.length = 0  # positions decoded so far
        self.written: Bool[Tensor, "row token"] | None = None

    def line_up(
        self, x: Float[Tensor, "row new d_model"], sentences: int
    ) -> tuple[Float[Tensor, "sentence queries d_model"], Bool[Tensor, "sentence 1 queries total"]]:
        """Let the new tokens of a sentence's rows stand side by side, and say what each may see.

        Args:
            x: the new tokens' embeddings.
            sentences: to how many sentences the rows belong.

        Returns:
            x with a row for each sentence, and the mask by which each token sees its own hypothesis's past and itself.

        Raises:
            ValueError: there is no room for them; nothing has changed then.
        """
        rows, new = x.shape[:2]
        hypotheses = rows // sentences
        self[0].end(hypotheses * new)
        if self.written is None:
            self.written = torch.empty(rows, 0, dtype=torch.bool, device=x.device)
        own = torch.kron(torch.eye(hypotheses, device=x.device), causal_mask(new, device=x.device)).bool()
        mask = torch.cat((self.written.repeat_interleave(new, dim=0), own.repeat(sentences, 1)), dim=1)
        self.written = mask[new - 1 :: new]  # a row's last token sees all that the row has written
        self.length += new
        return x.reshape(sentences, hypotheses * new, -1), mask.view(sentences, 1, hypotheses * new, -1)

    def select(self, rows: Int[Tensor, "kept"], sentences: Int[Tensor, "sentences"] | None = None) -> None:
        """Keep these hypotheses, in this order, and these sentences (all unless given).

        Args:
            rows: numbers of rows; afterwards, too, a sentence's must be consecutive, and each have equally many.
            sentences: numbers of sentences.
        """
        self.written = self.written[rows]
        if sentences is not None:
            for layer in self:
                layer.memory = tuple(x[sentences] for x in layer.memory)
                for name in ("keys", "values"):
                    stored = getattr(layer, name)
                    stored[: len(sentences), :, : layer.length] = stored[sentences, :, : layer.length]
                    setattr(layer, name, stored[: len(sentences)])


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward, each in a residual connection (§3.1).

    Args:
        d_model, heads, d_ff, dropout: as in the paper.
        d_k, d_v: widths of a head; d_model / heads unless given.
        norm_first: LayerNorm before each sub-layer instead of after it.
        activation: of the feed-forward network.
        attention_bias: biases in the attention projections; the paper has none.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        dropout: float = 0.1,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        norm_first: bool = False,
        activation: str = "relu",
        attention_bias: bool = False,
    ):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, bias=attention_bias)
        self.cross_attention = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, bias=attention_bias)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm_first) for _ in range(3))

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
            tgt_mask: broadcastable to (batch, heads, target, target); with a `Cache`, what its `line_up` makes.
            src_mask: broadcastable to (batch, heads, 1, source).
            cache: keys and values from earlier calls; this call adds its own.
        """

        def attend_to_target(x: Tensor) -> Tensor:
            keys, values = self.self_attention.project(x, x)
            if cache is not None:
                keys, values = cache.append(keys, values)
            return self.self_attention.attend(x, keys, values, tgt_mask)

        def attend_to_memory(x: Tensor) -> Tensor:
            if cache is None:
                keys, values = self.cross_attention.project(memory, memory)
            else:
                if cache.memory is None:
                    cache.memory = self.cross_attention.project(memory, memory)
                keys, values = cache.memory
            return self.cross_attention.attend(x, keys, values, src_mask)

        x = self.residuals[0](x, attend_to_target)
        x = self.residuals[1](x, attend_to_memory)
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of N decoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one.

    Args:
        layers: N.
        d_model: width of the model.
        norm_first: see `DecoderLayer`.
        options: all other arguments of `DecoderLayer`, by name.
    """

    def __init__(self, layers: int, d_model: int, *, norm_first: bool = False, **options):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, norm_first=norm_first, **options) for _ in range(layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "row target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tgt_mask: Mask | None = None,
        src_mask: SourceMask | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "row target d_model"]:
        """Turn target embeddings and the memory into states from which the next tokens are predicted.

        Args:
            x: as in `DecoderLayer`. With a cache, several rows may share a sentence, consecutive and equally many.
            memory, src_mask: as in `DecoderLayer`.
            tgt_mask: as in `DecoderLayer`; with a cache it is the cache's business, and stays None.
            cache: a `Cache` with as many layers, or None to compute every position anew.

        Raises:
            ValueError: a mask is given with a cache.
        """
        shape, caches = x.shape, [None] * len(self.layers)
        if cache is not None:
            if tgt_mask is not None:
                raise ValueError("with a cache give no tgt_mask: the cache knows each hypothesis's past.")
            caches = cache
            x, tgt_mask = cache.line_up(x, len(memory))
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory, tgt_mask, src_mask, layer_cache)
        return self.norm(x).view(shape)
