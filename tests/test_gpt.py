"""GPT-2: what differs from our LanguageModel, and its sizes."""

from typing import Any

import pytest
import torch
from parity import maker
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.models.gpt import Gpt, GptConfig, gelu_by_tanh
from annotated.models.language_model import LanguageModel, LanguageModelConfig

SIZES: dict[str, Any] = dict(vocab_size=19, d_model=6, d_ff=11, heads=2, layers=3, dropout=0.0, max_length=7)
PUBLISHED = {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}
make_model = maker(Gpt, GptConfig, **SIZES)
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, 12, 13]])


def test_it_is_our_language_model_but_for_scale_and_activation() -> None:
    model = make_model()
    other = LanguageModel(LanguageModelConfig(**SIZES, tie_embeddings=False, attention_bias=True)).eval()
    weights = model.state_dict() | {"output.weight": model.embedding.weight}
    weights["embedding.weight"] = model.embedding.weight / 6**0.5  # which ours multiplies by √d_model
    other.load_state_dict(weights)
    assert (other(IDS) - model(IDS)).abs().max() > 1e-5
    for layer in other.layers:
        layer.feed_forward.activation = gelu_by_tanh
    assert_close(other(IDS), model(IDS))


def test_the_activation_is_the_tanh_formula() -> None:
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    assert_close(gelu_by_tanh(x), F.gelu(x, approximate="tanh"))
    assert 1e-4 < (F.gelu(x) - gelu_by_tanh(x)).abs().max() < 1e-3


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_sizes_have_the_published_number_of_parameters(size: str) -> None:
    with torch.device("meta"):
        model = Gpt(GptConfig.published(size))
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[size]
