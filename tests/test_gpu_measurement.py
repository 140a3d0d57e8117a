"""The measurements on a GPU are taken by a command whose paths are all alive, and its text is what it says."""

import json
from collections import Counter

import pytest
import torch
from once import once

from experiments import gpu, made_up


@once  # the newer torch stands beside Hugging Face, which takes seconds to load
def test_every_path_is_alive(tmp_path):
    gpu.main(["--quick", "--updates", "0", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert [*found["training"]] == [*found["decoding"]] == ["small", "base", "big"]
    rows = found["training"]["small"]["contestants"]
    assert rows["ours, bfloat16"]["times_ours"] == 1
    operations = found["training"]["small"]["operations_per_position"] * 12
    for name, row in rows.items():
        peak = found["peak"]["float32" if "float32" in name else "bfloat16"]
        assert row["of_peak"] == pytest.approx(operations / row["seconds"] / peak)
        assert row["tokens_per_second"] == pytest.approx(24 / row["seconds"])
    assert all(len(seconds) == 2 for seconds in found["new_lengths"].values())


def test_without_a_gpu_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "there is no GPU that CUDA can use" in capsys.readouterr().err


def test_made_up_sentences_are_translated_word_by_word(tmp_path):
    options = made_up.write_text(tmp_path, pairs=200, words=40, seed=0)
    assert options == ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    source, target = ((tmp_path / side).read_text(encoding="utf-8").splitlines() for side in ("source", "target"))
    assert len(source) == len(target) == 200
    pairs = Counter()
    for one, other in zip(source, target, strict=True):
        words = one.split()
        assert made_up.SHORTEST <= len(words) <= made_up.LONGEST
        pairs.update(zip(words, other.split(), strict=True))
    assert len(pairs) == len({word for word, _ in pairs}) == len({word for _, word in pairs}) == 40
    first, second = (count for _, count in pairs.most_common(2))
    assert first == pytest.approx(2 * second, rel=0.2)  # Zipf
