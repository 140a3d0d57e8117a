"""LoRA, a preference's loss and fewer bits: each by hand, and in a whole model."""

import copy
import math

import pytest
import torch
from parity import maker, randomise
from torch import nn
from torch.testing import assert_close

from annotated.models.llama import Llama, LlamaConfig
from annotated.models.tuning import LoRA, add_lora, dpo_loss, merge_lora, quantise

IDS = torch.tensor([[4, 5, 6, 7, 8]])
RANK = 3
SIZES = dict(vocab_size=19, d_model=12, d_ff=10, heads=2, layers=2, groups=1, max_length=9)
make_model = maker(Llama, LlamaConfig, **SIZES)


def test_lora_by_hand() -> None:
    """B A = (1, 0; 2, 0), doubled, on the identity: W is (3, 0; 4, 1)."""
    lora = LoRA(nn.Linear(2, 2), rank=1)
    with torch.no_grad():
        lora.linear.weight.copy_(torch.eye(2))
        lora.linear.bias.copy_(torch.tensor([0.0, 10.0]))
        lora.A.copy_(torch.tensor([[1.0, 0.0]]))
        lora.B.copy_(torch.tensor([[1.0], [2.0]]))
    assert_close(lora(torch.tensor([[1.0, 1.0]])), torch.tensor([[3.0, 15.0]]))
    assert LoRA(nn.Linear(2, 2), rank=4, alpha=2.0).scale == 0.5


@pytest.mark.parametrize("tied", [True, False])
def test_at_the_start_nothing_changes_and_only_the_corrections_learn(tied: bool) -> None:
    model = make_model(tie_embeddings=tied).double()
    before, linears = model(IDS), [part for part in model.layers.modules() if isinstance(part, nn.Linear)]
    linears += [] if tied else [model.output]
    weights = copy.deepcopy(model.state_dict())
    assert add_lora(model, RANK) is model
    assert torch.equal(model(IDS), before)
    model(IDS).square().mean().backward()
    learn = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name.rsplit(".")[-1] for name in learn} == {"A", "B"}
    assert all(weight.grad is None for name, weight in model.named_parameters() if name not in learn)
    assert all(weight.grad.any() for name, weight in learn.items() if name.endswith("B"))
    sides = sum(linear.in_features + linear.out_features for linear in linears)
    assert sum(weight.numel() for weight in learn.values()) == RANK * sides
    torch.optim.AdamW(model.parameters(), lr=0.1).step()
    assert not torch.equal(model(IDS), before)
    kept = {name.replace(".linear.", "."): weight for name, weight in model.state_dict().items() if name not in learn}
    assert kept.keys() == weights.keys() and all(torch.equal(kept[name], weights[name]) for name in weights)


def test_merged_is_a_plain_model_of_the_same_function() -> None:
    model = add_lora(make_model().double(), RANK, alpha=1.0)
    randomise(model)
    merged = merge_lora(model)
    assert_close(merged(IDS), model(IDS))
    assert merged.state_dict().keys() == make_model().state_dict().keys()
    assert merged.output.weight is merged.embedding.weight
    assert all(weight.requires_grad for weight in merged.parameters())
    assert any(isinstance(part, LoRA) for part in model.modules())  # what was merged is a copy


def test_dpo_by_hand() -> None:
    """σ(½ · 2 ln 3) = ¾; a model that hasn't moved yet pays ln 2, whatever it thinks of the two."""
    better, worse = torch.tensor([math.log(0.9)]), torch.tensor([math.log(0.1)])
    assert_close(dpo_loss(better, worse, torch.zeros(1), beta=0.5), torch.tensor(math.log(4 / 3)))
    assert_close(dpo_loss(better, worse, better - worse), torch.tensor(math.log(2)))


def test_dpo_pulls_up_the_better_and_only_as_far_as_it_must() -> None:
    better, worse = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    dpo_loss(better, worse, torch.tensor([0.0, -40.0]), beta=0.5).backward()  # the second pair is won already
    assert_close(better.grad, torch.tensor([-0.125, 0.0]))
    assert_close(worse.grad, -better.grad)


@pytest.mark.parametrize(
    ("bits", "share", "expected"),
    [
        (4, 4, [[7.0, 2.0], [-1.0, 0.0]]),
        (4, 2, [[7.0, 2.0], [-1.0, 3 / 7]]),  # −7 · 1/7 and 3 · 1/7
        (2, 4, [[7.0, 0.0], [0.0, 0.0]]),
        (2, 1, [[7.0, 2.0], [-1.0, 0.4]]),
    ],
)
def test_rounding_by_hand(bits: int, share: int, expected: list[list[float]]) -> None:
    assert_close(quantise(torch.tensor([[7.0, 2.0], [-1.0, 0.4]]), bits, share), torch.tensor(expected))


def test_no_weight_moves_by_more_than_half_a_step_and_zeros_stay() -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    weight[2] = 0.0
    for bits in (2, 3, 4, 8):
        steps = weight.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
        rounded = quantise(weight, bits, weight.size(1))
        assert ((rounded - weight).abs() <= steps * 0.5001).all()
        assert len(rounded[0].unique()) <= 2**bits - 1 and not rounded[2].any()
