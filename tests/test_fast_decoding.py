"""The fast searches: the same ids, scores and order as the plain ones, of a model and of an ensemble."""

import copy
import functools
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated import decoding as plain
from annotated.config import BOS, EOS, PAD
from annotated.decoding import Hypothesis
from annotated.fast import decoding
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import beam_search, greedy_decode, in_bfloat16
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_corpus, pad
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.vocabulary import load_tokenizer
from tests.models import assert_same, biased, make_doubtful, make_sources, random_ids, with_doubts

KINDS = ("transformer", "norm first", "ensemble")
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
    model = make_doubtful(seed)
    if kind == "norm first":
        changes = dict(norm_first=True, attention_bias=True, positions="learned", tie_embeddings=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = with_doubts(Transformer(type(model.config)(**(vars(model.config) | changes))))
    elif kind == "ensemble":
        models = [model, make_doubtful(seed + 1)]
        return Ensemble(models), Mean(models).eval()
    return model, model


def search(room, model: nn.Module, src: torch.Tensor, beam: int, **options) -> list[Hypothesis]:
    return room.beam_search(model, src, beam, **options) if beam else room.greedy_decode(model, src, **options)


# The same as the plain searches


@pytest.mark.parametrize("max_extra", [0, 5, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_search_finds_what_the_plain_one_finds(kind, max_extra):
    fast, slow = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    found = greedy_decode(fast, src, max_extra=max_extra)
    assert_same(found, plain.greedy_decode(slow, src, max_extra=max_extra, use_cache=kind != "ensemble"))


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (3, 0.6), (4, 0.0), (4, 0.6), (5, 2.0), (5, 100.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_beam_search_finds_what_the_plain_one_finds(kind, beam, alpha):
    fast, slow = make(kind)
    src = pad(make_sources(11, *LENGTHS))
    found = beam_search(fast, src, beam, alpha, max_extra=9)
    assert_same(found, plain.beam_search(slow, src, beam, alpha, max_extra=9, use_cache=kind != "ensemble"))


def test_what_is_compared_has_something_to_disagree_on():
    src = pad(make_sources(11, *LENGTHS))
    answers = [beam_search(make("transformer")[0], src, *how, max_extra=9) for how in ((1, 0.0), (4, 0.6), (5, 2.0))]
    assert len({len(found.ids) for answer in answers for found in answer}) > 2, "sentences leave at different times"
    assert len({str([found.ids for found in answer]) for answer in answers}) == 3, "the search decides"


@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize(
    "extra", [{EOS: -60.0}, {EOS: 60.0}, {PAD: 30.0, BOS: 20.0}], ids=["never ends", "ends", "pads"]
)
def test_models_with_one_idea_are_searched_as_plainly(extra, beam):
    model, src = biased(make_doubtful(0), extra), pad(make_sources(11, *LENGTHS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "GROUP", 3)
        found = search(decoding, model, src, beam, max_extra=5)
    assert_same(found, search(plain, model, src, beam, max_extra=5))
    if EOS in extra:
        assert [len(h.ids) for h in found] == [0 if extra[EOS] > 0 else n + 5 for n in LENGTHS]


@pytest.mark.parametrize("beam", [0, 4])
def test_a_translation_does_not_depend_on_its_batch(beam):
    model, _ = make("transformer")
    sources = make_sources(11, 5, 2, 7, 3, 2)
    alone = [search(decoding, model, torch.tensor([source]), beam)[0] for source in sources]
    assert_same(search(decoding, model, F.pad(pad(sources), (0, 3)), beam), alone)
    order = [3, 0, 4, 2, 1]
    assert_same(search(decoding, model, pad([sources[i] for i in order]), beam), [alone[i] for i in order])
    assert_same(search(decoding, model, pad([*make_sources(11, 13), *sources]), beam)[1:], alone)


@pytest.mark.parametrize("beam", [0, 4])
def test_who_leaves_late_finds_the_same(beam, monkeypatch):
    """On a GPU finished sentences leave from time to time only, and what they go on to compute counts for nothing."""
    model, _ = make("transformer")
    src = pad(make_sources(11, *LENGTHS))
    expected = search(decoding, model, src, beam, max_extra=0)
    monkeypatch.setattr(decoding, "CPU_PATIENCE", 5)
    assert_same(search(decoding, model, src, beam, max_extra=0), expected)


@pytest.mark.parametrize("method", ["greedy_decode", "beam_search"])
def test_defaults_and_what_is_wrapped_already(method):
    model, _ = make("transformer", 1)
    src = pad(make_sources(11, *LENGTHS))
    expected = getattr(plain, method)(model, src)
    for given in (model, accelerate(model)):
        assert_same(getattr(decoding, method)(given, src), expected)


@pytest.mark.parametrize("columns", [8, 99, 100, 101, 950])
@pytest.mark.parametrize("count", [1, 8])
def test_the_best_continuations_are_the_largest_sums(columns, count):
    logits, before = torch.randn(3, 2, columns), torch.randn(3, 2)
    logits[1] = logits[1].round()  # many are equal
    sums = logits.log_softmax(dim=-1) + before[:, :, None]
    sums[:, :, [PAD, BOS]] = -torch.inf
    totals, choices = decoding._best_continuations(logits.clone(), before, count)
    assert_close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
    assert_close(totals, sums.flatten(1).topk(count).values)
    assert_close(totals, sums.flatten(1).gather(1, choices))
    assert all(len(set(row)) == count for row in choices.tolist())


@pytest.mark.parametrize("beam", [0, 4])
def test_the_delivered_model_translates_as_plainly(beam):
    folder = DATA_FOLDER / "checkpoints" / "de-en"
    model, tokenizer = load_checkpoint(folder)[0], load_tokenizer(folder)
    captions = load_corpus("captions", "test", "de", "en").source[: 12 if beam else 100]
    src = pad([[*ids, EOS] for ids in tokenizer.encode_batch(captions, "de")])
    assert_same(search(decoding, model, src, beam), search(plain, model, src, beam))


# bfloat16


@pytest.mark.parametrize("bias", [False, True])
def test_in_bfloat16_the_largest_logits_stand_near_zero(bias):
    model = biased(make_doubtful(0), {5: 3.0, 7: -2.0}) if bias else make_doubtful(0)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    low = in_bfloat16(model)
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    src, tgt = torch.tensor([[4, 5, 6, EOS]]), torch.tensor([[BOS, 7, 8]])
    with torch.no_grad():
        moved = accelerate(low)(src, tgt).float() - model(src, tgt)
    torch.testing.assert_close(moved, torch.full_like(moved, -math.log(9 * 11)), rtol=0, atol=0.2)
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


def test_in_bfloat16_both_models_of_an_ensemble_are_copied_and_moved():
    models = [copy.deepcopy(make_doubtful(seed)) for seed in (0, 1)]
    low = in_bfloat16(Ensemble(models))
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    assert len([name for name, _ in low.named_parameters() if name.endswith("output.bias")]) == 2
    assert {parameter.dtype for model in models for parameter in model.parameters()} == {torch.float32}
    assert len(beam_search(low, pad(make_sources(11, *LENGTHS)))) == len(LENGTHS)


# Mistakes


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
    for room in (decoding, plain):
        with pytest.raises(ValueError, match=re.escape(message)):
            room.beam_search(make_doubtful(0), pad(make_sources(11, 2)), **options)


@pytest.mark.filterwarnings(r"ignore:var\(\)")
@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (1, 2)])
def test_a_source_of_nothing_or_of_padding_is_searched_as_plainly(shape, beam):
    src, model = torch.zeros(shape, dtype=torch.long), make_doubtful(0)
    assert_same(search(decoding, model, src, beam, max_extra=3), search(plain, model, src, beam, max_extra=3))
