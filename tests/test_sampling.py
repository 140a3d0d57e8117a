"""What a way to draw costs: words that exist and different ones, by hand, and the command on a few short texts."""

import json

from once import once

from experiments.sampling import main, measure, words_in

pytestmark = once


def test_words_are_small_and_keep_their_apostrophe() -> None:
    assert words_in("KING:\nI'll go; 'tis the King's.") == ["king", "i'll", "go", "tis", "the", "king's"]


def test_by_hand() -> None:
    texts = ["to be or nott to b", "be be to o"]  # the last word of each may be cut off
    assert measure(texts, {"to", "be", "or", "not"}, 8) == {"exist": 87.5, "different": 3}


def test_the_command_writes_each_way(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("experiments.sampling.load_text", lambda name: "to be or not to be\n" * 100)
    monkeypatch.setattr("experiments.sampling.WAYS", {"as the model says": {}, "k = 1": {"top_k": 1}})
    out = tmp_path / "sampling.json"
    monkeypatch.setattr("sys.argv", ["sampling", str(out), "--texts", "10", "--count", "40", "--words", "4"])
    main()
    ways = json.loads(out.read_text(encoding="utf-8"))["ways"]
    assert list(ways) == ["real", "as the model says", "k = 1"]
    assert ways["real"] == [{"exist": 100, "different": 4}] * 5
    assert ways["k = 1"] == ways["k = 1"][:1] * 5  # no dice: the same text each time
