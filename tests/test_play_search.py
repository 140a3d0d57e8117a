"""The pictures of 04, 08 and 15: what they show is what the module computes, by mouse and by keys."""

import itertools
import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoding import beam_search, length_penalty
from annotated.encoder import Encoder, FeedForward
from annotated.models.language_model import sampling_probabilities
from annotated.multi_head import MultiHeadAttention
from annotated_workbench.vocabulary import SPECIALS
from experiments.warm_up import xavier
from tests import test_play
from tests.test_play import SAVED, data_of, numbers
from tools.stills import still

visit = test_play.visit  # a fixture: pytest finds it by this name
SETTINGS = list(itertools.product((True, False), repeat=2))  # with the sum, with the norm


def stack_of_the_chapter() -> Encoder:
    """The six layers of 04's picture, in an encoder, with the weights that its cell draws."""
    encoder = Encoder(TransformerConfig(vocab_size=1, layers=6, d_model=32, d_ff=128, heads=4, dropout=0.0))
    torch.manual_seed(0)
    for layer in encoder.layers:
        layer.self_attention = xavier(MultiHeadAttention(32, heads=4).double())
        layer.feed_forward = xavier(FeedForward(32, 128).double())
    return encoder.double()


def states_of_the_chapter(add: bool, normalise: bool) -> list[Tensor]:
    """The ten words at the start, after each sub-layer, and after each norm."""
    encoder = stack_of_the_chapter()
    drawn = torch.Generator().manual_seed(0)
    states = [torch.randn(1, 10, 32, generator=drawn, dtype=torch.float64)]
    with torch.no_grad():
        for layer in encoder.layers:
            for sublayer in (lambda x, attend=layer.self_attention: attend(x, x, x), layer.feed_forward):
                states.append(sublayer(states[-1]) + add * states[-1])
                states.append(F.layer_norm(states[-1], (32,)) if normalise else states[-1])
        if add and normalise:
            assert torch.allclose(encoder(states[0]), states[-1])
    return [state[0] for state in states]


def test_the_words_travel_as_the_encoder_moves_them(visit) -> None:
    page = visit(SAVED["layers"], width=390)
    page.emulate_media(reduced_motion="reduce")
    said, slider = page.locator(".play-said"), page.get_by_label("after")
    residual, norm = (page.get_by_role("checkbox", name=name) for name in ("residual", "LayerNorm"))
    words, ring = page.locator(".play-panels > svg").first.locator("g"), page.locator("circle.line")
    bars = page.locator(".play-panels > svg").last.locator("rect")

    def agrees(state: Tensor) -> None:
        """Are the ten points, their difference and their size those of a state?"""
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        apart = float((state - state.mean(dim=0)).norm() / state.norm())
        expected = pytest.approx([apart, float(state.std())], abs=0.0051)
        assert numbers(said.inner_text().split(": ")[1])[:2] == expected
        titles = [numbers(text)[0] for text in page.locator("text").all_text_contents() if re.search(r": \d", text)]
        assert titles == expected
        unit = float(ring.get_attribute("r"))
        shown = [numbers(place) for place in words.evaluate_all("all => all.map(one => one.getAttribute('transform'))")]
        places = 155 + unit * state[:, :2] * torch.tensor([1, -1])
        assert torch.allclose(torch.tensor(shown).double(), places, atol=0.006 * unit + 0.06)
        assert ((places > 0) & (places < 310)).all()

    def bars_that(say: str) -> int:
        """How many bars are as they are asked to be."""
        return bars.evaluate_all(f"all => all.filter(one => one.{say}).length")

    visible = "getAttribute('visibility') === 'visible'"
    assert bars_that(visible) == 2  # what comes after the first stop is to be guessed
    for add, normalise in SETTINGS:
        states = states_of_the_chapter(add, normalise)
        for box, on in ((residual, add), (norm, normalise)):
            box.set_checked(on)
        slider.focus()
        page.keyboard.press("Home")
        agrees(states[0])
        for stop in (1, 2, 3):
            page.keyboard.press("ArrowRight")
            agrees(states[stop])
        page.keyboard.press("End")
        agrees(states[24])
        assert len(states) == 25 and bars_that("getAttribute('fill') !== 'none'") == 50
        box = slider.bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        agrees(states[12])
        assert bars_that("getAttribute('fill') === 'none'") == 24 and bars_that(visible) == 50
    norm.press("Space")
    assert "LayerNorm: " in said.inner_text() and norm.is_checked()


def test_the_words_glide_to_where_the_reader_went_last(visit) -> None:
    page = visit(SAVED["layers"])
    (both,) = (one for one in data_of(SAVED["layers"])["stacks"] if one["add"] and one["normalise"])
    slider, word = page.get_by_label("after"), page.locator(".play-panels > svg").first.locator("g").first
    page.evaluate("window.waiting = []; requestAnimationFrame = draw => waiting.push(draw); performance.now = () => 0")

    def place_after(milliseconds: int) -> list[float]:
        """Draw one frame at this time, and give the place of word 0."""
        page.evaluate(f"waiting.splice(0).forEach(draw => draw({milliseconds}))")
        return numbers(word.get_attribute("transform"))

    def at(stop: int) -> list[float]:
        """Where word 0 is to be after so many stops."""
        x, y = both["points"][stop][0]
        return [155 + 62 * x, 155 - 62 * y]

    assert place_after(0) == pytest.approx(at(0), abs=0.1)
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert place_after(0) == pytest.approx(at(0), abs=0.1)
    halfway = [(one + other) / 2 for one, other in zip(at(0), at(3), strict=True)]
    assert place_after(300) == pytest.approx(halfway, abs=0.1)
    page.keyboard.press("ArrowLeft")  # back to stop 2, before the journey is over
    assert place_after(0) == pytest.approx(halfway, abs=0.1)
    assert place_after(600) == pytest.approx(at(2), abs=0.1)
    assert page.evaluate("waiting.length") == 0


class TableModel(nn.Module):
    """08's table of next words as a model that translates; `asked` keeps what it was to go on from, step by step."""

    def __init__(self, table: dict[str, dict[str, float]]):
        super().__init__()
        following = {word: None for row in table.values() for word in row if word not in SPECIALS}
        self.words = [*SPECIALS, *following]
        self.config = TransformerConfig(vocab_size=len(self.words), max_length=16)
        self.rows = torch.full((len(self.words), len(self.words)), -math.inf)
        self.rows[:, EOS] = 0.0  # after what no search should reach
        for word, row in table.items():
            self.rows[self.words.index(word)] = -math.inf
            for after, p in row.items():
                self.rows[self.words.index(word), self.words.index(after)] = math.log(p)
        self.asked: list[Tensor] = []

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return torch.zeros(*src.shape, 1)

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor, *, cache=None) -> Tensor:
        self.asked.append(tgt)
        return self.rows[tgt]

    def logits(self, states: Tensor) -> Tensor:
        return states

    def new_cache(self):
        raise NotImplementedError

    def log_probs(self, ids: Tensor) -> Tensor:
        """Log P of each of several beginnings."""
        return self.rows[ids[:, :-1], ids[:, 1:]].sum(dim=-1)


def test_the_tree_is_that_of_beam_search(visit) -> None:
    data = data_of(SAVED["tree"])
    page = visit(SAVED["tree"])
    said, beam, alpha = page.locator(".play-said"), page.get_by_label("beam"), page.get_by_label("α")
    back, forward = (page.get_by_role("button", name=name) for name in ("back", "next"))
    panel = page.locator(".play-panels > svg")
    assert said.inner_text().startswith("Nothing is written yet")
    panel.press("End")
    winners = set()
    for k, tenths in itertools.product(range(1, 6), (0, 3, 4, 20)):
        beam.fill(str(k))
        alpha.fill(str(tenths / 10))
        panel.focus()
        model = TableModel(data["table"])
        source = torch.tensor([[EOS]])
        (best,) = beam_search(model, source, k, tenths / 10, max_extra=data["limit"] - 1, use_cache=False)
        winner = " ".join(model.words[i] for i in best.ids)
        winners.add(winner)
        assert said.inner_text().endswith(f" “{winner}” wins.")  # another beam or α leaves a reader at the end
        penalty = length_penalty(len(best.ids) + 1, tenths / 10)
        seen = False
        for step in reversed(range(len(model.asked))):
            told = said.inner_text()
            kept = re.findall(r"“([^”]*)” (\S+?)[,.](?: |$)", told.partition("Finished")[0].partition(" can hope")[0])
            if step + 1 < len(model.asked):  # what the search went on from is what it has kept
                expected = model.log_probs(model.asked[step + 1])
                expected = expected[expected > -math.inf].sort(descending=True).values
                assert [numbers(total)[0] for _, total in kept] == pytest.approx(expected.tolist(), abs=6e-4)
            for text, total in kept:
                ids = torch.tensor([[BOS, *map(model.words.index, text.split())]])
                assert numbers(total)[0] == pytest.approx(float(model.log_probs(ids)), abs=6e-4)
            for text, *values in re.findall(r"“([^”]*)” (\S+) / (\S+) = (−\d\.\d+)", told):
                if text == winner:
                    shown = [numbers(value)[0] for value in values]
                    assert shown == pytest.approx([best.log_prob, penalty, best.score], abs=6e-4)
                    seen = True
            if hope := re.search(r"“([^”]*)” can hope for (\S+) at best, “[^”]*” has (\S+): (stop|go on)", told):
                expected = numbers(kept[0][1])[0] / length_penalty(data["limit"], tenths / 10)
                assert hope[1] == kept[0][0] and numbers(hope[2])[0] == pytest.approx(expected, abs=1.1e-3)
                assert (numbers(hope[2])[0] > numbers(hope[3])[0]) == (hope[4] == "go on")
            assert told.startswith(f"Step {step}. ")
            page.keyboard.press("ArrowLeft")
            totals = model.log_probs(model.asked[step])[:, None] + model.rows[model.asked[step][:, -1]]
            count = int((totals > -math.inf).sum())  # all that the search can go on to
            assert said.inner_text() == f"Step {step}. Candidates: {count}. With K = {k}, which will stay?"
            page.keyboard.press("ArrowLeft")
        assert seen, "the winner finished at one of the steps"
        assert said.inner_text().startswith("Nothing is written yet") and back.is_disabled() and forward.is_enabled()
        panel.press("End")
    assert winners == {"the dog sleeps", "a dog", "a dog sleeps"}


def test_the_tree_grows_by_keys_and_its_shapes_tell_what_became_of_a_word(visit) -> None:
    page = visit(SAVED["tree"], width=390)
    panel, said, forward = page.locator(".play-panels > svg"), page.locator(".play-said"), page.get_by_text("next ▶")

    def boxes(condition: str) -> int:
        """How many boxes fulfil a condition."""
        return panel.locator("rect").evaluate_all(f"all => all.filter(one => {condition}).length")

    def shapes() -> tuple[int, int, int, int]:
        """How many words are dropped, kept or finished, finished, and on the winner's way."""
        dropped, outer = boxes("one.getAttribute('stroke-dasharray') === '4 3'"), boxes("one.getAttribute('rx')")
        return (
            dropped,
            outer - dropped,
            boxes("!one.getAttribute('rx')"),
            boxes("one.getAttribute('stroke-width') === '3'"),
        )

    assert shapes() == (0, 1, 0, 0)  # the reader begins at the start
    after = {0: (1, 3, 0, 0), 1: (4, 5, 0, 0), 2: (7, 8, 1, 0), 3: (7, 12, 3, 5)}  # (start) among the kept ones
    for step, expected in after.items():
        before, candidates = shapes(), (3, 5, 6, 4)[step]
        panel.press("ArrowRight")  # the candidates, and no verdict
        assert shapes() == (before[0], before[1] + candidates, *before[2:])
        assert (
            boxes("one.getAttribute('fill') === 'none' && one.getAttribute('stroke-dasharray') === 'none'")
            == candidates
        )
        panel.press("ArrowRight")
        assert shapes() == expected and said.inner_text().startswith(f"Step {step}. Kept")
    texts = panel.locator("text").all_text_contents()
    at = texts.index("−1.756")  # what is finished has its log P, and below it its score
    assert texts[at - 1 : at + 2] == ["<eos>", "−1.756", "−1.477"]
    for key, expected in (("ArrowRight", after[3]), ("Home", (0, 1, 0, 0)), ("ArrowLeft", (0, 1, 0, 0))):
        panel.press(key)  # no further than the end, or the start
        assert shapes() == expected
    for _ in range(4):
        forward.click()
    assert shapes() == after[1]
    texts = panel.locator("text").all_text_contents()
    assert "dog" in texts and "−1.022" in texts and "sleeps" not in texts
    page.get_by_label("beam").focus()
    page.keyboard.press("ArrowRight")  # another beam replays the search, up to where the reader is
    assert said.inner_text().startswith("Step 1. Kept: “a dog” −1.022, “the dog” −1.609, “the hound” −1.897.")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    panel.press("End")
    page.get_by_label("beam").fill("5")
    beyond = "all => all.filter(one => one.getBoundingClientRect().right > 390).length"
    assert panel.locator("text").evaluate_all(beyond) == 0


def test_a_reader_of_the_tree_keeps_focus_scrolls_turns_the_phone_and_sees_what_is_said(visit) -> None:
    page = visit(SAVED["tree"], width=390)
    panel, said, forward = page.locator(".play-panels > svg"), page.locator(".play-said"), page.get_by_text("next ▶")
    focused = "document.activeElement.textContent"
    for _ in range(9):
        forward.press("Enter")
    assert forward.is_disabled() and page.evaluate(focused) == "next ▶"
    for end, name in (("start", "◀ back"), ("end", "next ▶")):
        page.get_by_role("button", name=end, exact=True).press("Enter")
        assert page.get_by_text(name).is_disabled() and page.evaluate(focused) == end
    page.evaluate("document.addEventListener('keydown', event => { window.kept = event.defaultPrevented; })")
    for key, kept in (("ArrowUp", False), ("ArrowDown", False), ("ArrowLeft", True), ("Home", True)):
        panel.press(key)
        assert page.evaluate("kept") == kept
    below, tree = (place.bounding_box() for place in (said, panel))
    assert below["y"] + below["height"] <= tree["y"] and below["y"] - forward.bounding_box()["y"] < 200
    panel.press("End")
    sizes = panel.locator("text").evaluate_all(
        "all => all.map(one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)"
    )
    assert min(sizes) > 10.5
    for width in (844, 390):
        page.set_viewport_size({"width": width, "height": 390})
        room = min(page.locator(".play-panels").bounding_box()["width"], 640)
        assert panel.bounding_box()["width"] == pytest.approx(room, abs=1)


def test_a_still_shows_the_tree_full_grown(visit) -> None:
    shown = still(visit(), SAVED["tree"])
    assert shown.count("&lt;eos&gt;") == 4 and 'stroke-width="3"' in shown


def test_the_bars_are_what_the_module_draws_by(visit) -> None:
    data = data_of(SAVED["sampling"])
    page = visit(SAVED["sampling"])
    temperature, k, share = (page.get_by_label(name, exact=True) for name in ("T", "top k", "nucleus"))
    panels = page.locator(".play-panels > svg")

    def bars(i: int, name: str, attribute: str) -> list[str]:
        """An attribute of each bar of a kind."""
        return panels.nth(i).locator(name).evaluate_all(f"all => all.map(one => one.getAttribute('{attribute}'))")

    def agrees(heat: float, most: int, enough: float) -> list[Tensor]:
        """Are bars, shares and counts right? Give the probabilities of both texts."""
        drawn_by = []
        for i, text in enumerate(data["texts"]):
            logits = torch.tensor(text["logits"]).double()
            p = sampling_probabilities(
                logits, float(heat), most if most < 65 else None, float(enough) if enough < 1 else None
            )
            drawn_by.append(p)
            texts = panels.nth(i).locator("text").all_text_contents()
            stay, of, cut = numbers(texts[1])
            assert (" stays, " in texts[1]) == (stay == 1)
            tempered = logits.softmax(dim=-1) if heat == 0 else (logits / heat).softmax(dim=-1)
            assert (stay, of) == (int((p > 0).sum()), 65)
            assert cut == pytest.approx(100 * float(tempered[p == 0].sum()), abs=0.051)
            assert numbers(texts[2])[0] == pytest.approx(100 * float(p[0]), abs=0.051)
            choice = next(text for text in texts if text.startswith("like a choice"))
            assert numbers(choice)[0] == pytest.approx(float(torch.special.entr(p).sum().exp()), abs=0.051)
            shown = torch.cat([p[:24], p[24:].sum()[None]])
            fills, heights = bars(i, "rect", "fill"), bars(i, "rect", "height")
            solid = [float(height) for fill, height in zip(fills, heights, strict=True) if fill != "none"]
            unit = 184  # pixels, 100 % of both charts
            assert torch.allclose(torch.tensor(solid).double(), unit * shown[shown > 0], atol=0.006)
            assert len(bars(i, "line", "x1")) == int((shown == 0).sum()) and fills.count("none") == 25
        return drawn_by

    agrees(1, 5, 1)
    for heat, most, enough in ((1, 65, 0.9), (0, 65, 1), (0.5, 65, 1), (2, 65, 1), (2, 20, 0.5), (0.1, 3, 0.05)):
        for slider, value in ((temperature, heat), (k, most), (share, enough)):
            slider.fill(str(value))
        agrees(heat, most, enough)
    for slider, key in ((temperature, "End"), (k, "End"), (share, "End"), (k, "ArrowLeft"), (share, "ArrowLeft")):
        slider.focus()
        page.keyboard.press(key)
    agrees(2, 64, 0.95)


def test_ten_letters_are_drawn_by_the_same_ten_darts(visit) -> None:
    data = data_of(SAVED["sampling"])
    page = visit(SAVED["sampling"], width=390)
    said, button, seed, darts = page.locator(".play-said"), page.get_by_role("button"), data["seed"], []

    def agrees(**how: float) -> str:
        """Are the letters those that the darts hit? Give them."""
        drawn = re.findall(r"drawn: (.*?)\.(?: |$)", said.inner_text())
        for letters, text in zip(drawn, data["texts"], strict=True):
            p = sampling_probabilities(torch.tensor(text["logits"]).double(), **how)
            hits = torch.searchsorted(p.cumsum(dim=-1), torch.tensor(darts).double(), right=True)
            assert letters.split() == [text["characters"][i] for i in hits]
        return " ".join(drawn)

    assert "drawn" not in said.inner_text()
    for press in (button.click, lambda: button.press("Enter")):
        press()
        darts = []
        for _ in range(10):
            seed = (1664525 * seed + 1013904223) % 2**32
            darts.append(seed / 2**32)
        agrees(top_k=data["k"])
    before = agrees(top_k=data["k"])
    page.get_by_label("top k").fill("65")
    page.get_by_label("T", exact=True).fill("2")
    assert agrees(temperature=2.0) != before
