"""Reduce a definition to what a lesson shows of it: the code, its comments, and the shapes in one line.

What goes: types; checks of what was given (`if …: raise`, calls of `check_…`); the documentation, but for the first
line of the definition's own; and what a cell's metadata leaves out by name. Shapes that stood in types come back as one
comment: `# query (…, query, d_k), key (…, key, d_k) → (…, query, key)`.

The text is edited where it stands, not written anew from the syntax tree, which knows no comments.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from itertools import accumulate
from typing import NamedTuple

WIDTH = 120  # columns of a line, as everywhere in the course
NOTE = "#:"  # begins a line of shapes as long as it has no place yet; "#" when it has


def plain(source: str, without: Collection[str] = (), *, checks: bool = False) -> str:
    """Write one function or class without types, the longer part of its documentation and, unless told so, checks.

    Methods of a name in `without` go, too, and statements that use a variable or attribute of such a name.
    """
    text = source.encode()
    edits, _ = _Editor(text, frozenset(without), checks).block(ast.parse(source).body, None)
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text.encode() + text[edit.end :]
    return _beside(formatted(text.decode())).rstrip("\n")


def formatted(text: str) -> str:
    """Format Python code as the course's own."""
    call = [sys.executable, "-m", "ruff", "format", "--quiet", "--line-length", str(WIDTH), "-"]
    return subprocess.run(call, input=text.encode(), capture_output=True, check=True).stdout.decode()


def _beside(text: str) -> str:
    """Put a note of shapes behind the `def` where nothing stands between the two, and both fit into one line."""

    def join(match: re.Match[str]) -> str:
        line = f"{match[1]}  {match[2]}"
        return match[0] if len(line.replace(NOTE, "#")) > WIDTH else f"{line}\n"

    return re.sub(rf"^( *def .*:)\n *({NOTE} .*)\n(?! *{NOTE} )", join, text, flags=re.MULTILINE).replace(NOTE, "#")


class _Edit(NamedTuple):
    """Put `text` in place of the bytes from start to end."""

    start: int
    end: int
    text: str = ""


class _Editor:
    """Finds the edits; of a statement that goes there is one, and none of what stands in it."""

    def __init__(self, source: bytes, without: frozenset[str], checks: bool):
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = [*accumulate(map(len, self.lines), initial=0)]
        self.without, self.checks = without, checks

    def block(self, statements: list[ast.stmt], parent: ast.AST | None) -> tuple[list[_Edit], bool]:
        """Edit a block's statements; tell whether any is left."""
        edits, left = [], False
        for statement in statements:
            inside = self._statement(statement, parent)
            edits += [self._removal(statement)] if inside is None else inside
            left = left or inside is not None
        return edits, left

    def _statement(self, node: ast.stmt, parent: ast.AST | None) -> list[_Edit] | None:
        """List the edits of one statement, or give None where all of it goes."""
        match node:
            case ast.FunctionDef(name=name):
                return None if name in self.without else [*self._signature(node), *self._definition(node, parent)]
            case ast.ClassDef():
                return self._definition(node, parent)
            case ast.If(body=[*_, ast.Raise()], orelse=[]):
                return [] if self.checks else None
            case ast.For(iter=given) if self._uses(given):
                return None
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                return self._compound(node)
            case ast.AnnAssign() if _has_fields(parent):
                return []
            case ast.AnnAssign(value=None):
                return None
            case ast.Assign() | ast.AnnAssign() | ast.Expr() if self._uses(node):
                return None
            case ast.AnnAssign(target=target, annotation=annotation):
                return [_Edit(self._end(target), self._end(annotation))]
            case ast.Expr(value=ast.Call(func=called)) if ast.unparse(called).startswith("check_") and not self.checks:
                return None
        return []

    def _signature(self, node: ast.FunctionDef) -> Iterator[_Edit]:
        """Take the types out of a function's first lines."""
        for argument in _arguments(node):
            if argument.annotation:
                yield _Edit(self._start(argument) + len(argument.arg.encode()), self._end(argument.annotation))
        if node.returns:
            yield _Edit(self.source.rindex(b"->", 0, self._start(node.returns)), self._end(node.returns))
        given: list[ast.expr | ast.arg] = [*_arguments(node), *node.args.defaults, *filter(None, node.args.kw_defaults)]
        end = max(map(self._end, given), default=0)
        if self.source[end : end + 1] == b",":  # with it the arguments would stay one a line
            yield _Edit(end, end + 1)

    def _definition(self, node: ast.FunctionDef | ast.ClassDef, parent: ast.AST | None) -> list[_Edit]:
        """Shorten the documentation, note the shapes, and edit the body."""
        indent = " " * (node.col_offset + 4)
        documentation = ast.get_docstring(node)
        first_line = (documentation or "").split("\n")[0] if parent is None else ""
        notes = [f'"""{first_line}"""'] if first_line else []
        notes += shape_comment(node, WIDTH - len(indent)) if isinstance(node, ast.FunctionDef) else []
        body = node.body[1:] if documentation else node.body
        edits, _ = self.block(body, node)
        text = "".join(f"{indent}{note}\n" for note in notes)
        if documentation:
            edits.append(self._removal(node.body[0])._replace(text=text))
        elif text:
            first = self._removal(body[0]).start
            edits.append(_Edit(first, first, text))
        return edits

    def _compound(self, node: ast.If | ast.For | ast.While | ast.With | ast.Try) -> list[_Edit] | None:
        """Edit a statement that holds others; without any it goes, too."""
        edits, left = self.block(node.body, node)
        others, other_left = self.block(getattr(node, "orelse", []), node)
        return edits + others if left or other_left else None

    def _removal(self, node: ast.stmt) -> _Edit:
        """Take out a statement's lines, with the gap below."""
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]) - 1
        end = node.end_lineno or node.lineno
        while end < len(self.lines) and not self.lines[end].strip():
            end += 1
        return _Edit(self.starts[first], self.starts[end])

    def _uses(self, node: ast.AST) -> bool:
        """Tell whether a name that is left out stands in it."""
        return any(getattr(part, "attr", getattr(part, "id", None)) in self.without for part in ast.walk(node))

    def _start(self, node: ast.expr | ast.arg) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.arg | ast.stmt) -> int:
        return self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def shape_comment(node: ast.FunctionDef, width: int) -> list[str]:
    """Write down the shapes that a function's types tell, as lines of a comment; none where they tell none."""
    shapes = {argument.arg: _shapes(argument.annotation) for argument in _arguments(node)}
    returned = _shapes(node.returns)
    if {*shapes.values(), returned} <= {"", "(…)"}:  # any shape, and the same again
        return []
    given = [f"{name} {shape}" for name, shape in shapes.items() if shape]
    words = [f"{one}," for one in given[:-1]] + given[-1:]
    if returned:
        words.append(f"→ {returned}")
    lines: list[str] = []
    for word in words:
        if lines and len(f"{lines[-1]} {word}") <= width + len(NOTE) - 1:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{NOTE}   {word}" if lines else f"{NOTE} {word}")
    return lines


def _shapes(annotation: ast.expr | None) -> str:
    """Read the shapes in a type: `Float[Tensor, "*batch query d_k"]` says (…, query, d_k)."""
    found = []
    for part in ast.walk(annotation) if annotation else ():
        match part:
            case ast.Subscript(slice=ast.Tuple(elts=[ast.Name(), ast.Constant(value=str(axes))])):
                names = ["…" if axis.startswith("*") else axis.lstrip("#") for axis in axes.split()]
                comma = "," * (len(names) == 1 and "…" not in names)
                found.append(f"({', '.join(names)}{comma})" if names else "a number")
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[_, ast.Constant(value=value)])):
                if value is Ellipsis:
                    found.append("each")
    return ", ".join(found).replace("each, ", "each ")


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    """List a function's arguments in the order in which they are written."""
    given = node.args
    arguments = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [argument for argument in arguments if argument]


def _has_fields(parent: ast.AST | None) -> bool:
    """Tell whether a class makes its fields from their types, as a dataclass or a named tuple does."""
    bases = {base.id for base in getattr(parent, "bases", ()) if isinstance(base, ast.Name)}
    return isinstance(parent, ast.ClassDef) and bool(parent.decorator_list or bases & {"NamedTuple", "Protocol"})
