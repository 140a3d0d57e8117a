"""The decoder against PyTorch, and what its cache keeps."""

import pytest
import torch
from parity import assert_near, assert_parity, randomise
from torch import nn

from annotated.config import TransformerConfig
from annotated.decoder import Cache, Decoder
from annotated.masking import causal_mask, combine, padding_mask

D_MODEL, HEADS, D_FF, SOURCE, TARGET = 15, 3, 11, 7, 5
SOURCE_IDS = torch.tensor([[4, 5, 6, 7, 8, 9, 10], [4, 5, 6, 0, 0, 0, 0]])
TARGET_IDS = torch.tensor([[1, 4, 5, 0, 0], [1, 5, 6, 7, 8]])
OUR_MASKS = {"tgt_mask": combine(causal_mask(TARGET), padding_mask(TARGET_IDS)), "src_mask": padding_mask(SOURCE_IDS)}
THEIR_MASKS = {"tgt_mask": ~causal_mask(TARGET), "tgt_key_padding_mask": TARGET_IDS == 0}
THEIR_MASKS["memory_key_padding_mask"] = SOURCE_IDS == 0

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def sizes(**changes) -> TransformerConfig:
    return TransformerConfig(**(dict(vocab_size=1, d_model=D_MODEL, heads=HEADS, d_ff=D_FF) | changes))


# Parity with PyTorch


@norms
@pytest.mark.parametrize(("activation", "bias"), [("relu", False), ("gelu", True)])
def test_stack_equals_pytorch(norm_first, activation, bias):
    options = dict(dropout=0.0, norm_first=norm_first, activation=activation)
    ours = randomise(Decoder(sizes(layers=3, attention_bias=bias, **options)))
    layer = nn.TransformerDecoderLayer(D_MODEL, HEADS, D_FF, batch_first=True, **options)
    theirs = nn.TransformerDecoder(layer, 3, nn.LayerNorm(D_MODEL) if norm_first else None)
    inputs = torch.randn(2, TARGET, D_MODEL), torch.randn(2, SOURCE, D_MODEL)
    assert_parity(ours, theirs, inputs, OUR_MASKS, THEIR_MASKS)


# Cache: a row for each hypothesis


def make_decoder() -> Decoder:
    return randomise(Decoder(sizes(layers=3, heads=2, d_k=3, d_v=5))).eval()


@torch.no_grad()
def test_keys_and_values_are_made_once():
    decoder, cache = make_decoder(), Cache(3)
    memory, x = torch.randn(2, SOURCE, D_MODEL), torch.randn(2, 3, D_MODEL)
    decoder(x[:, :2], memory, causal_mask(2), None, cache)
    before = [(layer.tokens, layer.memory) for layer in cache]
    other = torch.full_like(memory, torch.nan)  # read again, it would show
    states = decoder(x[:, 2:], other, causal_mask(3)[2:], None, cache)
    assert_near(states, decoder(x, memory, causal_mask(3))[:, 2:])
    for layer, (tokens, kept) in zip(cache, before, strict=True):
        assert layer.memory is kept
        for old, new in zip(tokens, layer.tokens, strict=True):
            assert torch.equal(new[:, :, :2], old)
    shapes = [(tuple(keys.shape), tuple(values.shape)) for keys, values in (cache[0].tokens, cache[0].memory)]
    assert shapes == [((2, 2, 3, 3), (2, 2, 3, 5)), ((2, 2, SOURCE, 3), (2, 2, SOURCE, 5))]


@torch.no_grad()
def test_a_mask_beside_a_cache_is_obeyed():
    decoder, cache = make_decoder(), Cache(3)
    memory, x = torch.randn(1, SOURCE, D_MODEL), torch.randn(1, 3, D_MODEL)
    mask = torch.tensor([[True, False, False], [False, True, False], [False, True, True]])  # the first is seen by none
    states = [decoder(x[:, i : i + 1], memory, mask[i : i + 1, : i + 1], None, cache) for i in range(3)]
    assert_near(torch.cat(states, dim=1), decoder(x, memory, mask))
