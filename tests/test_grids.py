"""Tensors as grids of cells: what they show, say and refuse."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from once import once

from annotated_course.grids import Grid, describe, plot_matrices
from tests.test_plotting import luminance, no_window  # noqa: F401

pytestmark = once

WORDS = ["Hund\ndog", "jagt\nchases"]
WEIGHTS = Grid(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), "weights", rows=WORDS, columns=WORDS)
VALUES = Grid([[8, 0], [0, -4]], "values V", rows=WORDS)
OUTPUT = Grid(torch.tensor([[6.0, -1.0], [4.0, -2.0]]), "output")
PRODUCT = [WEIGHTS, "·", VALUES, "=", OUTPUT]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def cells(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_every_number_label_name_shape_and_operator_stands_there() -> None:
    ax = plot_matrices(PRODUCT, title="a weighted mean")
    shown = texts(ax)
    for expected in ("0.75", "8", "−4", "Hund", "dog", "weights", "values V", "2 × 2", "·", "="):
        assert expected in shown
    assert shown.count("2 × 2") == 3 and shown.count("Hund") == 3
    assert ax.get_title() == "a weighted mean"


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (8.0, "8"),
        (0.5, "0.5"),
        (-1.386, "−1.39"),
        (0.125 - 1e-8, "0.13"),
        (-0.001, "0"),
        (120, "120"),
        (-math.inf, "−∞"),
        ("2 ln 2", "2 ln 2"),
    ],
)
def test_numbers_are_written_short(number, written) -> None:
    assert written in texts(plot_matrices([Grid([number], "one")]))
    assert describe([Grid([number], "one")]) == f"one (1 number; {written})."


def test_a_row_keeps_its_colour_and_is_a_column_once_transposed() -> None:
    ones = torch.ones(2, 2)

    def colours(**how):
        ax = plot_matrices([Grid(ones, "ones", **how)])
        return [cell.get_facecolor() for cell in cells(ax)]

    blue, _, orange, _ = by_row = colours()
    assert by_row == [blue, blue, orange, orange] and blue != orange
    assert colours(colour_by="columns") == [blue, orange, blue, orange]
    assert colours(colours=[1, 0]) == [orange, orange, blue, blue]
    red, green, also_blue = to_rgb(colours(colour_by=None)[0])
    assert red == green == also_blue


def test_the_farther_from_zero_the_darker_and_always_legible() -> None:
    numbers = torch.linspace(0, 1, 4).repeat(10, 1)
    ax = plot_matrices(
        [Grid(numbers * torch.tensor([1, -1, 1, -1]), "ten rows"), Grid([1, 0.5], "grey", colour_by=None)]
    )
    light = [luminance(cell.get_facecolor()) for cell in cells(ax)]
    for row in range(10):
        assert sorted(light[4 * row : 4 * row + 4], reverse=True) == light[4 * row : 4 * row + 4]
    assert light[0] > 0.85  # zero is nearly white
    ink = luminance(ax.texts[0].get_color())
    assert (min(light) + 0.05) / (ink + 0.05) > 4.5  # the contrast ratio of WCAG 2


def test_grids_that_are_compared_can_have_one_scale() -> None:
    large, own, shared, beyond = (
        cells(plot_matrices([Grid([number], "one", largest=largest)]))[0].get_facecolor()
        for number, largest in ((9, None), (1, None), (1, 9), (12, 9))
    )
    assert large == own == beyond
    assert luminance(shared) > luminance(large)


def test_signed_grids_tell_minus_two_from_two_and_what_is_no_number_counts_as_the_largest() -> None:
    signed, sizes = (
        [cell.get_facecolor() for cell in cells(plot_matrices([Grid([-2, 0, 1, 2], "signs", signed=signed)]))]
        for signed in (True, False)
    )
    light = list(map(luminance, signed))
    assert light == sorted(light, reverse=True) and len({*light}) == 4
    assert sizes[0] == sizes[3] == signed[3]
    two_ln_2, zero, minus_infinity, largest = cells(plot_matrices([Grid(["2 ln 2", "0", -math.inf, 3.0], "mixed")]))
    assert two_ln_2.get_facecolor() == largest.get_facecolor()
    assert zero.get_facecolor() == minus_infinity.get_facecolor() != largest.get_facecolor()


def test_hidden_cells_are_hatched_and_said_to_be_hidden() -> None:
    mask = torch.tensor([[False, True], [False, False]])
    scores = Grid([[0, -math.inf], [0, 1]], "scores", hidden=mask)
    zero, hidden, *others = cells(plot_matrices([scores]))
    assert hidden.get_hatch() and not any(cell.get_hatch() for cell in (zero, *others))
    assert hidden.get_facecolor() != zero.get_facecolor()
    assert luminance(hidden.get_edgecolor()) > 0.5  # the hatching: a number stays legible on it
    assert describe([scores]) == "scores (2 × 2; 0, −∞ (hidden); 0, 1)."
    assert describe([Grid([2, 0], "a row", hidden=[False, True])]) == "a row (2 numbers; 2, 0 (hidden))."


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
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    page = ax.figure.bbox
    for i, box in enumerate(boxes):
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, texts(ax)[i]
        assert not any(box.overlaps(other) for other in boxes[:i]), texts(ax)[i]


def test_the_words_hold_what_the_picture_holds() -> None:
    assert describe(PRODUCT) == (
        "weights (2 × 2; columns Hund (dog), jagt (chases); Hund (dog): 0.75, 0.25; jagt (chases): 0.5, 0.5) times "
        "values V (2 × 2; Hund (dog): 8, 0; jagt (chases): 0, −4) equals output (2 × 2; 6, −1; 4, −2)."
    )
    assert describe([[Grid([1], "a"), "softmax\nof each row\n→"], [Grid([2, 3], "b")]]) == (
        "a (1 number; 1) softmax of each row gives. b (2 numbers; 2, 3)."
    )


def test_what_is_no_grid_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="'ragged' must be a vector, or a matrix with equally long rows"):
        Grid([[1, 2], [3]], "ragged")
    with pytest.raises(ValueError, match=r"'heads' must be .* take one head"):
        Grid(torch.zeros(1, 2, 3), "heads")
    with pytest.raises(ValueError, match="'w', 2 × 2, needs 2 row labels; got 1"):
        Grid(torch.zeros(2, 2), "w", rows=["a"])
    with pytest.raises(ValueError, match="needs 3 colours; got 2"):
        Grid(torch.zeros(2, 3), "w", colour_by="columns", colours=[0, 1])
    with pytest.raises(ValueError, match="'w', 2 × 2, needs a mask `hidden` of the same shape"):
        Grid(torch.zeros(2, 2), "w", hidden=[[True, False, True], [False] * 3])
    with pytest.raises(ValueError, match=r'"rows", "columns" or None; got \'row\''):
        Grid([1], "w", colour_by="row")
    with pytest.raises(ValueError, match="a Grid or a text, the operator; got Tensor"):
        plot_matrices([WEIGHTS, "·", torch.zeros(2)])
    with pytest.raises(ValueError, match="at least one Grid"):
        plot_matrices(["="])
