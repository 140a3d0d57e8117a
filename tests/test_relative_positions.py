"""Positions inside attention: each kind equals another in its limiting case, and its parts are as by hand."""

import math

import pytest
import torch
from parity import randomise
from torch.testing import assert_close

from annotated.attention import attention
from annotated.masking import causal_mask, padding_mask
from annotated.models import relative_positions as positions
from annotated.models.relative_positions import RelativeAttention, RotaryAttention, given_distances, rotate
from annotated.multi_head import MultiHeadAttention, record_attention

D_MODEL, HEADS, D_K, D_V, LENGTH = 10, 3, 4, 5, 7
SIZES = dict(d_k=D_K, d_v=D_V)
IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 4], [5, 5, 6, 0, 0, 0, 0]])
MASKS = [None, padding_mask(IDS), causal_mask(LENGTH), torch.zeros(1, 1, dtype=torch.bool)]


def inputs(length: int = LENGTH, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def relative(k: int) -> RelativeAttention:
    return randomise(RelativeAttention(D_MODEL, HEADS, k=k, **SIZES)).double()


def test_relative_by_hand() -> None:
    """Two positions of width 1: scores are 0 but for ln 3 to the left, values 8 and 4, and 2 more to the left."""
    module = RelativeAttention(1, 1, k=1)
    with torch.no_grad():
        module.W_q.weight.fill_(1.0)
        module.W_k.weight.zero_()
        module.W_v.weight.fill_(4.0)
        module.W_o.weight.fill_(1.0)
        module.distance_keys.copy_(torch.tensor([[math.log(3)], [0.0], [0.0]]))
        module.distance_values.copy_(torch.tensor([[2.0], [0.0], [0.0]]))
        found = module(*[torch.tensor([[[2.0], [1.0]]])] * 3)
    assert_close(found.flatten(), torch.tensor([(8 + 4) / 2, 0.75 * (8 + 2) + 0.25 * 4]))


@pytest.mark.parametrize("k", [0, 2, 9])
def test_relative_equals_the_naive_sum(k: int) -> None:
    q, v = torch.randn(2, HEADS, LENGTH, D_K), torch.randn(2, HEADS, LENGTH, D_V)
    keys, values = torch.randn(2 * k + 1, D_K), torch.randn(2 * k + 1, D_V)
    weights = torch.rand(2, HEADS, LENGTH, LENGTH)
    scores, mixed = torch.zeros(2, HEADS, LENGTH, LENGTH), torch.zeros_like(v)
    for i in range(LENGTH):
        for j in range(LENGTH):
            r = max(-k, min(k, j - i)) + k
            scores[..., i, j] = q[..., i, :] @ keys[r]
            mixed[..., i, :] += weights[..., i, j, None] * values[r]
    rows = positions.signed_distances(LENGTH, LENGTH).clamp(-k, k) + k
    assert_close(positions.relative_scores(q, keys, rows), scores)
    assert_close(positions.relative_values(weights, values, rows), mixed)


@pytest.mark.parametrize("mask", MASKS)
def test_zero_tables_are_plain_attention(mask: torch.Tensor | None) -> None:
    module, x = relative(2), inputs()
    with torch.no_grad():
        module.distance_keys.zero_()
        module.distance_values.zero_()
    plain = MultiHeadAttention(D_MODEL, HEADS, **SIZES).double()
    plain.load_state_dict(module.state_dict(), strict=False)
    assert_close(module(x, x, x, mask), plain(x, x, x, mask))


def test_rotate_by_hand() -> None:
    """Pairs turn by 1 and by 1/100 of it a place; a quarter turn after π/2 places cannot be had, so base is chosen."""
    x = torch.tensor([[1.0, 0, 0, 1]]).expand(3, 4)
    fast, slow = (torch.arange(3.0) * rate for rate in (1.0, 0.01))
    expected = torch.stack((fast.cos(), fast.sin(), -slow.sin(), slow.cos()), dim=1)
    assert_close(rotate(x), expected)
    assert_close(rotate(x[:1], 2), expected[2:])
    assert_close(rotate(x, base=math.inf)[:, 2:], x[:, 2:])  # an endless wave does not turn


def test_halves_are_hugging_faces_formula_and_the_same_in_another_order() -> None:
    x = torch.randn(2, LENGTH, 6, dtype=torch.float64)
    rates = 10000.0 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    angle = torch.outer(torch.arange(LENGTH, dtype=torch.float64), rates).repeat(1, 2)
    half_turned = torch.cat((-x[..., 3:], x[..., :3]), dim=-1)
    assert_close(rotate(x, halves=True), x * angle.cos() + half_turned * angle.sin())
    order = torch.tensor([0, 2, 4, 1, 3, 5])
    assert_close(rotate(x[..., order], halves=True), rotate(x)[..., order])


@pytest.mark.parametrize("mask", MASKS)
def test_rotary_equals_attention_of_turned_queries_and_keys(mask: torch.Tensor | None) -> None:
    module, x = randomise(RotaryAttention(D_MODEL, HEADS, base=50.0, **SIZES)).double(), inputs()
    q, (k, v) = module.split(module.W_q(x)), module.project(x, x)
    mixed = attention(rotate(q, base=50.0), rotate(k, base=50.0), v, mask)
    assert_close(module(x, x, x, mask), module.W_o(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("kind", [RelativeAttention, RotaryAttention])
def test_weights_are_recorded(kind: type[MultiHeadAttention]) -> None:
    module, x = kind(D_MODEL, HEADS, **SIZES).double(), inputs()
    with record_attention(module) as recorded:
        module(x, x, x, padding_mask(IDS))
    (weights,) = recorded[""]
    assert_close(weights.sum(dim=-1), torch.ones(2, HEADS, LENGTH, dtype=torch.float64))
    assert weights[1, ..., 3:].abs().max() == 0


def test_tree_distances_by_hand() -> None:
    """The dogs that the cat sees sleep: dogs(0) that(1) cat(2) sees(3) sleep(4); behind it a word of its own."""
    (found,) = positions.tree_distances(torch.tensor([[4, 3, 3, 0, 4, 5]]))
    assert found.tolist() == [
        [0, 2, 2, 1, -1, 6],
        [-2, 0, 2, -1, -3, 6],
        [-2, -2, 0, -1, -3, 6],
        [-1, 1, 1, 0, -2, 6],
        [1, 3, 3, 2, 0, 6],
        [-6, -6, -6, -6, -6, 0],
    ]


def test_given_distances_stand_for_the_order_until_the_block_ends() -> None:
    """A chain, each word below the one before it, has the distances of the order; turned round, the opposite."""
    module, x = relative(3), inputs()
    plain = module(x, x, x)
    with given_distances(module, positions.tree_distances(torch.tensor([[0, 0, 1, 2, 3, 4, 5]]))):
        assert_close(module(x, x, x), plain)
    with given_distances(module, positions.tree_distances(torch.tensor([[1, 2, 3, 4, 5, 6, 6]]))):
        assert not torch.allclose(module(x, x, x), plain)
    assert_close(module(x, x, x), plain)
