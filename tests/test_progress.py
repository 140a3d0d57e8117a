"""What is solved is noted in the working copy only, survives what may happen to the file, and is shown."""

import runpy
import shutil
from pathlib import Path

import pytest
from once import once

from annotated.__main__ import main
from annotated_course import exercises
from annotated_course.exercises import CHAPTERS, all_exercises, check, progress
from annotated_course.exercises import done as module
from annotated_course.exercises.done import record, solved

pytestmark = once


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working copy, in which a notebook lies."""
    folder = tmp_path / "work"
    folder.mkdir()
    for place in (module, exercises):
        monkeypatch.setattr(place, "WORK", folder)
        monkeypatch.setattr(place, "SOLVED", folder / "solved.txt")
    monkeypatch.setattr(module, "NOTEBOOK", folder / "01_attention.ipynb")
    return folder


def test_a_right_answer_is_noted_once_and_a_wrong_one_never(work: Path) -> None:
    check("01.1", ...)
    check("01.1", [4, 8])
    assert solved() == set()
    for answer in ([4, 9], [4, 9], [4, 8]):
        check("01.1", answer)
    assert solved() == {"01.1"}
    assert (work / "solved.txt").read_text().count("01.1") == 1


@pytest.mark.parametrize(
    ("place", "noted"), [("mine/deep/a.ipynb", True), ("solutions/01_solutions.ipynb", False), ("../a.ipynb", False)]
)
def test_noted_is_what_lies_in_the_working_copy(work: Path, monkeypatch, place: str, noted: bool) -> None:
    monkeypatch.setattr(module, "NOTEBOOK", (work / place).resolve())
    check("01.1", [4, 9])
    assert solved() == ({"01.1"} if noted else set()) and (work / "solved.txt").exists() == noted


def test_where_pip_installed_it_the_clone_around_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANNOTATED_WORK", raising=False)
    for folder in ("site-packages/annotated_course/exercises", "notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "notebooks" / "00_tour.ipynb").touch()
    monkeypatch.chdir(tmp_path / "notebooks")
    installed = shutil.copy(module.__file__, tmp_path / "site-packages" / "annotated_course" / "exercises")
    assert runpy.run_path(installed)["WORK"] == tmp_path / "work"


def test_a_file_cut_off_or_spoiled_keeps_the_rest(work: Path) -> None:
    (work / "solved.txt").write_bytes(b"\n01.1 2026-11-23 10:00\n\xff\xfe\n\n   \n01.2 2026-1")
    assert {"01.1", "01.2"} <= solved()
    (work / "solved.txt").write_bytes(b"\n01.1 2026-11-23 10:00\n01.")
    record("01.3")
    assert {"01.1", "01.3"} <= solved()


def test_where_it_cannot_be_noted_the_verdict_stands(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "solved.txt").mkdir()
    check("01.1", [4, 9])
    progress()
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "✓ 01.1 One row by hand"
    assert second.startswith("It could not be noted as solved: ")
    assert third.startswith(f"{work / 'solved.txt'} cannot be read (Is a directory): move it elsewhere")


def test_progress_shows_what_is_solved_and_what_comes_next(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(all_exercises())
    progress()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHAPTERS) + 1 and lines[:2] == ["00  ○○", "01  ○○○○○○"]
    assert lines[-1].startswith(f"0 of {count} exercises solved; counted is what you solve in {work}")
    for number in ("01.1", "01.3", "10.1", "10.2", "10.3", "10.4", "10.5", "07.12"):
        record(number)
    assert main(["progress"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[1], lines[10]) == ("01  ●○●○○○   next: 01.2 Attention from scratch", "10  ●●●●●")
    assert lines[-1] == f"7 of {count} exercises solved; kept in {work / 'solved.txt'}"
