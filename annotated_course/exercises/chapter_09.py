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
from annotated_course.exercises.exercise import Exercise, calls, each, is_same

EXERCISES: dict[str, Exercise] = {}
SMALL = TransformerConfig(vocab_size=23, d_model=16, d_ff=28, heads=4, layers=2, dropout=0.0, max_length=32)


def count(
    matrices: int = 1, attentions: int = 3, norms: int = 5, gains: int = 2, biases: int = 1, others: int = 0
) -> Any:
    """Count a Transformer's parameters from how many parts there are; `others` are biases of the attentions."""

    def answer(vocab: int, d_model: int, d_ff: int, layers: int) -> int:
        network = 2 * d_model * d_ff + biases * (d_ff + d_model)
        layer = attentions * (4 * d_model**2 + others * d_model) + 2 * network + norms * gains * d_model
        return matrices * vocab * d_model + layers * layer

    return answer


COUNTS = {
    "the three embedding matrices are one: count it once.": dict(matrices=3),
    "the output matrix is the embedding matrix: count it once.": dict(matrices=2),
    "a decoder layer has two attentions.": dict(attentions=2),
    "W₁ and W₂ have biases.": dict(biases=0),
    "layer normalisation has a gain and a bias for each number.": dict(norms=0),
    "a decoder layer has three normalisations, an encoder layer two; and W₂ has a bias.": dict(norms=4),
    "layer normalisation has a gain and a bias.": dict(gains=1),
    "the attentions have no biases.": dict(others=4),
    "the embedding matrix is missing.": dict(matrices=0),
}
EXERCISES["09.1"] = Exercise(
    "Count them all",
    right=count(),
    cases={  # a small model whose parts cannot be taken for each other, and the paper's base and big models
        f"vocabulary {vocab}, d_model={d_model}, d_ff={d_ff}, N={layers}: ": calls(vocab, d_model, d_ff, layers)
        for vocab, d_model, d_ff, layers in ((23, 12, 22, 3), (37_000, 512, 2048, 6), (37_000, 1024, 4096, 6))
    },
    mistakes=each(count, COUNTS)
    | {
        "no normalisation follows the last layer: each layer ends in one.": lambda *sizes: (
            count()(*sizes) + 4 * sizes[1]
        ),
        "the output projection has no bias.": lambda *sizes: count()(*sizes) + sizes[0],
    },
)


def small_model() -> Transformer:
    """Make the same small model every time."""
    torch.manual_seed(0)
    return Transformer(SMALL).eval()


def scored(fault: str = "") -> Any:
    """The log-probability of translations, with one fault."""

    def answer(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        read, following = (tgt, tgt) if fault == "shift" else (tgt[:, :-1], tgt[:, 1:])
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
    "the logits at a position are of the token *after* it: read all but the last, predict all but the first.": "shift",
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


class LanguageModel(nn.Module):
    """The decoder alone, with one fault."""

    def __init__(self, config: TransformerConfig, fault: str = "") -> None:
        super().__init__()
        self.fault, self.scale = fault, 1.0 if fault in ("unscaled", "bare") else config.d_model**0.5
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalEncoding(config.d_model, config.max_length)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers + (fault == "longer")))
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=fault == "biased")
        if fault not in ("untied", "biased"):
            self.output.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (batch, length) to logits (batch, length, vocab)."""
        x = self.embedding(ids) * self.scale
        if self.fault not in ("unplaced", "bare"):
            x = self.positions(x)
        for layer in list(self.layers) * (2 if self.fault == "twice" else 1):
            x = layer(x, None if self.fault == "seeing" else causal_mask(ids.size(1)))
        return self.output(x).log_softmax(dim=-1) if self.fault == "log" else self.output(x)


TIES = {
    "the output matrix is another than the embedding: tie them, as in §3.4.": "untied",
    "the output matrix is tied in the paper, and has no bias.": "biased",
}
DECODERS = {
    "the embeddings are not multiplied by √d_model.": "unscaled",
    "no positions are added: without them order is lost.": "unplaced",
    "return logits, not log-probabilities.": "log",
    "the embeddings are neither multiplied by √d_model nor given positions.": "bare",
}


def examine_model(answer: Callable[..., nn.Module]) -> str | None:
    """Compare a language model with others of the same embedding and layers."""
    torch.manual_seed(0)
    model = answer(SMALL).eval()
    logits, changed = model(IDS), torch.cat([IDS[:, :3], IDS[:, :2]], dim=1)
    if not is_same(model(changed)[:, :3], logits[:, :3]):
        return "a position sees later ones: give the layers a causal mask, True = may attend."

    def size(model: nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    for told, fault in TIES.items():
        if size(model) == size(LanguageModel(SMALL, fault)):
            return told
    right = size(LanguageModel(SMALL))
    if size(model) != right:
        return (
            f"{size(model):,} parameters, expected {right:,}: one embedding matrix and {SMALL.layers} encoder layers."
        )

    def other(fault: str = "") -> Tensor:
        reference = LanguageModel(SMALL, fault)
        shared = next(one for one in model.parameters() if one.shape == (SMALL.vocab_size, SMALL.d_model))
        reference.embedding.weight = reference.output.weight = shared
        reference.layers = nn.ModuleList(one for one in model.modules() if type(one).__name__ == "EncoderLayer")
        return reference(IDS)

    for told, fault in DECODERS.items():
        if is_same(logits, other(fault)):
            return told
    right_logits = is_same(logits, other())
    return None if right_logits else "the logits are not those of the page's parts put together in its order."


IDS = torch.arange(5, 15).view(2, 5)
EXERCISES["09.3"] = Exercise(
    "The decoder alone",
    right=LanguageModel,
    cases={
        "": lambda answer: isinstance(answer(SMALL), nn.Module),
        "of its logits: ": lambda answer: 0 * answer(SMALL).eval()(IDS),  # random ones, so only their shape is compared
    },
    mistakes={"make a class of nn.Module.": lambda config: 3},
    examine=examine_model,
    caught=each(
        lambda fault: lambda config: LanguageModel(config, fault),
        TIES
        | DECODERS
        | {
            "a position sees later ones": "seeing",
            "one embedding matrix and 2 encoder layers": "longer",
            "the logits are not those of the page's parts": "twice",
        },
    ),
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


def examine_sections(answer: object) -> str | None:
    """Say how many sections are right, but not which."""
    if not isinstance(answer, Mapping):
        return f"expected a dictionary from the suspect's name to a section, got {type(answer).__name__}."
    if set(answer) != set(SUSPECTS):
        return f"name a section for each of {', '.join(SUSPECTS)}; got {', '.join(map(str, answer)) or 'none'}."
    given = {name: str(section).lstrip("§ ") for name, section in answer.items()}
    unknown = sorted(set(given.values()) - set(SUSPECTS.values()))
    if unknown:
        return f"§{unknown[0]} is not among the sections in question: {', '.join(sorted(SUSPECTS.values()))}."
    right = sum(given[name] == section for name, section in SUSPECTS.items())
    return None if right == len(SUSPECTS) else f"{right} of {len(SUSPECTS)} are right."


EXERCISES["09.4"] = Exercise(
    "Five suspects",
    right=SUSPECTS,
    cases={},
    examine=examine_sections,
    caught={
        "3 of 5 are right.": SUSPECTS | {"A": "3.1", "B": "3.4"},
        "a section for each of A, B, C, D, E; got A.": {"A": "3.4"},
        "a section for each of A, B, C, D, E; got none.": {},
        "§6.1 is not among the sections in question: 3.1,": SUSPECTS | {"E": "§6.1"},
        "expected a dictionary from the suspect's name to a section, got str.": "3.4",
    },
)
