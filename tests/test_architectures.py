"""The table of architectures: what stands in it can be trained, saved, loaded and searched; a row is enough."""

import json
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from annotated.decoding import Translator
from annotated_workbench import command_line
from annotated_workbench.architectures import ARCHITECTURES, PRESETS, Architecture, architecture_of, make_model
from annotated_workbench.checkpoint import load_checkpoint, load_translator, save_checkpoint
from annotated_workbench.data import Pairs
from annotated_workbench.metrics import loss_per_token
from annotated_workbench.runs import TrainingOptions, train
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer

WORDS = ["eins", "zwei", "drei", "vier", "one", "two", "three", "four"]
TOKENIZER = WordTokenizer(Vocabulary([*SPECIALS, *WORDS]), ("de", "en"))
PAIRS = Pairs(["eins zwei", "drei", "vier eins", "zwei drei vier"], ["one two", "three", "four one", "two three four"])


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


@pytest.fixture
def row(monkeypatch) -> None:
    """Add the row, and its presets to those that are made of the table when it is imported."""
    monkeypatch.setitem(ARCHITECTURES, "bag", Architecture(Bag, BagConfig, {"bag": BagConfig}))
    monkeypatch.setitem(PRESETS, "bag", ARCHITECTURES["bag"].presets["bag"])


def make_bag() -> Bag:
    return make_model(BagConfig(len(TOKENIZER))).eval()


def test_a_row_is_enough_to_save_and_load(row, tmp_path):
    model = make_bag()
    save_checkpoint(tmp_path, model, src="de", tgt="en")
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert content["architecture"] == "bag"
    assert content["model"] == {"vocab_size": 12, "d_model": 16, "layers": 1, "dropout": 0.0, "max_length": 21}
    loaded, info = load_checkpoint(tmp_path)
    assert type(loaded) is Bag
    assert loaded.config == model.config
    assert info == {"src": "de", "tgt": "en"}
    src, tgt = torch.tensor([[4, 5, 2]]), torch.tensor([[1, 8]])
    assert torch.equal(loaded(src, tgt), model(src, tgt))


@pytest.mark.parametrize("plain", [False, True])
def test_a_row_is_enough_to_train_and_translate(row, tmp_path, plain):
    options = TrainingOptions(epochs=30, batch_tokens=16, warmup=10, average=1, rate=3.0, smoothing=0.0, plain=plain)
    metrics = train(make_bag(), TOKENIZER, PAIRS, PAIRS, tmp_path, options=options)
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    model, tokenizer, info = load_translator([tmp_path])
    assert type(model) is Bag
    for beam in (0, 3):
        assert translate(model, tokenizer, ["drei"], info["src"], beam=beam, plain=plain) == ["three"]
    assert loss_per_token(model, tokenizer, PAIRS, "de", "en") == pytest.approx(metrics[-1]["loss"], abs=0.3)


def test_a_row_is_enough_for_the_command_line(row, tmp_path, capsys):
    files = {}
    for option, texts in zip(("source", "target"), PAIRS, strict=True):
        files[option] = tmp_path / option
        files[option].write_text("".join(f"{text}\n" for text in texts * 3), encoding="utf-8")
    out = str(tmp_path / "run")
    words = ["train", "--source", str(files["source"]), "--target", str(files["target"]), "--out", out]
    assert command_line.main([*words, "--preset", "bag", "--tokenizer", "words", "--epochs", "1"]) == 0
    assert type(load_checkpoint(out)[0]) is Bag
    capsys.readouterr()
    assert command_line.main(["translate", out, "eins", "--precision", "fp32"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
