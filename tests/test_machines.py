"""The table of machines tells green from red, and what was not run."""

import sys
from pathlib import Path

import pytest

from experiments import machines


def test_the_table_by_hand() -> None:
    lines = [
        {"torch": "2.3.1", "machine": "native", "what": "tests", "failed": []},
        {"torch": "2.3.1", "machine": "plain", "what": "tests", "failed": ["7"]},
        {"torch": "2.3.1", "machine": "native", "what": "notebooks/a.ipynb", "failed": []},
    ]
    assert [row.split() for row in machines.table(lines)] == [
        ["torch", "2.3.1"],
        ["native", "plain"],
        ["notebooks/a.ipynb", "·", "–"],
        ["tests", "·", "7"],
    ]


def test_what_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_two.py").write_text("def test_red():\n    assert False\n\n\ndef test_green():\n    pass\n")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(machines, "ROOT", tmp_path)
    monkeypatch.setattr(machines, "STACKS", {"here": "."})
    assert machines.failures("here", "native", "test_two.py") == ["test_red"]
