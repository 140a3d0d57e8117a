"""What all parts agree on: the ids of the special tokens, and the sizes and switches of a Transformer (Table 3)."""

from dataclasses import dataclass

PAD, BOS, EOS, UNK = range(4)  # padding, beginning and end of a sentence, unknown word
POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "gelu", "silu")


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and switches of a Transformer: by default the paper's base model (Table 3); a departure is a switch.

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
