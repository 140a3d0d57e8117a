"""Choosing among candidates by both directions' probabilities."""

import math

import pytest
import torch

from annotated.config import BOS, EOS, TransformerConfig
from annotated.transformer import Transformer
from annotated.workbench.data import Pairs
from annotated.workbench.ensemble import Ensemble
from annotated.workbench.metrics import log_probs
from annotated.workbench.vocabulary import WordTokenizer
from experiments.reranking import Candidate, choose

PAIRS = Pairs(
    ["ein Hund läuft", "eine Katze schläft auf dem Sofa", "Hund"],
    ["a dog runs", "a cat sleeps on the sofa", "dog dog dog"],
)


def test_the_weights_decide_by_hand():
    short, long = Candidate("short", 2, -1.0, -6.0), Candidate("long", 4, -2.0, -3.0)
    assert choose([[short, long], [long]], 0.0, 0.0) == ["short", "long"]
    assert choose([[short, long]], 0.5, 0.0) == ["long"]  # −1 − 3 against −2 − 1.5
    assert choose([[short, long]], 0.0, 0.6) == ["long"]  # −1 + 1.2 against −2 + 2.4


@pytest.mark.parametrize("members", [1, 2])
def test_a_pair_is_scored_token_by_token_with_its_end(members):
    tokenizer = WordTokenizer.train(PAIRS, ("de", "en"), min_freq=1)
    config = TransformerConfig(len(tokenizer), d_model=16, d_ff=24, heads=2, layers=1)
    torch.manual_seed(0)
    models = [Transformer(config).eval() for _ in range(members)]
    expected = []
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
    tokens = sum(len(ids) + 1 for ids in tokenizer.encode_batch(PAIRS.target, "en"))
    assert loss(model, tokenizer, PAIRS, {"src": "de", "tgt": "en"}) == pytest.approx(-sum(expected) / tokens, abs=1e-4)
