"""The encoder alone, trained to fill gaps: BERT (Devlin et al., 2019)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import EOS, TransformerConfig
from annotated.encoder import Dropout, Encoder, LayerNorm
from annotated.masking import padding_mask
from annotated.positional_encoding import LearnedEncoding

BERT_SIZES = {
    "base": dict(d_model=768, d_ff=3072, heads=12, layers=12),
    "large": dict(d_model=1024, d_ff=4096, heads=16, layers=24),
}
NO_TARGET = -100  # the target of a position that is not predicted; what `F.cross_entropy` leaves out


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """Sizes and switches of a Bert, by default BERT-base: the arguments of a `TransformerConfig`, and two more.

    `tie_embeddings` has no meaning here: the embedding is always the last projection, too.

    Args:
        segments: number of kinds of text that one input may join, such as a question and its answer.
        eps: ε of every LayerNorm.

    Raises:
        ValueError: as for a `TransformerConfig`, or there is no segment.
    """

    vocab_size: int = 30522
    d_model: int = 768
    d_ff: int = 3072
    heads: int = 12
    layers: int = 12
    positions: str = "learned"
    activation: str = "gelu"
    attention_bias: bool = True
    segments: int = 2
    eps: float = 1e-12

    def __post_init__(self):
        super().__post_init__()
        if self.segments < 1:
            raise ValueError(f"segments={self.segments} must be at least 1.")

    @classmethod
    def published(cls, size: str, vocab_size: int = 30522, **changes) -> "BertConfig":
        """Make a published size, "base" or "large", with any changes by name."""
        if size not in BERT_SIZES:
            raise ValueError(f"unknown size {size!r} of BERT: choose from {', '.join(BERT_SIZES)}.")
        return cls(vocab_size, **(BERT_SIZES[size] | changes))


class Bert(nn.Module):
    """The encoder that reads in both directions, and says what stands in each place: p(token | its surroundings)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = LearnedEncoding(config.d_model, config.max_length)
        self.segments = nn.Embedding(config.segments, config.d_model)
        self.norm = LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.pooler: nn.Linear | None = nn.Linear(config.d_model, config.d_model)
        self.head: Head | None = Head(config)
        initialise(self, config.eps)

    def forward(
        self, ids: Int[Tensor, "batch length"], segments: Int[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length vocab"]:
        """Compute the logits of the token in each place, its own among those it can see."""
        return self.logits(self.states(ids, segments))

    def states(
        self, ids: Int[Tensor, "batch length"], segments: Int[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length d_model"]:
        """Turn ids into states.

        Args:
            ids: of texts, padded with `PAD`.
            segments: which segment each token is of, 0, 1, …; by default all are of segment 0.

        Raises:
            ValueError: a text has more tokens than the model has positions.
        """
        x = self.positions(self.embedding(ids)) + self.segments(torch.zeros_like(ids) if segments is None else segments)
        return self.encoder(self.dropout(self.norm(x)), padding_mask(ids))

    def pooled(self, states: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch d_model"]:
        """Turn a text into one vector: tanh(W s₀ + b) of its first state.

        Raises:
            ValueError: the model was loaded from a checkpoint without this part.
        """
        if self.pooler is None:
            raise ValueError("this checkpoint has no pooler: take states[:, 0], or load one of a whole BERT.")
        return self.pooler(states[:, 0]).tanh()

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary: another layer, then the embedding, transposed, and a bias.

        Raises:
            ValueError: the model was loaded from a checkpoint without this part.
        """
        if self.head is None:
            raise ValueError("this checkpoint has no head for hidden tokens: load one that was saved with it.")
        return F.linear(self.head(states), self.embedding.weight, self.head.bias)


class Head(nn.Module):
    """What stands between BERT's states and its embedding: LayerNorm(GELU(W s + b)), and a bias for each token."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.linear = nn.Linear(config.d_model, config.d_model)
        self.norm = LayerNorm(config.d_model)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each state by itself."""
        return self.norm(F.gelu(self.linear(states)))


def initialise(model: nn.Module, eps: float) -> None:
    """Draw all matrices from N(0, 0.02²), set all biases to 0, and give every LayerNorm its ε."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, LearnedEncoding):
            nn.init.normal_(module.table, std=0.02)
        if isinstance(module, LayerNorm):
            module.eps = eps


def hide_for_prediction(
    ids: Int[Tensor, "batch length"],
    mask_id: int,
    words: tuple[int, int],
    share: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]]:
    """Choose tokens to be predicted: 80 % of them become [MASK], 10 % a random word, and 10 % stay as they are.

    Args:
        ids: of texts; `PAD`, `BOS` and `EOS` are never chosen.
        mask_id: the id of [MASK].
        words: the first id that a random word may have, and the first that it may not.
        share: the probability that a token is chosen.
        generator: of the random numbers.

    Returns:
        What the model reads, and its targets: the ids of the chosen tokens, `NO_TARGET` elsewhere.

    Raises:
        ValueError: the share is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share} must be between 0 and 1.")

    def draw() -> Float[Tensor, "batch length"]:
        return torch.rand(ids.shape, generator=generator, device=ids.device)

    chosen: Bool[Tensor, "batch length"] = (draw() < share) & (ids > EOS)  # ids up to EOS are special tokens
    fate = draw()
    random_words = torch.randint(*words, ids.shape, generator=generator, device=ids.device)
    read = torch.where(chosen & (fate < 0.8), mask_id, ids)
    read = torch.where(chosen & (fate >= 0.9), random_words, read)
    return read, torch.where(chosen, ids, NO_TARGET)
