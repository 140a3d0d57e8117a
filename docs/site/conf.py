"""How Sphinx makes the site. `tools.site` lays out what it reads, and calls it; every warning there is an error."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from IPython.lib.lexers import IPython3Lexer
from latex2mathml.converter import convert
from myst_nb.sphinx_ import HideCodeCellNode
from pygments.token import Name, Punctuation, Text, Whitespace

project = "Attention Is All You Need, in notebooks"
author = copyright = "The annotated authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# The notebooks are shown as they were saved.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_render_markdown_format = "myst"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
highlight_language = "none"

# The documentation of the module: a name in `single quotes` is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False

html_theme = "sphinx_book_theme"
html_title = "Attention, in notebooks"
html_static_path = ["_static"]
html_extra_path = ["_extra"]  # what is no page of Sphinx's, at the address that it has in the repository
html_css_files = ["style.css"]
templates_path = ["_templates"]
html_math_renderer = "mathml"
html_copy_source = True
html_sourcelink_suffix = ""
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_search_summary = False  # it would be fetched, which a page opened as a file must not do
html_show_copyright = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "article_header_end": ["see_it_work", "article-header-buttons"],
    "footer_content_items": [],
    "home_page_in_toc": True,
    "max_navbar_depth": 1,  # a list inside a list opens by a button that has no name
    "navbar_persistent": [],
    "pygments_dark_style": "github-dark",
    "show_navbar_depth": 1,
    "use_download_button": True,
    "use_fullscreen_button": False,
}

MARKS = {"✓": "passed", "✗": "failed", "○": "open"}  # of a claim and of an exercise's check
SHORT = 18  # characters of a table's cell that are kept on one line


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep *batch and |Y| as they stand in the module's plain documentation; what is in `quotes` is code already."""
    for i, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
        lines[i] = "".join(parts)


class QuietLexer(IPython3Lexer):
    """Python whose plain names and brackets get no tag each: a page is half as long, and looks the same."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Read a cell."""
        for index, kind, value in super().get_tokens_unprocessed(text):
            yield index, Text if kind in (Name, Punctuation, Whitespace) else kind, value


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """Write a formula as MathML, which a browser draws by itself, offline, and a screen reader can read."""
    return convert(node.astext().replace(r"\tfrac", r"\frac").strip(), display=display)


def visit_math(translator: Any, node: nodes.math) -> None:
    """Put a formula into a line."""
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_displayed_math(translator: Any, node: nodes.math_block) -> None:
    """Put a formula on lines of its own."""
    translator.body.append(f'<div class="math" tabindex="0">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def visit_folded_code(translator: Any, node: HideCodeCellNode) -> None:
    """Fold a cell's code below one quiet word, which a screen reader reads; MyST-NB makes it a bar with a label."""
    translator.body.append("<details><summary>Code</summary>\n")


def depart_folded_code(translator: Any, node: HideCodeCellNode) -> None:
    """End what is folded."""
    translator.body.append("</details>\n")


def list_checks(app: Any, page: nodes.document) -> None:
    """Make an output of nothing but checks, `✓ each row sums to 1`, a quiet list, whose lines may break."""
    for output in list(page.findall(nodes.literal_block)):
        lines = output.astext().splitlines()
        if "stream" in output["classes"] and all(line[:1] in MARKS for line in lines):
            checks = (nodes.list_item("", nodes.paragraph("", line), classes=[MARKS[line[0]]]) for line in lines)
            output.parent.replace(output, nodes.bullet_list("", *checks, classes=["checks"]))


def prepare_tables(app: Any, page: nodes.document) -> None:
    """Mark what the style must know of a table: cells too short to break, and that it has pictures."""
    for table in page.findall(nodes.table):
        for entry in table.findall(nodes.entry):
            if len(entry.astext()) <= SHORT:
                entry["classes"].append("short")
        if any("<img" in node.astext() for node in table.findall(nodes.raw)) or any(table.findall(nodes.image)):
            table["classes"].append("pictured")


def setup(app: Any) -> None:
    """Tell Sphinx of the formulas, of folded code, of checks and tables, and of what stands in documentation."""
    app.add_lexer("ipython3", QuietLexer)
    app.connect("doctree-read", list_checks)
    app.connect("doctree-read", prepare_tables)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon reads the sections
    app.add_node(HideCodeCellNode, override=True, html=(visit_folded_code, depart_folded_code))
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed_math, None))
