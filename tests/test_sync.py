"""What a cell shows that asks for definitions.

What plain code leaves out shows in 09 and in docs/transformer.py: `test_chapters` and `test_transformer_file` look.
"""

from pathlib import Path

import pytest
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
    (tmp_path / "annotated").mkdir()
    (tmp_path / "annotated" / "some.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("annotated.some.first", FIRST),
        (["annotated.some.first", "annotated.some.Second"], f"{FIRST}\n\n\n{SECOND}"),
        ("annotated.some.LIMIT", "# annotated/some.py\nLIMIT = 3"),
    ],
)
def test_a_cell_shows_the_source_word_for_word_or_plain(project: Path, names: str | list[str], expected: str) -> None:
    assert sync.cell_source({"source": names}, project) == expected
    assert sync.cell_source({"plain": names}, project) == expected.replace("x: int) -> int", "x)")


@pytest.mark.parametrize("name", ["annotated.some.third", "annotated.other.first"])
def test_a_name_that_is_not_in_the_file_of_the_first_is_an_error(project: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: annotated/some.py defines no such"):
        sync.cell_source({"source": ["annotated.some.first", name]}, project)


def test_plain_code_keeps_the_types_of_fields_and_a_branch_that_is_no_check() -> None:
    for code in (
        "class Config(NamedTuple):\n    size: int = 3",
        "def f(x):\n    if x:\n        raise ValueError\n    else:\n        x = 1\n    return x",
    ):
        assert plain(code) == code
    assert plain("@once\ndef f(x: int):\n    y: int = x\n    return y") == "@once\ndef f(x):\n    y = x\n    return y"
