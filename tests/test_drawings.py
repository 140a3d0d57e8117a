"""Pictures of ideas: what they show, what they refuse."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Polygon

from annotated_course.drawings import plot_plane
from tests.test_plotting import no_window  # noqa: F401

CORNERS = {"Hund\ndog": (8, 0), "jagt\nchases": (0, 4), "Katze\ncat": (4, 4)}
OUTPUTS = {"output of Hund": (5.0, 2.0), "output of jagt": (2.4, 3.2)}


def dots(ax):
    return {tuple(dot.get_offsets()[0]): dot for dot in ax.collections}


def test_corners_span_an_area_and_outputs_have_their_colours() -> None:
    ax = plot_plane(CORNERS | OUTPUTS, corners=list(CORNERS), outputs=list(OUTPUTS), x_label="first", title="between")
    (area,) = (patch for patch in ax.patches if isinstance(patch, Polygon))
    assert area.get_xy()[:3].tolist() == [[8, 0], [0, 4], [4, 4]]
    colour = {place: to_rgb(dot.get_facecolor()[0]) for place, dot in dots(ax).items()}
    assert colour[5, 2] == colour[8, 0] != colour[0, 4] == colour[2.4, 3.2]
    size = {place: dot.get_sizes()[0] for place, dot in dots(ax).items()}
    assert size[5, 2] < size[8, 0]
    assert len(dots(ax)[5, 2].get_paths()[0].vertices) < len(dots(ax)[8, 0].get_paths()[0].vertices)  # no circle
    assert ax.get_aspect() == 1 and ax.get_xlabel() == "first" and ax.get_title() == "between"
    other = plot_plane({"a": (0, 0), "b": (1, 1)}, colours={"b": 0, "a": 1})
    assert to_rgb(dots(other)[1, 1].get_facecolor()[0]) == colour[8, 0]


def test_labels_stand_clear_of_each_other_and_inside() -> None:
    ax = plot_plane(CORNERS | OUTPUTS, corners=list(CORNERS), outputs=list(OUTPUTS))
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 5
    for i, box in enumerate(boxes):
        assert ax.bbox.contains(box.x0, box.y0) and ax.bbox.contains(box.x1, box.y1), ax.texts[i]
        assert not any(box.overlaps(other) for other in boxes[:i]), ax.texts[i]
        assert not any(box.contains(*ax.transData.transform(place)) for place in dots(ax)), ax.texts[i]


def test_panels_share_their_scale_and_may_do_without_labels() -> None:
    _, panels = plt.subplots(1, 2, sharex=True, sharey=True)
    for ax, scale in zip(panels, (1, 0.01), strict=True):
        assert plot_plane({"a": (-scale, 0), "b": (scale, scale)}, labels=scale == 1, ax=ax) is ax
    assert panels[0].get_xlim() == panels[1].get_xlim() and panels[0].get_xlim()[1] > 1
    assert [len(ax.texts) for ax in panels] == [2, 0]


def test_one_point_is_enough() -> None:
    low, high = plot_plane({"alone": (3, 3)}).get_xlim()
    assert low < 3 < high


def test_bad_points_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'a' must be \(x, y\); got 3 numbers"):
        plot_plane({"a": (1, 2, 3)})
    with pytest.raises(ValueError, match="no point 'z'; there are 'a'"):
        plot_plane({"a": (1, 2)}, corners=["z"])
    with pytest.raises(ValueError, match="no points"):
        plot_plane({})
