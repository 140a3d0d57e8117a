"""The table of architectures: what stands in it can be trained, saved, loaded and searched; a row is enough."""

from dataclasses import dataclass

import pytest
import torch

from annotated.decoding import Translator
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated_workbench.architectures import ARCHITECTURES, PRESETS, Architecture, architecture_of, make_model
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.command_line import main

PAIRS = [["eins zwei", "drei", "vier eins", "zwei drei vier"], ["one two", "three", "four one", "two three four"]]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_the_model_of_its_row(name):
    config = PRESETS[name](31, dropout=0.25, layers=1)
    row = ARCHITECTURES[architecture_of(config)]
    assert name in row.presets and (config.vocab_size, config.dropout) == (31, 0.25)
    with torch.device("meta"):
        model = make_model(config)
    assert type(model) is row.model and model.config is config
    assert isinstance(model, Translator) == (row.task == "translation")


@dataclass(frozen=True)
class EchoConfig(RecurrentConfig):
    """Another class, so another row."""

    d_model: int = 16


class Echo(RecurrentTranslator):
    """A model that the table doesn't know, and that has no fast form."""


@pytest.mark.parametrize("plain", [[], ["--plain"]])
def test_a_row_is_enough_to_train_save_load_and_translate(plain, monkeypatch, tmp_path, capsys):
    row = Architecture(Echo, EchoConfig, {"echo": EchoConfig})
    monkeypatch.setitem(ARCHITECTURES, "echo", row)
    monkeypatch.setitem(PRESETS, "echo", EchoConfig)  # which is made of the table when it is imported
    words = ["train", "--out", str(tmp_path / "run"), "--preset", "echo", "--tokenizer", "words", *plain]
    words += ["--epochs=40", "--batch-tokens=16", "--warmup=10", "--average=1", "--rate=3", "--dropout=0"]
    for option, texts in zip(("source", "target"), PAIRS, strict=True):
        (tmp_path / option).write_text("".join(f"{text}\n" for text in texts * 3), encoding="utf-8")
        words += [f"--{option}", str(tmp_path / option)]
    assert main(words) == 0
    model, info = load_checkpoint(tmp_path / "run")
    assert type(model) is Echo and model.config == EchoConfig(12, dropout=0.0)
    assert (info["src"], info["tgt"]) == ("de", "en")
    capsys.readouterr()
    for beam in "03":
        assert main(["translate", str(tmp_path / "run"), "drei", "--beam", beam, *plain]) == 0
    assert capsys.readouterr().out == "three\nthree\n"
