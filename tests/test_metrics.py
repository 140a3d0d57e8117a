"""Scores of translations by hand and against sacrebleu; losses of references token by token."""

import math

import pytest
import sacrebleu
import torch

from annotated.config import BOS, EOS
from annotated_workbench import metrics
from annotated_workbench.architectures import PRESETS, make_model
from annotated_workbench.data import Pairs
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.metrics import bleu, chrf, loss_per_token
from annotated_workbench.vocabulary import WordTokenizer

GERMAN = ["ein Hund läuft", "eine Katze schläft auf dem Sofa", "Hund"]
PAIRS = Pairs(GERMAN, ["a dog runs", "a cat sleeps on the sofa", "dog dog dog"])


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
    assert [score(["a b c \u00e9"], ["a b c e\u0301"])[0] for score in (bleu, chrf)] == pytest.approx([100, 100])


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_sacrebleus(lowercase):
    texts = ["A dog runs over the street.", "Two cats sit on the roof, I think"]
    references = ["A Dog runs across the street.", "Two cats are sitting on the roof, I think."]
    score, signature = bleu(texts, references, lowercase=lowercase)
    assert score == sacrebleu.corpus_bleu(texts, [references], lowercase=lowercase).score
    assert {f"case:{'lc' if lowercase else 'mixed'}", "tok:13a"} <= {*signature.split("|")}
    score, signature = chrf(texts, references)
    assert score == sacrebleu.corpus_chrf(texts, [references]).score
    assert {"nc:6", "nw:0"} <= {*signature.split("|")}


@pytest.mark.parametrize(
    ("language", "words"),
    [("zh", "zh"), ("zh-TW", "zh"), ("ZH_Hans", "zh"), ("ja", "ja-mecab"), ("th", "char"), ("", "13a")],
)
def test_what_is_a_word_follows_the_language(language, words, capsys):
    metrics.sacrebleus_words.cache_clear()
    same = ["今天 天气 很 好 。", "我 喜欢 学习 。"]
    (score, signature), again = bleu(same, same, language), bleu(same, same, language)
    assert again == (score, signature) and score == pytest.approx(100)
    said = capsys.readouterr().out
    if said:  # where the package is missing
        assert words in ("ja-mecab", "ko-mecab") and "tok:char|" in signature
        assert said == f"BLEU counts characters, not words: for those, pip install 'sacrebleu[{words[:2]}]'\n"
    else:
        assert f"tok:{words}" in signature


@pytest.mark.parametrize(("preset", "members"), [("tiny", 1), ("tiny", 2), ("recurrent", 1)])
def test_references_are_scored_token_by_token_with_their_ends(preset, members):
    tokenizer = WordTokenizer.train(PAIRS, ("de", "en"), min_freq=1)
    config = PRESETS[preset](len(tokenizer), d_model=16, layers=1)
    models, losses = [make_model(config).eval() for _ in range(members)], []
    model = Ensemble(models) if members > 1 else models[0]
    for source, target in zip(*PAIRS, strict=True):
        src, written, alone = torch.tensor([[*tokenizer.encode(source, "de"), EOS]]), [BOS], []
        for token in [*tokenizer.encode(target, "en"), EOS]:
            probabilities = [each(src, torch.tensor([written]))[0, -1].softmax(-1)[token].item() for each in models]
            alone.append(-math.log(sum(probabilities) / members))
            written.append(token)
        pair = Pairs([source], [target])
        assert loss_per_token(model, tokenizer, pair, "de", "en") == pytest.approx(sum(alone) / len(alone), abs=1e-4)
        losses += alone
    assert len(losses) == (3 + 1) + (6 + 1) + (3 + 1)
    assert loss_per_token(model, tokenizer, PAIRS, "de", "en") == pytest.approx(sum(losses) / len(losses), abs=1e-4)
