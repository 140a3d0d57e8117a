"""The drawings of the architecture: as the command writes them, linked to what there is, with all links beside them."""

import pkgutil
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from once import once

from tools.draw_architecture import ASSETS, DRAWINGS, Arrow, Box, Drawing, boxes, main, svg, table
from tools.sync import ROOT, notebook_paths

pytestmark = once

SVG = "{http://www.w3.org/2000/svg}"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "data").rglob("*.md"), *notebook_paths()]


@pytest.fixture(params=DRAWINGS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def drawing(name: str) -> Drawing:
    return DRAWINGS[name]()


def headings(notebook: Path) -> set[str]:
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown"]
    return set(re.findall(r"^#+ (.+)$", "\n".join(cells), re.MULTILINE))


def test_the_saved_file_is_what_the_command_writes(name: str, drawing: Drawing) -> None:
    saved = (ROOT / ASSETS / f"{name}.svg").read_text(encoding="utf-8")
    assert saved == svg(drawing), "run python -m tools.draw_architecture"
    assert "\n\n" not in saved


def test_the_command_writes_both_and_prints_their_links(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tools.draw_architecture.ROOT", tmp_path)
    (tmp_path / ASSETS).mkdir(parents=True)
    main()
    assert {path.stem for path in (tmp_path / ASSETS).iterdir()} == set(DRAWINGS)
    printed = capsys.readouterr().out
    assert all(table(lay_out(), Path("notebooks")) in printed for lay_out in DRAWINGS.values())


def test_every_box_is_a_link_that_names_what_it_is(name: str, drawing: Drawing) -> None:
    root = ElementTree.fromstring((ROOT / ASSETS / f"{name}.svg").read_text(encoding="utf-8"))
    links = root.findall(f"{SVG}a")
    assert len(links) == len(root.findall(f".//{SVG}rect")) - 1  # all but the paper
    titles = {link.findtext(f"{SVG}title") for link in links}
    for box in boxes(drawing):
        assert f"{box.words}: {box.place.name}, chapter {box.place.chapter[:2]}, {box.place.heading}" in titles
    for link in links:
        address = urlsplit(link.attrib["href"])
        notebook = (ROOT / ASSETS / address.path).resolve()
        assert notebook.is_file()
        assert unquote(address.fragment) in {heading.replace(" ", "-") for heading in headings(notebook)}


def test_every_name_is_in_the_module(drawing: Drawing) -> None:
    for box in boxes(drawing):
        assert callable(pkgutil.resolve_name(box.place.name)), box.place.name


def test_a_page_that_shows_a_drawing_shows_its_links(name: str, drawing: Drawing) -> None:
    for page in PAGES:
        if page.suffix == ".ipynb":
            text = "\n\n".join(cell.source for cell in nbformat.read(page, as_version=4).cells)
        else:
            text = page.read_text(encoding="utf-8")
        if f"{name}.svg" in text:
            assert table(drawing, page.relative_to(ROOT).parent) in text, page.name


def test_boxes_lie_apart_within_the_paper_and_arrows_end_at_them(drawing: Drawing) -> None:
    inner = [box for box in boxes(drawing) if box.kind != "layer"]
    for one, other in combinations(inner, 2):
        apart = one.x + one.width < other.x or other.x + other.width < one.x
        assert apart or one.y + one.height < other.y or other.y + other.height < one.y, (one.words, other.words)
    for box in boxes(drawing):
        assert box.x >= 0 and box.y >= 0 and box.x + box.width <= 600 and box.y + box.height <= drawing.height
    for arrow in (part for part in drawing.parts if isinstance(part, Arrow)):
        assert any(touches(box, *arrow.points[-1]) for box in inner), arrow
        for (x, y), (next_x, next_y) in pairwise(arrow.points):
            assert (x == next_x) != (y == next_y)


def touches(box: Box, x: int, y: int) -> bool:
    beside = x in (box.x, box.x + box.width) and box.y < y < box.y + box.height
    return beside or (y == box.y and box.x < x < box.x + box.width)


def flow(drawing: Drawing) -> list[tuple[str, str]]:
    """The words of the boxes from which and to which the arrows lead, where they start at a box."""
    inner = [box for box in boxes(drawing) if box.kind != "layer"]
    pairs = []
    for arrow in (part for part in drawing.parts if isinstance(part, Arrow)):
        (x, y), end = arrow.points[0], arrow.points[-1]
        starts = [box for box in inner if leaves(box, x, y)]
        pairs += [(box.words, other.words) for box in starts for other in inner if touches(other, *end)]
    return pairs


def leaves(box: Box, x: int, y: int) -> bool:
    beside = x == box.x + box.width and box.y < y < box.y + box.height
    return beside or (y == box.y + box.height and box.x < x < box.x + box.width)


def test_the_model_flows_as_in_figure_1() -> None:
    norm, attend, masked = "add & norm", "multi-head attention", "masked multi-head attention"
    start = ["embedding · √d_model", "+ positions"]
    encoder = ["source token ids", *start, attend, norm, "feed-forward", norm, "memory"]
    decoder = ["target ids, shifted right", *start, masked, norm, attend, norm, "feed-forward", norm]
    decoder += ["linear", "softmax", "output probabilities"]
    expected = [*pairwise(encoder), *pairwise(decoder), ("memory", attend)]
    drawing = DRAWINGS["transformer"]()
    assert flow(drawing) == expected
    around = [part for part in drawing.parts if isinstance(part, Arrow) and len(part.points) == 4][:-1]
    assert len(around) == 5  # a residual connection for each sub-layer


def test_attention_flows_as_in_figure_2() -> None:
    scores = ["matmul, Q Kᵀ", "scale by 1 / √d_k", "mask (optional)", "softmax", "matmul with V"]
    mixed = "the values, mixed for each query"
    one = [("Q", scores[0]), ("K", scores[0]), *pairwise(scores), ("V", scores[-1])]
    one.append((scores[-1], mixed))
    heads, joined, last = "attention in h heads, in parallel", "concatenate the heads", "linear W_o"
    many = [
        pair
        for role in ("query", "key", "value")
        for pair in ((role, f"linear W_{linear(role)}"), (f"linear W_{linear(role)}", heads))
    ]
    many += [(heads, joined), (joined, last), (last, "a new vector for each query")]
    assert flow(DRAWINGS["attention"]()) == one + many


def linear(role: str) -> str:
    return {"query": "q", "key": "k", "value": "v"}[role]
