"""The live page's last section: an assistant that's loaded when somebody wants it, and answers as it does in torch."""

import random
from typing import Any

import pytest
import torch
from once import once

from annotated.config import EOS
from annotated_course.stories import ASSISTANT, KINDS, USER, WORDS, encode, story
from annotated_workbench.checkpoint import load_checkpoint
from tests.pages import barriers, fits, opened
from tools.live import LIVE, MODEL, rounded

pytestmark = once

PAGE, SCRIPTS = (LIVE / "index.html").as_uri(), ["llama.js", "weights-assistant.js", "ask.js"]
ANSWERED = "find('answered')?.textContent || find('unreadable')?.textContent"


@pytest.fixture(scope="module")
def page(browser) -> Any:
    """The page with the assistant, of which nothing was there before the click that brought it."""
    with opened(browser, PAGE, width=1024, reduced_motion="reduce") as page:
        page.wait_for_function("shown")
        assert not {*SCRIPTS} & {*page.evaluate("[...document.scripts].map(one => one.src.split('/').at(-1))")}
        megabytes = sum((LIVE / name).stat().st_size for name in SCRIPTS) / 1e6
        page.get_by_role("button", name=f"Load the assistant ({megabytes:.1f} MB)").click()
        page.wait_for_function(ANSWERED)
        yield page


def ask(page: Any, question: str) -> str:
    """Type a question and press Enter; give the answer, or the word why there's none."""
    page.get_by_label("Your question").fill(question)
    page.get_by_label("Your question").press("Enter")
    return page.wait_for_function(ANSWERED).json_value()


@torch.inference_mode()
def test_it_computes_what_torch_computes_and_no_answer_suffers_from_the_rounding(page) -> None:
    (model, _), (whole, _) = (load_checkpoint(MODEL.with_name("assistant")) for _ in range(2))
    rounded(model)
    dice = random.Random(0)
    for sentences in (1, 2, 3, 5):
        told = story(dice, sentences, held_out=0)
        prompt = " ".join([USER, *map(str, told), told[0].asked(dice.choice(KINDS))[0], ASSISTANT])
        ids, logits, written, parts = page.evaluate(
            """prompt => {
              const ids = wordsOf(prompt).map(word => numberOf.get(word)), cache = assistant.newCache();
              const atOnce = assistant.states(ids, assistant.newCache());
              const states = [atOnce, ids.flatMap(id => assistant.states([id], cache))];
              const logits = states.map(rows => assistant.logits(rows).map(row => [...row]));
              const found = [...answer(assistant, ids, 16)].filter(Boolean);
              return [ids, logits, found.map(one => one.token), found.map(one => one.part)];
            }""",
            prompt,
        )
        assert ids == encode(prompt) and written[-1] == EOS
        all_ids = torch.tensor([ids + written[:-1]])
        expected = model(all_ids)[0]
        for found in logits:
            torch.testing.assert_close(torch.tensor(found), expected[: len(ids)], atol=2e-4, rtol=0)
        assert expected[len(ids) - 1 :].softmax(-1).amax(-1).tolist() == pytest.approx(parts, abs=1e-4)
        assert whole(all_ids)[0, len(ids) - 1 :].argmax(-1).tolist() == written


def test_it_answers_as_the_page_says_and_names_words_that_it_does_not_know(page) -> None:
    assert ask(page, "how many Kites did the fox paint") == "Answer: The fox painted three kites."
    said = ("Seven blue lamps.", "I don't know.", "Seven blue lamps.")
    for button, answer in zip(page.locator("#ask .try").all(), said, strict=True):
        button.click()
        assert page.wait_for_function(ANSWERED).json_value() == f"Answer: {answer}"
    words = "blue", "lamps", ".", "⟨end⟩"
    assert page.locator("#answer li").all_inner_texts()[1:] == [f"{word}\n100 %" for word in words]
    assert not page.locator("#world dl").is_visible()
    assert ask(page, "What did the <b>elephant</b>?").startswith("It doesn't know “<b>”, “elephant”, “<”, “/”, “b” an")
    assert page.locator("#world dl").is_visible() and not page.locator("#answer li").count()
    known = {*encode(" ".join(page.locator("#world dd").all_inner_texts()).replace(",", ""))}
    assert known == {*range(6, len(WORDS))} - {*encode("? . did what how many colour were where i don't know")}
    assert ask(page, " ").startswith("There's no question yet")
    assert ask(page, "What? " * 100).startswith("That's 220 words and signs. ")
    assert barriers(page) == [] and fits(page, 1024, 390, 320)
