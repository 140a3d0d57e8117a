"""Positional encodings against their closed form."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding, sinusoids

even = st.integers(1, 32).map(lambda half: 2 * half)


@given(position=st.integers(0, 4999), d_model=even)
def test_closed_form(position, d_model):
    row = sinusoids(position + 1, d_model)[position]
    angles = [position / 10000 ** (2 * i / d_model) for i in range(d_model // 2)]
    assert_close(row[0::2], torch.tensor([math.sin(angle) for angle in angles]), atol=1e-6, rtol=0)
    assert_close(row[1::2], torch.tensor([math.cos(angle) for angle in angles]), atol=1e-6, rtol=0)


def test_sinusoids_are_added_and_not_saved():
    encoding = SinusoidalEncoding(6, 11)
    x = torch.randn(2, 5, 6)
    assert torch.equal(encoding(x), x + sinusoids(5, 6))
    assert not encoding.state_dict() and not list(encoding.parameters())


WAYS = {
    "through meta": lambda encoding: encoding.to("meta").to_empty(device="cpu"),
    "to meta and back, in bfloat16": lambda encoding: encoding.to("meta").bfloat16().to_empty(device="cpu"),
    "double": lambda encoding: encoding.double(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda encoding: pickle.loads(pickle.dumps(encoding)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_sinusoids_survive_every_way_through_memory(way):
    moved = way(SinusoidalEncoding(6, 11))
    assert torch.equal(moved.table, sinusoids(11, 6).to(moved.table.dtype))
    assert not moved.state_dict()


def test_learned_vectors_are_added_and_learned():
    encoding = LearnedEncoding(3, 7)
    x = torch.randn(2, 4, 3)
    assert torch.equal(encoding(x), x + encoding.table[:4])
    encoding(x, start=1).sum().backward()
    assert encoding.table.grad.tolist() == [[0.0] * 3] + [[2.0] * 3] * 4 + [[0.0] * 3] * 2


def test_learned_vectors_start_with_length_one():
    torch.manual_seed(0)
    assert_close(LearnedEncoding(211, 101).table.norm(dim=-1), torch.ones(101), atol=0.2, rtol=0)
