"""A reader's own copy of the notebooks: made, brought up to date, and nothing that was written in it is ever lost."""

import re
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from once import once

from annotated_course.exercises import all_exercises
from tools import working_copy
from tools.sync import ROOT, notebook_paths
from tools.working_copy import Sources, changed, merge, sources, start_page, update, update_page

pytestmark = once

CARD, STUB = ("card", "# What to do"), ("stub", "answer = ...")
NOTEBOOKS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.text("xyz .=", max_size=4)), max_size=8, unique_by=lambda one: one[0]
)


def cell(name: str, source: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(source, id=name)


def write(path: Path, *cells: tuple[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell(*one) for one in cells]), path)


def texts(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def trusted(path: Path) -> bool:
    """Whether JupyterLab runs the scripts in a notebook's outputs."""
    return NotebookNotary().check_signature(nbformat.read(path, as_version=4))


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of one lesson and its solutions."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    write(tmp_path / "notebooks" / "01_attention.ipynb", CARD, STUB)
    write(tmp_path / "notebooks" / "solutions" / "01_solutions.ipynb", ("a", "answer = 1"))
    return tmp_path / "notebooks"


def test_the_first_time_all_is_copied_and_the_second_time_nothing_is_done(course: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (line,) = update(course, work)
    assert line.startswith(f"2 notebooks of the course copied to {work}")
    for name in ("01_attention.ipynb", "solutions/01_solutions.ipynb"):
        assert (work / name).read_bytes() == (course / name).read_bytes() and trusted(work / name)
    write(work / "01_attention.ipynb", CARD, ("stub", "answer = 1"))
    before = (work / "01_attention.ipynb").read_bytes()
    assert update(course, work) == []
    assert (work / "01_attention.ipynb").read_bytes() == before and not trusted(work / "01_attention.ipynb")
    assert not (work / "kept").exists()


@pytest.mark.parametrize("sure", [False, True])
def test_an_update_replaces_what_nobody_touched_and_keeps_answers(course: Path, tmp_path: Path, sure: bool) -> None:
    work = tmp_path / "work"
    update(course, work)
    mine = work / "01_attention.ipynb"
    write(mine, CARD, ("stub", "answer = 1"), ("note", "# a thought"))
    worked_in = mine.read_bytes()
    if sure:  # as JupyterLab does when it saves what was run there
        NotebookNotary().sign(nbformat.read(mine, as_version=4))
    better = ("card", "# What to do, said better")
    write(course / "01_attention.ipynb", ("new", "# Before"), better, STUB, ("end", "end"))
    write(course / "solutions" / "01_solutions.ipynb", ("a", "answer = 2"))
    first, second = update(course, work)
    assert "brought up to date around your 2 cells" in first
    assert second.startswith("1 notebooks of the course copied")
    assert texts(mine) == ["# Before", "# What to do, said better", "answer = 1", "# a thought", "end"]
    assert texts(work / "solutions" / "01_solutions.ipynb") == ["answer = 2"]
    assert trusted(work / "solutions" / "01_solutions.ipynb") and trusted(mine) == sure
    (kept,) = (work / "kept").iterdir()
    assert kept.read_bytes() == worked_in and str(kept) in first
    assert update(course, work) == []


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"cells": [], "nbformat": 4}'])
def test_what_cannot_be_read_is_left_as_it_is(course: Path, tmp_path: Path, content: bytes) -> None:
    work = tmp_path / "work"
    update(course, work)
    mine = work / "01_attention.ipynb"
    mine.write_bytes(content)
    write(course / "01_attention.ipynb", CARD, STUB, ("end", "end"))
    (line,) = update(course, work)
    assert line.startswith(f"{mine}: left as it is, for it cannot be read as a notebook")
    assert mine.read_bytes() == content
    mine.unlink()  # the reader gives it up
    update(course, work)
    assert texts(mine)[-1] == "end"


@pytest.mark.parametrize("record", ["\ufeff{", "[1]", '{"01_attention.ipynb": [1]}', ""])
def test_a_damaged_memory_loses_nothing_of_the_reader_s(course: Path, tmp_path: Path, record: str) -> None:
    work = tmp_path / "work"
    update(course, work)
    write(work / "01_attention.ipynb", CARD, ("stub", "answer = 1"))
    (work / working_copy.GIVEN).write_text(record)
    update(course, work)
    assert texts(work / "01_attention.ipynb") == [CARD[1], "answer = 1"]


def test_what_is_written_on_the_first_page_is_kept(tmp_path: Path) -> None:
    for page in ("0 solved", "1 solved"):
        assert update_page(page, tmp_path) == []
    (tmp_path / "start.md").write_bytes(b"1 solved, and \xff")
    (line,) = update_page("2 solved", tmp_path)
    (kept,) = (tmp_path / "kept").iterdir()
    assert str(kept) in line and kept.read_bytes() == b"1 solved, and \xff"
    assert (tmp_path / "start.md").read_text("utf-8") == "2 solved"


def said(cells: list[tuple[str, str]]) -> Sources:
    return sources(NotebookNode(cells=[cell(*one) for one in cells]))


@given(given=NOTEBOOKS, reader=NOTEBOOKS, new=NOTEBOOKS)
def test_whatever_was_given_and_whatever_is_new_a_reader_s_text_stays(given, reader, new) -> None:
    mine, course = [cell(*one) for one in reader], [cell(*one) for one in new]
    own = changed(mine, said(given), said(new))
    merged = merge(mine, course, own)
    pairs = [(one.id, one.source) for one in merged]
    assert len(pairs) == len(set(pairs)) == len({name for name, _ in pairs})
    for name, source in reader:
        if source.strip() and dict(given).get(name) != source:
            assert (name, source) in pairs
    for name, source in new:
        assert (name, source) in pairs or name in own
    assert [name for name, _ in pairs if name in dict(new)] == [name for name, _ in new]
    if not own:
        assert pairs == new


def test_the_first_page_begins_with_the_tour_and_lists_every_notebook_with_what_is_solved() -> None:
    text = start_page(ROOT, {"00.1", "00.2", "01.1", "01.3", "99.9", "no"})
    assert f"**4 of {len(all_exercises())} exercises solved**" in text and "The next one is 01.2" in text
    addresses = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert addresses[0] == "00_tour.ipynb"
    assert re.findall("^#+ .*", text, re.MULTILINE)[1:] == ["## Which way through", "### A weekend", "## The notebooks"]
    assert re.findall(r"\(#(.*?)\)", text) == ["A-weekend"]  # in JupyterLab, a heading's letters stay as they are
    assert re.search(r"^\| .*\| \*\*\[01 · .*<br>.*<br>●○●○○○ \|$", text, re.MULTILINE)
    listed = re.findall(r"^\| <img .*\]\((\w+\.ipynb)\)", text, re.MULTILINE)
    assert sorted(listed) == [path.name for path in notebook_paths() if path.parent.name == "notebooks"]
    for address in [*addresses, *re.findall(r'src="([^"]+)"', text)]:
        assert (ROOT / "notebooks" / address).exists(), address  # the working copy stands beside notebooks/


def test_the_command_says_why_it_cannot_make_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").write_text("a file in its place")
    monkeypatch.setattr(working_copy, "WORK", tmp_path / "work")
    with pytest.raises(SystemExit, match=r"work: .*try again; nothing is lost\."):
        working_copy.main()
