"""The encoder and its parts against numbers by hand and PyTorch."""

import pytest
import torch
from parity import assert_near, assert_parity, randomise
from torch import nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.encoder import Dropout, Encoder, LayerNorm, Residual
from annotated.masking import combine, padding_mask

D_MODEL, HEADS, D_FF = 15, 3, 11
IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [4, 5, 6, 0, 0, 0, 0]])

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_zeroes_a_share_and_scales_the_rest(p):
    n = 100_003
    y = Dropout(p)(torch.full((n,), 3.0))
    dropped = y == 0
    assert abs(dropped.float().mean().item() - p) < 4 * (p * (1 - p) / n) ** 0.5
    assert_near(y[~dropped], torch.full_like(y[~dropped], 3 / (1 - p)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dropout_meets_a_small_and_a_large_p_in_every_precision(dtype):
    # A random number of 16 bits is a multiple of 1/256 or 1/2048: it would drop too many, and keep none.
    n, rare = 2**20, 2**-12
    limit = 4 * (n * rare) ** 0.5
    assert abs((Dropout(rare)(torch.ones(n, dtype=dtype)) == 0).sum().item() - n * rare) < limit
    assert abs(Dropout(1 - rare)(torch.ones(n, dtype=dtype)).count_nonzero().item() - n * rare) < limit


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0)], ids=["eval mode", "p = 0"])
def test_dropout_passes_through(dropout):
    x = torch.randn(3, 5)
    before = torch.get_rng_state()
    assert torch.equal(dropout(x), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_layer_norm_by_hand():
    # Mean 5; deviations −3, −1, 1, 3; biased variance (9 + 1 + 1 + 9) / 4 = 5; with ε = 4 the root is exactly 3.
    norm = LayerNorm(4, eps=4.0)
    x = torch.tensor([2.0, 4.0, 6.0, 8.0])
    assert_near(norm(x), torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0]))
    nn.init.constant_(norm.gain, 6)
    nn.init.constant_(norm.bias, 100)
    assert_near(norm(x), torch.tensor([94.0, 98.0, 102.0, 106.0]))


@norms
def test_residual_drops_the_sublayer_output_only(norm_first):
    residual = randomise(Residual(7, 0.5, norm_first))
    x = torch.randn(3, 5, 7)
    torch.manual_seed(1)
    y = residual(x, torch.sin)
    torch.manual_seed(1)
    dropped = Dropout(0.5)(torch.sin(residual.norm(x) if norm_first else x))
    assert torch.equal(y, x + dropped if norm_first else residual.norm(x + dropped))


@norms
@pytest.mark.parametrize(("activation", "bias"), [("relu", False), ("gelu", True), ("silu", True)])
def test_stack_equals_pytorch(norm_first, activation, bias):
    options = dict(dropout=0.0, norm_first=norm_first)
    config = TransformerConfig(1, D_MODEL, D_FF, HEADS, 5, activation=activation, attention_bias=bias, **options)
    ours = randomise(Encoder(config))
    activate = getattr(F, activation)  # PyTorch's layer knows silu by its function alone
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, activation=activate, batch_first=True, **options)
    norm = nn.LayerNorm(D_MODEL) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 5, norm, enable_nested_tensor=False)
    allowed = torch.rand(7, 7) < 0.5
    allowed[:, 0] = True
    mask = combine(allowed, padding_mask(IDS))
    blocked = {"mask": ~allowed, "src_key_padding_mask": IDS == 0}
    assert_parity(ours, theirs, (torch.randn(2, 7, D_MODEL),), {"mask": mask}, blocked)
