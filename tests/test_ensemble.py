"""Several models that translate together."""

import pytest
import torch
from parity import randomise

from annotated.config import BOS, EOS, TransformerConfig
from annotated.fast.decoding import beam_search, greedy_decode
from annotated.masking import padding_mask
from annotated.models.recurrence import RecurrentConfig
from annotated.transformer import Transformer
from annotated_workbench.architectures import make_model
from annotated_workbench.ensemble import Ensemble
from tests.models import assert_same

VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=2, max_length=23, dropout=0.5)
CONFIGS = {name: TransformerConfig(VOCAB, norm_first=name == "pre-norm", **SIZES) for name in ("post-norm", "pre-norm")}
SRC = torch.tensor([[5, 7, 11, 4, EOS], [9, EOS, 0, 0, 0], [6, 12, 8, EOS, 0]])
TGT = torch.tensor([[BOS, 4, 6], [BOS, 9, 9], [BOS, 12, 5]])


def make_models(kind: str, count: int) -> list[Transformer]:
    """Make models with weights large enough for their opinions to differ."""
    return [randomise(make_model(CONFIGS[kind])).eval() for _ in range(count)]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("count", [1, 3])
def test_an_ensembles_probabilities_are_the_mean_of_its_models(kind, count):
    models = make_models(kind, count)
    mean = sum(model(SRC, TGT).softmax(dim=-1) for model in models) / count
    torch.testing.assert_close(Ensemble(models)(SRC, TGT).exp(), mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", CONFIGS)
@torch.no_grad()
def test_the_cache_changes_nothing(kind):
    ensemble = Ensemble(make_models(kind, 2))
    src_mask, tgt = padding_mask(SRC), torch.randint(4, VOCAB, (6, 5))  # two hypotheses for each sentence
    memory, cache = ensemble.encode(SRC, src_mask), ensemble.new_cache(10)
    states = [ensemble.decode(new, memory, src_mask, cache=cache) for new in tgt[:, :4].split([1, 2, 1], dim=1)]
    whole = ensemble.states(SRC.repeat_interleave(2, 0), tgt)
    torch.testing.assert_close(torch.cat(states, 1), whole[:, :4], rtol=1e-4, atol=1e-5)
    rows, kept = torch.tensor([5, 4, 1, 1]), torch.tensor([2, 0])
    cache.select(rows, kept)
    last = torch.randint(4, VOCAB, (4, 1))
    read = torch.cat((tgt[rows, :4], last), dim=1)
    expected = ensemble.states(SRC[kept].repeat_interleave(2, 0), read)[:, -1:]
    found = ensemble.decode(last, memory[kept], src_mask[kept], cache=cache)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("search", [greedy_decode, beam_search])
def test_twice_the_same_model_finds_what_it_finds_alone(search):
    (model,) = make_models("post-norm", 1)
    found = search(Ensemble([model, model]), SRC, max_extra=5)
    assert_same(found, search(model, SRC, max_extra=5))
    assert len({tuple(hypothesis.ids) for hypothesis in found}) > 1


def test_an_ensemble_of_different_models_is_an_error():
    with pytest.raises(ValueError, match="norm_first=True"):
        Ensemble([make_model(config) for config in CONFIGS.values()])
    with pytest.raises(TypeError, match="a RecurrentTranslator has no fast form"):
        Ensemble([make_model(RecurrentConfig(VOCAB, d_model=6))])
