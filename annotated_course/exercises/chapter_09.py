"""The exercises of chapter 09, the whole Transformer."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.encoder import EncoderLayer, FeedForward, Residual
from annotated.masking import causal_mask
from annotated.transformer import Transformer
from annotated_course.exercises.diagnosis import Exercise, compare, is_close

SMALL = TransformerConfig(vocab_size=23, d_model=16, d_ff=28, heads=4, layers=2, dropout=0.0, max_length=32)
SUSPECTS = {"A": "3.4", "B": "3.1", "C": "3.5", "D": "3.3", "E": "3.2.3"}


def parameters_of_all(answer: Callable[..., int]) -> str | None:
    """A small model whose parts cannot be taken for each other, and the paper's base and big models."""
    for vocab, d_model, d_ff, layers in ((23, 12, 22, 3), (37_000, 512, 2048, 6), (37_000, 1024, 4096, 6)):
        count = answer(vocab, d_model, d_ff, layers)
        if not isinstance(count, int):
            return f"expected a whole number, got {type(count).__name__}."
        embedding, attention, norm = vocab * d_model, 4 * d_model**2, 2 * d_model
        network, biases = 2 * d_model * d_ff, d_ff + d_model
        right = embedding + layers * (3 * attention + 2 * (network + biases) + 5 * norm)
        mistakes = {
            right + 2 * embedding: "the three embedding matrices are one: count it once.",
            right + embedding: "the output matrix is the embedding matrix: count it once.",
            right - layers * attention: "a decoder layer has two attentions.",
            right - layers * 2 * biases: "W₁ and W₂ have biases.",
            right - layers * 5 * norm: "layer normalisation has a gain and a bias for each number.",
            right - layers * norm: "a decoder layer has three normalisations, an encoder layer two; and W₂ has a bias.",
            right - layers * 5 * d_model: "layer normalisation has a gain and a bias.",
            right + layers * 12 * d_model: "the attentions have no biases.",
            right - embedding: "the embedding matrix is missing.",
            right + 2 * norm: "no normalisation follows the last layer: each layer ends in one.",
            right + vocab: "the output projection has no bias.",
        }
        if count != right:
            wrong = mistakes.get(count, f"expected {right:,}, got {count:,}.")
            return f"vocabulary {vocab}, d_model={d_model}, d_ff={d_ff}, N={layers}: {wrong}"
    return None


def log_probability(answer: Callable[..., Tensor]) -> str | None:
    """Of two translations of different lengths, one of them padded."""
    model = _model()
    src = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD]])
    tgt = torch.tensor([[BOS, 10, 11, 12, EOS], [BOS, 13, EOS, PAD, PAD]])
    with torch.no_grad():
        result = answer(model, src, tgt)
        log_p = model(src, tgt[:, :-1]).log_softmax(dim=-1)
        over_positions = model(src, tgt[:, :-1]).log_softmax(dim=1).gather(-1, tgt[:, 1:, None])[..., 0]
        just_read = log_p.gather(-1, tgt[:, :-1, None])[..., 0]
        unshifted = model(src, tgt).log_softmax(dim=-1).gather(-1, tgt[..., None])[..., 0]
    taken = log_p.gather(-1, tgt[:, 1:, None])[..., 0]
    real = tgt[:, 1:] != PAD
    words = real & (tgt[:, 1:] != EOS)
    total = (taken * real).sum(dim=1)
    return compare(
        result,
        total,
        {
            "padding is counted: it is not part of the translation.": taken.sum(dim=1),
            "<eos> is missing: that the sentence ends there is a choice as well.": (taken * words).sum(dim=1),
            "that is the mean; a probability of a sentence is a product, its logarithm a sum.": total / real.sum(dim=1),
            "one number for each sentence of the batch: sum over the positions alone.": total.sum(),
            "the logits at a position are of the token *after* it: read all but the last, predict all but the first.": (
                (unshifted * (tgt != PAD)).sum(dim=1)
            ),
            "these are logits; take their log-softmax.": (
                (model(src, tgt[:, :-1]).detach().gather(-1, tgt[:, 1:, None])[..., 0] * real).sum(dim=1)
            ),
            "these are probabilities; the logarithm is missing.": total.exp(),
            "these are probabilities, and their sum; take the logarithm of each first.": (taken.exp() * real).sum(
                dim=1
            ),
            "the log-softmax is over the wrong axis: at each position, the vocabulary sums to 1.": (
                (over_positions * real).sum(dim=1)
            ),
            "look up the token that comes next, not the one just read.": (just_read * (tgt[:, :-1] != PAD)).sum(dim=1),
            "the sign is reversed: log-probabilities are at most 0.": -total,
        },
    )


def decoder_alone(answer: Callable[..., nn.Module]) -> str | None:
    """A language model of the page's parts: causal, tied, scaled, with positions."""
    torch.manual_seed(0)
    config = SMALL
    model = answer(config)
    if not isinstance(model, nn.Module):
        return f"make a class of nn.Module; got {type(model).__name__}."
    model.eval()
    ids = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
    logits = model(ids)
    if not isinstance(logits, Tensor) or logits.shape != (2, 5, config.vocab_size):
        return f"expected logits of shape (2, 5, {config.vocab_size}), got {getattr(logits, 'shape', logits)}."
    changed = ids.clone()
    changed[:, 3:] = 15
    if not is_close(model(changed)[:, :3], logits[:, :3], 1e-4):
        return "a position sees later ones: give the layers a causal mask, True = may attend."
    layer = sum(parameter.numel() for parameter in EncoderLayer(config).parameters())
    count = sum(parameter.numel() for parameter in model.parameters())
    expected = config.vocab_size * config.d_model + config.layers * layer
    if count != expected:
        extra = config.vocab_size * config.d_model
        cases = {
            expected + extra: "the output matrix is another than the embedding: tie them, as in §3.4.",
            expected + extra + config.vocab_size: "the output matrix is tied in the paper, and has no bias.",
        }
        general = (
            f"{count:,} parameters, expected {expected:,}: one embedding matrix and {config.layers} encoder layers."
        )
        return cases.get(count, general)
    embeddings = [p for p in model.parameters() if p.shape == (config.vocab_size, config.d_model)]
    reference = _language_model(config, model, embeddings[0])
    scale = config.d_model**0.5
    for wrong, diagnosis in (
        (reference(ids, 1.0, True), "the embeddings are not multiplied by √d_model."),
        (reference(ids, scale, False), "no positions are added: without them order is lost."),
        (reference(ids, scale, True).log_softmax(dim=-1), "return logits, not log-probabilities."),
        (reference(ids, 1.0, False), "the embeddings are neither multiplied by √d_model nor given positions."),
    ):
        if is_close(logits, wrong, 1e-4):
            return diagnosis
    right = is_close(logits, reference(ids, scale, True), 1e-4)
    return None if right else "the logits are not those of the page's parts put together in its order."


def _language_model(config: TransformerConfig, model: nn.Module, embedding: Tensor) -> Callable[..., Tensor]:
    layers = [module for module in model.modules() if type(module).__name__ == "EncoderLayer"]
    positions = Transformer(config).positions

    def logits(ids: Tensor, scale: float, with_positions: bool) -> Tensor:
        x = embedding[ids] * scale
        x = positions(x) if with_positions else x
        for layer in layers:
            x = layer(x, causal_mask(ids.size(1)))
        return x @ embedding.T

    return logits


def suspects() -> tuple[Transformer, dict[str, Transformer]]:
    """Make the honest model, and five with its weights of which each departs from one section of the paper."""
    honest, changed = _model(), {name: _model() for name in SUSPECTS}
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


def who_departs(answer: object) -> str | None:
    """The section for each suspect; says how many are right."""
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


def _model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(SMALL).eval()


EXERCISES = {
    "09.1": Exercise("Count them all", parameters_of_all),
    "09.2": Exercise("How probable is this translation?", log_probability),
    "09.3": Exercise("The decoder alone", decoder_alone),
    "09.4": Exercise("Five suspects", who_departs),
}
