"""The site: built from the saved notebooks, complete, and at peace with any browser, screen and network.

Every page is laid out, which finds a link that leads nowhere; of each kind a few are built, and all with --all. What
needs a browser is skipped where Chromium is not found, and on an imitated processor: it draws no other page.
"""

import re
import sys
import warnings
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from once import once

from tests.pages import barriers, fits
from tools import site as module
from tools.site import FONT, LIVE, page_text
from tools.sync import ROOT, notebook_paths

pytestmark = once

LARGEST = 1_500_000  # bytes of one page, with all that it loads
FEW = {
    *("index.md", "notebooks/solutions/index.md", "api/index.md", "api/annotated.attention.md"),
    *("notebooks/00_tour.ipynb", "notebooks/01_attention.ipynb", "notebooks/solutions/01_solutions.ipynb"),
}
RAW_TEX = re.compile(r"\$[^$\n]+\$|\\[a-zA-Z]{2,}")
FIRST_HEADING_FROM = """target => {
  const from = document.getElementById(target);
  const headings = [...document.querySelectorAll("main section[id]:has(> h3)")];
  return headings.find(e => e.contains(from) || from.compareDocumentPosition(e) & 4).id;  // 4: it follows
}"""
ASKED = {  # as beginners type it, and what the page of questions calls it
    "why three matrices": "what-are-queries",
    "decoder input shifted right": "what-exactly-is-shifted",
    "loss stuck at 7": "why-is-my-loss-stuck-at-7",
    "NaN padding mask": "why-do-i-get-nan",
    "kv cache why not query": "why-cache-keys",
    "how many r in strawberry": "why-can",
    "why does it hallucinate": "why-does-a-language-model-make",
    "fine-tune or prompt": "should-i-fine-tune",
}
LED = {  # as beginners type it, and to which page, or heading of it
    "multi-head": "notebooks/02_multi_head.html",
    "why residual connections": "notebooks/04_encoder.html#the-residual-connection",
    "what is beam search": "notebooks/08_decoding.html#beam-search-by-hand",
    "my loss is nan": "notebooks/questions.html",
    "learning rate warmup": "notebooks/07_training.html#the-learning-rate",
    "warmup": "notebooks/07_training.html",
    "translate my own sentence": "notebooks/08_decoding.html#translate-your-own-sentence",
}


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew; Sphinx makes an error of each warning, but here not of links to pages left out."""
    folder = tmp_path_factory.mktemp("built") / "site"
    build = module.build_main

    def build_few(options: list[str]) -> int:
        source = Path(options[-2])
        names = {path.relative_to(source).as_posix() for kind in ("md", "ipynb") for path in source.rglob(f"*.{kind}")}
        for name in names - FEW:
            (source / name).unlink()
        status = build(["-D", "suppress_warnings=toc.not_readable,myst.xref_missing", *options])
        for name in names - FEW:
            page = (folder / name).with_suffix(".html")
            page.parent.mkdir(parents=True, exist_ok=True)
            page.touch()  # an empty page stands for one left out
        return status

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
        patch.setattr(sys, "argv", ["site", str(folder)])
        if not request.config.getoption("--all"):
            patch.setattr(module, "build_main", build_few)
        assert module.main() == 0
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, BeautifulSoup]:
    paths = (path for path in sorted(site.rglob("*.html")) if path.stat().st_size)
    return {path: BeautifulSoup(path.read_bytes(), "lxml") for path in paths}


def links_of(page: BeautifulSoup) -> list[str]:
    return [link["href"] for link in page.select("a[href]")]


def test_notebooks_modules_and_documents_have_pages_and_no_check_is_told(site: Path, pages) -> None:
    for path in notebook_paths():
        assert (site / "_sources" / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    for name in FEW:
        assert (site / name).with_suffix(".html").is_file()
    assert not [path for path in site.rglob("*.html") if "exercises" in path.name]
    for folder, name in {"notebooks/solutions": "01_solutions.html", "api": "annotated.attention.html"}.items():
        assert name in links_of(pages[site / folder / "index.html"])
    assert "Scaled dot-product" in pages[site / "api" / "index.html"].get_text()
    assert pages[site / "notebooks" / "01_attention.html"].select_one("a.left-prev")["href"] == "00_tour.html"


def test_no_page_is_large_or_lacks_what_it_refers_to(site: Path, pages) -> None:
    fonts = [*(site / "_static").rglob("fa-solid-*.woff2"), site / "_static" / f"{FONT}.woff"]  # the style loads them
    ids = {path: {one.get("id") or one["name"] for one in page.select("[id], a[name]")} for path, page in pages.items()}
    for path, page in pages.items():
        parts = page.select("link:not([rel=next], [rel=prev], [rel=index], [rel=search]), [src]")
        loads = [urlsplit(part.get("href") or part["src"]) for part in parts]
        assert {link.scheme for link in loads} <= {"", "data"}, f"{path} asks another host"
        loaded = {(path.parent / unquote(link.path)).resolve() for link in loads if not link.scheme}
        weight = sum(file.stat().st_size for file in {path, *loaded, *fonts})
        assert weight < LARGEST or site / LIVE in path.parents, f"{path.relative_to(site)}: {weight}"
        for link in map(urlsplit, links_of(page)):
            if link.scheme:
                continue
            target = (path.parent / unquote(link.path)).resolve() if link.path else path
            assert target.is_file(), f"{path.relative_to(site)} refers to {link}"
            left_out = re.search(r"\.(md|ipynb)(#|$)", link.fragment)  # how MyST shows what it cannot find
            if link.fragment and target in pages and not left_out:
                assert unquote(link.fragment) in ids[target], f"{path.relative_to(site)} refers to {link}"


def test_every_picture_has_a_text_and_every_formula_is_drawn(site: Path, pages) -> None:
    for path, page in pages.items():
        assert page.select("img:not([alt]), img[alt='']") == [], path.relative_to(site)
        prose = [one for one in page.find_all(string=True) if not one.find_parent(["pre", "code", "script", "style"])]
        assert RAW_TEX.findall(" ".join(prose)) == [], path.relative_to(site)
    assert len(pages[site / "notebooks" / "01_attention.html"].select("math")) > 50
    font = TTFont(site / "_static" / f"{FONT}.woff").getBestCmap()
    assert {ord(sign) for sign in "√∑∞≈≤×"} | {0x210E, 0x1D444} <= font.keys()  # h and Q slant


def test_what_is_folded_unfolds_checks_are_a_list_and_tables_fit_a_phone(site: Path) -> None:
    text = (site / "notebooks" / "01_attention.html").read_text(encoding="utf-8")
    assert "<details><summary>Code</summary>" in text and "more checks</summary>" in text
    assert "Toggle hidden content" not in text  # to a screen reader a label hides the words
    passed = r'<ul class="checks simple">\s*<li class="passed"><p>✓ the output is \(5, 2\), as on paper</p>'
    assert re.search(passed, text) and re.search(r'<li class="open"><p>○ 01\.1 not attempted yet', text)
    assert "tensor([1.39, 0.00, 0.00])\n</pre>" in text  # what is no check stays as it was printed
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 'class="pictured' in text and "that link shows source" not in text


def test_a_folder_that_it_did_not_make_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "www-source" / "mine").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["site", str(tmp_path / "www")])
    with pytest.raises(SystemExit):
        module.main()
    assert (tmp_path / "www-source" / "mine").exists()


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"notebooks/01\.ipynb: the link \[here\]\(gone\.ipynb\) leads nowhere"):
        page_text("Look [here](gone.ipynb).", Path("notebooks/01.ipynb"), tmp_path)


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        (
            "notebooks/09_whole_transformer.ipynb",
            "[a](05_decoder.ipynb#8.-One-matrix%2C-three-times-%28%C2%A73.4%29) [b](../README.md#the-house) `[f](x)`",
            "[a](05_decoder.ipynb#8-one-matrix-three-times-34) [b](../index.md#the-house) `[f](x)`",
        ),
        (
            "notebooks/01_attention.ipynb",
            "[a](../annotated/attention.py) [c](../LICENSE) [d](solutions) [e](../data) [f](../docs/live/index.html#x)",
            "[a](../api/annotated.attention.md) [c](../LICENSE) [d](solutions/index.md) e "
            '<a href="../docs/live/index.html#x">f</a>',
        ),
        (
            "README.md",
            '<a href="notebooks/05_decoder.ipynb#8.-One-matrix"><img src="LICENSE"></a> <a href="#x">y</a>',
            '<a href="notebooks/05_decoder.html#one-matrix"><img src="LICENSE"></a> <a href="#x">y</a>',
        ),
        (
            "README.md",
            "[![a b](docs/drawings/de-en.png)](annotated/attention.py) [c](#x)",
            "[![a b](docs/drawings/de-en.png)](api/annotated.attention.md) [c](index.md#x)",
        ),
    ],
)
def test_links_are_spelled_as_the_site_spells_them(tmp_path: Path, page: str, text: str, expected: str) -> None:
    assert page_text(text, Path(page), tmp_path) == expected
    assert (tmp_path / "LICENSE").is_file() == ("(../LICENSE)" in text)  # what is downloaded


def test_every_page_leads_to_the_live_page_which_leads_back(site: Path, pages) -> None:
    for path in (ROOT / LIVE).iterdir():
        content = path.read_bytes().replace(b'data-course=""', b'data-course="../.."')
        assert (site / path.relative_to(ROOT)).read_bytes() == content
    assert b'data-course="../.."' in (site / LIVE / "index.html").read_bytes()
    for path, page in pages.items():
        leads = [urljoin(path.as_uri(), link) for link in links_of(page)]
        assert (site / LIVE / "index.html").as_uri() in leads or site / LIVE in path.parents, path


def test_a_drawing_is_part_of_its_page_and_its_links_lead_to_pages(site: Path, pages) -> None:
    page = Path("notebooks/09_whole_transformer.ipynb")
    text = page_text('![The "model"](../docs/drawings/transformer.svg)', page, site)
    assert text.startswith('<div role="group" aria-label="The &quot;model&quot;">\n<svg ') and "\n\n" not in text
    links = re.findall(r'<a class="\w+" href="([^"#]+)#([^"]+)">', text)
    assert len(links) == text.count("<a ") > 20
    known = [(site / "notebooks" / name, anchor) for name, anchor in links]
    assert all(path.is_file() and (path not in pages or pages[path].find(id=anchor)) for path, anchor in known)


@pytest.mark.thorough
def test_pages_open_quietly_and_fit(pages, visit) -> None:
    page = visit()
    for path in pages:
        page.goto(path.as_uri())
        assert fits(page, 1280, 390), path


@pytest.mark.thorough  # among all pages
def test_search_leads_a_beginner_s_words_to_the_place(site: Path, visit) -> None:
    tab = visit()
    search = (site / "search.html").as_uri()

    def first(query: str) -> str:
        tab.goto(f"{search}?q={quote(query)}")
        tab.wait_for_selector("#search-results li a")
        return urljoin(search, tab.locator("#search-results li a").first.get_attribute("href"))

    for query, question in ASKED.items():
        address = first(query)
        assert "notebooks/questions.html" in address, f"{query}: {address}"
        tab.goto(address)
        below = tab.evaluate(FIRST_HEADING_FROM, urlsplit(address).fragment)
        assert below.startswith(question), f"{query}: {below}"
    for query, place in LED.items():
        assert re.sub(r"\?[^#]*", "", first(query)).startswith(f"{site.as_uri()}/{place}"), query


def test_on_paper_no_line_of_code_is_cut_and_the_magnifier_lies_on_no_letter(site: Path, visit) -> None:
    page = visit((site / "notebooks" / "01_attention.html").as_uri(), width=720)
    page.keyboard.press("Control+k")
    glass, field = (page.locator(f"dialog {part}").bounding_box() for part in (".fa-magnifying-glass", "input"))
    assert glass["x"] + glass["width"] <= field["x"]
    page.emulate_media(media="print")
    assert page.locator("pre").evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth)") == []


@pytest.mark.parametrize(("name", "scheme"), [("index", "dark"), ("notebooks/00_tour", "light")])
def test_axe_finds_nothing_serious(site: Path, visit, name: str, scheme: str) -> None:
    page = visit((site / f"{name}.html").as_uri(), color_scheme=scheme)
    assert name == "index" or page.locator(".attention-view").first.locator("select").count() == 3
    assert barriers(page, scheme) == []
