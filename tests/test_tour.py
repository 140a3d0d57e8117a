"""What the tour tells of the captions that its model has learned from; no cell can check it without them."""

from pathlib import Path

import pytest
from once import once

pytestmark = once


@pytest.mark.parametrize("unheard", ["schlittschuhläufer", "guten morgen", "eis auf dem sofa"])
def test_the_model_has_never_read_what_the_tour_says_it_has_not(multi30k: Path, unheard: str) -> None:
    captions = (multi30k / "train.de").read_text(encoding="utf-8").lower()
    assert captions.count("\n") == 29_000
    assert all(known in captions for known in ("schlittschuh", "läufer", "eis"))
    assert unheard not in captions


def test_no_elephant_of_the_captions_eats_an_ice_cream_or_sits_on_a_sofa(multi30k: Path) -> None:
    captions = (multi30k / "train.de").read_text(encoding="utf-8").lower().splitlines()
    elephants = [caption for caption in captions if "elefant" in caption]
    assert len(elephants) > 10
    assert [caption for caption in elephants if {"eis", "sofa"} & set(caption.replace(".", " ").split())] == []
