"""Figures: what they show and say, and what they refuse."""

import base64
import io
import math
from itertools import combinations

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, PathPatch, Polygon, Rectangle
from once import once
from PIL import Image

from annotated_course.drawings import Node, describe_tree, plot_dials, plot_plane, plot_tree
from annotated_course.grids import Grid, describe, plot_matrices
from annotated_course.plotting import Arrow, Box, as_html, glossed, plot_attention, plot_dataflow, plot_lines, show

pytestmark = once

MAP = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
LABELS = ["Hund\ndog", "jagt\nchases"]
WEIGHTS = Grid(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), "weights", rows=LABELS, columns=LABELS)
VALUES = Grid([[8, 0], [0, -4]], "values V", rows=LABELS)
OUTPUT = Grid(torch.tensor([[6.0, -1.0], [4.0, -2.0]]), "output")
CORNERS = {"Hund\ndog": (8, 0), "jagt\nchases": (0, 4), "Katze\ncat": (4, 4)}
TREE = [
    Node("<bos>"),
    Node("a", "−0.5", 0),
    Node("the", "−0.9", 0),
    Node("cat", "−1.2", 2),
    Node("dog", "−2.1", 1, kept=False),
    Node("<eos>", "−1.5", 3, finished=True),
]


@pytest.fixture(autouse=True)
def no_window():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def luminance(colour) -> float:
    """The relative luminance of a colour, 0 for black and 1 for white (WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def words(labels) -> list[str]:
    return [label.get_text() for label in labels]


def stand_apart(labels) -> bool:
    """Whether no two labels of a figure lie on each other."""
    labels[0].figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    return not any(box.overlaps(other) for box, other in combinations(boxes, 2))


def test_an_attention_map_has_queries_as_rows_and_keys_as_columns() -> None:
    tokens = ["$$", r"$\nonsense$", r"\$"]  # which might be read as formulas
    ax = plot_attention(MAP, ["the", "dog"], ["Den", "Hund", "jagt"], title="a map")
    assert (words(ax.get_yticklabels()), words(ax.get_xticklabels())) == (["the", "dog"], ["Den", "Hund", "jagt"])
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel() and ax.get_title() == "a map"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first query stands on top
    assert words(ax.texts) == ["0.50", "0.25", "0.25", "0.10", "0.20", "0.70"]
    plane = plot_plane({token: (1, i) for i, token in enumerate(tokens)})
    others = plot_attention(MAP, tokens[:2], tokens, ax=ax), plot_matrices([Grid(MAP, "", columns=tokens)])
    for drawn in (plane, *others):
        drawn.figure.draw_without_rendering()
        assert {*tokens} <= {*words(drawn.get_xticklabels()), *words(drawn.texts)}
    large = plot_attention(torch.full((2, 11), 1 / 11), list("ab"), list("abcdefghijk"))
    assert not large.texts and [other.get_ylabel() for other in large.figure.axes if other is not large] == ["weight"]


def test_labels_of_two_lines_lie_flat_side_by_side() -> None:
    two_lines = glossed(["Der", "Hund", "jagt", "die", "Katze", "<eos>"], ["the", "dog", "chases", "the", "cat", ""])
    assert two_lines[1] == "Hund\ndog" and two_lines[5] == "<eos>"
    ax = plot_attention(torch.full((6, 6), 1 / 6), two_lines, two_lines)
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0}
    assert stand_apart(ax.get_xticklabels()) and stand_apart(ax.get_yticklabels())


def test_every_number_stands_out_from_its_square() -> None:
    ax = plot_attention(torch.linspace(0, 1, 64).reshape(8, 8), list("abcdefgh"), list("abcdefgh"))
    ax.figure.canvas.draw()
    for number, square in zip(ax.texts, ax.collections[0].get_facecolors(), strict=True):
        assert contrast(number.get_color(), square) > 4.3, number.get_text()


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
    assert picture["text/plain"] == str(picture) == repr(figure)  # the latter is printed by a script
    described = metadata["image/png"]
    assert described["alt"] == "Weights < 1 & a dog."
    image = Image.open(io.BytesIO(base64.b64decode(picture["image/png"])))
    assert image.mode == "P", "without a palette a lesson is three times as large"
    shown_at = described["width"], described["height"]
    assert tuple(size // 2 for size in image.size) == shown_at, "sharp on screens with small pixels"
    assert folded.data.endswith("</summary>Weights &lt; 1 &amp; a dog.</details>") and nothing is None
    assert plt.get_fignums() == []  # or a notebook would show it again
    assert as_html("<b>$5 or \\($9") == r"&lt;b&gt;<span>$</span>5 or <span>\</span>(<span>$</span>9"


def rectangles(ax):
    """The cells of a grid, or the frames of a tree."""
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def faces(values, **options):
    return [cell.get_facecolor() for cell in rectangles(plot_matrices([Grid(values, "grid", **options)]))]


def test_picture_and_words_hold_every_number_label_name_shape_and_operator() -> None:
    product = [WEIGHTS, "·", VALUES, "=", OUTPUT]
    ax = plot_matrices(product, title="a weighted mean")
    shown = words(ax.texts)
    assert {"0.75", "8", "−4", "Hund", "dog", "weights", "values V", "2 × 2", "·", "="} <= {*shown}
    assert shown.count("2 × 2") == 3 and shown.count("Hund") == 3 and ax.get_title() == "a weighted mean"
    assert describe(product) == (
        "weights (2 × 2; columns Hund (dog), jagt (chases); Hund (dog): 0.75, 0.25; jagt (chases): 0.5, 0.5) times "
        "values V (2 × 2; Hund (dog): 8, 0; jagt (chases): 0, −4) equals output (2 × 2; 6, −1; 4, −2)."
    )
    assert describe([[Grid([1], "a"), "softmax\nof each row\n→"], [Grid([2, 3], "b")]]) == (
        "a (1 number; 1) softmax of each row gives. b (2 numbers; 2, 3)."
    )


def test_numbers_are_written_short() -> None:
    numbers = [8.0, 0.5, -1.386, 0.125 - 1e-8, -0.001, 120, -math.inf, "2 ln 2"]
    written = ["8", "0.5", "−1.39", "0.13", "0", "120", "−∞", "2 ln 2"]
    assert words(plot_matrices([Grid(numbers, "numbers")]).texts)[:8] == written
    assert describe([Grid(numbers, "numbers")]) == f"numbers (8 numbers; {', '.join(written)})."


def test_a_row_keeps_its_colour_and_is_a_column_once_transposed() -> None:
    ones = torch.ones(2, 2)
    blue, _, orange, _ = by_row = faces(ones)
    assert by_row == [blue, blue, orange, orange] and blue != orange
    assert faces(ones, colour_by="columns") == [blue, orange, blue, orange]
    assert faces(ones, colours=[1, 0]) == [orange, orange, blue, blue]
    assert len({*to_rgb(faces(ones, colour_by=None)[0])}) == 1


def test_the_farther_from_zero_the_darker_and_always_legible() -> None:
    ax = plot_matrices([Grid(torch.linspace(0, 1, 4).repeat(10, 1) * torch.tensor([1, -1, 1, -1]), "ten rows")])
    light = [luminance(cell.get_facecolor()) for cell in rectangles(ax)]
    for row in range(10):
        assert sorted(light[4 * row : 4 * row + 4], reverse=True) == light[4 * row : 4 * row + 4]
    assert light[0] > 0.85  # zero is nearly white
    assert min(contrast(cell.get_facecolor(), ax.texts[0].get_color()) for cell in rectangles(ax)) > 4.5


def test_hidden_cells_are_hatched_and_said_to_be_hidden() -> None:
    scores = Grid([[0, -math.inf], [0, 1]], "scores", hidden=torch.tensor([[False, True], [False, False]]))
    zero, hidden, *others = rectangles(plot_matrices([scores]))
    assert hidden.get_hatch() and not any(cell.get_hatch() for cell in (zero, *others))
    assert luminance(hidden.get_edgecolor()) > 0.5  # the hatching: a number stays legible on it
    assert describe([scores]) == "scores (2 × 2; 0, −∞ (hidden); 0, 1)."


def test_nothing_overlaps_and_nothing_is_cut_off() -> None:
    ax = plot_matrices([[WEIGHTS, "softmax\nof each row\n→", VALUES], ["=", OUTPUT]])
    assert stand_apart(ax.texts)
    boxes, page = [text.get_window_extent() for text in ax.texts if text.get_text()], ax.figure.bbox
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1 for box in boxes)


def dots(ax):
    return {tuple(dot.get_offsets()[0]): dot for dot in ax.collections}


def test_corners_span_an_area_and_colours_are_numbered() -> None:
    ax = plot_plane(CORNERS | {"inside": (5.0, 2.0)}, corners=list(CORNERS), x_label="first", title="between")
    (area,) = (patch for patch in ax.patches if isinstance(patch, Polygon))
    assert area.get_xy()[:3].tolist() == [[8, 0], [0, 4], [4, 4]]
    assert dots(ax)[5, 2].get_sizes()[0] < dots(ax)[8, 0].get_sizes()[0]
    assert ax.get_aspect() == 1 and ax.get_xlabel() == "first" and ax.get_title() == "between"
    colour = to_rgb(dots(ax)[8, 0].get_facecolor()[0])
    other = plot_plane({"a": (0, 0), "b": (1, 1)}, colours={"b": 0, "a": 1})
    assert to_rgb(dots(other)[1, 1].get_facecolor()[0]) == colour != to_rgb(dots(other)[0, 0].get_facecolor()[0])


def test_labels_stand_clear_of_each_other_and_inside() -> None:
    outputs = {"output of Hund": (5.0, 2.0), "output of jagt": (2.4, 3.2)}
    for ax in plot_plane(CORNERS | outputs, corners=list(CORNERS)), plot_plane({f"word {i}": (i, 0) for i in range(8)}):
        assert stand_apart(ax.texts) and len(ax.texts) == len(dots(ax))
        for box in (text.get_window_extent() for text in ax.texts):
            assert ax.bbox.contains(box.x0, box.y0) and ax.bbox.contains(box.x1, box.y1)
            assert not any(box.contains(*ax.transData.transform(place)) for place in dots(ax))


def test_a_tree_grows_to_the_right_and_shows_and_says_what_became_of_each_hypothesis() -> None:
    ax = plot_tree(TREE, best=5, title="a beam of two")
    assert ax.get_title() == "a beam of two" and {"<bos>", "the", "−0.9"} <= {*words(ax.texts)}
    start, a, the, cat, dog, eos, inner = rectangles(ax)
    assert start.get_x() < a.get_x() == the.get_x() < cat.get_x() == dog.get_x()
    assert a.get_y() > the.get_y() and dog.get_y() > cat.get_y()  # "cat" comes first, but its parent stands lower
    assert dog.get_linestyle() == "--" and dog.get_facecolor() != a.get_facecolor()
    assert start.get_linewidth() == the.get_linewidth() == eos.get_linewidth() > a.get_linewidth()
    assert eos.get_x() < inner.get_x() and inner.get_width() < eos.get_width()
    to_a, to_the, *_ = (edge for edge in ax.patches if isinstance(edge, PathPatch))
    assert to_the.get_linewidth() > to_a.get_linewidth() and to_the.get_zorder() > to_a.get_zorder()
    assert all(word in ax.texts[-1].get_text() for word in ("kept", "dropped", "finished", "best"))
    assert plot_tree(TREE[:3]).texts[-1].get_text() == "filled: kept"
    assert describe_tree(TREE, best=5) == (
        "Level 0: <bos>. Level 1: <bos> a, −0.5, kept; <bos> the, −0.9, kept. Level 2: <bos> a dog, −2.1, dropped; "
        "<bos> the cat, −1.2, kept. Level 3: <bos> the cat <eos>, −1.5, kept, finished, the best."
    )


def test_a_hand_points_to_sine_and_cosine() -> None:
    ax = plot_dials(torch.tensor([[0.0, math.pi / 2], [math.pi, 0.6]]), rows=["fast", "slow"], columns=["0", "1"])
    middles = [patch.center for patch in ax.patches if isinstance(patch, Circle)]
    hands = [line.get_xydata() for line in ax.lines if line.get_linewidth() > 1]
    for (x, y), hand, angle in zip(middles, hands, (0, math.pi / 2, math.pi, 0.6), strict=True):
        assert hand[0].tolist() == pytest.approx([x, y])
        tip = (hand[1] - hand[0]) / math.dist(*hand)
        assert tip.tolist() == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)
    assert middles[0][0] < middles[1][0] and middles[0][1] == middles[1][1] > middles[2][1]
    assert [text.get_text() for text in ax.texts] == ["fast", "slow", "0", "1"]
