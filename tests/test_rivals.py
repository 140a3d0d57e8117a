"""What needs no network: counting by hand, and whether two settings' runs differ by more than chance."""

import json
import math
from pathlib import Path

import pytest
import torch
from once import once

from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated_workbench.metrics import text_loss, window_bits
from annotated_workbench.repeats import compare, read_repeats, students_limit, verdicts
from annotated_workbench.rivals import count_runs, counted_bits

pytestmark = once


def test_bits_of_counting_by_hand() -> None:
    # Learned from "abab": a twice, b twice; after a always b, after b once a. Weight 1, nothing known: 1/2 each.
    a_alone = (2 + 0.5) / (4 + 1)
    b_after_a = (2 + a_alone) / (2 + 1)
    bits = counted_bits(count_runs("ababab", 1, 4), 1.0, 2)
    assert bits[0, 4].item() == pytest.approx(-math.log2(a_alone))
    assert bits[1, 5].item() == pytest.approx(-math.log2(b_after_a))
    assert counted_bits(count_runs("ababz", 0, 4), 1.0, 2)[0, 4].item() == pytest.approx(math.log2(10))


def test_counting_as_one_reads_on_knows_only_what_came_before() -> None:
    reading, knowing = (count_runs("aab", 1, end) for end in (3, 0))
    assert reading.tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 1, 2], [0, 0, 1]]]
    assert not knowing.any()


def test_windows_predict_each_token_from_what_lies_before_it() -> None:
    torch.manual_seed(0)
    model, ids = LanguageModel(LanguageModelConfig(20, 8, 8, 2, 1, max_length=8, dropout=0.0)), torch.arange(4, 20)
    with torch.no_grad():
        p = model.eval()(ids[None, 3:11]).log_softmax(dim=-1)[0, [6, 7], ids[10:12]]
    bits = window_bits(model, ids, 2)
    assert len(bits) == 8 and torch.allclose(bits[2:4], -p / math.log(2), atol=1e-5)
    assert window_bits(model, ids[:9], 8).mean().item() * math.log(2) == pytest.approx(text_loss(model, ids[:9]))


def test_two_settings_by_hand_and_by_students_table() -> None:
    ((change, limit),) = compare({"now": [31.0, 33.0, 35.0], "before": [30.0, 31.0, 32.0]}).values()
    assert change == 2 and limit == pytest.approx(2.776 * math.sqrt(2.5 * 2 / 3), abs=2e-3)  # chapter 12's, by hand
    for spare, looks, expected in ((2, 1, 4.303), (30, 1, 2.042), (30, 2, 2.360)):
        assert students_limit(spare, looks) == pytest.approx(expected, abs=2e-2)
    assert compare({"now": [1.0], "before": [2.0, 3.0]}) == compare({"now": [1.0, 2.0, 3.0]}) == {}
    once = {"now": [1.0, 2.0], "a": [1.0, 2.0], "b": [3.0]}
    assert compare(once) == compare(dict(list(once.items())[:2])), "a single run says nothing of its spread"


def test_a_comparison_says_what_it_needs_and_what_it_found() -> None:
    assert "it takes two runs of each of two settings" in verdicts({"now": [1.0]})
    runs = {"now": [2.0, 2.1, 2.2], "layers 2": [1.0, 1.1, 1.2]}
    assert verdicts(runs) == "now is better than layers 2"
    assert verdicts(runs, lower_is_better=True) == "now is worse than layers 2"
    assert verdicts(runs | {"now": [3.0, 1.0, 2.0]}) == "now and layers 2: can't tell"


def test_runs_are_sorted_by_setting_and_those_of_other_validation_or_without_an_end_left_out(tmp_path: Path) -> None:
    def run(name: str, score: float, epoch: int = 2, layers: int = 1, **changed: object) -> Path:
        folder = tmp_path / f"run-{name}"
        folder.mkdir()
        settings = {"epochs": 2, "max_minutes": None, "held_out": "x", "seed": len(name)} | changed
        (folder / "config.json").write_text(json.dumps({"model": {"layers": layers}, "settings": settings}))
        (folder / "metrics.jsonl").write_text(json.dumps({"epoch": epoch, "minutes": 1.0, "score": score}) + "\n")
        return folder

    now = run("a", 1.0)
    run("aa", 2.0), run("b", 3.0, layers=2), run("c", 9.0, epoch=1), run("d", 9.0, held_out="y")
    assert read_repeats(tmp_path, now, "score") == {"now": [1.0, 2.0], "layers 2": [3.0]}
