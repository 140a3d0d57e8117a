"""Save what each picture to play with shows before anyone plays: python -m tools.stills

Takes the pictures from the saved notebooks, lets a browser that wants no motion draw them, and writes each beside its
script, `play.svg` beside `play.js`. Where nobody can play, a button marked `data-still` is pressed first: the tree of a
search is full-grown there. Execute a notebook before, so that its picture is there, and after, to hold its still.
"""

import re
from pathlib import Path
from typing import Any

from annotated_course.play import FOLDER, PICTURES
from tools.chapters import read
from tools.chromium import open_chromium
from tools.sync import notebook_paths

DRAW = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")  # the panels, in the browser


def saved_pictures() -> dict[str, str]:
    """Give the pictures to play with that the saved notebooks show: a page's part for each name."""
    outputs = [output for path in notebook_paths() for cell in read(path).cells for output in cell.get("outputs", [])]
    pages = (output.get("data", {}).get("text/html", "") for output in outputs)
    return {name[1]: page for page in pages if (name := re.search(r'<div class="play" data-name="(\w+)"', page))}


def still(page: Any, shown: str) -> str:
    """Draw a picture, shown as a part of a page, in playwright's page; give its panels as one SVG."""
    page.set_content(f'<!doctype html><html lang="en" data-theme="light"><body>{shown}</body></html>')
    return page.evaluate(DRAW, (FOLDER / "style.css").read_text(encoding="utf-8"))


if __name__ == "__main__":
    with open_chromium() as browser:
        page = browser.new_page(reduced_motion="reduce")
        for name, shown in saved_pictures().items():
            PICTURES[name].with_suffix(".svg").write_text(still(page, shown), encoding="utf-8")
            print(name)
