"""Models on disk: whole, the same bit for bit, never pickled; and their average."""

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from annotated.fast.accelerate import accelerate
from annotated.models.relative_positions import RotaryAttention
from annotated.transformer import Transformer
from annotated_course import own_model
from annotated_course.own_model import my_model
from annotated_workbench.checkpoint import average_checkpoints, load_checkpoint, load_weights, save_checkpoint
from annotated_workbench.data import read_lines
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.metrics import bleu
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import load_tokenizer
from tests.models import SIZES, VOCAB, make_model

DELIVERED = Path(__file__).resolve().parent.parent / "data" / "checkpoints" / "de-en"
SRC, TGT = torch.tensor([[5, 7, 11, 2]]), torch.tensor([[1, 4, 6, 9, 12]])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize(("tied", "count"), [(True, 1), (False, 3)])
def test_a_loaded_model_gives_the_same_logits_bit_for_bit(tmp_path, tied, count, positions):
    model = make_model(tie_embeddings=tied, positions=positions, norm_first=not tied)
    save_checkpoint(tmp_path / "a" / "b", model, src="de", note="gr\udcc3\udcb6\udcc3\udc9fer", settings={"epochs": 3})
    assert model.training
    before = torch.get_rng_state()
    loaded, info = load_checkpoint(str(tmp_path / "a" / "b"))
    assert torch.equal(torch.get_rng_state(), before), "loading draws nothing"
    assert not any(module.training for module in loaded.modules())
    assert torch.equal(loaded(SRC, TGT), model.eval()(SRC, TGT))
    assert (loaded.config, info) == (model.config, {"src": "de", "note": "größer", "settings": {"epochs": 3}})
    folder = tmp_path / "a" / "b"
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert "größer" in (folder / "config.json").read_text(encoding="utf-8")
    shapes = [tuple(weight.shape) for weight in load_file(folder / "model.safetensors").values()]
    assert shapes.count((VOCAB, SIZES["d_model"])) == count, "tied weights are stored once"
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}  # other libraries look for it


def put(path: str, value: Callable[[Transformer], Any]) -> Callable[[Transformer], None]:
    """Make a change: another part or setting in a place of the model."""
    *place, name = path.split(".")

    def change(model: Transformer) -> None:
        setattr(model.get_submodule(".".join(place)), name, value(model))

    return change


LAYER, ANOTHER = "encoder.layers.0", "another one would be read back"
CHANGES = {
    "rotary": (put(f"{LAYER}.self_attention", lambda m: RotaryAttention(8, 2, d_k=4, d_v=5)), ANOTHER),
    "forward": (put("output.forward", lambda m: lambda x: 2 * x @ m.output.weight.T), "has other logits"),
    "hook": (lambda m: m.output.register_forward_hook(lambda *args: 2 * args[2]), "has other logits"),
    "untied": (put("output.weight", lambda m: nn.Parameter(2 * m.output.weight)), "output.weight differs"),
    "quantised": (put("output", lambda m: nn.Identity()), "has other logits"),
    "config": (put("config", lambda m: replace(m.config, activation="silu")), "has other logits"),
    "not finite": (lambda m: nn.init.constant_(m.output.weight, math.nan), "src_embedding.weight holds NaN"),
    "ensemble": (lambda m: Ensemble([m]), ANOTHER),
    "wrapped": (lambda m: accelerate(m), ANOTHER),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_would_be_read_back_as_another_model_is_not_written(tmp_path, name):
    change, message = CHANGES[name]
    model = make_model()
    changed = change(model)
    with pytest.raises(ValueError, match=re.escape(message)):
        save_checkpoint(tmp_path / "run", changed if name in ("ensemble", "wrapped") else model)
    with pytest.raises(TypeError, match="a Linear has no config to be read back by"):
        save_checkpoint(tmp_path / "run", nn.Linear(2, 2))
    assert not (tmp_path / "run").exists()


def write(path: Path, **tensors: list[float]) -> Path:
    save_file({name: torch.tensor(values) for name, values in tensors.items()}, path)
    return path


def test_the_average_is_the_mean_by_hand(tmp_path):
    paths = [
        write(tmp_path / "1", gain=[1.0, 3.0], bias=[0.0], large=[2.0**24]),
        write(tmp_path / "2", gain=[5.0, 7.0], bias=[-3.0], large=[1.0]),
        write(tmp_path / "3", gain=[6.0, -1.0], bias=[9.0], large=[1.0]),
    ]
    average = average_checkpoints(paths)
    # 2²⁴ + 1 is no float32: adding in float32 would give 5592405.5.
    expected = {"gain": [4.0, 3.0], "bias": [2.0], "large": [5592406.0]}
    assert {name: weight.tolist() for name, weight in average.items()} == expected
    assert average["gain"].dtype == torch.float32


@pytest.mark.parametrize("other", [dict(gain=[1.0, 2.0, 3.0]), dict(bias=[1.0, 2.0])], ids=["shape", "name"])
def test_only_checkpoints_of_one_model_are_averaged(tmp_path, other):
    paths = [write(tmp_path / "1", gain=[1.0, 2.0]), write(tmp_path / "2", **other)]
    with pytest.raises(ValueError, match=r"2 holds other weights than .*1"):
        average_checkpoints(paths)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"model": {"depth": 3}}', b'{"model": {"vocab_size": "all"}}', b"\xff" * 99]
)
def test_a_damaged_configuration_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is damaged \(.{,150}\)"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(d_ff=12), r"not this model's: decoder\.layers\.0\.feed_forward\.W_1\.bias"),
        (dict(tie_embeddings=False), r"not this model's: output\.weight"),
        (math.nan, r"damaged: decoder\.layers\.1\.feed_forward\.W_2\.bias holds NaN or infinity"),
    ],
)
def test_weights_of_another_model_or_no_numbers_are_refused_and_change_nothing(change, message):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    other = make_model(**change if isinstance(change, dict) else {})
    if isinstance(change, float):
        other.decoder.layers[1].feed_forward.W_2.bias.data[3] = change
    with pytest.raises(ValueError, match=message):
        load_weights(model, dict(other.named_parameters()))
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["de-en", "de-en-best"])
def test_a_delivered_model_is_what_its_card_says(name: str) -> None:
    folder = DELIVERED.with_name(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 12_000_000
    model, info = load_checkpoint(folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,}" in (folder.parent / "README.md").read_text(encoding="utf-8")
    (translation,) = translate(model, load_tokenizer(folder), ["Ein Hund läuft durch das Gras."], info["src"])
    assert translation == "A dog runs through the grass."


@pytest.mark.parametrize(("name", "chase"), [("mine-minute", "dog dog"), ("mine", "dog cat"), ("mine-1", "dog cat")])
def test_a_model_like_the_readers_own_answers_the_riddle(name: str, chase: str, capsys) -> None:
    model, tokenizer = my_model(name)
    assert capsys.readouterr().out == f"The course's copy, data/checkpoints/{name}.\n"
    answers = translate(model, tokenizer, ["Der Hund jagt die Katze.", "Den Hund jagt die Katze."], "de")
    assert [answer.split()[1] for answer in answers] == chase.split()


@pytest.mark.parametrize(("epochs", "said"), [(0, "copy"), (3, "3 of 12 epochs"), (12, "Your own model, from")])
def test_the_readers_own_model_comes_first_once_it_is_trained(epochs, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(own_model, "OWN", tmp_path / "mine")
    shutil.copytree(DELIVERED.with_name("mine-1"), own_model.OWN)
    (own_model.OWN / "metrics.jsonl").write_text("{}\n" * epochs, encoding="utf-8")
    weights = next(my_model()[0].parameters())
    assert said in capsys.readouterr().out
    assert torch.equal(weights, next(my_model("mine-1" if epochs == 12 else "mine")[0].parameters()))
    monkeypatch.setattr(own_model.command_line, "main", print)
    own_model.train_my_model()
    assert ("To train another, move" if epochs == 12 else "'--epochs', '12'") in capsys.readouterr().out


def test_the_delivered_model_translates_captions_it_has_never_seen(multi30k: Path) -> None:
    model, info = load_checkpoint(DELIVERED)
    sources, references = (read_lines(multi30k / f"test_2016_flickr.{side}")[:100] for side in ("de", "en"))
    score, _ = bleu(translate(model, load_tokenizer(DELIVERED), sources, info["src"], beam=0), references)
    assert score > 35
