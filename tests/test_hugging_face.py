"""Equality with an independent implementation: Hugging Face's MarianMTModel with our weights."""

import pytest
import torch

from annotated import decoding
from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.fast import decoding as fast_decoding
from annotated.fast.training import train_step
from annotated.fast.transformer import FastTransformer
from annotated.training import make_optimizer
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from experiments import peers

pytest.importorskip("transformers", reason="transformers needs torch 2.4 or newer")

VOCAB = 13


def random_ids(count: int) -> list[int]:
    return torch.randint(UNK, VOCAB, (count,)).tolist()


def make_pair(activation: str = "silu", steps: int = 0) -> tuple[Transformer, torch.nn.Module]:
    """Make a model of ours and Marian with the same weights; train ours for some steps before."""
    ours = Transformer(
        TransformerConfig(
            VOCAB,
            d_model=14,
            heads=2,
            d_ff=11,
            layers=3,
            dropout=0.0,
            activation=activation,
            attention_bias=True,
            max_length=37,
        )
    ).eval()
    theirs = peers.marian(ours.config).eval()
    # Marian writes all sines first, then all cosines; the paper interleaves them.
    ours.positions.table.copy_(theirs.model.encoder.embed_positions.weight)
    if steps:
        _train(ours, steps)
    else:
        for parameter in ours.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        _copy_weights(ours, theirs)
    return ours, theirs


def _train(model: Transformer, steps: int) -> None:
    src = pad([[*random_ids(1 + i % 6), EOS] for i in range(20)])
    tgt = pad([[BOS, *random_ids(i % 8), EOS] for i in range(20)])
    optimizer = make_optimizer(model, 0.01)
    for _ in range(steps):
        train_step(model, src, tgt, optimizer)


def _copy_weights(ours: Transformer, theirs: torch.nn.Module) -> None:
    theirs.model.shared.weight.copy_(ours.src_embedding.weight)
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for a, b in zip(getattr(ours, stack).layers, getattr(theirs.model, stack).layers, strict=True):
            pairs = [(a.feed_forward.W_1, b.fc1), (a.feed_forward.W_2, b.fc2)]
            for name, attention in zip(
                attentions, (a.self_attention, getattr(a, "cross_attention", None)), strict=False
            ):
                other = getattr(b, name)
                pairs += zip(
                    (attention.W_q, attention.W_k, attention.W_v, attention.W_o),
                    (other.q_proj, other.k_proj, other.v_proj, other.out_proj),
                    strict=True,
                )
            for mine, other in pairs:
                other.weight.copy_(mine.weight)
                other.bias.copy_(mine.bias)
            norms = [getattr(b, f"{name}_layer_norm") for name in (*attentions, "final")]
            for residual, norm in zip(a.residuals, norms, strict=True):
                norm.weight.copy_(residual.norm.gain)
                norm.bias.copy_(residual.norm.bias)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_logits_are_marians(activation):
    ours, theirs = make_pair(activation)
    src = pad([[*random_ids(n), EOS] for n in (2, 6, 4)])
    tgt = pad([[BOS, *random_ids(n)] for n in (7, 3, 5)])
    with torch.no_grad():
        expected = theirs(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            decoder_input_ids=tgt,
            decoder_attention_mask=(tgt != PAD).long(),
        ).logits
        fast = FastTransformer(ours)
        found = ours(src, tgt), fast.logits(fast.states(src, tgt))
    real = tgt != PAD
    assert expected[real].std() > 0.1
    for logits in found:
        torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return make_pair(steps=50)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("searches", [decoding, fast_decoding], ids=["plain", "fast"])
def test_translations_are_marians(trained, searches, beam, capfd):
    ours, theirs = trained
    src = pad([[*random_ids(n), EOS] for n in (1, 2, 3, 4, 5, 6, 7) for _ in range(3)])
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
    found = searches.greedy_decode(ours, src) if beam == 1 else searches.beam_search(ours, src, beam, alpha=0.0)
    assert [h.ids for h in found] == expected
    assert len({len(row) for row in expected}) > 3
    assert capfd.readouterr().err == ""
