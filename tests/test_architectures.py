"""The table of architectures: what stands in it can be trained, saved, loaded and searched; a row is enough."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from annotated.decoding import Translator
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


# One row more


@dataclass(frozen=True)
class BagConfig:
    """Sizes of a `Bag`."""

    vocab_size: int
    d_model: int = 16
    layers: int = 1
    dropout: float = 0.0
    max_length: int = 21


class BagCache:
    """Nothing is kept but the number of rows, so that a wrong selection is found."""

    rows: int | None = None

    def select(self, rows: torch.Tensor) -> None:
        assert self.rows is not None and (rows < self.rows).all()
        self.rows = len(rows)


class Bag(nn.Module):
    """A model with no order: the mean of the source's embeddings and the last word decide on the next."""

    def __init__(self, config: BagConfig):
        super().__init__()
        self.config = config
        self.source = nn.Embedding(config.vocab_size, config.d_model)
        self.target = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        src_mask = (src != 0)[:, None, None, :]
        return self.logits(self.decode(tgt, self.encode(src, src_mask), src_mask))

    def encode(self, src: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
        return self.source(src)

    def decode(self, tgt: torch.Tensor, memory: torch.Tensor, src_mask: torch.Tensor, *, cache: BagCache | None = None):
        if cache is not None:
            assert cache.rows in (None, len(tgt))
            cache.rows = len(tgt)
        real = src_mask[:, 0, 0, :, None]
        mean = (memory * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        return torch.tanh(self.target(tgt) + mean[:, None])

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.output(states)

    def new_cache(self) -> BagCache:
        return BagCache()


@pytest.mark.parametrize("plain", [[], ["--plain"]])
def test_a_row_is_enough_to_train_save_load_and_translate(plain, monkeypatch, tmp_path, capsys):
    row = Architecture(Bag, BagConfig, {"bag": BagConfig})
    monkeypatch.setitem(ARCHITECTURES, "bag", row)
    monkeypatch.setitem(PRESETS, "bag", BagConfig)  # which is made of the table when it is imported
    words = ["train", "--out", str(tmp_path / "run"), "--preset", "bag", "--tokenizer", "words", *plain]
    words += ["--epochs=20", "--batch-tokens=16", "--warmup=10", "--average=1", "--rate=3", "--dropout=0"]
    for option, texts in zip(("source", "target"), PAIRS, strict=True):
        (tmp_path / option).write_text("".join(f"{text}\n" for text in texts * 3), encoding="utf-8")
        words += [f"--{option}", str(tmp_path / option)]
    assert main(words) == 0
    model, info = load_checkpoint(tmp_path / "run")
    assert type(model) is Bag and model.config == BagConfig(12)
    assert (info["src"], info["tgt"]) == ("de", "en")
    capsys.readouterr()
    for beam in "03":
        assert main(["translate", str(tmp_path / "run"), "drei", "--beam", beam, *plain]) == 0
    assert capsys.readouterr().out == "three\nthree\n"
