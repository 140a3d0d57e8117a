"""`make run`: the course is run to its end where a notebook differs, and the exit status tells what happened."""

import pytest
from once import once

from tools import run

pytestmark = once


@pytest.mark.parametrize(
    ("statuses", "status", "end"),
    [
        ([0, 0, 0], 0, "all notebooks printed what they have saved.\n"),
        ([1, 0, 0], 1, "not all is as saved: see above.\n"),
        ([0, 2], 2, f"python -m {' '.join(run.TRAIN)}\n"),
        ([0, 0, 1], 2, f"python -m {' '.join(run.EVALUATE)}\n"),
    ],
)
def test_what_differs_is_told_and_what_fails_ends_it(
    statuses: list[int], status: int, end: str, monkeypatch, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = iter(statuses)
    monkeypatch.setattr(run.subprocess, "call", lambda *command, **options: next(left))
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.main() == status and list(left) == []
    assert capsys.readouterr().out.endswith(end)
