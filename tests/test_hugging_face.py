"""Equality with an independent implementation: Hugging Face's MarianMTModel with our weights."""

from functools import partial

import pytest
import torch

from annotated import decoding
from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.fast import decoding as fast_decoding
from annotated.fast.accelerate import accelerate
from annotated.fast.training import train_step
from annotated.training import make_optimizer
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from annotated_workbench.export import to_marian

pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")

VOCAB = 13


def random_ids(count: int) -> list[int]:
    return torch.randint(UNK, VOCAB, (count,)).tolist()


def make_model(activation: str = "silu") -> Transformer:
    sizes = dict(d_model=14, heads=2, d_ff=11, layers=3, max_length=37)
    return Transformer(TransformerConfig(VOCAB, **sizes, dropout=0.0, activation=activation, attention_bias=True))


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_logits_are_marians(activation):
    ours = make_model(activation).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    src = pad([[*random_ids(n), EOS] for n in (2, 6, 4)])
    tgt = pad([[BOS, *random_ids(n)] for n in (7, 3, 5)])
    with torch.no_grad():
        masks = {"attention_mask": (src != PAD).long(), "decoder_attention_mask": (tgt != PAD).long()}
        expected = to_marian(ours)(input_ids=src, decoder_input_ids=tgt, **masks).logits
        computed = ours(src, tgt), accelerate(ours)(src, tgt)
    real = tgt != PAD
    assert expected[real].std() > 0.1
    for logits in computed:  # the first two, <pad> and <bos>, may never be chosen there
        torch.testing.assert_close(logits[real][:, 2:], expected[real][:, 2:], rtol=0, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("searches", [decoding, fast_decoding], ids=["plain", "fast"])
def test_translations_are_marians(searches, beam, capfd):
    ours = make_model()
    src = pad([[*random_ids(1 + i % 6), EOS] for i in range(20)])
    tgt = pad([[BOS, *random_ids(i % 8), EOS] for i in range(20)])
    optimizer = make_optimizer(ours, 0.01)
    for _ in range(50):
        train_step(ours, src, tgt, optimizer)
    ours.eval()
    src = pad([[*random_ids(n), EOS] for n in (1, 2, 3, 4, 5, 6, 7) for _ in range(3)])
    theirs = to_marian(ours)
    theirs.final_logits_bias.zero_()  # what may never be chosen keeps its share of the probability, as in our search
    generated = theirs.generate(
        input_ids=src,
        attention_mask=(src != PAD).long(),
        num_beams=beam,
        do_sample=False,
        max_new_tokens=ours.config.max_length,
        bad_words_ids=[[PAD], [BOS]],
        **({"length_penalty": 0.0} if beam > 1 else {}),
    )
    expected = [[token for token in row if token not in (PAD, BOS, EOS)] for row in generated.tolist()]
    find = partial(searches.beam_search, beam=beam, alpha=0.0) if beam > 1 else searches.greedy_decode
    translations = find(ours, src)
    assert [translation.ids for translation in translations] == expected
    assert len({len(row) for row in expected}) > 3
    assert capfd.readouterr().err == ""
