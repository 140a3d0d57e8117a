"""On a GPU the results of a CPU: training, also in bfloat16, resuming, translating. Skipped where there is no GPU."""

import copy
import json

import pytest
import torch
from torch.testing import assert_close

from annotated.__main__ import main
from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoding import beam_search
from annotated.encoder import Dropout
from annotated.fast.training import train_step
from annotated.multi_head import record_attention
from annotated.training import make_optimizer
from annotated.transformer import Transformer
from annotated.workbench.data import DATA_FOLDER, Pairs, pad

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA can use")

VOCAB = 29


@pytest.fixture
def model() -> Transformer:
    return Transformer(TransformerConfig(VOCAB, d_model=24, d_ff=40, heads=3, layers=2, dropout=0.0))


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.randint(5, VOCAB, (length,)).tolist() for length in (9, 4, 7, 2)]
    return pad([[*row, EOS] for row in rows]), pad([[BOS, *row[::-1], EOS] for row in rows])


def test_logits_are_those_of_the_cpu(model, batch):
    with torch.inference_mode():
        expected = model(*batch)
        logits = model.cuda()(*(side.cuda() for side in batch))
    assert_close(logits.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-4), (True, 2e-2)])
def test_an_update_is_that_of_the_cpu(model, batch, bf16, tolerance):
    losses = []
    for device in ("cpu", "cuda"):
        moved = copy.deepcopy(model).to(device)
        optimizer = make_optimizer(moved, 1e-3)
        losses.append([train_step(moved, *(side.to(device) for side in batch), optimizer, bf16=bf16) for _ in range(5)])
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert losses[1][-1] < losses[1][0]


def test_beam_search_finds_the_same(model, batch):
    expected = beam_search(model, batch[0], max_extra=5)
    found = beam_search(model.cuda(), batch[0].cuda(), max_extra=5)
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]


def test_weights_are_recorded_there_too(model, batch):
    with record_attention(model.cuda()) as recorded:
        model(*(side.cuda() for side in batch))
    weights = recorded["encoder.layers.0.self_attention"][0]
    assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))


def test_dropout_drops_its_share():
    x = torch.ones(1000, 1000, device="cuda")
    dropped = Dropout(0.3)(x)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / 0.7)


def test_the_command_line_trains_resumes_as_if_never_stopped_and_translates(tmp_path, capsys):
    lines = [
        (DATA_FOLDER / "captions" / f"val.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")
    ]
    files = Pairs(str(tmp_path / "de"), str(tmp_path / "en"))
    for path, side in zip(files, lines, strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(side[:100]) + "\n")
    options = ["--preset", "tiny", "--tokenizer", "words", "--device", "cuda", "--precision", "fp32"]
    for run, epochs in (("run", "1"), ("whole", "2")):
        given = ["--source", files.source, "--target", files.target, "--epochs", epochs, "--out", str(tmp_path / run)]
        assert main(["train", *given, *options]) == 0
    assert main(["train", "--resume", "--epochs", "2", "--out", str(tmp_path / "run")]) == 0
    losses = [
        [json.loads(line)["loss"] for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        for run in ("run", "whole")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # other dropout would make another loss
    assert main(["translate", str(tmp_path / "run"), lines[0][0], "--device", "cuda"]) == 0
    assert ", cuda, " in capsys.readouterr().out
