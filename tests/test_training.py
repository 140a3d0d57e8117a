"""The schedule, the loss and one update."""

import copy
import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from annotated.config import PAD
from annotated.fast import training as fast_training
from annotated.training import label_smoothed_loss, make_optimizer, noam_rate, set_rate, train_step
from tests.models import assert_same_update, make_batch, make_model


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1 / 32), (2, 2 / 32), (4, 4 / 32), (5, 1 / (4 * math.sqrt(5))), (16, 1 / 16), (64, 1 / 32)]
)
def test_the_rate_by_hand(step, rate):
    # d_model = 16 gives the factor 1/4; warmup = 4 gives min(1/√step, step/8).
    assert noam_rate(step, d_model=16, warmup=4) == pytest.approx(rate)


def test_the_smoothed_distribution_is_the_table_written_by_hand():
    # Four tokens can occur, so each gets 0.2 / 4; the right one keeps 0.8 besides.
    target = torch.tensor([3, 1, PAD, 4])
    rows = [0, 0.05, 0.05, 0.85, 0.05], [0, 0.85, 0.05, 0.05, 0.05], [0.0] * 5, [0, 0.05, 0.05, 0.05, 0.85]
    logits = torch.randn(4, 5, requires_grad=True)
    label_smoothed_loss(logits, target, smoothing=0.2, reduction="sum").backward()
    # The gradient of a cross-entropy is p − q; where nothing counts it is zero.
    counts = (target != PAD)[:, None]
    torch.testing.assert_close(logits.softmax(-1) * counts - logits.grad, torch.tensor(rows))


@given(st.floats(0, 0.99), st.sampled_from([None, 0, 2]), st.sampled_from([0.0, 1.0, 1e4]), st.integers(0, 100))
def test_the_loss_is_that_of_torch(smoothing, pad_id, scale, seed):
    smoothing = smoothing if pad_id is None else 0.0  # torch's smoothing gives padding a share, too
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(3, 7, 5, generator=generator)
    target = torch.randint(5, (3, 7), generator=generator)
    ignored = -100 if pad_id is None else pad_id
    theirs = F.cross_entropy(logits.mT, target, label_smoothing=smoothing, ignore_index=ignored)
    torch.testing.assert_close(label_smoothed_loss(logits, target, smoothing, pad_id), theirs)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nothing_but_padding_costs_nothing(rows, reduction):
    logits = torch.randn(rows, 5, requires_grad=True)
    loss = label_smoothed_loss(logits, torch.full((rows,), PAD), reduction=reduction)
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


@pytest.mark.parametrize(("tied", "smoothing"), [(True, 0.2), (False, 0.0)])
def test_an_update_is_the_loss_its_gradient_and_a_step(tied, smoothing):
    model = make_model(tie_embeddings=tied)
    textbook = copy.deepcopy(model)
    src, tgt = make_batch((2, 6), (4, 3), (3, 5))
    loss = label_smoothed_loss(textbook(src, tgt[:, :-1]), tgt[:, 1:], smoothing)
    loss.backward()
    torch.optim.SGD(textbook.parameters(), lr=0.5).step()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)  # the last update's is forgotten
    assert train_step(model, src, tgt, optimizer, smoothing) == pytest.approx(loss.item())
    assert_same_update(model, textbook)


def test_the_optimizer_is_the_papers():
    optimizer, options = make_optimizer(make_model()), {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0}
    assert isinstance(optimizer, torch.optim.Adam) and options.items() <= optimizer.defaults.items()


def test_the_rate_of_every_group_is_set():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]]}, {"params": [weights[1]], "lr": 5.0}], lr=1.0)
    set_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("train_step", [train_step, fast_training.train_step], ids=["plain", "fast"])
def test_after_a_loss_that_is_not_finite_nothing_has_changed(train_step):
    model = make_model()
    optimizer = make_optimizer(model)
    batch = make_batch((2, 3), (4, 5))
    train_step(model, *batch, optimizer)
    model.decoder.layers[0].residuals[0].norm.gain.data[0] = math.nan
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=r"the loss is nan: nothing was changed\. Lower the rate"):
        train_step(model, *batch, optimizer)
    assert_unchanged = functools.partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    assert_unchanged(model.state_dict(), weights)
    assert_unchanged(optimizer.state_dict()["state"], state["state"])


def test_twenty_steps_give_the_same_losses_on_every_torch():
    # The numbers were computed once; they hold on torch 2.3.1 and 2.13.0, dropout included.
    model = make_model(dropout=0.1)
    batches = [make_batch((2, 6), (4, 3), (3, 5)), make_batch((7, 2), (5, 11))]
    optimizer = make_optimizer(model)
    losses = []
    for step in range(1, 21):
        set_rate(optimizer, noam_rate(step, model.config.d_model, warmup=50))
        losses.append(train_step(model, *batches[step % 2], optimizer))
    expected = {1: 2.9367, 10: 2.8112, 19: 2.2228, 20: 2.2667}
    assert {step: losses[step - 1] for step in expected} == pytest.approx(expected, abs=1e-4)
