"""The fast searches: the same ids, scores and order as the plain ones."""

import math

import pytest
import torch
from torch import nn

from annotated import decoding as plain
from annotated.config import BOS, EOS, PAD
from annotated.decoding import Hypothesis
from annotated.fast import decoding
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import in_bfloat16
from annotated_workbench.data import pad
from tests.models import assert_same, biased, make_doubtful, make_sources

LENGTHS = (5, 2, 7, 3, 2, 13)
GREEDY = [dict(beam=0, max_extra=extra) for extra in (0, 50)]
BEAM = [(2, 0.0), (4, 0.6), (5, 2.0), (5, 100.0)]


def search(room, model: nn.Module, src: torch.Tensor, beam: int, **options) -> list[Hypothesis]:
    return room.beam_search(model, src, beam, **options) if beam else room.greedy_decode(model, src, **options)


@pytest.mark.parametrize("options", [*GREEDY, *(dict(beam=b, alpha=alpha, max_extra=9) for b, alpha in BEAM)], ids=str)
def test_a_search_finds_what_the_plain_one_finds(options):
    model, src = make_doubtful(0), pad(make_sources(11, *LENGTHS))
    found = search(decoding, accelerate(model), src, **options)
    assert_same(found, search(plain, model, src, **options))
    if beam := options["beam"]:
        all_found, expected = (room.n_best(model, src, beam, options["alpha"], beam, 9) for room in (decoding, plain))
        assert {len(best) for best in all_found} == {beam}
        assert_same([h for best in all_found for h in best], [h for best in expected for h in best])
    assert len({len(hypothesis.ids) for hypothesis in found}) > 2, "sentences leave at different times"


@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("extra", [{EOS: -60.0}, {EOS: 60.0}, {PAD: 30.0, BOS: 20.0}], ids=["endless", "ends", "pads"])
def test_models_with_one_idea_are_searched_as_plainly(extra, beam):
    model, src = biased(make_doubtful(0), extra), pad(make_sources(11, *LENGTHS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "GROUP", 3)
        found = search(decoding, model, src, beam, max_extra=5)
    assert_same(found, search(plain, model, src, beam, max_extra=5))
    if EOS in extra:
        assert [len(h.ids) for h in found] == [0 if extra[EOS] > 0 else n + 5 for n in LENGTHS]


@pytest.mark.parametrize("beam", [0, 4])
def test_who_leaves_late_finds_the_same(beam, monkeypatch):
    """On a GPU finished sentences leave from time to time only, and what they go on to compute counts for nothing."""
    model, src = biased(make_doubtful(0), {EOS: -2.0}), pad(make_sources(11, *LENGTHS * 8))  # some end past their limit
    expected = search(decoding, model, src, beam, max_extra=0)
    monkeypatch.setattr(decoding, "CPU_PATIENCE", 5)
    assert_same(search(decoding, model, src, beam, max_extra=0), expected)


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
