"""The parts of the fast forms: attention, dropout, 16 bits, and the cache that hypotheses share."""

import copy

import pytest
import torch
from parity import maker
from test_transformer import SIZES, SOURCE, TARGET
from torch.testing import assert_close

from annotated.attention import attention
from annotated.config import TransformerConfig
from annotated.fast.attention import attend, prepare
from annotated.fast.residual import dropout_mask
from annotated.fast.transformer import FastTransformer
from annotated.masking import padding_mask
from annotated.transformer import Transformer

DEPARTURES = dict(norm_first=True, attention_bias=True, d_k=3, d_v=5, tie_embeddings=False, activation="gelu")
DEPARTURES |= dict(positions="learned")
make_model = maker(Transformer, TransformerConfig, **SIZES)


@pytest.fixture(params=[{}, DEPARTURES], ids=["paper", "every departure"])
def model(request) -> Transformer:
    return make_model(**request.param).double()


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


MASKS = [None, (5, 7), (1, 7), (1, 1), (3, 1, 1, 7), (1, 2, 5, 7), (3, 1, 5, 7), (3, 2, 5, 1), (3, 2, 5, 7)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_attend_equals_attention_also_where_nothing_may_be_seen(shape, dtype):
    inputs = [torch.randn(3, 2, n, d, dtype=dtype, requires_grad=True) for n, d in ((5, 8), (7, 8), (7, 11))]
    mask = None if shape is None else torch.rand(shape) < 0.5
    if mask is not None:
        mask.view(-1, shape[-1])[0] = False  # the first query may attend to nothing
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = attention(*exact, mask).transpose(1, 2).flatten(2)
    found = attend(*inputs, None if mask is None else prepare(mask))
    assert found.dtype == dtype
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    direction = torch.randn_like(expected)
    fast, slow = (
        torch.autograd.grad(found, inputs, direction.to(dtype)),
        torch.autograd.grad(expected, exact, direction),
    )
    for ours, plain in ((found, expected), *zip(fast, slow, strict=True)):
        assert_close(ours.double(), plain, atol=tolerance, rtol=tolerance)
        assert (ours[plain == 0] == 0).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_of_the_mask_is_zero_and_the_rest_one(p):
    n = 100_003
    first, second = dropout_mask(torch.full((n,), 3.0), p), dropout_mask(torch.ones(n), p)
    assert first.unique().tolist() == [0, 1]
    spread = 4 * (p * (1 - p) / n) ** 0.5
    assert abs((first == 0).float().mean().item() - p) < spread
    for other in (second, first.roll(1)):  # each number is drawn by itself: two fall together as chance has it
        assert abs(((first == 0) & (other == 0)).float().mean().item() - p * p) < spread
    torch.manual_seed(0)
    assert torch.equal(dropout_mask(torch.ones(n), p), first)


def test_the_mask_is_the_same_on_every_torch():
    mask = dropout_mask(torch.zeros(5, 3), 0.3)
    assert ["".join(str(int(number)) for number in row) for row in mask] == ["101", "101", "111", "111", "000"]


def test_in_32_bits_and_in_bfloat16_it_is_near(model):
    expected = model(SOURCE, TARGET)
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()
    wanted = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    for bf16, dtype, error in ((False, torch.float32, 1e-5), (True, torch.bfloat16, 0.03)):
        narrow = copy.deepcopy(model).float()
        narrow.zero_grad()
        fast = FastTransformer(narrow, bf16=bf16)
        logits = fast(SOURCE, TARGET)
        assert logits.dtype == fast.dtype == dtype
        assert relative_error(logits, expected) < error
        (logits * direction).sum().backward()
        assert {weight.dtype for weight in narrow.parameters()} == {torch.float32}
        assert relative_error(torch.cat([weight.grad.flatten() for weight in narrow.parameters()]), wanted) < error


@torch.no_grad()
def test_in_pre_norm_the_sum_over_all_layers_keeps_32_bits():
    # Next to 3,742 the steps of bfloat16 are 16; what the tokens differ by is 0.3 √14.
    model = make_model(norm_first=True)
    model.src_embedding.weight += 1000
    found = FastTransformer(model, bf16=True).encode(SOURCE, padding_mask(SOURCE))
    assert relative_error(found, model.encode(SOURCE).double()) < 0.03


def draw_ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, 19, (batch, length))


@torch.no_grad()
def test_hypotheses_grow_are_reordered_and_dropped_and_no_key_moves(model):
    # Two sentences with three hypotheses each: rows 0, 1, 2 and 3, 4, 5.
    fast, src_mask = FastTransformer(model), padding_mask(SOURCE)
    memory = model.encode(SOURCE, src_mask)
    cache = fast.new_cache(3 + 6 + 4 + 6 + 6 + 2 + 3)
    ids = torch.empty(6, 0, dtype=torch.long)
    for rows, sentences, count in (
        ([0, 1, 2, 3, 4, 5], None, 1),
        ([2, 0, 0, 4, 3, 3], None, 2),  # as many as before, in another order
        ([1, 2, 5, 4], None, 2),  # two for each sentence
        ([0, 1, 1, 3, 3, 2], None, 2),  # three again
        ([4, 3, 3, 1, 1, 0], [1, 0], 2),  # the sentences change places
        ([0, 2], [0], 1),  # one is finished
        ([1], None, 3),
    ):
        given = memory
        if cache.length:
            room = cache[0].room
            cache.select(torch.tensor(rows), None if sentences is None else torch.tensor(sentences))
            assert sentences is not None or cache[0].room is room
            given = torch.full_like(memory, torch.nan)  # projected once; read again, it would show
        ids = ids[rows]
        if sentences is not None:
            memory, src_mask, given = memory[sentences], src_mask[sentences], given[sentences]
        new = draw_ids(len(ids), count)
        ids = torch.cat((ids, new), dim=1)
        states = fast.decode(new, given, src_mask, cache=cache)
        apart = (x.repeat_interleave(len(ids) // len(memory), 0) for x in (memory, src_mask))  # one for each hypothesis
        assert_close(states, model.decode(ids, *apart)[:, -count:], atol=1e-10, rtol=1e-10)  # in 64 bits


@torch.no_grad()
def test_a_full_cache_stays_as_it_was(model):
    fast, src_mask = FastTransformer(model), padding_mask(SOURCE)
    memory = model.encode(SOURCE, src_mask)
    cache = fast.new_cache(5)
    fast.decode(draw_ids(4, 2), memory, src_mask, cache=cache)  # two hypotheses each: four tokens of a sentence
    written = cache.written
    with pytest.raises(ValueError, match=r"the cache holds 5 tokens of a sentence, and 6 are needed: enlarge it"):
        fast.decode(draw_ids(4, 1), memory, src_mask, cache=cache)
    assert cache.written is written
    assert (cache.length, *(layer.length for layer in cache)) == (2, 4, 4, 4)
