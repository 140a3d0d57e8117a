"""The exercises of chapter 09, the whole Transformer."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.encoder import EncoderLayer, FeedForward, Residual
from annotated.masking import causal_mask
from annotated.positional_encoding import SinusoidalEncoding
from annotated.transformer import Transformer
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, each

EXERCISES: dict[str, Exercise] = {}
SMALL = TransformerConfig(vocab_size=23, d_model=16, d_ff=28, heads=4, layers=2, dropout=0.0, max_length=32)


def count(matrices: int = 1, attentions: int = 3, norms: int = 5, gains: int = 2, **more: int) -> Any:
    """Count a Transformer's parameters from its parts; `more` biases of each kind, and norms behind the layers."""

    def answer(vocab: int, d_model: int, d_ff: int, layers: int) -> int:
        network = 2 * d_model * d_ff + more.get("network_biases", 1) * (d_ff + d_model)
        attention = 4 * d_model**2 + more.get("attention_biases", 0) * d_model
        layer = attentions * attention + 2 * network + norms * gains * d_model
        last = more.get("last_norms", 0) * 2 * d_model + more.get("output_biases", 0) * vocab
        return matrices * vocab * d_model + layers * layer + last

    return answer


EXERCISES["09.1"] = Exercise(
    "Count them all",
    right=count(),
    cases={  # a small model whose parts cannot be taken for each other, and the paper's base and big models
        f"vocabulary {vocab}, d_model={d_model}, d_ff={d_ff}, N={layers}: ": calls(vocab, d_model, d_ff, layers)
        for vocab, d_model, d_ff, layers in ((23, 12, 22, 3), (37_000, 512, 2048, 6), (37_000, 1024, 4096, 6))
    },
    mistakes=each(
        count,
        {
            "the three embedding matrices are one: count it once.": dict(matrices=3),
            "the output matrix is the embedding matrix: count it once.": dict(matrices=2),
            "a decoder layer has two attentions.": dict(attentions=2),
            "W₁ and W₂ have biases.": dict(network_biases=0),
            "layer normalisation has a gain and a bias for each number.": dict(norms=0),
            "a decoder layer has three normalisations, an encoder layer two; and W₂ has a bias.": dict(norms=4),
            "layer normalisation has a gain and a bias.": dict(gains=1),
            "the attentions have no biases.": dict(attention_biases=4),
            "the embedding matrix is missing.": dict(matrices=0),
            "no normalisation follows the last layer: each layer ends in one.": dict(last_norms=2),
            "the output projection has no bias.": dict(output_biases=1),
        },
    ),
)


def small_model() -> Transformer:
    """Make the same small model every time."""
    torch.manual_seed(0)
    return Transformer(SMALL).eval()


def scored(fault: str = "") -> Any:
    """The log-probability of translations, with one fault."""

    def answer(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        read, following = (tgt, tgt) if fault == "unshifted" else (tgt[:, :-1], tgt[:, 1:])
        wanted = read if fault == "read" else following
        logits = model(src, read)
        log_p = logits if fault == "logits" else logits.log_softmax(dim=1 if fault == "axis" else -1)
        taken = log_p.gather(-1, wanted[..., None])[..., 0]
        real = wanted != PAD
        total = (taken * real).sum(dim=1)
        return {
            "padding": taken.sum(dim=1),
            "<eos>": (taken * (real & (wanted != EOS))).sum(dim=1),
            "mean": total / real.sum(dim=1),
            "all": total.sum(),
            "exp": total.exp(),
            "sum of p": (taken.exp() * real).sum(dim=1),
            "sign": -total,
        }.get(fault, total)

    return answer


SCORES = {
    "padding is counted: it is not part of the translation.": "padding",
    "<eos> is missing: that the sentence ends there is a choice as well.": "<eos>",
    "that is the mean; a probability of a sentence is a product, its logarithm a sum.": "mean",
    "one number for each sentence of the batch: sum over the positions alone.": "all",
    "the logits at a position are of the token *after* it: read all but the last, predict all but the first.": (
        "unshifted"
    ),
    "these are logits; take their log-softmax.": "logits",
    "these are probabilities; the logarithm is missing.": "exp",
    "these are probabilities, and their sum; take the logarithm of each first.": "sum of p",
    "the log-softmax is over the wrong axis: at each position, the vocabulary sums to 1.": "axis",
    "look up the token that comes next, not the one just read.": "read",
    "the sign is reversed: log-probabilities are at most 0.": "sign",
}
SRC = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD]])
TGT = torch.tensor([[BOS, 10, 11, 12, EOS], [BOS, 13, EOS, PAD, PAD]])
EXERCISES["09.2"] = Exercise(
    "How probable is this translation?",
    right=scored(),
    cases={"": lambda answer: answer(small_model(), SRC, TGT)},
    mistakes=each(scored, SCORES),
)
