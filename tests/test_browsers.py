"""The live page in Chromium as on a phone, in Firefox and in WebKit: it moves at once, and translates what is typed."""

import pytest
from once import once

from tests.browsers import BROWSERS, USED, measured

pytestmark = once


@pytest.mark.parametrize("name", [name for name in USED if name != "Chromium"])  # which all other tests use
def test_the_first_word_needs_no_weights_and_a_typed_sentence_is_translated(name: str) -> None:
    if name not in BROWSERS:
        pytest.skip(f"there is no {name} on this machine.")
    for _, word, live, typed, console in measured(name):
        assert (typed, console) == ("A woman reads a book at the park.", "")
        assert word < live - 3 or "4G" not in name
