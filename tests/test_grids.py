"""Tensors as grids of cells: what they show, say and refuse."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from once import once

from annotated_course.grids import Grid, describe, plot_matrices
from tests.test_plotting import luminance, no_window, words  # noqa: F401

pytestmark = once

LABELS = ["Hund\ndog", "jagt\nchases"]
WEIGHTS = Grid(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), "weights", rows=LABELS, columns=LABELS)
VALUES = Grid([[8, 0], [0, -4]], "values V", rows=LABELS)
OUTPUT = Grid(torch.tensor([[6.0, -1.0], [4.0, -2.0]]), "output")


def cells(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def faces(values, **options):
    """The colours of a grid's cells."""
    return [cell.get_facecolor() for cell in cells(plot_matrices([Grid(values, "grid", **options)]))]


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
    light = [luminance(cell.get_facecolor()) for cell in cells(ax)]
    for row in range(10):
        assert sorted(light[4 * row : 4 * row + 4], reverse=True) == light[4 * row : 4 * row + 4]
    assert light[0] > 0.85  # zero is nearly white
    assert (min(light) + 0.05) / (luminance(ax.texts[0].get_color()) + 0.05) > 4.5  # the contrast ratio of WCAG 2


def test_grids_can_have_one_scale_and_signs_and_what_is_no_number_counts_as_the_largest() -> None:
    assert faces([9]) == faces([1]) == faces([12], largest=9)
    assert luminance(faces([1], largest=9)[0]) > luminance(faces([9])[0])
    signed, sizes = (faces([-2, 0, 1, 2], signed=signed) for signed in (True, False))
    light = list(map(luminance, signed))
    assert light == sorted(light, reverse=True) and len({*light}) == 4
    assert sizes[0] == sizes[3] == signed[3]
    two_ln_2, zero, minus_infinity, largest = faces(["2 ln 2", "0", -math.inf, 3.0])
    assert two_ln_2 == largest != zero == minus_infinity


def test_hidden_cells_are_hatched_and_said_to_be_hidden() -> None:
    scores = Grid([[0, -math.inf], [0, 1]], "scores", hidden=torch.tensor([[False, True], [False, False]]))
    zero, hidden, *others = cells(plot_matrices([scores]))
    assert hidden.get_hatch() and not any(cell.get_hatch() for cell in (zero, *others))
    assert luminance(hidden.get_edgecolor()) > 0.5  # the hatching: a number stays legible on it
    assert describe([scores]) == "scores (2 × 2; 0, −∞ (hidden); 0, 1)."


def test_a_wide_drawing_is_made_smaller_and_a_long_one_broken_into_lines() -> None:
    wide = Grid(torch.zeros(2, 12), "wide")
    one_line, two_lines = plot_matrices([wide, "+", wide]), plot_matrices([[wide], ["+", wide]])
    assert one_line.figure.get_figwidth() == pytest.approx(9)
    assert one_line.texts[0].get_fontsize() < two_lines.texts[0].get_fontsize()
    for inches in (*one_line.figure.get_size_inches(), *two_lines.figure.get_size_inches()):
        assert inches * 10 == pytest.approx(round(inches * 10))  # the size that a notebook prints is a round one
    assert plot_matrices([wide, "+", wide], width=5).figure.get_figwidth() == pytest.approx(5)


def test_nothing_overlaps_and_nothing_is_cut_off() -> None:
    ax = plot_matrices([[WEIGHTS, "softmax\nof each row\n→", VALUES], ["=", OUTPUT]])
    plt.gcf().draw_without_rendering()
    boxes, page = [text.get_window_extent() for text in ax.texts if text.get_text()], ax.figure.bbox
    for i, box in enumerate(boxes):
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, ax.texts[i]
        assert not any(box.overlaps(other) for other in boxes[:i]), ax.texts[i]


def test_labels_at_the_wrong_place_are_refused() -> None:
    with pytest.raises(ValueError, match="'w', 2 × 2, needs 2 rows; got 1"):
        Grid(torch.zeros(2, 2), "w", rows=["a"])
    with pytest.raises(ValueError, match="needs 3 colours; got 2"):
        Grid(torch.zeros(2, 3), "w", colour_by="columns", colours=[0, 1])
