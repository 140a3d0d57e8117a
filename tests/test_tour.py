"""What the tour tells of the captions that its model has learned from; no cell can check it without them."""

from pathlib import Path

from once import once

pytestmark = once


def test_the_captions_lack_what_the_tour_says_they_lack(multi30k: Path) -> None:
    captions = (multi30k / "train.de").read_text(encoding="utf-8").lower()
    assert captions.count("\n") == 29_000
    assert all(known in captions for known in ("schlittschuh", "läufer", "eis"))
    assert not any(unheard in captions for unheard in ("schlittschuhläufer", "guten morgen", "eis auf dem sofa"))
    elephants = [caption for caption in captions.splitlines() if "elefant" in caption]
    assert len(elephants) > 10
    assert [caption for caption in elephants if {"eis", "sofa"} & set(caption.replace(".", " ").split())] == []
