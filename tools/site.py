"""Build the site from the notebooks as they are saved: `make site`, or `python -m tools.site [FOLDER]`.

The pages are laid out as the repository is, so that links between them keep working: the README is the first page, then
the chapters, the notebooks beside them, the solutions, the other documents, and a page for each file of the module. A
link to a file that is no page becomes a download; to a file of the module, its page; to a folder, the list of its pages
or plain text. The live page stays as it is, with all that lies beside it. An SVG becomes part of the page that shows
it, so that its links work. Nothing is executed, and nothing is asked of any other host, now or by a reader's browser. A
link that leads nowhere ends the build, and is named.
"""

import argparse
import ast
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable
from html import escape, unescape
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import nbformat
from docutils.nodes import make_id
from fontTools import subset
from sphinx.cmd.build import build_main

from annotated_workbench.files import emptied
from tools.address import UNSEEN
from tools.sync import PACKAGES, ROOT, is_lesson, notebook_paths

DOCUMENTS = [f"docs/{name}.md" for name in ("INSTALL", "WAYS", "COMMANDS", "PAPER_MAP", "RESULTS", "TEACHING")]
DOCUMENTS += ["docs/MISCONCEPTIONS.md", "CONTRIBUTING.md", "docs/PAPER_RUN.md", "docs/PYTORCH.md", "docs/DOCTOR.md"]
DOCUMENTS += ["docs/SERVING.md", "CHANGELOG.md", "data/README.md", "data/checkpoints/README.md"]
LIVE = Path("docs/live")  # pages of its own, with all that they need beside them
WIDE = "---\nhtml_theme.sidebar_secondary.remove: true\n---"  # no list of its own headings beside the first page
SOLUTIONS = Path("notebooks/solutions")
API = Path("api")
FONT = "STIXTwoMath-Regular"  # of the formulas
# What a browser draws though no formula writes it: the root, and the slanted h, Latin and Greek letters of variables.
DRAWN = [0x221A, 0x210E, *range(0x1D434, 0x1D468), *range(0x1D6A8, 0x1D71C)]
LINK = re.compile(r"(!?)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
ATTRIBUTE = re.compile(r'\b(href|src|srcset)="(?![a-z]+:|#)([^"#]+)(#[^"]*)?"')
ALSO = re.compile(r"^<small>Also asked as: (.+)</small>$", re.MULTILINE)
DETAILS = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.DOTALL)


def main() -> int:
    """Lay out the sources and build; return Sphinx's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "site", help="where to put the pages")
    try:
        folder = emptied(parser.parse_args().folder.resolve())
        source = emptied(folder.with_name(folder.name + "-source"))
    except OSError as error:
        parser.error(str(error))
    lay_out(source)
    cores = str(min(os.cpu_count() or 1, 4))
    status = build_main(["-W", "--keep-going", "-q", "-j", cores, "-d", f"{source}/.trees", str(source), str(folder)])
    (folder / "_static" / "scripts" / "fontawesome.js").write_text("")  # 1.5 MB for icons of one's own: there are none
    for template in (folder / "_static").glob("*.html"):  # the theme's own, whose links lead nowhere
        template.unlink()
    pages = (path.read_text(encoding="utf-8") for path in folder.rglob("*.html"))
    formulas = "".join(formula for page in pages for formula in re.findall(r"<math.*?</math>", page, re.DOTALL))
    (folder / "_static" / f"{FONT}.woff").write_bytes(math_font(formulas, DRAWN))
    for path in notebook_paths():  # what is downloaded is the notebook itself
        shutil.copy(path, folder / "_sources" / path.relative_to(ROOT))
    return status


def lay_out(source: Path) -> None:
    """Write what Sphinx reads; a FileNotFoundError names a link that leads nowhere."""
    shutil.copytree(ROOT / LIVE, source / "_extra" / LIVE)
    for name, folder in {"conf.py": "", "scorer.js": "", "style.css": "_static"}.items():
        (source / folder).mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / "site" / name, source / folder)
    shutil.copytree(ROOT / "docs" / "site", source / "_templates", ignore=shutil.ignore_patterns("*.[!h]*"))
    live = (ROOT / LIVE / "index.html").read_text(encoding="utf-8")
    write(source / "_extra" / LIVE / "index.html", live.replace('data-course=""', 'data-course="../.."'))
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
    modules: dict[Path, str] = {}
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        relative = path.relative_to(ROOT)
        # The exercises' checks would give the answers away.
        if path.stem not in ("__init__", "__main__") and not {"exercises", "chapters"} & {*relative.parts, path.stem}:
            page = page_of(relative)
            purpose = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
            purpose = re.sub(r"([*_|])", r"\\\1", purpose)
            modules[page] = f"- [{page.stem}]({page.name}): {purpose}"
            write(source / page, f"# {page.stem}\n\n```{{eval-rst}}\n.. automodule:: {page.stem}\n```\n")
    solutions = [path for path in notebooks if path.parent == SOLUTIONS]
    write(source / SOLUTIONS / "index.md", f"# Solutions\n\n{contents(solutions, SOLUTIONS)}")
    lines = "\n".join(modules.values())
    write(source / API / "index.md", f"# The module\n\n{lines}\n\n{contents(modules, API, ':hidden:')}")
    beside = [path for path in notebooks if path.parent.name == "notebooks" and not is_lesson(path)]
    lists = {
        "Chapters": [path for path in notebooks if is_lesson(path)],
        "Beside the chapters": [*beside, SOLUTIONS / "index.md", API / "index.md"],
        "Documents": [Path(name) for name in DOCUMENTS],
    }
    readme = page_text((ROOT / "README.md").read_text("utf-8").replace(UNSEEN, ""), Path("README.md"), source)
    trees = [contents(paths, Path(), ":hidden:", f":caption: {caption}") for caption, paths in lists.items()]
    write(source / "index.md", "\n\n".join([WIDE, readme, *trees]))


def math_font(formulas: str, drawn: Iterable[int] = (), **options: object) -> bytes:
    """Cut the formulas' font down to the characters that they have: a tenth of the whole."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # Sphinx turns it on
    settings, file = subset.Options(flavor="woff", recalc_timestamp=False, **options), BytesIO()
    cut = subset.Subsetter(settings)
    cut.populate(text=unescape(re.sub("<[^>]*>", "", formulas)), unicodes=drawn)
    with subset.load_font(distribution("ziamath").locate_file(f"ziamath/fonts/{FONT}.ttf"), settings) as whole:
        cut.subset(whole)
        subset.save_font(whole, file, settings)
    return file.getvalue()


def contents(pages: Iterable[Path], folder: Path, *options: str) -> str:
    """Give a table of contents, which also says which page follows which."""
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in pages)
    return "\n".join(["```{toctree}", *(options or (":maxdepth: 1",)), "", *names, "```", ""])


def page_of(path: Path) -> Path:
    """Give the page of a file of the module."""
    return API / f"{'.'.join(path.with_suffix('').parts)}.md"


def page_for(target: Path) -> Path | None:
    """Give the source of the page that shows a file or folder of the repository; None if there is none."""
    index = Path("index.md")
    named = {SOLUTIONS: SOLUTIONS / index, Path("annotated"): API / index, Path("README.md"): index}
    if target in named:
        return named[target]
    if target.parts[0] in PACKAGES and target.suffix == ".py":
        return page_of(target)
    return target if target.suffix == ".ipynb" or target.as_posix() in DOCUMENTS else None


def page_text(text: str, page: Path, source: Path) -> str:
    """Give a page's Markdown as Sphinx wants it, and copy the files that it links to; errors as for `lay_out`."""

    def resolved(link: re.Match[str], address: str) -> tuple[Path, Path | None]:
        target = Path(os.path.normpath(page.parent / (address or page.name)))
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page}: the link {link[0]} leads nowhere.")
        return target, page_for(target)

    def copy(target: Path, folder: Path) -> None:
        if (ROOT / target).is_file() and not target.is_relative_to(LIVE):
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, folder / target)

    def follow(link: re.Match[str]) -> str:
        mark, label, address, anchor = link.groups(default="")
        label = LINK.sub(follow, label)
        target, built = resolved(link, address)
        if mark and target.suffix == ".svg":
            return drawing(target, label, page)
        if target.is_relative_to(LIVE):
            return f'<a href="{address}{anchor}">{label}</a>'
        if built is None:
            if (ROOT / target).is_dir():
                return label
            copy(target, source)
        if target.suffix == ".ipynb":  # JupyterLab and MyST spell the address of a heading differently
            anchor = re.sub(r"[^\w#-]", "", unquote(anchor).lower())
        return f"{mark}[{label}]({os.path.relpath(built or target, page.parent)}{anchor})"

    def follow_html(link: re.Match[str]) -> str:
        name, address, anchor = link.groups(default="")
        target, built = resolved(link, address)
        if built is None:
            copy(target, source / "_extra")
        elif built.suffix == ".ipynb":
            anchor = anchor and f"#{make_id(unquote(anchor).replace('-', ' '))}"
        return f'{name}="{os.path.relpath(built.with_suffix(".html") if built else target, page.parent)}{anchor}"'

    outside_code = re.split(r"(```.*?```|`[^`\n]+`)", text, flags=re.DOTALL)
    outside_code[::2] = [LINK.sub(follow, ATTRIBUTE.sub(follow_html, part)) for part in outside_code[::2]]
    # Markdown reads what stands between tags only after an empty line.
    return DETAILS.sub(r"<details><summary>\1</summary>\n\n\2\n\n</details>", "".join(outside_code))


def indexed(text: str) -> str:
    """Enter other wordings of a question, "Also asked as: …", into the search's index, at the question's heading."""
    if not (also := ALSO.search(text)):
        return text
    entries = [f"```{{index}} ! single: {wording}\n```\n\n" for wording in also[1].split(" · ")]  # !: found first
    return re.sub("^(?=### )", lambda _: "".join(entries), text, count=1, flags=re.MULTILINE)


def drawing(picture: Path, alt: str, page: Path) -> str:
    """Give an SVG as it stands in a page, where its links to notebooks' headings lead to the pages of these."""

    def follow(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(picture.parent / link[1])).with_suffix(".html")
        return f'href="{os.path.relpath(target, page.parent)}#{make_id(unquote(link[2]).replace("-", " "))}"'

    text = re.sub(r'href="([^"#]+\.ipynb)#([^"]+)"', follow, (ROOT / picture).read_text(encoding="utf-8"))
    return f'<div role="group" aria-label="{escape(alt)}">\n{text}</div>'


def write(path: Path, text: str) -> None:
    """Write a file, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
