"""The commands that time us beside others: every path is alive at tiny sizes, and the tables say what was measured."""

import json

import pytest
import torch

from annotated.config import TransformerConfig
from experiments import gpu
from experiments.paper_run import weights_and_operations


def test_every_path_of_the_gpus_command_is_alive(tmp_path):
    gpu.main(["--quick", str(tmp_path / "gpu.json")])
    results = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert [*results["training"]] == [*results["decoding"]] == ["small", "base", "big"]
    rows = results["training"]["small"]
    assert rows["ours, bfloat16"]["times_ours"] == 1
    for row in rows.values():
        assert row["tokens_per_second"] == pytest.approx(24 / row["seconds"])


def test_without_a_gpu_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "there is no GPU that CUDA can use" in capsys.readouterr().err


def test_operations_are_counted_by_hand():
    config = TransformerConfig(6000, d_model=4, d_ff=8, heads=2, layers=3)
    # Multiplications of a position: 4 · 4² onto queries, keys, values and out, 2 · 5 · 4 between positions, thrice a
    # layer; 2 · 4 · 8 in the feed-forward network, twice a layer; three layers; and 4 · 6,000 onto the vocabulary.
    multiplications = 3 * (3 * (4 * 16 + 2 * 5 * 4) + 2 * (2 * 4 * 8)) + 4 * 6000
    weights, operations = weights_and_operations(config, length=5)
    # A product and a sum each, forward, and for both gradients backward.
    assert operations == pytest.approx(6 * multiplications)
    assert weights > 4 * 6000
