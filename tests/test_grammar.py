"""The grammar corpus is frozen: its files, and the program that makes the same ones again, are held by checksums.

That they are grammatical is proved by `data/grammar/proof.py`, to be run when they are made anew.
"""

import hashlib
import sys
from pathlib import Path

import pytest
from once import once

FOLDER = Path(__file__).parents[1] / "data" / "grammar"
sys.path.insert(0, str(FOLDER))

import generate  # noqa: E402

pytestmark = once

SHA256 = {
    "train.de": "0185f3403cde3aa9fc2c7cf9b16deaf846a22f4bfb527b76412b5980e29d3397",
    "train.en": "72fa6807e16473235c038061a85f8c6e003af21ad1029b3728d10a8376400189",
    "val.de": "0bb14abeb769ff53dc7cf0c85ef00c2c34f0c077a664d154a2f5d5deda878876",
    "val.en": "e108c5d62719f5808361728f5a85987394e0ec20d6b5c7f6d9481b1538e0bfaf",
    "test.de": "590fbe7a798973a38ac09a94131de93a40c27a3b9a8ff307a52560585f0e9e38",
    "test.en": "ea809d6e320c1a53dd6bf639aa3b4307b67f38df45e9e535cb82e707d6043f83",
}


@pytest.mark.parametrize("source", ["the disk", pytest.param("the program", marks=pytest.mark.thorough)])
def test_the_files_are_those_that_were_proved(source: str) -> None:
    contents = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in (".de", ".en")}
    if source == "the program":
        contents = generate.files(generate.generate())
    assert {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()} == SHA256
