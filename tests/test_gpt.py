"""GPT-2: no leaks, its cache, what differs from our LanguageModel, its sizes, Hugging Face's, and published files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import randomise
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.models.gpt import Gpt, GptConfig, gelu_by_tanh
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated_workbench.checkpoint import save_tensors
from annotated_workbench.published import load_gpt2

SIZES: dict[str, Any] = dict(vocab_size=19, d_model=6, d_ff=11, heads=2, layers=3, dropout=0.0, max_length=7)
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, 12, 13]])
SETTINGS = {
    "model_type": "gpt2",
    "vocab_size": 19,
    "n_embd": 6,
    "n_inner": 11,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 7,
    "resid_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
}


def make_model(**changes) -> Gpt:
    """Make a model in which every weight counts."""
    return randomise(Gpt(GptConfig(**(SIZES | changes)))).eval()


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
    expected = 0.5 * x * (1 + ((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).tanh())
    assert_close(gelu_by_tanh(x), expected)
    assert 1e-4 < (F.gelu(x) - expected).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("size", "parameters"),
    [("small", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_published_sizes_have_the_published_number_of_parameters(size: str, parameters: int) -> None:
    config = GptConfig.published(size)
    d, n = config.d_model, config.layers
    assert n * (12 * d * d + 13 * d) + (50257 + 1024) * d + 2 * d == parameters
    with torch.device("meta"):
        model = Gpt(config)
    assert sum(p.numel() for p in model.parameters()) == parameters


# Published files


def tensors_of(model: Gpt) -> dict[str, Tensor]:
    """Arrange our parameters under the names of a published file: one matrix for q, k and v, and all as (in, out)."""
    found = {"wte.weight": model.embedding.weight, "wpe.weight": model.positions.table}
    found |= {"ln_f.weight": model.norm.gain, "ln_f.bias": model.norm.bias}
    for number, layer in enumerate(model.layers):
        a, f = layer.self_attention, layer.feed_forward
        found |= {
            f"h.{number}.attn.c_attn.weight": torch.cat((a.W_q.weight.T, a.W_k.weight.T, a.W_v.weight.T), dim=1),
            f"h.{number}.attn.c_attn.bias": torch.cat((a.W_q.bias, a.W_k.bias, a.W_v.bias)),
            f"h.{number}.attn.c_proj.weight": a.W_o.weight.T,
            f"h.{number}.attn.c_proj.bias": a.W_o.bias,
            f"h.{number}.mlp.c_fc.weight": f.W_1.weight.T,
            f"h.{number}.mlp.c_fc.bias": f.W_1.bias,
            f"h.{number}.mlp.c_proj.weight": f.W_2.weight.T,
            f"h.{number}.mlp.c_proj.bias": f.W_2.bias,
        }
        for i, residual in enumerate(layer.residuals, 1):
            found |= {f"h.{number}.ln_{i}.weight": residual.norm.gain, f"h.{number}.ln_{i}.bias": residual.norm.bias}
    return found


def write(folder: Path, tensors: dict[str, Tensor], **changes) -> Path:
    (folder / "config.json").write_text(json.dumps(SETTINGS | changes))
    save_tensors(folder / "model.safetensors", tensors)
    return folder


def test_a_folder_gives_the_model(tmp_path: Path) -> None:
    model = make_model(layers=1)
    tensors = {f"transformer.{name}": tensor for name, tensor in tensors_of(model).items()}
    tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 7, 7).tril()  # a mask that the first files hold
    tensors["lm_head.weight"] = model.embedding.weight.clone()
    found = load_gpt2(write(tmp_path, tensors))
    assert not found.training and found.config.dropout == 0.1
    assert_close(found(IDS), model(IDS))


@pytest.mark.parametrize(
    ("settings", "extra", "message"),
    [
        ({"model_type": "bert"}, {}, "type 'bert', not 'gpt2'"),
        ({"activation_function": "relu"}, {}, "activation_function='relu'; this model has only 'gelu_new'"),
        ({"scale_attn_by_inverse_layer_idx": True}, {}, "scale_attn_by_inverse_layer_idx=True"),
        ({"n_layer": 2}, {}, "layers.1"),
        ({}, {"lm_head.weight": torch.zeros(19, 6)}, r"lm_head\.weight differs from the embedding"),
        ({}, {"h.0.attn.c_attn.weight": torch.zeros(6, 17)}, r"W_v\.weight differs"),
        ({}, {"left_over": torch.zeros(2)}, "left_over differs"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, settings: dict, extra: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_gpt2(write(tmp_path, tensors_of(make_model(layers=1)) | extra, **settings))


@pytest.mark.parametrize("kind", ["GPT2Model", "GPT2LMHeadModel"])
def test_states_and_logits_are_hugging_faces(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")
    sizes = {k: v for k, v in SETTINGS.items() if k not in ("model_type", "n_layer")}
    config = transformers.GPT2Config(n_layer=3, bos_token_id=1, eos_token_id=1, **sizes)
    theirs = randomise(getattr(transformers, kind)(config)).eval()
    theirs.save_pretrained(tmp_path)
    ours = load_gpt2(tmp_path)
    with torch.no_grad():
        found = theirs(IDS, output_hidden_states=True)
        assert found.hidden_states[-1].std() > 0.1
        assert_close(ours.states(IDS), found.hidden_states[-1], rtol=0, atol=1e-4)
        if kind == "GPT2LMHeadModel":
            assert_close(ours(IDS), found.logits, rtol=0, atol=1e-4)
    capfd.readouterr()
