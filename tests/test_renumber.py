"""A working copy of the old chapter numbers: all of it comes over, once, wherever it is cut off; nothing is lost."""

import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from once import once

from tools import renumber, working_copy
from tools.renumber import LESSONS, MARK, NAMES, SOLUTIONS
from tools.working_copy import keep, update

pytestmark = once

Cells = list[tuple[str, str]]  # the type and the text of each; its id is its place
OLD_TEXTS: dict[str, Cells] = {
    name: [
        ("markdown", f"# {name}, see exercise 10.1"),
        ("code", "from annotated.course.exercises import check\nfrom annotated.workbench.data import pad"),
        ("code", "answer = ..."),
        ("code", f'check("{name.removeprefix("solutions/")[:2]}.1", answer)'),
    ]
    for name in ("01_attention.ipynb", *NAMES)
}
NEW_TEXTS: dict[str, Cells] = {
    NAMES.get(name, name): [
        ("markdown", f"# {NAMES.get(name, name)}, in new words"),
        ("code", "from annotated_course import check\nfrom annotated_workbench.data import pad, Batch"),
        ("code", "answer = ...  # a number"),
        ("code", f'check("{NAMES.get(name, name).removeprefix("solutions/")[:2]}.1", answer)'),
    ]
    for name in OLD_TEXTS
}
KEPT = "kept/10_evaluation-2026.ipynb"
GONE = {"solutions/12_solutions.ipynb", "15_bert_and_gpt.ipynb"}  # what the reader has deleted
MARKS = (  # before and after
    b"\n01.1 2026-11-20 10:00\n\n00.1 2026-11-20 11:00\r\n\n10.1 2026-11-21\n 11.2 x\n18.4 12.1\n10.\nno\xff 1",
    b"\n01.1 2026-11-20 10:00\n\n10.1 2026-11-20 11:00\r\n\n11.1 2026-11-21\n 12.2 x\n19.4 12.1\n10.\nno\xff 1",
)


def write(path: Path, cells: Cells) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rest = {"code": {"outputs": [], "execution_count": None}, "markdown": {}}
    table = [
        {"cell_type": kind, "id": str(i), "metadata": {}, "source": text.splitlines(keepends=True), **rest[kind]}
        for i, (kind, text) in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": table, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), "utf-8")


def said(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]


def answered(name: str) -> Cells:
    """What the reader has made of a notebook."""
    top, imports, _, check = OLD_TEXTS[name]
    own = "from annotated.course.plotting import show  # mine\ncheck('18.2', 3)"
    return [top, imports, ("code", f"answer = '{name}'"), check, ("code", own), ("markdown", "18.2 is hard")]


CHANGED = ("01_attention.ipynb", "00_why_attention.ipynb", "10_evaluation.ipynb", "17_beyond_quadratic.ipynb")
CHANGED += ("18_debugging.ipynb", "solutions/10_solutions.ipynb", "solutions/13_solutions.ipynb")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course") / "notebooks"
    for name, cells in NEW_TEXTS.items():
        write(folder / name, cells)
    return folder


def old_copy(work: Path, gone: Collection[str] = GONE) -> dict[str, bytes]:
    """Make a working copy of the old numbers, with answers; give the bytes that the reader wrote."""
    for name in OLD_TEXTS.keys() - gone:
        write(work / name, answered(name) if name in CHANGED else OLD_TEXTS[name])
    write(work / "mine" / "trial.ipynb", [("code", 'import annotated.workbench.data as d\ncheck( "00.3", d)')])
    write(work / KEPT, answered("10_evaluation.ipynb"))
    write(work / ".renumbering" / "solutions" / "12_solutions.ipynb", [("code", "left by a call that was cut off")])
    (work / "18_notes.ipynb").write_bytes(b"no notebook: check('10.1', 2)")
    record = {
        name: {str(i): f"{kind}\n{text}" for i, (kind, text) in enumerate(cells)} for name, cells in OLD_TEXTS.items()
    }
    (work / ".given.json").write_text(json.dumps(record), "utf-8")
    (work / "solved.txt").write_bytes(MARKS[0])
    return {name: (work / name).read_bytes() for name in (*CHANGED, "mine/trial.ipynb", "18_notes.ipynb", KEPT)}


def files(work: Path) -> dict[str, bytes]:
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in work.rglob("*") if path.is_file()}


def hold_all(work: Path, before: dict[str, bytes]) -> None:
    """Each answer stands at its new place; each byte of the reader's is somewhere; the marks are mapped once."""
    for name in CHANGED:
        new = NAMES.get(name, name)
        number = new.removeprefix("solutions/")[:2]
        *_, answer, check, own, note = said(work / new)
        assert answer == f"answer = '{name}'" and check == f'check("{number}.1", answer)', new
        assert own == "from annotated_course import show  # mine\ncheck('19.2', 3)" and note == "18.2 is hard", new
    assert said(work / "mine" / "trial.ipynb") == ['import annotated_workbench.data as d\ncheck( "10.3", d)']
    assert all((work / name).read_bytes() == before[name] for name in ("18_notes.ipynb", KEPT))
    everywhere = set(files(work).values())
    assert not any(b"left by a call" in content for content in everywhere)
    assert all(content in everywhere for content in before.values())
    assert (work / "solved.txt").read_bytes() == MARK.encode() + b"\n" + MARKS[1]
    assert not [path for path in work.iterdir() if path.name.startswith(".renumber")]


def test_an_old_copy_comes_over(course: Path, tmp_path: Path) -> None:
    before = old_copy(tmp_path)
    first, *others = update(course, tmp_path)
    assert first.startswith(f"{tmp_path}: chapter 00 is now 10, and 10 to 18 are 11 to 19.") and "Left" not in first
    assert [line.split(": ")[1][:39] for line in others[:-1]] == ["brought up to date around your 3 cells;"] * 7
    hold_all(tmp_path, before)
    # What nobody changed is the course's newer one, in the changed ones, too; what was deleted came anew.
    for name, cells in NEW_TEXTS.items():
        texts = [text for _, text in cells]
        assert said(tmp_path / name)[:2] == texts[:2], name
        assert said(tmp_path / name) == texts or name in {NAMES.get(one, one) for one in CHANGED}, name
    assert {path.name for path in tmp_path.glob("*_*.ipynb")} == {
        "01_attention.ipynb", *LESSONS.values(), "18_notes.ipynb"
    }  # fmt: skip
    assert {f"solutions/{path.name}" for path in (tmp_path / "solutions").iterdir()} == set(SOLUTIONS.values())
    after = files(tmp_path)
    assert update(course, tmp_path) == [] and files(tmp_path) == after


@pytest.mark.parametrize("content", [None, b"{", b"[1]", b'{"01_attention.ipynb": {}, "10_evaluation.ipynb": [3]}'])
def test_so_it_does_without_its_record(course: Path, tmp_path: Path, content: bytes | None) -> None:
    before = old_copy(tmp_path)
    (tmp_path / ".given.json").unlink() if content is None else (tmp_path / ".given.json").write_bytes(content)
    update(course, tmp_path)
    hold_all(tmp_path, before)
    after = files(tmp_path)
    assert update(course, tmp_path) == [] and files(tmp_path) == after


class CutOffError(BaseException):
    """As if the process ended here."""


def cut_off(monkeypatch: pytest.MonkeyPatch, place: int) -> Callable[[], bool]:
    """End the process after so many changes of files; the result tells whether it came to that."""
    places = count()

    def then(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*given: object, **named: object) -> None:
            change(*given, **named)
            if next(places) == place:
                raise CutOffError

        return changed

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, then(getattr(os, name)))
    return lambda: next(places) > place


def test_wherever_it_is_cut_off_the_next_call_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole"
    gone = OLD_TEXTS.keys() - {*CHANGED, "solutions/18_solutions.ipynb"}
    before = old_copy(whole, gone)
    renumber.renumber(whole, keep)
    hold_all(whole, before)

    def without_kept(work: Path) -> dict[str, bytes]:
        return {name: content for name, content in files(work).items() if not name.startswith("kept")}

    for place in count():
        work, edited = tmp_path / f"cut{place}", tmp_path / f"edited{place}"
        for one in (work, edited):
            old_copy(one, gone)
            with monkeypatch.context() as patch:
                was_cut_off = cut_off(patch, place)
                with suppress(CutOffError):
                    renumber.renumber(one, keep)
        if not was_cut_off():
            break
        renumber.renumber(work, keep)
        hold_all(work, before)
        assert without_kept(work) == without_kept(whole), place
        # What the reader writes in between is not lost either, at the old place or at the new one.
        names = [name for old in CHANGED for name in (old, NAMES.get(old, old)) if (edited / name).exists()]
        name = names[place % len(names)]
        (edited / name).write_bytes(b"written in between")
        renumber.renumber(edited, keep)
        assert b"written in between" in files(edited).values(), (place, name)
    assert place > 40


def test_what_stands_in_a_place_stays_there(course: Path, tmp_path: Path) -> None:
    old_copy(tmp_path)
    write(tmp_path / "19_debugging.ipynb", [("code", "my own 19")])
    write(tmp_path / "solutions" / "19_solutions.ipynb", [("code", "my own solutions")])
    solutions = (tmp_path / "solutions" / "13_solutions.ipynb").read_bytes()
    (line,) = renumber.renumber(tmp_path, keep)
    assert "Left where they were" in line and "18_debugging.ipynb" in line and "solutions/18_solutions.ipynb" in line
    assert said(tmp_path / "19_debugging.ipynb") == ["my own 19"]
    assert said(tmp_path / "solutions" / "19_solutions.ipynb") == ["my own solutions"]
    assert "answer = '18_debugging.ipynb'" in said(tmp_path / "18_debugging.ipynb")
    assert "answer = '17_beyond_quadratic.ipynb'" in said(tmp_path / "18_beyond_quadratic.ipynb")
    assert solutions in files(tmp_path).values()
    assert renumber.renumber(tmp_path, keep) == []


def test_a_new_copy_is_left_alone(course: Path, tmp_path: Path) -> None:
    assert renumber.renumber(tmp_path / "nothing", keep) == [] and not (tmp_path / "nothing").exists()
    update(course, tmp_path)
    (tmp_path / "solved.txt").write_text("\n10.1 2026-12-01 10:00\n")
    write(tmp_path / "mine.ipynb", [("code", 'check("10.1", 2)')])
    write(tmp_path / "10_evaluation.ipynb", answered("10_evaluation.ipynb"))  # from a copy of long ago
    before = files(tmp_path)
    assert update(course, tmp_path) == [] and files(tmp_path) == before
    (tmp_path / ".given.json").unlink()
    assert renumber.renumber(tmp_path, keep) == []
    (tmp_path / ".given.json").write_text(json.dumps({"00_why_attention.ipynb": {}}))  # as if the old record came back
    (tmp_path / "solved.txt").write_text(f"{MARK}\n\n10.1 2026-12-01 10:00\n")
    renumber.renumber(tmp_path, keep)
    assert (tmp_path / "solved.txt").read_text() == f"{MARK}\n\n10.1 2026-12-01 10:00\n"


def test_where_nothing_can_be_written_nothing_changes(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_copy(tmp_path)
    before = files(tmp_path)

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    for place in (renumber, working_copy):
        monkeypatch.setattr(place, "write_whole", full)
    (line,) = update(course, tmp_path)
    assert line.startswith(f"{tmp_path}: not yet brought over") and "No space left" in line
    assert files(tmp_path) == {name: content for name, content in before.items() if name[:12] != ".renumbering"}


REWRITTEN = {
    "from annotated.course.plotting import Box as B, show": "from annotated_course import Box as B, show",
    "from annotated.course.plotting import (\n    Arrow,\n)": "from annotated_course import (\n    Arrow,\n)",
    "from annotated.course.exercises.chapter_18 import patients; x": "from annotated_course import patients; x",
    "from annotated.course.exercises.chapter_18 import A": "from annotated_course.exercises.chapter_19 import A",
    "from annotated.course.exercises import check, done": "from annotated_course.exercises import check, done",
    "from annotated.course.trace import trace, \\\n trace as t": "from annotated_course import trace, \\\n trace as t",
    "from annotated.workbench import data, runs": "from annotated_workbench import data, runs",
    "import annotated.course.claims as c": "import annotated_course.claims as c",
    "annotated.workbench.data.pad(annotated.course)": "annotated_workbench.data.pad(annotated_course)",
    "from annotated.attention import attention": "from annotated.attention import attention",
    "# annotated/workbench/data.py": "# annotated/workbench/data.py",
    "check(\n    number='00.4', answer=a)": "check(\n    number='10.4', answer=a)",
    "check(\"09.4\", '10.4'); recheck('10.1')": "check(\"09.4\", '10.4'); recheck('10.1')",
    'check("10.1", check("18.1", 1))': 'check("11.1", check("19.1", 1))',
}


@pytest.mark.parametrize("code", REWRITTEN)
def test_a_cell_s_code_is_rewritten(code: str) -> None:
    assert renumber._rewritten(code) == REWRITTEN[code]


def test_a_notebook_of_any_format_is_rewritten() -> None:
    cells = [{"cell_type": "code", "input": ["check('10.1',\n", "1)"]}, {"cell_type": "heading", "source": "a"}]
    content, texts = renumber._rewritten_notebook(json.dumps({"worksheets": [{"cells": cells}]}).encode())
    assert json.loads(content)["worksheets"][0]["cells"][0]["input"] == "check('11.1',\n1)"
    assert texts == ["code\ncheck('10.1',\n1)", "heading\na"]
    for damaged in (b"", b"\xff", b"[]", b'{"cells": 3}', b'{"cells": [{"source": 3}]}', b"[" * 100_000):
        assert renumber._rewritten_notebook(damaged)[0] == damaged
