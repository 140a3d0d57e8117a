"""Scores of translations by hand and against sacrebleu; losses of references token by token."""

import math

import pytest
import sacrebleu
import torch
from torch import nn

from annotated.config import BOS, EOS, TransformerConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer
from annotated_workbench import metrics
from annotated_workbench.data import Pairs
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.metrics import bleu, chrf, log_probs, loss_per_token
from annotated_workbench.vocabulary import WordTokenizer

# Translations


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_score_needs_a_reference_for_each_hypothesis(metric):
    for hypotheses, references in ((["a b c d", "e"], ["a b c d"]), ([], [])):
        counts = f"{len(hypotheses)} hypotheses and {len(references)} references: give one reference for each"
        with pytest.raises(ValueError, match=counts):
            metric(hypotheses, references)
    with pytest.raises(TypeError, match=r"hypotheses is one string, .* letter by letter: give a list, \['a dog'…\]"):
        metric("a dog", ["a dog"])


def test_bleu_by_hand():
    # Of one to four words in a row, 4/5, 3/4, 2/3 and 1/2 are in the reference: the fourth root of 1/5.
    assert bleu(["a b c d e"], ["a b c d f"])[0] == pytest.approx(100 * 0.2**0.25)
    assert bleu(["Ein Hund läuft ."], ["Ein Hund läuft ."])[0] == pytest.approx(100)


HYPOTHESES = ["A dog runs over the street.", "Two cats sit on the roof, I think"]
REFERENCES = ["A Dog runs across the street.", "Two cats are sitting on the roof, I think."]


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_sacrebleus(lowercase):
    score, signature = bleu(HYPOTHESES, REFERENCES, lowercase=lowercase)
    assert score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase).score
    assert {f"case:{'lc' if lowercase else 'mixed'}", "tok:13a", f"version:{sacrebleu.__version__}"} <= {
        *signature.split("|")
    }
    score, signature = chrf(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert {"nc:6", "nw:0"} <= {*signature.split("|")}


@pytest.mark.parametrize(
    ("language", "words"),
    [
        *(("zh", "zh"), ("zh-TW", "zh"), ("ZH_Hans", "zh")),
        *(("ja", "ja-mecab"), ("ko", "ko-mecab"), ("th", "char"), ("", "13a")),
    ],
)
def test_what_is_a_word_follows_the_language(language, words, capsys):
    metrics.sacrebleus_words.cache_clear()
    same = ["今天 天气 很 好 。", "我 喜欢 学习 。"]
    (score, signature), again = bleu(same, same, language), bleu(same, same, language)
    assert again == (score, signature)
    assert score == pytest.approx(100)
    said = capsys.readouterr().out
    if said:  # where the package is missing
        assert words in ("ja-mecab", "ko-mecab") and "tok:char|" in signature
        assert said == f"BLEU counts characters, not words: for those, pip install 'sacrebleu[{words[:2]}]'\n"
    else:
        assert f"tok:{words}" in signature


# References

PAIRS = Pairs(
    ["ein Hund läuft", "eine Katze schläft auf dem Sofa", "Hund"],
    ["a dog runs", "a cat sleeps on the sofa", "dog dog dog"],
)


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer.train(PAIRS, ("de", "en"), min_freq=1)


def make_models(tokenizer: WordTokenizer, kind: str, count: int) -> list[nn.Module]:
    if kind == "recurrent":
        return [RecurrentTranslator(RecurrentConfig(len(tokenizer), d_model=9)).eval() for _ in range(count)]
    config = TransformerConfig(len(tokenizer), d_model=16, d_ff=24, heads=2, layers=1, max_length=9)
    return [Transformer(config).eval() for _ in range(count)]


@pytest.mark.parametrize(("kind", "members"), [("transformer", 1), ("transformer", 2), ("recurrent", 1)])
def test_a_pair_is_scored_token_by_token_with_its_end(tokenizer, kind, members):
    models, expected = make_models(tokenizer, kind, members), []
    for source, target in zip(
        tokenizer.encode_batch(PAIRS.source, "de"), tokenizer.encode_batch(PAIRS.target, "en"), strict=True
    ):
        total, written = 0.0, [BOS]
        for token in [*target, EOS]:
            ids = torch.tensor([[*source, EOS]]), torch.tensor([written])
            total += math.log(sum(model(*ids)[0, -1].softmax(-1)[token].item() for model in models) / members)
            written.append(token)
        expected.append(total)
    model = Ensemble(models) if members > 1 else models[0]
    assert log_probs(model, tokenizer, PAIRS, "de", "en") == pytest.approx(expected, abs=1e-4)
    tokens = (3 + 1) + (6 + 1) + (3 + 1)
    assert loss_per_token(model, tokenizer, PAIRS, "de", "en") == pytest.approx(-sum(expected) / tokens, abs=1e-4)


def test_the_order_and_the_batches_change_nothing(tokenizer, monkeypatch):
    (model,) = make_models(tokenizer, "transformer", 1)
    many = Pairs(PAIRS.source * 7, PAIRS.target * 7)
    expected = log_probs(model, tokenizer, PAIRS, "de", "en") * 7
    monkeypatch.setattr(metrics, "ROWS", 2)
    assert log_probs(model, tokenizer, many, "de", "en") == pytest.approx(expected, abs=1e-4)
    assert expected[0] != pytest.approx(expected[1], abs=0.1)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(tokenizer):
    (model,) = make_models(tokenizer, "transformer", 1)
    nn.init.zeros_(model.output.weight)
    loss = loss_per_token(model, tokenizer, PAIRS, "de", "en")
    assert math.exp(loss) == pytest.approx(len(tokenizer), rel=1e-4)
