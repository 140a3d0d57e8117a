"""The product of a linear layer by another kernel, with weights laid out once, and in eight bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from annotated.fast import products
from annotated.fast.products import linear, prepared


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (2, 1, 5, 7), (0, 7), (2, 0, 7)])
def test_values_and_gradients_are_those_of_the_library(shape, bias):
    x, gradient = draw(*shape), draw(*shape[:-1], 5, seed=1)
    weights = [draw(5, 7, seed=2), *([draw(5, seed=3)] if bias else [])]
    exact, rounded = [], []
    for function, dtype, into in ((F.linear, torch.float64, exact), (linear, torch.float32, rounded)):
        given = [tensor.to(dtype).requires_grad_() for tensor in (x, *weights)]
        output = function(*given)
        into += [output, *torch.autograd.grad(output, given, gradient.to(dtype))]
    for found, expected in zip(rounded, exact, strict=True):
        assert found.dtype == torch.float32 and found.shape == expected.shape
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learns", [0, 1, 2])
def test_only_what_learns_gets_a_gradient(learns):
    given = [draw(3, 7, dtype=torch.float32), draw(5, 7, dtype=torch.float32), draw(5, dtype=torch.float32)]
    given[learns].requires_grad_()
    linear(*given).sum().backward()
    assert [tensor.grad is not None for tensor in given] == [i == learns for i in range(3)]


def test_what_lies_scattered_in_memory_is_read_rightly():
    x = draw(6, 4, 9, dtype=torch.float32).transpose(0, 1)[:, ::2, 1:8].requires_grad_()
    weight = draw(9, 5, dtype=torch.float32)[1:8].t()
    gradient = draw(5, dtype=torch.float32).expand(4, 3, 5)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    found, expected = (torch.autograd.grad(function(x, weight), x, gradient)[0] for function in (linear, F.linear))
    torch.testing.assert_close(found, expected)


def test_there_is_no_second_derivative():
    x = draw(3, 7, dtype=torch.float32).requires_grad_()
    if not products.ONEDNN:
        pytest.skip("the library's own product has one")
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(linear(x, draw(5, 7, dtype=torch.float32)).sum(), x, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 3, 130])
def test_a_prepared_product_is_the_product(dtype, rows):
    x, weight, bias = draw(2, rows, 7, dtype=dtype), draw(5, 7, seed=1, dtype=dtype), draw(5, seed=2, dtype=dtype)
    with torch.no_grad():
        for b in (bias, None):
            torch.testing.assert_close(prepared(weight, b)(x), F.linear(x, weight, b), rtol=1e-2, atol=1e-5)


def test_operations_are_counted():
    x, weight = draw(2, 3, 7, dtype=torch.float32).requires_grad_(), draw(5, 7, dtype=torch.float32).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        linear(x, weight).sum().backward()
        with torch.no_grad():
            prepared(weight, None)(x)
    assert counter.get_total_flops() == (3 + 1) * 2 * 6 * 7 * 5  # forward, two gradients; and forward again


def test_eight_bits_by_hand():
    # Rows of W are whole numbers up to 127, x has only the ends of its range: nothing is rounded.
    weight = torch.tensor([[127.0, -5.0, 3.0], [-127.0, 0.0, 64.0]])
    product = prepared(weight, torch.tensor([0.5, 0.0]), int8=True)
    found = product(torch.tensor([[0.0, 255.0, 255.0], [255.0, 0.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([[-509.5, 64 * 255.0], [127 * 255 + 0.5, -127 * 255.0]]))
    # A weight of 0.4 steps is rounded to none, one of 0.6 to a whole one, whatever else is in other rows.
    product = prepared(torch.tensor([[127.0, 0.4], [1270.0, 6.0]]), None, int8=True)
    torch.testing.assert_close(product(torch.tensor([[0.0, 1.0]])), torch.tensor([[0.0, 10.0]]))


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 9), width=st.integers(1, 70), out=st.integers(1, 20))
def test_eight_bits_are_off_by_no_more_than_their_rounding(seed, rows, width, out):
    x, weight = draw(rows, width, seed=seed, dtype=torch.float32), draw(out, width, seed=seed + 1, dtype=torch.float32)
    steps = 127 if products._overflows() else 255
    off_x = (max(x.max().item(), 0.0) - min(x.min().item(), 0.0)) / steps  # zero is always one of the steps
    off_weight = weight.abs().amax(dim=1) / 127 / 2
    most = off_x * weight.abs().sum(dim=1) + (x.abs().sum(dim=1, keepdim=True) + width * off_x) * off_weight
    assert ((prepared(weight, None, int8=True)(x) - F.linear(x, weight)).abs() <= most * 1.01 + 1e-5).all()


def test_the_largest_numbers_do_not_overflow():
    ones = torch.ones(2, 300)
    torch.testing.assert_close(prepared(ones[:1], None, int8=True)(ones), torch.full((2, 1), 300.0))


def test_the_engine_of_others_stays_as_it_was():
    before = torch.backends.quantized.engine
    prepared(torch.ones(2, 3), None, int8=True)
    assert torch.backends.quantized.engine == before


def test_eight_bits_elsewhere_than_on_a_cpu_are_refused():
    with pytest.raises(ValueError, match=r"eight bits are for a CPU, and the model is on meta: give --device cpu\."):
        prepared(torch.ones(2, 3, device="meta"), None, int8=True)
