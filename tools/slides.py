"""Make slides of each chapter, as it is saved: python -m tools.slides [FOLDER] [--chapters 01 08]

One HTML file a chapter, which needs no network and no other file. It takes the opening, how each section begins, what a
reader is asked to guess, before the answer is seen, then what is printed, figures, tables, formulas, short finished
code, *Try breaking it*, the summary and the exercises' names: nothing folded, no answer to an exercise.
"""

# `jupyter nbconvert --to slides` will not do: its pages load reveal.js, MathJax, RequireJS and jQuery from other hosts
# (`reveal_url_prefix` names another place, but embeds nothing), and leave out the figures' alternative texts.
import argparse
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from annotated_workbench.files import write_ours
from tools.site import math_font
from tools.sync import ROOT, is_lesson, notebook_paths

LINES = 22  # of code on a slide; a longer definition is read in the notebook
INTRODUCTION, LEAD, CONTEXT = 330, 190, 300  # characters below a heading, above a table, and before a guess

LINK = re.compile(r"(?<!!)\[([^]]*)\]\([^)]*\)|<details>.*?</details>", re.DOTALL)
GUESS = re.compile(r"\*\*Guess first[.:]?\*\*[.:,]?\s*|(?=\*\*[^*]+\?[^*]*\*\*)")
SENTENCE = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\)))\s+(?=[A-Z*“(])")
CARD = re.compile(r"### Exercise ([^\n]+)\n.*\n\*\*Difficulty\*\* (\S+) · ([^·]+) · ", re.DOTALL)
MARKDOWN = MarkdownIt("commonmark").enable("table")
MARKDOWN.use(  # as in docs/site/conf.py
    dollarmath_plugin,
    renderer=lambda text, options: convert(
        text.replace(r"\tfrac", r"\frac").strip(), display="block" if options["display_mode"] else "inline"
    ),
)


def blocks(source: str) -> Iterator[tuple[str, str]]:
    """Cut a cell's Markdown into headings, paragraphs, lists …, without links and what is, or speaks of, folded."""
    lines = (source := LINK.sub(r"\1", source)).split("\n")
    for token in MARKDOWN.parse(source):
        if token.level == 0 and token.map:
            text = "\n".join(lines[slice(*token.map)]).strip()
            sentences = [one for one in SENTENCE.split(text) if "folded" not in one]
            yield token.tag, " ".join(sentences) if token.tag == "p" else text


def rendered(text: str) -> str:
    """Write Markdown as HTML, its drawings inside."""
    html = MARKDOWN.render(text)
    for path in re.findall(r'src="(\.\./[^"]+\.svg)"', html):
        drawing = b64encode((ROOT / "notebooks" / path).read_bytes()).decode()
        html = html.replace(path, f"data:image/svg+xml;base64,{drawing}")
    return html


def shortened(text: str, most: int, end: bool = False) -> str:
    """Keep the sentences at a text's beginning, or at its end, that fit into so many characters, bold text whole."""
    kept = SENTENCE.split(text.strip())
    while kept and (len(" ".join(kept)) > most or " ".join(kept).count("**") % 2):
        kept.pop(0 if end else -1)
    return " ".join(kept)


def preformatted(text: str, colour: bool = False) -> str:
    """Write code, in colours, or what it prints; very long lines are broken."""
    kind = "wide " * (max(map(len, text.split("\n"))) > (96 if colour else 120)) + "code" * colour
    inner = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)) if colour else escape(text)
    return f'<pre class="{kind}">{inner}</pre>'


@dataclass
class Slide:
    """A slide: its kind, its section, and its content as HTML."""

    kind: str
    heading: str
    body: str


class Deck:
    """The slides of a chapter, made block by block and cell by cell."""

    def __init__(self) -> None:
        self.slides: list[Slide] = []
        self.heading = self.before = ""
        self.asked = self.introducing = False

    def add(self, kind: str, body: str) -> None:
        """Put a slide at the end, under the present heading."""
        self.slides.append(Slide(kind, self.heading, body))
        self.asked, self.introducing = kind == "guess", False

    def read(self, kind: str, text: str) -> None:
        """Take what a class should see of a block of text."""
        guess = GUESS.search(text) if kind == "p" else None
        breaking = "Try breaking it" in self.heading
        if kind == "h2":
            self.heading, self.introducing = text.lstrip("# "), True
        elif kind == "h3":
            self.heading, self.asked = f"{self.heading.split(' · ')[0]} · {text.lstrip('# ')}", False
        elif guess:
            question = re.sub(r"^\**[a-z]", lambda first: first[0].upper(), text[guess.end() :])
            # What stands on the slide before is not said again.
            seen = self.slides[-1].kind == "section" or self.before.startswith(("|", "$", "!", ">"))
            context = text[: guess.start()] or ("" if seen else self.before)
            context = context if context.startswith("-") else shortened(context, CONTEXT, end=True)
            self.add("guess", f"<h3>Guess first</h3>{rendered(context)}<div>{rendered(question)}</div>")
        elif kind in ("ol", "ul") and (breaking or (self.asked and not self.before.endswith("?"))):
            self.slides[-1].body += rendered(text)  # the question goes on
        elif text.startswith("!["):
            self.add("figure", rendered(text))
        elif kind in ("math", "table") and text.count("\n") < LINES // 2:  # longer tables are for reading
            lead = shortened(self.before, LEAD, end=True) if self.before.endswith(":") else ""
            self.add(kind, rendered(lead) + rendered(text))
        elif kind == "p" and self.introducing:
            self.add("section", rendered(f"## {self.heading}\n\n{text if breaking else shortened(text, INTRODUCTION)}"))
        self.before = text

    def run(self, cell: nbformat.NotebookNode) -> None:
        """Take what a class should see of a code cell and of what it shows."""
        asked, folded = self.asked, cell.metadata.get("jupyter", {}).get("source_hidden", False)
        length = cell.source.count("\n")
        if "annotated" in cell.metadata and not folded and length < LINES:
            self.add("listing", preformatted(re.sub("\n\n+", "\n\n", cell.source), colour=True))
        for output in cell.outputs:
            shown = output.get("data", {})
            if "image/png" in shown:
                url = f"data:image/png;base64,{shown['image/png']}".replace("\n", "")
                size = output.metadata["image/png"]
                ratio = size["width"] / size["height"]
                most = f"max-width: {600 * ratio:.0f}px; max-height: {1168 / ratio:.0f}px"  # no broader than itself
                self.add("figure", f'<img style="{most}" alt="{escape(size["alt"])}" src="{url}">')
            elif "<script" in shown.get("text/html", ""):
                self.add("interactive", f'<div class="live">{shown["text/html"]}</div>')
            elif asked and output.output_type == "stream":
                printed = output.text.rstrip().split("\n")
                lines = [line for line in printed if not line.startswith("✓")] or printed
                lines = lines if len(lines) <= LINES - 6 else [*lines[: LINES - 7], "…"]
                source = "" if folded or length > 9 else preformatted(cell.source, colour=True)
                self.add("printed", source + preformatted("\n".join(lines)))
        self.before, self.introducing = "", False


def deck(lesson: nbformat.NotebookNode) -> list[Slide]:
    """Make the slides of a chapter, as it is saved."""
    made, part, opening = Deck(), "", list(blocks(lesson.cells[0].source))
    title = [kind for kind, _ in opening].index("h1")
    made.add("title", "".join(rendered(text) for _, text in opening[: title + 2]))
    if not opening[title + 2][1].startswith("**"):
        made.add("hook", rendered(re.sub(r" [^.?!]*:$", "", opening[title + 2][1])))
    for cell in lesson.cells[1:]:
        for kind, text in blocks(cell.source) if cell.cell_type == "markdown" else []:
            part = text[3:] if text in ("## Exercises", "## Summary", "## Deeper") else part
            if not part:
                made.read(kind, text)
            elif part == "Summary" and kind == "ul":
                made.heading = part
                made.add("summary", rendered(text))
        if cell.cell_type == "code" and not part:
            made.run(cell)
    rows = (f"<tr><td>{escape(c[1])}<td>{c[2]}<td>{c[3]}" for cell in lesson.cells if (c := CARD.search(cell.source)))
    made.heading = "Exercises"
    made.add("exercises", f"<table>{''.join(rows)}</table>")
    return made.slides


def page(lesson: nbformat.NotebookNode) -> str:
    """Write a chapter's slides as an HTML page that asks nothing of any other file or host."""
    slides = deck(lesson)
    sections = "\n".join(
        f'<div class="frame"><section class="{slide.kind}" tabindex="-1" aria-label="slide {i} of {len(slides)}">'
        f"<header>{MARKDOWN.renderInline(slide.heading)}</header><main>{slide.body}</main>"
        f"<footer><small>{i}</small></footer></section></div>"
        for i, slide in enumerate(slides, start=1)
    )
    formulas = "".join(re.findall(r"<math.*?</math>", sections, re.DOTALL))
    light, dark = (HtmlFormatter(style=f"a11y-high-contrast-{theme}") for theme in ("light", "dark"))
    places = {
        "TITLE": re.search(r"<h1>(.*)</h1>", sections)[1],
        "SLIDES": sections,
        "FONT": f"data:font/woff;base64,{b64encode(math_font(formulas, [0x221A], layout_features=['*'])).decode()}",
        "LIGHT": light.get_style_defs(".code"),
        "DARK": dark.get_style_defs("html[data-theme=dark] .code"),
    }
    template = Path(__file__).with_name("slides.html").read_text(encoding="utf-8")
    return re.sub(f"@({'|'.join(places)})@", lambda place: places[place[1]], template)


def main() -> None:
    """Write the slides of all chapters, or of some."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "slides", help="where to write them")
    parser.add_argument("--chapters", nargs="+", metavar="NN", help="only these, such as 01 08")
    arguments, contents = parser.parse_args(), {}
    for path in filter(is_lesson, notebook_paths()):
        if not arguments.chapters or path.name[:2] in arguments.chapters:
            contents[f"{path.stem}.html"] = page(nbformat.read(path, as_version=4)).encode()
    try:
        write_ours(arguments.folder, contents)
    except OSError as error:
        sys.exit(str(error))
    print(*map(arguments.folder.joinpath, contents), sep="\n")


if __name__ == "__main__":
    main()
