"""What PyTorch does with any module, done with each plain model: other types, nothing at all, export."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from packaging.version import Version

from annotated.config import TransformerConfig
from annotated.decoding import beam_search, greedy_decode
from annotated.models.bert import Bert, BertConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.models.long_attention import BigBirdAttention, CompressedAttention, LinformerAttention
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RelativeAttention, RotaryAttention
from annotated.transformer import Transformer
from tools.sync import ROOT

VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_ff=12, layers=1, max_length=16)


def with_attention(kind: type, **choices) -> Transformer:
    model = Transformer(TransformerConfig(VOCAB, **SIZES))
    for layer in model.encoder.layers:
        layer.self_attention = kind(8, 2, **choices)
    return model


TRANSLATORS = {
    "post-norm": lambda: Transformer(TransformerConfig(VOCAB, **SIZES)),
    "pre-norm, learned": lambda: Transformer(TransformerConfig(VOCAB, **SIZES, norm_first=True, positions="learned")),
    "relative": lambda: with_attention(RelativeAttention),
    "rotary": lambda: with_attention(RotaryAttention),
    "Linformer": lambda: with_attention(LinformerAttention, length=17, k=3),
    "BigBird": lambda: with_attention(BigBirdAttention, block=2),
    "compressed": lambda: with_attention(CompressedAttention, stride=2),
    "recurrent": lambda: RecurrentTranslator(RecurrentConfig(VOCAB, d_model=8)),
}
READERS = {
    "Bert": lambda: Bert(BertConfig(VOCAB, **SIZES)),
    "Gpt": lambda: Gpt(GptConfig(VOCAB, **SIZES)),
    "language model": lambda: LanguageModel(LanguageModelConfig(VOCAB, **SIZES, positions="sinusoidal")),
    "classifier": lambda: Classifier(ClassifierConfig(VOCAB, **SIZES, positions="sinusoidal")),
}
ZOO = TRANSLATORS | READERS


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(4, VOCAB, shape)


def inputs(name: str, batch: int, source: int, target: int) -> tuple[torch.Tensor, ...]:
    return (ids(batch, source), ids(batch, target))[: 2 if name in TRANSLATORS else 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ZOO)
def test_any_default_dtype(name: str, dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = ZOO[name]()
        given = inputs(name, 3, 6, 4)
        model(*given).sum().backward()
        assert model(*given).dtype == dtype
        if name in TRANSLATORS:
            assert len(greedy_decode(model, given[0])) == len(beam_search(model, given[0])) == 3
        elif hasattr(model, "new_cache"):
            assert generate(model, *given, 12).shape == (3, 18)
    except RuntimeError as error:
        if "primitive descriptor for an LSTM" not in str(error):
            raise
        pytest.skip("this torch has no LSTM of this type")
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name", ["post-norm", "language model", "classifier"])
def test_weights_loaded_into_a_model_from_the_meta_device_are_the_whole_model(name: str) -> None:
    model, given = ZOO[name]().eval(), inputs(name, 3, 6, 4)
    with torch.device("meta"):
        other = ZOO[name]()
    other.to_empty(device="cpu").load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(*given), model(*given))


FIXED = {"BigBird", "compressed"}  # loops over blocks in Python, groups: the length of the source is fixed


def export_all() -> None:
    """Export every model, and compare at other sizes; in a process without checks of shapes, which cannot be traced."""
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=64)
    source, target = (torch.export.Dim(side, min=2, max=16) for side in ("source", "target"))
    for name in ("relative", "BigBird", "classifier"):  # the page exports a Transformer
        model, given = ZOO[name]().eval(), inputs(name, 3, 6, 5)
        shapes = ({0: batch} if name in FIXED else {0: batch, 1: source}, {0: batch, 1: target})
        exported = torch.export.export(model, given, dynamic_shapes=shapes[: len(given)]).module()
        for sizes in ((2, 6, 9), (5, 6 if name in FIXED else 16, 2)):
            other = inputs(name, *sizes)
            torch.testing.assert_close(exported(*other), model(*other))


@pytest.mark.skipif(Version(torch.__version__) < Version("2.6"), reason="older exports know other rules")
def test_exports_take_other_sizes() -> None:
    command = [sys.executable, "-c", "from tests.test_clients import export_all; export_all()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(Version(torch.__version__) < Version("2.6"), reason="older exports know other rules")
def test_the_page_for_pytorch_users_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PYTORCH.md").read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(block for block in blocks if "onnxruntime" not in block or has_onnx())
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def has_onnx() -> bool:
    return all(find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))
