"""The decoder-only model: the encoder under a causal mask; drawing by hand and at length."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import maker
from torch.testing import assert_close

from annotated.config import UNK, TransformerConfig
from annotated.masking import causal_mask
from annotated.models.language_model import LanguageModel, LanguageModelConfig, draw, generate, sampling_probabilities
from annotated.transformer import Transformer

SIZES = dict(vocab_size=19, d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=3, dropout=0.0, max_length=17)
make_model = maker(LanguageModel, LanguageModelConfig, **SIZES)
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, 12, 13]])
CONFIGS = {
    "defaults": {},
    "the paper's layer": dict(norm_first=False, positions="sinusoidal", activation="relu"),
    "untied": dict(tie_embeddings=False, attention_bias=True),
}
LOGITS = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[[2, 0, 3, 1]]  # 0.15, 0.5, 0.05, 0.3


@pytest.mark.parametrize("name", CONFIGS)
def test_it_is_the_encoder_under_a_causal_mask(name: str) -> None:
    model = make_model(**CONFIGS[name])
    names = {name: getattr(model.config, name) for name in TransformerConfig.__dataclass_fields__}
    other = Transformer(TransformerConfig(**names)).eval()
    other.src_embedding.weight, other.output.weight = model.embedding.weight, model.output.weight
    other.positions = model.positions
    weights = model.state_dict().items()
    other.encoder.load_state_dict({name: weight for name, weight in weights if name.startswith(("layers.", "norm."))})
    assert_close(model(IDS), other.logits(other.encode(IDS, causal_mask(5)[None, None])))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.15, 0.5, 0.05, 0.3]),
        (dict(temperature=0.0), [0, 1, 0, 0]),
        (dict(temperature=0.5), [0.0225 / 0.365, 0.25 / 0.365, 0.0025 / 0.365, 0.09 / 0.365]),
        (dict(top_k=2), [0, 0.625, 0, 0.375]),
        (dict(top_p=0.5 - 1e-6), [0, 1, 0, 0]),
        (dict(top_p=0.6), [0, 0.625, 0, 0.375]),
        (dict(top_p=0.9), [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        (dict(top_k=3, top_p=0.8), [0, 0.625, 0, 0.375]),  # of three, 0.5 and 0.3 are 0.84
    ],
)
def test_probabilities_by_hand(options: dict, expected: list[float]) -> None:
    found = sampling_probabilities(LOGITS.expand(2, 3, 4), **options)
    assert_close(found, torch.tensor(expected, dtype=torch.float32).expand(2, 3, 4))


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-5, 1e5, 1e30])
def test_any_temperature_gives_probabilities(temperature: float) -> None:
    found = sampling_probabilities(torch.tensor([-math.inf, 60, -60, 61]), temperature, top_p=1.0)
    expected = [0, 0, 0, 1] if temperature < 1 else [0, 1 / 3, 1 / 3, 1 / 3]
    assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), atol=0.01, rtol=0)


def test_a_nucleus_that_is_reached_exactly_is_whole():
    assert sampling_probabilities(torch.zeros(4), top_p=0.5).tolist() == [0.5, 0.5, 0, 0]


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=9), st.floats(0.01, 1))
def test_the_nucleus_is_the_smallest_set_that_holds_p(logits: list[float], p: float) -> None:
    before = torch.tensor(logits, dtype=torch.float64).softmax(dim=-1)
    after = sampling_probabilities(torch.tensor(logits, dtype=torch.float64), top_p=p)
    kept = after > 0
    assert after.sum().item() == pytest.approx(1)
    assert before[kept].sum() >= p - 1e-9
    assert before[kept].sum() - before[kept].min() < p + 1e-9
    assert kept.all() or before[kept].min() >= before[~kept].max()


def test_special_tokens_are_never_drawn() -> None:
    drawn = generate(make_model(), IDS[:1].expand(4000, -1), 1, generator=torch.Generator().manual_seed(0))[:, -1]
    assert drawn.unique().tolist() == list(range(UNK + 1, 19))


def test_a_token_is_drawn_by_where_a_number_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for number, token in ((0.0, 1), (0.2, 1), (0.25, 3), (0.7, 3), (0.75, 4), (1 - 2**-24, 4)):
        monkeypatch.setattr(torch, "rand", lambda shape, number=number, **options: torch.full(shape, number))
        assert draw(probabilities).tolist() == [token]
        assert draw(probabilities.expand(2, 3, 6)).shape == (2, 3, 1)


def test_a_generator_decides_the_text_and_the_mode_stays() -> None:
    model = make_model(dropout=0.5).train()
    texts = [generate(model, IDS, 30, generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert model.training
    assert torch.equal(texts[0], texts[1]) and not torch.equal(texts[0], texts[2])
    assert texts[0].shape == (2, 35) and torch.equal(texts[0][:, :5], IDS)


def test_behind_its_last_position_it_goes_on_from_the_last_half() -> None:
    model = make_model(max_length=6)
    text = generate(model, IDS, 20, temperature=0.0)

    @torch.inference_mode()
    def answer(read: torch.Tensor) -> torch.Tensor:
        logits = model(read)[:, -1]
        logits[:, : UNK + 1] = -torch.inf
        return logits.argmax(dim=-1)

    start = 0
    for end in range(5, 25):
        if end - start > 6:
            start = end - 3
        assert torch.equal(text[:, end], answer(text[:, start:end]))
