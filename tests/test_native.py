"""Attention and the choice of tokens in C: PyTorch's numbers, and PyTorch itself wherever they don't suit."""

import shutil
import subprocess

import pytest
import torch
from models import assert_same, make_doubtful, random_ids

from annotated import decoding
from annotated.attention import attention
from annotated.fast import decoding as fast_decoding
from annotated.fast import native
from annotated.fast.attention import attend_heads
from annotated.fast.decoding import beam_search, greedy_decode

compiles = pytest.mark.skipif(native.library() is None, reason="no C compiler that works on this machine")
BATCH, HEADS, QUERIES, KEYS, D_K, D_V = 9, 2, 3, 5, 7, 11


def draw_heads(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Queries as a product leaves them, side by side; keys and values in a room that has more places."""
    generator = torch.Generator().manual_seed(seed)
    together = torch.randn(BATCH, QUERIES, HEADS * D_K + 4, generator=generator)
    query = together[..., 2:-2].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    key, value = (torch.randn(BATCH, HEADS, KEYS + 6, width, generator=generator)[:, :, :KEYS] for width in (D_K, D_V))
    return query, key, value


@compiles
@torch.no_grad()
@pytest.mark.parametrize(
    "shape", [None, (QUERIES, KEYS), (BATCH, 1, 1, KEYS), (BATCH, 1, QUERIES, KEYS), (1, HEADS, 1, 1)]
)
def test_it_equals_attention(shape, monkeypatch):
    heads = draw_heads()
    mask = None if shape is None else torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    expected = attention(*(x.double() for x in heads), mask).transpose(1, 2).flatten(2)
    assert native.suits(*heads)
    torch.testing.assert_close(native.attend(*heads, mask).double(), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr("annotated.fast.attention.weights_of", None)  # PyTorch's way is not taken
    torch.testing.assert_close(attend_heads(*heads, mask).double(), expected, rtol=1e-5, atol=1e-6)


@compiles
@torch.no_grad()
def test_a_query_that_may_look_nowhere_gets_zeros_and_large_scores_stay_finite():
    query, key, value = draw_heads()
    mask = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    mask[4, 0, 1] = False
    mixed = native.attend(query, key, value, mask).unflatten(-1, (HEADS, D_V))
    assert not mixed[4, 1].any() and mixed[4, 0].all()
    torch.testing.assert_close(native.attend(1e4 * query, key, value, None), attend_few(1e4 * query, key, value))


def attend_few(*heads: torch.Tensor) -> torch.Tensor:
    """A sentence at a time, which PyTorch's products compute."""
    return torch.cat([attend_heads(*(x[i : i + 1] for x in heads), None) for i in range(BATCH)])


@compiles
def test_where_it_does_not_suit_the_library_computes(monkeypatch):
    heads = draw_heads()
    with torch.no_grad():
        assert native.suits(*heads)
        assert not native.suits(*(x.double() for x in heads))
        assert not native.suits(*(x.bfloat16() for x in heads))
        assert not native.suits(*(x[: native.SENTENCES - 1] for x in heads))
        assert native.suits(heads[0][:, :, :1].expand(-1, -1, native.QUERIES, -1), *heads[1:])
        assert not native.suits(heads[0][:, :, :1].expand(-1, -1, native.QUERIES + 1, -1), *heads[1:])
        assert not native.suits(heads[0], heads[1].transpose(2, 3), heads[2])
        for threads, several, one in ((1, True, True), (2, False, True), (3, False, False)):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            assert native.suits(*heads) == several
            assert native.suits(heads[0][:, :, :1], *heads[1:]) == one
    monkeypatch.undo()
    assert not native.suits(*heads)  # somebody may want a gradient


NEVER = [3, 70]


@compiles
@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [959, 960, 1601])  # blocks of 64 tokens: the last one lacks one, is whole, has one
def test_it_finds_the_best_tokens(vocab, dtype, count):
    generator = torch.Generator().manual_seed(0)
    logits = torch.stack([torch.randperm(vocab, generator=generator) for _ in range(24)]).view(12, 2, vocab) % 250 / 16
    logits[0, 0] = -torch.inf  # but for as many as are chosen
    logits[0, 0, 5 : 5 + count] = torch.arange(count) / 8
    logits[1, 1] *= 1000
    logits[2, :, NEVER], logits[3, :, -1], logits[4, :, 0] = 40.0, 20.0, 20.0
    logits = (logits + torch.arange(vocab) / 2**16).to(dtype)  # in 32 bits few are equal
    assert native.ranks(logits, count)
    before = logits.clone()
    log_probs, tokens = native.best_tokens(logits, count, NEVER)
    assert torch.equal(logits, before)
    every = logits.double().log_softmax(dim=-1)
    torch.testing.assert_close(log_probs.double(), every.gather(-1, tokens), rtol=1e-6, atol=5e-6)
    every[..., NEVER] = -torch.inf
    assert torch.equal(every.gather(-1, tokens), every.topk(count).values)
    assert all(len(set(row)) == count for row in tokens.flatten(0, 1).tolist())


@compiles
@torch.no_grad()
def test_where_the_choice_does_not_suit_the_library_chooses(monkeypatch):
    logits = torch.zeros(native.SENTENCES, 1, 2 * native.AMONG)
    assert native.ranks(logits, 2)
    assert not native.ranks(logits, 3)
    assert not native.ranks(logits[1:], 2)
    assert not native.ranks(logits.double(), 2)
    with torch.enable_grad():
        assert not native.ranks(logits, 2)
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert native.ranks(logits, 2) == (threads < 3)


@compiles
@pytest.mark.parametrize("beam", [1, 4])
def test_a_search_chooses_by_it_and_finds_what_the_plain_one_finds(beam, monkeypatch):
    model, longest = make_doubtful(5, vocab=2 * native.AMONG * beam), 6
    torch.manual_seed(beam)
    src = torch.tensor([random_ids(model.config.vocab_size, longest) for _ in range(4 * native.SENTENCES)])
    expected = search(decoding, model, src, beam)
    with torch.no_grad():
        assert native.ranks(torch.zeros(len(src), 1, model.config.vocab_size), 2 * beam)
    monkeypatch.setattr(native, "SENTENCES", 1)
    monkeypatch.setattr("annotated.fast.decoding._topk", None)  # PyTorch's way is not taken
    assert_same(search(fast_decoding, model, src, beam), expected)


def search(room, model, src, beam):
    return room.greedy_decode(model, src) if beam == 1 else room.beam_search(model, src, beam)


@pytest.mark.parametrize("trouble", ["no compiler", "one that fails", "one whose work may not be run"])
def test_without_a_compiler_nothing_is_missed(trouble, monkeypatch):
    src = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0], [4, 2, 0, 0]] * 4)
    model = make_doubtful(0, vocab=6 * native.AMONG)
    expected = beam_search(model, src, 3) + greedy_decode(model, src)
    native.library.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None if trouble == "no compiler" else name)
    fails = trouble == "one that fails"
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, fails))
    assert native.library() is None
    found = beam_search(model, src, 3) + greedy_decode(model, src)
    monkeypatch.undo()
    native.library.cache_clear()
    assert_same(found, expected)
