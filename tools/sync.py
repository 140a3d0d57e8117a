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
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

from tools import address, chapters
from tools.address import Edit, read_address, with_first_cell
from tools.plain import plain

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("annotated", "annotated_course", "annotated_workbench")


def notebook_paths(root: Path = ROOT) -> list[Path]:
    """List the lessons, the notebooks beside them and the solutions, in order."""
    return sorted(path for path in (root / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def is_lesson(path: Path) -> bool:
    """Tell whether a notebook is a lesson: it has a number, exercises, and solutions. `questions` has none of these."""
    return path.parent.name == "notebooks" and path.name[:2].isdigit()


def definition(source: str, name: str) -> str | None:
    """Cut a function, class or constant out of a file's text, with its decorators; None where the file has none."""
    for statement in ast.parse(source).body:
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", ast.Pass())]
        constants = {getattr(node, "id", None) for target in targets for node in ast.walk(target)}
        if name in {getattr(statement, "name", None), *constants}:
            first = min([statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", []))])
            return "\n".join(source.split("\n")[first - 1 : statement.end_lineno])
    return None


def cell_source(metadata: Mapping[str, Any], root: Path = ROOT) -> str:
    """Write the text of the cell that shows what its metadata asks for; a ValueError says what its file lacks."""
    names = metadata.get("plain") or metadata["source"]
    full_names = [names] if isinstance(names, str) else names
    module = full_names[0].rpartition(".")[0]
    relative = Path(module.replace(".", "/") + ".py")
    text = (root / relative).read_text(encoding="utf-8")
    sources = []
    for full_name in full_names:
        source = definition(text, full_name.removeprefix(f"{module}."))
        if source is None:
            raise ValueError(f"{full_name}: {relative} defines no such function, class or constant.")
        sources.append(plain(source, metadata.get("without", ())) if "plain" in metadata else source)
    return f"# {relative.as_posix()}\n" + "\n\n\n".join(sources)


def edited(root: Path, edits: list[Edit]) -> dict[Path, str]:
    """Give the text that each document should have, by its path; a ValueError says which has lost a place for it."""
    texts: dict[Path, str] = {}
    for name, place, new in edits:
        text = texts.get(root / name) or (root / name).read_text(encoding="utf-8")
        texts[root / name], count = place.subn(new if callable(new) else lambda _, new=new: new, text)
        if not count:
            raise ValueError(f"{name}: there is no place for what belongs there, like {place.pattern!r}.")
    return texts


def refresh(root: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Find what differs from its source: the file, and what updates it; a ValueError names what has no source."""
    repository, listed = read_address(root), chapters.chapters(root)
    texts = edited(root, [*address.edits(repository), *chapters.edits(listed)]) | chapters.drawings(root, listed)
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, partial(path.write_text, text, encoding="utf-8")
    for chapter in listed:
        path, drawn = chapter.folder / "thumb.png", chapters.picture(chapter)
        if not path.exists() or Image.open(path).convert("RGB").tobytes() != drawn.convert("RGB").tobytes():
            yield path, partial(drawn.save, path, optimize=True)
    for path in notebook_paths(root):
        given = nbformat.read(path, as_version=4)
        notebook = with_first_cell(copy.deepcopy(given), repository)
        for cell in notebook.cells:
            if asked := cell.metadata.get("annotated"):
                cell.source = cell_source(asked, root)
        if notebook != given:
            yield path, partial(nbformat.write, notebook, path)


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
    for path, write in differing:
        print(f"{path.relative_to(ROOT).as_posix()}: {'differs from its source' if check else 'refreshed'}")
        if not check:
            write()
    print(f"{len(differing)} files were not as their sources say." if differing else "All is as its sources say.")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
