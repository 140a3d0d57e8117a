"""What the notebooks check, draw and look at with: `from annotated_course import check, claim, show`."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

# `__init__.pyi` says where each name is, to type checkers and here. A name is imported when it is first asked for: a
# check needs no matplotlib, and no start waits for it.
STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
HOME = {name.name: line.module for line in STUB.body if isinstance(line, ast.ImportFrom) for name in line.names}


def __getattr__(name: str) -> Any:
    """Import a name from its file."""
    if name not in HOME:
        raise AttributeError(f"annotated_course has no {name!r}; it has {', '.join(sorted(HOME))}.")
    return getattr(import_module(str(HOME[name])), name)
