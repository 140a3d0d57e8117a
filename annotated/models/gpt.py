"""The decoder alone, trained to continue text: GPT-2 (Radford et al., 2019)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.encoder import Dropout, LayerNorm
from annotated.models.bert import initialise
from annotated.models.language_model import CausalLayer, CausalModel
from annotated.positional_encoding import LearnedEncoding

GPT2_SIZES = {
    "small": dict(d_model=768, d_ff=3072, heads=12, layers=12),
    "medium": dict(d_model=1024, d_ff=4096, heads=16, layers=24),
    "large": dict(d_model=1280, d_ff=5120, heads=20, layers=36),
    "xl": dict(d_model=1600, d_ff=6400, heads=25, layers=48),
}


@dataclass(frozen=True)
class GptConfig(TransformerConfig):
    """Sizes and switches of a Gpt, by default GPT-2 small: the arguments of a `TransformerConfig`, and one more.

    `tie_embeddings` has no meaning here: the embedding is always the last projection, too. "gelu" is approximated by a
    tanh, as in GPT-2.

    Args:
        eps: ε of every LayerNorm.
    """

    vocab_size: int = 50257
    d_model: int = 768
    d_ff: int = 3072
    heads: int = 12
    layers: int = 12
    positions: str = "learned"
    max_length: int = 1024
    norm_first: bool = True
    activation: str = "gelu"
    attention_bias: bool = True
    eps: float = 1e-5

    @classmethod
    def published(cls, size: str, vocab_size: int = 50257, **changes) -> "GptConfig":
        """Make a published size, "small", "medium", "large" or "xl", with any changes by name."""
        if size not in GPT2_SIZES:
            raise ValueError(f"unknown size {size!r} of GPT-2: choose from {', '.join(GPT2_SIZES)}.")
        return cls(vocab_size, **(GPT2_SIZES[size] | changes))


def gelu_by_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Approximate x Φ(x) by ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) (Hendrycks & Gimpel, 2016)."""
    return F.gelu(x, approximate="tanh")


class Gpt(CausalModel):
    """The decoder without a source, as GPT-2 has it: p(next token | all tokens before it)."""

    def __init__(self, config: GptConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = LearnedEncoding(config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        layers = [CausalLayer(config) for _ in range(config.layers)]
        if config.activation == "gelu":
            for layer in layers:
                layer.feed_forward.activation = gelu_by_tanh
        self.layers = nn.ModuleList(layers)
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()
        initialise(self, config.eps)

    def embed(self, ids: Int[Tensor, "batch new"], start: int) -> Float[Tensor, "batch new d_model"]:
        """Look up the embeddings, and add the positions."""
        return self.positions(self.embedding(ids), start)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary, by the embedding, transposed."""
        return F.linear(states, self.embedding.weight)
