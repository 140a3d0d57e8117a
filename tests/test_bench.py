"""A machine is measured, set beside others, and told how long things will take."""

import json

import torch
from once import once

from annotated.__main__ import main
from annotated_course import bench

pytestmark = once

OWN = {"processor": "A", "cores": 2, "torch": "2", "date": "2026-11-26", "product": 100.0, "float32": 5000.0}
OWN |= {"bfloat16_all": 20_000.0, "greedy": 600.0, "lesson": 50.0}
OTHER = {"processor": "B", "cores": 8, "torch": "2", "date": "2026-11-25", "product": 50.0, "float32": 2500.0}
OTHER |= {"float32_all": 9_000.0, "greedy": 300.0, "lesson": 100.0}


def test_everything_is_measured_and_told() -> None:
    told = {}
    threads = torch.get_num_threads()
    found = bench.measure(told=told.__setitem__, sentences=2, repetitions=1)
    assert torch.get_num_threads() == threads
    assert told == {row: found[row] for row in told} and min(told.values()) > 0
    # Only a machine with several threads, or with products in bfloat16, has figures of them.
    assert {"product", "float32", "greedy", "lesson"} <= told.keys() <= bench.ROWS.keys()
    assert ("float32_all" in told) == (threads > 1)
    assert {"processor", "cores", "torch", "date"} <= found.keys()


def test_machines_stand_side_by_side() -> None:
    lines = bench.table(OWN, [OTHER])
    assert lines[0].split() == ["this", "machine", "machine", "1"]
    rows = {line[:42].strip(): line[42:].split() for line in lines[1 : len(bench.ROWS) + 1]}
    assert rows["training in float32, one thread"] == ["5,000", "2,500", "tokens/s"]
    assert rows["training in bfloat16, all threads"] == ["20,000", "–", "tokens/s"]
    assert rows["training in float32, all threads"] == ["–", "9,000", "tokens/s"]
    assert lines[-1] == "  machine 1: B, 8 cores, torch 2, 2026-11-25"


def test_durations_by_hand() -> None:
    # 30 · 934,415 tokens at 20,000 a second; the lessons' updates take twice as long here as on the other machine.
    lines = bench.durations(OWN, {"machines": [OTHER], "lessons": {"00_tour": 15.0, "01_attention": 70.0}})
    found = {line[:48].strip(): line[48:].strip() for line in lines}
    assert found["make train: Multi30k, 30 epochs"] == "23 minutes"
    # 9.4e17 operations at 100 GFLOP/s · 20,000 / 5,000
    assert found["the base model of the paper, 100,000 updates"] == "27 days"
    assert found["00_tour"] == "30 seconds" and found["01_attention"] == "2 minutes"
    assert "all: 3 minutes" in "".join(lines)
    assert [bench.spell(seconds) for seconds in (119.0, 120.0, 1e9)] == ["119 seconds", "2 minutes", "32 years"]


def test_the_command_prints_and_keeps_the_figures_in_a_file(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "measure", lambda told: told("product", 100.0) or OWN)
    assert main(["bench", str(tmp_path / "mine.json")]) == 0
    printed = capsys.readouterr().out
    assert "float32 matrix product, one thread: 100 GFLOP/s" in printed and "make train" in printed
    assert json.loads((tmp_path / "mine.json").read_text()) == OWN
