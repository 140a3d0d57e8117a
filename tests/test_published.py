"""Published BERTs, GPT-2s and Llamas: the states and logits of Hugging Face's, and folders that do not fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import randomise
from torch import Tensor
from torch.testing import assert_close

from annotated.config import PAD
from annotated_workbench.checkpoint import load_tensors, save_tensors
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.published import load_bert, load_gpt2, load_llama

transformers = pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")

IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, PAD, PAD]])
REAL = IDS != PAD
SEGMENTS = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 0, 0]])
BERT = dict(vocab_size=19, hidden_size=6, intermediate_size=11, num_attention_heads=2, num_hidden_layers=2)
BERT |= dict(max_position_embeddings=7, type_vocab_size=3, hidden_dropout_prob=0.2)
GPT2 = dict(vocab_size=19, n_embd=6, n_inner=11, n_head=2, n_layer=2, n_positions=7, bos_token_id=1, eos_token_id=1)
GPT2 |= dict(resid_pdrop=0.2)
LLAMA = dict(vocab_size=19, hidden_size=12, intermediate_size=11, num_attention_heads=6, num_hidden_layers=2)
LLAMA |= dict(max_position_embeddings=9, num_key_value_heads=2, head_dim=4, rms_norm_eps=0.1)


def publish(folder: Path, kind: str, shard: str = "1GB", **changes) -> Any:
    """Write a model of Hugging Face's, in which every weight counts, into a folder."""
    sizes = {"B": BERT, "G": GPT2, "L": LLAMA}[kind[0]] | changes
    theirs = getattr(transformers, kind)
    model = randomise(theirs(theirs.config_class(**sizes))).eval()
    model.save_pretrained(folder, max_shard_size=shard)
    return model


def change(folder: Path, rename: Callable[[str], str] = str, weights: dict[str, Tensor] | None = None, **settings):
    config, file = folder / "config.json", folder / "model.safetensors"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    save_tensors(file, {rename(name): tensor for name, tensor in load_tensors(file)[0].items()} | (weights or {}))


def first_name(name: str) -> str:
    """Call a weight as the first published files did."""
    return name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForPreTraining"])
@torch.no_grad()
def test_a_bert_is_hugging_faces(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = publish(tmp_path, kind)
    found = theirs(input_ids=IDS, attention_mask=REAL.long(), token_type_ids=SEGMENTS, output_hidden_states=True)
    expected = found.hidden_states[-1][REAL]
    assert expected.std() > 0.1
    for rename in (str, first_name):
        change(tmp_path, rename)
        ours = load_bert(tmp_path)
        states = ours.states(IDS, SEGMENTS)
        assert not ours.training and ours.config.dropout == 0.2
        assert_close(states[REAL], expected, rtol=0, atol=1e-4)
        if kind == "BertModel":
            assert_close(ours.pooled(states), found.pooler_output, rtol=0, atol=1e-4)
        else:
            logits = found.logits if kind == "BertForMaskedLM" else found.prediction_logits
            assert_close(ours(IDS, SEGMENTS)[REAL], logits[REAL], rtol=0, atol=1e-4)
    # A part without weights is left out, and not random.
    for part, left_out, use in (("head", "BertModel", ours.logits), ("pooler", "BertForMaskedLM", ours.pooled)):
        assert (getattr(ours, part) is None) == (kind == left_out)
        if kind == left_out:
            with pytest.raises(ValueError, match=f"has no {part}"):
                use(states)
    capfd.readouterr()


@pytest.mark.parametrize("kind", ["GPT2Model", "GPT2LMHeadModel"])
@torch.no_grad()
def test_a_gpt2_is_hugging_faces(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = publish(tmp_path, kind)
    prefix = "" if kind == "GPT2Model" else "transformer."
    # The first files hold the embedding twice, and a mask.
    mask, embedding = torch.ones(1, 1, 7, 7).tril(), theirs.get_input_embeddings().weight.clone()
    change(tmp_path, weights={f"{prefix}h.0.attn.bias": mask, "lm_head.weight": embedding})
    ours, found = load_gpt2(tmp_path), theirs(IDS, output_hidden_states=True)
    assert not ours.training and ours.config.dropout == 0.2
    assert found.hidden_states[-1].std() > 0.1
    assert_close(ours.states(IDS), found.hidden_states[-1], rtol=0, atol=1e-4)
    if kind == "GPT2LMHeadModel":
        assert_close(ours(IDS), found.logits, rtol=0, atol=1e-4)
    capfd.readouterr()


@pytest.mark.parametrize(
    "changes",
    [
        dict(tie_word_embeddings=True),
        dict(tie_word_embeddings=False, num_key_value_heads=1, shard="2KB"),
        dict(tie_word_embeddings=False, num_key_value_heads=6, head_dim=2),
        dict(num_attention_heads=3, num_key_value_heads=3, rope_parameters={"rope_type": "default", "rope_theta": 7.0}),
    ],
    ids=["tied", "one group, several files", "six groups", "another base"],
)
@torch.no_grad()
def test_a_llama_is_hugging_faces(tmp_path: Path, changes: dict, capfd: pytest.CaptureFixture[str]) -> None:
    theirs, ids = publish(tmp_path, "LlamaForCausalLM", **changes), torch.randint(19, (3, 9))
    ours, expected = load_llama(tmp_path), theirs(ids).logits
    assert expected.std() > 0.1 and ours.training is False
    assert_close(ours(ids), expected, rtol=0, atol=1e-5)
    assert (len([*tmp_path.glob("*.safetensors")]) > 1) == ("shard" in changes)
    if "rope_parameters" in changes:  # as older files say it
        change(tmp_path, rope_parameters=None, rope_scaling=None, rope_theta=7.0, weights={"x.inv_freq": ids})
        assert_close(load_llama(tmp_path)(ids), expected, rtol=0, atol=1e-5)
    capfd.readouterr()


def test_the_folder_of_chapter_21_is_hugging_faces(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from experiments import published_llama  # which needs transformers

    published_llama.main(str(tmp_path))
    folders = (tmp_path, DATA_FOLDER / "published_llama")
    made, kept = (load_tensors(folder / "model.safetensors")[0] for folder in folders)
    assert_close(kept, made)
    made, kept = (json.loads((folder / "logits.json").read_text()) for folder in folders)
    assert made["ids"] == kept["ids"]
    assert_close(torch.tensor(kept["logits"]), torch.tensor(made["logits"]), rtol=0, atol=1e-5)
    capfd.readouterr()


LOADERS: dict[str, Callable[[str | Path], Any]] = {"bert": load_bert, "gpt2": load_gpt2, "llama": load_llama}
REFUSED = [
    ("bert", dict(model_type="gpt2"), "type 'gpt2', not 'bert'"),
    ("bert", dict(hidden_act="relu"), "hidden_act='relu'; this model has only 'gelu'"),
    ("bert", dict(pad_token_id=1), "pad_token_id=1; this model has only 0"),
    ("bert", dict(num_hidden_layers=3), "encoder.layers.2"),
    ("bert", dict(vocab_size=20), "embedding.weight differs"),
    ("bert", dict(weights={"cls.predictions.decoder.weight": torch.zeros(19, 6)}), r"decoder\.weight differs from"),
    ("gpt2", dict(activation_function="relu"), "activation_function='relu'; this model has only 'gelu_new'"),
    ("gpt2", dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx=True"),
    ("gpt2", dict(weights={"lm_head.weight": torch.zeros(19, 6)}), r"lm_head\.weight differs from the embedding"),
    ("gpt2", dict(weights={"h.0.attn.c_attn.weight": torch.zeros(6, 17)}), r"W_v\.weight differs"),
    ("gpt2", dict(weights={"left_over": torch.zeros(2)}), "left_over differs"),
    ("llama", dict(model_type="mistral"), "type 'mistral', not 'llama': there are loaders for bert, gpt2, llama"),
    ("llama", dict(hidden_act="gelu"), "hidden_act='gelu'; this model has only 'silu'"),
    ("llama", dict(attention_bias=True), "attention_bias=True; this model has only False"),
    ("llama", dict(mlp_bias=True), "mlp_bias=True; this model has only False"),
    ("llama", dict(partial_rotary_factor=0.5), r"partial_rotary_factor=0\.5; this model has only 1\.0"),
    ("llama", dict(rope_parameters={"rope_type": "llama3", "factor": 8.0}), "rope_type='llama3'; this model has only"),
    ("llama", dict(rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0}), "rope_type='linear'"),
    ("llama", dict(rope_scaling={"type": "linear", "factor": 2.0}), "rope_type='linear'"),
    ("llama", dict(quantization_config={"bits": 8}), "quantization_config"),
    ("llama", dict(num_key_value_heads=3), r"W_k\.weight differs"),
    ("llama", dict(tie_word_embeddings=True), r"lm_head\.weight differs from the embedding"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), REFUSED)
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, kind: str, changes: dict, message: str) -> None:
    publish(tmp_path, {"bert": "BertModel", "gpt2": "GPT2Model", "llama": "LlamaForCausalLM"}[kind])
    change(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        LOADERS[kind](tmp_path)
