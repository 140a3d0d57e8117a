"""The Llama: the paper's decoder with parts of today."""

import json
from typing import Any

import pytest
import torch
from parity import maker
from torch import nn
from torch.testing import assert_close

from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated.models.modern import modernise
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.published import load_llama

SIZES: dict[str, Any] = dict(vocab_size=19, d_model=14, heads=6, d_k=4, d_v=5, layers=3, max_length=9, dropout=0.0)
make_model = maker(Llama, LlamaConfig, **SIZES, d_ff=8, groups=2, eps=1e-6)


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


def test_embeddings_are_dropped_too() -> None:
    model, ids = make_model(dropout=0.5).train(), torch.randint(4, 19, (3, 9))
    model.layers, model.norm = nn.ModuleList(), nn.Identity()
    states = model.states(ids)
    assert_close(states, 2 * model.embedding(ids) * (states != 0))
    assert 0.3 < (states == 0).float().mean() < 0.7


@torch.no_grad()
def test_a_published_folder_without_the_code_that_wrote_it() -> None:
    published = DATA_FOLDER / "published_llama"
    theirs = json.loads((published / "logits.json").read_text())
    assert_close(load_llama(published)(torch.tensor(theirs["ids"])), torch.tensor(theirs["logits"]), rtol=0, atol=1e-5)
