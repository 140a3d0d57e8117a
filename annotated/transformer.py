"""The whole model: embeddings, positions, encoder, decoder and the projection onto the vocabulary (§3.1, §3.4)."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.decoder import Cache, Decoder
from annotated.encoder import Dropout, Encoder
from annotated.masking import Mask, SourceMask, causal_mask, combine, padding_mask
from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding


class Transformer(nn.Module):
    """The encoder-decoder Transformer (§3, Figure 1).

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        encoding = LearnedEncoding if config.positions == "learned" else SinusoidalEncoding
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.positions = encoding(config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self._initialise()

    def _initialise(self) -> None:
        """Draw matrices as in Glorot & Bengio (2010), embeddings from N(0, 1/d_model); then tie (§3.4)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.src_embedding, self.tgt_embedding, self.output):
            nn.init.normal_(embedding.weight, std=self.config.d_model**-0.5)
        if self.config.tie_embeddings:
            self.tgt_embedding.weight = self.output.weight = self.src_embedding.weight

    def forward(
        self,
        src: Int[Tensor, "batch source"],
        tgt: Int[Tensor, "batch target"],
        src_mask: SourceMask | None = None,
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Compute the logits of each next token, all positions at once (teacher forcing).

        Args:
            src: source ids.
            tgt: target ids as the decoder reads them: shifted right, from the start token on.
            src_mask: default, the source's padding; broadcastable to (batch, heads, 1, source).
            tgt_mask: default, the future and the target's padding; broadcastable to (batch, heads, target, target).
        """
        if src_mask is None:
            src_mask = padding_mask(src)
        return self.logits(self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask))

    def encode(
        self, src: Int[Tensor, "batch source"], src_mask: Mask | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Turn source ids into the memory.

        Args:
            src: source ids.
            src_mask: default, the source's padding; 4 axes, broadcastable to (batch, heads, source, source).

        Raises:
            ValueError: the mask does not fit.
        """
        if src_mask is None:
            src_mask = padding_mask(src)
        check_source_mask(src_mask)
        return self.encoder(self._embed(self.src_embedding, src), src_mask)

    def decode(
        self,
        tgt: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: SourceMask | None,
        tgt_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Turn target ids and the memory into states; `logits` of the last one predicts the next token.

        Args:
            tgt: target ids; with a cache, only those it has not seen.
            memory: the encoder's output.
            src_mask: the mask the memory was made with. It has no default: padding cannot be told from the memory.
            tgt_mask: default, the future and the target's padding; with a cache, the future.
            cache: from `new_cache`, to decode step by step.

        Raises:
            ValueError: a mask does not fit, or the model has no more positions.
        """
        if src_mask is not None:
            check_source_mask(src_mask)
        start = 0 if cache is None else cache.length
        if tgt_mask is None:  # if you pass a mask, combine it with causal_mask yourself, or the future leaks
            # A row for each new token, a column for each token so far.
            tgt_mask = causal_mask(start + tgt.size(1), device=tgt.device)[start:]
            if cache is None:
                tgt_mask = combine(tgt_mask, padding_mask(tgt))  # (batch, 1, target, target)
        return self.decoder(self._embed(self.tgt_embedding, tgt, start), memory, tgt_mask, src_mask, cache)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary (§3.4)."""
        return self.output(states)

    def new_cache(self) -> Cache:
        """Make an empty cache for `decode`."""
        return Cache(self.config.layers)

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "batch length"], start: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        return self.dropout(self.positions(embedding(ids) * math.sqrt(self.config.d_model), start))


def check_source_mask(mask: Mask) -> None:
    """Refuse a mask (batch, source), which attention would take for (query, key) where their lengths agree.

    Raises:
        ValueError: the mask does not have 4 axes.
    """
    if mask.ndim != 4:
        raise ValueError(
            f"a source mask of shape {tuple(mask.shape)} has {mask.ndim} axes, not 4: "
            "give (batch, 1, 1, source), as padding_mask does."
        )
