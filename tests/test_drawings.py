"""Pictures of ideas: what they show, what they refuse."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, PathPatch, Polygon, Rectangle
from once import once

from annotated_course.drawings import Node, describe_tree, plot_dials, plot_plane, plot_tree
from tests.test_plotting import no_window, words  # noqa: F401

pytestmark = once

CORNERS = {"Hund\ndog": (8, 0), "jagt\nchases": (0, 4), "Katze\ncat": (4, 4)}


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


@pytest.mark.parametrize(
    ("points", "roles"),
    [
        (CORNERS | {"output of Hund": (5.0, 2.0), "output of jagt": (2.4, 3.2)}, {"corners": list(CORNERS)}),
        ({f"word {place}": (place, 0) for place in range(8)}, {}),
    ],
)
def test_labels_stand_clear_of_each_other_and_inside(points, roles) -> None:
    ax = plot_plane(points, **roles)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == len(points)
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


TREE = [
    Node("<bos>"),
    Node("a", "−0.5", 0),
    Node("the", "−0.9", 0),
    Node("cat", "−1.2", 2),
    Node("dog", "−2.1", 1, kept=False),
    Node("<eos>", "−1.5", 3, finished=True),
]


def frames(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_a_tree_grows_to_the_right_and_shows_and_says_what_became_of_each_hypothesis() -> None:
    ax = plot_tree(TREE, best=5, levels=["start", "1", "2", "3"], title="a beam of two")
    assert ax.get_title() == "a beam of two" and {"start", "<bos>", "the", "−0.9", "3"} <= {*words(ax.texts)}
    start, a, the, cat, dog, eos, inner = frames(ax)
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


def test_a_factor_stands_on_its_edge_clear_of_the_boxes() -> None:
    nodes = [Node("(start)"), Node("A", "45 %", 0), Node("old", "11 %", 1, factor="× 25 %"), Node("An", "20 %", 0)]
    ax = plot_tree(nodes, best=2)
    ax.figure.draw_without_rendering()
    (factor,) = (text for text in ax.texts if text.get_text() == "× 25 %")
    _, box_a, box_old, _ = (frame.get_window_extent() for frame in frames(ax))
    written = factor.get_window_extent()
    assert box_a.x1 < written.x0 and written.x1 < box_old.x0
    assert box_a.y0 < written.y1 and written.y0 < box_a.y1  # neither above the edge nor below it
    assert "(start) A old, × 25 %, 11 %, kept, the best" in describe_tree(nodes, best=2)


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


def test_a_node_before_its_parent_is_named() -> None:
    with pytest.raises(ValueError, match=r"node 1 \('a'\) must stand after its parent; got parent 2"):
        plot_tree([Node("<bos>"), Node("a", "", 2)])
