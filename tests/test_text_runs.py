"""Learning to continue a text: its pieces, its tokens, the fast model and its loss, runs and their commands."""

import contextlib
import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import maker
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.__main__ import main
from annotated.config import PAD, UNK
from annotated.fast.accelerate import accelerate
from annotated.fast.training import update
from annotated.models.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.training import label_smoothed_loss
from annotated_workbench.data import make_text_batches
from annotated_workbench.metrics import text_loss
from annotated_workbench.vocabulary import CharacterTokenizer, load_tokenizer
from tests.models import gradients

SIZES = dict(vocab_size=19, d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=3, dropout=0.0, max_length=7)
make_model = maker(LanguageModel, LanguageModelConfig, **SIZES)
KINDS = [{}, dict(norm_first=False, positions="sinusoidal", activation="relu"), dict(attention_bias=True)]
TEXT = "the cat sat on the mat, and the rat sat on the cat.\n" * 40


@given(st.integers(2, 60), st.integers(1, 9), st.integers(0, 30), st.one_of(st.none(), st.integers(0, 99)))
def test_each_token_but_the_first_is_predicted_once_from_what_stands_before_it(length, window, more, seed) -> None:
    ids = torch.arange(1, length + 1)
    batches = make_text_batches(ids, window, window + more, seed=seed)
    rows = [row[row != PAD].tolist() for (batch,) in batches for row in batch]
    assert sorted(i for row in rows for i in row[1:]) == list(range(2, length + 1))
    assert all(row == list(range(row[0], row[-1] + 1)) for row in rows)
    assert all(batch.size(1) == window + 1 and batch.size(0) * window <= window + more for (batch,) in batches)


def test_characters_come_back_from_a_file_too(tmp_path: Path) -> None:
    tokenizer = CharacterTokenizer.train("b\na ")
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, CharacterTokenizer)
    for each in (tokenizer, loaded):
        assert each.encode("ab\nß", "") == [6, 7, 4, UNK]
        assert each.decode([1, 6, UNK, 2]) == "a<unk>"
        assert each.encode_batch(["ab\n", ""], "") == [[6, 7, 4], []]


@pytest.mark.parametrize("changes", KINDS)
def test_the_fast_form_and_its_update_are_the_plain_ones(changes: dict) -> None:
    model, learner = make_model(**changes), make_model(**changes).train()
    fast = accelerate(model)
    ids = torch.randint(4, 19, (3, 7))
    cache = fast.new_cache()
    states = [fast.states(part, cache) for part in ids.split([3, 1, 1, 2], dim=1)]
    assert_close(fast.logits(torch.cat(states, dim=1)), model(ids))
    assert torch.equal(generate(fast, ids, 20, temperature=0.0), generate(model, ids, 20, temperature=0.0))

    ids = F.pad(ids[:, :6], (0, 2))
    learner.load_state_dict(model.state_dict())
    loss = label_smoothed_loss(model(ids[:, :-1]), ids[:, 1:], 0.0)
    loss.backward()
    found = update(learner, [(ids[:1],), (ids[1:],)], torch.optim.SGD(learner.parameters(), lr=0.0), 0.0)
    assert found == pytest.approx(loss.item(), rel=1e-5)
    assert_close(gradients(learner), gradients(model))


def test_the_loss_of_a_text_by_a_loop() -> None:
    model = make_model().train()
    ids = torch.randint(4, 19, (30,))
    total = 0.0
    with torch.no_grad():
        for i in range(1, 30):
            start = (i - 1) // 7 * 7  # its piece begins here
            total -= float(model(ids[None, start:i])[0, -1].log_softmax(dim=-1)[ids[i]])
    assert text_loss(model, ids) == pytest.approx(total / 29, rel=1e-5)
    assert model.training


def words(folder: Path, out: str, *more: str) -> list[str]:
    """Give the arguments that train on the text in a folder."""
    small = ["--batch-tokens", "256", "--warmup", "5", "--precision", "fp32", "--schedule", "noam"]
    return ["train", "--text", str(folder / "my.txt"), "--out", str(folder / out), *small, *more]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, and in printed.txt what it says."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "my.txt").write_text(TEXT, encoding="utf-8")
    with open(folder / "printed.txt", "w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
        assert main(words(folder, "run", "--epochs", "2")) == 0
    return folder


def test_a_run_says_what_it_does(learned: Path) -> None:
    out = (learned / "printed.txt").read_text(encoding="utf-8")
    size = "1,872 training and 208 validation characters"
    assert out.startswith(f"{size}; chosen for them: --preset characters --dropout 0.1 --rate 0.25 ")
    assert "19 tokens in the vocabulary" in out
    assert re.search(r"epoch  1\.00 .* validation loss \d\.\d{3} nats, \d\.\d{3} bits a token ", out)


def test_a_run_that_goes_on_is_the_one_that_never_stopped_wherever_its_text_lies_now(learned: Path) -> None:
    assert main(words(learned, "stopped", "--epochs", "1")) == 0
    (learned / "moved.txt").write_text(TEXT, encoding="utf-8")
    moved = ["--text", str(learned / "moved.txt")]
    assert main(["train", "--resume", "--out", str(learned / "stopped"), "--epochs", "2", *moved]) == 0
    weights = [(learned / run / "model.safetensors").read_bytes() for run in ("stopped", "run")]
    assert weights[0] == weights[1]


def test_it_continues_a_text(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", str(learned / "run"), "the c", "--count", "30", "--precision", "fp32"]
    texts = []
    for more in ([], [], ["--seed", "1"], ["--plain"], ["--temperature", "0"], ["--top-k", "1"]):
        assert main([*arguments, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert all(text.startswith("the c") and len(text) == 36 for text in texts)
    assert texts[0] == texts[1] == texts[3] != texts[2]
    assert texts[4] == texts[5]


def test_a_llama_learns_and_writes_too(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(learned, "llama", "--epochs", "1", "--preset", "llama", "--layers", "1")) == 0
    assert main(["generate", str(learned / "llama"), "the c", "--count", "30"]) == 0
    assert len(capsys.readouterr().out.splitlines()[-1]) > 5


def test_it_is_scored_on_a_text(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(learned / "run"), "--text", str(learned / "my.txt"), "--precision", "fp32"]) == 0
    pattern = r"2,080 tokens, 0 of them unknown: loss (.*) nats a token, (.*) bits, perplexity (.*)\n"
    found = re.fullmatch(pattern, capsys.readouterr().out)
    loss, bits, perplexity = map(float, found.groups())
    assert bits == pytest.approx(loss / math.log(2), abs=1e-3)
    assert perplexity == pytest.approx(math.exp(loss), rel=0.01)
    assert loss < math.log(15)  # it has learned something: the text has 15 characters
