"""The live page in Chromium as on a phone, in Firefox and in WebKit: it moves at once, and translates what is typed."""

import shutil

import pytest
from once import once

from tests.browsers import BROWSERS, measured

pytestmark = once


@pytest.mark.parametrize("name", [name for name in BROWSERS if name != "Chromium"])  # which all other tests use
def test_the_first_word_needs_no_weights_and_a_typed_sentence_is_translated(name: str) -> None:
    for program in BROWSERS[name][1]:
        if not shutil.which(program):
            pytest.skip(f"there is no {program} on this machine.")
    for _, word, live, typed, console in measured(name):
        assert (typed, console) == ("A woman reads a book at the park.", "")
        assert word < live - 3 or "4G" not in name
