"""Claims: statements in a notebook that check themselves and show it, `claim("each row sums to 1", rows, 1)`."""

import html
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from annotated_course.comparison import described, difference
from annotated_workbench.extras import load

_passed: ContextVar[list[str] | None] = ContextVar("passed", default=None)  # the statements of the open group


@contextmanager
def more_checks() -> Iterator[None]:
    """Show the claims of a block as one line, `✓ 2 more checks`, that unfolds to their statements.

        with more_checks():
            claim("each row sums to 1", weights.sum(-1), 1)
            claim("every weight is positive", weights > 0)

    A claim that fails is printed at once and in full; only what has passed is counted, even if the block ends in an
    error. Where nothing unfolds (outside a notebook, or in another such block) the statements follow below the line.
    """
    outer, passed = _passed.get(), list[str]()
    opened = _passed.set(passed)
    try:
        yield
    finally:
        _passed.reset(opened)
        if passed:
            _show(passed, outermost=outer is None)


def _show(passed: list[str], *, outermost: bool) -> None:
    line = f"✓ {len(passed)} more check{'s' if len(passed) > 1 else ''}"
    ipython = sys.modules.get("IPython")  # a notebook has loaded it; without one, nobody needs to have it
    if outermost and ipython and ipython.get_ipython():
        # No style: code hosts strip it. Each statement on a line of the source, too, where a difference is then found.
        below = "<br>\n".join(f"✓ {html.escape(statement, quote=False)}" for statement in passed)
        folded = f"<details><summary>{line}</summary>\n{below}\n</details>"
        load("IPython.display").display({"text/plain": line, "text/html": folded}, raw=True)
    else:
        print(line, *(f"  ✓ {statement}" for statement in passed), sep="\n")


def claim(
    statement: str,
    found: object,
    expected: object = True,
    *,
    within: float = 1e-4,
    between: tuple[int | float, int | float] | None = None,
    raises: type[Exception] | None = None,
) -> None:
    """Print ✓ and a statement if it is true; otherwise ✗, the statement and the difference, and go on.

        claim("each row sums to 1", weights.sum(-1), 1)
        claim("no weight is negative", weights >= 0)
        claim("it has learned", loss, between=(0, 0.05))
        claim("a wrong mask is refused", lambda: attention(q, k, v, mask=[1, 0]), raises=TypeError)

    The saved outputs hold the ✓: a claim that no longer holds is found when the notebook is compared with them.

    Args:
        statement: what is claimed, in words.
        found: what the code gave. A function is called, and what it raises is shown. A condition on the entries of a
            tensor must hold for all of them; tensors, lists and dictionaries are compared entry by entry.
        expected: what it should be; one number stands for every entry of a tensor.
        within: how far a float may be off, absolutely and relatively. Other numbers must be equal.
        between: in place of `expected`, the lowest and the highest value that an entry may have.
        raises: in place of `expected`, the error that the function must end in.
    """
    if not isinstance(statement, str):
        return print('✗ say first, in words, what is claimed: claim("each row sums to 1", rows, 1)')
    problem = _problem(found, expected, within, between, raises)
    passed = _passed.get()
    if problem is not None:
        print(f"✗ {statement}: {problem}")
    elif passed is not None:
        passed.append(statement)
    else:
        print(f"✓ {statement}")


def _problem(found: Any, expected: Any, within: float, between: Any, raises: type[Exception] | None) -> str | None:
    if callable(found):
        try:
            found = found()
        except Exception as error:
            right = raises is not None and isinstance(error, raises)
            return None if right else f"{type(error).__name__}: {error}"
    if raises is not None:
        return f"no error, expected {raises.__name__}"
    if between is None:
        return difference(found, expected, within)
    try:
        entries = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        return f"{described(found)}, expected {between[0]:g} to {between[1]:g}"
    outside = entries[~((entries >= between[0]) & (entries <= between[1]))]
    if not entries.numel():
        return "nothing to compare"
    return f"{outside[0].item():.4g}, expected {between[0]:g} to {between[1]:g}" if outside.numel() else None
