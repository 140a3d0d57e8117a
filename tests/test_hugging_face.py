"""Equality with an independent implementation: Hugging Face's MarianMTModel with our weights."""

import pytest
import torch
from parity import randomise

from annotated import decoding
from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.fast import decoding as fast_decoding
from annotated.fast.transformer import FastTransformer
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from annotated_workbench.export import to_marian
from tests.models import make_sources, random_ids, with_doubts

pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")

VOCAB = 13


def make_model(activation: str = "silu") -> Transformer:
    sizes = dict(d_model=14, heads=2, d_ff=11, layers=3, dropout=0.0, max_length=37)
    return Transformer(TransformerConfig(VOCAB, activation=activation, attention_bias=True, **sizes)).eval()


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
@torch.no_grad()
def test_logits_are_marians(activation):
    model = randomise(make_model(activation))
    marian = to_marian(model)
    src = pad(make_sources(VOCAB, 3, 7, 5))
    tgt = pad([[BOS, *random_ids(VOCAB, n)] for n in (7, 3, 5)])
    attention_masks = dict(attention_mask=(src != PAD).long(), decoder_attention_mask=(tgt != PAD).long())
    expected = marian(input_ids=src, decoder_input_ids=tgt, **attention_masks).logits
    fast, real = FastTransformer(model), tgt != PAD
    assert expected[real].std() > 0.1
    for logits in (model(src, tgt), fast.logits(fast.states(src, tgt))):
        torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def trained() -> Transformer:
    torch.manual_seed(0)
    return with_doubts(make_model())


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("searches", [decoding, fast_decoding], ids=["plain", "fast"])
def test_translations_are_marians(trained, searches, beam, capfd):
    src = pad([source for n in range(2, 9) for source in make_sources(VOCAB, n, n, n)])
    with torch.no_grad():
        marian = to_marian(trained)
    how = dict(num_beams=beam, do_sample=False, max_new_tokens=trained.config.max_length)
    how |= dict(length_penalty=0.0) if beam > 1 else {}
    generated = marian.generate(input_ids=src, attention_mask=(src != PAD).long(), **how)
    expected = [[token for token in row if token not in (PAD, BOS, EOS)] for row in generated.tolist()]
    search = searches.greedy_decode if beam == 1 else searches.beam_search
    found = search(trained, src) if beam == 1 else search(trained, src, beam, alpha=0.0)
    assert [h.ids for h in found] == expected
    assert len({len(row) for row in expected}) > 3
    capfd.readouterr()
