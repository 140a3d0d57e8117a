"""What is made of the chapters' folders: tables of documents, the small drawings of 01 to 09, the README's pictures.

`annotated_course/chapters/cNN_name/about.toml` says once what a chapter is: its title, what a reader builds, the
minutes, which part of which figure is its picture, what of the whole model it lights, what people
get wrong, and where it takes up a part of the paper. `make sync` writes all this where readers look for it.
"""

import re
import tomllib
from base64 import b64decode
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import nbformat
from PIL import Image, ImageOps

from tools.address import Edit

FOLDERS, DRAWINGS, README = "annotated_course/chapters", "docs/drawings", "README.md"
MISCONCEPTIONS, PAPER_MAP = "docs/MISCONCEPTIONS.md", "docs/PAPER_MAP.md"
BLOCK = re.compile(r"(?<=<!-- made by `make sync`: begin -->\n).*?(?=<!-- made by `make sync`: end -->)", re.DOTALL)
PLACE = re.compile(r"^\| (\[(§[\d.]+(?= )|[^]§]+)[^]]*\]\(https:\S+\)) \| .*", re.MULTILINE)  # a row of PAPER_MAP
PART = re.compile(r'class="(\w+)" data-part="([^"]+)"')  # of where.svg
SIZE = 320, 200  # pixels of a picture; the README shows it smaller, so that it stays sharp on a fine screen
BORDER, COLOURS = 4, 64


class Chapter(NamedTuple):
    """A chapter's folder, its notebook, and what its `about.toml` says."""

    folder: Path
    notebook: Path
    about: dict[str, Any]

    @property
    def number(self) -> str:
        """Its two digits; nothing where the notebook is no chapter but stands beside them."""
        return self.notebook.name[:2] if self.notebook.name[0].isdigit() else ""


def chapters(root: Path) -> list[Chapter]:
    """List the chapters in order, then the notebooks beside them."""
    files = sorted((root / FOLDERS).glob("*/about.toml"))
    names = [re.sub(r"^c(?=\d\d_)", "", file.parent.name) for file in files]
    return [
        Chapter(file.parent, root / "notebooks" / f"{name}.ipynb", tomllib.loads(file.read_text("utf-8")))
        for file, name in zip(files, names, strict=True)
    ]


@cache
def read(notebook: Path) -> nbformat.NotebookNode:
    """Read a notebook, once."""
    return nbformat.read(notebook, as_version=4)


def edits(listed: list[Chapter]) -> list[Edit]:
    """List what stands where documents show what is made of the chapters; a ValueError says what it names in vain."""
    return [
        (README, BLOCK, readme_rows(listed)),
        (MISCONCEPTIONS, BLOCK, misconceptions(listed)),
        (PAPER_MAP, PLACE, lambda row: f"| {row[1]} | {' | '.join(paper_place(listed, row[2]))} |"),
    ]


def drawings(root: Path, listed: list[Chapter]) -> dict[Path, str]:
    """Give the drawing of where in the whole model each chapter is, by its path."""
    folder = root / DRAWINGS
    drawing = (folder / "where.svg").read_text("utf-8")
    lights = {chapter.number: chapter.about["where"] for chapter in listed if "where" in chapter.about}
    return {folder / f"where_{number}.svg": lit(drawing, **where) for number, where in lights.items()}


def readme_rows(listed: list[Chapter]) -> str:
    """Write the README's table of notebooks."""
    rows = ["| a&nbsp;look&nbsp;inside | chapter, and what you build |", "|---|---|"]
    for chapter in listed:
        about = chapter.about
        shown = f'<img src="{FOLDERS}/{chapter.folder.name}/thumb.png" width="100" alt="{about["picture"]["shows"]}">'
        link = f"[{f'{chapter.number} · ' * bool(chapter.number)}{about['title']}](notebooks/{chapter.notebook.name})"
        time = f"{about['minutes']}{'&nbsp;minutes' * isinstance(about['minutes'], int)}"
        rows.append(f"| {shown} | **{link}** · {time}<br>{about['build']} |")
    return "\n".join(rows) + "\n"


def misconceptions(listed: list[Chapter]) -> str:
    """Write the tables of what people think, a chapter each."""
    lines = []
    for chapter in listed:
        if rows := chapter.about.get("misconceptions"):
            lines += [f"\n## {chapter.number} · {chapter.about['title']}\n"]
            lines += ["| they think | ask | the answer | settled in |", "|---|---|---|---|"]
        for row in rows or []:
            heading = row["settled"]
            words = f"section {heading.split('.')[0]}" if heading[0].isdigit() else heading.split(" (")[0]
            lines.append(f"| {row['think']} | {row['ask']} | {row['answer']} | {linked(chapter, heading, words)} |")
    return "\n".join(lines) + "\n\n"


def paper_place(listed: list[Chapter], part: str) -> tuple[str, str, str]:
    """Say where a part of the paper is taken up, what code it became, and which test holds that to it."""
    places = [(chapter, place) for chapter in listed for place in chapter.about.get("places", ())]
    places = [(chapter, place) for chapter, place in places if place["part"] == part]
    places.sort(key=lambda pair: "code" not in pair[1])  # first the chapter that builds it
    sections = [
        linked(chapter, heading, f"{chapter.number}, {heading.split('.')[0] if heading[0].isdigit() else 'Deeper'}")
        for chapter, place in places
        for heading in place["sections"]
    ]
    code = [name.rpartition(".") for _, place in places for name in place.get("code", ())]
    tests = [name.split(".") for _, place in places for name in place.get("tests", ())]
    return (
        ", ".join(sections) or "not in this course",
        ", ".join(f"[{name}](../{module.replace('.', '/')}.py)" for module, _, name in code) or "–",
        ", ".join(f"[{name}](../tests/{file}.py)" for file, name in tests) or "–",
    )


def linked(chapter: Chapter, heading: str, words: str) -> str:
    """Link to a heading of a chapter, or raise a ValueError, from a document in `docs`, spelled as JupyterLab does."""
    prose = "\n".join(cell.source for cell in read(chapter.notebook).cells if cell.cell_type == "markdown")
    if heading not in re.findall(r"^#+ (.*)", prose, re.MULTILINE):
        raise ValueError(f"{chapter.folder.name}/about.toml: {chapter.notebook.name} has no heading {heading!r}.")
    anchor = quote(heading.replace(" ", "-").replace("`", ""), safe="?,:!'")
    return f"[{words}](../notebooks/{chapter.notebook.name}#{anchor})"


def lit(drawing: str, here: str, lights: list[str]) -> str:
    """Light the parts of the small model that a chapter is about."""
    drawing = PART.sub(lambda part: f'class="{part[1]}{" lit" * bool({*part[2].split(", ")} & {*lights})}"', drawing)
    return drawing.replace("HERE", here)


def picture(chapter: Chapter) -> Image.Image:
    """Cut a chapter's small picture out of the figure that its `about.toml` names; a ValueError if that isn't one."""
    about = chapter.about["picture"]
    outputs = [output for cell in read(chapter.notebook).cells for output in cell.get("outputs", [])]
    described = [(output.get("metadata", {}).get("image/png", {}).get("alt", ""), output) for output in outputs]
    figures = [output.data["image/png"] for words, output in described if words.startswith(about["figure"])]
    if len(figures) != 1:
        number, words = len(figures), about["figure"]
        raise ValueError(f"{chapter.notebook.stem}: {number} figures are described as “{words} …”; it must be one.")
    whole = Image.open(BytesIO(b64decode(figures[0]))).convert("RGB")
    cut = whole.crop([int(part * whole.size[i % 2]) for i, part in enumerate(about["cut"])])
    written = ImageOps.invert(cut.convert("L")).point(lambda depth: 255 * (depth > 8))  # all but the white
    room = SIZE[0] - 2 * BORDER, SIZE[1] - 2 * BORDER
    cut = ImageOps.pad(cut.crop(written.getbbox()), room, Image.Resampling.LANCZOS, color="white")
    return ImageOps.expand(cut, BORDER, "white").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
