"""The one file for download: what the command writes, torch alone, and the module's own numbers."""

import ast
import importlib.util
import json
import pathlib
import re
import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest
import safetensors.torch
import torch
from once import once
from parity import randomise
from torch import Tensor

import annotated.decoding
from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_checkpoint
from tools.sync import ROOT, definition
from tools.transformer_file import PARTS, TARGET, transformer_file

SIZES: dict[str, Any] = {"d_model": 24, "d_ff": 40, "heads": 4, "layers": 2, "d_k": 5}
SWITCHES = {"norm_first": True, "positions": "learned", "tie_embeddings": False, "activation": "gelu"}
SRC = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD]])
TGT = torch.tensor([[BOS, 11, 12, 13], [BOS, 14, EOS, PAD]])


@pytest.fixture(scope="module")
def file() -> ModuleType:
    """The file, as someone imports it who has downloaded it."""
    spec = importlib.util.spec_from_file_location("transformer", TARGET)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@once
def test_it_is_what_the_command_writes() -> None:
    assert TARGET.read_text(encoding="utf-8") == transformer_file(), "run make sync"


@once
def test_it_imports_torch_and_the_standard_library() -> None:
    tree = ast.parse(TARGET.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [getattr(node, "module", None) or alias.name for node in imports for alias in node.names]
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"torch"}


@pytest.mark.parametrize("options", [SIZES, SIZES | SWITCHES | {"attention_bias": True}])
def test_with_the_modules_weights_it_translates_as_the_module_does(file: ModuleType, options: dict[str, Any]) -> None:
    ours = randomise(Transformer(TransformerConfig(16, **options))).eval()
    theirs = file.Transformer(file.TransformerConfig(16, **options)).eval()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(SRC, TGT), ours(SRC, TGT))
    for search in ("greedy_decode", "beam_search"):
        found = getattr(file, search)(theirs.train(), SRC, max_extra=6)
        expected = getattr(annotated.decoding, search)(ours, SRC, max_extra=6)
        assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]
        torch.testing.assert_close([h[1:] for h in found], [h[1:] for h in expected])


def test_what_its_first_lines_promise_learns_to_copy(file: ModuleType) -> None:
    usage = textwrap.dedent((file.__doc__ or "").split("\n\n")[2])
    for given, small in [("37_000", "13, d_model=32, d_ff=64, heads=2, layers=1"), ("512", "32"), ("4000", "100")]:
        assert given in usage
        usage = usage.replace(given, small)
    losses: list[float] = []

    def loss_kept(logits: Tensor, target: Tensor) -> Tensor:
        loss = file.label_smoothed_loss(logits, target)
        losses.append(loss.item())
        return loss

    words = torch.arange(4, 13).view(3, 3)
    src = torch.cat((words, torch.full((3, 1), EOS)), dim=-1)
    tgt = torch.cat((torch.full((3, 1), BOS), src), dim=-1)
    names = vars(file) | {"batches": [(src, tgt)] * 100, "label_smoothed_loss": loss_kept}
    torch.manual_seed(0)
    exec(usage, names)
    assert sum(losses[-5:]) < sum(losses[:5]) / 2  # over eight seeds, at most a quarter
    assert [one.ids for one in names["translations"]] == words.tolist()


def test_what_its_last_lines_promise_loads_the_courses_weights(file: ModuleType) -> None:
    delivered = ROOT / "data" / "checkpoints" / "de-en"
    names = vars(file) | {"json": json, "pathlib": pathlib, "safetensors": safetensors, "folder": delivered}
    exec(textwrap.dedent((file.__doc__ or "").split("\n\n")[-1]), names)
    model, _ = load_checkpoint(delivered)
    assert torch.equal(names["model"](SRC, TGT), model(SRC, TGT))


def test_it_refuses_what_the_module_refuses(file: ModuleType) -> None:
    texts = {part: (ROOT / "annotated" / f"{part}.py").read_text("utf-8") for part in PARTS}
    kept = [definition(text, name) for part, text in texts.items() for name in PARTS[part]]
    for check in (r"raise ", r"\n +check_\w+\("):
        found = [len(re.findall(check, text)) for text in (TARGET.read_text("utf-8"), "\n".join(map(str, kept)))]
        assert found[0] == found[1] > 6, check
    model = file.Transformer(file.TransformerConfig(16, **SIZES))
    for mask in ((SRC == PAD)[:, None, None].byte(), SRC != PAD):
        with pytest.raises((TypeError, ValueError), match=r"must be boolean|has 2 axes"):
            model(SRC, TGT, mask)
