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


def test_rows_are_queries_and_columns_are_keys() -> None:
    ax = plot_attention(WEIGHTS, ["the", "dog"], ["Den", "Hund", "jagt"], title="a map")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["the", "dog"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["Den", "Hund", "jagt"]
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel()
    assert ax.get_title() == "a map"
    top, bottom = sorted((ax.get_ylim()[1], ax.get_ylim()[0]))
    assert ax.get_ylim() == (bottom, top)  # the first query stands on top
    assert [number.get_text() for number in ax.texts] == ["0.50", "0.25", "0.25", "0.10", "0.20", "0.70"]


def test_labels_of_two_lines_lie_flat_side_by_side() -> None:
    words = glossed(["Der", "Hund", "jagt", "die", "Katze", "<eos>"], ["the", "dog", "chases", "the", "cat", ""])
    assert words[1] == "Hund\ndog" and words[5] == "<eos>"
    ax = plot_attention(torch.full((6, 6), 1 / 6), words, words)
    ax.figure.draw_without_rendering()
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0}
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    one_line = [word.split("\n")[0] for word in words]
    assert plot_attention(torch.full((6, 6), 1 / 6), one_line, one_line).get_xticklabels()[0].get_rotation() == 45
    with pytest.raises(ValueError, match="2 words need as many glosses; got 1"):
        glossed(["der", "Hund"], ["dog"])


def test_a_large_map_has_a_colour_bar_and_no_numbers() -> None:
    ax = plot_attention(torch.full((2, 11), 1 / 11), list("ab"), list("abcdefghijk"))
    assert not ax.texts
    assert [other.get_ylabel() for other in ax.figure.axes if other is not ax] == ["weight"]


def test_every_number_stands_out_from_its_square() -> None:
    ax = plot_attention(torch.linspace(0, 1, 64).reshape(8, 8), list("abcdefgh"), list("abcdefgh"))
    ax.figure.canvas.draw()
    for number, square in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
        darker, lighter = sorted((luminance(number.get_color()), luminance(square)))
        assert (lighter + 0.05) / (darker + 0.05) > 4.3, number.get_text()  # the contrast ratio of WCAG 2


def luminance(colour) -> float:
    """The relative luminance of a colour, 0 for black and 1 for white (WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_wrong_shape_or_labels_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2, 3\).*one head"):
        plot_attention(WEIGHTS[None], list("ab"), list("abc"))
    with pytest.raises(ValueError, match=r"need 2 query labels \(rows\) and 3 key labels \(columns\); got 3 and 2"):
        plot_attention(WEIGHTS, list("abc"), list("ab"))


def test_lines_differ_without_colour() -> None:
    lines = {"a": [1, 2, 3], "b": [2, 3, 5], "c": torch.tensor([5, 7, 11])}
    ax = plot_lines([1, 2, 4], lines, x_label="width", y_label="cost", log="xy")
    assert len({line.get_linestyle() for line in ax.lines}) == len({line.get_marker() for line in ax.lines}) == 3
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "cost")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4"]


def test_labels_stand_at_the_ends_of_their_lines_and_never_on_each_other() -> None:
    lines = {"high": [0, 9.0], "low": [0, 1.0], "as low": [0, 1.05]}
    ax = plot_lines([1, 2], lines, x_label="step", y_label="loss", label_ends=True)
    assert ax.get_legend() is None
    ax.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    for line in ax.lines:
        assert line.get_color() == next(text.get_color() for text in ax.texts if text.get_text() == line.get_label())
        assert boxes[line.get_label()].x0 > ax.transData.transform((2, 0))[0]
    assert boxes["low"].y1 < boxes["as low"].y0 < boxes["as low"].y1 < boxes["high"].y0
    middle = ax.transData.transform((0, 9.0))[1]
    assert boxes["high"].y0 < middle < boxes["high"].y1


def test_bad_lines_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'a' has 2 values for 3"):
        plot_lines([1, 2, 3], {"a": [1, 2]}, x_label="x", y_label="y")
    with pytest.raises(ValueError, match=r"got 'z'"):
        plot_lines([1], {"a": [1]}, x_label="x", y_label="y", log="z")


def test_a_dataflow_drawing_shows_each_box_and_ends_its_arrows_at_their_edges() -> None:
    boxes = {"x": Box(1, 1, "x\n(3, 5)"), "f": Box(3, 1, "f", operation=True), "y": Box(3, 2.5, "y")}
    arrows = [Arrow("x", "f", "label"), Arrow("f", "y")]
    ax = plot_dataflow(boxes, arrows, size=(4, 3.5), title="what becomes of x")
    assert [text.get_text() for text in ax.texts if text.get_text()] == [
        "what becomes of x",
        "x\n(3, 5)",
        "f",
        "y",
        "label",
    ]
    across, up = (text for text in ax.texts if getattr(text, "arrow_patch", None))
    assert across.xyann[1] == across.xy[1] == 1 and 1 < across.xyann[0] < across.xy[0] < 3
    assert up.xyann[0] == up.xy[0] == 3 and 1 < up.xyann[1] < up.xy[1] < 2.5
    colours = [ax.texts[i].get_bbox_patch().get_facecolor() for i in (1, 2, 3)]
    assert colours[0] == colours[2] != colours[1]


def test_an_arrow_to_a_box_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="asks for the box 'z'; there are x"):
        plot_dataflow({"x": Box(1, 1, "x")}, [Arrow("x", "z")], size=(2, 2))


def test_a_figure_is_shown_once_with_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda what, raw=False, metadata=None: shown.append((what, metadata))
    )
    figure, _ = plt.subplots(figsize=(3, 2))
    show("Weights < 1 & a dog.")
    (picture, metadata), (words, nothing) = shown
    assert picture["text/plain"] == repr(figure)
    described = metadata["image/png"]
    assert described["alt"] == "Weights < 1 & a dog."
    image = Image.open(io.BytesIO(base64.b64decode(picture["image/png"])))
    assert image.mode == "P", "without a palette a lesson is three times as large"
    shown_at = described["width"], described["height"]
    assert tuple(size // 2 for size in image.size) == shown_at, "sharp on screens with small pixels"
    assert words.data.endswith("</summary>Weights &lt; 1 &amp; a dog.</details>") and nothing is None
    assert plt.get_fignums() == []  # or a notebook would show it again


def test_a_figure_without_a_description_and_a_description_without_a_figure_are_refused() -> None:
    with pytest.raises(ValueError, match="no figure"):
        show("Nothing.")
    figure = plt.figure()
    with pytest.raises(ValueError, match="description is empty"):
        show(" ")
    assert plt.fignum_exists(figure.number)
