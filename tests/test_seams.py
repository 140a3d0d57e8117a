"""What lies between chapters: hours that add up, links and terms, and results of one that another cites."""

import json
import re
from pathlib import Path

import pytest
from once import once

from tools.chapters import chapters, read
from tools.reading import main_line
from tools.sync import ROOT

pytestmark = once

CHAPTERS = {chapter.number: chapter for chapter in chapters(ROOT) if chapter.number}
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.ipynb")]
LINK = re.compile(r"\[([^\[\]]+)\]\((?:\.\./|notebooks/)*(\d\d)_\w+\.ipynb(?:#([^)\s]*))?\)")


def prose(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


def hours(way: str) -> str:
    """Add the minutes of the chapters of a way, as in "00 to 03, 19", to half hours."""
    spans = re.findall(r"(\d\d)(?: to (\d\d))?", way)
    numbers = [f"{number:02}" for first, last in spans for number in range(int(first), int(last or first) + 1)]
    halves = round(sum(CHAPTERS[number].about["minutes"] for number in numbers) / 30)
    return f"{halves // 2 or ''}{'½' * (halves % 2)} hour{'s' * (halves > 2)}"


def test_the_hours_of_each_way_are_the_sum_of_its_chapters() -> None:
    ways = re.findall(r"^\| ([^|]+) \| ((?:\d\d[^|]*)) \| ([^|]+) \|", prose(ROOT / "docs" / "WAYS.md"), re.MULTILINE)
    assert len(ways) == 6
    for want, way, said in ways:
        assert said == hours(way), want
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    cards = {"A weekend": "00 to 09", "The whole course": "00 to 23"}
    for card, way in cards.items():
        assert f"**{card}**, {hours(way)}:" in readme


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_where_its_text_says(page: Path) -> None:
    for text, number, anchor in LINK.findall(prose(page)):
        said = re.match(r"(?:chapter )?(\d\d)\b(?!\.)", text)
        assert not said or said[1] == number, text
        section = re.search(r"(?:section |§)(\d+)$", text)
        assert not section or anchor.startswith(f"{section[1]}."), text


def test_sections_are_numbered_without_a_gap() -> None:
    for chapter in CHAPTERS.values():
        numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", prose(chapter.notebook), re.MULTILINE)]
        assert numbers == [*range(1, len(numbers) + 1)], chapter.number


def test_a_term_is_bold_in_the_chapter_that_teaches_it_and_not_met_before() -> None:
    before = ""
    for chapter in CHAPTERS.values():
        main = "\n\n".join(cell.source for cell in main_line(read(chapter.notebook)) if cell.cell_type == "markdown")
        bold = {text.lower() for text in re.findall(r"\*\*([^*]+)\*\*", main)}
        for term in chapter.about.get("terms", ()):
            assert any(term in text for text in bold), f"{chapter.number}: {term} is not bold"
            assert not re.search(rf"\b{re.escape(term)}", before), f"{term} is met before {chapter.number}"
        before += main.lower()


def test_what_others_say_of_chapter_12_is_what_it_measured() -> None:
    rows = json.loads((ROOT / "data" / "results" / "table3.json").read_text(encoding="utf-8"))["rows"]
    measured = {f"{row[f'{score}_change']:+.{digits}f}" for row in rows for score, digits in (("nats", 3), ("bleu", 2))}
    cited = 0
    for number in CHAPTERS.keys() - {"12"}:
        for sentence in re.findall(r"[^\n]*(?:chapter 12|12_model_variations)[^\n]*", prose(CHAPTERS[number].notebook)):
            for figure in re.findall(r"[+−-]\d\.\d+(?= (?:nats|BLEU))", sentence):
                assert figure.replace("−", "-") in measured, (number, sentence)
                cited += 1
    assert cited
