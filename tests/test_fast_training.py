"""One update, fast: it must be the plain one, `annotated.training.train_step`, in loss and in every gradient."""

import copy

import pytest
import torch
from torch.nn import functional as F

from annotated import training as plain
from annotated.config import PAD
from annotated.fast import training
from annotated.fast.training import bf16_is_fast, logits_to_gradient, train_step, update
from annotated.training import label_smoothed_loss
from annotated_workbench.data import Batch
from tests.models import assert_same_update, biased, gradients, make_batch, make_model

CONFIGS = {
    "paper": {},
    "untied": dict(tie_embeddings=False),
    "output bias": {},
    "many departures": dict(activation="silu", norm_first=True, attention_bias=True, positions="learned"),
}


def make(name: str) -> torch.nn.Module:
    """Make one of `CONFIGS`; no bias stays 0 and no gain stays 1."""
    model = biased(make_model(), {}) if name == "output bias" else make_model(**CONFIGS[name])
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def sgd(model: torch.nn.Module, rate: float = 0.5) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=rate)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", CONFIGS)
def test_loss_gradients_and_weights_are_those_of_the_plain_update(name, smoothing):
    model = make(name)
    other = copy.deepcopy(model)
    src, tgt = make_batch((2, 6), (7, 1), (4, 3), (1, 5))
    src, tgt = F.pad(src, (0, 2), value=PAD), F.pad(tgt, (0, 3), value=PAD)
    expected = plain.train_step(other, src, tgt, sgd(other), smoothing)
    assert train_step(model, src, tgt, sgd(model), smoothing) == pytest.approx(expected, rel=1e-5)
    assert all(gradient.any() for gradient in gradients(other).values())
    assert_same_update(model, other, atol=3e-6)  # 1.1e-6 where products are summed without vectors


def test_a_batch_of_padding_teaches_nothing():
    model = make("paper")
    before = copy.deepcopy(model.state_dict())
    src, tgt = torch.tensor([[5, 2], [2, PAD]]), torch.tensor([[1, PAD], [1, PAD]])
    assert train_step(model, src, tgt, sgd(model)) == 0
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("chunk", [1, 4, 17, 256])
@pytest.mark.parametrize("tied", [True, False])
def test_the_size_of_a_chunk_changes_nothing(monkeypatch, chunk, tied):
    model = make_model(tie_embeddings=tied)
    other = copy.deepcopy(model)
    src, tgt = make_batch((2, 6), (4, 3), (3, 5))  # 17 target tokens
    expected = plain.train_step(other, src, tgt, sgd(other), 0.2)
    heard = []

    def listen(logits, *rest):
        heard.append(len(logits))
        return logits_to_gradient(logits, *rest)

    monkeypatch.setattr(training, "LOSS_CHUNK", chunk)
    monkeypatch.setattr(training, "LOSS_BYTES", 0)
    monkeypatch.setattr(training, "logits_to_gradient", listen)
    assert train_step(model, src, tgt, sgd(model), 0.2) == pytest.approx(expected)
    assert_same_update(model, other)
    assert sum(heard) == 17, "only positions that count are projected"
    assert max(heard) == min(chunk, 17)


@pytest.mark.parametrize(("smoothing", "impossible"), [(0.0, []), (0.1, []), (0.3, [PAD]), (0.0, [PAD, 2])])
def test_the_closed_form_is_the_gradient_of_the_loss(smoothing, impossible):
    target = torch.tensor([3, 6, 1, 1, 5, 4, 4, 6, 3])
    logits = 3 * torch.randn(9, 7).index_fill(-1, torch.tensor(impossible, dtype=torch.long), -torch.inf)
    leaf = logits.clone().requires_grad_()
    textbook = label_smoothed_loss(leaf, target, smoothing, reduction="sum")
    textbook.backward()
    loss = logits_to_gradient(logits, target, smoothing)
    torch.testing.assert_close(loss, textbook.detach())
    torch.testing.assert_close(logits, leaf.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_bfloat16_logits_is_a_float32_near_theirs(smoothing):
    logits, target = (3 * torch.randn(64, 500)).bfloat16(), torch.randint(1, 500, (64,))
    leaf = logits.float().requires_grad_()
    textbook = label_smoothed_loss(leaf, target, smoothing, reduction="sum")
    textbook.backward()
    loss = logits_to_gradient(logits, target, smoothing)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(textbook.item(), rel=1e-3)
    assert F.cosine_similarity(logits.float().flatten(), leaf.grad.flatten(), dim=0) > 0.9999


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_several_batches_accumulate_to_one(smoothing):
    model = make("paper")
    other = copy.deepcopy(model)
    whole = make_batch((3, 6), (4, 6), (2, 1), (2, 2), (1, 1))
    # The parts have 14, 5 and 2 target tokens: a mean of means would be wrong.
    parts = [Batch(*(side[rows] for side in whole)) for rows in (slice(0, 2), slice(2, 4), slice(4, 5))]
    expected = plain.train_step(other, *whole, sgd(other), smoothing)
    assert update(model, parts, sgd(model), smoothing) == pytest.approx(expected, rel=1e-5)
    assert_same_update(model, other)


def test_adam_is_the_papers_in_one_pass():
    model = make("paper")
    found = training.make_optimizer(model, 0.01).defaults
    assert found == plain.make_optimizer(model, 0.01).defaults | {"fused": found["fused"]}


def test_an_update_in_bfloat16_is_near_one_in_float32_and_not_the_same():
    model, batch = make_model(d_model=32, d_ff=64), make_batch((2, 6), (4, 3), (3, 5))
    other = copy.deepcopy(model)
    exact, rounded = train_step(model, *batch, sgd(model)), train_step(other, *batch, sgd(other), bf16=True)
    assert rounded == pytest.approx(exact, rel=0.01) and rounded != exact
    found, expected = (torch.cat([g.flatten() for g in gradients(m).values()]) for m in (other, model))
    assert found.dtype == torch.float32 and F.cosine_similarity(found, expected, dim=0) > 0.99


@pytest.mark.parametrize(
    ("capability", "flags", "fast"),
    [
        ("AVX512", "fpu avx512f avx512_bf16", True),
        ("AVX512", "fpu avx512f amx_bf16", True),
        ("AVX512", "fpu avx512f", False),
        ("AVX2", "fpu avx512_bf16", False),
    ],
)
def test_bfloat16_is_fast_where_the_processor_multiplies_it(monkeypatch, tmp_path, capability, flags, fast):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\nflags : {flags}\n")
    path = training.Path
    monkeypatch.setattr(training, "Path", lambda name: info if name == "/proc/cpuinfo" else path(name))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert bf16_is_fast(torch.device("cpu")) == fast
    info.unlink()
    assert not bf16_is_fast(torch.device("cpu"))
