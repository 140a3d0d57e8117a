"""Shapes and types are checked at the calls of the packages: what is given before one, what is returned after it.

A kind of call that has passed once is not looked at again, which would take most of the time of the tests.
"""

import sys
from collections.abc import Collection, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any

import jaxtyping
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from torch import Tensor

from tools.sync import PACKAGES


def install() -> None:
    """Check the packages from here on, so before any test imports them."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname.partition(".")[0] in PACKAGES else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Checks functions and methods, before anyone can import them; local functions are left alone."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        classes = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == self.name]
        for owner in (module, *classes):
            for name, function in [*vars(owner).items()]:
                if isinstance(function, FunctionType) and self._is_checkable(function):
                    setattr(owner, name, check_once(function))

    def _is_checkable(self, function: FunctionType) -> bool:
        """Leave out what is imported or made by a library, and context managers, whose types are the generator's."""
        code = getattr(function, "__wrapped__", function).__code__
        named = "<" not in function.__qualname__  # no lambda, and no function that another one made
        wrapped = hasattr(function, "__wrapped__") and "Iterator" in str(function.__annotations__.get("return"))
        return function.__module__ == self.name and code.co_filename == self.path and not wrapped and named


def check_once(function: FunctionType) -> Any:
    """Check a function's calls, but each kind of call only when it is met the first time."""
    checked = jaxtyped(function, typechecker=beartype)
    passed: set[Any] = set()

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        asked = kind((*given, *named.items()))
        if jaxtyping.config.jaxtyping_disable or asked in passed:
            return function(*given, **named)
        result = checked(*given, **named)
        passed.add(asked)
        return result

    return call


def kind(value: Any) -> Any:
    """All that a check sees of a value; since it sees items of a list and the like, these are equal to nothing else."""
    match value:
        case Tensor():
            return type(value), value.dtype, value.shape
        case None | bool() | int() | float() | str() | torch.dtype():
            return type(value), value
        case tuple():
            return type(value), *map(kind, value)
        case list() if value and all(isinstance(item, Tensor) for item in value):
            return type(value), *map(kind, value)
    is_ours = type(value).__module__.partition(".")[0] in PACKAGES
    return object() if isinstance(value, Collection) and not is_ours else type(value)
