"""The front door: short, every link and picture there, and what a visitor must find on it."""

import re

import pytest
from once import once

from tools.address import pages, read_address
from tools.sync import ROOT

pytestmark = once

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in ("COMMANDS", "INSTALL", "TEACHING", "WAYS"))]


def test_it_is_one_screen_and_the_table() -> None:
    assert README.count("\n") <= 72


def test_it_says_how_to_run_the_course_and_what_that_takes() -> None:
    block = README.split("```")[1]
    for command in ("make run", "make test"):
        assert re.search(rf"^{command} +# .* minutes$", block, re.MULTILINE)
    assert "Python 3.11 or newer" in README and "GB" in README


def test_something_can_be_clicked_before_anything_must_be_installed() -> None:
    before, _, after = README.partition("make run")
    here = re.findall(r'\]\((?!https://arxiv)([^)]+)|href="([^"]+)', before)
    assert [address or link for address, link in here[:2]] == [pages(read_address(ROOT))] * 2
    assert "notebooks/00_tour.ipynb" in before and "docs/INSTALL.md" not in before
    assert not re.search(r"\bGB\b|WSL|torchrun|Docker", before)
    assert "docs/INSTALL.md" in after


@pytest.mark.parametrize("name", PAGES)
def test_every_link_and_picture_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r'\]\((?!https?:|#)([^)#]+)|(?:href|src|srcset)="(?!https?:|#)([^"#]+)', text)
    assert found
    for address in filter(None, (one for pair in found for one in pair)):
        assert ((ROOT / name).parent / address).exists(), address


def test_every_picture_says_what_it_shows() -> None:
    described = [re.search(r'alt="([^"]+)"', picture) for picture in re.findall("<img [^>]*>", README)]
    assert all(described) and len({match[1] for match in described if match}) == len(described) > 20
