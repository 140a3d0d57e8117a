"""On a GPU the results of a CPU: training, also in bfloat16, resuming, translating. Skipped where there is no GPU."""

import copy

import pytest
import torch

from annotated import decoding, training
from annotated.__main__ import main
from annotated.config import BOS, EOS, TransformerConfig
from annotated.encoder import Dropout
from annotated.fast import decoding as fast_decoding
from annotated.fast import training as fast_training
from annotated.fast.residual import drop
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from tests.runs import read_metrics, train_arguments

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA can use")

VOCAB = 29


@pytest.fixture
def model() -> Transformer:
    return Transformer(TransformerConfig(VOCAB, d_model=24, d_ff=40, heads=3, layers=2, dropout=0.0))


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.randint(5, VOCAB, (length,)).tolist() for length in (9, 4, 7, 2)]
    return pad([[*row, EOS] for row in rows]), pad([[BOS, *row[::-1], EOS] for row in rows])


@pytest.mark.parametrize(
    ("train_step", "options", "tolerance"),
    [
        (training.train_step, {}, 1e-4),
        (fast_training.train_step, {}, 1e-4),
        (fast_training.train_step, {"bf16": True}, 2e-2),
    ],
    ids=["plain", "fast", "fast, bf16"],
)
def test_an_update_is_that_of_the_cpu(model, batch, train_step, options, tolerance, monkeypatch):
    monkeypatch.setattr(fast_training, "GPU_LOSS_CHUNK", 5)  # of 22 positions
    losses = []
    for device in ("cpu", "cuda"):
        moved = copy.deepcopy(model).to(device)
        optimizer = training.make_optimizer(moved, 1e-3)
        losses.append([train_step(moved, *(side.to(device) for side in batch), optimizer, **options) for _ in range(5)])
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("searches", [decoding, fast_decoding], ids=["plain", "fast"])
@pytest.mark.parametrize("search", ["greedy_decode", "beam_search"])
def test_a_search_finds_the_same(model, batch, searches, search):
    expected = getattr(searches, search)(model, batch[0], max_extra=5)
    found = getattr(searches, search)(model.cuda(), batch[0].cuda(), max_extra=5)
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_drops_its_share(dtype):
    x = torch.ones(1000, 1000, device="cuda", dtype=dtype)
    for dropped in (Dropout(0.3)(x), drop(x, Dropout(0.3))):
        assert dropped.dtype == dtype
        assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
        assert dropped.max().item() == pytest.approx(1 / 0.7, rel=torch.finfo(dtype).eps)


def test_the_command_line_trains_resumes_as_if_never_stopped_and_translates(corpus, tmp_path, capsys):
    options = ["--device", "cuda", "--rate", "0.1"]  # small: sums in another order must not grow into another loss
    for run, epochs in (("run", "1"), ("whole", "2")):
        assert main(train_arguments(corpus, tmp_path / run, "--epochs", epochs, *options)) == 0
    assert main(["train", "--resume", "--epochs", "2", "--out", str(tmp_path / "run")]) == 0
    losses = [[line["loss"] for line in read_metrics(tmp_path / run)] for run in ("run", "whole")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # other dropout would make another loss
    assert main(["translate", str(tmp_path / "run"), "Ein Hund läuft hier.", "--device", "cuda"]) == 0
    assert ", cuda, " in capsys.readouterr().out
