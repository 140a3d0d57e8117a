"""A decoder without an encoder: the Transformer that continues text (Liu et al., 2018; Radford et al., 2018)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.decoder import Cache, LayerCache
from annotated.decoding import in_eval_mode
from annotated.encoder import Dropout, EncoderLayer, LayerNorm
from annotated.masking import Mask, causal_mask
from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding

COLDEST, HOTTEST = 1e-30, 1e30  # float32 still divides by these


@dataclass(frozen=True)
class LanguageModelConfig(TransformerConfig):
    """Sizes and switches of a LanguageModel; the arguments are those of a `TransformerConfig`.

    The defaults are for characters and two CPU cores, 1.6 million parameters, and follow the models that came after the
    paper (Radford et al., 2019): learned positions, LayerNorm before each sub-layer, GELU.
    """

    d_model: int = 160
    d_ff: int = 640
    heads: int = 5
    layers: int = 5
    positions: str = "learned"
    max_length: int = 128
    norm_first: bool = True
    activation: str = "gelu"


class CausalLayer(EncoderLayer):
    """Self-attention and feed-forward like an `EncoderLayer`, of which a cache can keep the keys and values."""

    def forward(
        self, x: Float[Tensor, "batch new d_model"], mask: Mask | None = None, cache: LayerCache | None = None
    ) -> Float[Tensor, "batch new d_model"]:
        """Look at the text so far, then transform each position by itself.

        Args:
            x: the text so far; with a cache, only its new positions.
            mask: True = may attend; broadcastable to (batch, heads, new, length).
            cache: keys and values from earlier calls; this call adds its own.
        """

        def look_back(x: Tensor) -> Tensor:
            if cache is None:
                return self.self_attention(x, x, x, mask)
            keys, values = cache.append(*self.self_attention.project(x, x))
            return self.self_attention.attend(x, keys, values, mask)

        return self.residuals[1](self.residuals[0](x, look_back), self.feed_forward)


class CausalModel(nn.Module):
    """What decoders without a source share: layers under a causal mask, and p(next token | all tokens before it)."""

    config: Any
    embedding: nn.Embedding
    dropout: Dropout
    layers: nn.ModuleList
    norm: nn.Module
    output: nn.Linear

    def _initialise(self) -> None:
        """Draw all weights as the paper's Transformer does."""
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for matrix in (self.embedding, self.output):
            nn.init.normal_(matrix.weight, std=self.config.d_model**-0.5)
        if self.config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Compute the logits of each next token, all positions at once; padding may stand on the right."""
        return self.logits(self.states(ids))

    def states(self, ids: Int[Tensor, "batch new"], cache: Cache | None = None) -> Float[Tensor, "batch new d_model"]:
        """Turn ids into states; `logits` of the last one predicts the next token.

        Args:
            ids: the text so far; with a cache, only what it has not seen.
            cache: from `new_cache`, to write step by step.

        Raises:
            ValueError: the model has no more positions.
        """
        start = 0 if cache is None else cache.length
        mask = causal_mask(start + ids.size(1), device=ids.device)[start:]
        x = self.dropout(self.embed(ids, start))
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if cache is None else cache[i])
        return self.norm(x)

    def embed(self, ids: Int[Tensor, "batch new"], start: int) -> Float[Tensor, "batch new d_model"]:
        """Look up what the first layer reads; `start` is the position of the first id."""
        return self.embedding(ids)

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""
        return self.output(states)

    def new_cache(self) -> Cache:
        """Make an empty cache for `states`."""
        return Cache(self.config.layers)


class LanguageModel(CausalModel):
    """The Transformer's decoder without a source: p(next token | all tokens before it)."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        encoding = LearnedEncoding if config.positions == "learned" else SinusoidalEncoding
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.positions = encoding(config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(CausalLayer(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()
        self._initialise()

    def embed(self, ids: Int[Tensor, "batch new"], start: int) -> Float[Tensor, "batch new d_model"]:
        """Look up √d_model times the embeddings, and add the positions."""
        return self.positions(self.embedding(ids) * math.sqrt(self.config.d_model), start)


def sampling_probabilities(
    logits: Float[Tensor, "*batch vocab"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*batch vocab"]:
    """Turn logits into the probabilities to draw the next token by: softmax(z / temperature), its tail cut off.

    Args:
        logits: z.
        temperature: below 1 the likely gets likelier; 0 leaves only the likeliest. Else from 1e-30 to 1e30.
        top_k: leave only the k likeliest tokens (Fan et al., 2018).
        top_p: leave only the smallest set of likeliest tokens whose probabilities, after the temperature and `top_k`,
            add up to at least p (the nucleus; Holtzman et al., 2020).

    Raises:
        ValueError: a number is out of its range.
    """
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise ValueError(f"temperature={temperature} must be 0, or lie in {COLDEST} … {HOTTEST}.")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k} must be at least 1.")
    if top_p is not None and not (least := torch.finfo(logits.dtype).tiny) <= top_p <= 1:
        raise ValueError(f"top_p={top_p} must lie in {least:.3g} … 1.")
    if temperature == 0:
        top_k, temperature = 1, 1.0
    below = logits - logits.amax(dim=-1, keepdim=True)  # the likeliest token's is 0: a tiny temperature can't overflow
    ordered, tokens = (below / temperature).softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[..., top_k:] = 0.0
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    if top_p is not None:
        before = ordered.cumsum(dim=-1) - ordered  # what the likelier ones add up to
        ordered = ordered.masked_fill(before >= top_p, 0.0)
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    return torch.zeros_like(ordered).scatter(-1, tokens, ordered)


def draw(
    probabilities: Float[Tensor, "*batch vocab"], generator: torch.Generator | None = None
) -> Int[Tensor, "*batch 1"]:
    """Draw a token of each row: lay the probabilities end to end, and see where a random number in 0 … 1 falls.

    Args:
        probabilities: of each token, adding up to 1; one with 0 is never drawn.
        generator: of the random numbers.
    """
    ends = probabilities.cumsum(dim=-1)
    place = torch.rand(ends[..., :1].shape, dtype=ends.dtype, device=ends.device, generator=generator) * ends[..., -1:]
    return torch.searchsorted(ends, place, right=True)


@torch.no_grad()
def generate(
    model: Any,
    ids: Int[Tensor, "batch length"],
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch total"]:
    """Write on: draw `count` more tokens, one after the other, none of them a special one.

    The model sees as much of the text as it has positions for. When these are used up, it goes on from the last half.

    Args:
        model: a `LanguageModel`, or its fast form; used in eval mode and left in the mode it was in.
        ids: the beginnings, equally long and not empty.
        count: how many tokens to add.
        temperature, top_k, top_p: as in `sampling_probabilities`.
        generator: of the random numbers.

    Raises:
        ValueError: there is nothing to go on from, or a number is out of its range.
    """
    if ids.size(1) == 0:
        raise ValueError("the text to go on from has no tokens: give at least one.")
    if count < 0:
        raise ValueError(f"count={count} must be at least 0.")
    limit = model.config.max_length
    model = in_eval_mode(model)
    cache, new = model.new_cache(), ids[:, -limit:]
    for _ in range(count):
        if cache.length + new.size(1) > limit:  # the window is full: read its last half again, from position 0
            cache, new = model.new_cache(), ids[:, -max(1, limit // 2) :]
        logits = model.logits(model.states(new, cache)[:, -1])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # at least 32 bits
        logits[:, [PAD, BOS, EOS, UNK]] = -torch.inf
        new = draw(sampling_probabilities(logits, temperature, top_k, top_p), generator)
        ids = torch.cat((ids, new), dim=1)
    return ids
