"""Slides: a chapter's in one file that needs no other; each fits; the question comes before the answer."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from once import once

from tools import slides as module
from tools.slides import deck
from tools.sync import is_lesson, notebook_paths

pytestmark = once
LESSONS = [path for path in notebook_paths() if is_lesson(path)]
OVERFLOWS = """() => [...document.querySelectorAll("section")].flatMap((section, i) => {
  document.querySelectorAll(".frame").forEach(frame => frame.classList.toggle("here", frame === section.parentElement));
  const main = section.querySelector("main"), paper = section.getBoundingClientRect();
  const scrolls = main.scrollHeight > main.clientHeight + 1 || main.scrollWidth > main.clientWidth + 1;
  const outside = [...section.querySelectorAll("*")].some(element => {
    const box = element.getBoundingClientRect();
    return box.width && (box.left < paper.left - 1 || box.right > paper.right + 1 || box.bottom > paper.bottom + 1);
  });
  const sizes = [...main.querySelectorAll(":is(p, li, td, pre)")].filter(element => !element.closest(".live"))
    .map(element => parseFloat(getComputedStyle(element).fontSize));
  return scrolls || outside || Math.min(...sizes) < 16 ? [`${i + 1} ${section.className}`] : [];
})"""


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_deck_has_what_a_class_should_see_and_nothing_folded(path: Path) -> None:
    lesson = nbformat.read(path, as_version=4)
    slides = deck(lesson)
    kinds, bodies = [slide.kind for slide in slides], "\n".join(slide.body for slide in slides)
    assert 20 <= len(slides) <= 45
    assert kinds[0] == "title" and kinds[-2:] == ["summary", "exercises"] and path.name[:2] in slides[0].body
    main_line = lesson.cells[: next(i for i, cell in enumerate(lesson.cells) if "## Exercises" in cell.source)]
    asked = sum(cell.source.count("**Guess first") for cell in main_line if cell.cell_type == "markdown")
    assert kinds.count("guess") >= max(1, asked - 1)
    pictures = [one for cell in main_line for one in cell.get("outputs", []) if "image/png" in one.get("data", {})]
    alts = re.findall(r'<img[^>]* alt="([^"]*)"', bodies)
    assert len(pictures) <= len(alts) == bodies.count("<img") and all(len(alt) > 20 for alt in alts)
    written = re.sub(r'<div class="live">.*?</div>\n*<script>.*?</script>', "", bodies, flags=re.DOTALL)
    assert "<details" not in written and "more checks" not in written and "folded" not in written


def test_a_guess_comes_before_what_answers_it() -> None:
    slides = deck(nbformat.read(LESSONS[8], as_version=4))
    answers = [after.kind for slide, after in pairwise(slides) if slide.kind == "guess"]
    assert answers and set(answers) <= {"figure", "interactive", "printed"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tour, which has a picture to play with, and a chapter with many formulas and code."""
    folder = tmp_path_factory.mktemp("slides")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["slides", str(folder), "--chapters", "00", "07"])
        module.main()
    assert sorted(path.name for path in folder.glob("[!.]*")) == ["00_tour.html", "07_training.html"]
    return {path.name[:2]: path for path in folder.glob("[!.]*")}


def test_all_are_written_or_none(tmp_path, monkeypatch) -> None:
    (tmp_path / "07_training.html").mkdir()
    monkeypatch.setattr(sys, "argv", ["slides", str(tmp_path), "--chapters", "00", "07"])
    with pytest.raises(SystemExit, match=r"07_training\.html is yours and would be overwritten: give another folder"):
        module.main()
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(("chapter", "width", "colors"), [("00", 640, "light"), ("07", 1280, "dark")])
def test_every_slide_fits_and_needs_no_other_file(visit, pages, chapter: str, width: int, colors: str) -> None:
    page = visit(pages[chapter].as_uri(), width=width, height=width * 9 // 16, color_scheme=colors)
    assert page.evaluate("document.documentElement.dataset.theme") == colors
    assert page.evaluate(OVERFLOWS) == []
    text = pages[chapter].read_text("utf-8")
    assert len(text) < 3_000_000 and not re.search(r"@(TITLE|SLIDES|FONT|LIGHT|DARK)@", text)
    assert set(re.findall(r'(?:src|url)(?:=|\()"(\w+:)', text)) == {"data:"}
    assert not re.search(r"<(link|iframe|a)\b|@import|fetch\(|import\(", text)


def test_keys_buttons_and_a_finger_turn_the_page(visit, pages) -> None:
    page = visit(f"{pages['07'].as_uri()}#3", width=390, height=844, has_touch=True)
    last = page.locator("section").count()

    def here() -> int:
        assert page.locator(".frame:visible").count() in (1, last)
        return int(page.locator(".here small").inner_text())

    keys = ["ArrowRight", "Space", "ArrowLeft", "End", "Home", "PageDown", "Escape", "Enter"]
    for key, number in zip(keys, [4, 5, 4, last, 1, 2, 2, 2], strict=True):
        page.keyboard.press(key)
        assert here() == number, key
    assert page.locator("nav [role=status]").inner_text() == f"Slide 2 of {last}" and page.url.endswith("#2")
    page.keyboard.press("Escape")  # all of them
    assert page.locator(".frame:visible").count() == last
    page.locator(".frame").nth(5).click()
    page.get_by_role("button", name="back").click()
    assert here() == 5
    page.evaluate("""() => {
      for (const [kind, clientX] of [["touchstart", 300], ["touchend", 100]]) {
        const fingers = [new Touch({ identifier: 0, target: document.body, clientX })];
        const touches = { touches: kind === "touchstart" ? fingers : [], changedTouches: fingers };
        document.body.dispatchEvent(new TouchEvent(kind, { bubbles: true, ...touches }));
      }
    }""")
    assert here() == 6
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_picture_to_play_with_keeps_its_keys_a_figure_grows_and_each_slide_is_printed(visit, pages) -> None:
    page = visit(pages["00"].as_uri(), height=720)
    live = page.locator("section").evaluate_all("all => all.findIndex(one => one.className === 'interactive')") + 1
    page.evaluate("place => { location.hash = place; }", live)
    page.reload()
    page.locator(".here .live button").first.focus()
    for key, number in (("ArrowDown", live), ("PageDown", live + 1)):
        page.keyboard.press(key)
        assert int(page.locator(".here small").inner_text()) == number
    picture = page.locator(".here main img")
    narrow = picture.bounding_box()["width"]
    picture.click()
    assert picture.bounding_box()["width"] == pytest.approx(2 * narrow)
    page.keyboard.press("z")
    assert picture.bounding_box()["width"] == pytest.approx(narrow)
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == page.locator("section").count()
    assert set(re.findall(rb"/MediaBox\s*\[([\d. ]+)\]", printed)) == {b"0 0 960 540"}
