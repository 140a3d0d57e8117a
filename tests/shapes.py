"""Shapes and types are checked at each call of the packages: what is given before it, what is returned after it.

Types that have passed once need not be looked at again, which would take most of the time of the tests.
"""

import ast
from collections.abc import Collection
from functools import partial, wraps
from typing import Any

import jaxtyping
import torch
from jaxtyping import install_import_hook
from jaxtyping._import_hook import JaxtypingTransformer
from torch import Tensor

from tools.sync import PACKAGES

jaxtyped, check_function = jaxtyping.jaxtyped, JaxtypingTransformer.visit_FunctionDef


def install() -> None:
    """Check the packages from here on, so before any test imports them."""
    JaxtypingTransformer.visit_FunctionDef = check_but_local_functions
    jaxtyping.jaxtyped = check_once
    install_import_hook(PACKAGES, "beartype.beartype")


def check_but_local_functions(self: JaxtypingTransformer, node: ast.FunctionDef) -> ast.FunctionDef:
    """Leave local functions unchecked: compiling their checks at each call around them took half of the tests' time."""
    body, node.body = node.body, []
    check_function(self, node)
    node.body = body
    return node


def check_once(function: Any = None, *, typechecker: Any) -> Any:
    """Check a function's calls, but what is given and what is returned only when their kinds are met the first time."""
    if function is None:
        return partial(check_once, typechecker=typechecker)
    checked = jaxtyped(function, typechecker=typechecker)
    if isinstance(function, type):
        return checked
    passed: set[Any] = set()
    returned: list[Any] = []
    check_returned = jaxtyped(wraps(function)(lambda *given, **named: returned.pop()), typechecker=typechecker)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*given, **named)
        before = kind((*given, *named.items()))
        if before not in passed:
            result = checked(*given, **named)
        else:
            result = function(*given, **named)
            if (before, kind(result)) in passed:
                return result
            returned.append(result)
            check_returned(*given, **named)
        passed.update((before, (before, kind(result))))
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
