"""What the decoder's cache keeps, a row for each hypothesis. `test_transformer` compares it with PyTorch's."""

import torch
from parity import assert_near, randomise

from annotated.config import TransformerConfig
from annotated.decoder import Cache, Decoder
from annotated.masking import causal_mask

D_MODEL, SOURCE = 15, 7


def make_decoder() -> Decoder:
    return randomise(Decoder(TransformerConfig(1, d_model=D_MODEL, d_ff=11, heads=2, d_k=3, d_v=5, layers=3))).eval()


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
