"""The classifier: its parts, what it learns, a run and its commands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import maker
from test_reviews import write_folder
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.__main__ import main
from annotated.config import PAD, UNK
from annotated.fast.accelerate import accelerate
from annotated.models.classifier import Classifier, ClassifierConfig, hide_tokens, mean_of_tokens
from annotated_workbench.classification import classify, encode_texts
from annotated_workbench.data import Labelled, count_tokens, padding_share
from annotated_workbench.metrics import accuracy
from annotated_workbench.run_folder import Run
from annotated_workbench.runs import update
from annotated_workbench.tasks import ClassificationTask
from annotated_workbench.training_options import TrainingOptions, length_of
from annotated_workbench.vocabulary import WordTokenizer

SIZES = dict(vocab_size=19, d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=2, dropout=0.0, max_length=7)
make_model = maker(Classifier, ClassifierConfig, **SIZES, classes=3, word_dropout=0.0)
KINDS = [{}, dict(norm_first=False, positions="sinusoidal", activation="gelu"), dict(attention_bias=True, classes=2)]
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, PAD, PAD], [12, PAD, PAD, PAD, PAD]])
GOOD, BAD = ("good", "witty", "bright", "warm"), ("bad", "dull", "dark", "cold")


def test_the_mean_by_hand() -> None:
    states = torch.tensor([[[1.0, 2.0], [5.0, 4.0], [9.0, torch.nan]], [[1.0, 2.0], [5.0, 4.0], [9.0, 6.0]]])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_tokens(states, real).tolist() == [[3.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("changes", KINDS)
def test_it_is_the_encoder_its_mean_and_a_projection(changes: dict) -> None:
    model, ids = make_model(**changes), IDS[:1]
    states = model.encoder(model.positions(model.embedding(ids) * 14**0.5))
    assert_close(model(ids), states.mean(dim=1) @ model.output.weight.T + model.output.bias)


def test_tokens_are_hidden_in_training_only() -> None:
    ids = torch.tensor([[4, 5, PAD]] * 5000)
    found = hide_tokens(ids, 0.3)
    assert torch.equal((found == PAD), ids == PAD)
    assert (found[:, :2] == UNK).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert ((found == ids) | (found == UNK)).all()
    model = make_model(word_dropout=0.999).train()
    unknown = torch.where(IDS == PAD, PAD, UNK)
    for reader in (model, accelerate(model)):
        assert_close(reader.logits(reader.states(IDS)), model.eval()(unknown))
        model.train()
    model.eval()
    assert (model(IDS) - model(unknown)).abs().max() > 1e-3


def make_task(max_length: int = 7) -> ClassificationTask:
    texts = ["a very good film", "bad", "good", "bad and so very dull that one sleeps", ""]
    labelled = Labelled(texts, ["pos", "neg", "pos", "neg", "odd"])
    tokenizer = WordTokenizer.train([labelled.texts], ["en"], min_freq=1)
    return ClassificationTask(tokenizer, labelled, Labelled(["good", "bad"], ["pos", "neg"]), "en", max_length)


def test_long_texts_are_cut_and_empty_ones_are_unknown() -> None:
    task = make_task(max_length=3)
    assert [len(row) for row in task.sources] == [3, 1, 1, 3, 1] and task.sources[-1] == [UNK]
    assert task.labels == ["neg", "odd", "pos"] and task.classes == [[2], [0], [2], [0], [1]]
    assert encode_texts(["\u2060 \u2800"], task.tokenizer, "en", 3) == [[UNK]]
    with pytest.raises(ValueError, match="no training text has the label 'new'"):
        ClassificationTask(task.tokenizer, Labelled(["a"], ["x"]), Labelled(["a"], ["new"]), "en", 3)


def test_labels_are_no_tokens() -> None:
    [batch] = make_task().batches(100)
    assert batch[1].tolist().count(0) == 2  # a label may be 0, which as a token would be padding
    assert count_tokens(batch) == 4 + 1 + 1 + 7 + 1
    assert padding_share([batch]) == pytest.approx(1 - 14 / 35)


@pytest.mark.parametrize("plain", [False, True])
def test_an_update_on_parts_is_one_on_all(plain: bool) -> None:
    task = make_task()
    [(ids, classes)] = task.batches(100)
    found = []
    for parts in ([(ids, classes)], [(ids[:1], classes[:1]), (ids[1:], classes[1:])]):
        torch.manual_seed(0)
        model = make_model(vocab_size=len(task.tokenizer)).train()
        expected = F.cross_entropy(model(ids), classes, label_smoothing=0.1).item()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        options = TrainingOptions(plain=plain)
        loss, count = update(Run(model, task, Path(), options, {}, {}, length_of(options, 1), optimizer), parts)
        assert (loss, count) == (pytest.approx(expected, rel=1e-5), 5)
        found.append(model.state_dict())
    assert_close(*found)


def test_texts_are_classified_in_their_order_and_the_mode_stays() -> None:
    task = make_task()
    model = make_model(vocab_size=len(task.tokenizer), dropout=0.5).train()
    texts = ["good film", "bad", "", "a very dull film", "so very good"] * 3
    found = classify(model, task.tokenizer, texts, "en")
    assert model.training
    model.eval()
    for text, probabilities in zip(texts, found, strict=True):
        ids = torch.tensor(encode_texts([text], task.tokenizer, "en", 7))
        assert_close(probabilities, model(ids)[0].softmax(dim=-1))
    assert_close(classify(model, task.tokenizer, texts, "en", plain=True), found)
    with pytest.raises(TypeError, match="texts is one string"):
        classify(model, task.tokenizer, "good", "en")


def test_accuracy_by_hand() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    assert accuracy(probabilities, ["a", "a", "b"], ["a", "b"]) == pytest.approx(2 / 3)
    for labels, message in ((["a", "a", "c"], "'c' is none of the model's classes: a, b"), (["a"], "1 labels of 3")):
        with pytest.raises(ValueError, match=message):
            accuracy(probabilities, labels, ["a", "b"])


def test_a_run_says_what_it_does_keeps_what_it_needs_and_has_learned(tmp_path: Path, capsys) -> None:
    run, texts = str(tmp_path / "run"), {}
    for part, noun in (("train", "film"), ("train", "play"), ("train", "story"), ("train", "book"), ("test", "film")):
        for label, word in (*(("pos", word) for word in GOOD), *(("neg", word) for word in BAD)):
            texts[f"{part}/{label}/{noun}_{word}.txt"] = f"this {noun} is {word}"
            texts[f"{part}/{label}/{noun}_very_{word}.txt"] = f"a very {word} {noun} it is"
    write_folder(tmp_path / "mine", texts)
    given = ["--reviews", str(tmp_path / "mine"), "--out", run, "--epochs", "12"]
    assert main(["train", *given, "--batch-tokens", "60", "--warmup", "5", "--precision", "fp32"]) == 0
    out = capsys.readouterr().out
    size = "58 training and 6 validation texts of 2 labels"
    assert out.startswith(f"{size}; chosen for them: --preset reviews --dropout 0.5 --rate 0.11 --schedule linear ")
    assert re.search(r"epoch  1\.00 .* validation accuracy \d+\.\d% ", out)
    assert out.endswith(f"Try it: python -m annotated classify {run}\n")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["labels"] == ["neg", "pos"] and config["language"] == "en" and config["model"]["classes"] == 2
    assert main(["evaluate", run, "--reviews", str(tmp_path / "mine"), "--precision", "fp32"]) == 0
    careful, scores = capsys.readouterr().out.splitlines()
    assert careful.startswith("Careful: 13 of the 16 held out for the test") and scores.endswith("100.0% ± 0.0%")
    assert main(["classify", run, "--precision", "fp32", "a very dull play it is", "this book is warm"]) == 0
    assert re.fullmatch(r"neg\t(0\.[5-9]\d|1\.00)\npos\t(0\.[5-9]\d|1\.00)\n", capsys.readouterr().out)
