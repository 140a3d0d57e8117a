"""The exercises of chapter 09, the whole Transformer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.encoder import EncoderLayer, FeedForward, Residual
from annotated.masking import causal_mask
from annotated.positional_encoding import SinusoidalEncoding
from annotated.transformer import Transformer
from annotated_course.exercises.exercise import Exercise, WrongFormError, called

EXERCISES: dict[str, Exercise] = {}
SMALL = TransformerConfig(vocab_size=23, d_model=16, d_ff=28, heads=4, layers=2, dropout=0.0, max_length=32)


def count(vocab: int, d_model: int, d_ff: int, layers: int) -> int:
    """Count a Transformer's parameters."""
    network = 2 * d_model * d_ff + d_ff + d_model
    layer = 3 * 4 * d_model**2 + 2 * network + 5 * 2 * d_model
    return vocab * d_model + layers * layer


BIG = 37_000, 1024, 4096, 6
EXERCISES["09.1"] = Exercise(
    "Count them all",
    right=count,
    # A small model whose parts cannot be taken for each other, and the paper's base and big models.
    cases=called("vocabulary {}, d_model={}, d_ff={}, N={}: ", (23, 12, 22, 3), (37_000, 512, 2048, 6), BIG),
    mistakes={
        "the three embedding matrices are one: count it once.": "vocab * → 3 * vocab *",
        "a decoder layer has two attentions.": "3 * 4 → 2 * 4",
        "W₁ and W₂ have biases.": "+ d_ff + d_model →",
        "layer normalisation has a gain and a bias for each number.": "+ 5 * 2 * d_model →",
        "the attentions have no biases.": "d_model**2 → (d_model**2 + d_model)",
    },
    forbids="annotated torch.nn: add up the sizes of its parts.",
)


def small_model() -> Transformer:
    """Make the same small model every time."""
    torch.manual_seed(0)
    return Transformer(SMALL).eval()


def scored(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
    """The log-probability of translations."""
    read, wanted = tgt[:, :-1], tgt[:, 1:]
    log_p = model(src, read).log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
    return (log_p * (wanted != PAD)).sum(1)


SCORES = {
    "padding is counted: it is not part of the translation.": "* (wanted != PAD) →",
    "a sentence's probability is a product, its logarithm a sum, no mean.": "sum(1) → sum(1) / (wanted != PAD).sum(1)",
    "the logits at a position are of the token after it: shift the target.": "tgt[:, :-1], tgt[:, 1:] → tgt, tgt",
    "these are probabilities; the logarithm is missing.": "sum(1) → sum(1).exp()",
    "look up the token that comes next, not the one just read.": "tgt[:, 1:] → tgt[:, :-1]",
}
SRC = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD]])
TGT = torch.tensor([[BOS, 10, 11, 12, EOS], [BOS, 13, EOS, PAD, PAD]])
EXERCISES["09.2"] = Exercise(
    "How probable is this translation?",
    right=scored,
    cases={"": lambda answer: answer(small_model(), SRC, TGT)},
    mistakes=SCORES,
)


class LanguageModel(nn.Module):
    """The decoder alone."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.d_model**0.5
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalEncoding(config.d_model, config.max_length)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (batch, length) to logits (batch, length, vocab)."""
        x = self.positions(self.embedding(ids) * self.scale)
        mask = causal_mask(ids.size(1))
        for layer in self.layers:
            x = layer(x, mask)
        return self.output(x)


IDS = torch.arange(5, 15).view(2, 5)


def model_output(answer: Callable[..., nn.Module]) -> Tensor:
    """Give a language model's logits with weights that are drawn: the embedding's apart from all others."""
    model, table, rest = answer(SMALL).eval(), torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        generator = table if parameter.shape == (SMALL.vocab_size, SMALL.d_model) else rest
        parameter.data = torch.randn(parameter.shape, generator=generator) / SMALL.d_model**0.5
    with torch.no_grad():
        return model(IDS)


EXERCISES["09.3"] = Exercise(
    "The decoder alone",
    right=LanguageModel,
    cases={
        "its parameters: ": lambda answer: sum(parameter.numel() for parameter in answer(SMALL).parameters()),
        "its logits: ": model_output,
    },
    mistakes={
        "the output matrix is another than the embedding: tie them, as in §3.4.": "self.output.weight = → _ =",
        "the embeddings are not multiplied by √d_model.": "config.d_model**0.5 → 1.0",
        "no positions are added: without them order is lost.": "self.positions(self.embedding → (self.embedding",
        "a position sees later ones: give the layers a causal mask.": "causal_mask(ids.size(1)) → None",
    },
    caught={"its logits: at [0, 0, 0]": "in self.layers → in [*self.layers, *self.layers]"},
)

SUSPECTS = {"A": "3.4", "B": "3.1", "C": "3.5", "D": "3.3", "E": "3.2.3"}


def suspects() -> tuple[Transformer, dict[str, Transformer]]:
    """Make the honest model, and five with its weights of which each departs from one section of the paper."""
    honest, changed = small_model(), {name: small_model() for name in SUSPECTS}
    for embedding in (changed["A"].src_embedding, changed["A"].tgt_embedding):
        embedding.register_forward_hook(lambda module, given, x: x / SMALL.d_model**0.5)
    for module in changed["B"].modules():
        if isinstance(module, Residual):
            module.norm_first = True
    halves = changed["C"].positions.table
    changed["C"].positions.table = torch.cat((halves[:, 0::2], halves[:, 1::2]), dim=1)
    for module in changed["D"].modules():
        if isinstance(module, FeedForward):
            module.activation = torch.nn.GELU()
    for layer in changed["E"].decoder.layers:
        layer.register_forward_pre_hook(lambda module, given: (*given[:2], None, *given[3:]))
    return honest, changed


def examine_sections(answer: Any) -> str | None:
    """Say how many sections are right, but not which."""
    if not isinstance(answer, dict) or set(answer) != set(SUSPECTS):
        raise WrongFormError(f'name a section for each of {", ".join(SUSPECTS)}, as in {{"A": "3.1", …}}', answer)
    given = {name: str(section).lstrip("§ ") for name, section in answer.items()}
    unknown = sorted(set(given.values()) - set(SUSPECTS.values()))
    if unknown:
        return f"§{unknown[0]} is not among the sections in question: {', '.join(sorted(SUSPECTS.values()))}."
    right = sum(given[name] == section for name, section in SUSPECTS.items())
    return None if right == len(SUSPECTS) else f"{right} of {len(SUSPECTS)} are right."


EXERCISES["09.4"] = Exercise(
    "Five suspects",
    right=SUSPECTS,
    examine=examine_sections,
    caught={
        "3 of 5 are right.": SUSPECTS | {"A": "3.1", "B": "3.4"},
        "a section for each of A, B, C, D, E, as in": {"A": "3.4"},
        "§6.1 is not among the sections in question: 3.1,": SUSPECTS | {"E": "§6.1"},
    },
)
