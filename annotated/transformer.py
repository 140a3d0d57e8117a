"""The whole model: embeddings, positions, encoder, decoder and the projection onto the vocabulary (§3.1, §3.4)."""

import math
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.decoder import Cache, Decoder
from annotated.encoder import ACTIVATIONS, Dropout, Encoder
from annotated.masking import Mask, SourceMask, causal_mask, combine, padding_mask
from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding

POSITIONS = {"sinusoidal": SinusoidalEncoding, "learned": LearnedEncoding}


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and switches of a Transformer. The defaults are the paper's base model (Table 3); a departure is a switch.

    Args:
        vocab_size: number of tokens, shared by source and target (§5.1).
        d_model: width of the model.
        d_ff: width of the feed-forward network.
        heads: h.
        layers: N, of the encoder and of the decoder.
        d_k, d_v: widths of a head's keys and values; d_model / heads unless given.
        dropout: P_drop, on sub-layer outputs and on embedding sums (§5.4).
        positions: "sinusoidal" or "learned" (Table 3, row E).
        max_length: the longest source or target, in tokens.
        norm_first: LayerNorm before each sub-layer. Departure.
        tie_embeddings: one matrix for both embeddings and the output projection (§3.4).
        activation: "relu", or as departures "gelu" and "silu".
        attention_bias: biases in the attention projections. Departure.

    Raises:
        ValueError: a size below 1, or an unknown choice. Building the model finds sizes that do not fit together.
    """

    vocab_size: int
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    layers: int = 6
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    positions: str = "sinusoidal"
    max_length: int = 512
    norm_first: bool = False
    tie_embeddings: bool = True
    activation: str = "relu"
    attention_bias: bool = False

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "d_ff", "heads", "layers", "d_k", "d_v", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        for name, choices in (("positions", POSITIONS), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown: choose from {', '.join(choices)}.")

    @classmethod
    def base(cls, vocab_size: int, **changes) -> "TransformerConfig":
        """Make the paper's base model (Table 3, first row), with any changes by name."""
        return cls(vocab_size, **changes)

    @classmethod
    def big(cls, vocab_size: int, **changes) -> "TransformerConfig":
        """Make the paper's big model (Table 3, last row), with any changes by name."""
        return cls(vocab_size, **(dict(d_model=1024, d_ff=4096, heads=16, dropout=0.3) | changes))

    @classmethod
    def small(cls, vocab_size: int, **changes) -> "TransformerConfig":
        """Make our model for 29,000 sentence pairs and two CPU cores, with any changes by name."""
        return cls(vocab_size, **(dict(d_model=256, d_ff=512, heads=4, layers=3, dropout=0.2) | changes))

    @classmethod
    def tiny(cls, vocab_size: int, **changes) -> "TransformerConfig":
        """Make our model for the embedded corpus and a minute of training, with any changes by name."""
        return cls(vocab_size, **(dict(d_model=128, d_ff=256, heads=4, layers=2) | changes))


class Transformer(nn.Module):
    """The encoder-decoder Transformer (§3, Figure 1).

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        stack = dict(
            layers=config.layers,
            d_model=config.d_model,
            heads=config.heads,
            d_ff=config.d_ff,
            dropout=config.dropout,
            d_k=config.d_k,
            d_v=config.d_v,
            norm_first=config.norm_first,
            activation=config.activation,
            attention_bias=config.attention_bias,
        )
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.positions = POSITIONS[config.positions](config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(**stack)
        self.decoder = Decoder(**stack)
        self._initialise()

    def _initialise(self) -> None:
        """Draw matrices as in Glorot & Bengio (2010), embeddings from N(0, 1/d_model); then tie (§3.4)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in (self.src_embedding, self.tgt_embedding, self.output):
            nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
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
        return self.logits(self.states(src, tgt, src_mask, tgt_mask))

    def states(
        self,
        src: Int[Tensor, "batch source"],
        tgt: Int[Tensor, "batch target"],
        src_mask: SourceMask | None = None,
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Compute what `forward` projects onto the vocabulary; arguments as there."""
        if src_mask is None:
            src_mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask)

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
        _check_source_mask(src_mask)
        return self.encoder(self._embed(self.src_embedding, src), src_mask)

    def decode(
        self,
        tgt: Int[Tensor, "row target"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: SourceMask | None,
        tgt_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "row target d_model"]:
        """Turn target ids and the memory into states; `logits` of the last one predicts the next token.

        Args:
            tgt: target ids; with a cache, only those it has not seen.
            memory: the encoder's output.
            src_mask: the mask the memory was made with. It has no default: padding cannot be told from the memory.
            tgt_mask: default, the future and the target's padding. With a cache, the future; do not give it then.
            cache: from `new_cache`, to decode step by step.

        Raises:
            ValueError: a mask does not fit, or tgt_mask is given with a cache; the cache or the model has no more room.
        """
        if src_mask is not None:
            _check_source_mask(src_mask)
        start = 0 if cache is None else cache.length
        if tgt_mask is None and cache is None:
            tgt_mask = combine(causal_mask(tgt.size(1), device=tgt.device), padding_mask(tgt))
        return self.decoder(self._embed(self.tgt_embedding, tgt, start), memory, tgt_mask, src_mask, cache)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary (§3.4)."""
        return self.output(states)

    def new_cache(self, capacity: int) -> Cache:
        """Make an empty cache for `decode`, with room for `capacity` target tokens of each sentence."""
        return Cache(self.config.layers, capacity)

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "row length"], start: int = 0
    ) -> Float[Tensor, "row length d_model"]:
        return self.dropout(self.positions(embedding(ids) * math.sqrt(self.config.d_model), start))


def _check_source_mask(mask: Mask) -> None:
    """Refuse a mask (batch, source), which attention would take for (query, key) where their lengths agree."""
    if mask.ndim != 4:
        raise ValueError(
            f"a source mask of shape {tuple(mask.shape)} has {mask.ndim} axes, not 4: "
            "give (batch, 1, 1, source), as padding_mask does."
        )
