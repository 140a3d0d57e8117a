"""What the tour tells of its captions, which no cell can check without them, and what would take a cell too long."""

from pathlib import Path
from typing import Any

from once import once

from tools.chapters import read
from tools.sync import ROOT

pytestmark = once


def test_the_captions_lack_what_the_tour_says_they_lack(multi30k: Path) -> None:
    captions = (multi30k / "train.de").read_text(encoding="utf-8").lower()
    assert captions.count("\n") == 29_000
    assert all(known in captions for known in ("schlittschuh", "läufer", "eis"))
    assert not any(unheard in captions for unheard in ("schlittschuhläufer", "guten morgen", "eis auf dem sofa"))
    elephants = [caption for caption in captions.splitlines() if "elefant" in caption]
    assert len(elephants) > 10
    assert [caption for caption in elephants if {"eis", "sofa"} & set(caption.replace(".", " ").split())] == []


def test_blind_the_verb_and_a_man_carries_what_he_wears_and_of_the_other_words_one_in_40_matters() -> None:
    names: dict[str, Any] = {}
    codes = [cell.source for cell in read(ROOT / "notebooks" / "00_tour.ipynb").cells if cell.cell_type == "code"]
    for part in ("import torch\n", "def write(", "hat = ", "worn = ["):
        exec(next(code for code in codes if part in code), names)
    words = [(thing, word) for thing in names["worn"] for word in ("Ein", "Mann", "trägt", thing.split()[0], ".")]
    carried = [("einen Schal", "einen"), *((thing, "trägt") for thing in names["worn"])]
    for thing, word in words:
        translation = names["english"](f"Ein Mann trägt {thing}.", hide=thing.split()[1], blind=word)
        assert translation.split()[3] == ("carrying" if (thing, word) in carried else "wearing")
