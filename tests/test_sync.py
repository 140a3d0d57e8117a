"""The tool that copies the module's definitions into the notebooks."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import sync

MODULE = '''"""A module."""

import functools

LIMIT = 3


@functools.cache
def first(x: int) -> int:
    """Return x."""
    return x  # as it is


class Second:
    """Nothing."""
'''
FIRST = '''# annotated/some.py
@functools.cache
def first(x: int) -> int:
    """Return x."""
    return x  # as it is'''
SECOND = '''class Second:
    """Nothing."""'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the tool, one module, and one notebook whose second cell is out of date."""
    for folder in ("annotated", "notebooks", "tools"):
        (tmp_path / folder).mkdir()
    shutil.copy(sync.__file__, tmp_path / "tools")
    (tmp_path / "annotated" / "some.py").write_text(MODULE, encoding="utf-8")
    stale = new_code_cell(
        "def first(x): ...",
        metadata={"annotated": {"source": "annotated.some.first"}},
        execution_count=2,
        outputs=[new_output("stream", text="kept\n")],
    )
    nbformat.write(new_notebook(cells=[new_code_cell("first(2)"), stale]), tmp_path / "notebooks" / "01_some.ipynb")
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the project's own copy of the tool."""
    command = [sys.executable, str(project / "tools" / "sync.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_check_lists_the_cells_that_differ_and_changes_nothing(project: Path) -> None:
    before = (project / "notebooks" / "01_some.ipynb").read_bytes()
    result = run(project, "--check")
    assert result.returncode == 1
    assert "notebooks/01_some.ipynb, cell 1: differs from annotated/some.py" in result.stdout
    assert (project / "notebooks" / "01_some.ipynb").read_bytes() == before


def test_refreshing_changes_only_the_source_of_the_synced_cell(project: Path) -> None:
    path = project / "notebooks" / "01_some.ipynb"
    expected = nbformat.read(path, as_version=4)
    expected.cells[1].source = FIRST
    assert run(project).returncode == 0
    assert nbformat.read(path, as_version=4) == expected
    assert run(project, "--check").returncode == 0


def test_a_wrong_name_in_a_notebook_ends_in_one_line(project: Path) -> None:
    path = project / "notebooks" / "01_some.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("annotated.some.first", "annotated.some.third"))
    result = run(project)
    assert result.returncode == 2
    assert result.stderr.startswith("notebooks/01_some.ipynb: annotated.some.third: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("annotated.some.first", FIRST),
        (["annotated.some.first", "annotated.some.Second"], f"{FIRST}\n\n\n{SECOND}"),
        ("annotated.some.LIMIT", "# annotated/some.py\nLIMIT = 3"),
    ],
)
def test_a_cell_shows_the_source_word_for_word(project: Path, names: str | list[str], expected: str) -> None:
    assert sync.cell_source(names, project) == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("annotated.some.third", "annotated.some.third: annotated/some.py defines no such"),
        ("annotated.other.first", "no file annotated/other.py"),
        (["annotated.some.first", "annotated.other.first"], "objects of one file"),
        ("first", "package.module.object"),
    ],
)
def test_a_name_that_does_not_exist_is_a_clear_error(project: Path, names: str | list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sync.cell_source(names, project)
