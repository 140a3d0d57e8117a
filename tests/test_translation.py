"""Texts in, texts out: tokens, batches of similar length, either kind of search, and which words were guesses."""

import json
import re

import pytest
import torch

from annotated import decoding
from annotated.config import BOS, EOS
from annotated.decoding import Hypothesis, beam_search, greedy_decode
from annotated.fast import decoding as fast
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import DATA_FOLDER, pad
from annotated_workbench.translation import is_unsure, translate, words_written
from annotated_workbench.vocabulary import SubwordTokenizer
from tests.models import biased, make_doubtful

TEXTS = ["Füße", "Ein Hund läuft über die Straße.", "", "你好 👍", "Ein Hund", " \t"]


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return SubwordTokenizer.train((TEXTS, TEXTS), vocab_size=270)


@pytest.fixture(scope="module")
def texter(tokenizer) -> Transformer:
    return make_doubtful(0, len(tokenizer))


@pytest.mark.parametrize("beam", [0, 2])
def test_texts_are_translated_in_order_whatever_the_batch(tokenizer, texter, beam):
    alone = [translate(texter, tokenizer, [text], "de", beam=beam)[0] for text in TEXTS]
    assert len(set(alone)) > 2  # not only empty ones and one other
    for batch_tokens in (1, 300, 700):
        assert translate(texter, tokenizer, TEXTS, "de", beam=beam, batch_tokens=batch_tokens) == alone
    assert translate(texter, tokenizer, TEXTS[::-1], "de", beam=beam) == alone[::-1]


@pytest.mark.parametrize(("beam", "max_extra", "batch_tokens"), [(0, 10, 120), (2, 50, 500), (4, 50, 1)])
@pytest.mark.parametrize("plain", [False, True])
def test_a_batch_is_as_large_as_its_tokens_allow(tokenizer, texter, monkeypatch, beam, max_extra, batch_tokens, plain):
    shapes = []

    def noting(model, src, *arguments, **options):
        shapes.append(tuple(src.shape))
        assert options["max_extra"] == max_extra
        return [[Hypothesis([], 0.0, 0.0)] if beam else Hypothesis([], 0.0, 0.0)] * len(src)

    monkeypatch.setattr(decoding if plain else fast, "n_best" if beam else "greedy_decode", noting)
    texts = ["Hund " * i for i in range(1, 12)] * 2
    options = dict(beam=beam, max_extra=max_extra, batch_tokens=batch_tokens, plain=plain)
    translate(texter, tokenizer, texts, "de", **options)
    room = [max(beam, 1) * min(longest + max_extra, 59) for _, longest in shapes]
    assert sum(rows for rows, _ in shapes) == len(texts)
    assert all(rows * each <= batch_tokens or rows == 1 for (rows, _), each in zip(shapes, room, strict=True))
    # All but the last, which holds what is left: one sentence more would have been too many.
    assert all((rows + 1) * each > batch_tokens for (rows, _), each in list(zip(shapes, room, strict=True))[:-1])


def test_empty_texts_stay_empty(tokenizer, texter):
    talkative = biased(texter, {tokenizer.encode("Hund", "de")[-1]: 60.0})  # has something to say to any text
    translations = translate(talkative, tokenizer, TEXTS, "de", beam=0, max_extra=3)
    assert [text.strip() == "" for text in TEXTS] == [translation == "" for translation in translations]
    assert (translate(talkative, tokenizer, ["\u200b"], "de"), translate(talkative, tokenizer, [], "de")) == ([""], [])


def test_a_text_is_searched_with_the_given_beam_and_penalty(tokenizer, texter):
    text = TEXTS[1]
    src = pad([[*tokenizer.encode(text, "de"), EOS]])
    greedy = tokenizer.decode(greedy_decode(texter, src)[0].ids)
    assert translate(texter, tokenizer, [text], "de", beam=0) == [greedy]
    for beam, alpha in ((2, 0.0), (5, 1.5)):
        expected = tokenizer.decode(beam_search(texter, src, beam, alpha)[0].ids)
        assert translate(texter, tokenizer, [text], "de", beam=beam, alpha=alpha) == [expected]


def test_what_cannot_be_translated_is_named(tokenizer, texter):
    with pytest.raises(ValueError, match=r"text 2 is \d+ tokens long and the model takes 59"):
        translate(texter, tokenizer, ["Ein Hund", "Hund " * 60], "de")
    with pytest.raises(TypeError, match="texts is one string, to be read letter by letter: give a list"):
        translate(texter, tokenizer, "Ein Hund", "de")


@pytest.mark.parametrize("bf16", [False, True])
def test_in_bfloat16_a_copy_translates(tokenizer, texter, monkeypatch, bf16):
    heard = []

    def listen(model, src, *arguments, **options):
        heard.append((model.model is texter, {parameter.dtype for parameter in model.parameters()}))
        return [[Hypothesis([], 0.0, 0.0)]] * len(src)

    monkeypatch.setattr(fast, "n_best", listen)
    translate(texter, tokenizer, ["Hund"], "de", bf16=bf16)
    assert heard == [(False, {torch.bfloat16}) if bf16 else (True, {torch.float32})]
    assert {parameter.dtype for parameter in texter.parameters()} == {torch.float32}


def test_a_word_s_probability_is_its_pieces_product_and_the_doubts_are_those_that_the_documents_count():
    model, subwords, _ = load_translator([DATA_FOLDER / "checkpoints" / "de-en-best"])
    ids, text = subwords.encode("A well-dressed man , - smiles.", "en"), "Ein gut gekleideter Mann lächelt."
    words = words_written(model, subwords, text, subwords.decode(ids), "de", "en")
    assert [word.text for word in words] == ["A", "well-dressed", "man", "smiles."]
    with torch.inference_mode():
        steps = model(torch.tensor([[*subwords.encode(text, "de"), EOS]]), torch.tensor([[BOS, *ids]]))[0].softmax(-1)
    pieces = [i for i, piece in enumerate(ids) if subwords.decode([piece]) in ("well", "dress", "ed")]
    assert words[1].probability == pytest.approx(steps[pieces, [ids[i] for i in pieces]].prod().item(), rel=1e-4)
    assert is_unsure([]) and not is_unsure([words[0]._replace(probability=0.51)])

    measured = json.loads((DATA_FOLDER / "results" / "doubt.json").read_text("utf-8"))["rows"]
    unlike = [line.split("\t")[1] for line in (DATA_FOLDER / "unlike_captions.tsv").read_text("utf-8").splitlines()]
    pairs = zip(unlike, translate(model, subwords, unlike, "de", beam=0), strict=True)
    caught = sum(is_unsure(words_written(model, subwords, *pair, "de", "en")) for pair in pairs)
    assert abs(caught - measured["de-en-best, greedy, the rule"]["caught"]) <= 1  # another machine rounds otherwise
    said = (DATA_FOLDER.parent / "docs" / "RESULTS.md").read_text("utf-8").split("### When it is unsure")[1]
    table = [list(map(int, re.findall(r"\d+", row))) for row in re.findall(r"^\| `.*?\|(.*)", said, re.MULTILINE)[:6]]
    rules = [(how, "the rule") for how in ("-best, greedy", "-best, beam", ", greedy", ", beam")]
    rules += [("-best, greedy", "a guess"), ("-best, greedy", "a quarter guesses")]
    names = [f"de-en{how}, {rule}" for how, rule in rules]
    keys = ("caught", "false of 200", "false of 1,000", "bad caught", "bad")
    warns = [measured["de-en-best, beam, the rule"][key] for key in keys[:2]]
    commands = " ".join((DATA_FOLDER.parent / "docs" / "COMMANDS.md").read_text("utf-8").split())
    assert "Of 100 sentences unlike captions it warns of {}, and of {} of 200 captions".format(*warns) in commands
    assert table == [[measured[name][key] for key in keys] for name in names]
