"""Figures: what they show, what they refuse."""

import base64
import io

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgb
from once import once
from PIL import Image

from annotated_course.plotting import Arrow, Box, glossed, plot_attention, plot_dataflow, plot_lines, show

pytestmark = once

WEIGHTS = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])


@pytest.fixture(autouse=True)
def no_window():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def luminance(colour) -> float:
    """The relative luminance of a colour, 0 for black and 1 for white (WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def words(labels) -> list[str]:
    return [label.get_text() for label in labels]


def test_an_attention_map_has_queries_as_rows_and_keys_as_columns() -> None:
    ax = plot_attention(WEIGHTS, ["the", "dog"], ["Den", "Hund", "jagt"], title="a map")
    assert (words(ax.get_yticklabels()), words(ax.get_xticklabels())) == (["the", "dog"], ["Den", "Hund", "jagt"])
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel() and ax.get_title() == "a map"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first query stands on top
    assert words(ax.texts) == ["0.50", "0.25", "0.25", "0.10", "0.20", "0.70"]
    large = plot_attention(torch.full((2, 11), 1 / 11), list("ab"), list("abcdefghijk"))
    assert not large.texts and [other.get_ylabel() for other in large.figure.axes if other is not large] == ["weight"]


def test_labels_of_two_lines_lie_flat_side_by_side() -> None:
    two_lines = glossed(["Der", "Hund", "jagt", "die", "Katze", "<eos>"], ["the", "dog", "chases", "the", "cat", ""])
    assert two_lines[1] == "Hund\ndog" and two_lines[5] == "<eos>"
    ax = plot_attention(torch.full((6, 6), 1 / 6), two_lines, two_lines)
    ax.figure.draw_without_rendering()
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0}
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])


def test_every_number_stands_out_from_its_square() -> None:
    ax = plot_attention(torch.linspace(0, 1, 64).reshape(8, 8), list("abcdefgh"), list("abcdefgh"))
    ax.figure.canvas.draw()
    for number, square in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
        darker, lighter = sorted((luminance(number.get_color()), luminance(square)))
        assert (lighter + 0.05) / (darker + 0.05) > 4.3, number.get_text()  # the contrast ratio of WCAG 2


def test_lines_differ_without_colour() -> None:
    lines = {"a": [1, 2, 3], "b": [2, 3, 5], "c": torch.tensor([5, 7, 11])}
    ax = plot_lines([1, 2, 4], lines, x_label="width", y_label="cost", log="xy")
    assert len({line.get_linestyle() for line in ax.lines}) == len({line.get_marker() for line in ax.lines}) == 3
    assert words(ax.get_legend().get_texts()) == ["a", "b", "c"] and words(ax.get_xticklabels()) == ["1", "2", "4"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()) == ("width", "cost", "log", "log")


def test_labels_stand_at_the_ends_of_their_lines_and_never_on_each_other() -> None:
    lines = {"high": [0, 9.0], "low": [0, 1.0], "as low": [0, 1.05]}
    ax = plot_lines([1, 2], lines, x_label="step", y_label="loss", label_ends=True)
    assert ax.get_legend() is None
    ax.figure.canvas.draw()
    texts = {text.get_text(): text for text in ax.texts}
    boxes = {name: text.get_window_extent() for name, text in texts.items()}
    for line in ax.lines:
        assert line.get_color() == texts[line.get_label()].get_color()
        assert boxes[line.get_label()].x0 > ax.transData.transform((2, 0))[0]
    assert boxes["low"].y1 < boxes["as low"].y0 < boxes["as low"].y1 < boxes["high"].y0
    assert boxes["high"].y0 < ax.transData.transform((0, 9.0))[1] < boxes["high"].y1


def test_a_dataflow_drawing_shows_each_box_and_ends_its_arrows_at_their_edges() -> None:
    boxes = {"x": Box(1, 1, "x\n(3, 5)"), "f": Box(3, 1, "f", operation=True), "y": Box(3, 2.5, "y")}
    arrows = [Arrow("x", "f", "label"), Arrow("f", "y")]
    ax = plot_dataflow(boxes, arrows, size=(4, 3.5), title="what becomes of x")
    assert [text for text in words(ax.texts) if text] == ["what becomes of x", "x\n(3, 5)", "f", "y", "label"]
    across, up = (text for text in ax.texts if getattr(text, "arrow_patch", None))
    assert across.xyann[1] == across.xy[1] == 1 and 1 < across.xyann[0] < across.xy[0] < 3
    assert up.xyann[0] == up.xy[0] == 3 and 1 < up.xyann[1] < up.xy[1] < 2.5
    colours = [ax.texts[i].get_bbox_patch().get_facecolor() for i in (1, 2, 3)]
    assert colours[0] == colours[2] != colours[1]


def test_a_figure_is_shown_once_with_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    display = "IPython.display.display"
    monkeypatch.setattr(display, lambda what, raw=False, metadata=None: shown.append((what, metadata)))
    figure, _ = plt.subplots(figsize=(3, 2))
    show("Weights < 1 & a dog.")
    (picture, metadata), (folded, nothing) = shown
    assert picture["text/plain"] == repr(figure)
    described = metadata["image/png"]
    assert described["alt"] == "Weights < 1 & a dog."
    image = Image.open(io.BytesIO(base64.b64decode(picture["image/png"])))
    assert image.mode == "P", "without a palette a lesson is three times as large"
    shown_at = described["width"], described["height"]
    assert tuple(size // 2 for size in image.size) == shown_at, "sharp on screens with small pixels"
    assert folded.data.endswith("</summary>Weights &lt; 1 &amp; a dog.</details>") and nothing is None
    assert plt.get_fignums() == []  # or a notebook would show it again


def test_a_map_that_does_not_fit_its_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2, 3\).*one head"):
        plot_attention(WEIGHTS[None], list("ab"), list("abc"))
    with pytest.raises(ValueError, match=r"need 2 query labels \(rows\) and 3 key"):
        plot_attention(WEIGHTS, list("abc"), list("ab"))
