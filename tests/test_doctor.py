"""The doctor is silent on sound models, finds what is planted, and says clearly what it cannot use."""

import copy
import json
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch import Tensor, nn

from annotated.__main__ import main
from annotated.config import PAD, TransformerConfig
from annotated.encoder import Dropout, LayerNorm
from annotated.masking import padding_mask
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.chapters.c19_debugging.exercises import WARD, patients
from annotated_course.doctor import CHECKS, Check, Finding, Recipe, examine
from annotated_workbench.data import DATA_FOLDER
from experiments import doctor as experiment
from experiments import strangers
from tools.sync import ROOT

CONFIG = TransformerConfig(14, d_model=32, d_ff=64, heads=2, layers=2, max_length=16)
TEXT = LanguageModelConfig(14, d_model=32, d_ff=64, heads=2, layers=2, max_length=16)
OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)


class Sound(Recipe):
    """A model of ours, with all that can be examined."""

    def build(self) -> nn.Module:
        return Transformer(CONFIG)

    def loss(self, model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(src, tgt[:, :-1]).mT, tgt[:, 1:], ignore_index=PAD)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters())

    def plan(self, step: int) -> float:
        return 5e-3 * min(1.0, step / 20)

    def update(self, model: nn.Module, optimizer: Any, batch: tuple[Tensor, ...], step: int) -> None:
        model.train()
        optimizer.param_groups[0]["lr"] = self.plan(step)
        optimizer.zero_grad()
        self.loss(model, *batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    def write(self, model: Any, src: Tensor) -> Tensor:
        ids = torch.full((len(src), 1), self.bos)
        for _ in range(7):
            ids = torch.cat((ids, model(src, ids)[:, -1:, 2:].argmax(dim=-1) + 2), dim=1)
        return ids

    def words(self, part: str) -> list[list[int]]:
        return {"train": [[4, 5], [5, 6]], "test": [[6, 7]]}[part]


def only(*names: str) -> list[Check]:
    return [check for check in CHECKS if check.name in names]


def finding(name: str, recipe: Any, **parts: Any) -> Finding:
    """What does the check of this name find?"""
    (found,) = examine(recipe, checks=only(name), **parts)
    return found


def planted(old: type[nn.Module], **methods: Any) -> Any:
    """Make a model whose parts of one class have other methods."""
    other = type(f"Planted{old.__name__}", (old,), methods)

    def build() -> nn.Module:
        model = Transformer(CONFIG)
        for part in model.modules():
            if type(part) is old:
                part.__class__ = other
        return model

    return build


def attends(axis: int, hidden: float) -> Any:
    def attend(self, query, keys, values, mask=None):
        scores = self.split(self.W_q(query)) @ keys.transpose(-2, -1) / 4
        weights = scores.masked_fill(~mask, hidden).softmax(dim=axis)
        return self.W_o((weights @ values).transpose(1, 2).flatten(2))

    return planted(MultiHeadAttention, attend=attend)


def twins() -> nn.Module:
    model = Transformer(CONFIG)
    model.decoder.layers[1].load_state_dict(model.decoder.layers[0].state_dict())
    return model


def listed() -> nn.Module:
    model = planted(Transformer, logits=lambda self, states: Transformer.logits(self, self.more[0](states)))()
    model.more = [nn.Linear(32, 32)]
    return model


def changed_logits(change: Any) -> Any:
    return planted(Transformer, logits=lambda self, states: change(Transformer.logits(self, states)))


def changed_memory(change: Any) -> Any:
    return planted(Transformer, encode=lambda self, src, mask=None: change(Transformer.encode(self, src, mask)))


future_in_training = planted(
    Transformer,
    forward=lambda self, src, tgt: Transformer.forward(
        self, src, tgt, None, padding_mask(tgt) if self.training else None
    ),
)
FAULTS: dict[str, Any] = {
    "finite": changed_logits(lambda logits: logits / 0.0),
    "probabilities": changed_logits(lambda logits: logits.softmax(dim=-1)),
    "first_loss": changed_logits(lambda logits: logits * 4),
    "source": changed_memory(torch.zeros_like),
    "reached": changed_memory(Tensor.detach),
    "steady": planted(Dropout, forward=lambda self, x: nn.functional.dropout(x, self.p)),
    "quiet_dropout": planted(Dropout, forward=lambda self, x: x),
    "order": planted(Transformer, _embed=lambda self, embedding, ids, start=0: self.dropout(embedding(ids))),
    "spread": planted(
        MultiHeadAttention, attend=lambda self, query, *others: MultiHeadAttention.attend(self, query * 4, *others)
    ),
    "rows_sum_to_one": attends(1, -1e9),
    "empty": attends(-1, -torch.inf),
    "no_twins": twins,
    "forgets": listed,
    "future": future_in_training,
    "past": planted(
        Transformer,
        decode=lambda self, tgt, memory, src_mask, tgt_mask=None, cache=None: Transformer.decode(
            self, tgt, memory, src_mask, torch.eye(tgt.size(1)).bool(), cache
        ),
    ),
    "company": planted(LayerNorm, forward=lambda self, x: LayerNorm.forward(self, x - x.mean(dim=0, keepdim=True))),
    "padding": patients()[next(letter for letter in WARD if WARD[letter] == "padding in cross-attention")],
}
SICK_PARTS: dict[str, dict[str, Any]] = {  # of a sound model
    "cross_entropy": {
        "loss": lambda model, src, tgt: nn.functional.cross_entropy(model(src, tgt[:, :-1]).mT, tgt[:, 1:])
    },
    "moves": {"optimizer": lambda model: torch.optim.Adam(list(model.parameters())[1:])},
    "gradient": {
        "update": lambda model, optimizer, batch, step: Sound().loss(model, *batch).backward() or optimizer.step()
    },
    "rates": {"update": lambda model, optimizer, batch, step: optimizer.step()},
    "strangers": {"words": lambda part: [(4, 5)]},
    "writes": {"write": lambda model, src: src},
    "learns": {"update": lambda model, optimizer, batch, step: None, "optimizer": Sound().optimizer},
    "reads_back": {
        "write": lambda model, src, tgt: torch.cat((tgt[:, :1], model(src, tgt)[..., 2:].argmax(-1) + 2), 1)
    },
}


@pytest.mark.parametrize("name", [*FAULTS, *SICK_PARTS])
def test_a_fault_is_found_by_the_check_that_is_meant_for_it(name: str) -> None:
    assert finding(name, FAULTS.get(name, Sound), **SICK_PARTS.get(name, {})).mark == "✗"


def test_a_sound_model_passes_every_check_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotated_course.doctor.checks.SECONDS", 600.0)
    state, default = torch.random.get_rng_state(), torch.get_default_dtype()
    report = examine(Sound)
    assert report.failed == []
    assert {found.check.name for found in report if found.mark == "–"} == {"parity"}
    assert torch.equal(torch.random.get_rng_state(), state) and torch.get_default_dtype() == default
    assert {*FAULTS, *SICK_PARTS, "parity"} == {check.name for check in CHECKS}  # each is tried here


class Through(nn.Module):
    """Attention over the ids' embeddings by one of PyTorch's three ways."""

    def __init__(self, way: str):
        super().__init__()
        self.way, self.embed = way, nn.Embedding(14, 8)
        self.attention = nn.MultiheadAttention(8, 1, batch_first=True)
        with torch.no_grad():  # the projections leave their input as it is
            self.attention.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        future = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        if self.way == "softmax":
            out = (x @ x.mT / 8**0.5).masked_fill(future, -torch.inf).softmax(dim=-1) @ x
        elif self.way == "scaled":
            out = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        else:
            out, _ = self.attention(x, x, x, attn_mask=future, need_weights=False)
        return out @ self.embed.weight.T


def test_attention_is_seen_whichever_of_pytorch_s_ways_it_takes() -> None:
    entropies = {finding("spread", lambda way=way: Through(way)).result for way in ("softmax", "scaled", "multi-head")}
    assert len(entropies) == 1 and "softmax" not in entropies.pop()


@pytest.mark.parametrize("fault", strangers.WRAPPED_FAULTS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # PyTorch's, where batch_first is forgotten
def test_the_usual_mistakes_with_nn_transformer_are_found(fault: str) -> None:
    assert examine(
        lambda: strangers.Wrapped(fault), checks=only("finite", "future", "past", "padding", "company")
    ).failed


WITHOUT_LEARNING = [check for check in CHECKS if check.name not in ("learns", "writes")]


def test_strangers_cause_no_false_alarm() -> None:
    from_pytorch = ["empty"] if OLD_TORCH else []  # nn.MultiheadAttention makes NaN where a row is nothing but padding
    assert examine(strangers.Wrapped, checks=WITHOUT_LEARNING).failed == from_pytorch
    as_published = examine(strangers.Annotated, checks=WITHOUT_LEARNING)
    assert as_published.failed == ["rates"]  # the first two are equal


def loss_with(answers: slice = slice(1, None), **options: Any) -> Any:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        logits = model(src, tgt[:, :-1]).mT
        return nn.functional.cross_entropy(logits, tgt[:, answers], ignore_index=PAD, **options)

    return loss


def test_a_smoothed_loss_and_a_sum_are_sound_and_a_wrong_loss_is_named() -> None:
    for options in ({"label_smoothing": 0.1}, {"reduction": "sum"}, {"label_smoothing": 0.1, "reduction": "sum"}):
        assert finding("cross_entropy", Sound, loss=loss_with(**options)).mark == "✓"
    found = finding("cross_entropy", Sound, loss=loss_with(slice(None, -1)))
    assert found.mark == "✗" and "the answers are the inputs" in found.result


def other_norm(self: Any, x: Tensor) -> Tensor:
    return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias


def unscaled(self: Any, embedding: Any, ids: Tensor, start: int = 0) -> Tensor:
    return self.dropout(self.positions(embedding(ids), start))


@pytest.mark.parametrize(
    ("build", "first"),
    [
        (lambda: Transformer(CONFIG), ""),
        (planted(Transformer, _embed=unscaled), "positions"),
        (planted(LayerNorm, forward=other_norm), "encoder.layers.0.residuals.0.norm"),
    ],
)
def test_the_first_tensor_that_differs_from_ours_is_named(build: Any, first: str) -> None:
    found = finding("parity", build, like=CONFIG)
    assert found.mark == ("✗" if first else "✓")
    assert f"the first is {first} (yours: {first})" in found.result or not first


def test_weights_go_into_a_model_with_other_names() -> None:
    names = {name: f"inner.{name}" for name, _ in LanguageModel(TEXT).named_modules() if name}

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = LanguageModel(TEXT)

        def forward(self, ids):
            return 2 * self.inner(ids)

    for like in (LanguageModel(TEXT), TEXT):
        assert finding("parity", lambda: LanguageModel(TEXT), like=like).mark == "✓"
    assert "the first is the logits, by " in finding("parity", Inside, like=TEXT, names=names).result
    del names["embedding"], names["output"]
    assert "names= does not say where inner." in finding("parity", Inside, like=TEXT, names=names).result


def test_the_report_is_a_page() -> None:
    report = examine(future_in_training, checks=WITHOUT_LEARNING)
    text = str(report)
    assert report.failed == ["future"] and repr(report) == text
    assert "✗ future          15 places of the future are read (should be 0): in training mode\n" in text
    assert "    Taught in 06_masking, “6. The leak, found”.\n" in text
    assert "– moves: not examined, give optimizer=…\n" in text and text.endswith("\n1 of 17 checks found something.")


def test_what_a_check_raises_is_a_finding_and_the_others_go_on() -> None:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        raise RuntimeError("two\n lines")

    wrong, right = examine(Sound, checks=only("cross_entropy", "strangers"), loss=loss)
    assert "raised RuntimeError in test_doctor.py, line " in wrong.result and wrong.result.endswith(": two lines")
    assert (wrong.mark, right.mark) == ("✗", "✓")


def test_every_check_is_taught_where_it_says() -> None:
    for check in CHECKS:
        lesson = nbformat.read(ROOT / "notebooks" / f"{check.taught}.ipynb", as_version=4)
        text = "\n".join(cell.source for cell in lesson.cells if cell.cell_type == "markdown")
        assert re.search(rf"^#+ {re.escape(check.section)}$", text, re.MULTILINE), check.name


WITH_FILE = """
import torch
from torch import nn
class Small(nn.Module):
    def __init__(self, size=50):
        super().__init__()
        self.e, self.o = nn.Embedding(size, 8), nn.Linear(8, 50)
    def forward(self, ids):
        return self.o(self.e(ids))
class Sizes(Small):
    def __init__(self, size): super().__init__(size)
class Few(Small):
    def __init__(self): super().__init__(5)
class Last(Small):
    def forward(self, ids): return super().forward(ids)[:, -1]
class Masks(Small):
    def forward(self, src, tgt, mask): return super().forward(tgt)
made = Small()
"""
BAD = {
    "": "the following arguments are required: FILE.py:NAME",
    "mine.py": "'mine.py' names no model: give FILE.py:NAME",
    "other.py:Small": "there is no file other.py.",
    "broken.py:Small": "broken.py raised ZeroDivisionError in broken.py, line 2: division by zero",
    "mine.py:Other": "mine.py defines no 'Other'; it defines Small, Sizes, Few, Last, Masks, made.",
    "mine.py:made": "this Small is made already: give its class, or a function that makes one",
    "mine.py:Sizes": "build() raised TypeError: Sizes.__init__() missing 1 required positional argument: 'size'",
    "mine.py:Few": "the model raised IndexError in mine.py, line 9: index out of range in self (given ids from 0 to 13",
    "mine.py:Last": "from ids (8, 6) the model made (8, 50), not (8, 6, 'vocabulary'): give logits=…",
    "mine.py:Masks": "Masks.forward needs 3 arguments (src, tgt, mask); the doctor has (src, tgt) or (ids): give",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(WITH_FILE)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(ROOT)])
    return tmp_path


@pytest.mark.parametrize("word", BAD)
def test_bad_input_ends_in_one_line(word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *([word] if word else [])]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"annotated: {BAD[word]}") and printed.out == ""


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^losss= is no part of a recipe; they are bos, build, copy, "):
        examine(Sound, losss=1)
    with pytest.raises(ValueError, match=r"^kind='encoder' is neither 'encoder-decoder' nor 'language model'\.$"):
        examine(Sound, kind="encoder")


def test_the_command_prints_what_it_found_and_a_file_called_like_a_module_replaces_none(folder, capsys) -> None:
    (folder / "copy.py").write_text(WITH_FILE)
    assert main(["doctor", "copy.py:Small"]) == 1
    assert sys.modules["copy"] is copy
    printed = capsys.readouterr().out
    assert "✗ past            15 places of the past are not read (should be 0)\n" in printed
    assert printed.endswith(" checks found something.\n") and "✓ steady" in printed


def test_the_experiment_s_file_is_of_its_models() -> None:
    content = json.loads((DATA_FOLDER / "results" / "doctor.json").read_text(encoding="utf-8"))
    expected = {(case.group, case.name) for case in experiment.cases()}
    assert {(row["group"], row["model"]) for row in content["models"]} == expected
    verdicts = Counter(row["verdict"] for row in content["models"])
    assert verdicts == {"found": 38, "missed": 1, "healthy": 8}  # as RESULTS says


def test_the_page_s_models_are_examined_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "DOCTOR.md").read_text(encoding="utf-8")

    make_text_model = partial(LanguageModel, TEXT)
    names: dict[str, Any] = {"make_model": strangers.AnnotatedTransformer, "MyLanguageModel": make_text_model}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    some = only("source", "order", "company", "padding", "future", "cross_entropy", "moves")
    report = examine(names["MyTransformer"], checks=some)
    assert report.failed == ["padding"]
    shown = next(block for block in page.split("```") if "✗" in block)
    assert shown.strip() in str(report)
    assert examine(names["MyText"]).failed == []
    assert examine(names["Theirs"], checks=some).failed == []
