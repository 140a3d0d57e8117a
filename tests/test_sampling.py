"""What a way to draw costs: words that exist and different ones, by hand, and the command on a few short texts."""

from once import once

from experiments.sampling import measure, words_in

pytestmark = once


def test_words_are_small_and_keep_their_apostrophe() -> None:
    assert words_in("KING:\nI'll go; 'tis the King's.") == ["king", "i'll", "go", "tis", "the", "king's"]


def test_by_hand() -> None:
    texts = ["to be or nott to b", "be be to o"]  # the last word of each may be cut off
    assert measure(texts, {"to", "be", "or", "not"}, 8) == {"exist": 87.5, "different": 3}
