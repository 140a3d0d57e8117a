"""What is solved is noted in the working copy only, survives what may happen to the file, and is shown."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from annotated.__main__ import main
from annotated_course import exercises
from annotated_course.exercises import check, progress
from annotated_course.exercises import done as module
from annotated_course.exercises.done import record, solved


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working copy, in which this process works."""
    folder = tmp_path / "work"
    folder.mkdir()
    for place in (module, exercises):
        monkeypatch.setattr(place, "WORK", folder)
        monkeypatch.setattr(place, "SOLVED", folder / "solved.txt")
    monkeypatch.chdir(folder)
    return folder


def test_a_right_answer_is_noted_once_and_a_wrong_one_never(work: Path) -> None:
    check("01.1", ...)
    check("01.1", [4, 8])
    assert solved() == set()
    check("01.1", [4, 9])
    check("01.1", [4, 9])
    check("01.1", [4, 8])
    assert solved() == {"01.1"}
    assert (work / "solved.txt").read_text().count("01.1") == 1


@pytest.mark.parametrize("elsewhere", ["solutions", ".."])
def test_elsewhere_nothing_is_noted(work: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str) -> None:
    (work / elsewhere).mkdir(exist_ok=True)
    monkeypatch.chdir(work / elsewhere)
    check("01.1", [4, 9])
    assert solved() == set() and not (work / "solved.txt").exists()


@pytest.mark.parametrize("place", ["mine/deep", "link/mine"])
def test_in_any_other_folder_of_the_working_copy_it_is_noted(
    work: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (work.parent / "link").symlink_to(work)
    folder = (work.parent if place.startswith("link") else work) / place
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    check("01.1", [4, 9])
    assert solved() == {"01.1"}


def test_where_a_notebook_lies_counts_not_where_it_goes(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "away").mkdir()
    (work / "away").symlink_to(tmp_path / "away")
    monkeypatch.chdir(tmp_path / "away")
    monkeypatch.setattr(module, "NOTEBOOK", work / "away" / "notebook.ipynb")
    check("01.1", [4, 9])
    assert solved() == {"01.1"}
    monkeypatch.setattr(module, "NOTEBOOK", work / "solutions" / "01_solutions.ipynb")
    monkeypatch.chdir(work)
    record("01.2")
    assert solved() == {"01.1"}


def test_a_file_cut_off_or_spoiled_keeps_the_rest(work: Path) -> None:
    (work / "solved.txt").write_bytes(b"\n01.1 2026-11-23 10:00\n\xff\xfe\n\n   \n01.2 2026-1")
    assert {"01.1", "01.2"} <= solved()
    (work / "solved.txt").write_bytes(b"\n01.1 2026-11-23 10:00\n01.")
    record("01.3")
    assert {"01.1", "01.3"} <= solved()


def note_all(folder: Path, numbers: list[str]) -> None:
    module.WORK, module.SOLVED = folder, folder / "solved.txt"
    for number in numbers:
        record(number)


def test_several_notebooks_may_note_at_once(work: Path) -> None:
    parts = [[f"{chapter:02d}.{i}" for i in range(50)] for chapter in range(3)]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=note_all, args=(work, part)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert solved() == {number for part in parts for number in part}


def test_where_it_cannot_be_noted_the_verdict_stands(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "solved.txt").mkdir()
    check("01.1", ...)
    capsys.readouterr()
    check("01.1", [4, 9])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "✓ 01.1 One row by hand"
    assert second.startswith("It could not be noted as solved: ")
    progress()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{work / 'solved.txt'} cannot be read (Is a directory): move it elsewhere")


def test_progress_shows_what_is_solved_and_what_comes_next(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(exercises.CHAPTERS) + 1
    assert lines[:2] == ["00  ○○", "01  ○○○○○○"]
    assert lines[-1].startswith(
        f"0 of {len(exercises.EXERCISES)} exercises solved; counted is what you solve in {work}"
    )
    for number in ("01.1", "01.3", "10.1", "10.2", "10.3", "10.4", "10.5", "07.12"):
        record(number)
    assert main(["progress"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[1], lines[10]) == ("01  ●○●○○○   next: 01.2 Attention from scratch", "10  ●●●●●")
    assert lines[-1] == f"7 of {len(exercises.EXERCISES)} exercises solved; kept in {work / 'solved.txt'}"


def test_another_folder_can_be_given(tmp_path: Path) -> None:
    code = "from annotated_course.exercises.done import SOLVED; print(SOLVED)"
    environment = {"ANNOTATED_WORK": str(tmp_path / "elsewhere"), "PATH": ""}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert Path(printed.strip()) == tmp_path / "elsewhere" / "solved.txt"
