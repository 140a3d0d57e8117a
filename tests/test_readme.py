"""The front door: short, every link and picture there, and what a visitor must find on it."""

import re

from once import once

from tools.address import pages, read_address
from tools.sync import ROOT

pytestmark = once

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_says_how_to_run_the_course_and_what_that_takes() -> None:
    assert README.count("\n") <= 72
    for command in ("make run", "make test"):
        assert re.search(rf"^{command} +# .* minutes$", README.split("```")[1], re.MULTILINE)
    assert "Python 3.11 or newer" in README and "GB" in README


def test_something_can_be_clicked_before_anything_must_be_installed() -> None:
    before, _, after = README.partition("make run")
    here = re.findall(r'\]\((?!https://arxiv)([^)]+)|href="([^"]+)', before)
    assert [address or link for address, link in here[:2]] == [pages(read_address(ROOT))] * 2
    assert "notebooks/00_tour.ipynb" in before and "docs/INSTALL.md" not in before
    assert not re.search(r"\bGB\b|WSL|torchrun|Docker", before)
    assert "docs/INSTALL.md" in after


def test_every_picture_says_what_it_shows() -> None:
    described = [re.search(r'alt="([^"]+)"', picture) for picture in re.findall("<img [^>]*>", README)]
    assert all(described) and len({match[1] for match in described if match}) == len(described) > 20
