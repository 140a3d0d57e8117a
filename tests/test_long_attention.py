"""Attention for long texts: each variant equals dense attention in its limiting case, and its parts are as by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import randomise
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import attention
from annotated.masking import causal_mask, padding_mask
from annotated.models import long_attention
from annotated.models.long_attention import BigBirdAttention, CompressedAttention, LinformerAttention, block_pattern
from annotated.multi_head import MultiHeadAttention, record_attention

D_MODEL, HEADS, D_K, D_V = 10, 3, 4, 5
SIZES = dict(d_k=D_K, d_v=D_V)
IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 4], [5, 5, 6, 0, 0, 0, 0]])


def dense_and(other: MultiHeadAttention) -> tuple[MultiHeadAttention, MultiHeadAttention]:
    """Plain multi-head attention, and another with the same four matrices; all numbers in 64 bits."""
    dense = randomise(MultiHeadAttention(D_MODEL, HEADS, **SIZES)).double()
    other.double().load_state_dict(dense.state_dict(), strict=False)
    return dense, other


def inputs(length: int = 7) -> torch.Tensor:
    return torch.randn(2, length, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients_of(module: MultiHeadAttention, x: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    module(x, x, x, mask).square().sum().backward()
    return [x.grad, *(module.get_parameter(f"{name}.weight").grad for name in ("W_q", "W_k", "W_v", "W_o"))]


MASKS = {
    "none": None,
    "causal": causal_mask(11)[4:],
    "padding": torch.tensor([[True] * 11, [True] * 2 + [False] * 9])[:, None, None],
    "full": torch.rand(2, 3, 7, 11, generator=torch.Generator().manual_seed(0)) < 0.3,
    "nothing": torch.zeros(1, 1, dtype=torch.bool),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_in_blocks_equals_dense(mask: torch.Tensor | None) -> None:
    leaves = [torch.randn(2, 3, n, d, dtype=torch.float64, requires_grad=True) for n, d in ((7, 4), (11, 4), (11, 5))]
    dense = attention(*leaves, mask)
    gradients = torch.autograd.grad(dense.sin().sum(), leaves)
    for block in (1, 3, 7, 50):
        in_blocks = long_attention.attention_in_blocks(*leaves, mask, block=block)
        assert_close(in_blocks, dense)
        assert_close(torch.autograd.grad(in_blocks.sin().sum(), leaves), gradients)


def test_linformer_by_hand() -> None:
    """Two mixtures: the mean of three positions, and the difference of the first two."""
    linformer = randomise(LinformerAttention(D_MODEL, HEADS, length=4, k=2, **SIZES)).double()
    with torch.no_grad():
        linformer.E.copy_(torch.tensor([[1 / 3, 1 / 3, 1 / 3, 9], [1, -1, 0, 9]]))
        linformer.F.copy_(torch.tensor([[0, 0, 1, 9], [1, 0, 0, 9]]))
    x = inputs(3)  # one shorter than the longest: the last column is not used
    keys, values = linformer.project(x, x)
    keys = torch.stack((keys.mean(dim=2), keys[:, :, 0] - keys[:, :, 1]), dim=2)
    values = torch.stack((values[:, :, 2], values[:, :, 0]), dim=2)
    assert_close(linformer(x, x, x), linformer.attend(x, keys, values))
    padded = torch.cat((x, torch.full((2, 1, D_MODEL), 5.0)), dim=1)
    no_padding = torch.tensor([[[[True, True, True, False]]]])
    assert_close(linformer(x, padded, padded, no_padding), linformer.attend(x, keys, values))


@given(st.integers(1, 12), st.sampled_from([0, 1, 3, 5]), st.integers(0, 3), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=25)
def test_the_pattern_has_each_part(blocks: int, window: int, first: int, random: int, seed: int) -> None:
    pattern = block_pattern(blocks, window=window, first=first, random=random, seed=seed)
    assert torch.equal(pattern, block_pattern(blocks, window=window, first=first, random=random, seed=seed))
    for i, row in enumerate(pattern.tolist()):
        seen = [j for j in row if j >= 0]
        sure = {j for j in range(blocks) if j < first or (window and abs(i - j) <= window // 2)}
        assert seen == sorted(set(seen)) and sure <= set(seen) <= set(range(blocks))
        assert len(seen) == min(blocks, len(sure) + random)


def test_its_cost_is_linear() -> None:
    def flops(length: int) -> int:
        q, pattern = torch.randn(1, 1, length, 4), block_pattern(length // 8, window=3, first=1, random=1)
        with FlopCounterMode(display=False) as counter:
            long_attention.block_sparse_attention(q, q, q, pattern, first=1)
        return counter.get_total_flops()

    assert flops(512) - flops(256) == (flops(1024) - flops(512)) / 2
    # The first block: 8 queries, 256 keys. Any other: 8 queries, 5 slots of 8 keys. Each for scores and for values.
    assert flops(256) == 2 * 2 * 4 * (8 * 256 + 248 * 5 * 8)


@pytest.mark.parametrize("parts", [(0, 1, 0), (3, 1, 2), (0, 0, 3), (13, 0, 0), (1, 7, 0)])
@pytest.mark.parametrize("length", [13, 14])
@pytest.mark.parametrize("masked", [False, True])
def test_bigbird_is_masked_multi_head_attention(parts: tuple[int, ...], length: int, masked: bool) -> None:
    choices = dict(zip(("window", "first", "random"), parts, strict=True))
    dense, bigbird = dense_and(BigBirdAttention(D_MODEL, HEADS, block=2, **choices, **SIZES))
    x, pattern = inputs(length), block_pattern(math.ceil(length / 2), **choices)
    allowed = long_attention.pattern_mask(pattern, choices["first"], 2)[:length, :length][None, None]
    hidden = torch.tensor([[True] * length, [True] * 3 + [False] * (length - 3)])[:, None, None] if masked else None
    combined = allowed & hidden if masked else allowed
    assert_close(bigbird(x, x, x, hidden), dense(x, x, x, combined))
    assert_close(gradients_of(bigbird, x, hidden), gradients_of(dense, x, combined))
    assert allowed.all() == (choices["window"] == 13 or choices["first"] == 7)


def test_groups_by_hand() -> None:
    dense, compressed = dense_and(CompressedAttention(D_MODEL, HEADS, stride=3, **SIZES))
    for shrink in (compressed.shrink_k, compressed.shrink_v):  # let each group be its last member
        shrink.weight.data.zero_()[..., -1] = torch.eye(shrink.weight.size(1)).repeat(HEADS, 1)
    x = inputs()  # positions 2 and 5 stand for the groups 0 1 2 and 3 4 5; position 6 is in none
    assert_close(compressed(x, x, x), dense(x, x[:, [2, 5]], x[:, [2, 5]]))
    with record_attention(compressed) as recorded:
        compressed(x, x, x, causal_mask(7))
    weights = recorded[""][0]
    assert (weights[..., :2, :] == 0).all() and (weights[..., 2:5, 0] == 1).all() and (weights[..., 5:, 1] > 0).all()


def test_groups_do_not_look_ahead_or_at_padding() -> None:
    compressed, x = randomise(CompressedAttention(D_MODEL, HEADS, stride=2, **SIZES)).double(), inputs()
    changed = x.clone()
    changed[:, 3:] += 1
    assert_close(compressed(x, changed, changed, causal_mask(7))[:, :3], compressed(x, x, x, causal_mask(7))[:, :3])
    assert (compressed(x, changed, changed)[:, :3] - compressed(x, x, x)[:, :3]).abs().max() > 1e-3
    mask = padding_mask(IDS)
    assert_close(compressed(x, changed, changed, mask)[1], compressed(x, x, x, mask)[1])
