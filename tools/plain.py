"""Reduce a definition to what computes: for `09_whole_transformer`, where the whole model stands on one page.

What goes: types; comments; checks of what was given (`if …: raise`, calls of `check_…`); of the documentation all
but the first line of the definition itself; and what a cell's metadata leaves out by name. What stays is the code.
"""

import ast
import subprocess
import sys
from collections.abc import Collection


def plain(source: str, without: Collection[str] = ()) -> str:
    """Write a definition without types, checks and the longer part of its documentation.

    Args:
        source: the text of one function or class.
        without: names of methods, variables and attributes; methods of such a name go, and statements that use one.
    """
    tree = _Plain(without).visit(ast.parse(source))
    text = ast.unparse(ast.fix_missing_locations(tree))
    for command in (["check", "--fix", "--select", "UP034"], ["format"]):  # `unparse` doubles some parentheses
        call = [sys.executable, "-m", "ruff", *command, "--quiet", "--line-length", "120", "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text.rstrip("\n")


class _Plain(ast.NodeTransformer):
    """Visits statements only; a statement that goes is replaced by nothing, and so is one whose body has gone."""

    def __init__(self, without: Collection[str]):
        self.without = frozenset(without)
        self.inside: list[ast.AST] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name in self.without:
            return None
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        for argument in filter(None, arguments):
            argument.annotation = None
        node.returns = None
        return self._define(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._define(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self.inside and isinstance(self.inside[-1], ast.ClassDef) and self.inside[-1].decorator_list:
            return node  # a dataclass needs the types of its fields
        return node.value and self.visit(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if isinstance(node.body[-1], ast.Raise) and not node.orelse else self._compound(node)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        return None if self._names(node.iter) & self.without else self._compound(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if self._names(node) & self.without else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        checks = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("check_")
        return None if checks or self._names(node) & self.without else node

    def _define(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        first_line = (ast.get_docstring(node) or "").split("\n")[0]
        if first_line:
            del node.body[0]
        self.inside.append(node)
        self.generic_visit(node)
        self.inside.pop()
        if first_line and not self.inside:
            node.body.insert(0, ast.Expr(ast.Constant(first_line)))
        return node

    def _compound(self, node: ast.If | ast.For) -> ast.AST | None:
        self.generic_visit(node)
        if not node.body and node.orelse:
            node.body = [ast.Pass()]
        return node if node.body else None

    @staticmethod
    def _names(node: ast.AST) -> frozenset[str]:
        named = (getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node))
        return frozenset(name for name in named if name)
