"""The fast searches: the same ids, scores and order as the plain ones, for every kind of model."""

import copy
import functools
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from annotated import decoding as plain
from annotated.config import BOS, EOS, PAD
from annotated.decoding import Hypothesis
from annotated.fast import decoding
from annotated.fast import transformer as fast_transformer
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import beam_search, greedy_decode, in_bfloat16, in_int8
from annotated.fast.products import prepared
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from annotated_workbench.ensemble import Ensemble
from tests.models import assert_same, biased, make_doubtful, make_sources, random_ids, with_doubts

KINDS = ("transformer", "norm first", "recurrent", "ensemble")
LENGTHS = (5, 2, 7, 3, 2, 13)


class Mean(nn.Module):
    """Several models whose probabilities are averaged, without a cache: what an ensemble must be equal to."""

    def __init__(self, models: list[nn.Module]):
        super().__init__()
        self.models, self.config = nn.ModuleList(models), models[0].config

    def encode(self, src: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([model.encode(src, src_mask) for model in self.models], dim=-1)

    def decode(self, tgt: torch.Tensor, memory: torch.Tensor, src_mask: torch.Tensor, *, cache: None = None):
        parts = zip(self.models, memory.chunk(len(self.models), dim=-1), strict=True)
        return torch.cat([model.decode(tgt, part, src_mask) for model, part in parts], dim=-1)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        parts = zip(self.models, states.chunk(len(self.models), dim=-1), strict=True)
        return (sum(model.logits(part).softmax(dim=-1) for model, part in parts) / len(self.models)).log()

    def new_cache(self) -> None:
        raise NotImplementedError


@functools.cache
def make(kind: str, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """Make a model for the fast search, and the same one for the plain search."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "recurrent":
            config = RecurrentConfig(11, d_model=7, layers=2, dropout=0.5, max_length=59)
            model = with_doubts(RecurrentTranslator(config))
        elif kind == "norm first":
            config = make_doubtful(seed).config
            changes = dict(norm_first=True, attention_bias=True, positions="learned", tie_embeddings=False)
            model = with_doubts(Transformer(type(config)(**(vars(config) | changes))))
        elif kind == "ensemble":
            models = [make_doubtful(seed), make_doubtful(seed + 1)]
            return Ensemble(models), Mean(models).eval()
        else:
            model = make_doubtful(seed)
    return model, model


# The same as the plain searches


@pytest.mark.parametrize("max_extra", [0, 5, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_search_finds_what_the_plain_one_finds(kind, max_extra):
    fast, slow = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    found = greedy_decode(fast, src, max_extra=max_extra)
    assert_same(found, plain.greedy_decode(slow, src, max_extra=max_extra, use_cache=kind != "ensemble"))


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (3, 0.6), (4, 0.0), (4, 0.6), (5, 2.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_beam_search_finds_what_the_plain_one_finds(kind, beam, alpha):
    fast, slow = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    found = beam_search(fast, src, beam, alpha, max_extra=9)
    assert_same(found, plain.beam_search(slow, src, beam, alpha, max_extra=9, use_cache=kind != "ensemble"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_compared_has_something_to_disagree_on(kind):
    fast, _ = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    lengths, answers = set(), set()
    for beam, alpha in ((1, 0.0), (4, 0.6), (5, 2.0)):
        found = beam_search(fast, src, beam, alpha, max_extra=9)
        lengths |= {len(h.ids) for h in found}
        answers.add(str([h.ids for h in found]))
    assert len(lengths) > 2, "sentences leave the batch at different times"
    assert len(answers) == 3, "the search decides"


@pytest.mark.parametrize("max_extra", [0, 1, 50])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_longest_translation_is_that_of_the_plain_search(seed, max_extra):
    model, _ = make("transformer", seed)
    src = pad(make_sources(11, *LENGTHS))
    assert_same(beam_search(model, src, max_extra=max_extra), plain.beam_search(model, src, max_extra=max_extra))


@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize(
    "extra", [{EOS: -60.0}, {EOS: 60.0}, {PAD: 30.0, BOS: 20.0}], ids=["never ends", "ends", "pads"]
)
def test_models_with_one_idea_are_searched_alike(extra, beam):
    model, src = biased(make_doubtful(0), extra), pad(make_sources(11, *LENGTHS))
    ours, theirs = (
        module.beam_search(model, src, beam, max_extra=5) if beam else module.greedy_decode(model, src, max_extra=5)
        for module in (decoding, plain)
    )
    assert_same(ours, theirs)
    if EOS in extra:
        assert [len(h.ids) for h in ours] == [0 if extra[EOS] > 0 else n + 5 for n in LENGTHS]


@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_does_not_depend_on_its_batch(kind, beam):
    def search(sources: list[list[int]], padding: int = 0) -> list[Hypothesis]:
        src = F.pad(pad(sources), (0, padding), value=PAD)
        return beam_search(model, src, beam) if beam else greedy_decode(model, src)

    model, _ = make(kind)
    sources = make_sources(11, 5, 2, 7, 3, 2)
    alone = [search([source])[0] for source in sources]
    assert_same(search(sources), alone)
    order = [3, 0, 4, 2, 1]
    assert_same(search([sources[i] for i in order]), [alone[i] for i in order])
    assert_same(search([*make_sources(11, 13), *sources])[1:], alone)
    assert_same(search(sources, padding=3), alone)


def test_the_searches_have_the_plain_ones_defaults():
    model, _ = make("transformer", 1)
    src = pad(make_sources(11, *LENGTHS))
    assert_same(beam_search(model, src), plain.beam_search(model, src))
    assert_same(beam_search(model, src), beam_search(model, src, plain.BEAM, plain.ALPHA, max_extra=plain.MAX_EXTRA))
    assert_same(greedy_decode(model, src), greedy_decode(model, src, max_extra=plain.MAX_EXTRA))


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_a_model_may_be_wrapped_already(kind):
    model, _ = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    assert_same(beam_search(accelerate(model), src), beam_search(model, src))


# In pieces, and in two stages


@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("at_once", [1, 8])
def test_looking_for_the_best_in_pieces_changes_nothing(monkeypatch, beam, at_once):
    model, src = make_doubtful(0, vocab=97), pad(make_sources(97, 2, 3, 5, 7, 2))

    def search() -> list[Hypothesis]:
        return beam_search(model, src, beam, max_extra=13) if beam else greedy_decode(model, src, max_extra=13)

    expected = search()
    monkeypatch.setattr(decoding, "CACHED_ROWS", at_once)
    monkeypatch.setattr(decoding, "GROUP", 3)
    assert_same(search(), expected)


@given(count=st.integers(1, 8), columns=st.integers(8, 1000), spread=st.sampled_from([0.0, 2.0, torch.inf]))
def test_topk_in_two_stages_finds_what_topk_finds(count, columns, spread):
    x = torch.randn(3, columns)
    x[1] = x[1].round()  # many are equal
    x[2, columns // 2 :] -= spread
    values, places = decoding._topk(x, count)
    assert torch.equal(values, x.topk(count).values)
    assert torch.equal(x.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())


# bfloat16


@pytest.mark.parametrize("bias", [False, True])
def test_in_bfloat16_the_largest_logits_stand_near_zero(bias):
    model = biased(make_doubtful(0), {5: 3.0, 7: -2.0}) if bias else make_doubtful(0)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    low = in_bfloat16(model)
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    src, tgt = torch.tensor([[4, 5, 6, EOS]]), torch.tensor([[BOS, 7, 8]])
    with torch.no_grad():
        fast = accelerate(low)
        moved = fast.logits(fast.states(src, tgt)).float() - model(src, tgt)
    torch.testing.assert_close(moved, torch.full_like(moved, -math.log(9 * 11)), rtol=0, atol=0.2)
    assert (low.output.bias is None, model.output.bias is None) == (False, not bias)
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


def test_in_bfloat16_both_models_of_an_ensemble_are_copied_and_moved():
    models = [copy.deepcopy(make_doubtful(seed)) for seed in (0, 1)]
    low = in_bfloat16(Ensemble(models))
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    biases = [parameter for name, parameter in low.named_parameters() if name.endswith("output.bias")]
    assert len(biases) == 2
    for bias in biases:
        torch.testing.assert_close(bias.float(), torch.full((11,), -math.log(99)), rtol=0, atol=0.02)
    assert {parameter.dtype for model in models for parameter in model.parameters()} == {torch.float32}


# Weights laid out once, and in eight bits


def test_a_frozen_model_lays_each_weight_out_once_and_a_search_always_follows_the_model(monkeypatch) -> None:
    laid_out = []

    def listen(weight, bias, **options):
        laid_out.append(weight.shape)
        return prepared(weight, bias, **options)

    monkeypatch.setattr(fast_transformer, "prepared", listen)
    model, src = copy.deepcopy(make_doubtful(0)), torch.tensor([[4, 5, 6, EOS], [5, 4, EOS, PAD]])
    frozen = accelerate(model).frozen()
    assert frozen.frozen() is frozen
    expected = beam_search(frozen, src, max_extra=5)
    once = len(laid_out)
    # In each of two encoder layers 4 products, in each of two decoder layers 7, and one onto the vocabulary.
    assert once == 2 * 4 + 2 * 7 + 1
    assert_same(beam_search(frozen, src, max_extra=5), expected)
    assert len(laid_out) == once
    assert_same(beam_search(model, src, max_extra=5), expected)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)  # autograd's count of changes does not see it
    changed = beam_search(model, src, max_extra=5)
    assert changed != expected
    assert_same(changed, plain.beam_search(model, src, max_extra=5))


def test_in_eight_bits_a_copy_translates_nearly_alike() -> None:
    model = make_doubtful(0)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    low, src, tgt = in_int8(model), torch.tensor([[4, 5, 6, EOS], [5, 4, 7, 9]]), torch.tensor([[BOS, 7, 8]] * 2)
    with torch.inference_mode():
        logits = model(src, tgt)
        difference = low(src, tgt) - logits
    assert 0 < difference.std() < 0.25 * logits.std()  # 0.02 to 0.1 of it, by processor and model
    for search in (greedy_decode, beam_search):
        assert len(search(low, src, max_extra=0)) == 2
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


def test_in_eight_bits_both_models_of_an_ensemble_are_rounded() -> None:
    models = [make_doubtful(seed) for seed in (0, 1)]
    low, src = in_int8(Ensemble(models)), torch.tensor([[4, 5, 6, EOS]])
    assert [member.int8 for member in low.models] == [True, True]
    tgt = torch.tensor([[BOS, 7, 8]])
    with torch.inference_mode():
        logits = Ensemble(models)(src, tgt)
        difference = low(src, tgt) - logits
    assert 0 < difference.std() < 0.25 * logits.std()


def test_what_has_no_eight_bits_says_so() -> None:
    with pytest.raises(TypeError, match="a RecurrentTranslator has no form in eight bits"):
        in_int8(RecurrentTranslator(RecurrentConfig(11, d_model=8, layers=1)))
    with pytest.raises(TypeError, match="a LanguageModel does not translate"):
        in_int8(LanguageModel(LanguageModelConfig(11, d_model=8, d_ff=8, heads=2, layers=1)))


# Modes and mistakes


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("training", [True, False])
def test_searching_switches_dropout_off_and_leaves_the_mode_as_it_was(beam, training, kind):
    def search() -> list[Hypothesis]:
        return beam_search(model, src, beam) if beam else greedy_decode(model, src)

    model, src = copy.deepcopy(make(kind)[0]), pad(make_sources(11, 2, 5))
    expected = search()
    model.train(training)
    assert_same(search(), expected)
    assert all(module.training == training for module in model.modules())


def test_the_mode_is_restored_after_an_error():
    model = copy.deepcopy(make_doubtful(0)).train()
    with pytest.raises(ValueError, match="position 59 is asked for"):
        greedy_decode(model, pad([[*random_ids(11, 59), EOS]]))
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *((dict(beam=beam), f"beam={beam} must lie in 1 … 5") for beam in (0, -1, 6)),
        *((dict(alpha=alpha), f"alpha={alpha} must lie in 0 … 100") for alpha in (-0.1, 100.1, math.inf, math.nan)),
        (dict(max_extra=-1), "max_extra=-1 must not be negative"),
    ],
    ids=str,
)
def test_a_search_that_makes_no_sense_is_an_error(options, message):
    for module in (decoding, plain):
        with pytest.raises(ValueError, match=re.escape(message)):
            module.beam_search(make_doubtful(0), pad(make_sources(11, 2)), **options)


@pytest.mark.parametrize("search", [greedy_decode, beam_search])
def test_a_source_of_padding_has_a_translation(search):
    (found,) = search(make_doubtful(0), pad([[PAD, PAD]]), max_extra=0)
    assert len(found.ids) <= 1
