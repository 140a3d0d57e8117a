"""The pictures to play with: what they show is what torch computes, by mouse and by keys, for every reader.

They are taken from the saved notebooks, as a reader meets them.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterator

import pytest
import torch

from annotated.attention import attention, attention_weights
from annotated.positional_encoding import sinusoids
from annotated_course.play import FOLDER, PICTURES, play_html
from tools.stills import saved_pictures, still
from tools.sync import ROOT

SAVED = saved_pictures()


def data_of(shown: str) -> dict:
    """The data that a page's part gives to its picture."""
    return json.loads(html.unescape(re.search(r'data-data="([^"]*)"', shown)[1]))


def words_of(shown: str) -> str:
    """The words of a page's part."""
    return html.unescape(re.search(r"</summary>(.*?)</details>", shown)[1])


def test_every_picture_stands_in_a_notebook_as_it_is_now() -> None:
    assert set(SAVED) == set(PICTURES)
    for name, shown in SAVED.items():
        assert shown == play_html(name, data_of(shown), words_of(shown)), f"{name}: execute its notebook again"
        assert 'src="data:image/svg+xml;base64,' in shown, f"{name} has no still: python -m tools.stills"


def test_nothing_comes_from_elsewhere_and_words_are_text() -> None:
    evil = "</script><b>&\"'"
    shown = play_html("query", {"words": [evil]}, evil)
    assert evil not in shown and shown.count("</script>") == 1
    assert data_of(shown) == {"words": [evil]} and words_of(shown) == evil
    assert set(re.findall(r"https?://[^\s\"']+", shown)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_scripts_are_small_and_travel_with_the_package() -> None:
    scripts = {path: path.read_text(encoding="utf-8").splitlines() for path in FOLDER.glob("*.js")}
    assert sum(map(len, scripts.values())) <= 600
    assert [(path.name, line) for path, lines in scripts.items() for line in lines if len(line) > 120] == []
    packed = re.findall(r'"(play/\S+?)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = {path for pattern in packed for path in FOLDER.parent.glob(pattern)}
    assert found == {path for path in FOLDER.rglob("*.*") if path.suffix in (".js", ".css", ".svg")}


def test_a_tensor_s_numbers_are_rounded() -> None:
    data = {"x": torch.tensor([[1 / 3, -2.0]]), "n": torch.tensor([3]), "seen": torch.tensor([True])}
    assert data_of(play_html("query", data, "w")) == {"x": [[0.3333, -2.0]], "n": [3], "seen": [True]}


@pytest.mark.parametrize(
    ("name", "data", "words", "error", "message"),
    [
        ("wheel", {}, "w", ValueError, r"no picture 'wheel'; there are .*query"),
        ("common", {}, "w", ValueError, "no picture 'common'"),
        ("query", {}, " ", ValueError, "the words are empty"),
        ("query", {"x": math.nan}, "w", ValueError, "'query' hold a number that no page can read"),
        ("query", {"x": {1}}, "w", TypeError, "got <class 'set'>"),
    ],
)
def test_bad_input_is_named(name: str, data: dict, words: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        play_html(name, data, words)


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """Show pictures on a page; what the console says in the meantime must be nothing."""
    pages, complaints = [], []

    def open_page(*shown: str, width: int = 1280, scheme: str = "light", touch: bool = False):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch)
        page.set_default_timeout(5000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_content(
            '<!doctype html><html lang="en"><head><title>t</title><meta name="viewport" content="width=device-width">'
            f"</head><body><main><h1>Pictures</h1>{''.join(shown)}</main></body></html>"
        )
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []


def numbers(text: str) -> list[float]:
    """The numbers in a line, with their proper minus."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]


def centre(place) -> tuple[float, float]:
    """The middle of what a page shows."""
    box = place.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, *places: tuple[float, float], seen: Callable = lambda: None) -> None:
    """Press the mouse at the first place, move it over the others, call `seen`, let go."""
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    seen()
    page.mouse.up()


def swipe(page, start: tuple[float, float], right: float, down: float) -> None:
    """Put a finger on a place, move it, lift it."""
    finger = page.context.new_cdp_session(page)
    places = [{"x": start[0] + right * i / 10, "y": start[1] + down * i / 10} for i in range(11)]
    for i, place in enumerate(places):
        event = {"type": "touchMove" if i else "touchStart", "touchPoints": [place]}
        finger.send("Input.dispatchTouchEvent", event)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.parametrize("name", PICTURES)
def test_a_still_is_what_the_picture_shows_at_first(visit, name: str) -> None:
    drawn = still(visit(), SAVED[name])
    assert drawn == (FOLDER / "stills" / f"{name}.svg").read_text(encoding="utf-8"), "run python -m tools.stills"


def test_where_no_scripts_run_there_is_the_still(browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(SAVED["query"])
    picture = page.locator("img")
    assert picture.get_attribute("alt") == words_of(SAVED["query"])
    assert picture.bounding_box()["width"] > 600 and page.get_by_text("still picture").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_they_fit_a_phone_and_axe_finds_nothing_serious(visit, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(*SAVED.values(), width=390, scheme=scheme)
    for words in page.get_by_text("The figure in words").all():
        words.click()
    beyond = (
        "texts => texts.filter(text => text.getBoundingClientRect().right > innerWidth).map(text => text.textContent)"
    )
    for width in (320, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".play text").evaluate_all(beyond) == []
    found = axe.run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_the_query_is_dragged_and_stepped(visit) -> None:
    data = {key: torch.tensor(value) for key, value in data_of(SAVED["query"]).items() if key != "words"}
    page = visit(SAVED["query"], SAVED["query"], width=390)
    picture, other = page.locator("div.play").all()
    said, handle, slider = picture.locator(".play-said"), picture.locator(".play-handle"), picture.get_by_label("β")
    before = other.inner_html()

    def agrees() -> list[float]:
        """Is what is said what attention computes? Give the query."""
        first, middle, last, beta, *weights, x, y = numbers(said.inner_text())
        query = torch.tensor([[first, middle, last]])
        scaled = query * beta * math.sqrt(3)  # attention divides by √3
        assert torch.allclose(torch.tensor([weights]), attention_weights(scaled, data["keys"]), atol=0.0051)
        assert torch.allclose(torch.tensor([[x, y]]), attention(scaled, data["keys"], data["values"]), atol=0.0051)
        cells = [text for text in picture.locator("text").all_text_contents() if re.fullmatch(r"−?\d\.\d\d", text)]
        shown = torch.tensor([numbers(text)[0] for text in cells]).view(3, 2)  # a row for each word
        assert torch.allclose(shown[:, 0], data["keys"] @ query[0], atol=0.0051)
        assert torch.equal(shown[:, 1], torch.tensor(weights))
        return [first, middle, last]

    assert agrees() == pytest.approx([0.8, 0, 0.6])
    x, y = centre(handle.locator("circle").nth(1))
    on_the_way = []
    drag(page, (x, y), (x - 150, y + 120), seen=lambda: on_the_way.append(agrees()))
    first, middle, last = agrees()
    assert first < -0.5 and middle == 0 and last < -0.5 and on_the_way == [[first, middle, last]]
    assert "to jagt" in said.inner_text() and numbers(said.inner_text())[5] > 0.4  # the match of 0 is the largest now
    for key, place, step in (
        ("ArrowRight", 0, 0.1),
        ("ArrowLeft", 0, -0.1),
        ("ArrowUp", 2, 0.1),
        ("ArrowDown", 2, -0.1),
    ):
        old = agrees()[place]
        handle.focus()
        page.keyboard.press(key)
        assert agrees()[place] - old == pytest.approx(step)
    drag(page, centre(handle.locator("circle").nth(1)), (5000, -5000))
    assert agrees() == [1.5, 0, 1.5]  # no further than the plane
    picture.locator("svg").first.click(position={"x": 140, "y": 140})
    assert agrees() == [0, 0, 0]
    for key, beta in (("Home", 0), ("ArrowRight", 0.5), ("End", 20)):
        slider.focus()
        page.keyboard.press(key)
        agrees()
        assert numbers(said.inner_text())[3] == beta
    assert other.inner_html() == before


def test_the_clock_s_dot_product_hangs_on_the_distance_alone(visit) -> None:
    rates = torch.tensor(data_of(SAVED["clock"])["rates"])
    table = sinusoids(400, 8).double()
    page = visit(SAVED["clock"])
    said, panels = page.locator(".play-said"), page.locator(".play-panels > svg")
    position, distance = page.get_by_label("position", exact=True), page.get_by_label("distance", exact=True)

    def agrees() -> tuple[int, int]:
        """Are turns, cosines and dot product right? Give the two positions."""
        here, there, product = numbers(said.inner_text())
        here, there = int(here), int(there)
        assert product == pytest.approx(float(table[here] @ table[there]), abs=0.0051)
        assert numbers(panels.last.locator("text").last.text_content()) == [product]
        for i, rate in enumerate(rates.tolist()):
            turn, cosine = numbers(panels.nth(i).locator("text").last.text_content())
            pair = slice(2 * i, 2 * i + 2)
            assert turn == pytest.approx((there - here) * rate, abs=0.0051 if rate > 0.005 else 0.00051)
            assert cosine == pytest.approx(float(table[here, pair] @ table[there, pair]), abs=0.0051)
        return here, there

    def dials() -> list[str]:
        """What the four dials show."""
        return [panels.nth(i).inner_html() for i in range(4)]

    here, there = agrees()
    hands, product = dials(), numbers(said.inner_text())[2]
    position.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert agrees() == (here + 5, there + 5)
    assert dials() != hands and numbers(said.inner_text())[2] == product
    distance.focus()
    page.keyboard.press("ArrowLeft")
    assert agrees() == (here + 5, there + 4) and numbers(said.inner_text())[2] != product
    page.keyboard.press("Home")
    assert agrees() == (here + 5, here + 5 - 30)
    for slider, place in ((position, 0.9), (distance, 0.5)):  # by mouse
        box = slider.bounding_box()
        page.mouse.click(box["x"] + place * box["width"], box["y"] + box["height"] / 2)
        agrees()
    here, there = agrees()
    assert here > 110 and abs(there - here) <= 1


def mask_on(page) -> torch.Tensor:
    """The mask that a page shows, by what its squares say of themselves."""
    checked = "squares => squares.map(square => square.getAttribute('aria-checked') === 'true')"
    squares = torch.tensor(page.locator("g[role=checkbox]").evaluate_all(checked))
    return squares.view(math.isqrt(len(squares)), -1)


def leaks_on(page, data: dict, layers: int = 1) -> torch.Tensor:
    """The leaks that a page shows, marked by !; each number must say how far an output of attention moves."""
    inputs, replaced = (torch.tensor(data[key]).double() for key in ("vectors", "nudged"))
    mask = mask_on(page)

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(layers):
            x = attention(x, x, x, mask)
        return x

    moved = []
    for j in range(len(inputs)):
        nudged = inputs.clone()
        nudged[j] = replaced[j]
        moved.append((run(nudged) - run(inputs)).norm(dim=-1))
    texts = page.locator(".play-panels > svg").nth(1).locator("g text").all_text_contents()
    shown = torch.tensor([numbers(text)[0] for text in texts]).view_as(mask)
    assert torch.allclose(shown.double(), torch.stack(moved, dim=1), atol=0.0051)
    leaks = torch.tensor(["!" in text for text in texts]).view_as(mask)
    assert page.locator(".play-said").inner_text().startswith("A leak" if leaks.any() else "No leak")
    return leaks


@pytest.mark.parametrize("padding", ["right", "left"])
def test_each_mask_leaks_what_attention_says(visit, padding: str) -> None:
    data = data_of(SAVED["mask"])
    if padding == "left":
        data["padded"].reverse()
    page = visit(play_html("mask", data, "words"))
    padded = torch.tensor(data["padded"])
    everything = torch.ones(len(padded), len(padded), dtype=torch.bool)
    causal, unpadded = everything.tril(), ~padded.expand_as(everything)
    wrong = ~(causal & unpadded) & ~padded[:, None]
    masks = {
        "everything": everything,
        "causal": causal,
        "padding": unpadded,
        "off by one": everything.tril(1) & unpadded,
        "both": causal & unpadded,
    }
    pressed = page.locator("button[aria-pressed=true]")
    for name, expected in masks.items():
        page.get_by_role("button", name=name, exact=True).click()
        assert torch.equal(mask_on(page), expected) and pressed.all_text_contents() == [name]
        assert torch.equal(leaks_on(page, data), expected & wrong)
    page.get_by_role("checkbox", name="two layers").click()
    assert not leaks_on(page, data, layers=2).any()
    page.get_by_role("button", name="off by one").click()
    two_ahead = everything.tril(2) & unpadded & wrong  # as in the chapter's model B
    assert torch.equal(leaks_on(page, data, layers=2), two_ahead)


def test_a_mask_is_painted_by_mouse_and_by_keys(visit) -> None:
    data = data_of(SAVED["mask"])
    page = visit(SAVED["mask"])
    page.get_by_role("button", name="both").click()
    squares, before = page.locator("g[role=checkbox]"), mask_on(page)
    drag(page, *(centre(squares.nth(i)) for i in (1, 2, 7)))  # opens three squares above the diagonal
    assert mask_on(page).int().sum() == before.int().sum() + 3
    assert leaks_on(page, data).nonzero().tolist() == [[0, 1], [0, 2], [1, 2]]
    squares.nth(1).click()
    assert leaks_on(page, data).nonzero().tolist() == [[0, 2], [1, 2]]
    for key in ("ArrowDown", "ArrowRight", "Space"):
        page.keyboard.press(key)
    assert leaks_on(page, data).nonzero().tolist() == [[0, 2]]
    for key in ("ArrowUp", "Space"):
        page.keyboard.press(key)
    assert torch.equal(mask_on(page), before) and not leaks_on(page, data).any()
    for key in ("ArrowDown", "ArrowLeft", "Space", "ArrowLeft", "Space", "ArrowLeft"):  # the edge holds the last one
        page.keyboard.press(key)
    assert not mask_on(page)[1].any()  # a query that may look at nothing gets zeros
    leaks_on(page, data)
    page.keyboard.press("Space")
    assert mask_on(page)[1].tolist() == [True, False, False, False, False]


def test_a_finger_drags_the_query_taps_a_square_and_scrolls_the_rest(visit) -> None:
    page = visit(SAVED["mask"], SAVED["query"], width=390, touch=True)
    scrolled = "document.documentElement.scrollTop"
    query, handle = page.locator("div.play").last, page.locator("div.play").last.locator(".play-handle")
    handle.scroll_into_view_if_needed()
    before = page.evaluate(scrolled)
    swipe(page, centre(handle.locator("circle").nth(1)), -120, 150)
    first, _, last = numbers(query.locator(".play-said").inner_text())[:3]
    assert first < -0.3 and last < -0.6 and page.evaluate(scrolled) == before  # all the way, and the page stays
    plane = query.locator("svg").first.bounding_box()
    page.touchscreen.tap(plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2)
    assert numbers(query.locator(".play-said").inner_text())[:3] == [0, 0, 0]

    page.evaluate("scrollTo(0, 0)")
    squares, mask = page.locator("g[role=checkbox]"), mask_on(page)
    swipe(page, centre(squares.nth(21)), 0, -200)
    assert page.evaluate(scrolled) > 100 and torch.equal(mask_on(page), mask)
    for _ in range(2):
        squares.nth(2).tap()
        mask[0, 2] = ~mask[0, 2]
        assert torch.equal(mask_on(page), mask)


def test_a_finger_finds_large_controls(visit) -> None:
    page = visit(*SAVED.values(), width=390, touch=True)
    assert page.evaluate("matchMedia('(pointer: coarse)').matches")
    heights = "all => all.map(one => one.getBoundingClientRect().height)"
    assert min(page.locator(".play-controls :is(button, input)").evaluate_all(heights)) >= 36
