"""Build the site from the notebooks as they are saved: `make site`, or `python -m tools.site [FOLDER]`.

The pages are laid out as the repository is, so that links between them keep working: the README is the first page, then
the chapters, the notebooks beside them, the solutions, the other documents, and a page for each file of the module. A
link to a file that is no page becomes a download; to a file of the module, its page; to a folder, plain text. An SVG
becomes part of the page that shows it, so that its links work. Nothing is executed, and nothing is asked of any other
host, now or by a reader's browser. A link that leads nowhere ends the build, and is named.
"""

import argparse
import os
import re
import shutil
import sys
from html import escape
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote

import nbformat
from docutils.nodes import make_id
from fontTools.ttLib import TTFont
from sphinx.cmd.build import build_main

from tools.sync import PACKAGES, ROOT, is_lesson, notebook_paths

DOCUMENTS = [
    "docs/PAPER_MAP.md",
    "docs/RESULTS.md",
    "docs/TEACHING.md",
    "docs/MISCONCEPTIONS.md",
    "CONTRIBUTING.md",
    "docs/PAPER_RUN.md",
    "docs/PYTORCH.md",
    "docs/DOCTOR.md",
    "CHANGELOG.md",
    "data/README.md",
    "data/checkpoints/README.md",
]
FONT = "STIXTwoMath-Regular"  # of the formulas
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
ALSO = re.compile(r"^<small>Also asked as: (.+)</small>$", re.MULTILINE)
DETAILS = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.DOTALL)


def main() -> int:
    """Lay out the sources and build; return Sphinx's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "site", help="where to put the pages")
    folder = parser.parse_args().folder
    source = folder.with_name(folder.name + "-source")
    for old in (folder, source):
        shutil.rmtree(old, ignore_errors=True)
    lay_out(source)
    status = build_main(["-W", "--keep-going", "-q", "-d", f"{source}/.trees", str(source), str(folder)])
    for path in notebook_paths():  # what is downloaded is the notebook itself
        shutil.copy(path, folder / "_sources" / path.relative_to(ROOT))
    return status


def lay_out(source: Path) -> None:
    """Write what Sphinx reads.

    Args:
        source: a folder that does not exist yet.

    Raises:
        FileNotFoundError: a page links to something that is not there.
    """
    (source / "_static").mkdir(parents=True)
    for name in ("conf.py", "scorer.js"):
        shutil.copy(ROOT / "docs" / "site" / name, source)
    shutil.copy(ROOT / "docs" / "site" / "style.css", source / "_static")
    font = TTFont(distribution("ziamath").locate_file(f"ziamath/fonts/{FONT}.ttf"), recalcTimestamp=False)
    font.flavor = "woff"  # half as long
    font.save(source / "_static" / f"{FONT}.woff")
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    modules = [path.relative_to(ROOT) for path in files if is_public(path)]
    notebooks = [path.relative_to(ROOT) for path in notebook_paths()]
    for path in notebooks:
        notebook = nbformat.read(ROOT / path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = indexed(page_text(cell.source, path, source))
            for output in cell.get("outputs", []):
                if described := output.get("metadata", {}).get("image/png", {}).get("alt"):
                    cell.metadata["mystnb"] = {"image": {"alt": described}}
        write(source / path, nbformat.writes(notebook))
    for name in DOCUMENTS:
        write(source / name, page_text((ROOT / name).read_text(encoding="utf-8"), Path(name), source))
    for path in modules:
        name = module_name(path)
        write(source / page_of(path), f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n")
    contents = {
        "Chapters": [path for path in notebooks if is_lesson(path)],
        "Beside the chapters": [path for path in notebooks if path.parent.name == "notebooks" and not is_lesson(path)],
        "Solutions": [path for path in notebooks if path.parent.name == "solutions"],
        "Documents": [Path(name) for name in DOCUMENTS],
        "The module": [page_of(path) for path in modules],
    }
    readme = page_text((ROOT / "README.md").read_text(encoding="utf-8"), Path("README.md"), source)
    trees = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n"
        + "\n".join(path.with_suffix("").as_posix() for path in paths)
        for caption, paths in contents.items()
        if paths
    ]
    write(source / "index.md", "\n\n".join([readme, *(f"{tree}\n```" for tree in trees)]) + "\n")


def is_public(path: Path) -> bool:
    """Tell whether a file of the module gets a page: the exercises' checks would give the answers away."""
    return path.name not in ("__init__.py", "__main__.py") and "exercises" not in path.parts


def module_name(path: Path) -> str:
    """Give the dotted name of a file of the module."""
    return ".".join(path.with_suffix("").parts)


def page_of(path: Path) -> Path:
    """Give the page of a file of the module."""
    return Path("api") / f"{module_name(path)}.md"


def page_text(text: str, page: Path, source: Path) -> str:
    """Give a page's Markdown as Sphinx wants it, and copy the files that it links to.

    Args:
        text: the Markdown as it is in the repository.
        page: where that is, from the root.
        source: the folder that Sphinx will read.

    Raises:
        FileNotFoundError: a link leads nowhere.
    """

    def follow(link: re.Match[str]) -> str:
        mark, label, address, anchor = link.groups(default="")
        target = Path(os.path.normpath(page.parent / address))
        found = ROOT / target
        if not found.exists():
            raise FileNotFoundError(f"{page}: the link [{label}]({address}) leads nowhere.")
        if found.is_dir():
            return label
        if mark and target.suffix == ".svg":
            return drawing(target, label, page)
        if target.parts[0] in PACKAGES:
            target = page_of(target)
        elif target == Path("README.md"):
            target = Path("index.md")
        elif target.suffix == ".ipynb":  # JupyterLab and MyST spell the address of a heading differently
            anchor = re.sub(r"[^\w#-]", "", unquote(anchor).lower())
        elif target.as_posix() not in DOCUMENTS:
            (source / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, source / target)
        return f"{mark}[{label}]({os.path.relpath(target, page.parent)}{anchor})"

    outside_code = re.split(r"(```.*?```|`[^`\n]+`)", text, flags=re.DOTALL)
    outside_code[::2] = [LINK.sub(follow, part) for part in outside_code[::2]]
    # Markdown reads what stands between tags only after an empty line.
    return DETAILS.sub(r"<details><summary>\1</summary>\n\n\2\n\n</details>", "".join(outside_code))


def indexed(text: str) -> str:
    """Enter other wordings of a question into the index, which the search reads, at the question's heading.

    Args:
        text: a cell's Markdown, perhaps with a line "Also asked as: …" below its heading of the third level.
    """
    if not (also := ALSO.search(text)):
        return text
    entries = [f"```{{index}} ! single: {wording}\n```\n\n" for wording in also[1].split(" · ")]  # !: found first
    return re.sub("^(?=### )", lambda _: "".join(entries), text, count=1, flags=re.MULTILINE)


def drawing(picture: Path, alt: str, page: Path) -> str:
    """Give an SVG as it stands in a page, where its links to notebooks' headings lead to the pages of these.

    Args:
        picture: the SVG, from the root, without an empty line.
        alt: what it shows, in words.
        page: the page that shows it, from the root.
    """

    def follow(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(picture.parent / link[1])).with_suffix(".html")
        anchor = make_id(unquote(link[2]).replace("-", " "))
        return f'href="{os.path.relpath(target, page.parent)}#{anchor}"'

    text = re.sub(r'href="([^"#]+\.ipynb)#([^"]+)"', follow, (ROOT / picture).read_text(encoding="utf-8"))
    return f'<div role="group" aria-label="{escape(alt)}">\n{text}</div>'


def write(path: Path, text: str) -> None:
    """Write a file, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
