"""The fast room's model equals the plain one: attention, residual sum, dropout, cache, wrappers, the whole."""

import copy
import functools
import re
from collections.abc import Callable
from functools import partial

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import assert_near, assert_same_gradients, randomise
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.attention import attention
from annotated.config import TransformerConfig
from annotated.decoding import evaluating
from annotated.encoder import Dropout, LayerNorm
from annotated.fast import attention as fast_attention
from annotated.fast import residual as fast_residual
from annotated.fast import transformer as fast_transformer
from annotated.fast.attention import attend, attend_heads, fused_attention
from annotated.fast.cache import Cache, LayerCache
from annotated.fast.residual import add_norm, drop, dropout_mask, scale_before_drop
from annotated.fast.transformer import FastTransformer
from annotated.fast.translator import FastTranslator, Rows, autocast
from annotated.masking import padding_mask
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer

# In 64 bits only the order of additions differs.
assert_exact = partial(assert_close, atol=1e-10, rtol=1e-10)

SIZES = dict(vocab_size=19, d_model=14, d_ff=11, heads=2, layers=3, dropout=0.0, max_length=17)
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 2, 0, 0], [0, 0, 0, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 0], [1, 13, 14, 15], [0, 0, 0, 0]])
CONFIGS = {
    "paper": {},
    "pre-norm": dict(norm_first=True),
    "attention biases": dict(attention_bias=True),
    "widths of a head": dict(d_k=3, d_v=5),
    "learned positions": dict(positions="learned"),
    "untied": dict(tie_embeddings=False),
    "gelu": dict(activation="gelu"),
    "silu": dict(activation="silu"),
    "one layer, one head": dict(layers=1, heads=1),
    "every departure": dict(
        norm_first=True,
        attention_bias=True,
        d_k=3,
        d_v=5,
        positions="learned",
        tie_embeddings=False,
        activation="gelu",
    ),
}

configs = pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
ends = pytest.mark.parametrize("changes", [{}, CONFIGS["every departure"]], ids=["paper", "every departure"])
norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
modes = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


def make_model(**changes) -> Transformer:
    return randomise(Transformer(TransformerConfig(**(SIZES | changes)))).double()


# Attention

MASKS = [None, (5, 7), (1, 7), (1, 1), (3, 1, 1, 7), (1, 2, 5, 7), (3, 1, 5, 7), (3, 2, 5, 1), (3, 2, 5, 7)]


def draw_heads(queries: int = 5, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Queries, keys and values of three sentences and two heads."""
    shapes = (3, 2, queries, 13), (3, 2, 7, 13), (3, 2, 7, 11)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def draw_mask(shape: tuple[int, ...] | None) -> torch.Tensor | None:
    """A random mask under which the first query may attend to nothing."""
    if shape is None:
        return None
    mask = torch.rand(shape) < 0.5
    mask.view(-1, shape[-1])[0] = False
    return mask


def attend_apart(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, together: bool = False
) -> torch.Tensor:
    """Call `attend` for heads that are apart, (batch, heads, length, width), and take its result apart."""
    heads = query.size(1)
    q, k, v = (x.transpose(1, 2).flatten(2) for x in (query, key, value))
    groups = [[q, k, v]] if together else [[q], [k, v]]
    widths = [[part.size(-1) for part in group] for group in groups]
    output = attend(*(torch.cat(group, dim=-1) for group in groups), heads=heads, widths=widths, mask=mask)
    return output.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend_elsewhere(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None):
    return attend_apart(*(x.as_subclass(Elsewhere) for x in (query, key, value)), mask).as_subclass(torch.Tensor)


class Elsewhere(torch.Tensor):
    """Says that it is on another device than it is."""

    device = torch.device("meta")


@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_every_way_to_attend_equals_attention(shape, monkeypatch):
    ways = {"to a memory": attend_apart, "to itself": partial(attend_apart, together=True), "fused": fused_attention}
    for way, apply in (ways | {"elsewhere": attend_elsewhere}).items():
        if way == "elsewhere":
            monkeypatch.setattr(fast_attention, "_Attention", None)
            monkeypatch.setattr(fast_attention, "weights_of", None)
        queries = 7 if way == "to itself" else 5
        inputs = draw_heads(queries)
        mask = draw_mask(shape and (*shape[:-2], queries if shape[-2] == 5 else shape[-2], shape[-1]))
        before = [x if x is None else x.detach().clone() for x in (*inputs, mask)]
        ours, plain = apply(*inputs, mask), attention(*inputs, mask)
        assert_exact(ours, plain)
        assert_same_gradients(ours, plain, inputs, assert_exact)
        for x, was in zip((*inputs, mask), before, strict=True):  # what is given stays as it is
            assert x is was or torch.equal(x, was)
        with torch.no_grad():  # heads that are apart already
            heads = [x.as_subclass(Elsewhere) for x in inputs] if way == "elsewhere" else inputs
            assert_exact(attend_heads(*heads, mask).as_subclass(torch.Tensor), plain.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("apply", [attend_apart, fused_attention])
def test_a_query_with_nothing_to_attend_to(apply):
    inputs = draw_heads()
    mask = torch.ones(3, 1, 5, 7, dtype=torch.bool)
    mask[0, 0, 3] = False
    mask[1, 0, :, 6] = False
    output = apply(*inputs, mask)
    assert (output[0, :, 3] == 0).all()
    assert (output[0, :, :3] != 0).all()
    for gradient in torch.autograd.grad(output[0, :, 3].sum(), inputs, retain_graph=True):
        assert (gradient == 0).all()
    query_gradient, key_gradient, value_gradient = torch.autograd.grad(output.square().sum(), inputs)
    assert (query_gradient[0, :, 3] == 0).all()
    assert (key_gradient[1, :, 6] == 0).all()
    assert (value_gradient[1, :, 6] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (query_gradient, key_gradient, value_gradient))


@pytest.mark.parametrize("apply", [attend_apart, fused_attention])
def test_nothing_to_attend_to_at_all(apply):
    inputs = draw_heads()
    output = apply(*inputs, torch.zeros(1, 1, dtype=torch.bool))
    assert torch.equal(output, torch.zeros(3, 2, 5, 11, dtype=torch.float64))
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(output.sum(), inputs))


def test_attend_survives_large_scores():
    query, key, value = (scale * x for scale, x in zip((1e4, 1e4, 1), draw_heads(), strict=True))
    mask = draw_mask((5, 7))
    assert_exact(attend_apart(query, key, value, mask), attention(query, key, value, mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_attends_softmax_has_32_bits(dtype):
    inputs, mask = draw_heads(dtype=dtype), draw_mask((3, 1, 5, 7))
    output = attend_apart(*inputs, mask)
    assert output.dtype == dtype
    heads = [x.flatten(0, 1) for x in inputs]
    scores = torch.bmm(heads[0], heads[1].transpose(1, 2)) * (1 / 13**0.5)
    hidden = ~mask.expand(3, 2, 5, 7).flatten(0, 1)
    weights = scores.float().masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0).to(dtype)
    assert torch.equal(output.flatten(0, 1), torch.bmm(weights, heads[2]))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected, eps = attention(*exact, mask), torch.finfo(dtype).eps
    assert_close(output.double(), expected, atol=4 * eps, rtol=4 * eps)
    gradients = (torch.autograd.grad(x.sum(), of) for x, of in ((output, inputs), (expected, exact)))
    for found, wanted in zip(*gradients, strict=True):
        assert found.dtype == dtype
        assert_close(found.double(), wanted, atol=16 * eps, rtol=16 * eps)


FITS_NOT = [(), (7,), (2, 7), (7, 5), (2, 5, 7), (3, 5, 7), (2, 3, 5, 7), (1, 3, 1, 5, 7)]


@pytest.mark.parametrize("apply", [attend_apart, fused_attention])
def test_a_mask_of_another_shape_or_type_is_an_error(apply, monkeypatch):
    # Users run without the shape checks of these tests, which would complain first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for shape in FITS_NOT:
        message = f"a mask of shape {shape} does not fit scores of shape (3, 2, 5, 7): give (query, key) or all 4 axes"
        with pytest.raises(ValueError, match=re.escape(message)):
            apply(*draw_heads(), torch.ones(shape, dtype=torch.bool))
    for dtype in (torch.float32, torch.int64):
        with pytest.raises(TypeError, match=f"mask must be boolean, True = may attend; got {dtype}"):
            apply(*draw_heads(), torch.ones(5, 7, dtype=dtype))


# Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_a_share_of_the_mask_is_zero_and_the_rest_one(p):
    n = 100_003
    mask = dropout_mask(torch.full((n,), 3.0), p)
    assert mask.unique().tolist() == [0, 1]
    assert abs((mask == 0).float().mean().item() - p) < 4 * (p * (1 - p) / n) ** 0.5


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        (0.1, ["111", "111", "111", "111", "011"]),
        (0.3, ["101", "101", "111", "111", "000"]),
        (0.5, ["100", "101", "111", "000", "000"]),
    ],
)
def test_the_mask_is_the_same_on_every_torch(p, kept):
    mask = dropout_mask(torch.zeros(5, 3), p)
    assert ["".join(str(int(number)) for number in row) for row in mask] == kept


def test_the_mask_belongs_to_the_seed():
    x = torch.ones(7, 11)
    first, second = dropout_mask(x, 0.5), dropout_mask(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(dropout_mask(x, 0.5), first)
    assert not torch.equal(first, second)


@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_a_mask_has_the_shape_and_type_of_what_it_is_for(shape, dtype):
    mask = dropout_mask(torch.ones(shape, dtype=dtype), 0.5)
    assert (mask.shape, mask.dtype) == (torch.Size(shape), dtype)
    assert ((mask == 0) | (mask == 1)).all()


def test_a_mask_is_independent_of_position():
    # Each number is drawn by itself: neighbours fall together as often as chance has it, a quarter of the time.
    dropped = 1 - dropout_mask(torch.ones(4_001, 4), 0.5)
    assert_near((dropped.T @ dropped) / 4_001, torch.full((4, 4), 0.25) + 0.25 * torch.eye(4), atol=0.04)


def test_with_p_next_to_one_something_is_kept():
    """Of 2¹⁶ possible draws the highest one is always kept: about 16 in 2²⁰."""
    assert 4 < dropout_mask(torch.ones(2**20), 1 - 2**-20).count_nonzero() < 40


# The residual sum


class Draws:
    """Instead of random masks, always the same: the first, the second, …"""

    def __init__(self):
        self.shapes: list[tuple[tuple[int, ...], float]] = []

    def __call__(self, x: torch.Tensor, p: float) -> torch.Tensor:
        self.shapes.append((tuple(x.shape), p))
        generator = torch.Generator().manual_seed(len(self.shapes))
        return (torch.rand(x.shape, generator=generator) >= p).to(x.dtype)


def draw_sum(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, LayerNorm]:
    x, change = (torch.randn(2, 5, 7, dtype=dtype, requires_grad=True) for _ in range(2))
    return x, change, randomise(LayerNorm(7, eps=0.1)).to(torch.promote_types(dtype, torch.float32))


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["on a CPU", "elsewhere"])
def test_the_normalised_sum_is_that_of_the_plain_layer_norm(p, elsewhere, monkeypatch):
    monkeypatch.setattr(fast_residual, "dropout_mask", None if elsewhere else Draws())
    x, change, norm = draw_sum()
    given = [x, change]
    kept = Draws()(change, p) if p else torch.ones(())
    if elsewhere:
        kept = kept / (1 - p)
        monkeypatch.setattr(F, "dropout", lambda x, p: x * kept)
        monkeypatch.setattr(fast_residual, "_AddNorm", None)
        given = [part.as_subclass(Elsewhere) for part in given]
    output, plain = add_norm(*given, norm, p).as_subclass(torch.Tensor), norm(x + change * kept)
    assert_exact(output, plain)
    (gradient,) = torch.autograd.grad(output.square().sum(), change, retain_graph=True)
    assert torch.equal(gradient == 0, (kept == 0).expand_as(gradient))  # what is dropped gets none
    assert_same_gradients(output, plain, [x, change, norm.gain, norm.bias], assert_exact)


def test_a_sum_draws_its_own_share():
    norm, n = LayerNorm(2), 50_000
    # Of a pair (0, c) the norm leaves (−1, 1) where c is kept, and (0, 0) where it is dropped.
    output = add_norm(torch.zeros(n, 2), torch.tensor([0.0, 100.0]).expand(n, 2), norm, 0.3)
    assert abs((output[:, 1] == 0).float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / n) ** 0.5
    assert_near(output[output[:, 1] != 0], torch.tensor([-1.0, 1.0]).expand(int(output[:, 1].count_nonzero()), 2))


def test_a_sum_of_16_bits_is_not_rounded_before_it_is_normalised():
    x, change = (torch.randn(2, 5, 64).bfloat16().requires_grad_() for _ in range(2))
    norm = randomise(LayerNorm(64))
    output = add_norm(x, change, norm, 0.0)
    assert output.dtype == torch.bfloat16
    total = x.float() + change.float()
    assert torch.equal(output, F.layer_norm(total, (64,), norm.gain, norm.bias, norm.eps).bfloat16())
    assert_close(output.float(), norm(total), atol=1e-3, rtol=2**-8)
    gradients = torch.autograd.grad(output.sum(), (x, change, norm.gain, norm.bias))
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16] * 2 + [torch.float32] * 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_a_sum_keeps_the_precision_of_its_model(dtype, p):
    x, change, norm = draw_sum(dtype)
    norm = norm.to(dtype)
    output = add_norm(x, change, norm, p)
    assert output.dtype == dtype
    for source in (x, change, norm.gain, norm.bias):
        (gradient,) = torch.autograd.grad(output.sum(), source, retain_graph=True)
        assert gradient.dtype == dtype


# The whole model


@configs
def test_it_is_the_same_function_of_the_same_weights(changes):
    model = make_model(**changes).eval()
    fast, src_mask = FastTransformer(model), padding_mask(SOURCE)
    memory = model.encode(SOURCE, src_mask)
    states = model.decode(TARGET, memory, src_mask)
    assert_exact(fast.encode(SOURCE, src_mask), memory)
    assert_exact(fast.decode(TARGET, memory, src_mask), states)
    logits, expected = fast.logits(fast.states(SOURCE, TARGET)), model(SOURCE, TARGET)
    assert_exact(logits, expected)
    assert_same_gradients(logits, expected, list(model.parameters()), assert_exact)


@settings(max_examples=8)
@given(
    changes=st.fixed_dictionaries(
        {
            "norm_first": st.booleans(),
            "attention_bias": st.booleans(),
            "tie_embeddings": st.booleans(),
            "positions": st.sampled_from(["sinusoidal", "learned"]),
            "activation": st.sampled_from(["relu", "gelu", "silu"]),
            "d_k": st.sampled_from([None, 1, 3]),
            "d_v": st.sampled_from([None, 1, 5]),
            "heads": st.sampled_from([1, 2, 7]),
            "layers": st.integers(1, 2),
        }
    ),
    lengths=st.tuples(*[st.integers(1, 3)] + [st.integers(1, 7)] * 2),
    seed=st.integers(0, 99),
)
def test_it_is_the_same_function_with_any_sizes(changes, lengths, seed):
    torch.manual_seed(seed)
    model = make_model(**changes)
    batch, source, target = lengths
    src, tgt = torch.randint(0, 19, (batch, source)), torch.randint(0, 19, (batch, target))
    fast = FastTransformer(model)
    logits, expected = fast.logits(fast.states(src, tgt)), model(src, tgt)
    assert_exact(logits, expected)
    assert_same_gradients(logits, expected, list(model.parameters()), assert_exact)


@ends
def test_it_is_the_same_function_in_32_bits(changes):
    model = make_model(**changes).float()
    fast = FastTransformer(model)
    logits, expected = fast.logits(fast.states(SOURCE, TARGET)), model(SOURCE, TARGET)
    assert logits.dtype == fast.dtype == torch.float32
    assert_near(logits, expected, atol=1e-4, rtol=1e-4)
    assert_same_gradients(logits, expected, list(model.parameters()), partial(assert_near, atol=1e-4, rtol=1e-4))


@norms
def test_the_memory_gets_the_gradients_of_all_its_hypotheses(norm_first):
    model = make_model(norm_first=norm_first)
    memory, src_mask, tgt = torch.randn(2, 5, 14).double().requires_grad_(), padding_mask(SOURCE[:2]), draw_ids(6, 4)
    states = FastTransformer(model).decode(tgt, memory, src_mask)
    expected = decode_apart(model, tgt, memory, src_mask)
    assert_exact(states, expected)
    decoder = [*model.decoder.parameters(), model.tgt_embedding.weight]
    assert_same_gradients(states, expected, [memory, *decoder], assert_exact)


@configs
def test_dropout_drops_the_same_numbers_by_the_same_factor(changes, monkeypatch):
    model = make_model(dropout=0.3, **changes).train()
    monkeypatch.setattr(FastTransformer, "require_unchanged", lambda self: None)
    for number, part in enumerate(part for part in model.modules() if isinstance(part, Dropout)):
        part.p = 0.1 + 0.02 * number  # each has a share of its own
    draws = {"plain": Draws(), "fast": Draws()}
    with monkeypatch.context() as plain:
        plain.setattr(Dropout, "forward", lambda self, x: x * draws["plain"](x, self.p) / (1 - self.p))
        expected = model(SOURCE, TARGET)
    for file in (fast_residual, fast_transformer):
        monkeypatch.setattr(file, "dropout_mask", draws["fast"])
    fast = FastTransformer(model)
    logits = fast.logits(fast.states(SOURCE, TARGET))
    assert draws["fast"].shapes == draws["plain"].shapes
    assert len(draws["fast"].shapes) == 2 + 5 * model.config.layers  # embeddings, two and three sub-layers
    assert_exact(logits, expected)
    assert_same_gradients(logits, expected, list(model.parameters()), assert_exact)


@norms
def test_every_mask_is_drawn_anew_and_with_its_own_p(norm_first, monkeypatch):
    model = make_model(dropout=0.3, norm_first=norm_first).train()
    masks = []

    def draw(x: torch.Tensor, p: float) -> torch.Tensor:
        assert p == 0.3
        masks.append(dropout_mask(x, p))
        return masks[-1]

    for file in (fast_residual, fast_transformer):
        monkeypatch.setattr(file, "dropout_mask", draw)
    src, tgt = torch.randint(1, 19, (40, 15)), torch.randint(1, 19, (40, 15))
    FastTransformer(model).states(src, tgt)
    assert len(masks) == 2 + 5 * 3
    dropped = 1 - torch.stack([mask.flatten() for mask in masks])
    n = dropped.size(1)
    assert (dropped.mean(dim=1) - 0.3).abs().max() < 4 * (0.3 * 0.7 / n) ** 0.5
    together = dropped @ dropped.T / n  # two masks drop the same number as often as chance has it
    assert_close(together, torch.full_like(together, 0.09) + 0.21 * torch.eye(len(masks)), atol=0.02, rtol=0)


@norms
def test_without_training_nothing_is_dropped(norm_first):
    model = make_model(dropout=0.3, norm_first=norm_first).eval()
    fast, before = FastTransformer(model), torch.get_rng_state()
    assert_exact(fast.logits(fast.states(SOURCE, TARGET)), model(SOURCE, TARGET))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrap", [FastTransformer, Rows])
@modes
def test_a_wrapper_has_its_models_mode_and_weights(wrap, training):
    model = make_model().train(training)
    fast = wrap(model)
    assert fast.training == model.training == training
    assert fast.config is model.config
    assert {id(parameter) for parameter in fast.parameters()} == {id(parameter) for parameter in model.parameters()}
    with evaluating(fast):
        assert not model.training
    assert model.training == training
    nn.init.constant_(model.output.weight, 0.5)  # is seen at once
    assert_exact(fast.logits(torch.ones(1, 14).double()), torch.full((1, 19), 7.0).double())


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


@ends
def test_products_in_bfloat16_are_near(changes):
    model = make_model(**changes)
    half = copy.deepcopy(model).float()
    fast = FastTransformer(half, bf16=True)
    states = fast.states(SOURCE[:2], TARGET[:2])
    logits, expected = fast.logits(states), model(SOURCE[:2], TARGET[:2])
    assert states.dtype == logits.dtype == fast.dtype == torch.bfloat16
    assert relative_error(logits, expected) < 0.03
    direction = torch.randn_like(expected)
    (logits * direction).sum().backward()
    (expected * direction).sum().backward()
    # The weights themselves stay as they are.
    assert all(part.dtype == part.grad.dtype == torch.float32 for part in half.parameters())
    found, wanted = (torch.cat([part.grad.flatten() for part in of.parameters()]) for of in (half, model))
    assert relative_error(found, wanted) < 0.03


@torch.no_grad()
def test_in_pre_norm_the_sum_over_all_layers_keeps_32_bits():
    # Next to 3,742 the steps of bfloat16 are 16; what the tokens differ by is 0.3 √14.
    model = make_model(norm_first=True).float()
    model.src_embedding.weight += 1000
    found = FastTransformer(model, bf16=True).encode(SOURCE, padding_mask(SOURCE))
    assert relative_error(found, model.encode(SOURCE).double()) < 0.03


@torch.no_grad()
@norms
def test_a_model_of_16_bits_stays_in_them(norm_first):
    model = make_model(norm_first=norm_first)
    fast = FastTransformer(copy.deepcopy(model).bfloat16())
    src_mask, cache = padding_mask(SOURCE[:2]), fast.new_cache(8)
    memory = fast.encode(SOURCE[:2], src_mask)
    states = fast.decode(draw_ids(2, 4), memory, src_mask, cache)
    assert {x.dtype for x in (memory, states, fast.logits(states), *cache[0].room)} == {torch.bfloat16}
    logits = fast.logits(fast.states(SOURCE[:2], TARGET[:2]))
    assert relative_error(logits, model(SOURCE[:2], TARGET[:2])) < 0.05


# No leak


@norms
@modes
def test_logits_depend_on_these_tokens_and_no_others(norm_first, training):
    # Every token stands in one place only, so the rows of the embeddings' gradients say which places a logit can see.
    src, tgt = SOURCE[:2], torch.tensor([[3, 11, 12, 0], [1, 13, 14, 15]])
    model = make_model(norm_first=norm_first, tie_embeddings=False, d_k=3, d_v=5).train(training)
    fast = FastTransformer(model)
    logits = fast.logits(fast.states(src, tgt))
    seen_in_source = [{4, 5, 6, 7, 8}, {9, 10, 2}]
    seen_in_target = [[{3}, {3, 11}, {3, 11, 12}], [{1}, {1, 13}, {1, 13, 14}, {1, 13, 14, 15}]]
    embeddings = model.src_embedding.weight, model.tgt_embedding.weight
    for sentence, positions in enumerate(seen_in_target):
        for position, in_target in enumerate(positions):
            output = logits[sentence, position, 7]
            source_gradient, target_gradient = torch.autograd.grad(output, embeddings, retain_graph=True)
            assert set(source_gradient.any(-1).nonzero().flatten().tolist()) == seen_in_source[sentence]
            assert set(target_gradient.any(-1).nonzero().flatten().tolist()) == in_target


@norms
@torch.no_grad()
def test_padding_is_never_read(norm_first):
    model = make_model(norm_first=norm_first, tie_embeddings=False).eval()
    fast = FastTransformer(model)
    states = fast.states(SOURCE, TARGET)
    for embedding in (model.src_embedding, model.tgt_embedding):
        embedding.weight[0] = 100
    changed = fast.states(SOURCE, TARGET)
    real = TARGET != 0
    assert torch.equal(changed[real], states[real])
    assert not torch.allclose(changed[:2][~real[:2]], states[:2][~real[:2]])  # a padded position does ask, for nobody


@norms
@torch.no_grad()
def test_other_sentences_and_more_padding_change_nothing(norm_first):
    fast = FastTransformer(make_model(norm_first=norm_first).eval())
    states = fast.states(SOURCE, TARGET)
    assert_exact(fast.states(SOURCE[1:2, :3], TARGET[1:2])[0], states[1])
    assert_exact(fast.states(F.pad(SOURCE, (0, 2)), F.pad(TARGET, (0, 3)))[:, :4], states)


# What is no CPU, and errors


@norms
def test_a_device_that_is_no_cpu_takes_its_own_kernels(norm_first, monkeypatch):
    # No vendor is asked for: what is not a CPU gets torch's random numbers, LayerNorm and fused attention.
    monkeypatch.setattr(fast_attention, "_Attention", None)
    monkeypatch.setattr(fast_attention, "weights_of", None)
    monkeypatch.setattr(fast_residual, "_AddNorm", None)
    monkeypatch.setattr(fast_residual, "np", None)
    with torch.device("meta"):
        model = Transformer(TransformerConfig(**(SIZES | dict(norm_first=norm_first, dropout=0.3)))).train()
    fast = FastTransformer(model)
    logits = fast.logits(fast.states(SOURCE.to("meta"), TARGET.to("meta")))
    assert (logits.shape, logits.device.type) == ((3, 4, 19), "meta")
    logits.sum().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())


@pytest.mark.parametrize("elsewhere", [False, True], ids=["on a CPU", "elsewhere"])
def test_what_is_not_dropped_is_divided_by_its_share(elsewhere):
    x = torch.ones(100, 100)
    given = x.as_subclass(Elsewhere) if elsewhere else x
    dropped = drop(given * scale_before_drop(given.device, 0.3), 0.3).as_subclass(torch.Tensor)
    assert_near(dropped, (dropped != 0) / 0.7)
    assert abs((dropped == 0).float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / x.numel()) ** 0.5


def test_a_sum_of_16_bits_elsewhere_is_not_rounded_before_it_is_normalised(monkeypatch):
    monkeypatch.setattr(fast_residual, "_AddNorm", None)
    x, change = (torch.randn(2, 5, 64).bfloat16() for _ in range(2))
    norm = randomise(LayerNorm(64))
    found = add_norm(x.as_subclass(Elsewhere), change.as_subclass(Elsewhere), norm, 0.0).as_subclass(torch.Tensor)
    expected = F.layer_norm(x.float() + change.float(), (64,), norm.gain, norm.bias, norm.eps).bfloat16()
    assert torch.equal(found, expected)


def test_a_mask_that_is_not_boolean_is_an_error_there_too(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    fast = FastTransformer(make_model())
    with pytest.raises(TypeError, match="mask must be boolean"):
        fast.encode(SOURCE, padding_mask(SOURCE).long())
    with pytest.raises(ValueError, match=r"a source mask of shape \(3, 1, 5\) has 3 axes, not 4"):
        fast.encode(SOURCE, (SOURCE != 0)[:, None])
    with pytest.raises(ValueError, match=r"a mask of shape \(3, 1, 1, 4\) does not fit scores of shape \(3, 2, 5, 5\)"):
        fast.encode(SOURCE, padding_mask(SOURCE)[..., :4])


def test_too_long_input_is_an_error():
    fast = FastTransformer(make_model())
    long, short = torch.ones(1, 18, dtype=torch.long), torch.ones(1, 5, dtype=torch.long)
    for src, tgt in ((long, short), (short, long)):
        with pytest.raises(ValueError, match="position 17 is asked for, but there are encodings for 17 positions"):
            fast.states(src, tgt)


# Hypotheses: whatever wraps a model, several rows may belong to one sentence


def make_recurrent() -> RecurrentTranslator:
    config = RecurrentConfig(19, d_model=6, layers=2, dropout=0.0, max_length=17)
    return randomise(RecurrentTranslator(config)).double()


WRAPPED: dict[str, Callable[[], FastTranslator]] = {  # each is built once
    "post-norm": lambda: FastTransformer(make_model(d_k=3, d_v=5)),
    "pre-norm": lambda: FastTransformer(make_model(norm_first=True, positions="learned", attention_bias=True)),
    "rows of a Transformer": lambda: Rows(make_model(d_k=3, d_v=5)),
    "rows of an LSTM": lambda: Rows(make_recurrent()),
}
wrapped = pytest.mark.parametrize("make", [functools.cache(make) for make in WRAPPED.values()], ids=WRAPPED)


def draw_ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, 19, (batch, length))


def decode_apart(model: nn.Module, tgt: torch.Tensor, memory: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
    """Decode by the plain model without a cache, each hypothesis with a memory of its own."""
    memory, src_mask = (x.repeat_interleave(len(tgt) // len(memory), 0) for x in (memory, src_mask))
    return model.decode(tgt, memory, src_mask)


def encode_two(fast: FastTranslator) -> tuple[torch.Tensor, torch.Tensor]:
    """The memory of two sentences, of which the second has padding, and their mask."""
    src_mask = padding_mask(SOURCE[:2])
    return fast.model.encode(SOURCE[:2], src_mask), src_mask


@wrapped
@torch.no_grad()
def test_hypotheses_of_a_sentence_share_its_memory(make):
    fast = make()
    memory, src_mask = encode_two(fast)
    for hypotheses in (1, 3):
        tgt = draw_ids(2 * hypotheses, 4)
        assert_exact(fast.decode(tgt, memory, src_mask), decode_apart(fast.model, tgt, memory, src_mask))


@wrapped
@torch.no_grad()
@settings(max_examples=6)
@given(steps=st.lists(st.integers(1, 4), min_size=1, max_size=4), hypotheses=st.integers(1, 3))
def test_cache_changes_nothing(make, steps, hypotheses):
    fast = make()
    memory, src_mask = encode_two(fast)
    tgt = draw_ids(2 * hypotheses, sum(steps))
    cache = fast.new_cache(hypotheses * sum(steps))
    states = [fast.decode(new, memory, src_mask, cache=cache) for new in tgt.split(steps, dim=1)]
    assert_exact(torch.cat(states, dim=1), decode_apart(fast.model, tgt, memory, src_mask))


@wrapped
@torch.no_grad()
def test_cached_hypotheses_are_reordered_and_dropped(make):
    # Two sentences with three hypotheses each: rows 0, 1, 2 and 3, 4, 5.
    fast = make()
    memory, src_mask = encode_two(fast)
    cache = fast.new_cache(3 + 6 + 4 + 6 + 6 + 2)
    ids = torch.empty(6, 0, dtype=torch.long)

    def step() -> None:
        nonlocal ids
        new = draw_ids(len(ids), 1)
        ids = torch.cat((ids, new), dim=1)
        states = fast.decode(new, memory, src_mask, cache=cache)
        assert_exact(states, decode_apart(fast.model, ids, memory, src_mask)[:, -1:])

    step()
    for rows, sentences in (
        ([2, 0, 0, 4, 3, 3], None),  # as many as before, in another order
        ([1, 2, 5, 4], None),  # two for each sentence
        ([0, 1, 1, 3, 3, 2], None),  # three again
        ([4, 3, 3], [1]),  # the first sentence is finished
        ([1], None),
    ):
        cache.select(torch.tensor(rows), None if sentences is None else torch.tensor(sentences))
        ids = ids[rows]
        if sentences is not None:
            memory, src_mask = memory[sentences], src_mask[sentences]
        step()
        step()


@wrapped
@torch.no_grad()
def test_cached_sentences_change_places(make):
    fast = make()
    memory, src_mask = encode_two(fast)
    ids, swap = draw_ids(2, 3), torch.tensor([1, 0])
    cache = fast.new_cache(3)
    fast.decode(ids[:, :2], memory, src_mask, cache=cache)
    cache.select(swap, swap)
    states = fast.decode(ids[swap, 2:], memory[swap], src_mask[swap], cache=cache)
    assert_exact(states, decode_apart(fast.model, ids, memory, src_mask)[swap, 2:])


@wrapped
@torch.no_grad()
def test_several_tokens_after_a_choice(make):
    fast = make()
    memory, src_mask = encode_two(fast)
    ids = draw_ids(4, 3)
    cache = fast.new_cache(12)  # two hypotheses with three tokens each, then three with two
    fast.decode(ids, memory, src_mask, cache=cache)
    # The first sentence is done, the second has three hypotheses.
    rows, kept = torch.tensor([3, 2, 3]), torch.tensor([1])
    cache.select(rows, kept)
    new = draw_ids(3, 2)
    states = fast.decode(new, memory[kept], src_mask[kept], cache=cache)
    whole = decode_apart(fast.model, torch.cat((ids[rows], new), 1), memory[kept], src_mask[kept])
    assert_exact(states, whole[:, 3:])


@wrapped
def test_states_and_logits_of_whole_targets(make):
    fast = make()
    src, tgt = SOURCE[:2], TARGET[:2]
    states, expected = fast.states(src, tgt), fast.model(src, tgt)
    assert_exact(fast.logits(states), expected)
    assert_same_gradients(fast.logits(states), expected, list(fast.model.parameters()), assert_exact)


def test_rows_of_an_lstm_are_the_lstm():
    model = make_recurrent()
    fast, src_mask = Rows(model), padding_mask(SOURCE)
    memory = model.encode(SOURCE, src_mask)
    states = model.decode(TARGET, memory, src_mask)
    assert torch.equal(fast.encode(SOURCE, src_mask), memory)
    assert torch.equal(fast.decode(TARGET, memory, src_mask), states)
    assert torch.equal(fast.states(SOURCE, TARGET), states)
    assert torch.equal(fast.logits(states), model(SOURCE, TARGET))


# The cache that hypotheses share


def cached_steps(capacity: int = 11) -> tuple[FastTransformer, Cache, Callable[[int, int], None]]:
    """A model, its cache, and a function that decodes so many rows with so many new tokens each of two sentences."""
    fast = FastTransformer(make_model(d_k=3, d_v=5).eval())
    memory, src_mask = encode_two(fast)
    cache = fast.new_cache(capacity)
    return fast, cache, lambda rows, new: fast.decode(draw_ids(rows, new), memory, src_mask, cache=cache)


@torch.no_grad()
def test_hypotheses_share_the_room_of_their_sentence():
    _, cache, decode = cached_steps()
    decode(6, 2)
    assert [(layer.length, layer.capacity) for layer in cache] == [(6, 11)] * 3
    for layer in cache:
        keys, values = layer.memory
        assert keys.shape == (2, 2, 5, 3)
        assert values.shape == (2, 2, 5, 5)
        keys, values = layer.room
        assert keys.shape == (2, 2, 11, 3)
        assert values.shape == (2, 2, 11, 5)


@torch.no_grad()
def test_reordering_hypotheses_moves_no_key():
    _, cache, decode = cached_steps(capacity=6)
    decode(6, 1)
    stores = [(*layer.room, *layer.memory) for layer in cache]
    before = [[room[:, :, :3].clone() for room in layer.room] for layer in cache]
    assert cache.written.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    cache.select(torch.tensor([2, 0, 0, 3, 4, 5]))
    assert cache.written.int().tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    decode(6, 1)
    for layer, kept, old in zip(cache, stores, before, strict=True):
        assert all(new is tensor for new, tensor in zip((*layer.room, *layer.memory), kept, strict=True))
        assert all(torch.equal(room[:, :, :3], tensor) for room, tensor in zip(layer.room, old, strict=True))


def test_each_token_sees_its_own_past_and_itself():
    cache = Cache(1, 12)
    x = torch.randn(4, 2, 3)  # two sentences with two hypotheses, two tokens each
    together, mask = cache.line_up(x, 2)
    assert torch.equal(together, x.view(2, 4, 3))
    own = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert mask.int().tolist() == [[own]] * 2
    assert cache.length == 2
    cache.select(torch.tensor([1, 1, 2, 3]))  # the first sentence's second hypothesis branches
    cache[0].append(*(torch.zeros(2, 1, 4, 1) for _ in range(2)))
    together, mask = cache.line_up(x[:, :1], 2)
    assert torch.equal(together, x[:, 0].view(2, 2, 3))
    assert mask.int().tolist() == [
        [[[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 1]]],
        [[[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]]],
    ]
    assert cache.length == 3


def test_one_hypothesis_with_one_token_needs_no_mask():
    cache = Cache(1, 5)
    for _ in range(3):
        together, mask = cache.line_up(torch.randn(2, 1, 3), 2)
        assert mask is None
        assert together.shape == (2, 1, 3)
    _, mask = cache.line_up(torch.randn(2, 2, 3), 2)
    assert mask.int().tolist() == [[[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]] * 2


@torch.no_grad()
def test_what_does_not_change_is_computed_once():
    fast, cache, decode = cached_steps()
    decode(2, 1)
    kept = [layer.memory for layer in cache]
    nn.init.constant_(fast.model.decoder.layers[0].cross_attention.W_k.weight, torch.nan)  # read again, it would show
    memory = torch.full((2, 5, 14), torch.nan).double()
    states = fast.decode(draw_ids(2, 1), memory, padding_mask(SOURCE[:2]), cache=cache)
    assert states.isfinite().all()
    for layer, of_memory in zip(cache, kept, strict=True):
        assert layer.memory is of_memory


def test_layer_cache_overflow_is_an_error():
    cache = LayerCache(5)
    positions = torch.arange(4.0).view(1, 1, 4, 1).expand(2, 3, 4, 1)
    cache.append(positions, positions)
    with pytest.raises(
        ValueError, match=r"the cache holds 5 tokens of a sentence and 6 are needed: give it more capacity"
    ):
        cache.append(positions[:, :, :2], positions[:, :, :2])
    keys, values = cache.append(positions[:, :, :1], -positions[:, :, 3:])  # what fits still fits
    assert keys[1, 2, :, 0].tolist() == [0, 1, 2, 3, 0]
    assert values[1, 2, :, 0].tolist() == [0, 1, 2, 3, -3]


@torch.no_grad()
def test_a_full_cache_of_several_hypotheses_stays_as_it_was():
    _, cache, decode = cached_steps(capacity=5)
    decode(4, 2)  # two hypotheses each: four tokens of a sentence
    written, length = cache.written, cache.length
    with pytest.raises(ValueError, match=r"the cache holds 5 tokens of a sentence and 6 are needed"):
        decode(4, 1)
    assert cache.written is written
    assert (cache.length, *(layer.length for layer in cache)) == (length, 4, 4, 4)


@torch.no_grad()
def test_an_empty_cache_that_is_too_small_is_an_error():
    _, cache, decode = cached_steps(capacity=3)
    with pytest.raises(ValueError, match=r"the cache holds 3 tokens of a sentence and 4 are needed"):
        decode(2, 4)
    assert cache.written is None
    assert cache.length == 0


@torch.no_grad()
def test_decoding_beyond_the_last_position_is_an_error():
    _, cache, decode = cached_steps(capacity=99)
    decode(2, 17)
    with pytest.raises(ValueError, match="position 17 is asked for, but there are encodings for 17 positions"):
        decode(2, 1)
    assert (cache.length, *(layer.length for layer in cache)) == (17, 17, 17, 17)


# In bfloat16


def test_bfloat16_inside_a_context():
    x = torch.randn(3, 3)
    for bf16, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        with autocast(torch.device("cpu"), bf16):
            assert (x @ x).dtype == dtype


def test_rows_compute_in_bfloat16_where_they_are_told_to():
    model = make_model().float()
    fast = Rows(model, bf16=True)
    logits = fast.logits(fast.states(SOURCE[:2], TARGET[:2]))
    assert logits.dtype == torch.bfloat16
    assert relative_error(logits, model(SOURCE[:2], TARGET[:2]).double()) < 0.03
    assert Rows(model).states(SOURCE, TARGET).dtype == torch.float32
