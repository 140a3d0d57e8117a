"""The front door: short, and what a visitor must find on it. Its links and pictures are in test_notebooks' hands."""

import re

from once import once

from tools.address import badges, pages, read_address
from tools.sync import ROOT

pytestmark = once

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_something_can_be_clicked_before_anything_must_be_installed() -> None:
    ours = re.sub(r"<!-- made by.*?: end -->", "", README, flags=re.DOTALL)
    assert ours.count("\n") <= 44 and "<table" not in README  # whose columns a phone makes a word wide
    assert badges(read_address(ROOT), "") or "download the repository" in README.partition("<picture>")[0]
    assert README.split("```")[1].startswith("\nmake lab ")
    for command in ("make run", "make test"):
        assert re.search(rf"^{command} +# .* minutes$", README.split("```")[1], re.MULTILINE)
    before, _, after = README.partition("make run")
    here = re.findall(r'\]\((?!https://arxiv)([^)]+)|href="([^"]+)', before)
    assert [address or link for address, link in here[:2]] == [pages(read_address(ROOT))] * 2
    assert "notebooks/00_tour.ipynb" in before and "docs/INSTALL.md" not in before
    assert not re.search(r"\bGB\b|WSL|torchrun|Docker", before)
    assert "docs/INSTALL.md" in after and "Python 3.11 or newer" in after and "GB" in after
