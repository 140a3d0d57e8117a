"""Write what has its source elsewhere: `make sync`, or `python -m tools.sync [--check]`.

These are the definitions that notebooks show, their first cell and the course's address (`tools.address`), and what is
made of the chapters' folders (`tools.chapters`).

A code cell asks for it in its metadata, with the full name of one object or a list of names from one file:

    {"annotated": {"source": "annotated.multi_head.MultiHeadAttention"}}
    {"annotated": {"source": ["annotated.masking.padding_mask", "annotated.masking.causal_mask"]}}

The cell then holds a comment with the file's path and, word for word, the source of what is named. With "plain" in
place of "source" it holds what a lesson shows of it, as `tools.plain` writes it, without the names under "without".
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

from tools.address import addressed, read_address, with_first_cell
from tools.chapters import chapters, documents, picture
from tools.plain import plain

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("annotated", "annotated_course", "annotated_workbench")


def notebook_paths(root: Path = ROOT) -> list[Path]:
    """List the lessons, the notebooks beside them and the solutions, in order."""
    return sorted(path for path in (root / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def is_lesson(path: Path) -> bool:
    """Tell whether a notebook is a lesson: it has a number, exercises, and solutions. `questions` has none of these."""
    return path.parent.name == "notebooks" and path.name[:2].isdigit()


def names_defined(statement: ast.stmt) -> set[str]:
    """Name what a statement at the top of a file defines: a function, a class or a constant."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            single = (one for target in targets for one in getattr(target, "elts", [target]))
            return {target.id for target in single if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def definition(source: str, name: str) -> str | None:
    """Cut a function, class or constant out of a file's text, with its decorators; None where the file has none."""
    for statement in ast.parse(source).body:
        if name in names_defined(statement):
            first = min([statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", []))])
            return "\n".join(source.split("\n")[first - 1 : statement.end_lineno])
    return None


def cell_source(metadata: Mapping[str, Any], root: Path = ROOT) -> str:
    """Write the text of the cell that shows what its metadata asks for.

    Raises:
        ValueError: a name is not known, or the names are not all from one file.
    """
    names = metadata.get("plain") or metadata["source"]
    full_names = [names] if isinstance(names, str) else names
    modules = {full_name.rpartition(".")[0] for full_name in full_names}
    if len(modules) != 1:
        raise ValueError(f"one cell shows objects of one file; got {full_names}. Give each file a cell of its own.")
    relative = Path(modules.pop().replace(".", "/") + ".py")
    if not (root / relative).is_file():
        raise ValueError(f"{full_names[0]}: there is no file {relative}. Write package.module.object in the metadata.")
    text = (root / relative).read_text(encoding="utf-8")
    found = {full_name: definition(text, full_name.rpartition(".")[2]) for full_name in full_names}
    missing = [full_name for full_name, source in found.items() if source is None]
    if missing:
        raise ValueError(f"{', '.join(missing)}: {relative} defines no such function, class or constant.")
    if "plain" in metadata:
        found = {name: plain(source, metadata.get("without", ())) for name, source in found.items() if source}
    return f"# {relative.as_posix()}\n" + "\n\n\n".join(found.values())


def stale_cells(notebook: nbformat.NotebookNode, root: Path = ROOT) -> Iterator[tuple[int, nbformat.NotebookNode, str]]:
    """Find the cells that differ from the module: their number (from 0), the cell, and the text it should have."""
    for number, cell in enumerate(notebook.cells):
        metadata = cell.metadata.get("annotated")
        if metadata:
            expected = cell_source(metadata, root)
            if cell.source != expected:
                yield number, cell, expected


def refresh(root: Path) -> Iterator[tuple[Path, str, Callable[[], object]]]:
    """Find what differs from its source: the file, the reason, and what brings it up to date.

    Raises:
        ValueError: a source or a place for it is missing.
    """
    repository = read_address(root)
    for path, text in documents(root, addressed(root)).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, "pyproject.toml, or the chapters' about.toml", partial(path.write_text, text, encoding="utf-8")
    for chapter in chapters(root):
        path, drawn = chapter.folder / "thumb.png", picture(chapter)
        if not path.exists() or Image.open(path).convert("RGB").tobytes() != drawn.convert("RGB").tobytes():
            yield path, "the chapter's figure", partial(drawn.save, path, optimize=True)
    for path in notebook_paths(root):
        given = nbformat.read(path, as_version=4)
        notebook = with_first_cell(given, repository)
        reasons = ["the first cell, from tools/address.py"] * (notebook != given)
        try:
            for number, cell, expected in stale_cells(notebook, root):
                cell.source = expected
                reasons.append(f"cell {number}, from {expected.splitlines()[0][2:]}")
        except ValueError as error:
            raise ValueError(f"{path.relative_to(root).as_posix()}: {error}") from error
        if reasons:
            yield path, "; ".join(reasons), partial(nbformat.write, notebook, path)


def main() -> int:
    """Refresh everything, or with --check only list what differs; 1 if anything did, 2 on bad input."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, list what differs, exit with 1")
    check = parser.parse_args().check
    try:
        differing = list(refresh(ROOT))
    except (OSError, KeyError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for path, reason, write in differing:
        print(f"{path.relative_to(ROOT).as_posix()}: {'differs' if check else 'refreshed'}, {reason}")
        if not check:
            write()
    if not differing:
        print("All is as its sources say.")
    elif check:
        print("Run `make sync`, then `make notebooks`.")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
