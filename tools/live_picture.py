"""Film the live page for the README: python -m tools.live_picture

Plays its first sentence in Chromium, word by word, then points at a few words; writes docs/drawings/live.gif, the same
in the dark, live-dark.gif, and for those who want nothing to move the last frame, live.png. Buttons are left out: in a
picture they would do nothing. Run it after a change of what the page's first screen shows.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from tools.chromium import open_chromium
from tools.live import LIVE
from tools.sync import ROOT

FOLDER = ROOT / "docs" / "drawings"
WIDTH, MARGIN = 800, 12  # pixels
COLORS = 128
PACE = 250  # milliseconds between two words, as on the page
POINTED, END = 1_100, 2_600  # milliseconds for a word that is pointed at, and for the last frame
WORDS = ("ball", "snow")  # to point at
LEFT_OUT = ".buttons, #limits, .under, figcaption, section + section { display: none !important; }"


def main() -> None:
    """Film the page and write the pictures."""
    with open_chromium() as browser:
        for name, scheme in (("live-dark", "dark"), ("live", "light")):
            frames = film(browser.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme=scheme))
            pictures, durations = zip(*frames, strict=True)
            first, *others = with_few_colors(pictures)
            first.save(
                FOLDER / f"{name}.gif",
                save_all=True,
                append_images=others,
                duration=list(durations),
                loop=0,
                optimize=True,
            )
        others[-1].save(FOLDER / "live.png", optimize=True)


def film(page: Any) -> list[tuple[Image.Image, int]]:
    """Give the frames of a page of playwright, each with the milliseconds that it stays."""
    frames: list[tuple[Image.Image, int]] = []

    def take(milliseconds: int) -> None:
        frames.append((Image.open(BytesIO(page.screenshot(clip=clip))).convert("RGB"), milliseconds))

    page.goto((LIVE / "index.html").as_uri())
    page.wait_for_function("document.getElementById('spoken').textContent")
    page.add_style_tag(content=LEFT_OUT)
    top = page.locator("#form").bounding_box()["y"] - MARGIN
    ends = {"#candidates": 3, "#alignment": 1}  # with so many margins: the candidates' heading grows by a line or two
    boxes = {place: page.locator(place).bounding_box() for place in ends}
    bottom = max(box["y"] + box["height"] + ends[place] * MARGIN for place, box in boxes.items())
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
    page.clock.install()  # from here on, time goes on only when it is told to
    page.get_by_text("Play again").dispatch_event("click")
    page.mouse.move(0, 0)
    take(3 * PACE)
    for count in range(page.locator("#translation button").count()):
        while page.locator("#translation button:not(.unwritten)").count() <= count:
            page.clock.run_for(25)
        take(PACE)
    page.clock.run_for(PACE)
    for word in WORDS:
        page.locator("#translation button", has_text=word).hover()
        take(POINTED)
    page.mouse.move(0, 0)
    page.clock.run_for(PACE)
    take(END)
    return frames


def with_few_colors(pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """Give each pixel the nearest of the most frequent colours: white stays white, where an average would be grey."""
    pixels = np.stack([np.asarray(picture, dtype=np.int32) for picture in pictures])
    found, places, counts = np.unique(pixels @ [1 << 16, 1 << 8, 1], return_inverse=True, return_counts=True)
    channels = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=-1)
    kept = channels[np.argsort(counts)[-COLORS:]]
    nearest = ((channels[:, None] - kept) ** 2).sum(axis=-1).argmin(axis=1).astype(np.uint8)
    reduced = [Image.fromarray(one) for one in nearest[places].reshape(pixels.shape[:-1])]
    for picture in reduced:
        picture.putpalette(kept.astype(np.uint8).tobytes())
    return reduced


if __name__ == "__main__":
    main()
