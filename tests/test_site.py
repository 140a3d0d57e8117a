"""The site: built from the saved notebooks, complete, and at peace with any browser, screen and network.

What needs a browser is skipped where Chromium is not found, and on an imitated processor: it draws no other page.
"""

import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

import nbformat
import pytest
import yaml
from docutils import nodes
from docutils.core import publish_doctree
from fontTools.ttLib import TTFont
from once import once

from tools import site as builder
from tools.reading import is_folded
from tools.site import FONT, LIVE, indexed, page_text
from tools.sync import ROOT, notebook_paths

pytestmark = once

WIDTHS = (1280, 390)  # of a desktop's window and a phone's, in pixels
LARGEST = 1_500_000  # bytes of one page, with all that it loads
RAW_TEX = re.compile(r"\$[^$\n]+\$|\\[a-zA-Z]{2,}")


class Page(HTMLParser):
    """What a page refers to, and its text but for code."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.without_alt: list[str] = []
        self.text: list[str] = []
        self.skipping = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given[key] or "" for key in ("id", "name") if key in given}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        self.loads += [given[key] or "" for key in ("src", "data") if given.get(key)]
        if tag == "link":
            self.loads.append(given["href"] or "")
        if tag == "img" and not given.get("alt"):
            self.without_alt.append(given.get("src") or "")
        self.skipping += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.skipping -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew; Sphinx makes an error of each warning."""
    folder = tmp_path_factory.mktemp("built") / "site"
    built = subprocess.run([sys.executable, "-m", "tools.site", folder], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page, read."""
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


def test_every_notebook_and_module_has_its_page(site: Path) -> None:
    for path in notebook_paths():
        assert (site / path.relative_to(ROOT).with_suffix(".html")).is_file()
        assert (site / "_sources" / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    for name in ("index", "docs/RESULTS", "api/annotated.attention", "api/annotated.models.bert", "data/README"):
        assert (site / f"{name}.html").is_file()
    assert not list(site.rglob("*exercises.chapter*"))


def test_no_page_is_large_or_lacks_what_it_refers_to(site: Path, pages: dict[Path, Page]) -> None:
    fonts = [*(site / "_static").rglob("fa-solid-*.woff2"), site / "_static" / f"{FONT}.woff"]  # the style loads them
    for path, page in pages.items():
        loaded = {(path.parent / unquote(urlsplit(link).path)).resolve() for link in page.loads if ":" not in link}
        weight = sum(one.stat().st_size for one in loaded | {path, *fonts} if one.suffix != ".html" or one == path)
        assert weight < LARGEST or site / LIVE in path.parents, f"{path.relative_to(site)}: {weight}"
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "data"):
                assert parts.scheme == "data" or link not in page.loads, f"{path} asks another host: {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.relative_to(site)} refers to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{path.relative_to(site)} refers to {link}"


def test_every_picture_has_a_text_and_every_formula_is_drawn(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert not page.without_alt, f"{path.relative_to(site)}: {page.without_alt}"
        left = RAW_TEX.findall(" ".join(page.text))
        assert not left, f"{path.relative_to(site)}: {left[:3]}"
    assert (site / "notebooks" / "01_attention.html").read_text(encoding="utf-8").count("<math") > 50
    font = TTFont(site / "_static" / f"{FONT}.woff").getBestCmap()
    assert {ord(sign) for sign in "√∏∑∂α∞≈≤×"} | {0x210E, 0x1D444} <= font.keys()  # h and Q slant


def test_what_is_folded_is_a_line_that_unfolds(site: Path) -> None:
    path = ROOT / "notebooks" / "05_decoder.ipynb"
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    shown = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs]
    text = (site / "notebooks" / "05_decoder.html").read_text(encoding="utf-8")
    assert (
        text.count("<details><summary>Code</summary>") == sum(map(is_folded, cells)) - 1 > 0
    )  # the one that finds the course is left out
    assert text.count("more checks</summary>") == sum("more checks</summary>" in one for one in shown) > 0
    assert "Toggle hidden content" not in text  # to a screen reader a label hides the words


def test_an_output_of_checks_is_a_list(site: Path) -> None:
    text = (site / "notebooks" / "01_attention.html").read_text(encoding="utf-8")
    assert re.search(
        r'<ul class="checks simple">\s*<li class="passed"><p>✓ the output is \(5, 2\), as on paper</p>', text
    )
    assert re.search(r'<li class="open"><p>○ 01\.1 not attempted yet', text)
    assert "tensor([1.39, 0.00, 0.00])\n</pre>" in text  # what is no check stays as it was printed


def test_a_table_says_what_must_not_break_and_one_with_pictures_names_its_columns() -> None:
    prepare_tables = runpy.run_path(str(ROOT / "docs" / "site" / "conf.py"))["prepare_tables"]
    table = ".. list-table::\n   :header-rows: 1\n\n   * - chapter\n     - minutes\n   * - {}\n     - 45\n"
    pictured = publish_doctree(table.format(".. image:: a.png"))
    plain = publish_doctree(table.format("a cell of more than a few words"))
    for page in (pictured, plain):
        prepare_tables(None, page)
    assert [entry["classes"] for entry in plain.findall(nodes.entry)] == [["short"], ["short"], [], ["short"]]
    assert "minutes 45" in pictured.astext() and "minutes 45" not in plain.astext()
    assert "pictured" in next(pictured.findall(nodes.table))["classes"]


def test_solutions_and_module_have_a_list_each(site: Path, pages: dict[Path, Page]) -> None:
    for folder, name in {"notebooks/solutions": "07_solutions.html", "api": "annotated.attention.html"}.items():
        assert name in pages[site / folder / "index.html"].links
    assert "Scaled dot-product" in " ".join(pages[site / "api" / "index.html"].text)


def test_previous_and_next_lead_through_the_chapters(site: Path) -> None:
    text = (site / "notebooks" / "05_decoder.html").read_text(encoding="utf-8")
    assert re.search(r'class="left-prev"\s+href="04_encoder.html"', text)
    assert re.search(r'class="right-next"\s+href="06_masking.html"', text)


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"notebooks/01\.ipynb: the link \[here\]\(gone\.ipynb\) leads nowhere"):
        page_text("Look [here](gone.ipynb).", Path("notebooks/01.ipynb"), tmp_path)


def test_links_follow_what_became_of_their_targets(tmp_path: Path) -> None:
    text = "[a](../annotated/attention.py) [b](../README.md#the-house) [c](../LICENSE) [d](solutions) [e](../data)"
    expected = "[a](../api/annotated.attention.md) [b](../index.md#the-house) [c](../LICENSE) [d](solutions/index.md) e"
    text, expected = f"{text} `[f](x)`", f"{expected} `[f](x)`"
    assert page_text(text, Path("notebooks/01_attention.ipynb"), tmp_path) == expected
    assert (tmp_path / "LICENSE").is_file()


def test_a_link_to_a_heading_is_spelled_as_the_site_spells_it(tmp_path: Path) -> None:
    text = "[a](05_decoder.ipynb#8.-One-matrix%2C-three-times-%28%C2%A73.4%29) [b](../README.md#the-house)"
    expected = "[a](05_decoder.ipynb#8-one-matrix-three-times-34) [b](../index.md#the-house)"
    assert page_text(text, Path("notebooks/09_whole_transformer.ipynb"), tmp_path) == expected


def test_a_link_or_picture_in_html_is_followed(tmp_path: Path) -> None:
    text = (
        '<a href="notebooks/05_decoder.ipynb#8.-One-matrix"><img src="docs/drawings/de-en.png"></a> <a href="#x">y</a>'
    )
    expected = text.replace("05_decoder.ipynb#8.-One-matrix", "05_decoder.html#one-matrix")
    assert page_text(text, Path("README.md"), tmp_path) == expected
    assert (tmp_path / "_extra" / "docs" / "drawings" / "de-en.png").is_file()
    with pytest.raises(FileNotFoundError, match=r'README\.md: the link src="gone\.png" leads nowhere'):
        page_text('<img src="gone.png">', Path("README.md"), tmp_path)


def test_a_link_around_a_picture_is_followed(tmp_path: Path) -> None:
    text = "[![a b](docs/drawings/de-en.png)](annotated/attention.py)"
    expected = "[![a b](docs/drawings/de-en.png)](api/annotated.attention.md)"
    assert page_text(text, Path("README.md"), tmp_path) == expected


def test_the_live_page_is_a_page_and_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    (tmp_path / LIVE).mkdir(parents=True)
    (tmp_path / LIVE / "index.html").write_text("")
    text = "[See it *work*](../docs/live/index.html#now)"
    expected = '<a href="../docs/live/index.html#now">See it *work*</a>'
    assert page_text(text, Path("notebooks/00_tour.ipynb"), tmp_path / "built") == expected
    text = '<a href="docs/live/index.html">See it work</a>'
    assert page_text(text, Path("README.md"), tmp_path / "built") == text


def test_every_page_leads_to_the_live_page_which_leads_back(site: Path, pages: dict[Path, Page]) -> None:
    for path in (ROOT / LIVE).iterdir():
        content = path.read_bytes().replace(b'data-course=""', b'data-course="../.."')
        assert (site / path.relative_to(ROOT)).read_bytes() == content
    assert b'data-course="../.."' in (site / LIVE / "index.html").read_bytes()
    for path, page in pages.items():
        leads = [urljoin(path.as_uri(), link) for link in page.links]
        assert (site / LIVE / "index.html").as_uri() in leads or site / LIVE in path.parents, path


def test_what_a_question_is_also_asked_as_is_found_at_its_heading() -> None:
    text = "## Heads\n\n### Why?\n\nBecause.\n\n<small>Also asked as: what for · to what end</small>"
    first, second, third = indexed(text).split("```{index} ! single: ")
    assert (first, second) == ("## Heads\n\n", "what for\n```\n\n")
    assert third.startswith("to what end\n```\n\n### Why?\n\nBecause.")
    assert indexed("### Why?") == "### Why?"


def test_a_drawing_is_part_of_its_page_and_its_links_lead_to_pages(site: Path, pages: dict[Path, Page]) -> None:
    page = Path("notebooks/09_whole_transformer.ipynb")
    text = page_text('![The "model"](../docs/drawings/transformer.svg)', page, site)
    assert text.startswith('<div role="group" aria-label="The &quot;model&quot;">\n<svg ') and "\n\n" not in text
    links = re.findall(r'<a class="\w+" href="([^"#]+)#([^"]+)">', text)
    assert len(links) == text.count("<a ") > 20
    for name, anchor in links:
        assert anchor in pages[site / "notebooks" / name].ids


def test_the_workflow_tries_each_system_and_publishes_what_make_site_builds() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"} and "windows" in jobs
    runs = [step.get("run") or step.get("with", {}).get("path") for step in jobs["site"]["steps"]]
    assert "make site" in runs and "build/site" in runs
    assert "make test" in [step.get("run") for job in ("test", "windows") for step in jobs[job]["steps"]]


FIRST_HEADING_FROM = """target => {
  const from = document.getElementById(target);
  const headings = [...document.querySelectorAll("main section[id]:has(> h3)")];
  return headings.find(e => e.contains(from) || from.compareDocumentPosition(e) & 4).id;  // 4: it follows
}"""
OVERFLOWING = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > wide + 1)
    .map(e => e.tagName + ": " + e.textContent.slice(0, 40)).slice(0, 3).concat("overflow");
}"""


@pytest.mark.thorough
def test_pages_open_quietly_and_fit(site: Path, pages: dict[Path, Page], browser) -> None:
    tab = browser.new_page()
    said: list[str] = []
    tab.on("console", lambda message: message.type == "error" and said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url))
    for path in pages:
        tab.goto(path.as_uri())
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            wide = tab.evaluate(OVERFLOWING)
            assert not said and not wide, f"{path.relative_to(site)}, {width} wide: {said} {wide}"
    tab.close()


def test_search_finds_multi_head(site: Path, browser) -> None:
    tab = browser.new_page()
    said: list[str] = []
    tab.on("console", lambda message: message.type == "error" and said.append(message.text))
    tab.goto((site / "search.html").as_uri() + "?q=multi-head")
    tab.wait_for_selector("#search-results li a")
    found = tab.locator("#search-results li a").all_inner_texts()
    assert any("Multi-head attention" in title for title in found) and not said
    tab.close()


def test_what_a_cell_draws_by_script_runs_in_light_and_dark(site: Path, browser) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto((site / "notebooks" / "00_tour.html").as_uri())
        view = tab.locator(".attention-view").first
        assert view.locator("select").count() == 3
        grounds.add(view.evaluate("view => getComputedStyle(view).backgroundColor"))
        tab.close()
    assert len(grounds) == 2


ASKED = {  # as beginners type it, and what the page of questions calls it
    "why three matrices": "what-are-queries",
    "decoder input shifted right": "what-exactly-is-shifted",
    "low loss but bad output": "the-loss-is-excellent",
    "view then transpose": "why-view-then-transpose",
    "is training parallel": "is-training-parallel",
    "loss stuck at 7": "why-is-my-loss-stuck-at-7",
    "mask true or false": "does-true-in-a-mask",
    "NaN padding mask": "why-do-i-get-nan",
    "pre-norm or post-norm": "pre-norm-or-post-norm",
    "multiply embedding by sqrt d_model": "why-multiply-the-embedding",
}
ASKED_OTHERWISE = [
    "why divide by sqrt d_k",
    "does batch size mean sentences",
    "causal mask at inference",
    "model always predicts same word",
    "how many BPE merges",
    "kv cache why not query",
]
LED = {  # as beginners type it, and to which page, or heading of it
    "why residual connections": "notebooks/04_encoder.html#the-residual-connection",
    "what is beam search": "notebooks/08_decoding.html#beam-search-by-hand",
    "what is teacher forcing": "notebooks/questions.html",
    "my loss is nan": "notebooks/questions.html",
    "model repeats the same word": "notebooks/questions.html",
    "overfitting small dataset": "notebooks/questions.html",
    "learning rate warmup": "notebooks/07_training.html#the-learning-rate",
    "how long does training take": "notebooks/13_speed.html#how-long-should-it-take",
    "why do we need positional encoding": "notebooks/03_positional_encoding.html",
    "what is BLEU": "notebooks/11_evaluation.html",
    "how do transformers generate text": "notebooks/15_generation.html",
    "translate my own sentence": "notebooks/08_decoding.html#translate-your-own-sentence",
}


def results(tab, site: Path, query: str) -> list[str]:
    """Search, and give the addresses of what is found."""
    tab.goto((site / "search.html").as_uri() + f"?q={quote(query)}")
    tab.wait_for_selector("#search-results li a")
    return [link.get_attribute("href") for link in tab.locator("#search-results li a").all()]


def test_search_leads_a_beginner_s_words_to_the_question(site: Path, browser) -> None:
    tab = browser.new_page()
    for query, question in ASKED.items():
        first = results(tab, site, query)[0]
        assert "notebooks/questions.html" in first, f"{query}: {first}"
        tab.goto(urljoin((site / "search.html").as_uri(), first))
        target = urlsplit(first).fragment
        below = tab.evaluate(FIRST_HEADING_FROM, target)
        assert below.startswith(question), f"{query}: {below}"
    for query in ASKED_OTHERWISE:
        assert any("notebooks/questions.html" in one for one in results(tab, site, query)[:3]), query
    for query, place in LED.items():
        first = urljoin((site / "search.html").as_uri(), results(tab, site, query)[0])
        assert re.sub(r"\?[^#]*", "", first).startswith(f"{site.as_uri()}/{place}"), f"{query}: {first}"
    for subject in ("beam search", "attention"):
        assert "questions" not in results(tab, site, subject)[0], "one word or two have a chapter"
    tab.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "name",
    [
        "index",
        "notebooks/01_attention",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("notebooks/solutions/01_solutions", "api/annotated.attention", "search")
        ),
    ],
)
def test_axe_finds_nothing_serious(site: Path, browser, name: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = browser.new_page(color_scheme=scheme)
    tab.goto((site / f"{name}.html").as_uri())
    found = axe.run(tab).response["violations"]
    serious = [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]
    assert not serious
    tab.close()
