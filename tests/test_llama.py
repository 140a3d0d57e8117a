"""The Llama: the paper's decoder with parts of today."""

from typing import Any

import pytest
import torch
from parity import randomise
from torch.testing import assert_close

from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated.models.modern import modernise

SIZES: dict[str, Any] = dict(vocab_size=19, d_model=14, heads=6, d_k=4, d_v=5, layers=3, max_length=9, dropout=0.0)


def make_model(**changes: Any) -> Llama:
    """Make a model in which every weight counts."""
    return randomise(Llama(LlamaConfig(**(SIZES | dict(d_ff=8, groups=2, eps=1e-6) | changes)))).eval()


@pytest.mark.parametrize("qk_norm", [False, True])
@torch.no_grad()
def test_it_is_the_papers_decoder_with_parts_of_today_but_for_scale(qk_norm: bool) -> None:
    model, parts = make_model(qk_norm=qk_norm), dict(rotary=True, gated=True, rms_norm=True)
    untied = LanguageModelConfig(**SIZES, d_ff=12, norm_first=True, tie_embeddings=False)
    other = modernise(LanguageModel(untied), groups=2, qk_norm=qk_norm, **parts).eval()
    weights = model.state_dict()
    weights["embedding.weight"] = model.embedding.weight / 14**0.5  # which the paper's multiplies by √d_model
    other.load_state_dict(weights)
    ids = torch.randint(4, 19, (3, 9))
    assert_close(model(ids), other(ids))
    assert not torch.allclose(make_model(eps=0.1)(ids), model(ids))
