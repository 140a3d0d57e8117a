"""What holds for every model: what an output may see, padding, the cache, gradients, dropout and the fast form.

A new architecture joins by a line in one of three tables.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from parity import assert_same_gradients, randomise
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.config import PAD, TransformerConfig
from annotated.encoder import Dropout
from annotated.fast import residual as fast_residual
from annotated.fast.accelerate import FORMS, accelerate
from annotated.masking import padding_mask
from annotated.models.bert import Bert, BertConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated.models.modern import modernise
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RelativeAttention, RotaryAttention
from annotated.transformer import Transformer

SIZES = dict(vocab_size=19, d_model=12, d_ff=11, heads=6, d_k=4, d_v=5, layers=2, max_length=9)
DEPARTURES = dict(norm_first=True, attention_bias=True, positions="learned", tie_embeddings=False, activation="gelu")
PAPERS = dict(norm_first=False, positions="sinusoidal", activation="relu")
PARTS = [dict(groups=3), dict(qk_norm=True), dict(rotary=True), dict(gated=True), dict(rms_norm=True)]
PARTS.append(dict(groups=2, qk_norm=True, rotary=True, gated=True, rms_norm=True))
Make = Callable[..., nn.Module]


def of(kind: Make, config: Callable, **options) -> Make:
    return lambda **changes: kind(config(**(SIZES | options | changes)))


def with_attention(kind: Make, stacks: Sequence[str] = ("encoder", "decoder"), **changes) -> Transformer:
    """Make a Transformer with another attention in place of each self-attention."""
    model = Transformer(TransformerConfig(**(SIZES | changes)))
    for layer in (layer for stack in stacks for layer in model.get_submodule(stack).layers):
        layer.self_attention = kind(12, 6, d_k=4, d_v=5)
    return model


def modern(parts: dict, **changes) -> Transformer:
    return modernise(Transformer(TransformerConfig(**(SIZES | changes))), **parts)


# Read a source, and a target from left to right.
TRANSLATORS: dict[str, Make] = {
    "Transformer": of(Transformer, TransformerConfig),
    "Transformer, one layer, whole heads": of(Transformer, TransformerConfig, layers=1, d_k=None, d_v=None),
    "Transformer, norm first": of(Transformer, TransformerConfig, norm_first=True),
    "Transformer, every departure": of(Transformer, TransformerConfig, **DEPARTURES, layers=3),
    "LSTM": lambda **changes: RecurrentTranslator(RecurrentConfig(19, d_model=7, layers=3, **changes)),
}
# With other parts; they have no fast form.
EXCHANGED: dict[str, Make] = {
    "Transformer, relative": partial(with_attention, partial(RelativeAttention, k=2)),
    "Transformer, rotary": partial(with_attention, RotaryAttention),
    **{f"Transformer, modern: {' '.join(parts)}": partial(modern, parts) for parts in PARTS},
}
TRANSLATORS |= EXCHANGED
# Read a text from left to right.
LANGUAGE_MODELS: dict[str, Make] = {
    "LanguageModel": of(LanguageModel, LanguageModelConfig),
    "LanguageModel, the paper's layer": of(LanguageModel, LanguageModelConfig, **PAPERS),
    "LanguageModel, untied": of(LanguageModel, LanguageModelConfig, tie_embeddings=False, attention_bias=True),
    "GPT": of(Gpt, GptConfig),
    "Llama": of(Llama, LlamaConfig, groups=2, qk_norm=True),
    "Llama, untied": of(Llama, LlamaConfig, groups=1, tie_embeddings=False, rotary_base=500.0),
}
# See a text as a whole.
ENCODERS: dict[str, Make] = {
    "BERT": of(Bert, BertConfig),
    "Classifier": of(Classifier, ClassifierConfig, word_dropout=0.0),
    "Classifier, the paper's layer": of(Classifier, ClassifierConfig, word_dropout=0.0, **PAPERS),
    "Classifier, biases": of(Classifier, ClassifierConfig, word_dropout=0.0, attention_bias=True, activation="silu"),
}
MODELS = TRANSLATORS | LANGUAGE_MODELS | ENCODERS
UNUSED = {"BERT": {"pooler.weight", "pooler.bias"}}  # what the logits do without

SRC = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 2, PAD, PAD]])
TGT = torch.tensor([[1, 11, 12, PAD], [1, 13, 14, 15]])

every_model = pytest.mark.parametrize("name", MODELS)
FAST = [name for name in MODELS if name not in EXCHANGED and type(MODELS[name]()) in FORMS]
every_fast_form = pytest.mark.parametrize("name", FAST)


def make(name: str, dropout: float = 0.0) -> nn.Module:
    """Make a model in which every weight counts, in 64 bits."""
    return randomise(MODELS[name](dropout=dropout)).double()


def ids_for(name: str) -> tuple[Tensor, ...]:
    return (SRC,) if name in LANGUAGE_MODELS | ENCODERS else (SRC, TGT)


@every_model
@torch.no_grad()
def test_no_leak(name: str) -> None:
    """A changed token changes what may see it, and nothing else: no earlier output, and none of the other text."""
    model, given = make(name).eval(), ids_for(name)
    before = model(*given)
    for side, ids in enumerate(given):
        looks_back = name in LANGUAGE_MODELS or side == 1
        for text, place in (ids != PAD).nonzero().tolist():
            changed = ids.clone()
            changed[text, place] = 17
            moved = (model(*given[:side], changed, *given[side + 1 :]) - before).abs().amax(dim=-1) > 1e-9
            outputs = int((given[-1][text] != PAD).sum())
            if name.startswith("Classifier"):
                assert moved[text] and not moved[1 - text]
            else:
                assert moved[text, :outputs].tolist() == [not looks_back or i >= place for i in range(outputs)]
                assert not moved[1 - text].any()


@every_model
@torch.no_grad()
def test_padding_and_the_other_texts_change_nothing(name: str) -> None:
    model, given = make(name).eval(), ids_for(name)
    for together in (model(*given), model(*(F.pad(ids, (0, 2)) for ids in given))):
        for row, logits in enumerate(together):
            texts = [ids[row][ids[row] != PAD][None] for ids in given]
            alone = model(*texts)[0]
            assert_close(logits if alone.ndim == 1 else logits[: len(alone)], alone)


@every_model
def test_gradients_reach_every_weight_and_are_finite_beside_a_text_of_padding(name: str) -> None:
    model = make(name)
    logits = model(*(F.pad(ids, (0, 0, 0, 1)) for ids in ids_for(name)))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    for part, weight in model.named_parameters():
        if part not in UNUSED.get(name, ()):
            assert weight.grad is not None and weight.grad.any() and weight.grad.isfinite().all(), part


@every_model
@torch.no_grad()
def test_dropout_drops_in_training_only(name: str) -> None:
    model, given = make(name, dropout=0.5), ids_for(name)
    exact = model.eval()(*given)
    assert torch.equal(model(*given), exact)
    assert not torch.allclose(model.train()(*given), exact)


@pytest.mark.parametrize("name", TRANSLATORS | LANGUAGE_MODELS)
@torch.no_grad()
def test_a_cache_changes_nothing_and_follows_its_rows(name: str) -> None:
    model = make(name).eval()
    cache, src, ids = model.new_cache(), SRC, torch.empty(2, 0, dtype=torch.long)

    def states(new: Tensor, **options) -> Tensor:
        if name in LANGUAGE_MODELS:
            return model.states(new, **options)
        return model.decode(new, model.encode(src, padding_mask(src)), padding_mask(src), **options)

    for rows, count in (
        ([0, 0, 0, 1, 1, 1], 2),  # one beginning becomes three
        ([2, 0, 0, 4, 3, 3], 1),  # another order
        ([4, 3], 3),  # the first sentence is finished, the second keeps two
        ([1, 0, 1], 1),
    ):
        new = torch.randint(1, 19, (len(ids), count))
        ids = torch.cat((ids, new), dim=1)
        assert_close(states(new, cache=cache), states(ids)[:, -count:])
        cache.select(torch.tensor(rows))
        ids, src = ids[rows], src[rows]


@every_fast_form
def test_the_fast_form_has_the_same_values_and_gradients(name: str) -> None:
    model = make(name)
    fast, given = accelerate(model), [F.pad(ids, (0, 1, 0, 1)) for ids in ids_for(name)]
    assert type(fast) is FORMS[type(model)] and accelerate(fast) is fast
    assert_close(fast(*given), model(*given))
    assert_same_gradients(fast(*given), model(*given), list(model.parameters()), assert_close)


@every_fast_form
def test_the_fast_form_drops_the_same_numbers_by_the_same_factor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list] = {"plain": [], "fast": []}

    def draw(form: str, x: Tensor, p: float) -> Tensor:
        drawn[form].append((x.shape, p))
        return (torch.rand(x.shape, generator=torch.Generator().manual_seed(len(drawn[form]))) >= p).to(x.dtype)

    model, given = make(name, dropout=0.3), ids_for(name)
    fast = accelerate(model)
    monkeypatch.setattr(fast_residual, "dropout_mask", partial(draw, "fast"))
    logits = fast(*given)
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * draw("plain", x, self.p) / (1 - self.p))
    expected = model(*given)
    assert drawn["fast"] == drawn["plain"]
    assert_close(logits, expected)
    assert_same_gradients(logits, expected, list(model.parameters()), assert_close)
