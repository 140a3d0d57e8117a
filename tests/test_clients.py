"""What PyTorch does with any module, done with each plain model: other types, the meta device, export."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from safetensors.torch import load_file, save_file, save_model
from test_models import MODELS, SRC, TGT, ids_for, with_attention
from torch import nn

from annotated.decoding import beam_search, greedy_decode
from annotated.fast.accelerate import accelerate
from annotated.models.language_model import generate
from annotated.models.long_attention import BigBirdAttention, CompressedAttention, LinformerAttention
from annotated.training import label_smoothed_loss
from tools.sync import ROOT

# Attention to less, for encoders: no causal mask goes with it.
SPARSE = {
    "Linformer": partial(LinformerAttention, length=9, k=3),
    "BigBird": partial(BigBirdAttention, block=2),
    "compressed": partial(CompressedAttention, stride=2),
}
ZOO = MODELS | {name: partial(with_attention, kind, ["encoder"]) for name, kind in SPARSE.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ZOO)
def test_any_default_dtype(name: str, dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = ZOO[name]()
        given = ids_for(name)
        model(*given).sum().backward()
        assert model(*given).dtype == dtype
        if len(given) == 2:
            assert len(greedy_decode(model, SRC)) == len(beam_search(model, SRC)) == 2
        elif hasattr(model, "new_cache"):
            assert generate(model, SRC[:1], 6).shape == (1, 11)
    except RuntimeError as error:
        if "primitive descriptor for an LSTM" not in str(error):
            raise
        pytest.skip("this torch has no LSTM of this type")
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("assign", [False, True])
def test_weights_loaded_into_a_model_from_the_meta_device_are_the_whole_model(name: str, assign: bool) -> None:
    model, given = ZOO[name]().eval(), ids_for(name)
    with torch.device("meta"):
        other = ZOO[name]()
    other = other if assign else other.to_empty(device="cpu")
    other.load_state_dict(model.state_dict(), assign=assign)
    assert torch.equal(other.to("cpu").eval()(*given), model(*given))


@pytest.mark.parametrize("name", ZOO)
def test_hooks_of_every_part_fire(name: str) -> None:
    model, fired = ZOO[name](), set()
    parts = {part for part in model.modules() if not isinstance(part, nn.ModuleList)} - {getattr(model, "pooler", None)}
    for part in parts:
        part.register_forward_hook(lambda part, *_: fired.add(part))
    model(*ids_for(name))
    assert fired == parts


COMPILE = """
import sys
sys.path.append("tests")
from test_clients import *
for model, given in ((ZOO[name](), ids_for(name)) for name in ("Transformer", "LanguageModel", "Classifier")):
    for form in (model, accelerate(model)):
        compiled = torch.compile(form.train(), fullgraph=True, backend="eager")
        compiled(*given).sum().backward()
        torch.testing.assert_close(compiled.eval()(*given), model.eval()(*given))
"""


@pytest.mark.thorough
def test_compiled_each_form_is_one_graph_in_training_too() -> None:
    subprocess.run([sys.executable, "-c", COMPILE], cwd=ROOT, check=True)


@torch.no_grad()
def test_a_fast_form_follows_the_weights_and_does_not_see_a_patched_function(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = ZOO["Transformer, one layer, whole heads"]().eval(), (SRC, TGT)
    fast, weight = accelerate(model), model.encoder.layers[0].self_attention.W_k.weight
    changed = {name: torch.randn(x.shape) for name, x in model.state_dict().items()}
    for change in (lambda: model.load_state_dict(changed), weight.neg_, lambda: weight.data.zero_()):
        before, _ = fast(*given), change()
        torch.testing.assert_close(fast(*given), model(*given))
        assert not torch.allclose(fast(*given), before)
    monkeypatch.setattr("annotated.multi_head.attention", lambda query, key, value, mask: query)
    assert not torch.allclose(fast(*given), model(*given))


@pytest.mark.skipif(Version(torch.__version__) < Version("2.6"), reason="older exports know other rules")
def test_the_page_for_pytorch_users_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PYTORCH.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names: dict[str, Any] = {"nn": nn, "label_smoothed_loss": label_smoothed_loss}
    exec(blocks[-1], names)
    model, path = ZOO["Transformer"](), tmp_path / "model.safetensors"
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(model.state_dict(), path)
    save_model(model, str(path))
    wrapped = names["ForTrainer"](model)
    save_file(wrapped.state_dict(), path)
    wrapped.load_state_dict(load_file(path))
    assert not hasattr(wrapped, "config") and wrapped(SRC, TGT)["loss"] > 0
