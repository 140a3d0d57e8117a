"""Greedy and beam search against teacher forcing, brute force and a plain search; translation of texts; scores."""

import copy
import functools
import itertools
import math
import re
from collections.abc import Sequence

import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from annotated import decoding
from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.decoding import Hypothesis, beam_search, greedy_decode, length_penalty
from annotated.fast.training import train_step
from annotated.training import make_optimizer
from annotated.transformer import Transformer
from annotated.workbench.data import pad
from annotated.workbench.metrics import bleu, chrf
from annotated.workbench.translation import translate
from annotated.workbench.vocabulary import SPECIALS, SubwordTokenizer, Vocabulary, WordTokenizer

SEEDS = range(3)


@functools.cache
def make_model(seed: int, vocab: int = 11, longest: int = 7) -> Transformer:
    """Train a model for a moment on random pairs: its answers depend on the source, and it has doubts.

    A model with random weights repeats one token for ever, and searches have nothing to disagree on.
    """
    with torch.random.fork_rng(devices=[]):  # so that a test draws the same sources whether the model is new or not
        torch.manual_seed(seed)
        sizes = dict(d_model=14, heads=2, d_k=3, d_v=5, d_ff=31, layers=2, max_length=59, dropout=0.5)
        model = Transformer(TransformerConfig(vocab, **sizes)).eval()
        src = pad([[*random_ids(vocab, 1 + i % 6), EOS] for i in range(20)])
        tgt = pad([[BOS, *random_ids(vocab, i % (longest + 1)), EOS] for i in range(20)])
        optimizer = make_optimizer(model, 0.01)
        for _ in range(60):
            train_step(model, src, tgt, optimizer)
        return model


def biased(model: Transformer, extra: dict[int, float]) -> Transformer:
    """Copy a model and add to the logits of some tokens."""
    model = copy.deepcopy(model)
    bias = torch.zeros(model.config.vocab_size)
    bias[list(extra)] = torch.tensor(list(extra.values()))
    model.output.bias = torch.nn.Parameter(bias)
    return model


def random_ids(vocab: int, count: int) -> list[int]:
    return torch.randint(UNK, vocab, (count,)).tolist()


def make_sources(vocab: int, *lengths: int) -> list[list[int]]:
    return [[*random_ids(vocab, n - 1), EOS] for n in lengths]


def token_log_probs(model: Transformer, source: list[int], rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Score every next token after each beginning of each row (all of one length) by teacher forcing."""
    with torch.no_grad():
        src = torch.tensor([source]).expand(len(rows), -1)
        return model(src, torch.tensor([[BOS, *row] for row in rows])).log_softmax(-1)


def log_prob(model: Transformer, source: list[int], ids: list[int]) -> float:
    """Sum the log-probabilities of `ids` given the source by teacher forcing."""
    return token_log_probs(model, source, [ids[:-1]])[0, range(len(ids)), ids].sum().item()


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.ids for h in found] == [h.ids for h in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[1:] == pytest.approx(theirs[1:], abs=1e-4)


def search(model: Transformer, sources: list[list[int]], method: str, **options) -> list[Hypothesis]:
    return {"greedy": greedy_decode, "beam": beam_search}[method](model, pad(sources), **options)


# The penalty


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.6, 1), (7, 1.0, 2), (19, 0.5, 2), (5, 0.0, 1), (43, 2.0, 64), (5, 0.6, 1.35866)],
)
def test_the_length_penalty_by_hand(length, alpha, penalty):
    assert length_penalty(length, alpha) == pytest.approx(penalty, rel=1e-5)


# What a hypothesis says about itself


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_probability_is_that_of_teacher_forcing(method, seed):
    model = make_model(seed)
    sources = make_sources(11, 2, 3, 5, 7)
    for source, (ids, found, _) in zip(sources, search(model, sources, method, max_extra=11), strict=True):
        ended = len(ids) < len(source) + 11
        assert found == pytest.approx(log_prob(model, source, [*ids, EOS] if ended else ids), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.3])
def test_the_score_is_the_log_probability_over_the_penalty(alpha):
    found = search(make_model(0), make_sources(11, 2, 3, 5, 7), "beam", alpha=alpha)
    assert max(len(h.ids) for h in found) > 1
    for ids, log_probability, score in found:
        assert score == pytest.approx(log_probability / ((5 + len(ids) + 1) / 6) ** alpha)


def test_greedy_takes_the_most_probable_token_at_each_step():
    model, sources = make_model(1), make_sources(11, 2, 3, 5)
    for source, (ids, _, _) in zip(sources, search(model, sources, "greedy"), strict=True):
        best = token_log_probs(model, source, [ids])[0, :, EOS:].argmax(-1) + EOS
        assert best.tolist() == [*ids, EOS]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_padding_and_the_start_symbol_are_never_chosen(method):
    model = biased(make_model(0), {PAD: 30.0, BOS: 20.0})
    found = search(model, make_sources(11, 2, 3, 5), method)
    assert any(h.ids for h in found)
    assert not {PAD, BOS, EOS} & {token for h in found for token in h.ids}


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_translation_is_at_most_so_much_longer_than_its_source(method, use_cache):
    model, sources = biased(make_model(0), {EOS: -60.0}), make_sources(11, 2, 3, 7)
    found = search(model, sources, method, max_extra=5, use_cache=use_cache)
    assert [len(h.ids) for h in found] == [7, 8, 12]
    for source, (ids, log_probability, score) in zip(sources, found, strict=True):
        assert log_probability == pytest.approx(log_prob(model, source, ids), abs=1e-4)
        assert score == pytest.approx(log_probability / (length_penalty(len(ids), 0.6) if method == "beam" else 1))


def test_fifty_tokens_more_than_the_source_unless_the_model_ends_before():
    model, sources = biased(make_model(0), {EOS: -60.0}), make_sources(11, 2, 5, 11)
    assert [len(h.ids) for h in search(model, sources, "greedy")] == [52, 55, 59]  # max_length is 59
    assert [len(h.ids) for h in search(model, sources, "beam")] == [52, 55, 59]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_an_ended_sentence_ends_at_once(method):
    found = search(biased(make_model(0), {EOS: 60.0}), make_sources(11, 2, 3), method)
    assert [h.ids for h in found] == [[], []]
    assert all(h.log_prob == pytest.approx(0, abs=1e-3) for h in found)


# Searches that must agree


@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_of_one_without_penalty_is_greedy(seed):
    model, sources = make_model(seed), make_sources(11, 2, 3, 5, 7)
    assert_same(search(model, sources, "beam", beam=1, alpha=0.0), search(model, sources, "greedy"))


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_cache_changes_nothing(method, seed):
    model, sources = make_model(seed), make_sources(11, 2, 3, 5, 7, 2)
    found = search(model, sources, method, max_extra=13)
    assert_same(found, search(model, sources, method, max_extra=13, use_cache=False))
    assert len({len(h.ids) for h in found}) > 1, "sentences leave the batch at different times"


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("at_once", [1, 8])
def test_looking_for_the_best_in_pieces_changes_nothing(monkeypatch, method, at_once):
    model, sources = make_model(0, vocab=97), make_sources(97, 2, 3, 5, 7, 2)
    expected = search(model, sources, method, max_extra=13)
    monkeypatch.setattr(decoding, "CACHED_ROWS", at_once)
    monkeypatch.setattr(decoding, "GROUP", 3)
    assert_same(search(model, sources, method, max_extra=13), expected)


@given(count=st.integers(1, 8), columns=st.integers(8, 1000), spread=st.sampled_from([0.0, 2.0, torch.inf]))
def test_topk_in_two_stages_finds_what_topk_finds(count, columns, spread):
    x = torch.randn(3, columns)
    x[1] = x[1].round()  # many are equal
    x[2, columns // 2 :] -= spread
    values, places = decoding._topk(x, count)
    assert torch.equal(values, x.topk(count).values)
    assert torch.equal(x.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())


def brute_force(model: Transformer, source: list[int], limit: int, alpha: float) -> Hypothesis:
    """Score every sequence that ends within `limit` tokens; return the best."""
    words = range(UNK, model.config.vocab_size)
    beginnings = list(itertools.product(words, repeat=limit - 1))
    scored = []
    for row, step in zip(beginnings, token_log_probs(model, source, beginnings), strict=True):
        for length in range(limit):
            total = sum(step[i, token].item() for i, token in enumerate(row[:length])) + step[length, EOS].item()
            scored.append(Hypothesis(list(row[:length]), total, total / ((5 + length + 1) / 6) ** alpha))
    return max(scored, key=lambda h: h.score)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_4_finds_the_optimum_of_all_sequences(alpha):
    lengths, greedy_misses = set(), 0
    for seed in range(4):
        model, sources = make_model(seed, vocab=8, longest=3), make_sources(8, 2, 3)
        found = search(model, sources, "beam", alpha=alpha, max_extra=2)
        expected = [brute_force(model, source, len(source) + 2, alpha) for source in sources]
        assert_same(found, expected)
        lengths |= {len(h.ids) for h in found}
        greedy = search(model, sources, "greedy", max_extra=2)
        greedy_misses += sum(a.ids != b.ids for a, b in zip(greedy, expected, strict=True))
    assert len(lengths) > 2
    assert greedy_misses > 0


def patient_search(model: Transformer, source: list[int], beam: int, alpha: float, limit: int) -> Hypothesis:
    """Search with a beam, one sentence at a time, without a cache, and never stop before the limit."""
    alive, ended = [([], 0.0)], []
    for length in range(1, limit + 1):
        continuations = []
        steps = token_log_probs(model, source, [ids for ids, _ in alive])[:, -1].tolist()
        for (ids, total), row in zip(alive, steps, strict=True):
            for token, step in enumerate(row):
                if token not in (PAD, BOS):
                    continuations.append(([*ids, token], total + step))
        continuations.sort(key=lambda pair: -pair[1])
        penalty = ((5 + length) / 6) ** alpha
        ended += [Hypothesis(ids[:-1], total, total / penalty) for ids, total in continuations[:beam] if ids[-1] == EOS]
        alive = [(ids, total) for ids, total in continuations if ids[-1] != EOS][:beam]
    ids, total = alive[0]
    return max(ended, key=lambda h: h.score, default=Hypothesis(ids, total, total / penalty))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam", [2, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_stopping_early_loses_nothing(alpha, beam, seed):
    model, sources = make_model(seed), make_sources(11, 2, 5)
    found = search(model, sources, "beam", beam=beam, alpha=alpha, max_extra=5)
    assert_same(found, [patient_search(model, source, beam, alpha, len(source) + 5) for source in sources])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_translation_does_not_depend_on_its_batch(method, seed):
    model, sources = make_model(seed), make_sources(11, 5, 2, 7, 3, 2)
    alone = [search(model, [source], method)[0] for source in sources]
    assert_same(search(model, sources, method), alone)
    order = [3, 0, 4, 2, 1]
    assert_same(search(model, [sources[i] for i in order], method), [alone[i] for i in order])
    longer = make_sources(11, 13)
    assert_same(search(model, [*longer, *sources], method)[1:], alone)
    decode = greedy_decode if method == "greedy" else beam_search
    assert_same(decode(model, F.pad(pad(sources), (0, 3), value=PAD)), alone)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_finished_hypothesis_stays_as_it_is(seed):
    # With α = 2 length pays, and the search goes on long after a sentence has ended.
    model, sources = make_model(seed), make_sources(11, 2, 3, 5)
    for source, (ids, found, _) in zip(sources, search(model, sources, "beam", alpha=2.0, max_extra=11), strict=True):
        assert EOS not in ids
        ended = len(ids) < len(source) + 11
        assert found == pytest.approx(log_prob(model, source, [*ids, EOS] if ended else ids), abs=1e-4)


# Modes and mistakes


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("training", [True, False])
def test_decoding_switches_dropout_off_and_leaves_the_mode_as_it_was(method, training):
    model, sources = copy.deepcopy(make_model(0)), make_sources(11, 2, 5)
    expected = search(model, sources, method)
    model.train(training)
    assert_same(search(model, sources, method), expected)
    assert all(module.training == training for module in model.modules())


def test_the_mode_is_restored_after_an_error():
    model = copy.deepcopy(make_model(0)).train()
    with pytest.raises(ValueError, match="position 59 is asked for"):
        greedy_decode(model, pad(make_sources(11, 60)))
    assert model.training


@pytest.mark.parametrize(("beam", "alpha"), [(0, 0.6), (-1, 0.6), (6, 0.6)])
def test_a_beam_that_makes_no_sense_is_an_error(beam, alpha):
    with pytest.raises(ValueError, match=f"beam={beam} must lie in 1 … 5"):
        beam_search(make_model(0), pad(make_sources(11, 2)), beam, alpha)


@pytest.mark.parametrize("alpha", [-0.1, 100.1, 1e6, math.inf, math.nan])
def test_a_penalty_that_makes_no_sense_is_an_error(alpha):
    with pytest.raises(ValueError, match=re.escape(f"alpha={alpha} must lie in 0 … 100")):
        beam_search(make_model(0), pad(make_sources(11, 2)), 2, alpha)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_source_of_padding_has_a_translation(method):
    (found,) = search(make_model(0), [[PAD, PAD]], method, max_extra=0)
    assert len(found.ids) <= 1


# Texts

TEXTS = ["Füße", "Ein Hund läuft über die Straße.", "", "你好 👍", "Ein Hund", " \t"]


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return SubwordTokenizer.train((TEXTS, TEXTS), vocab_size=270)


@pytest.fixture(scope="module")
def texter(tokenizer) -> Transformer:
    return make_model(0, len(tokenizer))


@pytest.mark.parametrize("beam", [0, 2])
def test_texts_are_translated_in_order_whatever_the_batch(tokenizer, texter, beam):
    alone = [translate(texter, tokenizer, [text], "de", beam=beam)[0] for text in TEXTS]
    assert len(set(alone)) > 2  # not only empty ones and one other
    for batch_tokens in (1, 300, 700):
        assert translate(texter, tokenizer, TEXTS, "de", beam=beam, batch_tokens=batch_tokens) == alone
    assert translate(texter, tokenizer, TEXTS[::-1], "de", beam=beam) == alone[::-1]


@pytest.mark.parametrize(("beam", "max_extra", "batch_tokens"), [(0, 10, 120), (2, 10, 240), (2, 50, 500), (4, 50, 1)])
def test_a_batch_is_as_large_as_its_tokens_allow(tokenizer, texter, monkeypatch, beam, max_extra, batch_tokens):
    shapes = []

    def noting(model, src, *arguments, **options):
        shapes.append(tuple(src.shape))
        return [Hypothesis([], 0.0, 0.0)] * len(src)

    monkeypatch.setattr(decoding, "beam_search" if beam else "greedy_decode", noting)
    texts = ["Hund " * i for i in range(1, 12)] * 2
    translate(texter, tokenizer, texts, "de", beam=beam, max_extra=max_extra, batch_tokens=batch_tokens)
    room = [max(beam, 1) * min(longest + max_extra, 59) for _, longest in shapes]
    assert sum(rows for rows, _ in shapes) == len(texts)
    assert all(rows * each <= batch_tokens or rows == 1 for (rows, _), each in zip(shapes, room, strict=True))
    # All but the last, which holds what is left: one sentence more would have been too many.
    assert all((rows + 1) * each > batch_tokens for (rows, _), each in list(zip(shapes, room, strict=True))[:-1])


@pytest.mark.parametrize("batch_tokens", [0, -5])
def test_a_batch_needs_room(tokenizer, texter, batch_tokens):
    with pytest.raises(ValueError, match=f"batch_tokens={batch_tokens} must be at least 1"):
        translate(texter, tokenizer, TEXTS, "de", batch_tokens=batch_tokens)


def test_empty_texts_stay_empty(tokenizer, texter):
    talkative = biased(texter, {tokenizer.encode("Hund", "de")[-1]: 60.0})  # has something to say to any text
    translations = translate(talkative, tokenizer, TEXTS, "de", beam=0, max_extra=3)
    assert [text.strip() == "" for text in TEXTS] == [translation == "" for translation in translations]
    assert translate(talkative, tokenizer, [""], "de") == [""]
    assert translate(talkative, tokenizer, [], "de") == []


def test_a_text_is_searched_with_the_given_beam_and_penalty(tokenizer, texter):
    text = TEXTS[1]
    src = pad([[*tokenizer.encode(text, "de"), EOS]])
    greedy = tokenizer.decode(greedy_decode(texter, src)[0].ids)
    assert translate(texter, tokenizer, [text], "de", beam=0) == [greedy]
    for beam, alpha in ((2, 0.0), (5, 1.5)):
        expected = tokenizer.decode(beam_search(texter, src, beam, alpha)[0].ids)
        assert translate(texter, tokenizer, [text], "de", beam=beam, alpha=alpha) == [expected]


def test_too_long_a_text_is_named(tokenizer, texter):
    with pytest.raises(ValueError, match=r"text 2 is \d+ tokens long and the model takes 59"):
        translate(texter, tokenizer, ["Ein Hund", "Hund " * 60], "de")


def test_a_text_that_can_never_fit_is_not_even_encoded(tokenizer, texter, monkeypatch):
    monkeypatch.setattr(type(tokenizer), "encode_batch", None)
    with pytest.raises(ValueError, match="text 2 is 3777 characters long and the model takes 59 tokens: split it"):
        translate(texter, tokenizer, ["Ein Hund", "x" * (64 * 59 + 1)], "de")


def test_one_string_is_not_a_list_of_texts(tokenizer, texter):
    with pytest.raises(TypeError, match="texts is one string, which would be read letter by letter: give a list"):
        translate(texter, tokenizer, "Ein Hund", "de")


# Scores


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_score_needs_a_reference_for_each_hypothesis(metric):
    for hypotheses, references in ((["a b c d", "e"], ["a b c d"]), (["a"], ["a", "b"]), ([], []), ([], ["a"])):
        counts = f"{len(hypotheses)} hypotheses and {len(references)} references: give one reference for each"
        with pytest.raises(ValueError, match=counts):
            metric(hypotheses, references)
    for hypotheses, references in (("a dog", ["a dog"]), (["a dog"], "a dog")):
        with pytest.raises(TypeError, match="is one string, which would be read letter by letter"):
            metric(hypotheses, references)


def test_bleu_by_hand():
    # Of one to four words in a row, 4/5, 3/4, 2/3 and 1/2 are in the reference: the fourth root of 1/5.
    assert bleu(["a b c d e"], ["a b c d f"])[0] == pytest.approx(100 * 0.2**0.25)
    assert bleu(["Ein Hund läuft ."], ["Ein Hund läuft ."])[0] == pytest.approx(100)


HYPOTHESES = ["A dog runs over the street.", "Two cats sit on the roof, I think"]
REFERENCES = ["A Dog runs across the street.", "Two cats are sitting on the roof, I think."]


def test_bleu_is_sacrebleus():
    theirs = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    score, signature = bleu(HYPOTHESES, REFERENCES)
    assert score == theirs.score
    assert {"nrefs:1", "case:mixed", "tok:13a", f"version:{sacrebleu.__version__}"} <= set(signature.split("|"))


def test_case_may_be_ignored():
    score, signature = bleu(HYPOTHESES, REFERENCES, lowercase=True)
    assert score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score
    assert score > bleu(HYPOTHESES, REFERENCES)[0]
    assert "case:lc" in signature


def test_chrf_is_sacrebleus():
    score, signature = chrf(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert {"nc:6", "nw:0", f"version:{sacrebleu.__version__}"} <= set(signature.split("|"))


def test_a_text_of_one_token_is_translated():
    words = WordTokenizer(Vocabulary([*SPECIALS, *"abcdefg"]), ("de", "en"))
    talkative = biased(make_model(0), {len(SPECIALS): 60.0})
    assert translate(talkative, words, ["g", ""], "de", beam=0, max_extra=0) == ["a a", ""]
