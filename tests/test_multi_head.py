"""Multi-head attention against one head at a time, and PyTorch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import assert_near, assert_parity, randomise, torch_parameters
from torch import nn

from annotated.attention import attention
from annotated.masking import causal_mask
from annotated.multi_head import MultiHeadAttention, record_attention

BATCH, HEADS, QUERY, KEY = 2, 3, 5, 7
SMALL = st.integers(1, 5)


def inputs(d_model: int, batch: int = BATCH, query: int = QUERY, key: int = KEY) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, length, d_model) for length in (query, key, key))


def random_mask(*shape: int) -> torch.Tensor:
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


@given(SMALL, SMALL, SMALL, st.booleans(), SMALL, SMALL, SMALL)
def test_equals_a_loop_over_heads(heads, d_k, d_v, bias, batch, query, key):
    d_model = 11
    ours = randomise(MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, bias=bias))
    q, k, v = inputs(d_model, batch, query, key)
    mask = random_mask(batch, heads, query, key)
    mixed = []
    for head in range(heads):
        keys, values = slice(head * d_k, (head + 1) * d_k), slice(head * d_v, (head + 1) * d_v)
        mixed.append(attention(ours.W_q(q)[..., keys], ours.W_k(k)[..., keys], ours.W_v(v)[..., values], mask[:, head]))
    assert_near(ours(q, k, v, mask), ours.W_o(torch.cat(mixed, dim=-1)))


@pytest.mark.parametrize(("heads", "d_k", "masked", "bias"), [(1, 11, False, True), (13, 3, True, False)])
def test_equals_pytorch(heads, d_k, masked, bias):
    d_model = heads * d_k
    ours = randomise(MultiHeadAttention(d_model, heads, bias=bias))
    theirs = nn.MultiheadAttention(d_model, heads, bias=bias, batch_first=True)
    mask = random_mask(BATCH, heads, QUERY, KEY) if masked else None
    forbidden = ~mask.flatten(0, 1) if masked else None  # PyTorch: one row for batch and heads, True = may not attend
    given = inputs(d_model)
    with record_attention(ours) as recorded:
        assert_parity(ours, theirs, given, {"mask": mask}, {"attn_mask": forbidden, "need_weights": False})
    theirs.load_state_dict(torch_parameters(ours))
    assert_near(recorded[""][0], theirs(*given, attn_mask=forbidden, average_attn_weights=False)[1])


class Reader(nn.Module):
    """A module of two attentions, one inside the other's path, to record."""

    def __init__(self):
        super().__init__()
        self.look = MultiHeadAttention(21, HEADS)
        self.ask = nn.ModuleDict({"twice": MultiHeadAttention(21, 7)})

    def forward(self, x, memory):
        x = self.look(x, x, x, causal_mask(x.size(1)))
        return self.ask["twice"](self.ask["twice"](x, memory, memory), memory, memory)


def test_recorded_weights():
    model = Reader()
    x, memory, _ = inputs(21)
    with record_attention(model) as recorded:
        model(x, memory)
        model(x[:, :1], memory)
    assert {name: [tuple(weights.shape) for weights in calls] for name, calls in recorded.items()} == {
        "look": [(BATCH, HEADS, QUERY, QUERY), (BATCH, HEADS, 1, 1)],
        "ask.twice": [(BATCH, 7, QUERY, KEY)] * 2 + [(BATCH, 7, 1, KEY)] * 2,
    }
    weights = recorded["look"][0]
    assert not weights.requires_grad and (weights[..., ~causal_mask(QUERY)] == 0).all()
    assert_near(weights.sum(-1), torch.ones(BATCH, HEADS, QUERY))
    with pytest.raises(ZeroDivisionError), record_attention(model) as recorded:
        model(x, memory)
        raise ZeroDivisionError  # recording ends with its context, however that ends
    model(x, memory)
    assert len(recorded["look"]) == 1 and not model.look.recorders
