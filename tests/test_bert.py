"""BERT: what it sees, its parts beside PyTorch's and Hugging Face's, its sizes, what is hidden, and published files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import randomise, torch_parameters
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.config import BOS, EOS, PAD
from annotated.models.bert import NO_TARGET, Bert, BertConfig, hide_for_prediction
from annotated_workbench.checkpoint import save_tensors
from annotated_workbench.published import load_bert

SIZES = dict(vocab_size=19, d_model=6, d_ff=11, heads=2, layers=3, dropout=0.0, max_length=7, segments=3)
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, PAD, PAD]])
SEGMENTS = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 0, 0]])
SETTINGS = {
    "model_type": "bert",
    "vocab_size": 19,
    "hidden_size": 6,
    "intermediate_size": 11,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
    "type_vocab_size": 3,
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


def make_model(**changes) -> Bert:
    """Make a model in which every weight counts."""
    return randomise(Bert(BertConfig(**(SIZES | changes)))).eval()


# What it computes


def test_it_is_the_encoder_behind_one_more_layer_norm() -> None:
    model = make_model()
    x = model.embedding.weight[IDS] + model.positions.table[:5] + model.segments.weight[SEGMENTS]
    x = F.layer_norm(x, (6,), model.norm.gain, model.norm.bias, 1e-12)
    layer = nn.TransformerEncoderLayer(6, 2, 11, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    weights = {n: w for n, w in torch_parameters(model.encoder).items() if not n.startswith("norm")}
    expected = functional_call(theirs, weights, (x,), {"src_key_padding_mask": IDS == PAD})
    real = IDS != PAD
    assert_close(model.states(IDS, SEGMENTS)[real], expected[real])


def test_the_pooler_and_the_head_by_their_formulas() -> None:
    model, states = make_model(), torch.randn(2, 5, 6)
    assert_close(model.pooled(states), (states[:, 0] @ model.pooler.weight.T + model.pooler.bias).tanh())
    head = model.head
    hidden = F.gelu(states @ head.linear.weight.T + head.linear.bias)
    hidden = F.layer_norm(hidden, (6,), head.norm.gain, head.norm.bias, 1e-12)
    assert_close(model.logits(states), hidden @ model.embedding.weight.T + head.bias)


# Sizes


@pytest.mark.parametrize(("size", "body"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes_have_the_published_number_of_parameters(size: str, body: int) -> None:
    config = BertConfig.published(size)
    d, f, n = config.d_model, config.d_ff, config.layers
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    assert (30522 + 512 + 2) * d + 2 * d + n * layer + d * d + d == body
    with torch.device("meta"):
        model = Bert(config)
    assert sum(p.numel() for p in model.parameters()) == body + d * d + d + 2 * d + 30522


# What is hidden


def test_the_chosen_are_hidden_in_three_ways() -> None:
    ids = torch.full((400, 100), 7)
    ids[:, 88:] = torch.tensor([BOS, EOS] + [PAD] * 10)
    read, targets = hide_for_prediction(ids, 50, (20, 40), generator=torch.Generator().manual_seed(0))
    chosen = targets != NO_TARGET
    assert (targets[chosen] == 7).all() and not chosen[:, 88:].any()
    assert torch.equal(read[~chosen], ids[~chosen])
    assert chosen[:, :88].double().mean().item() == pytest.approx(0.15, abs=0.01)
    kinds = read[chosen]
    random = (kinds >= 20) & (kinds < 40)
    assert (kinds == 50).double().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (kinds == 7).double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert random.double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert kinds[random].unique().tolist() == list(range(20, 40))


# Published files


def tensors_of(model: Bert) -> dict[str, Tensor]:
    """Arrange our parameters under the names of a published file, written out one by one."""
    e, head = "embeddings", model.head
    found = {
        f"bert.{e}.word_embeddings.weight": model.embedding.weight,
        f"bert.{e}.position_embeddings.weight": model.positions.table,
        f"bert.{e}.token_type_embeddings.weight": model.segments.weight,
        f"bert.{e}.LayerNorm.gamma": model.norm.gain,
        f"bert.{e}.LayerNorm.beta": model.norm.bias,
        "bert.pooler.dense.weight": model.pooler.weight,
        "bert.pooler.dense.bias": model.pooler.bias,
        "cls.predictions.bias": head.bias,
        "cls.predictions.transform.dense.weight": head.linear.weight,
        "cls.predictions.transform.dense.bias": head.linear.bias,
        "cls.predictions.transform.LayerNorm.gamma": head.norm.gain,
        "cls.predictions.transform.LayerNorm.beta": head.norm.bias,
    }
    for number, layer in enumerate(model.encoder.layers):
        start, attention, feed_forward = f"bert.encoder.layer.{number}", layer.self_attention, layer.feed_forward
        parts: dict[str, Any] = {
            "attention.self.query": attention.W_q,
            "attention.self.key": attention.W_k,
            "attention.self.value": attention.W_v,
            "attention.output.dense": attention.W_o,
            "intermediate.dense": feed_forward.W_1,
            "output.dense": feed_forward.W_2,
        }
        for name, linear in parts.items():
            found |= {f"{start}.{name}.weight": linear.weight, f"{start}.{name}.bias": linear.bias}
        for name, residual in zip(("attention.output", "output"), layer.residuals, strict=True):
            norm = f"{start}.{name}.LayerNorm"
            found |= {f"{norm}.gamma": residual.norm.gain, f"{norm}.beta": residual.norm.bias}
    return found


def write(folder: Path, tensors: dict[str, Tensor], **changes) -> Path:
    (folder / "config.json").write_text(json.dumps(SETTINGS | changes))
    save_tensors(folder / "model.safetensors", tensors)
    return folder


def test_a_folder_gives_the_model(tmp_path: Path) -> None:
    model = make_model(layers=1)
    extra = {
        "bert.embeddings.position_ids": torch.arange(7)[None],
        "cls.seq_relationship.weight": torch.zeros(2, 6),
        "cls.predictions.decoder.weight": model.embedding.weight.clone(),
    }
    found = load_bert(write(tmp_path, tensors_of(model) | extra))
    assert not found.training and found.config.dropout == 0.1
    assert_close(found(IDS, SEGMENTS), model(IDS, SEGMENTS))
    assert_close(found.pooled(found.states(IDS)), model.pooled(model.states(IDS)))


def test_a_part_without_weights_is_left_out_and_not_random(tmp_path: Path) -> None:
    model = make_model(layers=1)
    body = {n.removeprefix("bert."): w for n, w in tensors_of(model).items() if n.startswith("bert.")}
    found = load_bert(write(tmp_path, {n: w for n, w in body.items() if "pooler" not in n}))
    states = found.states(IDS, SEGMENTS)
    assert_close(states, model.states(IDS, SEGMENTS))
    with pytest.raises(ValueError, match="has no head"):
        found.logits(states)
    with pytest.raises(ValueError, match="has no pooler"):
        found.pooled(states)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "gpt2"}, "type 'gpt2', not 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act='relu'; this model has only 'gelu'"),
        ({"pad_token_id": 1}, "pad_token_id=1; this model has only 0"),
        ({"hidden_size": "6"}, "no number for hidden_size"),
        ({"num_hidden_layers": 2}, "encoder.layers.1"),
        ({"vocab_size": 20}, "embedding.weight differs"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_bert(write(tmp_path, tensors_of(make_model(layers=1)), **settings))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no .*config.json: give a folder"):
        load_bert(tmp_path)
    tensors = tensors_of(make_model(layers=1))
    with pytest.raises(ValueError, match=r"decoder\.weight differs from the embedding"):
        load_bert(write(tmp_path, tensors | {"cls.predictions.decoder.weight": torch.zeros(19, 6)}))
    (write(tmp_path, tensors) / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        load_bert(tmp_path)
    (write(tmp_path, tensors) / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="one safetensors file is read"):
        load_bert(tmp_path)


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForPreTraining"])
def test_states_and_logits_are_hugging_faces(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")
    sizes = {k: v for k, v in SETTINGS.items() if k not in ("model_type", "num_hidden_layers")}
    theirs = randomise(getattr(transformers, kind)(transformers.BertConfig(num_hidden_layers=3, **sizes))).eval()
    theirs.save_pretrained(tmp_path)
    ours, real = load_bert(tmp_path), IDS != PAD
    with torch.no_grad():
        found = theirs(input_ids=IDS, attention_mask=real.long(), token_type_ids=SEGMENTS, output_hidden_states=True)
        states = ours.states(IDS, SEGMENTS)
        assert found.hidden_states[-1][real].std() > 0.1
        assert_close(states[real], found.hidden_states[-1][real], rtol=0, atol=1e-4)
        if kind == "BertModel":
            assert_close(ours.pooled(states), found.pooler_output, rtol=0, atol=1e-4)
        else:
            logits = found.logits if kind == "BertForMaskedLM" else found.prediction_logits
            assert_close(ours(IDS, SEGMENTS)[real], logits[real], rtol=0, atol=1e-4)
    assert (ours.head is None, ours.pooler is None) == (kind == "BertModel", kind == "BertForMaskedLM")
    capfd.readouterr()
