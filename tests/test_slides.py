"""Slides: a chapter's in one file that needs no other; each fits; no answer before the question, none to exercises."""

import re
import sys
from pathlib import Path

import nbformat
import pytest

from tests.once import once
from tests.test_handout import answers
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


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_deck_has_what_a_class_should_see_and_nothing_else(path: Path) -> None:
    lesson = read(path)
    slides = deck(lesson)
    kinds = [slide.kind for slide in slides]
    bodies = "\n".join(slide.body + slide.says for slide in slides)
    assert 20 <= len(slides) <= 36
    assert kinds[0] == "title" and kinds[-2:] == ["summary", "exercises"] and path.name[:2] in slides[0].body
    main_line = lesson.cells[: next(i for i, cell in enumerate(lesson.cells) if "## Exercises" in cell.source)]
    asked = sum(len(re.findall(r"\*\*Guess first", cell.source)) for cell in main_line if cell.cell_type == "markdown")
    assert kinds.count("guess") >= max(1, asked - 1)
    pictures = [
        output.metadata["image/png"]["alt"]
        for cell in main_line
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    alts = re.findall(r'<img[^>]* alt="([^"]*)"', bodies)
    assert len(pictures) <= len(alts) == bodies.count("<img") and all(len(alt) > 20 for alt in alts)
    broken = next((slide for slide in slides if "Try breaking it" in slide.heading), slides[0])
    told = len(re.sub(r"<[^>]*>", "", broken.body)) > 90  # what is broken, before or with what a class is to guess
    assert (broken.kind in ("section", "guess") and told) or path.name[:2] in ("00", "09")
    written = re.sub(r'<div class="live">.*?</div>\n*<script>.*?</script>', "", bodies, flags=re.DOTALL)
    assert "<details" not in written and "more checks" not in written and "folded" not in written
    lines = {re.sub(r"<[^>]*>", "", line).strip() for line in bodies.split("\n")}
    assert [
        number for number, answer in answers(path).items() if sum(map(lines.__contains__, answer)) > len(answer) / 2
    ] == []


def test_a_guess_comes_before_what_answers_it() -> None:
    slides = deck(read(LESSONS[8]))
    place = next(i for i, slide in enumerate(slides) if "Will K = 2 be enough" in slide.body)
    assert slides[place].kind == "guess" and slides[place + 1].kind in ("figure", "interactive")
    assert "K = 2" in slides[place + 1].body or slides[place + 1].kind == "interactive"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tour, which has a picture to play with, and a chapter with many formulas and code."""
    folder = tmp_path_factory.mktemp("slides")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["slides", str(folder), "--chapters", "00", "07"])
        module.main()
    return {path.name[:2]: path for path in sorted(folder.iterdir())}


def test_the_command_writes_files_that_need_no_other(pages: dict[str, Path]) -> None:
    assert [path.name for path in pages.values()] == ["00_tour.html", "07_training.html"]
    for path in pages.values():
        text = path.read_text("utf-8")
        assert len(text) < 3_000_000 and text.startswith("<!doctype html>")
        assert not re.search(r"@(TITLE|SLIDES|FONT|LIGHT|DARK)@", text)
        assert all(
            part.startswith("http://www.w3.org/")
            for part in re.findall(r"(?:https?:)?//[^\s\"'<>)]+", text)
            if part[:2] != "//"
        )
        assert set(re.findall(r'(?:src|url)(?:=|\()"(\w+:)', text)) == {"data:"}
        assert not re.search(r"<(link|iframe|a)\b|@import|fetch\(|import\(", text)


@pytest.mark.parametrize(
    ("chapter", "width", "height", "colors"), [("00", 640, 480, "light"), ("07", 1280, 720, "dark")]
)
def test_every_slide_fits(browser, pages: dict[str, Path], chapter: str, width: int, height: int, colors: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colors)
    asked: list[str] = []
    page.on("console", lambda message: asked.append(message.text))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages[chapter].as_uri())
    assert [url for url in asked if not url.startswith("data:")] == [pages[chapter].as_uri()]
    assert page.evaluate("document.documentElement.dataset.theme") == colors
    assert page.evaluate(OVERFLOWS) == []
    page.close()


def test_keys_buttons_and_a_finger_turn_the_page(browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(f"{pages['07'].as_uri()}#3")
    last = page.locator("section").count()

    def here() -> int:
        assert page.locator(".frame:visible").count() in (1, last)
        return int(page.locator(".here small").inner_text())

    turns = {
        "ArrowRight": 4,
        "Space": 5,
        "ArrowLeft": 4,
        "End": last,
        "Home": 1,
        "PageDown": 2,
        "Escape": 2,
        "Enter": 2,
    }
    for key, number in turns.items():
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
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("d")
    assert {before, page.evaluate("document.documentElement.dataset.theme")} == {"light", "dark"}
    context.close()


def test_a_picture_to_play_with_keeps_its_keys_and_a_figure_grows(browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    slides = deck(read(LESSONS[0]))
    live = next(i for i, slide in enumerate(slides, 1) if slide.kind == "interactive")
    page.goto(f"{pages['00'].as_uri()}#{live}")
    page.locator(".here .live button").first.focus()
    page.keyboard.press("ArrowDown")
    assert int(page.locator(".here small").inner_text()) == live
    page.keyboard.press("PageDown")
    assert int(page.locator(".here small").inner_text()) == live + 1
    picture = page.locator(".here main img")
    narrow = picture.bounding_box()["width"]
    picture.click()
    assert picture.bounding_box()["width"] == pytest.approx(2 * narrow)
    page.keyboard.press("z")
    assert picture.bounding_box()["width"] == pytest.approx(narrow)
    page.close()


def test_printed_it_has_a_page_for_each_slide(browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(f"{pages['00'].as_uri()}#2")
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == page.locator("section").count()
    assert set(re.findall(rb"/MediaBox\s*\[([\d. ]+)\]", printed)) == {b"0 0 960 540"}
    page.close()
