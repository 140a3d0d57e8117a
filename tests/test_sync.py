"""What a cell shows that asks for definitions. (`test_transformer_file` runs what plain code computes.)"""

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
    """A project of one module."""
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
    for line in self.log:
        print(line)
    return x * total
'''
PLAIN = '''@torch.inference_mode()
def scale(x, factor=2.0, *more, quiet=True):
    """Multiply."""
    # x (length,) → (length,)
    if quiet:
        total = factor  # as given
    return x * total'''
LONG = '''class Attention(nn.Module):
    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Bool[Tensor, "*#batch #query #key"] | None = None,
        mode: Literal["mean", "sum"] = "mean",
    ) -> tuple[Float[Tensor, ""], Int[Tensor, "rows"]]:
        return 1

    def drop(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return x

    def caches(self) -> tuple[Float[Tensor, "*batch _"], ...]:
        """Make none.

        Two lines.
        """
        return ()
'''
PLAIN_LONG = """class Attention(nn.Module):
    def forward(self, query, key, value, mask=None, mode="mean"):
        # query (batch, query, d_model), key (batch, key, d_model), value (batch, key, d_model), mask (…, query, key)
        #   → a number, (rows,)
        return 1

    def drop(self, x):
        return x

    def caches(self):  # → each (…, _)
        return ()"""


@pytest.mark.parametrize(("source", "expected"), [(GUARDED, PLAIN), (LONG, PLAIN_LONG)])
def test_plain_code_has_shapes_for_types_no_checks_and_one_line_of_documentation(source: str, expected: str) -> None:
    assert plain(source, ["log"]) == expected


def test_plain_code_keeps_the_types_of_fields_and_a_branch_that_is_no_check() -> None:
    for code in (
        "class Config(NamedTuple):\n    size: int = 3",
        "def f(x):\n    if x:\n        raise ValueError\n    else:\n        x = 1\n    return x",
    ):
        assert plain(code) == code
