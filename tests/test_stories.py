"""The small world of 23_assistant: its stories, its questions and its tokens."""

import random

import pytest
from once import once

from annotated_course import stories

pytestmark = once


def test_a_text_comes_back_from_its_tokens_and_an_unknown_word_is_named() -> None:
    text = "The fox painted three red kites in the garden. What did the fox paint? Three red kites. I don't know."
    assert stories.decode(stories.encode(text)) == text
    assert stories.WORDS[:4] == ["<pad>", "<bos>", "<eos>", "<unk>"] and len(set(stories.WORDS)) == len(stories.WORDS)
    with pytest.raises(ValueError, match="no 'lawyer'"):
        stories.encode("What did the lawyer paint?")


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_held_out_combinations_are_asked_for_and_never_trained_on(share: float) -> None:
    draw = random.Random(0)
    for _ in range(300):
        assert not any(map(stories.is_held_out, stories.story(draw, 3, share=share)))
        assert [*map(stories.is_held_out, stories.story(draw, 3, 1, share))] == [False, True, False]


def test_everything_has_a_token() -> None:
    draw = random.Random(1)
    texts = [stories.document(draw, 3, 4) for _ in range(300)]
    assert {word for text in texts for word in text.split()} <= {*stories.WORDS}
    assert all(text.count("?") == 4 for text in texts)


def test_a_story_told_again_says_the_same_in_some_order_and_only_what_is_wanted_is_asked() -> None:
    first, again = (stories.document(random.Random(2), 3, 2, again=again, kinds=["where"]) for again in (0.0, 1.0))
    told, twice = (whole[: whole.index(" where did")].split(" . ") for whole in (first, again))
    assert len(told) == 3 and len(twice) == 6
    one, other = ({text.removesuffix(" .") for text in part} for part in (twice[:3], twice[3:]))
    assert one == other and len(one) == 3
    assert again.count("?") == again.count("where did") == 2
