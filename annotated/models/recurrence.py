"""What the Transformer replaced, for comparison: an LSTM encoder-decoder with attention (§1, §4)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from annotated.attention import attention
from annotated.encoder import Dropout
from annotated.masking import SourceMask, padding_mask


@dataclass(frozen=True)
class RecurrentConfig:
    """Sizes of a RecurrentTranslator. The defaults have about as many parameters as `TransformerConfig.small`.

    Args:
        vocab_size: number of tokens, shared by source and target.
        d_model: width of the embeddings and of the encoder's LSTM in each direction; the decoder's is twice as wide.
        layers: LSTM layers, of the encoder and of the decoder.
        dropout: probability of dropping, on embeddings and attentional states.
        max_length: the longest source or target to train on or to translate, in tokens; the model itself has no limit.

    Raises:
        ValueError: a size below 1.
    """

    vocab_size: int
    d_model: int = 256
    layers: int = 1
    dropout: float = 0.2
    max_length: int = 512

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")


class RecurrentCache:
    """The decoder's LSTM state after the tokens so far: a row for each hypothesis."""

    state: tuple[Float[Tensor, "layers row width"], ...] = ()

    def select(self, rows: Int[Tensor, "kept"]) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        self.state = tuple(x[:, rows] for x in self.state)


class RecurrentTranslator(nn.Module):
    """A bidirectional LSTM encoder (Bahdanau et al., 2015), an LSTM decoder and attention (Luong et al., 2015).

    The decoder's LSTM starts from a learned function of the mean of the memory (Sennrich et al., 2017). Its outputs s
    attend to the memory with Luong's "general" score, and the states are tanh(W [context; s]). No attention is fed back
    into the LSTM, so that training runs it over a whole target in one call. Used like a `Transformer`.
    """

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = config
        width = 2 * config.d_model  # of the memory, which holds both directions, and of the decoder's LSTM
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.LSTM(config.d_model, config.d_model, config.layers, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(config.d_model, width, config.layers, batch_first=True)
        self.start = nn.Linear(width, 2 * config.layers * width)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, config.d_model)
        nn.init.normal_(self.output.weight, std=config.d_model**-0.5)
        self.src_embedding.weight = self.tgt_embedding.weight = self.output.weight

    def forward(
        self, src: Int[Tensor, "batch source"], tgt: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Compute the logits of each next token, all positions at once (teacher forcing).

        Args:
            src: source ids, padded at the end.
            tgt: target ids as the decoder reads them: shifted right, from the start token on.
        """
        src_mask = padding_mask(src)
        return self.logits(self.decode(tgt, self.encode(src, src_mask), src_mask))

    def encode(
        self, src: Int[Tensor, "batch source"], src_mask: SourceMask | None = None
    ) -> Float[Tensor, "batch source width"]:
        """Turn source ids into the memory, 2 · d_model wide: at each position the states of both directions.

        Args:
            src: source ids, padded at the end.
            src_mask: default, the source's padding.
        """
        if src_mask is None:
            src_mask = padding_mask(src)
        x = self._embed(self.src_embedding, src)
        # Packed, each sentence has its own length: the backward direction starts at its last real token. A length of 0
        # is not allowed, so a sentence of padding is read as one token; attention to it is masked all the same.
        lengths = src_mask.sum(dim=-1).flatten().clamp(min=1).cpu()
        packed, _ = self.encoder(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.size(1))
        return memory

    def decode(
        self,
        tgt: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source width"],
        src_mask: SourceMask,
        cache: RecurrentCache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Turn target ids and the memory into states; `logits` of the last one predicts the next token.

        Args:
            tgt: target ids; with a cache, only those it has not seen.
            memory: the encoder's output.
            src_mask: the mask the memory was made with.
            cache: from `new_cache`, to decode step by step.
        """
        x = self._embed(self.tgt_embedding, tgt)
        state = cache.state if cache is not None and cache.state else self._start(memory, src_mask)
        x, state = self.decoder(x, state)
        if cache is not None:
            cache.state = state
        # `attention` divides the scores by a constant, which the learned matrix makes up for.
        context = attention(self.score(x), memory, memory, src_mask[:, 0])
        return self.dropout(self.combine(torch.cat((context, x), dim=-1)).tanh())

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary, with the matrix of the embeddings."""
        return self.output(states)

    def new_cache(self) -> RecurrentCache:
        """Make an empty cache for `decode`."""
        return RecurrentCache()

    def _start(self, memory: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Make the decoder's first state."""
        real = src_mask[:, 0, 0, :, None]
        mean = memory.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        states = self.start(mean).tanh()
        hidden, cell = states.unflatten(-1, (2, self.config.layers, -1)).permute(1, 2, 0, 3).contiguous()
        return hidden, cell

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length d_model"]:
        return self.dropout(embedding(ids) * math.sqrt(self.config.d_model))
