"""Cut the README's small pictures from the chapters' own figures: python -m tools.draw_chapters

Run it after executing notebooks whose figures have changed. Each picture is a part of one saved figure, which is found
by how its description begins.
"""

from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import nbformat
from PIL import Image, ImageOps

from tools.sync import ROOT

SIZE = 320, 200  # pixels; the README shows them half as large, so that they stay sharp on a fine screen
COLOURS = 64
BORDER = 4  # white, around what is cut out


class Part(NamedTuple):
    """What to cut out of which figure."""

    figure: str  # the first words of its description
    left: float = 0.0  # the edges, as parts of its width and height
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0


PARTS = {
    "00_tour": Part("A map of attention: a row for each English word", 0, 0.07, 0.86, 0.835),
    "01_attention": Part("A plane with three values as the corners", 0.08, 0.08, 1, 0.92),
    "02_multi_head": Part("Three attention maps over six places", 0.365, 0.085, 1, 0.72),
    "03_positional_encoding": Part("Clock dials for a fast hand of rate 1", 0.2, 0.345, 0.62, 1),
    "04_encoder": Part("Four planes, side by side, with the ten words", 0.035, 0.1, 0.5, 0.89),
    "05_decoder": Part("Two rows of eight tokens", 0, 0.1, 1, 0.9),
    "06_masking": Part("Which output depends on which input", 0.5, 0.08, 1, 0.95),
    "07_training": Part("Learning rate against step", 0.06, 0.1, 0.98, 0.92),
    "08_decoding": Part("The tree of a beam search with K = 2", 0, 0.1, 1, 0.9),
    "09_whole_transformer": Part("Ten rows, downwards", 0.38, 0.28, 1, 0.53),
    "10_why_attention": Part("Two drawings of an encoder that reads A B C", 0.49, 0.1, 1, 0.9),
    "11_evaluation": Part("Two panels of histograms", 0.01, 0.08, 0.5, 0.9),
    "12_model_variations": Part("Change of BLEU for Anna", 0, 0.07, 1, 0.68),
    "13_speed": Part("Bars: the recorded seconds of one update", 0, 0.19, 1, 0.86),
    "14_classification": Part("Two attention maps of the complaint", 0, 0.11, 0.44, 0.845),
    "15_generation": Part("Five strips from 0 to 1", 0, 0.13, 1, 0.88),
    "16_bert_and_gpt": Part("Two masks, a row for each word", 0, 0.1, 1, 0.96),
    "17_relative_positions": Part("Two 6 by 6 grids of distances", 0, 0.05, 0.5, 0.95),
    "18_beyond_quadratic": Part("A football pitch", 0, 0.09, 1, 0.96),
    "19_debugging": Part("A matrix, 22 rows by 16 checks", 0.2, 0.14, 1, 0.72),
    "20_paper_code_today": Part("Three panels with eight queries each", 0, 0, 0.68, 1),
    "project": Part("Two panels. Left, histograms of words", 0.5, 0.1, 1, 0.86),
    "questions": Part("Where the word im", 0, 0.2, 1, 1),
}


def figure(name: str) -> Image.Image:
    """Find the one saved figure of a notebook whose description begins as `PARTS` says.

    Args:
        name: the notebook's, without its ending.

    Raises:
        ValueError: no figure begins so, or several do.
    """
    found = []
    for cell in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells:
        for output in cell.get("outputs", []):
            described = output.get("metadata", {}).get("image/png", {}).get("alt", "")
            if described.startswith(PARTS[name].figure):
                found.append(output.data["image/png"])
    if len(found) != 1:
        raise ValueError(f"{name}: {len(found)} figures are described as “{PARTS[name].figure} …”; it must be one.")
    return Image.open(BytesIO(b64decode(found[0]))).convert("RGB")


def thumb(name: str) -> Path:
    """Tell where a notebook's small picture lies: in its chapter's folder."""
    return ROOT / "annotated_course" / "chapters" / (f"c{name}" if name[0].isdigit() else name) / "thumb.png"


def small(name: str) -> Image.Image:
    """Cut a notebook's picture out of its figure, and bring it to the size of all.

    Args:
        name: the notebook's, without its ending.
    """
    whole, part = figure(name), PARTS[name]
    width, height = whole.size
    cut = whole.crop(
        (int(part.left * width), int(part.top * height), int(part.right * width), int(part.bottom * height))
    )
    blank = ImageOps.invert(cut.convert("L")).point(lambda depth: 255 * (depth > 8))
    cut = ImageOps.pad(
        cut.crop(blank.getbbox()), (SIZE[0] - 2 * BORDER, SIZE[1] - 2 * BORDER), Image.Resampling.LANCZOS, color="white"
    )
    return ImageOps.expand(cut, BORDER, "white").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def main() -> None:
    """Write all of them."""
    for name in PARTS:
        small(name).save(thumb(name), optimize=True)


if __name__ == "__main__":
    main()
