"""The tool that copies the module's definitions into the notebooks."""

import ast
import contextlib
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from once import once
from torch import nn

import annotated.transformer
from annotated.training import label_smoothed_loss
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


def test_a_cell_that_differs_is_found_with_the_text_it_should_have(project: Path) -> None:
    asks = {"annotated": {"source": "annotated.some.first"}}
    cells = [new_code_cell(text, metadata=asks) for text in ("def first(x): ...", FIRST)]
    notebook = new_notebook(cells=[new_code_cell("first(2)"), *cells])
    assert [(number, text) for number, _, text in sync.stale_cells(notebook, project)] == [(1, FIRST)]


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


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("annotated.some.third", "annotated.some.third: annotated/some.py defines no such"),
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
    # x (length,) → (length,)
    if quiet:
        total = factor  # as given
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
        check_self(self)
'''
PLAIN_LONG = """class Attention(nn.Module):
    def forward(self, query, key, value, mask=None, mode="mean"):
        # query (batch, query, d_model), key (batch, key, d_model), value (batch, key, d_model), mask (…, query, key)
        #   → a number, (rows,)
        return 1

    def drop(self, x):
        return x

    def caches(self):  # → each (…, _)
        ..."""


@pytest.mark.parametrize(
    ("source", "without", "expected"),
    [(GUARDED, ["log"], PLAIN), (CLASS, ["extra_repr"], PLAIN_CLASS), (LONG, [], PLAIN_LONG)],
)
def test_plain_code_has_shapes_for_types_no_checks_and_one_line_of_documentation(
    source: str, without: list[str], expected: str
) -> None:
    assert plain(source, without) == expected


def test_plain_code_keeps_fields_and_what_is_not_a_check() -> None:
    for head in ("@dataclass\nclass Config:", "class Config(NamedTuple):"):
        assert plain(f"{head}\n    size: int = 3") == f"{head}\n    size: int = 3"
    branch = "def f(x):\n    if x:\n        raise ValueError\n    else:\n        x = 1\n    return x"
    assert plain(branch) == branch


def test_plain_code_of_the_whole_paper_computes_the_same() -> None:
    order = ["config", "masking", "attention", "multi_head", "positional_encoding", "encoder", "decoder"]
    plainly: dict[str, Any] = {"dataclass": dataclass, "math": math, "torch": torch, "nn": nn, "F": nn.functional}
    plainly |= {"reduce": functools.reduce, "contextmanager": contextlib.contextmanager, "__name__": "plainly"}
    for file in [*order, "transformer", "training"]:
        text = (sync.ROOT / "annotated" / f"{file}.py").read_text(encoding="utf-8")
        for statement in ast.parse(text).body:
            for name in sorted(sync.names_defined(statement) - {"Mask", "SourceMask"})[:1]:
                shown = plain(sync.definition(text, name) or "")
                for node in ast.walk(ast.parse(shown)):
                    assert not getattr(node, "annotation", None) or name == "TransformerConfig"
                exec(shown, plainly)
    src, tgt = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), torch.tensor([[1, 8, 9], [1, 10, 0]])
    for switches in ({}, {"norm_first": True, "positions": "learned", "tie_embeddings": False, "d_k": 3}):
        models = []
        for made in (plainly, vars(annotated.transformer)):
            torch.manual_seed(0)
            config = made["TransformerConfig"](12, d_model=8, d_ff=16, heads=2, layers=2, **switches)
            models.append(made["Transformer"](config).eval())
        torch.testing.assert_close(models[0](src, tgt), models[1](src, tgt))
        losses = [f(models[0](src, tgt), tgt) for f in (plainly["label_smoothed_loss"], label_smoothed_loss)]
        torch.testing.assert_close(*losses)
