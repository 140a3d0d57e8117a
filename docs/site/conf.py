"""How Sphinx makes the site. `tools.site` lays out what it reads, and calls it; every warning there is an error."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from myst_nb.sphinx_ import HideCodeCellNode

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
html_css_files = ["style.css"]
html_math_renderer = "mathml"
html_copy_source = True
html_sourcelink_suffix = ""
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_search_summary = False  # it would be fetched, which a page opened as a file must not do
html_show_copyright = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "show_navbar_depth": 1,
    "use_download_button": True,
    "use_fullscreen_button": False,
}


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep *batch and |Y| as they stand in the module's plain documentation; what is in `quotes` is code already."""
    for i, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
        lines[i] = "".join(parts)


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


def setup(app: Any) -> None:
    """Tell Sphinx of the formulas, of folded code, and of what stands in documentation."""
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon reads the sections
    app.add_node(HideCodeCellNode, override=True, html=(visit_folded_code, depart_folded_code))
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed_math, None))
