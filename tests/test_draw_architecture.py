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

from tools.draw_architecture import (
    ASSETS,
    DRAWINGS,
    SMALL_COLOURS,
    SMALL_HEIGHT,
    SMALL_WIDTH,
    WHERE,
    Arrow,
    Box,
    Drawing,
    Tile,
    boxes,
    lit,
    main,
    small_model,
    svg,
    table,
    where,
    where_markdown,
)
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


def test_the_command_writes_all_and_prints_what_shows_them(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tools.draw_architecture.ROOT", tmp_path)
    (tmp_path / ASSETS).mkdir(parents=True)
    main()
    small = {f"where_{chapter}" for chapter in WHERE}
    assert {path.stem for path in (tmp_path / ASSETS).iterdir()} == {*DRAWINGS, *small}
    printed = capsys.readouterr().out
    assert all(table(lay_out(), Path("notebooks")) in printed for lay_out in DRAWINGS.values())
    assert all(where_markdown(chapter) in printed for chapter in WHERE)


def test_every_box_is_a_link_that_names_what_it_is(name: str, drawing: Drawing) -> None:
    root = ElementTree.fromstring((ROOT / ASSETS / f"{name}.svg").read_text(encoding="utf-8"))
    links = root.findall(f"{SVG}a")
    assert len(links) == len(root.findall(f".//{SVG}rect")) - 1  # all but the paper
    titles = {link.findtext(f"{SVG}title") for link in links}
    for box in boxes(drawing):
        assert f"{box.words}: {box.place.name}, chapter {box.place.chapter[:2]}, {box.place.heading}" in titles
    for link in links:
        assert leads_to_a_heading(link.attrib["href"])


def leads_to_a_heading(link: str) -> bool:
    address = urlsplit(link)
    notebook = (ROOT / ASSETS / address.path).resolve()
    return unquote(address.fragment) in {heading.replace(" ", "-") for heading in headings(notebook)}


def test_every_name_is_in_the_module(drawing: Drawing) -> None:
    for box in boxes(drawing):
        assert callable(pkgutil.resolve_name(box.place.name)), box.place.name


def test_a_page_that_shows_a_drawing_shows_its_links(name: str, drawing: Drawing) -> None:
    for page in PAGES:
        if page.suffix == ".ipynb":
            text = "\n\n".join(cell.source for cell in nbformat.read(page, as_version=4).cells)
        else:
            text = page.read_text(encoding="utf-8")
        if f"{name}.svg" in text:  # shown as a picture it has no links: a table has them, or, in the tour, its chapters
            chapters = {box.place.chapter for box in boxes(drawing)}
            leads_on = all(f"({chapter}.ipynb)" in text for chapter in chapters)
            assert leads_on or table(drawing, page.relative_to(ROOT).parent) in text, page.name


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


@pytest.fixture(params=WHERE)
def chapter(request: pytest.FixtureRequest) -> str:
    return request.param


def tiles() -> list[Tile]:
    below, _, above = small_model()
    return below + above


def names_lit(chapter: str) -> set[str]:
    return {f"{tile.layer}: {tile.name}" for tile in tiles() if lit(chapter, tile)}


def test_a_saved_small_model_is_what_the_command_writes(chapter: str) -> None:
    saved = (ROOT / ASSETS / f"where_{chapter}.svg").read_text(encoding="utf-8")
    assert saved == where(chapter), "run python -m tools.draw_architecture"
    assert "\n\n" not in saved


def test_the_links_of_the_small_model_lead_to_headings() -> None:
    links = ElementTree.fromstring(where("01")).findall(f"{SVG}a")
    assert len(links) == len(tiles())
    assert [link.attrib["href"] for link in links if not leads_to_a_heading(link.attrib["href"])] == []
    assert [tile.place.name for tile in tiles() if not callable(pkgutil.resolve_name(tile.place.name))] == []


def test_each_chapter_lights_other_parts_and_09_all() -> None:
    assert all(names_lit(one) != names_lit(other) for one, other in combinations(WHERE, 2))
    assert len(names_lit("09")) == len({f"{tile.layer}: {tile.name}" for tile in tiles()})


def test_a_chapter_lights_what_it_names_and_nothing_else_changes(chapter: str) -> None:
    known = {name for tile in tiles() for name in (tile.name, tile.layer, "every part")}
    assert set(WHERE[chapter][1]) <= known
    drawn = ElementTree.fromstring(where(chapter)).findall(f"{SVG}a")
    shining = [
        link.findtext(f"{SVG}title", "").split(":")[0] for link in drawn if "lit" in link.attrib["class"].split()
    ]
    assert sorted(shining) == sorted(tile.name for tile in tiles() if lit(chapter, tile))
    assert shapes(chapter) == shapes("09")


def shapes(chapter: str) -> list[dict[str, str]]:
    parts = ElementTree.fromstring(where(chapter)).iter()
    return [{key: value for key, value in part.attrib.items() if key != "class"} for part in parts]


def test_what_a_chapter_builds_is_lit_in_it() -> None:
    for tile in tiles():
        builder = tile.place.chapter[:2]
        assert any(lit(builder, other) for other in tiles() if other.name == tile.name), tile.name


def test_the_small_model_lies_within_its_paper_and_its_boxes_apart() -> None:
    for tile in tiles():
        assert tile.x >= 0 and tile.x + tile.width <= SMALL_WIDTH, tile.name
        assert tile.y >= 0 and tile.y + tile.height <= SMALL_HEIGHT, tile.name
    for one, other in combinations([tile for tile in tiles() if tile.kind == "box"], 2):
        apart = one.x + one.width < other.x or other.x + other.width < one.x
        assert apart or one.y + one.height < other.y or other.y + other.height < one.y, (one.name, other.name)


def test_the_arrows_of_the_small_model_lead_from_part_to_part() -> None:
    _, wires, _ = small_model()
    for wire in wires:
        (x, y), end = wire.points[0], wire.points[-1]
        start, *_, last = wire.parts if len(wire.parts) > 1 else (wire.parts[0], None)
        assert start.x <= x <= start.x + start.width and start.y <= y <= start.y + start.height, start.name
        touched = [tile for tile in tiles() if tile.kind in ("box", "frame") and edge(tile, *end)]
        assert last in touched if last else touched, start.name
        for (one, level), (other, next_level) in pairwise(wire.points):
            assert (one == other) != (level == next_level)


def edge(tile: Tile, x: int, y: int) -> bool:
    beside = x in (tile.x, tile.x + tile.width) and tile.y < y < tile.y + tile.height
    return beside or (y in (tile.y, tile.y + tile.height) and tile.x < x < tile.x + tile.width)


@pytest.mark.parametrize("scheme", [2, 3], ids=["light", "dark"])
def test_grey_words_can_be_read_and_bright_ones_too(scheme: int) -> None:
    colour = {row[0]: row[scheme] for row in SMALL_COLOURS if row[1] == "fill"}
    for words, ground in (
        ("text", "a rect"),
        ("text", ".paper"),
        (".lit text", ".lit rect"),
        (":is(.lit.frame text, .lit .start, .here)", ".paper"),
    ):
        darker, lighter = sorted((luminance(colour[words]), luminance(colour[ground])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (words, ground)


def luminance(colour: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_several_drawings_on_a_page_leave_each_other_alone() -> None:
    for kind, drawn in (("where", where("09")), ("drawing", svg(DRAWINGS["transformer"]()))):
        rules = drawn[drawn.index("<style>") + 8 : drawn.index("</style>")].splitlines()
        assert all(rule.startswith(("svg:root ", f".{kind} ", f".{kind}:")) for rule in rules)
        assert " id=" not in drawn and f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}"' in drawn


@pytest.mark.parametrize("chapter", sorted(WHERE))
def test_a_chapter_begins_with_its_small_model(chapter: str) -> None:
    (lesson,) = (ROOT / "notebooks").glob(f"{chapter}_*.ipynb")
    first = nbformat.read(lesson, as_version=4).cells[0].source
    assert first.startswith(f"{where_markdown(chapter)}\n\n# {chapter} · ")
