"""One comparison for the claims of a notebook and for the answers to its exercises: what differs first, and where."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

IN_ANOTHER_ORDER = ": the right numbers, in another order"


def difference(given: Any, expected: Any, within: float = 1e-4, *, strict: bool = False) -> str | None:
    """Say what differs first between two values, as "at [1, 2]: 0.83, expected 0.5", or None.

    Tensors, lists and dictionaries are compared entry by entry. A tuple counts as a list, an array of numpy too, and a
    tensor without axes as its number. A float may be off by `within`, absolutely and relatively; other numbers must be
    equal. If strict, types count, too (a bool is no int, a float is no int, but an int is a float), and NaN is NaN;
    else one number stands for every entry of a tensor.
    """
    name, given, expected = kind(given), _plain(given), _plain(expected)
    if strict and isinstance(expected, float) and type(given) is int:
        given = float(given)
    if strict and kind(given) != kind(expected):
        alike = isinstance(expected, Tensor) and isinstance(given, Tensor | list | tuple | int | float)
        cure = f": torch.as_tensor(…, dtype={expected.dtype}) makes one" if alike else ""
        return f"got {name}, expected {kind(expected)}{cure}"
    if isinstance(given, Tensor) or isinstance(expected, Tensor):
        try:
            tensors = torch.as_tensor(given), torch.as_tensor(expected)
        except (TypeError, ValueError, RuntimeError):
            return f"{described(given)}, expected {described(expected)}"
        return _tensor_difference(*tensors, within, strict)
    if isinstance(given, Mapping) and isinstance(expected, Mapping):
        if given.keys() != expected.keys():
            return f"the names {list(given)}, expected {list(expected)}"
        pairs = [(repr(key), given[key], expected[key]) for key in expected]
    elif isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        if len(given) != len(expected):
            return f"{len(given)} entries, expected {len(expected)}"
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(given, expected, strict=True))]
    else:
        return None if _equal(given, expected, within, strict) else f"{_text(given)}, expected {_text(expected)}"
    for place, one, other in pairs:
        if text := difference(one, other, within, strict=strict):
            return f"at [{place}]: {text}"
    return None


def _tensor_difference(given: Tensor, expected: Tensor, within: float, strict: bool) -> str | None:
    if given.shape != expected.shape and (strict or expected.dim()):
        return f"shape {tuple(given.shape)}, expected {tuple(expected.shape)}"
    if not given.numel():
        return None if strict else "nothing to compare"
    expected = expected.expand_as(given)
    if given.is_floating_point() or expected.is_floating_point():
        equal = torch.isclose(given.double(), expected.double(), rtol=within, atol=within, equal_nan=strict)
    else:
        equal = given == expected
    if equal.all():
        return None
    ordered = given.double().flatten().sort().values, expected.double().flatten().sort().values
    order = IN_ANOTHER_ORDER * ordered[0].allclose(ordered[1], within, within)
    place = tuple(int(i) for i in torch.unravel_index((~equal).long().argmax(), equal.shape))
    where = f"at {list(place)}: " if place else ""
    return f"{where}{_text(given[place].item())}, expected {_text(expected[place].item())}{order}"


def _equal(given: Any, expected: Any, within: float, strict: bool) -> bool:
    if isinstance(given, int | float) and isinstance(expected, int | float) and float in (type(given), type(expected)):
        near = given == expected or abs(given - expected) <= within * (1 + abs(expected))
        return near or (strict and given != given and expected != expected)
    return bool(given == expected)


def _plain(value: Any) -> Any:
    scalar = isinstance(value, Tensor) and not value.dim()
    return value.tolist() if scalar or isinstance(value, np.ndarray | np.generic) else value


def kind(value: Any) -> str:
    """Name the kind of a value: "a string", "a tensor of torch.int64", "the class Layer"."""
    if value is None or isinstance(value, Tensor):
        return "None" if value is None else f"a tensor of {value.dtype}"
    if callable(value) and not isinstance(value, torch.nn.Module):
        return f"the class {value.__name__}" if isinstance(value, type) else "a function"
    name = {"str": "string", "dict": "dictionary", "tuple": "list", "ndarray": "array of numpy"}.get(
        type(value).__name__, type(value).__name__
    )
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def described(value: Any) -> str:
    """Say a little more: "a list of 3 (an int, None)", "a tensor of torch.int64, shape (2, 3)", "a string, '4, 9'"."""
    if isinstance(value, list | tuple):
        kinds = [*dict.fromkeys(map(kind, value))]
        return f"a list of {len(value)}" + f" ({'each ' * (len(kinds) == 1)}{', '.join(kinds[:4])})" * bool(kinds)
    if isinstance(value, Tensor):
        return f"{kind(value)}, shape {tuple(value.shape)}"
    if type(value) in (int, float):
        return f"one number, {_text(value)}"
    return kind(value) + f", {value!r:.60}" * isinstance(value, int | str | dict)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else kind(value) if callable(value) else f"{value!r:.200}"
