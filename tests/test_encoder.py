"""The encoder and its parts against numbers by hand and PyTorch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import assert_near, assert_parity, randomise
from torch import nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.encoder import Dropout, Encoder, EncoderLayer, FeedForward, LayerNorm, Residual
from annotated.masking import combine, padding_mask

D_MODEL, HEADS, D_FF = 15, 3, 11
IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [4, 5, 6, 0, 0, 0, 0]])
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
biases = pytest.mark.parametrize("attention_bias", [False, True], ids=["no bias", "bias"])


def sizes(**changes) -> TransformerConfig:
    return TransformerConfig(**(dict(vocab_size=1, d_model=D_MODEL, heads=HEADS, d_ff=D_FF) | changes))


# Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropout_zeroes_a_share_and_scales_the_rest(p):
    n = 100_003
    y = Dropout(p)(torch.full((n,), 3.0))
    dropped = y == 0
    sigma = (p * (1 - p) / n) ** 0.5
    assert abs(dropped.float().mean().item() - p) < 4 * sigma
    assert abs(y.mean().item() - 3) < 4 * 3 * sigma / (1 - p)
    assert_near(y[~dropped], torch.full_like(y[~dropped], 3 / (1 - p)))


def test_dropout_mask_belongs_to_the_seed():
    x, dropout = torch.ones(7, 11), Dropout(0.5)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(0)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


@given(
    shape=st.lists(st.integers(0, 5), max_size=3), dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16])
)
def test_dropout_takes_any_shape(shape, dtype):
    y = Dropout(0.5)(torch.ones(shape, dtype=dtype))
    assert y.shape == torch.Size(shape)
    assert y.dtype == dtype
    assert ((y == 0) | (y == 2)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dropout_meets_a_small_and_a_large_p_in_every_precision(dtype):
    # A random number of 16 bits is a multiple of 1/256 or 1/2048: it would drop too many, and keep none.
    n, rare = 2**20, 2**-12
    limit = 4 * (n * rare) ** 0.5
    assert abs((Dropout(rare)(torch.ones(n, dtype=dtype)) == 0).sum().item() - n * rare) < limit
    assert abs(Dropout(1 - rare)(torch.ones(n, dtype=dtype)).count_nonzero().item() - n * rare) < limit


def test_dropout_is_independent_of_position():
    # Each number is drawn by itself: neighbours fall together as often as chance has it, a quarter of the time.
    dropped = Dropout(0.5)(torch.ones(4_001, 4)) == 0
    together = (dropped.T.float() @ dropped.float()) / 4_001
    assert_near(together, torch.full((4, 4), 0.25) + 0.25 * torch.eye(4), atol=0.04)


def test_dropout_gradient_follows_the_mask():
    x = torch.randn(5, 7, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.where(y == 0, 0.0, 2.0))


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0)], ids=["eval mode", "p = 0"])
def test_dropout_passes_through(dropout):
    x = torch.randn(3, 5)
    before = torch.get_rng_state()
    assert torch.equal(dropout(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_probability_is_checked(p):
    with pytest.raises(ValueError, match=rf"dropout p={p} must be at least 0 and below 1"):
        Dropout(p)


# LayerNorm, feed-forward, residual


def test_layer_norm_by_hand():
    # Mean 5; deviations −3, −1, 1, 3; biased variance (9 + 1 + 1 + 9) / 4 = 5; with ε = 4 the root is exactly 3.
    norm = LayerNorm(4, eps=4.0)
    x = torch.tensor([2.0, 4.0, 6.0, 8.0])
    assert_near(norm(x), torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0]))
    nn.init.constant_(norm.gain, 6)
    nn.init.constant_(norm.bias, 100)
    assert_near(norm(x), torch.tensor([94.0, 98.0, 102.0, 106.0]))


def test_layer_norm_equals_pytorch():
    assert_parity(randomise(LayerNorm(11)), nn.LayerNorm(11), (torch.randn(2, 5, 11),))


def test_feed_forward_by_hand():
    network = FeedForward(1, 2)
    network.load_state_dict(
        {
            "W_1.weight": torch.tensor([[1.0], [-1.0]]),
            "W_1.bias": torch.tensor([2.0, 3.0]),
            "W_2.weight": torch.tensor([[10.0, 100.0]]),
            "W_2.bias": torch.tensor([0.5]),
        }
    )
    # x = 5: hidden 7 and −2, cut to 0. x = −1: hidden 1 and 4. x = −4: hidden −2, cut to 0, and 7.
    assert network(torch.tensor([[5.0], [-1.0], [-4.0]])).tolist() == [[70.5], [410.5], [700.5]]


def test_unknown_activation_is_an_error():
    with pytest.raises(ValueError, match=r"unknown activation 'tanh': choose from relu, gelu, silu"):
        FeedForward(5, 7, "tanh")


@norms
def test_residual_drops_the_sublayer_output_only(norm_first):
    residual = randomise(Residual(7, 0.5, norm_first))
    x = torch.randn(3, 5, 7)
    torch.manual_seed(1)
    y = residual(x, torch.sin)
    torch.manual_seed(1)
    dropped = Dropout(0.5)(torch.sin(residual.norm(x) if norm_first else x))
    assert torch.equal(y, x + dropped if norm_first else residual.norm(x + dropped))


# Layer and stack


@norms
@biases
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layer_equals_pytorch(norm_first, attention_bias, activation):
    options = dict(dropout=0.0, norm_first=norm_first)
    ours = randomise(EncoderLayer(sizes(activation=activation, attention_bias=attention_bias, **options)))
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, D_FF, activation=ACTIVATIONS[activation], batch_first=True, **options
    )
    allowed = torch.rand(7, 7) < 0.5
    allowed[:, 0] = True
    mask = combine(allowed, padding_mask(IDS))
    blocked = {"src_mask": ~allowed, "src_key_padding_mask": IDS == 0}
    assert_parity(ours, theirs, (torch.randn(2, 7, D_MODEL),), {"mask": mask}, blocked)


@norms
@biases
def test_stack_equals_pytorch(norm_first, attention_bias):
    ours = Encoder(sizes(layers=5, norm_first=norm_first, attention_bias=attention_bias)).eval()
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, norm_first=norm_first, batch_first=True)
    norm = nn.LayerNorm(D_MODEL) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 5, norm, enable_nested_tensor=False).eval()
    inputs = (torch.randn(2, 7, D_MODEL),)
    assert_parity(randomise(ours), theirs, inputs, {"mask": padding_mask(IDS)}, {"src_key_padding_mask": IDS == 0})


def test_every_size_reaches_the_layers():
    config = sizes(layers=2, d_k=3, d_v=7, dropout=0.3, attention_bias=True, norm_first=True, activation="silu")
    for layer in Encoder(config).layers:
        attention = layer.self_attention
        assert (attention.heads, attention.d_k, attention.d_v, attention.W_q.bias is None) == (HEADS, 3, 7, False)
        assert (layer.feed_forward.W_1.out_features, layer.feed_forward.activation) == (D_FF, F.silu)
        assert [(part.dropout.p, part.norm_first) for part in layer.residuals] == [(0.3, True)] * 2


@norms
def test_last_norm_only_in_pre_norm(norm_first):
    encoder = Encoder(sizes(layers=5, norm_first=norm_first))
    assert sum(isinstance(module, LayerNorm) for module in encoder.modules()) == 5 * 2 + norm_first


def test_layers_start_with_different_weights():
    first, second = Encoder(sizes(layers=2)).layers
    for ours, other in zip(first.parameters(), second.parameters(), strict=True):
        assert ours.dim() == 1 or not torch.equal(ours, other)


@norms
def test_sentence_of_padding_stays_finite(norm_first):
    encoder = Encoder(sizes(layers=2, norm_first=norm_first))
    x = torch.randn(2, 3, D_MODEL, requires_grad=True)
    output = encoder(x, padding_mask(torch.tensor([[5, 6, 7], [0, 0, 0]])))
    output.square().sum().backward()
    assert output.isfinite().all()
    assert all(tensor.grad.isfinite().all() for tensor in (x, *encoder.parameters()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_a_residual_keeps_the_precision_of_its_model(dtype, norm_first):
    residual = Residual(6, 0.0, norm_first).to(dtype)
    assert residual(torch.randn(2, 5, 6, dtype=dtype), torch.tanh).dtype == dtype
