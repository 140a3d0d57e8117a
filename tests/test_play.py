"""The pictures to play with, as saved in notebooks: they show what the module computes, by mouse, keys or finger."""

import html
import json
import math
import re

import pytest
import torch
from once import once
from torch import Tensor

from annotated.attention import attention, attention_weights
from annotated.decoding import length_penalty
from annotated.models.language_model import sampling_probabilities
from annotated.positional_encoding import sinusoids
from annotated.training import make_optimizer, noam_rate, set_rate
from annotated_course.play import PICTURES, play_html
from annotated_workbench.data import DATA_FOLDER
from tests.pages import barriers, fits
from tools.live import BEAM, LIVE
from tools.stills import saved_pictures, still

pytestmark = once

SAVED = saved_pictures()
ATTRIBUTES = "(all, name) => all.map(one => one.getAttribute(name))"
WINNERS = {  # of a beam and α: the beginning that wins, and its probability by the table, multiplied by hand
    (1, 0.0): ("the dog sleeps", 0.5 * 0.4 * 0.5 * 0.9),
    (2, 0.4): ("a dog sleeps", 0.4 * 0.9 * 0.5 * 0.9),
    (3, 0.0): ("a dog", 0.4 * 0.9 * 0.48),
    (5, 2.0): ("a dog sleeps", 0.4 * 0.9 * 0.5 * 0.9),
}


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
    assert (LIVE / BEAM.name).read_bytes() == BEAM.read_bytes(), "python -m tools.live"  # one search for both


def test_nothing_comes_from_elsewhere_words_are_text_and_numbers_are_rounded() -> None:
    evil = "</script><b>&\"'"
    shown = play_html("query", {"words": [evil], "x": torch.tensor([[1 / 3, -2.0]]), "n": torch.tensor([3])}, evil)
    assert evil not in shown and shown.count("</script>") == 1
    assert data_of(shown) == {"words": [evil], "x": [[0.3333, -2.0]], "n": [3]} and words_of(shown) == evil
    assert set(re.findall(r"https?://[^\s\"']+", shown)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def numbers(text: str) -> list[float]:
    """The numbers in a line, with their proper minus."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]


def centre(place) -> tuple[float, float]:
    """The middle of what a page shows."""
    box = place.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, *places: tuple[float, float]) -> None:
    """Press the mouse at the first place, move it over the others, let go."""
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def test_a_still_is_what_the_picture_shows_at_first_and_stands_where_no_scripts_run(visit, browser) -> None:
    page = visit(reduced_motion="reduce")
    for name, shown in SAVED.items():
        saved = PICTURES[name].with_suffix(".svg").read_text(encoding="utf-8")
        assert still(page, shown) == saved, "run python -m tools.stills"
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(SAVED["query"])
    picture = page.locator("img")
    assert picture.get_attribute("alt") == words_of(SAVED["query"])
    assert picture.bounding_box()["width"] > 600 and page.get_by_text("still picture").is_visible()
    context.close()


def test_all_of_them_fit_a_phone_and_axe_finds_nothing_serious(visit) -> None:
    page = visit(html="".join(SAVED.values()), width=390, has_touch=True)
    heights = "all => all.map(one => one.getBoundingClientRect().height)"
    assert min(page.locator(".play-controls :is(button, input)").evaluate_all(heights)) >= 36  # for a finger
    beyond = "texts => texts.filter(text => text.getBoundingClientRect().right > innerWidth).length"
    for width in (320, 390):
        assert fits(page, width) and page.locator(".play text").evaluate_all(beyond) == 0
    for words in page.get_by_text("The figure in words").all():
        words.click()
    assert barriers(page) == []


@pytest.mark.parametrize(
    ("name", "part", "key"),
    [
        ("query", ".play-handle circle >> nth=1", "ArrowRight"),
        ("clock", "input >> nth=0", "ArrowRight"),
        ("layers", ".play-moves", "Space"),
        ("mask", "g[role=checkbox] >> nth=21", "Space"),
        ("shift", ".play-moves", "Space"),
        ("cache", "input", "ArrowRight"),
        ("ball", "input", "ArrowRight"),
        ("tree", "input >> nth=0", "Home"),
        ("sampling", "input >> nth=0", "ArrowRight"),
        ("birth", "input", "ArrowLeft"),
    ],
)
def test_each_picture_answers_keys_and_a_finger_and_lets_a_swipe_scroll(visit, name: str, part: str, key: str) -> None:
    tall = f"{SAVED[name]}<div style='height: 2000px'></div>"
    page = visit(html=tall, width=390, has_touch=True, reduced_motion="reduce")
    picture, part = page.locator("div.play"), page.locator(part)
    finger, seen = page.context.new_cdp_session(page), [picture.inner_html()]

    def swipe(place, right: float, down: float) -> float:
        """Put a finger there, move it, lift it; give how far the page has scrolled."""
        before, (x, y) = page.evaluate("document.documentElement.scrollTop"), centre(place)
        for i in range(11):
            place = {"x": x + right * i / 10, "y": y + down * i / 10}
            event = {"type": "touchMove" if i else "touchStart", "touchPoints": [place]}
            finger.send("Input.dispatchTouchEvent", event)
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        return page.evaluate("document.documentElement.scrollTop") - before

    part.scroll_into_view_if_needed()
    if name == "query":
        assert swipe(part, -120, 150) == 0
        first, _, last = numbers(page.locator(".play-said").inner_text())[:3]
        assert first < -0.3 and last < -0.6
        page.locator(".play-handle").press(key)
    else:
        assert swipe(page.locator(".play-panels > svg").first, 0, -200) > 100 and picture.inner_html() == seen[0]
        page.evaluate("scrollTo(0, 0)")
        swipe(part, 0, 0)  # a tap
        seen.append(picture.inner_html())
        part.press(key)
    assert picture.inner_html() not in seen
    page.evaluate("addEventListener('keydown', event => (window.heard ??= []).push(event.key))")
    for stays_or_passes in (key, "d", "x", "Escape", "Shift+D", "Shift+Enter", "Control+s"):
        page.locator(".play [tabindex], .play input, .play button").last.press(stays_or_passes)
    assert page.evaluate("heard") == ["Enter", "Control", "s"]


def test_each_moves_by_itself_once_in_view_a_touch_holds_it_and_a_button_goes_on(visit) -> None:
    page = visit(html="".join(f"<div style='height: 2000px'></div>{shown}" for shown in [*SAVED.values()] * 2))
    everything, places = page.locator("main"), page.locator("div.play").all()
    pictures, others = dict(zip(SAVED, places, strict=False)), places[len(SAVED) :]

    def moves(place) -> bool:
        before = place.inner_html()
        return any(page.wait_for_timeout(90) or place.inner_html() != before for _ in range(13))

    def rest() -> bool:
        page.wait_for_timeout(300)  # to the next stop
        return not moves(everything) and {*page.locator(".play-moves").all_inner_texts()} == {"▶ play"}

    assert rest()
    for name, picture in pictures.items():
        panel = picture.locator(".play-panels").first
        panel.scroll_into_view_if_needed()
        assert moves(panel) and picture.locator(".play-moves").inner_text() == "pause", name
        panel.locator("svg").first.hover(position={"x": 2, "y": 2})
        page.mouse.down()
        page.mouse.move(0, 0)  # so that it is no click
        page.mouse.up()
    assert rest()
    for name, picture in pictures.items():
        picture.locator(".play-moves").click()
        assert moves(picture.locator(".play-panels").first), name
        picture.locator(".play-moves").click()
    assert rest()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # on paper stands the end, as where no motion is wanted
    calm = visit(html="".join(SAVED.values()), reduced_motion="reduce")
    for name, other, end in zip(SAVED, others, calm.locator("div.play").all(), strict=True):
        assert other.inner_html() == end.inner_html(), name
    assert {*calm.locator(".play-moves").all_inner_texts()} == {"▶ again"}


def test_the_query_is_dragged_and_stepped(visit) -> None:
    data = {key: torch.tensor(value) for key, value in data_of(SAVED["query"]).items() if key != "words"}
    page = visit(html=2 * SAVED["query"], reduced_motion="reduce")
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
    drag(page, (x, y), (x - 150, y + 120))
    first, middle, last = agrees()
    assert first < -0.5 and middle == 0 and last < -0.5
    for key, place, step in (("ArrowRight", 0, 0.1), ("ArrowDown", 2, -0.1)):
        old = agrees()[place]
        handle.press(key)
        assert agrees()[place] - old == pytest.approx(step)
    drag(page, centre(handle.locator("circle").nth(1)), (5000, -5000))
    assert agrees() == [1.5, 0, 1.5]  # no further than the plane
    picture.locator("svg").first.click(position={"x": 140, "y": 140})
    assert agrees() == [0, 0, 0]
    for key, beta in (("Home", 0), ("ArrowRight", 0.5), ("End", 20)):
        slider.press(key)
        agrees()
        assert numbers(said.inner_text())[3] == beta
    assert other.inner_html() == before


def test_the_clock_s_dot_product_hangs_on_the_distance_alone(visit) -> None:
    rates, table = data_of(SAVED["clock"])["rates"], sinusoids(400, 8).double()
    page = visit(html=SAVED["clock"], reduced_motion="reduce")
    page.locator(".play-more summary").click()
    page.get_by_text("The dot product of their").wait_for()
    said, panels = page.locator(".play-said"), page.locator(".play-panels > svg")
    position, distance = page.get_by_label("position", exact=True), page.get_by_label("distance", exact=True)

    def agrees() -> tuple[int, int, float]:
        """Are turns, cosines and dot product right? Give the two positions and the product."""
        *positions, product = numbers(said.inner_text())
        here, there = map(int, positions)
        assert product == pytest.approx(float(table[here] @ table[there]), abs=0.0051)
        for i, rate in enumerate(rates):
            (turn,) = numbers(panels.nth(i).locator("text").last.text_content())
            cosine = numbers(panels.last.locator("text").last.text_content().replace("− ", "-"))[i]
            pair = slice(2 * i, 2 * i + 2)
            assert turn == pytest.approx((there - here) * rate, abs=0.0051 if rate > 0.005 else 0.00051)
            assert cosine == pytest.approx(float(table[here, pair] @ table[there, pair]), abs=0.0051)
        return here, there, product

    here, there, product = agrees()
    hands = panels.first.inner_html()
    for _ in range(5):
        position.press("ArrowRight")
    assert agrees() == (here + 5, there + 5, product) and panels.first.inner_html() != hands
    distance.press("ArrowLeft")
    assert agrees()[:2] == (here + 5, there + 4) and agrees()[2] != product
    distance.press("Home")
    assert agrees()[:2] == (here + 5, here + 5 - 30)


def test_the_words_travel_as_the_encoder_moves_them(visit) -> None:
    data, page = data_of(SAVED["layers"]), visit(html=SAVED["layers"], reduced_motion="reduce")
    page.locator(".play-more summary").click()
    said, slider = page.locator(".play-said"), page.get_by_label("stop", exact=True)
    words, ring = page.locator(".play-panels > svg").first.locator("g"), page.locator("circle.line")

    def agrees(points: list, difference: float, size: float) -> None:
        """Are the ten points, their difference and their size those of a stop?"""
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert numbers(said.inner_text().split(": ")[1])[:2] == pytest.approx([difference, size], abs=0.0051)
        unit = float(ring.get_attribute("r"))
        shown = [numbers(place) for place in words.evaluate_all(ATTRIBUTES, "transform")]
        places = 155 + unit * torch.tensor(points) * torch.tensor([1, -1])
        assert torch.allclose(torch.tensor(shown), places, atol=0.006 * unit + 0.06)

    for name, stack in data["stacks"].items():
        page.get_by_role("button", name=name, exact=True).click()
        for key, stop in (("Home", 0), ("ArrowRight", 1), ("End", 12), ("ArrowLeft", 11)):
            slider.press(key)
            agrees(*(stack[part][stop] for part in ("points", "difference", "size")))


def test_a_place_must_write_what_it_reads_or_what_comes_next_and_a_cache_saves_what_is_outlined(visit) -> None:
    words, page = data_of(SAVED["shift"])["words"], visit(html=SAVED["shift"] + SAVED["cache"], reduced_motion="reduce")
    said, seen = page.locator(".play-said"), page.locator("svg >> nth=0").locator("g:not([opacity='0'])")
    for key, answers, loss in (("Home", words[:-1], 0), ("End", words[1:], 20)):
        page.get_by_label("shift").press(key)
        page.wait_for_timeout(100)
        across = seen.evaluate_all(ATTRIBUTES, "transform")
        assert seen.all_text_contents() == words[:-1] + answers and across == 2 * across[: len(answers)]
        assert numbers(said.first.inner_text()) == [loss]
    for count in range(1, 11):
        page.get_by_label("step").fill(str(count - 1))
        made = f">> g:nth-of-type(-n+{count}) [fill-opacity='1']"
        keys = [page.locator(f"svg >> nth={i} {made}").count() for i in (1, 2)]
        assert keys == [sum(range(count + 1)), count] == numbers(said.last.inner_text())[-2:]


@pytest.mark.parametrize("warm_up", [0, 2, 3, 10])
def test_the_ball_goes_where_adam_takes_it(visit, warm_up: int) -> None:
    data, page = data_of(SAVED["ball"]), visit(html=SAVED["ball"], reduced_motion=None if warm_up < 3 else "reduce")
    w, width = torch.nn.Parameter(torch.tensor(data["start"]).double()), data["width"]
    adam, places = make_optimizer(torch.nn.ParameterList([w])), [data["start"]]
    for step in range(1, 201):
        w.grad = (w / width**2 * torch.exp(-((w / width) ** 2) / 2)).detach()  # of the loss, 1 − e^(−(w/width)²/2)
        set_rate(adam, 0.5 * noam_rate(max(step, 100), 64, 100) * min(1, step / max(warm_up, 1)))
        adam.step()
        places.append(w.item())
    page.get_by_label("warm-up").fill(str(warm_up))
    page.get_by_role("button", name="▶ again").wait_for(timeout=5000)  # it starts anew, and ends when thrown out
    first, updates, _, last, _ = numbers(page.locator(".play-said").inner_text())
    assert [first, last] == pytest.approx([places[1] - places[0], places[int(updates)]], abs=6e-5)
    out = next((i for i, place in enumerate(places) if abs(place) > 6.4 * width), 200)  # out of the picture
    assert updates == out and page.locator("text", has_text="thrown out").is_visible() == (warm_up < 3) == (out < 200)


def mask_on(page) -> Tensor:
    """The mask that a page shows, by what its squares say of themselves."""
    squares = page.locator("g[role=checkbox]").evaluate_all(ATTRIBUTES, "aria-checked")
    return torch.tensor([square == "true" for square in squares]).view(math.isqrt(len(squares)), -1)


def leaks_on(page, data: dict, layers: int = 1) -> Tensor:
    """The leaks that a page shows, marked by !; each number must say how far an output of attention moves."""
    inputs, replaced = (torch.tensor(data[key]).double() for key in ("vectors", "nudged"))
    mask = mask_on(page)

    def run(x: Tensor) -> Tensor:
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


def test_each_mask_leaks_what_attention_says(visit) -> None:
    data = data_of(SAVED["mask"])
    page = visit(html=SAVED["mask"], reduced_motion="reduce")
    page.locator(".play-more summary").click()
    padded = torch.tensor(data["padded"])
    everything = torch.ones(len(padded), len(padded), dtype=torch.bool)
    causal, unpadded = everything.tril(), ~padded.expand_as(everything)
    wrong = ~(causal & unpadded) & ~padded[:, None]
    masks = {"everything": everything, "causal": causal, "padding": unpadded}
    masks |= {"off by one": everything.tril(1) & unpadded, "both": causal & unpadded}
    for name, expected in masks.items():
        page.get_by_role("button", name=name, exact=True).click()
        assert torch.equal(mask_on(page), expected)
        assert torch.equal(leaks_on(page, data), expected & wrong)
    ahead = page.get_by_label("words ahead")
    for step in range(4):
        ahead.fill(str(step))
        assert torch.equal(mask_on(page), everything.tril(step) & unpadded)
    page.get_by_role("button", name="both").click()
    squares = page.locator("g[role=checkbox]")
    drag(page, *(centre(squares.nth(i)) for i in (1, 2, 7)))  # opens three squares above the diagonal
    assert leaks_on(page, data).nonzero().tolist() == [[0, 1], [0, 2], [1, 2]]
    squares.nth(1).click()
    for key in ("ArrowDown", "ArrowRight", "Space"):
        page.keyboard.press(key)
    assert leaks_on(page, data).nonzero().tolist() == [[0, 2]]
    page.get_by_role("button", name="two layers").click()
    page.get_by_role("button", name="off by one").click()
    two_ahead = everything.tril(2) & unpadded & wrong  # as in the chapter's model B
    assert torch.equal(leaks_on(page, data, layers=2), two_ahead)


def test_the_tree_is_that_of_beam_search_and_a_slider_grows_it(visit) -> None:
    page = visit(html=SAVED["tree"], reduced_motion="reduce")
    said, panel, step = page.locator(".play-said"), page.locator(".play-panels > svg"), page.get_by_label("step")
    step.press("Home")
    assert said.inner_text().startswith("Step 0. Candidates: 3.") and panel.locator("rect").count() == 4
    for _ in range(7):
        step.press("ArrowRight")
    looks = [panel.locator("rect").evaluate_all(ATTRIBUTES, name) for name in ("stroke-dasharray", "stroke-width")]
    assert looks[0].count("4 3") == 7 and looks[1].count("3") == 4  # words that are dropped; the winner's way
    page.locator(".play-more summary").click()
    for (beam, alpha), (winner, p) in WINNERS.items():
        page.get_by_label("beam").fill(str(beam))
        page.get_by_label("α").fill(str(alpha))
        assert said.inner_text().endswith(f" “{winner}” wins.")  # another beam or α leaves a reader at the end
        rows = set()
        for _ in range(8):  # back to where it finished
            rows |= set(re.findall(rf"Finished:.*“{winner}” ([−.\d]+)(?: / (\S+) = (−\d\.\d+))?", said.inner_text()))
            step.press("ArrowLeft")
        (row,) = rows
        penalty = length_penalty(len(winner.split()) + 1, alpha)
        expected = [math.log(p), penalty, math.log(p) / penalty] if alpha else [p]
        assert [numbers(value)[0] for value in row if value] == pytest.approx(expected, abs=6e-4)
        step.press("End")


def test_the_bars_are_what_the_module_draws_by_and_ten_darts_what_it_draws(visit) -> None:
    data, page = data_of(SAVED["sampling"]), visit(html=SAVED["sampling"])
    sliders, panels = [page.get_by_label(name, exact=True) for name in ("T", "top k", "nucleus")], page.locator("svg")
    button, seed, darts = page.get_by_role("button", name="draw ten"), data["seed"], []
    page.locator(".play-more summary").click()
    for heat, most, enough in ((1, 5, 1), (1, 65, 0.9), (0, 65, 1), (2, 20, 0.5), (0.1, 3, 0.05)):
        for slider, value in zip(sliders, (heat, most, enough), strict=True):
            slider.fill(str(value))
        button.click()
        for _ in range(10):
            seed = (1664525 * seed + 1013904223) % 2**32
            darts.append(seed / 2**32)
        drawn = re.findall(r"drawn: (.*?)\)", page.locator(".play-said").inner_text())
        for panel, text, letters in zip(panels.all()[:2], data["texts"], drawn, strict=True):
            logits = torch.tensor(text["logits"]).double()
            options = {"top_k": most if most < 65 else None, "top_p": float(enough) if enough < 1 else None}
            p = sampling_probabilities(logits, float(heat), **options)
            hits = torch.searchsorted(p.cumsum(dim=-1), torch.tensor(darts[-10:]).double(), right=True)
            assert letters.split()[-10:] == [text["characters"][i] for i in hits]
            texts = panel.locator("text").all_text_contents()
            assert numbers(texts[1])[:2] == [int((p > 0).sum()), 65]
            assert numbers(texts[2])[0] == pytest.approx(100 * float(p[0]), abs=0.051)
            shown = torch.cat([p[:24], p[24:].sum()[None]])
            solid = [float(height) for height in panel.locator("[fill*=blue]").evaluate_all(ATTRIBUTES, "height")]
            assert torch.allclose(torch.tensor(solid).double(), 132 * shown[shown > 0], atol=0.006)  # 132 pixels: 100 %


def test_both_maps_are_those_recorded_and_the_outlined_places_are_one_back_and_after_the_same_letter(visit) -> None:
    data, page = data_of(SAVED["birth"]), visit(html=SAVED["birth"], reduced_motion="reduce")
    assert data == json.loads((DATA_FOLDER / "results" / "induction.json").read_text("utf-8"))["moment"]
    letters, panels = data["letters"], page.locator(".play-panels > svg")
    pairs = [(i, j) for i in range(len(letters)) for j in range(i + 1)]
    outlined = [[j == i - 1 for i, j in pairs], [j > 0 and letters[j - 1] == letters[i] for i, j in pairs]]
    for frame in (0, 25, 30, 40):
        page.get_by_label("updates").fill(str(frame))
        for head in range(2):
            cells = panels.nth(head).locator("rect")
            dark = [float(one) for one in cells.evaluate_all(ATTRIBUTES, "fill-opacity")]
            assert dark == pytest.approx([int(digit) / 9 for digit in data["maps"][frame][head]], abs=0.0051)
            assert [stroke == "var(--c1)" for stroke in cells.evaluate_all(ATTRIBUTES, "stroke")] == outlined[head]
        shares = [round(100 * score) for score in data["scores"][frame]]
        said = numbers(page.locator(".play-said").inner_text())
        assert said == [frame * data["between"], data["loss"][frame], *shares]
