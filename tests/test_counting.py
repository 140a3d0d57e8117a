"""What the experiments count, by hand: runs of characters, as a language model is measured, words, operations."""

import math
import random

import pytest
from once import once

from annotated.config import TransformerConfig
from experiments.counting import counted_losses, packed_size
from experiments.paper_run import weights_and_operations
from experiments.sampling import measure, words_in

pytestmark = once


def test_losses_by_hand() -> None:
    # Learned from "abab": a twice, b twice; after a always b, after b once a. Weight 1, nothing known: 1/2 each.
    a_alone = (2 + 0.5) / (4 + 1)
    b_after_a = (2 + a_alone) / (2 + 1)
    expected = [-math.log(a_alone), -math.log(b_after_a)]
    assert counted_losses("abab", "ab", 1, 1.0) == pytest.approx(expected)


def test_an_unseen_character_costs_more_and_stays_finite() -> None:
    (seen,), (unseen,) = counted_losses("abab", "b", 0, 1.0), counted_losses("abab", "z", 0, 1.0)
    assert seen < unseen < math.inf


def test_bz2_learns_from_what_lies_more_than_a_tenth_of_a_million_back() -> None:
    dice = random.Random(0)
    words, others = (["".join(dice.choices("abcdefghijklmnop", k=9)) for _ in range(500)] for _ in range(2))
    before = "".join(dice.choices(words, k=70_000) + dice.choices(others, k=40_000))  # nearly a million letters
    new = "".join(dice.choices(words, k=1_000))
    assert packed_size("bz2", before, new) < 0.6 * packed_size("bz2", "", new)


def test_words_are_small_and_keep_their_apostrophe() -> None:
    assert words_in("KING:\nI'll go; 'tis the King's.") == ["king", "i'll", "go", "tis", "the", "king's"]


def test_words_that_exist_and_differ_by_hand() -> None:
    texts = ["to be or nott to b", "be be to o"]  # the last word of each may be cut off
    assert measure(texts, {"to", "be", "or", "not"}, 8) == {"exist": 87.5, "different": 3}


def test_operations_are_counted_by_hand() -> None:
    config = TransformerConfig(6000, d_model=4, d_ff=8, heads=2, layers=3)
    # Multiplications of a position: 4 · 4² onto queries, keys, values and out, 2 · 5 · 4 between positions, thrice a
    # layer; 2 · 4 · 8 in the feed-forward network, twice a layer; three layers; and 4 · 6,000 onto the vocabulary.
    multiplications = 3 * (3 * (4 * 16 + 2 * 5 * 4) + 2 * (2 * 4 * 8)) + 4 * 6000
    weights, operations = weights_and_operations(config, length=5)
    # A product and a sum each, forward, and for both gradients backward.
    assert operations == pytest.approx(6 * multiplications)
    assert weights > 4 * 6000
