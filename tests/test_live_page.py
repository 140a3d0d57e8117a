"""The live page in a browser: what it shows is what the model computes, whatever is typed, by mouse and by keys.

What needs a browser is skipped where Chromium is not found, and on an imitated processor: it draws no other page.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

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
from tools.live_picture import FOLDER, WIDTH
from tools.sync import ROOT

pytestmark = once

PAGE = LIVE / "index.html"
DOGS = "Zwei Hunde spielen im Schnee mit einem Ball."
CAT = "Eine Katze sitzt auf dem Fensterbrett und schaut hinaus."
CYCLIST = "Ein Radfahrer fährt bei Sonnenuntergang über eine Brücke."
SOFA = "Zwei Männer tragen ein Sofa die Treppe hinauf."
HEADLINE = "Der Bundestag hat gestern über die Rentenreform abgestimmt."
IS_SHOWN = "text => shown?.text === text && find('skip').textContent === 'Play again'"


@pytest.fixture(scope="module")
def translator() -> tuple[Transformer, Tokenizer]:
    """The delivered model, its matrices rounded to nine bits as the page has them, and its tokenizer."""
    model, tokenizer, _ = load_translator([MODEL])
    with torch.no_grad():
        for matrix in (each for each in model.parameters() if each.dim() == 2):
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
        idle = "![...document.querySelectorAll('.said')].some(each => /ing …/.test(each.textContent))"
        self.tab.wait_for_function(idle)

    def text(self, selector: str) -> str:
        """What stands there."""
        return self.tab.locator(selector).inner_text()

    def texts(self, selector: str) -> list[str]:
        """What stands in each of several places."""
        return self.tab.locator(selector).all_inner_texts()

    def numbers(self, selector: str) -> list[float]:
        """The first number of each place; 0 where nothing stands."""
        return [number(text) if text else 0.0 for text in self.texts(selector)]


@pytest.fixture(scope="module")
def opened(browser) -> Iterator[Opened]:
    """The page as a desk shows it, without its slow writing."""
    opened = Opened(browser, viewport={"width": 1024, "height": 600}, reduced_motion="reduce")
    opened.wait(DOGS)
    yield opened
    opened.tab.close()


@pytest.fixture
def page(opened: Opened) -> Iterator[Opened]:
    """That page; afterwards there is nothing in the console, no exception, no request to anywhere else."""
    yield opened
    assert opened.complaints == []


def number(text: str) -> float:
    """The first number in a text."""
    return float(re.search(r"-?\d+(\.\d+)?", text.replace("−", "-").replace(",", ""))[0])


def test_the_page_says_the_model_s_figures_asks_no_other_host_and_has_a_small_film(translator) -> None:
    model, tokenizer = translator
    text = " ".join(PAGE.read_text("utf-8").split())
    card = (MODEL.parent / "README.md").read_text("utf-8").split(f"\n## {MODEL.name}\n")[1].split("\n## ")[0]
    config, millions = model.config, sum(each.numel() for each in model.parameters()) / 1e6
    sizes = f"N = {config.layers}, d_model = {config.d_model}, {config.heads} heads, d_ff = {config.d_ff}, "
    assert f"{sizes}{millions:.1f} million weights of nine bits each" in text and 2 * STEPS + 1 < 2**9
    assert f"{len(tokenizer):,} pieces" in text
    megabytes = re.search(r"on their way: (\d+) MB", (LIVE / "page.js").read_text("utf-8"))[1]
    assert int(megabytes) == round((LIVE / "weights.js").stat().st_size / 1e6) <= 8
    bleu = re.search(r"BLEU ([\d.]+) on Multi30k's (test_2016_flickr)", text)
    assert f"{bleu[2]} | BLEU {bleu[1]}" in card
    for path in sorted(LIVE.iterdir()):
        assert not re.search(r"(src|import|fetch|url)\W{1,4}https?:", path.read_text("utf-8")[:100_000]), path.name
    with Image.open(FOLDER / "live.gif") as film, Image.open(FOLDER / "live.png") as still:
        assert film.size == still.size and film.width == WIDTH and film.n_frames > 10 and film.info["loop"] == 0
    assert (FOLDER / "live.gif").stat().st_size <= 600_000 and (FOLDER / "live.png").stat().st_size <= 120_000


@torch.inference_mode()
def test_the_translation_is_that_of_greedy_search_and_so_are_the_candidates(page: Opened, translator) -> None:
    model, tokenizer = translator
    page.translate(HEADLINE)
    src = source_of(tokenizer, HEADLINE)
    best = greedy_decode(model, src)[0]
    assert page.text("#spoken") == f"Translation: {tokenizer.decode(best.ids)}"
    assert "".join(page.texts("#translation button")) == tokenizer.decode(best.ids).replace(" ", "") + "⟨end⟩"
    assert page.tab.evaluate("shown.logProb") == pytest.approx(best.log_prob, abs=1e-3)
    pieces = [tokenizer.decode([piece]).strip() for piece in src[0, :-1].tolist()]
    assert page.texts("#read li span") == [*pieces, "⟨end⟩"]
    assert page.texts("#read li small") == [str(piece) for piece in src[0].tolist()]
    mask = padding_mask(src)
    memory = model.encode(src, mask)
    for step in (0, len(best.ids)):
        before = torch.tensor([[BOS, *best.ids[:step]]])
        expected, tokens = next_log_probs(model, before, memory, mask, None)[0].topk(5)
        page.tab.locator("#translation button").nth(step).focus()
        words = [tokenizer.decode([token]).strip() or "⟨end⟩" for token in tokens.tolist()]
        assert page.texts("#candidates .word") == [*words, "all others"]
        widths = "all => all.map(bar => parseFloat(bar.style.width))"
        bars = page.tab.locator("#candidates li i").evaluate_all(widths)
        assert sum(bars) == pytest.approx(100, abs=0.1)
        assert bars[:5] == pytest.approx((100 * expected.exp()).tolist(), abs=0.05)
        for shown, part in zip(page.texts("#candidates .percent"), bars, strict=True):
            assert shown == "< 0.1 %" if part < 0.095 else abs(number(shown) - part) < 0.51
        start = f"After “{tokenizer.decode(best.ids[:step])}” it could go on with"
        assert page.text("#could") == (start if step else "It could begin with")


def test_the_attention_shown_is_what_the_model_records_and_a_word_can_be_pinned(page: Opened, translator) -> None:
    model, tokenizer = translator
    page.translate(DOGS)
    src = source_of(tokenizer, DOGS)
    with torch.inference_mode(), record_attention(model) as recorded:
        model(src, torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]]))
    page.scroll_to("where")
    left, right = (page.tab.locator("#looks .words").nth(i).locator("button") for i in (0, 1))
    for kind, layer, head, query in [
        ("encoder.self", 0, 1, 2),
        ("decoder.self", 1, 3, 5),
        ("decoder.cross", 2, "mean", 0),
    ]:
        for name, value in (("kind", kind), ("layer", str(layer)), ("head", str(head))):
            page.tab.locator(f"#{name}").select_option(value)
        stack, name = kind.split(".")
        weights = recorded[f"{stack}.layers.{layer}.{name}_attention"][-1][0]
        weights = 100 * (weights.mean(dim=0) if head == "mean" else weights[head])
        right.nth(query).hover()
        shown = page.numbers("#looks .words:first-child button i")
        assert shown == pytest.approx(weights[query].tolist(), abs=0.51)
        best = page.texts("#looks .words:first-child button span")[weights[query].argmax()]
        assert f"looks most at “{best}”: {weights[query].max():.0f} %" in page.text("#looks-said")
        left.nth(1).focus()  # and who looks at it
        page.tab.mouse.move(0, 0)
        shown = page.numbers("#looks .words:last-child button i")
        assert shown == pytest.approx(weights[:, 1].tolist(), abs=0.51)
    right.nth(1).click()
    page.tab.mouse.move(0, 0)
    before = page.text("#looks-said")
    page.tab.locator("#head").select_option("1")
    assert " looks most at “" in before != page.text("#looks-said")
    page.tab.keyboard.press("Escape")
    assert page.text("#looks-said").startswith("Point at a word")


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
    for beam, alpha, verdict in [(1, 0.0, "Greedy search and a beam"), (4, 0.6, "They disagree")]:
        set_search(page, beam, alpha)
        best = beam_search(model, src, beam, alpha)[0]
        text = tokenizer.decode(best.ids)
        assert "".join(page.texts("#tree button.wins")) == text.replace(" ", "") + "⟨end⟩"
        assert f"(log P −{-best.log_prob:.2f})" in page.text("#verdict")
        assert page.text("#verdict").startswith(verdict)
        row = page.texts("#finished tbody tr:first-child td")
        assert row[0] == text and number(row[3]) == pytest.approx(best.score, abs=0.006)
        scores = page.numbers("#finished tbody td:last-child")
        assert scores == sorted(scores, reverse=True)
    assert page.text("#verdict").endswith(" times as probable.")
    page.tab.locator("#alpha").evaluate("slider => { slider.value = 2; }")
    page.tab.locator("#search .try").last.click()
    page.wait(CYCLIST)
    page.scroll_to("search")
    assert len(page.texts("#tree button.wins")) > page.tab.evaluate("shown.steps.length")  # as promised
    assert page.texts("#tree button.wins").count("bridge") == 2  # and this, too
    assert page.text("#verdict").endswith("the length penalty favours it.")
    page.tab.locator("#alpha").evaluate("slider => { slider.value = 0.6; }")


def broken(page: Opened) -> str:
    """Wait for the broken model's translation, look at what is marked in it, and give it."""
    page.tab.wait_for_function("!find('changed').textContent.startsWith('Translating')")
    unmarked = "p => [...p.childNodes].filter(each => !/DEL|INS/.test(each.nodeName)).map(each => each.textContent)"
    same = [" ".join(page.tab.locator(side).evaluate(unmarked)).split() for side in ("#before", "#after")]
    assert same[0] == same[1]
    return " ".join(page.text("#after").split())


def changed(page: Opened, change: str) -> str:
    """What the page's engine writes with a change, asked directly."""
    steps = f"[...greedyDecode(model, shown.source, {{ ...UNCHANGED, {change} }})]"
    return page.tab.evaluate(f"tokenizer.decode({steps}.map(step => step.token))")


def test_what_is_taken_away_changes_the_translation(page: Opened) -> None:
    page.scroll_to("break")
    page.tab.locator("#break .try").click()
    page.wait(SOFA)
    page.scroll_to("break")
    whole = broken(page)
    assert (
        whole == page.tab.evaluate("tokenizer.decode(shown.ids)") and page.text("#changed") == "Nothing is broken yet."
    )
    hide = page.tab.locator("#hide button").nth(4)
    hide.click()
    assert broken(page) == changed(page, "hidden: new Set([4])") and "couch" in page.texts("#before del")
    assert page.text("#still") == "Changed: “Sofa” hidden." and " gone (struck out)" in page.text("#changed")
    hide.click()
    for name, title in (("positions", "positions"), ("causal", "causal mask")):
        page.tab.locator(f"#{name}").uncheck()
        assert page.text("#still") == f"Changed: {title} off."
        assert broken(page) == changed(page, f"{name}: false") != whole
        page.tab.locator(f"#{name}").check()
    for title in ("English at German, layer 2, head 1", "German at German, layer 0, head 3"):
        page.tab.get_by_label(f"switch off {title}", exact=True).click()
    assert broken(page) == changed(page, 'heads: new Set(["decoder.2.cross.1", "encoder.0.self.3"])') != whole
    assert page.text("#still") == "Changed: 2 heads off."
    page.tab.get_by_role("button", name="Put everything back").click()
    assert broken(page) == whole and page.text("#still") == ""
    assert page.tab.locator("#break [aria-pressed=true]").count() == 0


def test_training_and_writing_show_the_same_numbers_until_the_mask_is_off(page: Opened, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, DOGS)
    ids = greedy_decode(model, src)[0].ids
    with torch.inference_mode():
        log_probs = model(src, torch.tensor([[BOS, *ids]]))[0].log_softmax(dim=-1)
    expected = log_probs.gather(1, torch.tensor([*ids, EOS])[:, None])[:, 0].tolist()
    page.translate(DOGS)
    page.scroll_to("sides")
    for is_masked in (True, False):
        page.tab.locator("#unmasked").set_checked(not is_masked)
        page.tab.get_by_role("button", name="Run both").click()
        page.tab.wait_for_function("/equal|differ/.test(find('sides-said').textContent)")
        left, right = (page.numbers(f"#{side} td.log") for side in ("training", "writing"))
        assert right == pytest.approx(expected, abs=1e-3)
        differ = sum(a != b for a, b in zip(left, right, strict=True))
        worse = sum(a < b for a, b in zip(left, right, strict=True))
        said = f"{differ} of {len(expected)} numbers differ, {worse} for the worse."
        assert page.text("#sides-said").startswith(f"All {len(expected)} numbers are equal." if is_masked else said)
        assert differ == 0 if is_masked else differ > len(expected) / 2
        assert ("≠" in "".join(page.texts("#writing td.log b"))) is not is_masked
    page.tab.locator("#unmasked").uncheck()


def test_whatever_is_typed_gets_a_result_or_a_friendly_word(page: Opened) -> None:
    for typed, note in [
        ("<script>alert(1)</script> ${1} \\", ""),
        ("\u200b\u0000\u202e", "“\u200b” isn't among"),
        ("Ein Hund " * 60, "That's long. Only the first 60 pieces are translated, up to “… "),
        (DOGS, ""),
    ]:
        page.translate(typed)
        assert page.text("#note").startswith(note) and (note or page.text("#note") == "")
        assert page.tab.locator("main img, main script").count() == 0
        assert page.tab.locator("#translation button").count() == page.tab.evaluate("shown.steps.length") > 0
    for typed, note in [(" \n\t ", "There's nothing to translate yet"), ("x" * 10_000, "That's 10,000 characters.")]:
        page.choose(typed)
        assert page.text("#note").startswith(note)
        assert page.text("#note").endswith(f"The sections below are still about “{DOGS}”")
        assert not page.tab.locator("#translation").is_visible() and "#" not in page.tab.url
    assert page.tab.evaluate("read('x'.repeat(600)).source.length") == 61  # one word without an end is cut, too
    assert page.tab.evaluate("read('The man is sitting on the bench.').note").startswith("Is that English?")


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


def test_a_sentence_is_shared_by_its_address_and_a_caption_comes_with_its_meaning(page: Opened) -> None:
    page.tab.evaluate("text => { location.hash = '#s=' + encodeURIComponent(text); }", CAT)
    page.wait(CAT)
    assert page.tab.locator("#sentence").input_value() == CAT and page.tab.url.endswith(f"#s={quote(CAT)}")
    assert page.text("#meaning") == "A cat is sitting on the windowsill, looking out."
    page.tab.get_by_role("button", name="Ten more captions").click()
    captions = page.tab.locator("#captions button")
    assert captions.count() == 10
    german, english = captions.nth(2).inner_text().split("\n")
    captions.nth(2).click()
    page.wait(german)
    assert page.text("#meaning") == english and not page.tab.locator("#captions").is_visible()


def test_it_can_be_used_without_a_mouse(page: Opened) -> None:
    page.translate(CAT)
    page.tab.mouse.move(0, 0)  # where it rests, the page may scroll a word under it, which then speaks
    page.tab.locator("#sentence").focus()

    def tab_to(selector: str, *keys: str) -> None:
        for _ in range(20):
            page.tab.keyboard.press("Tab")
            if page.tab.evaluate("selector => document.activeElement.matches(selector)", selector):
                break
        else:
            pytest.fail(f"Tab does not reach {selector}.")
        for key in keys:
            page.tab.keyboard.press(key)

    tab_to("#translation button", "ArrowRight")
    assert page.text("#could") == "After “A” it could go on with"
    page.scroll_to("where")
    head = page.tab.locator("#head").input_value()
    tab_to("#looks .words:first-child button", "ArrowRight")
    assert page.tab.locator("#head").input_value() != head
    page.scroll_to("search")
    tab_to("#beam", "ArrowLeft")
    page.tab.wait_for_function("find('verdict').textContent.includes('beam of 3')")
    tab_to("#tree button", "ArrowRight")
    assert page.text("#tree-said").startswith("“A ")
    page.scroll_to("break")
    tab_to("#hide button", "ArrowRight", "Space")
    page.tab.wait_for_function("/gone/.test(find('changed').textContent)")
    page.tab.keyboard.press("Enter")


def test_without_its_weights_the_page_says_so_and_stays_calm(browser) -> None:
    opened = Opened(browser, with_weights=False, viewport={"width": 1280, "height": 900})
    opened.tab.wait_for_function("/There's no model/.test(find('note').textContent)")
    for control in opened.tab.locator("button:visible, #positions, #causal, #unmasked").all():
        control.click()
    opened.tab.locator("#kind").select_option("decoder.cross")
    opened.tab.locator("#beam").fill("2")
    opened.choose(DOGS)
    assert opened.text("#meaning") == "Two dogs are playing with a ball in the snow."
    assert len(opened.complaints) == 1 and "net::ERR_FAILED" in opened.complaints[0]  # the missing file's
    opened.tab.close()


def test_axe_finds_nothing_serious(page: Opened) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.translate(DOGS)
    for part in ("search", "break", "sides"):
        page.scroll_to(part)
    set_search(page, 1, 0.6)  # a few of the tree's words will do
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):  # nothing else is different
        page.tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        options = {"preload": False, **rules}  # axe would ask for the style sheet once more
        violations = axe.run(page.tab, options=options).response["violations"]
        assert [f"{each['id']}: {each['nodes'][0]['html']}" for each in violations] == []


def test_on_a_phone_it_writes_word_by_word_fits_and_links_to_the_course(browser) -> None:
    phone = {"width": 390, "height": 844}
    opened = Opened(browser, f"#s={quote(CAT)}", viewport=phone, color_scheme="dark", has_touch=True)
    tab = opened.tab
    tab.wait_for_function("document.querySelectorAll('#translation button:not(.unwritten)').length === 2")
    assert opened.text("#skip") == "Skip" and opened.text("#could").startswith("After “A”")
    left = "document.querySelectorAll('#translation .unwritten').length"
    assert tab.evaluate(f"async () => {{ find('skip').click(); await wait(100); return {left}; }}") == 0
    opened.wait(CAT)
    for part in ("pieces", "where", "search", "break", "sides"):
        opened.scroll_to(part)
    tab.get_by_role("button", name="Run both").click()
    tab.get_by_role("button", name="Ten more captions").click()
    tab.evaluate("document.documentElement.dataset.course = '../..'; linkCourse()")
    for width in (390, 1280, 320):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") == width
    links = tab.locator("[data-page] a").evaluate_all("all => all.map(link => link.getAttribute('href'))")
    assert {"../../index.html", "../../docs/RESULTS.html"} <= {*links}
    for place in ((ROOT / Path(link).relative_to("../..")) for link in links):
        assert place.name == "index.html" or any(place.with_suffix(kind).is_file() for kind in (".ipynb", ".md"))
    grounds = []
    for _ in range(3):
        grounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.get_by_role("button", name=re.compile("^Theme")).click()
    assert grounds[0] == grounds[2] != grounds[1]  # the system's, dark; light; dark
    assert opened.complaints == []
    tab.close()
