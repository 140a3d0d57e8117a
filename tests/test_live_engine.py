"""The model that the live page runs: in a browser it computes what torch computes, and its nine bits translate alike.

What needs a browser is skipped where Chromium is not found, and on an imitated processor: it runs no other JavaScript.
"""

import base64
import copy
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from once import once

from annotated.config import BOS, EOS
from annotated.decoding import beam_search, greedy_decode
from annotated.fast.decoding import greedy_decode as fast_greedy_decode
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import load_corpus, pad
from annotated_workbench.vocabulary import SubwordTokenizer, load_tokenizer
from tools.live import LIVE, MODEL, packed

pytestmark = once

SENTENCE = "Ein Mann, der einen roten Hut trägt, spielt auf der Straße Gitarre."
TEXTS = [
    *("", "   ", "a", SENTENCE, "Zwei Hunde  spielen\tim Schnee.\n", "don't they'll 'S", "1234.5 %", "x" * 300),
    *("ǅ ﬁ ẞßſ A\u030a", "🙂👩‍👩‍👧 你好", "نص عربي", "\u00a0x\u0085y\ufeff", "\ufeffx", "\u200b", "a\u0000b"),
    *("<eos> <bos><pad>", "__proto__", "constructor"),
]
CAPTIONS = 300  # of the embedded test set, whose scores are compared
LONGEST = 0.3  # seconds of one core that a caption may take
LAST = "const last = steps => { for (;;) { const { done, value } = steps.next(); if (done) return value; } };"
SCRIPTS = ("beam.js", "transformer.js", "tokenizer.js")


class Engine:
    """A page without a server, with a model of these weights loaded."""

    def __init__(self, browser, folder: Path, weights: str) -> None:
        (folder / "weights.js").write_text(weights, "utf-8")
        scripts = [*((LIVE / name).as_uri() for name in SCRIPTS), "weights.js"]
        load = "const model = loadTransformer(WEIGHTS), tokenizer = new Tokenizer(WEIGHTS);" + LAST
        tags = "".join(f'<script src="{address}"></script>' for address in scripts)
        (folder / "page.html").write_text(f'<meta charset="utf-8">{tags}<script>{load}</script>', "utf-8")
        self.tab = browser.new_page()
        self.tab.goto((folder / "page.html").as_uri())

    def call(self, expression: str, given: object = None) -> Any:
        """Give what an expression of `given` gives."""
        return self.tab.evaluate(f"given => {expression}", given)


@pytest.fixture(scope="module")
def exact(browser, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The model in 32 bits."""
    return Engine(browser, tmp_path_factory.mktemp("live"), packed(MODEL, 32))


@pytest.fixture(scope="module")
def model() -> Transformer:
    """The same model, in torch."""
    return load_checkpoint(MODEL)[0].eval()


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    """Its tokenizer."""
    return load_tokenizer(MODEL)


@pytest.fixture(scope="module")
def delivered() -> Transformer:
    """What the delivered nine bits say, in torch: read from the file as it lies there."""
    weights = json.loads(re.search(r"const WEIGHTS = (.*);\n", (LIVE / "weights.js").read_text("utf-8"))[1])
    content, tensors = io.BytesIO(base64.b85decode(weights["data"])), {}

    def take(kind: str, count: int) -> np.ndarray:
        return np.frombuffer(content.read(count * np.dtype(kind).itemsize), kind)

    for name, (rows, *columns) in weights["shapes"]:
        numbers = take("<f4", rows)
        if columns:  # (row) a scale, then (row · column) eight bits each, then the lowest bits
            count = rows * columns[0]
            steps = 2 * take("<i1", count).astype(int)
            steps += np.unpackbits(take("<u1", -(-count // 8)), bitorder="little")[:count]
            numbers = numbers[:, None] * steps.reshape(rows, -1).astype(np.float32)
        tensors[name] = torch.tensor(numbers)
    assert len(content.read()) < 4
    model = load_checkpoint(MODEL)[0].eval()
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    return model


def captions(count: int, tokenizer: SubwordTokenizer) -> list[list[int]]:
    """The first captions of the embedded test set, as the model reads them."""
    return [[*tokenizer.encode(text, "de"), EOS] for text in load_corpus("captions", "test").source[:count]]


def translations(model: Transformer, rows: list[list[int]]) -> list[list[int]]:
    """What greedy search writes."""
    return [found.ids for i in range(0, len(rows), 100) for found in fast_greedy_decode(model, pad(rows[i : i + 100]))]


def test_what_is_delivered_is_what_the_command_writes_and_scores_like_all(
    model: Transformer, delivered: Transformer, tokenizer: SubwordTokenizer
) -> None:
    assert (LIVE / "weights.js").read_text("utf-8") == packed(MODEL)
    english, rows = list(load_corpus("captions", "test").target)[:CAPTIONS], captions(CAPTIONS, tokenizer)
    scores = []
    for each in (model, delivered):
        written = [tokenizer.decode(ids) for ids in translations(each, rows)]
        scores.append(sacrebleu.corpus_bleu(written, [english]).score)
    assert abs(scores[0] - scores[1]) < 0.3, scores


def test_texts_become_the_same_tokens(exact: Engine, tokenizer: SubwordTokenizer) -> None:
    assert exact.call("given.map(text => tokenizer.encode(text))", TEXTS) == [tokenizer.encode(t, "de") for t in TEXTS]
    for ids in (tokenizer.encode("Größe 🙂", "de"), [200, 150, 4, BOS, EOS], []):  # bytes that are no character, too
        assert exact.call("tokenizer.decode(given)", ids) == tokenizer.decode(ids)


@torch.inference_mode()
def test_logits_and_attention_are_torch_s(exact: Engine, model: Transformer, tokenizer: SubwordTokenizer) -> None:
    src = [*tokenizer.encode(SENTENCE, "de"), EOS]
    tgt = [BOS, *tokenizer.encode("A man in a hat.", "en")]
    with record_attention(model) as recorded:
        expected = model(torch.tensor([src]), torch.tensor([tgt]))[0]
    read = """(() => {
      const looks = {}, memory = model.encode(given.src, UNCHANGED, looks), cache = model.newCache(memory);
      const states = given.tgt.map(id => model.decode([id], cache)[0]);
      const atOnce = model.decode(given.tgt, model.newCache(memory), UNCHANGED, looks);
      const rows = logits => logits.map(state => [...model.logits(state)]);
      for (const name in looks) looks[name] = looks[name].map(head => head.map(row => [...row]));
      return { oneByOne: rows(states), atOnce: rows(atOnce), looks };
    })()"""
    found = exact.call(read, {"src": src, "tgt": tgt})
    for rows in (found["oneByOne"], found["atOnce"]):
        torch.testing.assert_close(torch.tensor(rows), expected, atol=1e-4, rtol=0)
    assert len(found["looks"]) == 3 * model.config.layers == len(recorded)
    for name, looks in found["looks"].items():
        stack, layer, kind = name.split(".")
        (weights,) = recorded[f"{stack}.layers.{layer}.{kind}_attention"]
        torch.testing.assert_close(torch.tensor(looks), weights[0], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_what_an_experiment_changes_is_changed_as_in_torch(exact: Engine, model: Transformer) -> None:
    src, tgt = torch.tensor([[17, 300, 45, 2000, EOS]]), torch.tensor([[BOS, 70, 800]])

    def agrees(changes: str, changed: Transformer, *masks: torch.Tensor | None) -> None:
        read = f"""[...given.tgt.map((_, i) => {{
          const changes = {{ ...UNCHANGED, {changes} }}, memory = model.encode(given.src, changes);
          return [...model.logits(model.decode(given.tgt, model.newCache(memory), changes)[i])];
        }})]"""
        shown = torch.tensor(exact.call(read, {"src": src[0].tolist(), "tgt": tgt[0].tolist()}))
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


def test_searches_find_what_ours_find(exact: Engine, model: Transformer, tokenizer: SubwordTokenizer) -> None:
    search = "last(beamSearch(model, given.source, given.beam, given.alpha))"
    greedy = "[...greedyDecode(model, given)].map(step => step.token)"
    row = captions(1, tokenizer)[0]
    src = torch.tensor([row])
    assert exact.call(greedy, row) == [*greedy_decode(model, src)[0].ids, EOS]
    for beam, alpha in ((4, 0.6), (3, 1.5)):
        expected = beam_search(model, src, beam, alpha)[0]
        best = exact.call(search, {"source": row, "beam": beam, "alpha": alpha})
        assert best["ids"] == expected.ids
        assert best["score"] == pytest.approx(expected.score, abs=1e-4)
        assert best["logProb"] == pytest.approx(expected.log_prob, abs=1e-4)


def test_a_search_that_finds_no_end_is_cut_off(
    exact: Engine, model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, endless = [17, EOS], model.output.weight.new_zeros(model.config.vocab_size)
    endless[EOS] = -1e4
    monkeypatch.setattr(model, "logits", lambda states: model.output(states) + endless)
    search = """(() => {
      model.logits = function (state) {
        const logits = Transformer.prototype.logits.call(this, state);
        logits[EOS] = -1e4;
        return logits;
      };
      const greedy = [...greedyDecode(model, given)].map(step => step.token), found = last(beamSearch(model, given, 2));
      delete model.logits;
      return [greedy, found.ids, found.score];
    })()"""
    greedy, ids, score = exact.call(search, source)
    expected = beam_search(model, torch.tensor([source]), 2)[0]
    assert len(greedy) == len(ids) == 52 and greedy == greedy_decode(model, torch.tensor([source]))[0].ids
    assert ids == expected.ids and score == pytest.approx(expected.score, abs=1e-3)


def test_what_is_delivered_computes_what_its_weights_say_and_soon(
    browser, tmp_path: Path, delivered: Transformer, tokenizer: SubwordTokenizer
) -> None:
    small, rows = Engine(browser, tmp_path, (LIVE / "weights.js").read_text("utf-8")), captions(15, tokenizer)
    devtools = small.tab.context.new_cdp_session(small.tab)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # whatever else the machine is doing
    written = small.call("given.map(row => [...greedyDecode(model, row)].map(step => step.token))", rows)
    metrics = {metric["name"]: metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"]}
    assert [ids[:-1] for ids in written] == translations(delivered, rows)
    assert metrics["TaskDuration"] <= LONGEST * len(rows), "a reader would have to wait"
