"""What is shown of attention: the weights as they are, every word as text, nothing from elsewhere; and in a browser."""

import base64
import html
import json
import re
from itertools import pairwise

import numpy as np
import torch
from once import once

from annotated.config import BOS, EOS, TransformerConfig
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_course.attention_view import attention_html, view_attention
from annotated_course.plotting import token_labels
from annotated_workbench.vocabulary import CharacterTokenizer, SubwordTokenizer, WordTokenizer
from tests.pages import fits

pytestmark = once

EVIL = ["<script>", '"5&', "@MAPS@", r"\1"]


def maps() -> list:
    """Two maps of different sizes; head 0 of layer 1 of the last one looks at one word each."""
    torch.manual_seed(0)
    first, second = torch.rand(2, 3, 4, 4).softmax(-1), torch.rand(2, 3, 2, 5).softmax(-1)
    second[1, 0] = torch.eye(2, 5)
    return [("self", first, EVIL, EVIL), ("cross", second, ["x", "<b>y"], ["1", "2", "3", "4", '"5&'])]


def shown(text: str) -> tuple[list[dict], np.ndarray]:
    """What a page's script is given: the maps, and two bytes for each weight."""
    described, encoded = (re.search(rf'data-{name}="([^"]*)"', text)[1] for name in ("maps", "weights"))
    return json.loads(html.unescape(described)), np.frombuffer(base64.b64decode(encoded), "<u2") / 65535


def test_weights_and_words_are_those_given_and_nothing_comes_from_elsewhere() -> None:
    text = attention_html(maps())
    described, weights = shown(text)
    assert [(one["name"], one["layers"], one["heads"]) for one in described] == [("self", 2, 3), ("cross", 2, 3)]
    assert described[0]["from"] == EVIL and described[1]["from"] == ["x", "<b>y"]
    expected = torch.cat([weights.flatten() for _, weights, _, _ in maps()])
    assert np.allclose(weights, expected, rtol=0, atol=0.51 / 65535)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_each_token_is_shown_as_text() -> None:
    tokenizer = SubwordTokenizer.train([["ab"] * 3], vocab_size=262)
    ids = [BOS, *tokenizer.encode("ab é", "de"), EOS]
    assert token_labels(tokenizer, ids) == ["<bos>", "ab", "␣", "�", "�", "<eos>"]  # two bytes make an é
    characters = CharacterTokenizer.train("ab 🙂")
    assert token_labels(characters, characters.encode("a 🙂你", "")) == ["a", "␣", "🙂", "<unk>"]


def test_a_model_shows_all_its_attention() -> None:
    tokenizer = WordTokenizer.train([["ein Hund läuft"] * 2, ["a dog runs"] * 2], ["de", "en"])
    model = Transformer(TransformerConfig(len(tokenizer), layers=2, d_model=8, heads=2, d_ff=16, max_length=70)).train()
    text = view_attention(model, tokenizer, "ein Hund").data
    assert model.training and len(text) < 60_000
    described, weights = shown(text)
    assert [one["name"] for one in described] == ["encoder, self", "decoder, self", "decoder to source"]
    steps, target = described[1]["from"], described[1]["to"]
    assert target[0] == "<bos>" and steps[-1] == f"{target[-1]} → <eos>"
    assert steps[:-1] == [f"{read} → {write}" for read, write in pairwise(target)]
    assert described[0]["to"] == described[2]["to"] == ["ein", "Hund", "<eos>"]
    ids = torch.tensor([[*tokenizer.encode("ein Hund", "de"), EOS]])
    with record_attention(model.eval()) as recorded, torch.inference_mode():
        model.encode(ids)
    expected = torch.cat([recorded[f"encoder.layers.{i}.self_attention"][0] for i in range(2)])
    assert np.allclose(weights[: expected.numel()], expected.flatten(), atol=1e-4)


def test_it_is_used_by_mouse_and_by_keys_and_two_do_not_disturb_each_other(visit) -> None:
    page = visit(html=2 * attention_html(maps()), width=390, color_scheme="dark")
    first, second = page.locator(".attention-view").all()
    assert first.evaluate("view => getComputedStyle(view).backgroundColor") != "rgb(255, 255, 255)"
    words, said = first.locator(".av-from button"), first.locator(".av-said")
    assert words.all_inner_texts() == ["x", "<b>y"]
    first.get_by_label("head").select_option("0")  # of the last layer, which is shown first
    words.nth(1).hover()
    assert said.inner_text() == "“<b>y” looks most at “2”, 100 % (layer 1, head 0)."
    assert first.locator(".av-to span").nth(1).inner_text() == "2 100 %"
    assert "Point at a word" in second.locator(".av-said").inner_text()
    words.nth(0).focus()
    assert said.inner_text() == "“x” looks most at “1”, 100 % (layer 1, head 0)."
    page.keyboard.press("ArrowDown")
    assert "“<b>y”" in said.inner_text()
    page.keyboard.press("ArrowRight")
    assert first.get_by_label("head").input_value() == "1" and "100 %" not in said.inner_text()
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)
    assert "Point at a word" in said.inner_text()
    for pinned in (True, False):
        words.nth(1).click()
        page.mouse.move(0, 0)
        assert ("“<b>y”" in said.inner_text()) == pinned
    first.get_by_label("attention").select_option("self")
    assert words.all_inner_texts() == EVIL and fits(page, 390)
    page.evaluate("addEventListener('keydown', event => (window.heard ??= []).push(event.key))")
    for stays_or_passes in ("ArrowUp", "x", "d", "Escape", "Shift+Enter", "Control+s"):
        words.nth(1).press(stays_or_passes)
    assert page.evaluate("heard") == ["Enter", "Control", "s"]
