"""The doctor is silent on sound models, finds what is planted, and says clearly what it cannot use."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch import Tensor, nn

from annotated.__main__ import main
from annotated.config import PAD, TransformerConfig
from annotated.encoder import Dropout, LayerNorm, Residual
from annotated.masking import padding_mask
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.chapters.c19_debugging.exercises import FAULTS, Recipe
from annotated_course.doctor import CHECKS, Check, Finding, examine
from annotated_course.doctor.parity import record_calls
from annotated_course.doctor.recipe import loaded, make_recipe
from annotated_course.exercises.exercise import slip
from experiments import strangers
from tests.doctor import translators
from tests.doctor.faults import FAULTS as PLANTED
from tests.doctor.faults import named, sick
from tools.sync import ROOT

CONFIG = TransformerConfig(14, d_model=32, d_ff=64, heads=2, layers=2, max_length=16)
TEXT = LanguageModelConfig(14, d_model=32, d_ff=64, heads=2, layers=2, max_length=16)
OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)
WITHOUT_LEARNING = [check for check in CHECKS if check.name not in ("learns", "writes")]


def only(*names: str) -> list[Check]:
    return [check for check in CHECKS if check.name in names]


def finding(name: str, recipe: Any, **parts: Any) -> Finding:
    """What does the check of this name find?"""
    (found,) = examine(recipe, checks=only(name), **parts)
    return found


def planted(old: type[nn.Module], **methods: Any) -> Callable[[], nn.Module]:
    """Make a model whose parts of one class have other methods."""
    other = type(f"Planted{old.__name__}", (old,), methods)

    def build() -> nn.Module:
        model = Transformer(CONFIG)
        for part in model.modules():
            if type(part) is old:
                part.__class__ = other
        return model

    return build


def attends(hidden: float, scale: float = 0.25) -> Callable[[], nn.Module]:
    """Make a model with a fault in the softmax of its attention."""

    def attend(self, query, keys, values, mask=None):
        scores = self.split(self.W_q(query)) @ keys.transpose(-2, -1) * scale
        weights = scores.masked_fill(~mask, hidden).softmax(dim=-1)
        return self.W_o((weights @ values).transpose(1, 2).flatten(2))

    return planted(MultiHeadAttention, attend=attend)


def listed() -> nn.Module:
    model = planted(Transformer, logits=lambda self, states: Transformer.logits(self, self.more[0](states)))()
    model.more = [nn.Linear(32, 32)]
    return model


def changed_logits(change: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return planted(Transformer, logits=lambda self, states: change(Transformer.logits(self, states)))


# With a fault each, by the check that is meant for it; those of all other checks are PLANTED.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "finite": changed_logits(lambda logits: logits / 0.0),
    "first_loss": changed_logits(lambda logits: logits * 4),
    "quiet_dropout": planted(Dropout, forward=lambda self, x: x),
    "spread": attends(-1e9, scale=1.0),
    "empty": attends(-torch.inf),
    "forgets": listed,
    "slope": planted(Residual, forward=lambda part, x, layer: Residual.forward(part, x, lambda y: layer(y.detach()))),
    "past": lambda: strangers.Wrapped("batch_first forgotten"),
}
RECIPES = {  # the same, as changes in the source of chapter 19's recipe
    "order": FAULTS["order"],
    "learns": "set_rate(optimizer, self.plan(step)) → return 0.0",
    "strangers": FAULTS["test words in training"],
}


@pytest.mark.parametrize("name", [*MODELS, *RECIPES])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # PyTorch's, where batch_first is forgotten
def test_a_fault_is_found_by_the_check_that_is_meant_for_it(name: str) -> None:
    found = finding(name, MODELS.get(name) or slip(Recipe, RECIPES[name])())
    assert found.mark == ("~" if name == "empty" else "✗") and "raised" not in found.result


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_in_a_stranger_s_model_is_named_but_what_the_table_says_is_missed(name: str) -> None:
    changes, meant = PLANTED[name]
    checks = only(*re.findall(r"(\w+)(?:: [^,]*)?", meant))
    assert named(examine(sick(changes), checks=checks), meant) == (meant[0] != "–")


def test_a_sound_model_passes_every_check_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotated_course.doctor.writing.SECONDS", 600.0)
    state, default = torch.random.get_rng_state(), torch.get_default_dtype()
    report = examine(Recipe)
    assert report.failed == []
    assert {found.check.name for found in report if found.mark == "–"} == {"parity"}
    assert torch.equal(torch.random.get_rng_state(), state) and torch.get_default_dtype() == default
    planted = {check for _, checks in PLANTED.values() for check in re.findall(r"(\w+)(?:: [^,]*)?", checks)}
    assert {*MODELS, *RECIPES, *planted, "parity"} == {check.name for check in CHECKS}  # each is tried here


def by_scaled_dot_product(self: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    heads = nn.functional.scaled_dot_product_attention(self.split(self.W_q(query)), keys, values, attn_mask=mask)
    return self.W_o(heads.transpose(1, 2).flatten(2))


SCALED = planted(MultiHeadAttention, attend=by_scaled_dot_product)


@pytest.mark.parametrize("model", [lambda: LanguageModel(TEXT), SCALED, strangers.Wrapped])
def test_attention_is_seen_by_softmax_by_scaled_dot_product_and_in_nn_multihead_attention(model: Any) -> None:
    assert [found.mark for found in examine(model, checks=only("spread", "rows_sum_to_one"))] == ["✓", "✓"]


@pytest.mark.parametrize("fault", strangers.WRAPPED_FAULTS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_the_usual_mistakes_with_nn_transformer_are_found(fault: str) -> None:
    some = only("finite", "future", "past", "padding", "company")
    assert examine(lambda: strangers.Wrapped(fault), checks=some).failed


def test_strangers_cause_no_false_alarm() -> None:
    report = examine(strangers.Wrapped, checks=WITHOUT_LEARNING)
    assert report.failed == []
    assert report.noted == (["empty"] if OLD_TORCH else [])  # its attention makes NaN where a row is padding alone


def loss_with(answers: slice = slice(1, None), **options: Any) -> Callable[..., Tensor]:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        logits = model(src, tgt[:, :-1]).mT
        return nn.functional.cross_entropy(logits, tgt[:, answers], ignore_index=PAD, **options)

    return loss


def test_a_smoothed_loss_and_a_sum_are_sound_and_a_wrong_loss_is_named() -> None:
    for options in ({"label_smoothing": 0.1}, {"reduction": "sum"}, {"label_smoothing": 0.1, "reduction": "sum"}):
        found = finding("cross_entropy", Recipe, loss=loss_with(**options))
        assert found.mark == "✓" and found.result.endswith(": 0.1/V for each token") == ("label_smoothing" in options)
    found = finding("cross_entropy", Recipe, loss=loss_with(slice(None, -1)))
    assert found.mark == "✗" and "the answers are the inputs" in found.result


@pytest.mark.parametrize(
    ("average", "mark", "words"),
    [
        (lambda nats, real: nats.sum() / real.sum() - 0.7, "✓", ": right, less 0.7 for each token"),
        (lambda nats, real: (nats.sum(1) / real.sum(1)).mean(), "~", "so that short ones weigh more"),
    ],
)
def test_a_constant_changes_no_gradient_and_the_mean_of_means_differs(average, mark, words) -> None:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        return average(loss_with(reduction="none")(model, src, tgt), tgt[:, 1:] != PAD)

    found = finding("cross_entropy", Recipe, loss=loss)
    assert found.mark == mark and found.result.endswith(words)


@pytest.mark.parametrize(
    ("clears", "words"),
    [("after", "0 mistakes"), ("before", "since the last step it holds the gradient 0.0, 0.0, 1.0")],
)
def test_accumulation_over_updates_is_sound_if_it_clears_after_a_step(clears: str, words: str) -> None:
    def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, ...], step: int) -> None:
        if clears == "before":
            optimizer.zero_grad()
        (loss_with()(model.train(), *batch) / 3).backward()
        if step % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    found = finding("gradient", Recipe, update=update)
    assert words in found.result and (found.mark == "✓") == (clears == "after")


BUT = "for all but the right one"


@pytest.mark.parametrize(
    ("masked", "reduction", "mark", "result"),
    [([PAD], "sum", "✓", f"(V − 2) {BUT} and padding, less"), ([], "batchmean", "✗", f"(V − 1) {BUT}, less")],
)
def test_label_smoothing_as_tutorials_write_it_is_known_by_its_constant(masked, reduction, mark, result) -> None:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        log_probs, answers = model(src, tgt[:, :-1]).log_softmax(dim=-1).flatten(0, 1), tgt[:, 1:].flatten()
        target = torch.full_like(log_probs, 0.1 / (log_probs.size(-1) - 1 - len(masked)))
        target.scatter_(1, answers[:, None], 0.9)[:, masked] = 0
        target[answers == PAD] = 0
        return nn.functional.kl_div(log_probs, target, reduction=reduction)

    found = finding("cross_entropy", Recipe, loss=loss)
    assert found.mark == mark and f"label smoothing of 0.1: 0.1/{result} the target's entropy, " in found.result
    assert found.result.endswith(", but divided by all places, padding's too") == (reduction == "batchmean")


def test_ids_lie_in_one_piece() -> None:
    viewed = planted(Transformer, forward=lambda m, *ids: Transformer.forward(m, *(i.view(-1).view_as(i) for i in ids)))
    assert examine(viewed, checks=WITHOUT_LEARNING).failed == []


@pytest.mark.parametrize(
    ("build", "first"),
    [
        (lambda: Transformer(CONFIG), ""),
        (planted(Transformer, _embed=lambda m, e, ids, at=0: m.dropout(m.positions(e(ids), at))), "positions"),
        (planted(LayerNorm, forward=translators.DeviationNorm.forward), "encoder.layers.0.residuals.0.norm"),
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


@pytest.mark.parametrize("name", ["nanogpt", "mingpt", "xtransformer", "former", "bert", "reverser", "words"])
def test_the_best_known_models_of_one_text_raise_no_alarm(name: str) -> None:
    with loaded(str(ROOT / "tests" / "doctor" / f"texts.py:{name}")) as recipe:
        report = examine(recipe)
    noted = {"words": ["no_twins", "learns"]}  # PyTorch's copies, and a rate for longer training
    assert (report.failed, report.noted) == ([], noted.get(name, [])), report


TRANSLATORS = {  # what is found, and what noted
    "harvard": "rates",  # each is that of the update before
    "hkproj": "",
    "gordicaleksa": "cross_entropy, empty",
    "tunz": "",
    "jadore": "embeddings",
    "hyunwoongko": "embeddings",
    "brandokoch": "empty",
    "bentrevett": "",
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_of_the_best_known_translators_only_true_faults_are_found(name: str) -> None:
    with loaded(str(ROOT / "tests" / "doctor" / f"translators.py:{name}")) as recipe:
        report = examine(recipe)
    assert ", ".join(sorted(report.failed + report.noted)) == TRANSLATORS[name], report


def test_the_report_is_a_page() -> None:
    def forward(self: Any, src: Tensor, tgt: Tensor) -> Tensor:  # sees the future in training
        return Transformer.forward(self, src, tgt, None, padding_mask(tgt) if self.training else None)

    report = examine(planted(Transformer, forward=forward), checks=WITHOUT_LEARNING)
    text = str(report)
    assert report.failed == ["future"] and repr(report) == text
    assert "✗ future          15 places of the future are read (should be 0): in training mode\n" in text
    assert "    Taught in 06_masking, “6. A loss that is too good to be true”.\n" in text
    assert "– moves: not examined, give optimizer=…\n" in text and text.endswith("\n1 of 30 checks found something.")


def test_what_a_check_raises_is_a_finding_and_the_others_go_on() -> None:
    def loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        raise RuntimeError("two\n lines")

    wrong, right = examine(Recipe, checks=only("cross_entropy", "strangers"), loss=loss)
    assert "raised RuntimeError in test_doctor.py, line " in wrong.result and wrong.result.endswith(": two lines")
    assert (wrong.mark, right.mark) == ("✗", "✓")


def test_every_check_is_taught_where_it_says() -> None:
    for check in CHECKS:
        lesson = nbformat.read(ROOT / "notebooks" / f"{check.taught}.ipynb", as_version=4)
        text = "\n".join(cell.source for cell in lesson.cells if cell.cell_type == "markdown")
        assert re.search(rf"^#+ {re.escape(check.section)}$", text, re.MULTILINE), check.name


WITH_FILE = """
import sys, torch
from torch import nn; from annotated_course.doctor import Recipe
class Small(nn.Module):
    def __init__(self, size=50):
        super().__init__()
        self.e, self.o = nn.Embedding(size, 8), nn.Linear(8, 50)
    def forward(self, ids):
        return self.o(self.e(ids))
class Few(Small):
    def __init__(self): super().__init__(5)
class Last(Small):
    def forward(self, ids): return super().forward(ids)[:, -1]
class Masks(Small):
    def forward(self, src, tgt, mask): return super().forward(tgt)
made = Small()
class Leaves(Small):
    def forward(self, ids): sys.exit(0)
class Ends(Recipe):
    build = Small
    def batch(self, words=()): sys.exit(0)
"""
ENDS = {
    "exits": "sys.exit(0)",
    "reads": "import argparse; p = argparse.ArgumentParser(); p.add_argument('text'); p.parse_args()",
    "trains": "torch.optim.SGD(made.parameters(), 1.0).step()",
}
BAD = {
    "": "the following arguments are required: FILE.py:NAME",
    "mine.py": "'mine.py' names no model: give FILE.py:NAME",
    "other.py:Small": "there is no file other.py.",
    "broken.py:Small": "broken.py raised ZeroDivisionError in broken.py, line 2: division by zero",
    "exits.py:Small": "exits.py raised SystemExit in exits.py, line 22: 0 (the doctor runs the file; put what only a ",
    "reads.py:Small": "reads.py raised SystemExit in reads.py, line 22: 2 (the doctor runs the file; put what only a ",
    "trains.py:Small": "trains.py raised SystemExit in trains.py, line 22: it trains (the doctor runs the file; put ",
    "mine.py:Leaves": "the model raised SystemExit in mine.py, line 18: 0 (given ids from 0 to 13",
    "mine.py:Ends": "mine.py raised SystemExit in mine.py, line 21: 0.",
    "mine.py:Other": "mine.py defines no 'Other'; it defines Small, Few, Last, Masks, made, Leaves, Ends.",
    "mine.py:made": "this Small is made already: give its class, or a function that makes one",
    "mine.py:Few": "the model raised IndexError in mine.py, line 9: index out of range in self (given ids from 0 to 13",
    "mine.py:Last": "from ids (8, 6) the model made (8, 50), not (8, 6, 'vocabulary'): give logits=…",
    "mine.py:Masks": "Masks.forward takes (src, tgt, mask); the doctor has (src, tgt) or (ids): give",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(WITH_FILE)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    for name, last in ENDS.items():
        (tmp_path / f"{name}.py").write_text(WITH_FILE + last)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(ROOT), *sys.path])
    return tmp_path


@pytest.mark.parametrize("word", BAD)
def test_bad_input_ends_in_one_line(word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *([word] if word else [])]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"annotated: {BAD[word]}") and printed.out == ""


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^losss= is no part of a recipe; they are bos, build, copy, "):
        examine(Recipe, losss=1)
    with pytest.raises(ValueError, match=r"^kind='decoder' is none of 'encoder-decoder', 'language"):
        examine(Recipe, kind="decoder")


@pytest.mark.parametrize("build", [partial(LanguageModel, TEXT), partial(Transformer, CONFIG)])
def test_what_takes_any_number_of_inputs_is_of_the_kind_that_works(build: Any, monkeypatch) -> None:
    kind, forward = make_recipe(build).kind, build.func.forward
    monkeypatch.setattr(build.func, "forward", lambda *given: forward(*given))
    assert make_recipe(build).kind == make_recipe(build, logits=lambda *given: given[0](*given[1:])).kind == kind
    assert torch.get_default_dtype() == torch.float32


def test_the_command_prints_what_it_found_and_a_file_with_a_module_s_name_is_apart(folder, capsys, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = sys.path, [*sys.path], sys.argv
    (folder / "helper.py").write_text("size = 44")
    late = "def late():\n    import colorsys, helper\n    return Small(helper.size + len(colorsys.__all__))\n"
    (folder / "colorsys.py").write_text(WITH_FILE + late)
    assert main(["doctor", "colorsys.py:late"]) == 1
    assert "helper" not in sys.modules and (sys.path, sys.path, sys.argv) == before
    printed = capsys.readouterr().out
    assert "✗ past            15 places of the past are not read (should be 0)\n" in printed
    assert printed.endswith(" checks found something.\n") and "✓ steady" in printed


def test_a_file_in_the_reader_s_folder_stands_for_none_of_python_s_or_a_package_s(folder: Path) -> None:
    for name in ("copy", "jaxtyping", "numpy", "tokenizers", "torch"):
        (folder / f"{name}.py").write_text("1 / 0")
    command = [sys.executable, "-m", "annotated", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_the_page_s_models_are_examined_as_it_says() -> None:
    page = (ROOT / "docs" / "DOCTOR.md").read_text(encoding="utf-8")

    make_text_model = partial(LanguageModel, TEXT)
    names: dict[str, Any] = {
        "make_model": lambda _: translators.AnnotatedTransformer(),
        "MyLanguageModel": make_text_model,
    }
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    some = only("source", "order", "company", "padding", "future", "cross_entropy", "moves")
    for adapter in re.findall(r"```py\n(.*?)```", page, re.DOTALL):
        compile(adapter, "adapter", "exec")
        assert adapter.count("\n") <= 6, adapter
    report = examine(names["MyTransformer"], checks=some)
    assert report.failed == ["padding"]
    shown = next(block for block in page.split("```") if "✗" in block)
    assert shown.strip() in str(report)
    assert examine(names["MyText"]).failed == []
    assert examine(names["theirs"], checks=some).failed == []


def test_a_model_whose_calls_were_recorded_is_left_as_it_was() -> None:
    model = Transformer(CONFIG)
    with pytest.raises(IndexError), record_calls(model):
        model.encode(torch.tensor([[99]]))
    assert not any(module._forward_hooks for module in model.modules())
