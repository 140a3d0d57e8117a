"""The live page in a browser: what it shows is what the model computes, whatever is typed, by mouse and by keys.

What needs a browser is skipped where Chromium is not found, and on an imitated processor: it draws no other page.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import torch
from once import once
from PIL import Image
from torch import Tensor

from annotated.config import BOS, EOS
from annotated.decoding import beam_search, greedy_decode, next_log_probs
from annotated.masking import padding_mask
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.vocabulary import Tokenizer
from tools.live import LIVE, MODEL, STEPS
from tools.live_picture import FOLDER, WIDTH, with_few_colors
from tools.sync import ROOT

pytestmark = once

PAGE = LIVE / "index.html"
DOGS = "Zwei Hunde spielen im Schnee mit einem Ball."
CAT = "Eine Katze sitzt auf dem Fensterbrett und schaut hinaus."
CYCLIST = "Ein Radfahrer fährt bei Sonnenuntergang über eine Brücke."
SOFA = "Zwei Männer tragen ein Sofa die Treppe hinauf."
HEADLINE = "Der Bundestag hat gestern über die Rentenreform abgestimmt."
ENGINE = ("transformer.js", "tokenizer.js", "weights.js")  # which have a test of their own
LARGEST = 350  # lines of one file
IS_SHOWN = "text => shown?.text === text && find('skip').textContent === 'Play again'"


@pytest.fixture(scope="module")
def translator() -> tuple[Transformer, Tokenizer]:
    """The delivered model, its matrices rounded to nine bits as the page has them, and its tokenizer."""
    model, tokenizer, _ = load_translator([MODEL])
    with torch.no_grad():
        for matrix in (one for one in model.parameters() if one.dim() == 2):
            scales = matrix.abs().amax(dim=1, keepdim=True) / STEPS
            matrix.copy_((matrix / scales).round() * scales)
    return model.eval(), tokenizer


def source_of(tokenizer: Tokenizer, sentence: str) -> Tensor:
    """A sentence's ids, as a batch of one."""
    return torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]])


class Opened:
    """A page, and all that it complained of or asked other places for."""

    def __init__(self, browser, address: str = "", *, with_weights: bool = True, **options) -> None:
        self.complaints: list[str] = []
        self.tab = browser.new_page(**options)
        if not with_weights:
            self.tab.route("**/weights.js", lambda route: route.abort())
        self.tab.set_default_timeout(30_000)
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", self.watch)
        self.tab.goto(PAGE.as_uri() + address)

    def watch(self, request) -> None:
        """Note what is neither beside the page nor written into it."""
        if not request.url.startswith((LIVE.as_uri() + "/", "data:")):
            self.complaints.append(request.url)

    def wait(self, sentence: str) -> None:
        """Wait until a sentence's translation stands there."""
        self.tab.wait_for_function(IS_SHOWN, arg=sentence)

    def choose(self, sentence: str) -> None:
        """Type a sentence and press Enter."""
        field = self.tab.get_by_label("German", exact=True)
        field.fill(sentence)
        field.press("Enter")

    def translate(self, sentence: str) -> None:
        """The same, and wait."""
        self.choose(sentence)
        self.wait(sentence)

    def scroll_to(self, part: str) -> None:
        """Bring a part of the page into view, and wait until it is about the sentence that stands above."""
        self.tab.locator(f"#{part}").scroll_into_view_if_needed()
        self.tab.wait_for_function("id => !parts.find(part => part.id === id).stale", arg=part)
        self.tab.wait_for_function(
            "![...document.querySelectorAll('.said')].some(one => /ing …/.test(one.textContent))"
        )

    def text(self, selector: str) -> str:
        """What stands there."""
        return self.tab.locator(selector).inner_text()

    def texts(self, selector: str) -> list[str]:
        """What stands in each of several places."""
        return self.tab.locator(selector).all_inner_texts()


@pytest.fixture(scope="module")
def page(browser) -> Iterator[Opened]:
    """The page as a desk shows it, without its slow writing."""
    opened = Opened(browser, viewport={"width": 1024, "height": 600}, reduced_motion="reduce")
    opened.wait(DOGS)
    yield opened
    opened.tab.close()


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: nothing in the console, no exception, no request to anywhere else."""
    yield
    if "page" in request.fixturenames and "page" in request.node.funcargs:
        assert request.node.funcargs["page"].complaints == []


def number(text: str) -> float:
    """The first number in a text."""
    return float(re.search(r"-?\d+(\.\d+)?", text.replace("−", "-").replace(",", ""))[0])


# --- Without a browser ------------------------------------------------------------------------------------------------


def test_no_file_is_long_and_none_asks_another_host() -> None:
    for path in sorted(LIVE.iterdir()):
        text = path.read_text("utf-8")
        if path.name not in ENGINE:
            assert len(text.splitlines()) <= LARGEST, path.name
        assert not re.search(r"(src|import|fetch|url)\W{1,4}https?:", text[:100_000]), path.name
    assert (LIVE / "weights.js").stat().st_size <= 8_000_000


def test_what_the_page_says_of_the_model_is_so(translator: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = translator
    text = " ".join(PAGE.read_text("utf-8").split())
    cards = (MODEL.parent / "README.md").read_text("utf-8")
    card = cards.split(f"\n## {MODEL.name}\n")[1].split("\n## ")[0]
    assert f"N = {model.config.layers}, d_model = {model.config.d_model}, {model.config.heads} heads" in text
    assert f" heads, d_ff = {model.config.d_ff}, " in text
    assert f"{sum(one.numel() for one in model.parameters()) / 1e6:.1f} million weights" in text
    assert f"{len(tokenizer):,} pieces" in text
    assert "weights of nine bits each" in text and 2 * STEPS + 1 < 2**9
    megabytes = re.search(r"on their way: (\d+) MB", (LIVE / "page.js").read_text("utf-8"))[1]
    assert int(megabytes) == round((LIVE / "weights.js").stat().st_size / 1e6)
    bleu = re.search(r"BLEU ([\d.]+) on Multi30k's (test_2016_flickr)", text)
    assert f"{bleu[2]} | BLEU {bleu[1]}" in card
    assert "29,000 captions" in text and "29,000 training pairs" in card
    assert "Six such models, trained on the 29,000 captions alone" in text
    assert "six models that know nothing else" in card


def test_every_chapter_that_is_named_is_there() -> None:
    for name in re.findall(r'data-page="(notebooks/\w+)"', PAGE.read_text("utf-8")):
        assert (ROOT / f"{name}.ipynb").is_file(), name


def test_the_film_of_the_page_keeps_its_colors_and_is_small() -> None:
    white, ink = Image.new("RGB", (20, 20), "white"), Image.new("RGB", (20, 20), "#1f2328")
    shades = Image.linear_gradient("L").convert("RGB").resize((20, 20))
    reduced = [one.convert("RGB") for one in with_few_colors([white, white, ink, shades])]
    assert [one.getpixel((3, 3)) for one in reduced[:3]] == [(255, 255, 255), (255, 255, 255), (31, 35, 40)]
    differences = np.abs(np.asarray(reduced[3], dtype=int) - np.asarray(shades, dtype=int))
    assert differences.max() <= 4
    with Image.open(FOLDER / "live.gif") as film, Image.open(FOLDER / "live.png") as still:
        assert film.size == still.size and film.width == WIDTH and film.n_frames > 10
        assert film.info["loop"] == 0  # for ever
    assert (FOLDER / "live.gif").stat().st_size <= 600_000 and (FOLDER / "live.png").stat().st_size <= 120_000


# --- 1. A sentence and its translation --------------------------------------------------------------------------------


@pytest.mark.parametrize("sentence", [DOGS, CAT, HEADLINE])
def test_the_translation_is_that_of_greedy_search(page: Opened, translator, sentence: str) -> None:
    model, tokenizer = translator
    page.translate(sentence)
    found = greedy_decode(model, source_of(tokenizer, sentence))[0]
    assert page.text("#spoken") == f"Translation: {tokenizer.decode(found.ids)}"
    assert "".join(page.texts("#translation button")) == tokenizer.decode(found.ids).replace(" ", "") + "⟨end⟩"
    assert page.tab.evaluate("shown.logProb") == pytest.approx(found.log_prob, abs=1e-3)
    assert re.fullmatch(r"\d\.\d\d s to compute\.", page.text("#time"))
    least = page.tab.evaluate("Math.min(...shown.steps.map(step => step.logProbs[step.token]))")
    taken = page.tab.locator("#candidates .taken i").evaluate("bar => parseFloat(bar.style.width)")
    assert page.text("#could").startswith("Least sure here: ") and taken == pytest.approx(100 * np.exp(least), abs=0.05)
    pieces = [tokenizer.decode([one]) for one in source_of(tokenizer, sentence)[0, :-1].tolist()]
    assert page.texts("#read li span") == [*(one.strip() for one in pieces), "⟨end⟩"]
    assert page.texts("#read li small") == [str(one) for one in source_of(tokenizer, sentence)[0].tolist()]


def test_candidates_are_the_five_likeliest_of_each_step(page: Opened, translator) -> None:
    model, tokenizer = translator
    page.translate(DOGS)
    src = source_of(tokenizer, DOGS)
    ids = greedy_decode(model, src)[0].ids
    with torch.inference_mode():
        mask = padding_mask(src)
        memory = model.encode(src, mask)
        for step in (0, 2, len(ids)):
            before = torch.tensor([[BOS, *ids[:step]]])
            expected, tokens = next_log_probs(model, before, memory, mask, None)[0].topk(5)
            page.tab.locator("#translation button").nth(step).focus()
            rows = page.tab.locator("#candidates li")
            words = page.texts("#candidates .word")
            assert words[:5] == [tokenizer.decode([one]).strip() or "⟨end⟩" for one in tokens.tolist()]
            assert words[5:] == ["all others"]
            parts = rows.evaluate_all("rows => rows.map(row => parseFloat(row.querySelector('i').style.width))")
            assert sum(parts) == pytest.approx(100, abs=0.1)
            assert parts[:5] == pytest.approx((100 * expected.exp()).tolist(), abs=0.05)
            assert parts[:5] == sorted(parts[:5], reverse=True)
            for shown, part in zip(page.texts("#candidates .percent"), parts, strict=True):
                assert shown == "< 0.1 %" if part < 0.095 else abs(number(shown) - part) < 0.51
            taken = page.texts("#candidates .taken .word")
            assert taken == [tokenizer.decode([ids[step]]).strip() if step < len(ids) else "⟨end⟩"]
            start = f"After “{tokenizer.decode(ids[:step])}” it could go on with"
            assert page.text("#could") == (start if step else "It could begin with")


# --- 2. Where it looks ------------------------------------------------------------------------------------------------


def test_the_attention_shown_is_what_the_model_records(page: Opened, translator) -> None:
    model, tokenizer = translator
    page.translate(DOGS)
    src = source_of(tokenizer, DOGS)
    with torch.inference_mode(), record_attention(model) as recorded:
        model(src, torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]]))
    recorded = {name: found[-1][0] for name, found in recorded.items()}
    page.scroll_to("where")
    for kind, layer, head, query in [
        ("encoder.self", 0, 1, 2),
        ("decoder.self", 1, 3, 5),
        ("decoder.cross", 2, "mean", 0),
        ("decoder.cross", 1, 0, 9),
    ]:
        for name, value in (("kind", kind), ("layer", str(layer)), ("head", str(head))):
            page.tab.locator(f"#{name}").select_option(value)
        stack, name = kind.split(".")
        weights = recorded[f"{stack}.layers.{layer}.{name}_attention"]
        weights = weights.mean(dim=0) if head == "mean" else weights[head]
        page.tab.locator("#looks .words").last.locator("button").nth(query).hover()
        shown = [number(text) / 100 if text else 0.0 for text in page.texts("#looks .words:first-child button i")]
        assert shown == pytest.approx(weights[query].tolist(), abs=0.0051)
        best = page.texts("#looks .words:first-child button span")[weights[query].argmax()]
        assert f"looks most at “{best}”: {100 * weights[query].max():.0f} %" in page.text("#looks-said")
        page.tab.locator("#looks .words").first.locator("button").nth(1).focus()  # and who looks at it
        page.tab.mouse.move(0, 0)
        shown = [number(text) / 100 if text else 0.0 for text in page.texts("#looks .words:last-child button i")]
        assert shown == pytest.approx(weights[:, 1].tolist(), abs=0.0051)
    page.tab.locator("#alignment .words").last.locator("button").nth(5).focus()
    cross = recorded["decoder.layers.2.cross_attention"].mean(dim=0)[5]
    shown = [number(text) / 100 if text else 0.0 for text in page.texts("#alignment .words:first-child button i")]
    assert shown == pytest.approx(cross.tolist(), abs=0.0051)


def test_a_word_stays_pinned_while_heads_and_layers_change(page: Opened) -> None:
    page.translate(DOGS)
    page.scroll_to("where")
    tab, said = page.tab, "document.getElementById('looks-said').textContent"
    for name, value in (("kind", "encoder.self"), ("layer", "2"), ("head", "mean")):
        tab.locator(f"#{name}").select_option(value)
    left, right = (tab.locator("#looks .words").nth(i).locator("button") for i in (0, 1))
    right.nth(1).click()
    tab.mouse.move(0, 0)
    for name, value in (("head", "1"), ("layer", "0"), ("head", "3")):
        before = tab.evaluate(said)
        tab.locator(f"#{name}").select_option(value)
        assert before.startswith("“Hunde” looks most at") and tab.evaluate(said) != before
        assert page.texts("#looks .pointed span") == ["Hunde"] == page.texts("#looks [aria-pressed=true] span")
    right.nth(2).hover()  # only for as long as the mouse is there
    assert page.text("#looks-said").startswith("“spielen” looks")
    tab.mouse.move(0, 0)
    assert page.text("#looks-said").startswith("“Hunde” looks")
    right.nth(1).click()  # a second click lets go
    tab.mouse.move(0, 0)
    assert page.text("#looks-said").startswith("Point at a word")

    left.nth(1).click()
    tab.locator("#kind").select_option("decoder.cross")  # the German is still there
    tab.mouse.move(0, 0)
    assert page.text("#looks-said").startswith("“Hunde” is looked at most by “")
    tab.keyboard.press("Escape")
    assert page.text("#looks-said").startswith("Point at a word")
    left.nth(1).click()
    tab.mouse.move(0, 0)
    tab.locator("#kind").select_option("decoder.self")  # now it isn't
    assert page.texts("#looks .pointed") == []
    tab.locator("#kind").select_option("encoder.self")


# --- 3. The beam ------------------------------------------------------------------------------------------------------


def set_search(page: Opened, beam: int, alpha: float) -> None:
    """Move both sliders, and wait for the search that follows."""
    page.tab.locator("#beam").evaluate("(slider, value) => { slider.value = value; }", beam)
    page.tab.locator("#alpha").fill(str(alpha))
    page.tab.wait_for_function("!find('verdict').textContent.startsWith('Searching')")


def test_the_tree_s_winner_is_that_of_beam_search(page: Opened, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, CAT)
    page.translate(CAT)
    page.scroll_to("search")
    greedy = tokenizer.decode(greedy_decode(model, src)[0].ids)
    for beam, alpha in [(1, 0.0), (3, 2.0), (4, 0.6)]:
        set_search(page, beam, alpha)
        best = beam_search(model, src, beam, alpha)[0]
        found = tokenizer.decode(best.ids)
        path = page.texts("#tree button.wins")
        assert "".join(path) == found.replace(" ", "") + "⟨end⟩"
        assert f"(log P −{-best.log_prob:.2f})" in page.text("#verdict")
        assert page.text("#verdict").startswith("They disagree" if found != greedy else "Greedy search and a beam")
        assert f"“{found}”" in page.text("#verdict")
        row = page.texts("#finished tbody tr:first-child td")
        assert row[0] == found and number(row[3]) == pytest.approx(best.score, abs=0.006)
        fates = page.tab.locator("#tree button").evaluate_all(
            "all => all.map(one => [parseInt(one.style.left) / COLUMN, one.className.split(' ')[1]])"
        )
        for step in {step for step, _ in fates}:
            column = [fate for place, fate in fates if place == step]
            assert len(column) == 2 * beam and column.count("kept") == beam
        scores = [number(text) for text in page.texts("#finished tbody td:last-child")]
        assert scores == sorted(scores, reverse=True)
    assert page.text("#verdict").startswith("They disagree")  # the page offers this sentence for that
    assert page.text("#verdict").endswith(" times as probable.")
    node = page.tab.locator("#tree button.wins").nth(2)
    node.focus()
    assert page.text("#tree-said").startswith("“A cat sits”: kept, on the winner's path. log P")
    page.tab.keyboard.press("ArrowLeft")
    assert page.text("#tree-said").startswith("“A cat”: kept")
    page.tab.keyboard.press("ArrowUp")  # there is nothing above
    page.tab.keyboard.press("ArrowDown")
    assert page.text("#tree-said").startswith("“") and "“A cat”:" not in page.text("#tree-said")
    page.tab.locator("#alpha").evaluate("slider => { slider.value = 2; }")
    page.tab.locator("#search .try").last.click()
    page.wait(CYCLIST)
    page.scroll_to("search")
    assert len(page.texts("#tree button.wins")) > page.tab.evaluate("shown.steps.length")  # as promised
    assert page.texts("#tree button.wins").count("bridge") == 2  # and this, too
    assert page.text("#verdict").endswith("the length penalty favours it.")
    page.tab.locator("#alpha").evaluate("slider => { slider.value = 0.6; }")


# --- 4. Break it ------------------------------------------------------------------------------------------------------


def outcome(page: Opened) -> str:
    """Wait for the broken model's translation, look at what is marked in it, and give it."""
    page.tab.wait_for_function("!find('changed').textContent.startsWith('Translating')")
    before, after = page.text("#before").split(), page.text("#after").split()
    same = ["del" not in name for name in page.tab.locator("#before").evaluate(NODES)]
    kept = ["ins" not in name for name in page.tab.locator("#after").evaluate(NODES)]
    assert len(same) == len(before) and len(kept) == len(after)
    assert [word for word, is_kept in zip(before, same, strict=True) if is_kept] == [
        word for word, is_kept in zip(after, kept, strict=True) if is_kept
    ]
    return " ".join(after)


NODES = "p => [...p.childNodes].filter(one => one.textContent.trim()).map(one => one.nodeName.toLowerCase())"


def test_what_is_taken_away_changes_the_translation(page: Opened, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, SOFA)
    whole = tokenizer.decode(greedy_decode(model, src)[0].ids)
    page.scroll_to("break")
    page.tab.locator("#break .try").click()
    page.wait(SOFA)
    page.scroll_to("break")
    assert outcome(page) == whole and page.text("#changed") == "Nothing is broken yet."

    hide = page.tab.locator("#hide button")
    for place, noun, word in ((1, "Männer", "men"), (4, "Sofa", "couch"), (6, "Treppe", "stairs.")):
        hide.nth(place).click()
        assert hide.nth(place).get_attribute("aria-pressed") == "true"
        hidden = outcome(page)
        assert page.text("#still") == f"Changed: “{noun}” hidden."
        assert word in whole.split() and word not in hidden.split() and " gone (struck out)" in page.text("#changed")
        assert word in page.texts("#before del") and hidden == changed(page, f"hidden: new Set([{place}])")
        hide.nth(place).click()
        assert outcome(page) == whole

    for name, title in (("positions", "positions"), ("causal", "causal mask")):
        page.tab.locator(f"#{name}").uncheck()
        assert page.text("#still") == f"Changed: {title} off."
        assert outcome(page) == changed(page, f"{name}: false") != whole
        page.tab.locator(f"#{name}").check()

    headless = copy.deepcopy(model)
    heads = [("decoder", 2, "cross", 1), ("decoder", 0, "cross", 3), ("encoder", 0, "self", 3)]
    titles = {"cross": "English at German", "self": "German at German"}
    width = model.config.d_model // model.config.heads
    for stack, layer, kind, head in heads:
        page.tab.get_by_label(f"switch off {titles[kind]}, layer {layer}, head {head}", exact=True).click()
        attention = headless.get_submodule(f"{stack}.layers.{layer}.{kind}_attention")
        with torch.no_grad():
            attention.W_o.weight[:, head * width : (head + 1) * width] = 0
    assert outcome(page) == tokenizer.decode(greedy_decode(headless, src)[0].ids) != whole
    assert page.text("#still") == "Changed: 3 heads off."
    page.translate("Ein Hund.")
    page.scroll_to("break")
    assert outcome(page) and page.text("#still") == "Still changed: 3 heads off."
    page.tab.get_by_role("button", name="Put everything back").click()
    assert outcome(page) == page.tab.evaluate("tokenizer.decode(shown.ids)") and page.text("#still") == ""
    assert page.tab.locator("#break [aria-pressed=true]").count() == 0


def changed(page: Opened, change: str) -> str:
    """What the page's engine writes with a change, asked directly."""
    steps = f"[...greedyDecode(model, shown.source, {{ ...UNCHANGED, {change} }})]"
    return page.tab.evaluate(f"tokenizer.decode({steps}.map(step => step.token))")


# --- 5. Side by side --------------------------------------------------------------------------------------------------


def test_training_and_writing_show_the_same_numbers_until_the_mask_is_off(page: Opened, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, DOGS)
    ids = greedy_decode(model, src)[0].ids
    with torch.inference_mode():
        expected = model(src, torch.tensor([[BOS, *ids]]))[0].log_softmax(dim=-1)
    targets = [*ids, EOS]
    expected = [expected[i, target].item() for i, target in enumerate(targets)]
    page.translate(DOGS)
    page.scroll_to("sides")
    for is_masked in (True, False):
        page.tab.locator("#unmasked").set_checked(not is_masked)
        page.tab.get_by_role("button", name="Run both").click()
        page.tab.wait_for_function("/equal|differ/.test(find('sides-said').textContent)")
        left, right = ([number(text) for text in page.texts(f"#{side} td.log")] for side in ("training", "writing"))
        assert right == pytest.approx(expected, abs=1e-3)
        seen = page.tab.locator("#training .squares").evaluate_all(
            "all => all.map(one => one.querySelectorAll('.seen').length)"
        )
        assert page.tab.locator("#writing .cached").count() == sum(range(len(targets)))
        marks = [text.strip() for text in page.texts("#training td.log b") + page.texts("#writing td.log b")]
        if is_masked:
            assert left == right and seen == [i + 1 for i in range(len(targets))] and set(marks) == {"="}
            assert page.tab.locator(".same .log").count() == 2 * len(targets)
            assert page.text("#sides-said").startswith(f"All {len(targets)} numbers are equal.")
        else:
            differ = sum(one != other for one, other in zip(left, right, strict=True))
            assert differ > len(targets) / 2 and set(seen) == {len(targets)} and "≠" in marks
            worse = sum(one < other for one, other in zip(left, right, strict=True))
            said = f"{differ} of {len(targets)} numbers differ, {worse} for the worse."
            assert page.text("#sides-said").startswith(said)
            assert page.text("#sides-said").endswith("the rows that it looks at have changed.") and marks[-1] == "≠"
            warned = [page.tab.locator(f"#{side} .other").count() for side in ("training", "writing")]
            assert warned == [differ, 0] and page.tab.locator(".same").count() == 2 * (len(targets) - differ)
    page.tab.locator("#unmasked").uncheck()


# --- 6. Whatever is typed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "note"),
    [
        ("", "There's nothing to translate yet"),
        (" \n\t ", "There's nothing to translate yet"),
        ("x" * 10_000, "That's 10,000 characters."),
    ],
)
def test_what_cannot_be_translated_gets_a_friendly_word(page: Opened, typed: str, note: str) -> None:
    page.translate(DOGS)
    assert page.text("#note") == ""
    page.choose(typed)
    assert page.text("#note").startswith(note)
    assert page.text("#note").endswith(f"The sections below are still about “{DOGS}”")
    assert not page.tab.locator("#translation").is_visible() and "#" not in page.tab.url
    assert page.tab.evaluate("read('x'.repeat(600)).source.length") == 61  # one word without an end is cut, too
    assert page.tab.evaluate("read('The man is sitting on the bench.').note").startswith("Is that English?")


@pytest.mark.parametrize(
    ("typed", "note"),
    [
        ("<script>alert(1)</script> ${1} \\", ""),
        ("🙂", "“🙂” isn't among"),
        ("شكر", "“ش” isn't among"),
        ("\u200b\u0000\u202e", "“\u200b” isn't among"),
        ("Ein Hund " * 60, "That's long. Only the first 60 pieces are translated, up to “… "),
    ],
)
def test_whatever_else_is_typed_gets_a_result(page: Opened, typed: str, note: str) -> None:
    page.translate(typed)
    assert page.text("#note").startswith(note) and (note or page.text("#note") == "")
    assert page.tab.locator("main img, main script").count() == 0
    assert page.tab.locator("#translation button").count() == page.tab.evaluate("shown.steps.length") > 0
    assert page.tab.evaluate("shown.source.length") <= 61


def test_nothing_of_another_sentence_is_left_while_it_works(page: Opened) -> None:
    page.translate(DOGS)
    state = "[find('time').textContent, getComputedStyle(find('translation')).visibility, find('note').textContent]"
    script = f"text => {{ find('sentence').value = text; go(); return {state}; }}"
    assert page.tab.evaluate(script, "Der 🙂") == ["Translating …", "hidden", page.text("#note")]
    page.wait("Der 🙂")
    page.tab.emulate_media(reduced_motion="no-preference")
    page.tab.evaluate("text => choose(text)", CAT)
    page.tab.wait_for_function("document.querySelectorAll('#translation button:not(.unwritten)').length === 2")
    page.choose("")
    page.tab.wait_for_timeout(600)  # two words' time
    assert page.tab.locator("#translation button:not(.unwritten)").count() <= 3
    assert page.text("#note").startswith("There's nothing to translate yet")
    page.tab.emulate_media(reduced_motion="reduce")


def test_the_page_answers_while_it_works(page: Opened) -> None:
    page.translate(DOGS)
    turns = page.tab.evaluate(
        """async () => {
          let turns = 0, isDone = false;
          const tick = () => { turns++; if (!isDone) setTimeout(tick); };
          setTimeout(tick);
          await inSlices(beamSearch(model, shown.source, 8), () => {}, () => true);
          isDone = true;
          return turns;
        }"""
    )
    assert turns > 3, "someone who types would have to wait"


# --- The address, keys, screens ---------------------------------------------------------------------------------------


def test_a_sentence_can_be_shared_by_its_address(page: Opened) -> None:
    page.translate(CAT)
    assert page.tab.url.endswith(f"#s={quote(CAT)}")
    page.tab.evaluate("location.hash = '#s=%E0%A4%A'")  # half a character
    page.tab.evaluate("location.hash = '#else'")
    assert page.tab.evaluate("shown.text") == CAT
    page.tab.evaluate("choose('Hund \\ud800')")  # half a pair, which no address can hold
    page.wait("Hund \ufffd")
    page.tab.evaluate("text => { location.hash = '#s=' + encodeURIComponent(text); }", DOGS)
    page.wait(DOGS)
    assert page.tab.locator("#sentence").input_value() == DOGS


def test_captions_come_with_their_meaning(page: Opened) -> None:
    page.translate(CAT)
    assert page.text("#meaning") == "A cat is sitting on the windowsill, looking out."
    page.tab.get_by_role("button", name="Ten more captions").click()
    captions = page.tab.locator("#captions button")
    assert captions.count() == 10 and all("\n" in text for text in captions.all_inner_texts())
    german, english = captions.nth(2).inner_text().split("\n")
    captions.nth(2).click()
    page.wait(german)
    assert page.text("#meaning") == english and not page.tab.locator("#captions").is_visible()
    page.tab.get_by_role("button", name="Surprise me").click()
    page.tab.wait_for_function("text => shown.text !== text", arg=german)
    page.tab.get_by_role("button", name="a headline").click()
    page.wait(HEADLINE)
    assert page.text("#meaning") == "Parliament voted on the pension reform yesterday."


def test_it_can_be_used_without_a_mouse(page: Opened) -> None:
    page.translate(DOGS)
    page.tab.mouse.move(0, 0)  # where it rests, the page may scroll a word under it, which then speaks
    keys = page.tab.keyboard
    page.tab.locator("#sentence").focus()
    keys.press("ControlOrMeta+a")
    keys.type(CAT)
    keys.press("Enter")
    page.wait(CAT)

    def tab_to(selector: str) -> None:
        for _ in range(20):
            keys.press("Tab")
            if page.tab.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        pytest.fail(f"Tab does not reach {selector}.")

    tab_to("#translation button")
    keys.press("ArrowRight")
    assert page.text("#could") == "After “A” it could go on with"
    keys.press("End")
    assert page.text("#could").startswith("After “A cat sits on")
    page.scroll_to("where")
    tab_to("#alignment .words:first-child button")
    keys.press("ArrowDown")
    assert page.tab.locator("#alignment .pointed span").inner_text() == "Katze"
    tab_to("#kind")
    tab_to("#looks .words:first-child button")
    keys.press("ArrowDown")
    before = page.text("#looks-said")
    head = page.tab.locator("#head").input_value()
    keys.press("ArrowRight")
    assert page.tab.locator("#head").input_value() != head and page.text("#looks-said") != before
    assert before.startswith("“Katze”") and page.text("#looks-said").startswith("“Katze”")
    page.scroll_to("search")
    tab_to("#beam")
    keys.press("ArrowLeft")
    page.tab.wait_for_function("find('verdict').textContent.includes('beam of 3')")
    keys.press("ArrowRight")
    page.tab.wait_for_function("find('verdict').textContent.includes('beam of 4')")  # or the old tree is still there
    tab_to("#tree button")
    keys.press("ArrowRight")
    assert page.text("#tree-said").startswith("“A ")
    page.scroll_to("break")
    tab_to("#hide button")
    keys.press("ArrowRight")
    keys.press("Space")
    page.tab.wait_for_function("/gone/.test(find('changed').textContent)")
    keys.press("Enter")
    tab_to("#positions")
    tab_to("#heads button")
    keys.press("ArrowDown")
    assert page.tab.evaluate("document.activeElement.ariaLabel").endswith("layer 1, head 0")
    page.scroll_to("sides")
    tab_to("#run-sides")
    keys.press("Enter")
    page.tab.wait_for_function("/equal/.test(find('sides-said').textContent)")


def test_without_its_weights_the_page_says_so_and_stays_calm(browser) -> None:
    opened = Opened(browser, with_weights=False, viewport={"width": 1280, "height": 900})
    opened.tab.wait_for_function("/There's no model/.test(find('note').textContent)")
    for button in opened.tab.locator("button:visible").all():
        button.click()
    for name in ("positions", "causal", "unmasked"):
        opened.tab.locator(f"#{name}").click()
    opened.tab.locator("#kind").select_option("decoder.cross")
    opened.tab.locator("#beam").fill("2")
    opened.choose(DOGS)
    assert opened.text("#meaning") == "Two dogs are playing with a ball in the snow."
    opened.tab.reload()
    assert opened.text("#theme") == "Theme: light"  # which was pressed before
    assert opened.tab.evaluate("document.documentElement.dataset.theme") == "light"
    opened.tab.wait_for_function("/There's no model/.test(find('note').textContent)")
    assert len(opened.complaints) == 2 and all(
        "net::ERR_FAILED" in one for one in opened.complaints
    )  # the missing file's
    opened.tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Opened, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.translate(DOGS)
    rules = {"preload": False}  # axe would ask for the style sheet once more
    if scheme == "dark":
        rules["runOnly"] = ["color-contrast"]  # nothing else is different
    page.tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for part in ("search", "break", "sides"):
        page.scroll_to(part)
    set_search(page, 1, 0.6)  # a few of the tree's words will do
    page.tab.locator("#hide button").nth(1).click()
    outcome(page)
    found = axe.run(page.tab, options=rules).response["violations"]
    page.tab.locator("#hide button").nth(1).click()
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []


def test_on_a_phone_it_writes_word_by_word_fits_and_links_to_the_course(browser) -> None:
    phone = {"width": 390, "height": 844}
    opened = Opened(browser, f"#s={quote(CAT)}", viewport=phone, color_scheme="dark", has_touch=True)
    tab = opened.tab
    written = "#translation button:not(.unwritten)"
    tab.wait_for_function(f"document.querySelectorAll('{written}').length === 2")
    assert opened.text("#skip") == "Skip" and opened.text("#could").startswith("After “A”")
    tab.wait_for_function(f"document.querySelectorAll('{written}').length === 3")
    left = "document.querySelectorAll('#translation .unwritten').length"
    assert tab.evaluate(f"async () => {{ find('skip').click(); await wait(100); return {left}; }}") == 0
    opened.wait(CAT)
    for part in ("pieces", "where", "search", "break", "sides"):
        opened.scroll_to(part)
    tab.get_by_role("button", name="Run both").click()
    tab.get_by_role("button", name="Ten more captions").click()
    tab.evaluate("document.documentElement.dataset.course = '../..'; linkCourse()")
    assert tab.evaluate("document.documentElement.scrollWidth") == phone["width"]
    links = tab.locator("[data-page] a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert "../../index.html" in links and "../../docs/RESULTS.html" in links
    for link in links:
        place = Path(link).relative_to("../..").with_suffix("")
        assert any((ROOT / place).with_suffix(kind).is_file() for kind in (".ipynb", ".md")) or place == Path("index")
    high = tab.locator("#sentence").evaluate("field => field.clientHeight")
    for width in (1280, 320):
        tab.set_viewport_size({"width": width, "height": 844})
        field = "[find('sentence').scrollHeight, find('sentence').clientHeight]"
        tab.wait_for_function(f"(([needed, has]) => needed === has && has !== {high})({field})")
        high = tab.locator("#sentence").evaluate("field => field.clientHeight")
        assert tab.evaluate("document.documentElement.scrollWidth") == width
    grounds = []
    for _ in range(3):
        grounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.get_by_role("button", name=re.compile("^Theme")).click()
    assert grounds[0] == grounds[2] != grounds[1]  # the system's, dark; light; dark
    assert opened.complaints == []
    tab.close()
