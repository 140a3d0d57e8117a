"""Scaled dot-product attention against numbers by hand, its own properties, and PyTorch."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import assert_near, assert_same_gradients
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.attention import attention, attention_weights


def test_weights_by_hand():
    # d_k = 4, so that √d_k = 2. The scores are 0 and ln 3, whose exponentials are 1 and 3.
    query = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    key = torch.tensor([[0.0, 5.0, 0.0, 0.0], [2 * math.log(3), 0.0, 7.0, 0.0]])
    value = torch.tensor([[4.0, 0.0, 20.0], [8.0, 100.0, 40.0]])
    assert_close(attention_weights(query, key), torch.tensor([[0.25, 0.75]]))
    assert_close(attention(query, key, value), torch.tensor([[7.0, 75.0, 35.0]]))


@given(
    batch=st.sampled_from([(), (3,), (2, 3)]),
    queries=st.integers(1, 5),
    keys=st.integers(1, 7),
    scale=st.sampled_from([0.1, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_weights_of_a_query_sum_to_one(batch, queries, keys, scale, seed):
    torch.manual_seed(seed)
    query, key, value = torch.randn(*batch, queries, 11), torch.randn(*batch, keys, 11), torch.randn(*batch, keys, 13)
    mask = torch.rand(queries, keys) < 0.7
    weights, output = attention_weights(scale * query, key, mask), attention(scale * query, key, value, mask)
    assert weights.shape == (*batch, queries, keys) and output.shape == (*batch, queries, 13)
    assert (weights >= 0).all() and (weights[..., ~mask] == 0).all()
    assert_close(weights.sum(-1), mask.any(-1).float().expand(*batch, queries))
    assert_close(output, weights @ value)


@pytest.mark.parametrize("shape", [(1, 11), (7, 11), (3, 1, 1, 11), (1, 5, 7, 11), (3, 5, 7, 11)], ids=str)
@pytest.mark.parametrize("d_v", [13, 2])
def test_equals_pytorch(shape, d_v):
    inputs = [torch.randn(3, 5, length, width, requires_grad=True) for length, width in ((7, 13), (11, 13), (11, d_v))]
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True  # a query with nothing to attend to makes NaN in older versions of PyTorch
    ours, theirs = attention(*inputs, mask), F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    assert_near(ours, theirs)
    assert_same_gradients(ours, theirs, inputs)


def test_query_with_nothing_to_attend_to():
    query, key, value = (torch.randn(2, n, 3, requires_grad=True) for n in (5, 7, 7))
    mask = torch.ones(2, 5, 7, dtype=torch.bool)
    mask[0, 3] = False
    mask[1, :, 6] = False
    output = attention(query, key, value, mask)
    assert (output[0, 3] == 0).all()
    assert_close(output[0, :3], attention(query[0, :3], key[0], value[0]))

    gradients = torch.autograd.grad(output[0, 3].sum(), (query, key, value), retain_graph=True)
    assert all((gradient == 0).all() for gradient in gradients)
    of_query, of_key, of_value = gradients = torch.autograd.grad(output.square().sum(), (query, key, value))
    assert all((gradient == 0).all() for gradient in (of_query[0, 3], of_key[1, 6], of_value[1, 6]))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_precision_is_kept(dtype):
    inputs = [torch.randn(2, n, 3, dtype=dtype) for n in (5, 7, 7)]
    mask = torch.ones(5, 7, dtype=torch.bool).tril()
    output, weights = attention(*inputs, mask), attention_weights(*inputs[:2], mask)
    assert output.dtype == weights.dtype == dtype
    exact = attention(*(x.double() for x in inputs), mask)
    assert_close(output.double(), exact, atol=4 * torch.finfo(dtype).eps, rtol=4 * torch.finfo(dtype).eps)
