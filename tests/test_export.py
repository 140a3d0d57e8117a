"""python -m annotated export: other engines write what ours write."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from annotated.config import TransformerConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RotaryAttention
from annotated.transformer import Transformer
from annotated_workbench import export
from annotated_workbench.checkpoint import load_run
from annotated_workbench.data import DATA_FOLDER, load_corpus
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SubwordTokenizer, WordTokenizer

RUN = DATA_FOLDER / "checkpoints" / "de-en"
NEEDS = {"ctranslate2": ["ctranslate2", "transformers"], "huggingface": ["transformers"]}
NEEDS["onnx"] = ["onnxruntime", "onnxscript"]
PAIRS = [["Ein Hund rennt."], ["A dog runs."]]
SIZES = dict(d_model=8, heads=2, d_ff=12, layers=1, max_length=16)


def require(engine: str) -> None:
    for module in NEEDS[engine]:
        if not find_spec(module):
            pytest.skip(f"{module} is not installed")


@pytest.fixture(scope="module")
def bpe() -> SubwordTokenizer:
    return SubwordTokenizer.train(PAIRS, vocab_size=270)


def small(bpe: SubwordTokenizer, **changes) -> Transformer:
    return Transformer(TransformerConfig(len(bpe), **(SIZES | changes)))


@pytest.mark.parametrize("engine", NEEDS)
def test_the_program_beside_an_export_translates_greedily_as_we_do(engine, tmp_path, monkeypatch) -> None:
    require(engine)
    captions = [*load_corpus("grammar", "test").source[:12], "Der Mann schreibt <eos> an die Wand.", ""]
    model, tokenizer, info = load_run(RUN)
    out = tmp_path / "new" / engine
    command = [sys.executable, "-m", "annotated", "export", str(RUN), "--to", engine, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    given = "".join(f"{text}\n" for text in captions)
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = subprocess.run([sys.executable, "translate.py"], input=given, cwd=out, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == translate(model, tokenizer, captions, info["src"], beam=0)
    assert f"--to {engine}" in (out / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in out.parent.iterdir()] == [engine]


def test_onnx_takes_any_configuration(bpe, tmp_path) -> None:
    require("onnx")
    torch.manual_seed(0)
    changes = dict(d_k=3, d_v=5, norm_first=True, positions="learned", tie_embeddings=False, layers=2)
    model = small(bpe, **changes).eval()
    program = (
        "from tests.test_export import *\n"  # in a process without checks of shapes, which cannot be traced
        "bpe = SubwordTokenizer.train(PAIRS, vocab_size=270)\n"
        f"torch.manual_seed(0)\nexport.export(small(bpe, **{changes}), bpe, 'onnx', {str(tmp_path / 'x')!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, cwd=Path(__file__).parent.parent)
    given = "Ein Hund\nrennt\n"
    command = [sys.executable, str(tmp_path / "x" / "translate.py")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == translate(model, bpe, given.splitlines(), "de", beam=0)


@pytest.mark.parametrize("engine", NEEDS)
def test_an_engine_is_given_only_what_it_can_represent(engine, bpe, tmp_path) -> None:
    def refused(model, tokenizer, match):
        with pytest.raises(ValueError, match=match):
            export.export(model, tokenizer, engine, tmp_path / "out")

    rotary = small(bpe)
    rotary.encoder.layers[0].self_attention = RotaryAttention(8, 2)
    refused(rotary, bpe, "parts that its configuration does not make")
    refused(RecurrentTranslator(RecurrentConfig(len(bpe), d_model=8)), bpe, "has no form for a RecurrentTranslator")
    refused(small(bpe), WordTokenizer.train(PAIRS, min_freq=1), "cannot read a WordTokenizer: only models of subwords")
    if engine != "onnx":
        refused(small(bpe, tie_embeddings=False), bpe, "with tie_embeddings=False: export it to onnx")
        refused(small(bpe, norm_first=True, d_k=3), bpe, "with norm_first=True, d_k=3: export it to onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_written_whole_or_not_at_all(bpe, tmp_path, monkeypatch) -> None:
    def fail(model, library, folder: Path) -> None:
        (folder / "half").write_bytes(b"")
        raise OSError("no space left")

    monkeypatch.setitem(export.EXPORTS, "onnx", fail)
    with pytest.raises(OSError, match="no space"):
        export.export(small(bpe), bpe, "onnx", tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileExistsError, match="choose another folder"):
        export.export(small(bpe), bpe, "onnx", tmp_path)
