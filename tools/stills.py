"""Save what each picture to play with shows before anyone plays: python -m tools.stills

Takes the pictures from the saved notebooks, lets a browser that wants no motion draw them, and writes each beside its
script, `play.svg` beside `play.js`. Where nobody can play, a button marked `data-still` is pressed first: the tree of a
search is full-grown there. Execute a notebook before, so that its picture is there, and after, to hold its still.
"""

import re
from typing import Any

from annotated_course.play import FOLDER, PICTURES
from tools.chapters import read
from tools.chromium import open_chromium
from tools.sync import notebook_paths

# The panels in rows, as on a desk; the style goes along, since a picture in a picture does not see the page's.
DRAW = """style => {
  document.querySelectorAll("[data-still]").forEach(button => button.click());
  const [desk, gap, edge] = [656, 20, 8];
  let [x, y, width, height] = [0, 0, 0, 0];
  const copies = [...document.querySelectorAll(".play-panels > svg")].map(panel => {
    const [across, down] = [panel.width.baseVal.value, panel.height.baseVal.value];
    if (x && x + across > desk) [x, y] = [0, height + gap];
    const copy = panel.cloneNode(true);
    copy.setAttribute("x", x);
    copy.setAttribute("y", y);
    [x, width, height] = [x + across + gap, Math.max(width, x + across), Math.max(height, y + down)];
    return new XMLSerializer().serializeToString(copy).replace(' xmlns="http://www.w3.org/2000/svg"', "");
  });
  const [across, down] = [width + 2 * edge, height + 2 * edge];
  const size = `viewBox="${-edge} ${-edge} ${across} ${down}" width="${across}" height="${down}"`;
  const paper = `<rect x="${-edge}" y="${-edge}" width="100%" height="100%" fill="var(--paper)"/>`;
  const parts = [`<style>\\n${style}</style>`, paper, ...copies, "</svg>\\n"];
  return [`<svg xmlns="http://www.w3.org/2000/svg" class="play" ${size}>`, ...parts].join("\\n");
}"""


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
