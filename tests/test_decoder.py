"""The decoder against PyTorch, and its cache against decoding everything anew."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import assert_near, assert_parity, randomise
from torch import nn

from annotated.decoder import Cache, Decoder, DecoderLayer, LayerCache
from annotated.encoder import LayerNorm
from annotated.masking import causal_mask, combine, padding_mask

D_MODEL, HEADS, D_FF, SOURCE, TARGET = 15, 3, 11, 7, 5
SOURCE_IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [4, 5, 6, 0, 0, 0, 0]])
TARGET_IDS = torch.tensor([[1, 4, 5, 0, 0], [1, 5, 6, 7, 8]])
OUR_MASKS = {"tgt_mask": combine(causal_mask(TARGET), padding_mask(TARGET_IDS)), "src_mask": padding_mask(SOURCE_IDS)}
THEIR_MASKS = {
    "tgt_mask": ~causal_mask(TARGET),
    "tgt_key_padding_mask": TARGET_IDS == 0,
    "memory_key_padding_mask": SOURCE_IDS == 0,
}

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
biases = pytest.mark.parametrize("attention_bias", [False, True], ids=["no bias", "bias"])


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, TARGET, D_MODEL), torch.randn(2, SOURCE, D_MODEL)


# Parity with PyTorch


@norms
@biases
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layer_equals_pytorch(norm_first, attention_bias, activation):
    options = dict(dropout=0.0, norm_first=norm_first, activation=activation)
    ours = randomise(DecoderLayer(D_MODEL, HEADS, D_FF, attention_bias=attention_bias, **options))
    theirs = nn.TransformerDecoderLayer(D_MODEL, HEADS, D_FF, batch_first=True, **options)
    assert_parity(ours, theirs, inputs(), OUR_MASKS, THEIR_MASKS)


@norms
@biases
def test_stack_equals_pytorch(norm_first, attention_bias):
    ours = Decoder(3, D_MODEL, heads=HEADS, d_ff=D_FF, norm_first=norm_first, attention_bias=attention_bias).eval()
    layer = nn.TransformerDecoderLayer(D_MODEL, HEADS, D_FF, norm_first=norm_first, batch_first=True)
    theirs = nn.TransformerDecoder(layer, 3, nn.LayerNorm(D_MODEL) if norm_first else None).eval()
    assert_parity(randomise(ours), theirs, inputs(), OUR_MASKS, THEIR_MASKS)


@norms
def test_last_norm_only_in_pre_norm(norm_first):
    decoder = Decoder(5, 14, heads=2, d_ff=3, norm_first=norm_first)
    assert sum(isinstance(module, LayerNorm) for module in decoder.modules()) == 5 * 3 + norm_first


def test_layers_start_with_different_weights():
    first, second = Decoder(2, 14, heads=2, d_ff=5).layers
    for ours, other in zip(first.parameters(), second.parameters(), strict=True):
        assert ours.dim() == 1 or not torch.equal(ours, other)


# Cache


def make_decoder(norm_first: bool = False) -> Decoder:
    return randomise(Decoder(3, D_MODEL, heads=2, d_ff=D_FF, d_k=3, d_v=5, norm_first=norm_first)).eval()


def decode_at_once(decoder: Decoder, x: torch.Tensor, memory: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
    """Decode without a cache, each hypothesis with a memory of its own."""
    hypotheses = len(x) // len(memory)
    memory, src_mask = (tensor.repeat_interleave(hypotheses, 0) for tensor in (memory, src_mask))
    return decoder(x, memory, causal_mask(x.size(1)), src_mask)


@torch.no_grad()
@settings(max_examples=20)
@given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=5), hypotheses=st.integers(1, 3), norm_first=st.booleans()
)
def test_cache_changes_nothing(steps, hypotheses, norm_first):
    decoder = make_decoder(norm_first)
    memory, src_mask = torch.randn(2, SOURCE, D_MODEL), OUR_MASKS["src_mask"]
    x = torch.randn(2 * hypotheses, sum(steps), D_MODEL)
    cache = Cache(3, hypotheses * sum(steps))
    states = [decoder(new, memory, None, src_mask, cache) for new in x.split(steps, dim=1)]
    assert cache.length == sum(steps)
    assert_near(torch.cat(states, dim=1), decode_at_once(decoder, x, memory, src_mask))


@torch.no_grad()
def test_cached_hypotheses_are_reordered_and_dropped():
    # Two sentences with three hypotheses each: rows 0, 1, 2 and 3, 4, 5.
    decoder = make_decoder()
    memory, src_mask = torch.randn(2, SOURCE, D_MODEL), OUR_MASKS["src_mask"]
    cache = Cache(3, 3 + 6 + 4 + 6 + 6 + 2)
    x = torch.empty(6, 0, D_MODEL)

    def step() -> None:
        nonlocal x
        new = torch.randn(len(x), 1, D_MODEL)
        x = torch.cat((x, new), dim=1)
        states = decoder(new, memory, None, src_mask, cache)
        assert_near(states, decode_at_once(decoder, x, memory, src_mask)[:, -1:])

    step()
    for rows, sentences in (
        ([2, 0, 0, 4, 3, 3], None),  # as many as before, in another order
        ([1, 2, 5, 4], None),  # two for each sentence
        ([0, 1, 1, 3, 3, 2], None),  # three again
        ([4, 3, 3], [1]),  # the first sentence is finished
        ([1], None),
    ):
        cache.select(torch.tensor(rows), None if sentences is None else torch.tensor(sentences))
        x = x[rows]
        if sentences is not None:
            memory, src_mask = memory[sentences], src_mask[sentences]
        step()
        step()


@torch.no_grad()
def test_cached_sentences_change_places():
    decoder = make_decoder()
    memory, src_mask = torch.randn(2, SOURCE, D_MODEL), OUR_MASKS["src_mask"]
    x = torch.randn(2, 3, D_MODEL)
    cache = Cache(3, 3)
    decoder(x[:, :2], memory, None, src_mask, cache)
    swap = torch.tensor([1, 0])
    cache.select(swap, swap)
    states = decoder(x[swap, 2:], memory[swap], None, src_mask[swap], cache)
    assert_near(states, decode_at_once(decoder, x, memory, src_mask)[swap, 2:])


@torch.no_grad()
def test_hypotheses_share_the_room_of_their_sentence():
    decoder = make_decoder()
    cache = Cache(3, 11)
    decoder(torch.randn(6, 2, D_MODEL), torch.randn(2, SOURCE, D_MODEL), None, None, cache)
    for layer in cache:
        keys, values = layer.memory
        assert keys.shape == (2, 2, SOURCE, 3)
        assert values.shape == (2, 2, SOURCE, 5)
        assert layer.keys.shape == (2, 2, 11, 3)
        assert layer.values.shape == (2, 2, 11, 5)


@torch.no_grad()
def test_reordering_hypotheses_moves_no_key():
    decoder = make_decoder()
    cache = Cache(3, 6)
    decoder(torch.randn(6, 1, D_MODEL), torch.randn(2, SOURCE, D_MODEL), None, None, cache)
    before = [layer.keys[:, :, :3].clone() for layer in cache]
    assert cache.written.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    cache.select(torch.tensor([2, 0, 0, 3, 4, 5]))
    assert cache.written.int().tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert all(torch.equal(layer.keys[:, :, :3], keys) for layer, keys in zip(cache, before, strict=True))


def test_a_mask_beside_a_cache_is_an_error():
    with pytest.raises(ValueError, match=r"with a cache give no tgt_mask"):
        make_decoder()(torch.randn(1, 2, D_MODEL), torch.randn(1, SOURCE, D_MODEL), causal_mask(2), None, Cache(3, 2))


def test_cache_overflow_is_an_error():
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


def test_a_full_cache_of_several_hypotheses_stays_as_it_was():
    decoder, cache, memory = make_decoder(), Cache(3, 5), torch.randn(2, SOURCE, D_MODEL)
    decoder(torch.randn(4, 2, D_MODEL), memory, cache=cache)  # two hypotheses each: four tokens of a sentence
    written, length = cache.written, cache.length
    with pytest.raises(ValueError, match=r"holds 5 tokens of a sentence and 6 are needed"):
        decoder(torch.randn(4, 1, D_MODEL), memory, cache=cache)
    assert cache.written is written
    assert (cache.length, *(layer.length for layer in cache)) == (length, 4, 4, 4)
