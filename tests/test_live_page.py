"""The live page: it computes what torch computes and shows it, whatever is typed, by mouse and by keys."""

import copy
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch
from once import once
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from annotated.config import BOS, EOS, PAD
from annotated.decoding import beam_search, greedy_decode, next_log_probs
from annotated.masking import padding_mask
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.translation import EVEN, GUESS, is_unsure, words_written
from annotated_workbench.vocabulary import Tokenizer
from tests.pages import barriers, fits, opened
from tools.live import FIRST, LIVE, MODEL, packed, rounded
from tools.sync import ROOT

pytestmark = once

PAGE = LIVE / "index.html"
DOGS = FIRST
CAT = "Eine Katze sitzt auf dem Fensterbrett und schaut hinaus."
CYCLIST = "Ein Radfahrer fährt bei Sonnenuntergang über eine Brücke."
SOFA = "Zwei Männer tragen ein Sofa die Treppe hinauf."
HEADLINE = "Der Bundestag hat gestern über die Rentenreform abgestimmt."
TEXTS = [
    *("", "   ", "a", HEADLINE, "Zwei Hunde  spielen\tim Schnee.\n", "don't they'll 'S", "1234.5 %", "x" * 300),
    *("ǅ ﬁ ẞßſ A\u030a", "🙂👩‍👩‍👧 你好", "نص عربي", "\u00a0x\u0085y\ufeff", "\ufeffx", "\u200b", "a\u0000b"),
    *("<eos> <bos><pad>", "__proto__", "constructor"),
]


@pytest.fixture(scope="module")
def translator() -> tuple[Transformer, Tokenizer]:
    """The delivered model, its matrices rounded to nine bits as the page has them, and its tokenizer."""
    model, tokenizer, _ = load_translator([MODEL])
    rounded(model)
    return model, tokenizer


@pytest.fixture(scope="module")
def page(browser) -> Iterator[Any]:
    """The page as a desk shows it, without its slow writing."""
    with opened(browser, PAGE.as_uri(), width=1024, height=600, reduced_motion="reduce") as page:
        wait(page, DOGS)
        yield page


def source_of(tokenizer: Tokenizer, sentence: str) -> Tensor:
    """A sentence's ids, as a batch of one."""
    return torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]])


def wait(page: Any, sentence: str) -> None:
    """Wait until a sentence's translation stands there."""
    shown = "text => shown?.text === text && find('skip').textContent === 'Play again'"
    page.wait_for_function(shown, arg=sentence)


def choose(page: Any, sentence: str) -> None:
    field = page.get_by_label("German", exact=True)
    field.fill(sentence)
    field.press("Enter")


def translate(page: Any, sentence: str, part: str = "translate") -> None:
    """Type a sentence, wait for its translation, and go on to a part of the page."""
    choose(page, sentence)
    wait(page, sentence)
    scroll_to(page, part)


def scroll_to(page: Any, part: str) -> None:
    """Bring a part of the page into view, and wait until it is about the sentence that stands above."""
    page.locator(f"#{part}").scroll_into_view_if_needed()
    page.wait_for_function("id => !parts.find(part => part.id === id)?.stale", arg=part)
    page.wait_for_function("![...document.querySelectorAll('.said')].some(each => /ing …/.test(each.textContent))")


def text(page: Any, selector: str) -> str:
    return page.locator(selector).inner_text()


def texts(page: Any, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def number(text: str) -> float:
    """The first number in a text; 0 if there is none."""
    found = re.search(r"-?\d+(\.\d+)?", text.replace("−", "-").replace(",", ""))
    return float(found[0]) if found else 0.0


def numbers(page: Any, selector: str) -> list[float]:
    return list(map(number, texts(page, selector)))


def test_the_weights_are_the_delivered_model_s_and_the_page_says_its_figures(translator) -> None:
    model, tokenizer = translator
    files = packed(MODEL)
    recorded = (LIVE / "recorded.js").read_bytes(), files.pop("recorded.js")
    known, made = (json.loads(text.split(b" = ")[1][:-2]) for text in recorded)
    for computed in ("steps", "look"):  # which the next test compares
        del known[computed], made[computed]
    assert known == made and [name for name in files if files[name] != (LIVE / name).read_bytes()] == []
    said = " ".join(PAGE.read_text("utf-8").split())
    config, millions = model.config, sum(each.numel() for each in model.parameters()) / 1e6
    sizes = f"N = {config.layers}, d_model = {config.d_model}, {config.heads} heads, d_ff = {config.d_ff}, "
    assert f"{sizes}{millions:.1f} million weights of nine bits each" in said and f"{len(tokenizer):,} pieces" in said
    megabytes = sum(file.stat().st_size for file in LIVE.glob("weights-[0-9]*.js")) / 1e6
    assert f"{megabytes:.1f} MB" in said and known["megabytes"] == round(megabytes, 1) <= 6
    card = (MODEL.parent / "README.md").read_text("utf-8").split(f"\n## {MODEL.name}\n")[1].split("\n## ")[0]
    bleu, split = re.search(r"BLEU ([\d.]+) on Multi30k's (test_2016_flickr)", said).groups()
    assert f"{split} | BLEU {bleu}" in card


def test_what_was_recorded_of_the_first_sentence_is_what_the_page_computes(page, translator) -> None:
    translate(page, CAT)
    translate(page, FIRST)
    told = """run => [run.source, run.ids, run.steps.map(({ logProbs, token }) => [token, ...largest(logProbs, 5)]),
      run.steps.map(({ logProbs }) => largest(logProbs, 5).map(id => Math.exp(logProbs[id]))),
      run.steps.map((_, q) => run.source.map((_, k) => mean(run.looks[lastCross()], q, k)))]"""
    *ids, parts, looks = page.evaluate(f"({told})(shown)")
    *known, recorded_parts, recorded_looks = page.evaluate(f"({told})(recorded())")
    assert ids == known
    torch.testing.assert_close(torch.tensor(recorded_parts), torch.tensor(parts), atol=2e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(recorded_looks), torch.tensor(looks), atol=2e-3, rtol=0)


def test_texts_become_the_same_tokens(page, translator) -> None:
    _, tokenizer = translator
    expected = [tokenizer.encode(text, "de") for text in TEXTS]
    assert page.evaluate("texts => texts.map(text => tokenizer.encode(text))", TEXTS) == expected
    for ids in (tokenizer.encode("Größe 🙂", "de"), [200, 150, 4, BOS, EOS], []):  # bytes that are no character, too
        assert page.evaluate("ids => tokenizer.decode(ids)", ids) == tokenizer.decode(ids)


@torch.inference_mode()
def test_logits_and_attention_are_torch_s(page, translator) -> None:
    model, tokenizer = translator
    src, tgt = source_of(tokenizer, HEADLINE), torch.tensor([[BOS, *tokenizer.encode("A man in a hat.", "en")]])
    with record_attention(model) as recorded:
        expected = model(src, tgt)[0]
    found = page.evaluate(
        """([src, tgt]) => {
          const looks = {}, watch = (name, told) => { if (told.looks) record(looks, name, told.looks); };
          const memory = model.encode(src, UNCHANGED, watch), cache = model.newCache(memory);
          const oneByOne = tgt.map(id => model.decode([id], cache)[0]);
          const atOnce = model.decode(tgt, model.newCache(memory), UNCHANGED, watch);
          for (const name in looks) looks[name] = looks[name].map(head => head.map(row => [...row]));
          return { logits: [oneByOne, atOnce].map(states => states.map(state => [...model.logits(state)])), looks };
        }""",
        [src[0].tolist(), tgt[0].tolist()],
    )
    for logits in found["logits"]:
        torch.testing.assert_close(torch.tensor(logits), expected, atol=1e-4, rtol=0)
    assert len(found["looks"]) == 3 * model.config.layers == len(recorded)
    for name, looks in found["looks"].items():
        stack, layer, kind = name.split(".")
        (weights,) = recorded[f"{stack}.layers.{layer}.{kind}_attention"]
        torch.testing.assert_close(torch.tensor(looks), weights[0], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_what_an_experiment_changes_is_changed_as_in_torch(page, translator) -> None:
    model, _ = translator
    src, tgt = torch.tensor([[17, 300, 45, 2000, EOS]]), torch.tensor([[BOS, 70, 800]])

    def agrees(changes: str, changed: Transformer, *masks: Tensor | None) -> None:
        read = f"""([src, tgt]) => {{
          const changes = {{ ...UNCHANGED, {changes} }}, memory = model.encode(src, changes);
          return model.decode(tgt, model.newCache(memory), changes).map(state => [...model.logits(state)]);
        }}"""
        shown = torch.tensor(page.evaluate(read, [src[0].tolist(), tgt[0].tolist()]))
        torch.testing.assert_close(shown, changed(src, tgt, *masks)[0], atol=1e-4, rtol=0)

    agrees("hidden: new Set([1, 3])", model, torch.tensor([True, False, True, False, True])[None, None, None])
    agrees("causal: false", model, None, torch.ones(3, 3, dtype=torch.bool))
    placeless = copy.deepcopy(model)
    placeless.positions.table.zero_()
    agrees("positions: false", placeless)
    for name in ("encoder.1.self", "decoder.0.self", "decoder.2.cross"):
        stack, layer, kind = name.split(".")
        headless = copy.deepcopy(model)
        attention = headless.get_submodule(f"{stack}.layers.{layer}.{kind}_attention")
        attention.W_o.weight[:, 64:128] = 0  # what head 1 hands over goes nowhere
        agrees(f'heads: new Set(["{name}.1"])', headless)


@torch.inference_mode()
def test_the_translation_is_that_of_greedy_search_and_so_are_the_candidates(page, translator) -> None:
    model, tokenizer = translator
    translate(page, HEADLINE)
    src = source_of(tokenizer, HEADLINE)
    best = greedy_decode(model, src)[0]
    assert text(page, "#spoken") == f"Translation: {tokenizer.decode(best.ids)}"
    assert "".join(texts(page, "#translation button")) == tokenizer.decode(best.ids).replace(" ", "") + "⟨end⟩"
    assert page.evaluate("shown.logProb") == pytest.approx(best.log_prob, abs=1e-3)
    scroll_to(page, "pieces")
    pieces = [tokenizer.decode([piece]).strip() for piece in src[0, :-1].tolist()]
    assert texts(page, "#read li span") == [*pieces, "⟨end⟩"]
    assert texts(page, "#read li small") == [str(piece) for piece in src[0].tolist()]
    mask = padding_mask(src)
    memory = model.encode(src, mask)
    for step in (0, len(best.ids)):
        before = torch.tensor([[BOS, *best.ids[:step]]])
        expected, tokens = next_log_probs(model, before, memory, mask, None)[0].topk(5)
        page.locator("#translation button").nth(step).focus()
        words = [tokenizer.decode([token]).strip() or "⟨end⟩" for token in tokens.tolist()]
        assert texts(page, "#candidates .word") == [*words, "all others"]
        bars = page.locator("#candidates li i").evaluate_all("all => all.map(bar => parseFloat(bar.style.width))")
        assert sum(bars) == pytest.approx(100, abs=0.1)
        assert bars[:5] == pytest.approx((100 * expected.exp()).tolist(), abs=0.05)
        for shown, part in zip(texts(page, "#candidates .percent"), bars, strict=True):
            assert shown == "< 0.1 %" if part < 0.095 else abs(number(shown) - part) < 0.51
        start = f"After “{tokenizer.decode(best.ids[:step])}” it could go on with"
        assert text(page, "#could") == (start if step else "It could begin with")


@torch.inference_mode()
def test_another_word_is_written_as_the_model_goes_on_from_it_until_it_is_taken_back(page, translator) -> None:
    model, tokenizer = translator
    translate(page, DOGS)
    address, greedy = page.url, text(page, "#spoken")
    src, ids = source_of(tokenizer, DOGS), page.evaluate("shown.ids")
    mask = padding_mask(src)
    memory = model.encode(src, mask)
    page.locator("#translation button").nth(2).focus()
    page.get_by_label("write play here").press("Enter")
    page.wait_for_function("find('could').textContent.startsWith('Your choice: ')")
    begun = torch.tensor([[BOS, *ids[:2], page.evaluate("shown.ids[2]")]])
    while begun[0, -1] != EOS:
        begun = torch.cat([begun, next_log_probs(model, begun, memory, mask, None).argmax(-1, keepdim=True)], dim=1)
    assert text(page, "#spoken") == f"Translation: {tokenizer.decode(begun[0].tolist())}" != greedy
    assert text(page, "#candidates .taken .word") == "play" and not page.locator("#translation .guess").count()
    assert page.evaluate("document.activeElement.ariaLabel") == "write play here"
    scroll_to(page, "search")
    assert "are playing" in text(page, "#verdict")  # what greedy search has written
    page.get_by_label("write are here").click()
    page.wait_for_function("find('back').hidden")
    page.get_by_label("write playing here").click()
    page.get_by_role("button", name="Take it back").click()
    wait(page, DOGS)
    assert text(page, "#spoken") == greedy and page.url == address


def test_the_attention_shown_is_what_the_model_records_and_a_word_can_be_pinned(page, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, DOGS)
    with torch.inference_mode(), record_attention(model) as recorded:
        model(src, torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]]))
    translate(page, DOGS, "where")
    left, right = (page.locator("#looks .words").nth(i).locator("button") for i in (0, 1))
    assert page.locator("#thumbnails button[aria-pressed=true]").get_attribute("value") == "decoder.2.cross.0"
    for value, query in (("encoder.0.self.1", 2), ("decoder.1.self.3", 5), ("decoder.2.cross.mean", 0)):
        stack, layer, name, head = value.split(".")
        thumbnail = page.locator(f'#thumbnails [value="{value}"]')
        thumbnail.click()
        weights = recorded[f"{stack}.layers.{layer}.{name}_attention"][-1][0]
        weights = 100 * (weights.mean(dim=0) if head == "mean" else weights[int(head)])
        drawn = thumbnail.locator("canvas").evaluate(
            "it => [...it.getContext('2d').getImageData(0, 0, it.width, it.height).data].filter((_, i) => i % 4 === 3)"
        )
        assert drawn == pytest.approx((2.55 * weights).flatten().tolist(), abs=0.6)
        right.nth(query).hover()
        shown = numbers(page, "#looks .words:first-child button i")
        assert shown == pytest.approx(weights[query].tolist(), abs=0.51)
        best = texts(page, "#looks .words:first-child button span")[weights[query].argmax()]
        assert f"looks most at “{best}”: {weights[query].max():.0f} %" in text(page, "#looks-said")
        left.nth(1).focus()  # and who looks at it
        page.mouse.move(0, 0)
        shown = numbers(page, "#looks .words:last-child button i")
        assert shown == pytest.approx(weights[:, 1].tolist(), abs=0.51)
    right.nth(1).click()
    page.mouse.move(0, 0)
    before = text(page, "#looks-said")
    page.get_by_role("button", name="the piece before").click()
    page.mouse.move(0, 0)
    assert text(page, "#view") == "German at German, layer 1, head 1"
    assert " looks most at “" in before != text(page, "#looks-said")
    page.keyboard.press("Escape")
    assert text(page, "#looks-said").startswith("Pick a word")


def test_the_map_follows_each_word_and_its_blocks_tell_what_they_do(page) -> None:
    translate(page, DOGS)
    page.locator("#translation button").last.focus()
    page.get_by_role("button", name="All is written: begin again").click()
    assert text(page, "#map-written") == "⟨start⟩"
    page.mouse.move(0, 0)
    page.locator("#translation button").nth(2).focus()
    assert text(page, "#map-written") == "⟨start⟩ Two dogs" and text(page, "#machine .german").startswith("Zwei Hunde")
    assert texts(page, "#map-next .word") == texts(page, "#candidates .word")[:3]
    page.get_by_role("button", name="Let the next word pass").click()
    assert text(page, "#map-written") == "… dogs are" and text(page, "#could").startswith("After “Two dogs are”")
    block = page.locator("#machine [value='decoder.1.cross']")
    block.click()
    assert text(page, "#block") == "Decoder, layer 1: cross-attention"
    most = page.evaluate("shown.looks['decoder.1.cross'].map(head => Math.max(...head[3]))")
    said = f"head {most.index(max(most))} looks most at “spielen”: {100 * max(most):.0f} %."
    assert text(page, "#passing") == f"After “are”, to write “playing”, {said}"
    page.locator("#machine [value='decoder.output']").click()
    assert texts(page, "#cell td:nth-child(3)") == texts(page, "#candidates .percent")[:5]
    block.click()
    page.get_by_role("button", name="head 3").first.click()
    scores, parts = (page.locator(f"#cell td:nth-child({i})").all_inner_texts()[:10] for i in (2, 3))
    weights = page.evaluate("shown.looks['decoder.1.cross'][3][3]")
    large = [weight for weight in weights if weight >= 0.001]
    assert [number(part) / 100 for part in parts if "<" not in part] == pytest.approx(large, abs=0.006)
    exponentials = torch.tensor([number(score) for score in scores]).softmax(dim=0)
    torch.testing.assert_close(exponentials, torch.tensor(weights), atol=0.005, rtol=0)
    block.press("ArrowDown")
    page.keyboard.press("Enter")
    assert text(page, "#block") == "Decoder, layer 1: self-attention"
    assert texts(page, "[data-about]:visible")[0].endswith("See its heads. chapter 06, masks")
    assert text(page, "#view")[-6:] in text(page, "#passing") and "English at English, layer 1" in text(page, "#view")
    parts = page.locator("[data-about]").evaluate_all("all => all.flatMap(one => one.dataset.about.split(' '))")
    blocks = page.locator("#machine button").evaluate_all("all => all.map(one => one.value.replace(/\\.\\d/, ''))")
    assert {*parts} == {*blocks} and len(parts) == len({*parts})
    page.locator("#machine [value='decoder.2.cross']").click()


def set_search(page: Any, beam: int, alpha: float) -> None:
    """Move both sliders, and wait for the search that follows."""
    page.locator("#beam").evaluate("(slider, value) => { slider.value = value; }", beam)
    page.locator("#alpha").fill(str(alpha))
    page.wait_for_function("!find('verdict').textContent.startsWith('Searching')")


def test_the_tree_s_winner_is_that_of_beam_search(page, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, CAT)
    translate(page, CAT, "search")
    for beam, alpha, verdict in ((1, 0.0, "Greedy search and a beam"), (3, 1.5, "They dis"), (4, 0.6, "They disagree")):
        set_search(page, beam, alpha)
        best = beam_search(model, src, beam, alpha)[0]
        translation = tokenizer.decode(best.ids)
        assert "".join(texts(page, "#tree button.wins")) == translation.replace(" ", "") + "⟨end⟩"
        assert f"(log P −{-best.log_prob:.2f})" in text(page, "#verdict")
        assert text(page, "#verdict").startswith(verdict)
        row = texts(page, "#finished tbody tr:first-child td")
        assert row[0] == translation and number(row[3]) == pytest.approx(best.score, abs=0.006)
        scores = numbers(page, "#finished tbody td:last-child")
        assert scores == sorted(scores, reverse=True)
    assert text(page, "#verdict").endswith(" times as probable.")
    page.locator("#search .try").last.click()
    wait(page, CYCLIST)
    scroll_to(page, "search")
    set_search(page, 4, 2)
    assert len(texts(page, "#tree button.wins")) > page.evaluate("shown.steps.length")  # as promised
    assert texts(page, "#tree button.wins").count("bridge") == 2  # and this, too
    assert text(page, "#verdict").endswith("the length penalty favours it.")
    set_search(page, 4, 0.6)


def broken(page: Any) -> str:
    """Wait for the broken model's translation, and give it; what is not marked as changed stands on both sides."""
    page.wait_for_function("!find('changed').textContent.startsWith('Translating')")
    unmarked = "p => [...p.childNodes].filter(each => !/DEL|INS/.test(each.nodeName)).map(each => each.textContent)"
    before, after = (" ".join(page.locator(side).evaluate(unmarked)).split() for side in ("#before", "#after"))
    assert before == after
    return " ".join(text(page, "#after").split())


def test_what_is_taken_away_changes_the_translation(page) -> None:
    def changed(change: str) -> str:
        steps = f"[...greedyDecode(model, shown.source, {{ ...UNCHANGED, {change} }})]"
        return page.evaluate(f"tokenizer.decode({steps}.map(step => step.token))")

    scroll_to(page, "break")
    page.get_by_role("button", name="hiding the cat").click()
    wait(page, CAT)
    assert text(page, "#still") == "Changed: “Katze” hidden." and broken(page).startswith("A woman is sitting on")
    page.get_by_role("button", name="two men and a sofa").click()
    wait(page, SOFA)
    scroll_to(page, "break")
    whole = broken(page)
    assert whole == page.evaluate("tokenizer.decode(shown.ids)") and text(page, "#changed") == "Nothing is broken yet."
    hide = page.locator("#hide button").nth(4)
    hide.click()
    assert broken(page) == changed("hidden: new Set([4])") and "couch" in texts(page, "#before del")
    assert text(page, "#still") == "Changed: “Sofa” hidden." and " gone (struck out)" in text(page, "#changed")
    hide.click()
    for name, title in (("positions", "positions"), ("causal", "causal mask")):
        page.locator(f"#{name}").uncheck()
        assert text(page, "#still") == f"Changed: {title} off."
        assert broken(page) == changed(f"{name}: false") != whole
        page.locator(f"#{name}").check()
    page.get_by_text("Switch off any of its 36 heads").click()
    for title in ("English at German, layer 2, head 1", "German at German, layer 0, head 3"):
        page.get_by_label(f"switch off {title}", exact=True).click()
    assert broken(page) == changed('heads: new Set(["decoder.2.cross.1", "encoder.0.self.3"])') != whole
    assert text(page, "#still") == "Changed: 2 heads off."
    page.get_by_role("button", name="Put everything back").click()
    assert broken(page) == whole and text(page, "#still") == ""
    assert page.locator("#break [aria-pressed=true]").count() == 0


def test_training_and_writing_show_the_same_numbers_until_the_mask_is_off(page, translator) -> None:
    model, tokenizer = translator
    src = source_of(tokenizer, DOGS)
    ids = greedy_decode(model, src)[0].ids
    with torch.inference_mode():
        log_probs = model(src, torch.tensor([[BOS, *ids]]))[0].log_softmax(dim=-1)
    expected = log_probs.gather(1, torch.tensor([*ids, EOS])[:, None])[:, 0].tolist()
    translate(page, DOGS, "sides")
    for is_masked in (True, False):
        page.locator("#unmasked").set_checked(not is_masked)
        page.get_by_role("button", name="Run both").click()
        page.wait_for_function("/equal|differ/.test(find('sides-said').textContent)")
        left, right = (numbers(page, f"#{side} td.log") for side in ("training", "writing"))
        assert right == pytest.approx(expected, abs=1e-3)
        differ = sum(a != b for a, b in zip(left, right, strict=True))
        said = f"{differ} of {len(expected)} numbers differ. Without"
        assert text(page, "#sides-said").startswith(f"All {len(expected)} numbers are equal." if is_masked else said)
        assert differ == 0 if is_masked else differ > len(expected) / 2
        assert ("≠" in "".join(texts(page, "#writing td.log b"))) is not is_masked
    page.locator("#unmasked").uncheck()


def test_whatever_is_typed_gets_a_result_or_a_friendly_word(page) -> None:
    for typed, note in (
        ("<script>alert(1)</script> ${1} \\", "Is that German?"),
        ("\u200b\u0000\u202e", "“\u200b” isn't among"),
        ("Ein Hund " * 60, "That's long. Only the first 60 pieces are translated, up to “… "),
        ("two dogs play in snow", "Is that English?"),
        ("Deux chiens jouent dans la neige.", "Is that German?"),
        ("\u4f60\u597d", "Is that German?"),
        ("Angela Merkel", ""),
        (DOGS, ""),
    ):
        translate(page, typed)
        assert text(page, "#note").startswith(note) and bool(note) == bool(text(page, "#note"))
        assert page.locator("main img, main script").count() == 0
        assert page.locator("#translation button").count() == page.evaluate("shown.steps.length") > 0
    for typed, note in ((" \n\t ", "There's nothing to translate yet"), ("x" * 1_000, "That's 1,000 characters.")):
        choose(page, typed)
        assert text(page, "#note").startswith(note)
        assert text(page, "#note").endswith(f"The sections below are still about “{DOGS}”")
        assert not page.locator("#translation").is_visible() and page.url.endswith(f"#s={quote(DOGS)}")
        assert text(page, "#time") == ""
    assert page.evaluate("read('x'.repeat(600)).source.length") == 61  # one word without an end is cut, too


def test_it_doubts_what_the_module_doubts_and_underlines_the_guesses(page, translator) -> None:
    model, tokenizer = translator
    assert page.evaluate("[GUESS, EVEN]") == [GUESS, EVEN]
    for sentence, said in (
        (HEADLINE, "Don't trust it. 5 of 8 words are guesses, less than 30 % sure. The others can be wrong, too. This"),
        ("Ein Junge hilft im Laden seines Vaters.", "1 of 8 words is a guess, less than 30 % sure. The others"),
        ("Wie heißt du?", "Don't trust it. 2 of 4 words are guesses, "),
        ("?", "Don't trust it. Its only word is a guess, less than 30 % sure. This"),
        ("Kein Mann trägt einen Hut.", "No word is a guess, and still it's wrong"),
        ("Eine Frau ohne Brille liest ein Buch.", "It can lose a kein, nicht or ohne."),
        ("Wann fährt der nächste Zug nach Berlin?", "No word is a guess, and still it's wrong"),
        (DOGS, ""),
    ):
        translate(page, sentence)
        assert text(page, "#doubt").startswith(said) and bool(said) == bool(text(page, "#doubt"))
        translation = tokenizer.decode(greedy_decode(model, source_of(tokenizer, sentence))[0].ids)
        words = words_written(model, tokenizer, sentence, translation, "de", "en")
        log_probs = page.evaluate("wordsWritten(shown.steps).map(word => word.logProb)")
        assert log_probs == pytest.approx([math.log(word.probability) for word in words], abs=1e-3)
        assert said.startswith("Don't trust it") == is_unsure(words)
        guesses = "".join(word.text.strip(".?") for word in words if word.probability < GUESS)
        assert "".join(texts(page, "#translation .guess")) == guesses


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ein mann mit hut spielt auf der strasse gitarre", "Ein Mann mit Hut spielt auf der Straße Gitarre."),
        (
            "Ein Maedchen faehrt mit dem Fahrrad ueber die Strasse.",
            "Ein Mädchen fährt mit dem Fahrrad über die Straße.",
        ),
        ("ZWEI HUNDE SPIELEN IM SCHNEE", "Zwei Hunde spielen im Schnee."),
        ("Ein Mann spielt Gitarre. Ein Hund schläft.", "Ein Mann spielt Gitarre.\nEin Hund schläft."),
        ("Eine neue Frau isst auf dem Gehsteig", ""),  # nothing to mend
        ("Drei Arbeiter machen Ausbesserungen auf dem Gehsteig.", ""),  # of an ß here, the model is less sure
    ],
)
def test_it_asks_for_what_was_meant_and_reads_sentences_one_by_one(page, typed: str, meant: str) -> None:
    translate(page, typed)
    page.evaluate("advise(shown, () => true)")  # perhaps once more, but done
    assert dict.fromkeys(texts(page, "#note .try")) == dict.fromkeys(meant.split("\n") if meant else [])
    if meant:
        page.locator("#note .try").last.click()
        wait(page, meant.split("\n")[-1])
        assert text(page, "#doubt") == text(page, "#note") == ""


def test_the_page_answers_while_it_works(page) -> None:
    turns = page.evaluate(
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


def test_a_sentence_is_shared_by_its_address_and_a_caption_comes_with_its_meaning(page) -> None:
    page.evaluate("text => { location.hash = '#s=' + encodeURIComponent(text); }", CAT)
    wait(page, CAT)
    assert page.locator("#sentence").input_value() == CAT and page.url.endswith(f"#s={quote(CAT)}")
    assert text(page, "#meaning") == "The German means: A cat is sitting on the windowsill, looking out."
    page.get_by_role("button", name="Ten more captions").click()
    captions = page.locator("#captions button")
    assert captions.count() == 10
    german, english = captions.nth(2).inner_text().split("\n")
    captions.nth(2).click()
    wait(page, german)
    assert text(page, "#meaning") == f"The German means: {english}" and not page.locator("#captions").is_visible()
    page.go_back()
    wait(page, CAT)


def test_german_english_and_where_it_looks_stand_at_the_top_and_a_tap_brings_its_result_to_sight(visit) -> None:
    page = visit(PAGE.as_uri(), has_touch=True)
    page.wait_for_function("find('meaning').textContent")
    for width in (1280, 320, 390):
        page.set_viewport_size({"width": width, "height": 664})
        boxes = map(page.locator, ("#sentence", "#translation", "#alignment .words:last-child button:nth-child(5)"))
        ends = [box["y"] + box["height"] for box in (each.bounding_box() for each in boxes)]
        assert max(ends) <= 400 and (ends == sorted(ends) or width == 1280)
    for button, place in (("#limits .try", "#form"), ("#surprise", "#form"), ("#search .try", "#verdict")):
        page.locator(button).first.tap()
        box = f"document.querySelector('{place}').getBoundingClientRect()"
        page.wait_for_function(f"{box}.top >= 0 && {box}.bottom < innerHeight")


@torch.inference_mode()
def test_whatever_is_built_means_what_the_page_says_and_the_model_gets_it_right(page, translator) -> None:
    model, tokenizer = translator
    page.get_by_text("No German?").click()
    page.get_by_label("an elephant").press("Space")
    wait(page, "Ein Elefant isst ein Eis im Park.")
    page.get_by_label("in the park").press("ArrowLeft")  # round to the last
    wait(page, "Ein Elefant isst ein Eis im Schnee.")
    assert "An elephant eats an ice cream in the snow." in text(page, "#meaning")
    translate(page, CAT, "builder")
    assert page.locator("#builder :checked").count() == 0
    page.get_by_text("No German?").click()
    built = page.evaluate("[...MEANINGS].slice(-64)")
    batch = pad_sequence([source_of(tokenizer, german)[0] for german, _ in built], batch_first=True, padding_value=PAD)
    nouns = page.evaluate("Object.values(CHOICES).flatMap(row => Object.values(row))")
    for (_, meaning), best in zip(built, greedy_decode(model, batch), strict=True):
        english = tokenizer.decode(best.ids).replace("couch", "sofa")
        assert all(noun.split()[-1] in english for noun in nouns if noun in meaning.lower()), english


def test_it_can_be_used_without_a_mouse(page) -> None:
    def tab_to(selector: str, *keys: str) -> None:
        reached = "selector => document.activeElement.matches(selector)"
        assert any(page.keyboard.press("Tab") or page.evaluate(reached, selector) for _ in range(20)), selector
        for key in keys:
            page.keyboard.press(key)

    translate(page, CAT)
    page.mouse.move(0, 0)  # where it rests, the page may scroll a word under it, which then speaks
    page.locator("#sentence").focus()
    tab_to("#translation button", "ArrowRight")
    assert text(page, "#could") == "After “A” it could go on with"
    scroll_to(page, "break")
    tab_to("#hide button", "ArrowRight", "Space")
    page.wait_for_function("/gone/.test(find('changed').textContent)")
    page.keyboard.press("Enter")
    scroll_to(page, "where")
    tab_to("#thumbnails button", "ArrowDown", "Space")
    assert text(page, "#view") == "German at German, layer 1, head 0"
    tab_to("#looks .words:first-child button", "ArrowDown")
    assert text(page, "#looks-said").startswith("“Katze” is looked at")
    scroll_to(page, "search")
    tab_to("#beam", "ArrowLeft")
    page.wait_for_function("find('verdict').textContent.includes('beam of 3')")
    tab_to("#tree button", "ArrowRight")
    assert text(page, "#tree-said").startswith("“A ")
    assert page.locator("#tree button:not(.off)").count() == 2  # it, and what it continues


def test_axe_finds_nothing_serious(page) -> None:
    translate(page, DOGS, "search")
    set_search(page, 1, 0.6)  # a few of the tree's words will do
    for part in ("break", "sides"):
        scroll_to(page, part)
    assert barriers(page) == []


def test_without_its_weights_the_page_says_so_and_stays_calm(browser) -> None:
    page, complaints = browser.new_page(reduced_motion="reduce"), []
    page.route("**/weights-3.js", lambda route: route.abort())
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(PAGE.as_uri())
    page.wait_for_function("/There's no model/.test(find('note').textContent)")
    page.wait_for_function("find('skip').textContent === 'Play again'")  # a recording
    assert "".join(texts(page, "#translation button")) == "Twodogsareplayingwithaballinthesnow.⟨end⟩"
    assert "This part waits" in page.evaluate("getComputedStyle(find('where'), '::after').content")
    controls = ".try, .buttons button:not(#more), #mend, #run-sides, #positions, #causal, #unmasked"
    for control in page.locator(controls).all():
        control.click()
    page.locator("#beam").fill("2")
    choose(page, DOGS)
    page.wait_for_function("find('meaning').textContent.includes('Two dogs are playing with a ball in the snow.')")
    page.route("**/weights-assistant.js", lambda route: route.abort(), times=1)
    page.locator("#load").click()
    page.wait_for_function("find('loading').textContent.includes('weights-assistant.js isn')")
    page.locator("#load").press("Enter")  # tries again
    page.wait_for_function("find('answered')?.textContent === 'Answer: Seven blue lamps.'")
    assert complaints == []
    page.close()


def test_on_a_phone_it_writes_word_by_word_fits_and_links_to_the_course(visit) -> None:
    page = visit(f"{PAGE.as_uri()}#s={quote(CAT)}", width=390, color_scheme="dark", has_touch=True)
    page.wait_for_function("document.querySelectorAll('#translation button:not(.unwritten)').length === 2")
    assert text(page, "#skip") == "Skip" and text(page, "#could").startswith("After “A”")
    left = "document.querySelectorAll('#translation .unwritten').length"
    assert page.evaluate(f"async () => {{ find('skip').click(); await wait(100); return {left}; }}") == 0
    wait(page, CAT)
    page.get_by_role("button", name="Let the next word pass").click()
    page.wait_for_function("document.querySelector('.crossing') && find('cell').textContent.includes('q · k')")
    assert text(page, "#block") == "Decoder, layer 0: cross-attention"
    assert not page.locator("#map-next").is_visible()  # it hasn't arrived
    page.get_by_role("button", name="Stop").click()
    assert page.locator("#map-next").is_visible() and page.locator(".passing").count() == 0
    for part in ("break", "pieces", "where", "sides", "search"):
        scroll_to(page, part)
        page.locator(f"#{part} details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    page.get_by_role("button", name="Run both").click()
    page.get_by_role("button", name="Ten more captions").click()
    page.evaluate("document.documentElement.dataset.course = '../..'; linkCourse()")
    assert fits(page, 390, 1280, 320)
    links = page.locator("[data-page] a").evaluate_all("all => all.map(link => link.getAttribute('href'))")
    assert {"../../index.html", "../../docs/RESULTS.html"} <= {*links}
    for place in ((ROOT / Path(link).relative_to("../..")) for link in links):
        assert place.name == "index.html" or any(place.with_suffix(kind).is_file() for kind in (".ipynb", ".md"))
    grounds = []
    for _ in range(3):
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.get_by_role("button", name=re.compile("^Theme")).click()
    assert grounds[0] == grounds[2] != grounds[1]  # the system's, dark; light; dark
    page.set_viewport_size({"width": 390, "height": 664})
    in_sight = "(({ top, bottom }) => top >= 0 && bottom <= 664)(find('after').getBoundingClientRect())"
    for button in (page.locator("#hide button").first, page.locator("#heads button").last):
        button.tap()
        page.wait_for_function(in_sight)
