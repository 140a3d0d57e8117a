"""An encoder without a decoder: the Transformer that sorts texts into classes."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from annotated.config import PAD, UNK, TransformerConfig
from annotated.encoder import Dropout, Encoder
from annotated.masking import padding_mask
from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding


@dataclass(frozen=True)
class ClassifierConfig(TransformerConfig):
    """Sizes and switches of a Classifier; the arguments are those of a `TransformerConfig`, and one more.

    The defaults are for some ten thousand short reviews, and were chosen by validation on the sentences of Pang and Lee
    (2005): small, one layer, much dropout. `tie_embeddings` has no meaning here.

    Args:
        classes: number of classes.
        word_dropout: probability that a token is hidden in training.

    Raises:
        ValueError: as for a `TransformerConfig`, or there are fewer than two classes.
    """

    d_model: int = 128
    d_ff: int = 256
    heads: int = 4
    layers: int = 1
    dropout: float = 0.5
    positions: str = "learned"
    norm_first: bool = True
    classes: int = 2
    word_dropout: float = 0.2

    def __post_init__(self):
        super().__post_init__()
        if self.classes < 2:
            raise ValueError(f"classes={self.classes} must be at least 2.")


class Classifier(nn.Module):
    """The Transformer's encoder, the mean of its states, and a projection to the classes."""

    def __init__(self, config: ClassifierConfig):
        super().__init__()
        self.config = config
        encoding = LearnedEncoding if config.positions == "learned" else SinusoidalEncoding
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = encoding(config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.output = nn.Linear(config.d_model, config.classes)
        for module in (*self.encoder.modules(), self.output):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch classes"]:
        """Compute the logits of the classes; padding may stand anywhere."""
        return self.logits(self.states(ids))

    def states(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch d_model"]:
        """Turn each text into one vector: the mean of what the encoder makes of its tokens.

        Raises:
            ValueError: a text has more tokens than the model has positions.
        """
        ids = hide_tokens(ids, self.config.word_dropout if self.training else 0.0)
        x = self.dropout(self.positions(self.embedding(ids) * math.sqrt(self.config.d_model)))
        return mean_of_tokens(self.encoder(x, padding_mask(ids)), ids != PAD)

    def logits(self, states: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch classes"]:
        """Project texts onto the classes."""
        return self.output(states)


def hide_tokens(ids: Int[Tensor, "batch length"], p: float) -> Int[Tensor, "batch length"]:
    """Replace tokens by `UNK`, so that no class is learned from a few of them alone (after Iyyer et al., 2015).

    Args:
        ids: of texts; padding stays.
        p: probability of hiding a token.
    """
    return ids.masked_fill((torch.rand(ids.shape, device=ids.device) < p) & (ids != PAD), UNK) if p else ids


def mean_of_tokens(
    states: Float[Tensor, "batch length d_model"], real: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch d_model"]:
    """Average the states of each text over its real tokens (global average pooling; Lin et al., 2014).

    Args:
        states: one for each token.
        real: which tokens are not padding; a text without any gets zeros.
    """
    sums = states.masked_fill(~real[..., None], 0.0).sum(dim=1)
    return sums / real.sum(dim=1, keepdim=True).clamp(min=1)
