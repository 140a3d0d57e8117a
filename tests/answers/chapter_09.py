"""Wrong answers to the exercises of chapter 09, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import EOS, PAD
from annotated.encoder import EncoderLayer
from annotated.masking import causal_mask
from annotated.positional_encoding import SinusoidalEncoding


def count(
    embeddings: int = 1,
    attentions: int = 3,
    norms: int = 5,
    biases: bool = True,
    gains: int = 2,
    attention_biases: int = 0,
) -> Callable[[int, int, int, int], int]:
    """The count with a choice of what is usually forgotten."""

    def answer(vocab: int, d_model: int, d_ff: int, layers: int) -> int:
        network = 2 * d_model * d_ff + (d_ff + d_model if biases else 0)
        attention = 4 * d_model**2 + attention_biases * d_model
        return embeddings * vocab * d_model + layers * (attentions * attention + 2 * network + norms * gains * d_model)

    return answer


def scored(choose: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """From the log-probabilities taken and the tokens predicted."""

    def answer(model, src, tgt):
        log_p = model(src, tgt[:, :-1]).log_softmax(dim=-1)
        return choose(log_p.gather(-1, tgt[:, 1:, None])[..., 0], tgt[:, 1:])

    return answer


def from_cross_entropy(model, src, tgt):
    losses = F.cross_entropy(model(src, tgt[:, :-1]).mT, tgt[:, 1:], ignore_index=PAD, reduction="none")
    return -losses.sum(dim=1)


def unshifted(model, src, tgt):
    log_p = model(src, tgt).log_softmax(dim=-1).gather(-1, tgt[..., None])[..., 0]
    return (log_p * (tgt != PAD)).sum(dim=1)


def of_logits(model, src, tgt):
    taken = model(src, tgt[:, :-1]).gather(-1, tgt[:, 1:, None])[..., 0]
    return (taken * (tgt[:, 1:] != PAD)).sum(dim=1)


def over_positions(model, src, tgt):
    taken = model(src, tgt[:, :-1]).log_softmax(dim=1).gather(-1, tgt[:, 1:, None])[..., 0]
    return (taken * (tgt[:, 1:] != PAD)).sum(dim=1)


def just_read(model, src, tgt):
    read = tgt[:, :-1]
    taken = model(src, read).log_softmax(dim=-1).gather(-1, read[..., None])[..., 0]
    return (taken * (read != PAD)).sum(dim=1)


class LanguageModel(nn.Module):
    """The decoder alone, with a choice of what is usually forgotten."""

    scaled = placed = causal = tied = True
    bias = False

    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalEncoding(config.d_model, config.max_length)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=self.bias)
        if self.tied:
            self.output.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids) * (math.sqrt(self.embedding.embedding_dim) if self.scaled else 1)
        x = self.positions(x) if self.placed else x
        for layer in self.layers:
            x = self.step(layer, x, causal_mask(ids.size(1)) if self.causal else None)
        return self.output(x)

    def step(self, layer, x, mask):
        return layer(x, mask)


class Unscaled(LanguageModel):
    scaled = False


class Unplaced(LanguageModel):
    placed = False


class Bare(LanguageModel):
    scaled = placed = False


class Seeing(LanguageModel):
    causal = False


class Untied(LanguageModel):
    tied = False


class Biased(LanguageModel):
    bias, tied = True, False


class Longer(LanguageModel):
    def __init__(self, config):
        super().__init__(config)
        self.layers.append(EncoderLayer(config))


class Stacked(LanguageModel):
    def step(self, layer, x, mask):
        return layer(layer(x, mask), mask)


class LogProbabilities(LanguageModel):
    def forward(self, ids):
        return super().forward(ids).log_softmax(dim=-1)


class Probabilities(LanguageModel):
    def forward(self, ids):
        return super().forward(ids)[:, -1]


ALL = {"A": "3.4", "B": "3.1", "C": "3.5", "D": "3.3", "E": "3.2.3"}

WRONG = [
    ("09.1", count(embeddings=3), "the three embedding matrices are one"),
    ("09.1", count(embeddings=2), "the output matrix is the embedding matrix"),
    ("09.1", count(embeddings=0), "embedding matrix is missing"),
    ("09.1", count(attentions=2), "a decoder layer has two attentions"),
    ("09.1", count(biases=False), "have biases"),
    ("09.1", count(norms=0), "a gain and a bias for each number"),
    ("09.1", count(norms=4), "three normalisations"),
    ("09.1", count(gains=1), "a gain and a bias"),
    ("09.1", count(attention_biases=4), "attentions have no biases"),
    ("09.1", lambda vocab, d_model, d_ff, layers: count()(vocab, d_model, d_ff, layers) + 4 * d_model, "last layer"),
    ("09.1", lambda vocab, d_model, d_ff, layers: count()(vocab, d_model, d_ff, layers) + vocab, "has no bias"),
    ("09.1", lambda vocab, d_model, d_ff, layers: 65_000_000, "expected"),
    ("09.1", lambda vocab, d_model, d_ff, layers: 65e6, "whole number"),
    ("09.2", scored(lambda taken, read: taken.sum(1)), "padding is counted"),
    ("09.2", scored(lambda taken, read: (taken * ((read != PAD) & (read != EOS))).sum(1)), "<eos> is missing"),
    ("09.2", scored(lambda taken, read: (taken * (read != PAD)).sum(1) / (read != PAD).sum(1)), "the mean"),
    ("09.2", scored(lambda taken, read: (taken * (read != PAD)).sum()), "one number for each sentence"),
    ("09.2", scored(lambda taken, read: (taken * (read != PAD)).sum(1).exp()), "these are probabilities"),
    ("09.2", lambda *given: -from_cross_entropy(*given), "sign is reversed"),
    ("09.2", unshifted, r"token \*after\* it"),
    ("09.2", of_logits, "these are logits"),
    ("09.2", scored(lambda taken, read: (taken.exp() * (read != PAD)).sum(1)), "and their sum"),
    ("09.2", over_positions, "wrong axis"),
    ("09.2", just_read, "comes next"),
    ("09.3", Unscaled, "not multiplied by √d_model"),
    ("09.3", Unplaced, "no positions"),
    ("09.3", Bare, "neither"),
    ("09.3", Seeing, "a position sees later ones"),
    ("09.3", Untied, "tie them"),
    ("09.3", Biased, "has no bias"),
    ("09.3", Longer, "2 encoder layers"),
    ("09.3", Stacked, "put together in its order"),
    ("09.3", LogProbabilities, "logits, not log-probabilities"),
    ("09.3", Probabilities, r"expected logits of shape \(2, 5, 23\)"),
    ("09.3", lambda config: 3, "make a class of nn.Module"),
    ("09.4", ALL | {"A": "3.1", "B": "3.4"}, "3 of 5 are right"),
    ("09.4", {"A": "3.4"}, "a section for each of A, B, C, D, E"),
    ("09.4", ALL | {"E": "6.1"}, "§6.1 is not among"),
    ("09.4", "3.4", "expected a dictionary"),
]

RIGHT = [
    ("09.1", count()),
    ("09.2", scored(lambda taken, read: torch.where(read == PAD, 0.0, taken).sum(1))),
    ("09.2", from_cross_entropy),
    ("09.3", LanguageModel),
    ("09.4", {name: f"§{section}" for name, section in ALL.items()}),
]
