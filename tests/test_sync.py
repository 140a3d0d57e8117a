"""The tool that copies the module's definitions into the notebooks."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from once import once

from tools import sync
from tools.plain import plain

pytestmark = once

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
    for tool in ("sync", "plain"):
        shutil.copy(Path(sync.__file__).with_name(f"{tool}.py"), tmp_path / "tools")
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
    command = [sys.executable, "-m", "tools.sync", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


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
    assert sync.cell_source({"source": names}, project) == expected


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
        sync.cell_source({"source": names}, project)


GUARDED = '''@torch.inference_mode()
def scale(x: Float[Tensor, "length"], factor: float = 2.0, *more: int, quiet: bool = True) -> Float[Tensor, "length"]:
    """Multiply.

    Raises:
        ValueError: the factor is 0.
    """
    check_factor(factor)
    if factor == 0:
        raise ValueError("0")
    for one in more:
        if one < 0:
            raise ValueError(one)
    if quiet:
        total: float = factor  # as given
    else:
        self.log.append(factor)
    for line in self.log:
        print(line)
    return x * total
'''
PLAIN = '''@torch.inference_mode()
def scale(x, factor=2.0, *more, quiet=True):
    """Multiply."""
    if quiet:
        total = factor
    return x * total'''
CLASS = '''class Box(nn.Module):
    """A box."""

    table: Tensor
    rows: tuple[int, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """Open it."""
        return x

    def extra_repr(self) -> str:
        """Show it."""
        return "box"
'''
PLAIN_CLASS = '''class Box(nn.Module):
    """A box."""

    rows = ()

    def forward(self, x):
        return x'''


def test_plain_code_has_no_types_no_checks_and_one_line_of_documentation() -> None:
    assert plain(GUARDED, without=["log"]) == PLAIN
    assert plain(CLASS, without=["extra_repr"]) == PLAIN_CLASS


def test_plain_code_keeps_the_fields_of_a_dataclass_and_what_is_not_a_check() -> None:
    config = "@dataclass\nclass Config:\n    size: int = 3"
    assert plain(config) == config
    branch = "def f(x):\n    if x:\n        raise ValueError\n    else:\n        x = 1\n    return x"
    assert plain(branch) == branch


def test_a_cell_can_show_the_plain_code(project: Path) -> None:
    cell = {"plain": ["annotated.some.first", "annotated.some.Second"]}
    expected = '# annotated/some.py\n@functools.cache\ndef first(x):\n    """Return x."""\n    return x\n\n\n' + SECOND
    assert sync.cell_source(cell, project) == expected
