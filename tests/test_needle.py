"""The needle task of chapter 18's measurement: its texts, and what a pattern lets a model learn."""

import torch
from once import once

from experiments.needle import LENGTH, NOISE, PATTERNS, VALUES, answers, make_texts, reach, train

pytestmark = once


def test_each_text_has_one_needle_with_the_value_that_is_asked_for() -> None:
    ids, values = make_texts(50, torch.Generator().manual_seed(0))
    needles = ids >= NOISE
    assert ids.shape == (50, LENGTH) and ids.min() == 0
    assert torch.equal(needles.sum(dim=1), torch.ones(50, dtype=torch.long))
    assert torch.equal(ids[needles] - NOISE, values) and set(values.tolist()) == set(range(VALUES))


def test_reach_is_what_two_layers_can_know() -> None:
    assert reach(PATTERNS["window 1"])[1].double().mean() == 4 / LENGTH  # its own block
    density, known = reach(PATTERNS["first block"])
    assert known.all() and density == (LENGTH + 15 * 4) * 4 / LENGTH**2
    assert reach(None)[0] == 1


def test_beyond_its_reach_a_model_is_right_one_time_in_four() -> None:
    choices = PATTERNS["window 3"]
    _, known = reach(choices)
    by_pair = answers(train(choices, seed=0, updates=2, batch=2)).double().mean(dim=1)  # (place, position)
    assert torch.equal(by_pair[~known.T], torch.full_like(by_pair[~known.T], 0.25))
