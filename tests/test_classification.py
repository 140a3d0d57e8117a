"""The classifier: its parts, its fast form, reviews and their archives, runs and their commands."""

import io
import json
import os
import re
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parity import assert_same_gradients, randomise
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.__main__ import main
from annotated.config import PAD, UNK
from annotated.fast.accelerate import accelerate
from annotated.fast.classifier import FastClassifier
from annotated.fast.training import make_optimizer
from annotated.masking import padding_mask
from annotated.models.classifier import Classifier, ClassifierConfig, hide_tokens, mean_of_tokens
from annotated_workbench import data, reviews
from annotated_workbench.classification import classify, encode_texts
from annotated_workbench.data import Labelled, count_tokens, padding_share
from annotated_workbench.metrics import accuracy
from annotated_workbench.reviews import load_reviews, read_reviews, split_reviews
from annotated_workbench.tasks import ClassificationTask
from annotated_workbench.training_options import TrainingOptions
from annotated_workbench.vocabulary import WordTokenizer

SIZES = dict(vocab_size=19, d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=2, dropout=0.0, max_length=7)
SIZES |= dict(classes=3, word_dropout=0.0)
KINDS = [{}, dict(norm_first=False, positions="sinusoidal", activation="gelu"), dict(attention_bias=True, classes=2)]
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, PAD, PAD], [12, PAD, PAD, PAD, PAD]])


def make_model(**changes) -> Classifier:
    """Make a model in which every weight counts."""
    return randomise(Classifier(ClassifierConfig(**(SIZES | changes))))


# The model


def test_the_mean_by_hand() -> None:
    states = torch.tensor([[[1.0, 2.0], [5.0, 4.0], [9.0, torch.nan]], [[1.0, 2.0], [5.0, 4.0], [9.0, 6.0]]])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_tokens(states, real).tolist() == [[3.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("changes", KINDS)
def test_it_is_the_encoder_its_mean_and_a_projection(changes: dict) -> None:
    model = make_model(**changes).eval()
    for row, length in zip(IDS, (5, 3, 1), strict=True):
        ids = row[None, :length]
        states = model.encoder(model.positions(model.embedding(ids) * 14**0.5), padding_mask(ids))
        assert_close(model(ids)[0], states.mean(dim=1)[0] @ model.output.weight.T + model.output.bias)
        assert_close(model(IDS[:, :length])[(row == IDS).all(dim=1)], model(ids))


def test_padding_and_neighbours_change_nothing_and_order_does() -> None:
    model = make_model().eval()
    alone = model(IDS[1:2, :3])
    assert_close(model(IDS)[1:2], alone)
    assert_close(model(F.pad(IDS, (0, 2)))[1:2], alone)
    assert (model(IDS[1:2, :3].flip(1)) - alone).abs().max() > 1e-3


def test_tokens_are_hidden_in_training_only() -> None:
    ids = torch.tensor([[4, 5, PAD]] * 5000)
    found = hide_tokens(ids, 0.3)
    assert torch.equal((found == PAD), ids == PAD)
    assert (found[:, :2] == UNK).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert ((found == ids) | (found == UNK)).all()
    model = make_model(word_dropout=0.999)
    unknown = torch.where(IDS == PAD, PAD, UNK)
    for reader in (model, accelerate(model)):
        assert_close(reader.logits(reader.states(IDS)), model.eval()(unknown))
        model.train()
    model.eval()
    assert (model(IDS) - model(unknown)).abs().max() > 1e-3


def test_its_parameters_and_what_it_refuses() -> None:
    d, f, vocab = 128, 256, 100
    layer = 4 * d * d + 2 * d * f + f + d + 4 * d
    found = sum(p.numel() for p in Classifier(ClassifierConfig(vocab)).parameters())
    assert found == vocab * d + 512 * d + layer + 2 * d + 2 * d + 2
    with pytest.raises(ValueError, match="classes=1 must be at least 2"):
        ClassifierConfig(vocab, classes=1)
    with pytest.raises(ValueError, match="positions"):
        make_model()(torch.full((1, 8), 4))


@pytest.mark.parametrize("changes", KINDS)
def test_the_fast_form_is_the_plain_one(changes: dict) -> None:
    model = make_model(**changes)
    fast = accelerate(model)
    assert type(fast) is FastClassifier and accelerate(fast) is fast
    assert_close(fast.logits(fast.states(IDS)), model(IDS))
    assert_same_gradients(fast.logits(fast.states(IDS)), model(IDS), list(model.parameters()))


def test_in_bfloat16_it_is_near() -> None:
    model = Classifier(ClassifierConfig(**(SIZES | dict(d_model=32, d_k=16, d_v=16)))).eval()
    fast = accelerate(model, bf16=True)
    logits = fast.logits(fast.states(IDS))
    assert logits.dtype == torch.float32  # the mean is taken in 32 bits
    assert 0 < (logits - model(IDS)).abs().max() < 0.05 * model(IDS).abs().max()


# Reviews

TEXTS = {
    "train/pos/0_9.txt": "a very good film",
    "train/pos/1_8.txt": "good<br /><br />and  witty",
    "train/neg/0_2.txt": "a very bad film",
    "train/neg/1_1.txt": "bad and dull",
    "train/unsup/0_0.txt": "who knows",
    "test/neg/0_3.txt": "dull",
    "test/pos/0_7.txt": "witty",
    "train/urls_pos.txt": "http://example.org",
    "README.txt": "read me",
}


def write_folder(folder: Path, texts: dict[str, str]) -> Path:
    """Write texts into files under a folder."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_archive(path: Path, folder: Path, name: str = "aclImdb") -> Path:
    """Pack a folder."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, name)
    return path


def test_folders_and_archives_are_read_alike(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    archive = write_archive(tmp_path / "reviews.tar.gz", folder)
    before = sorted(tmp_path.rglob("*"))
    expected = {
        "train": Labelled(
            ["a very bad film", "bad and dull", "a very good film", "good and witty"], ["neg", "neg", "pos", "pos"]
        ),
        "test": Labelled(["dull", "witty"], ["neg", "pos"]),
    }
    for path in (folder, tmp_path, archive):
        assert read_reviews(path) == expected
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked


def test_an_archive_cannot_reach_out_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "bad.tar"
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(path, "w") as archive:
        for name, link in (("train/pos/a.txt", "../../secret.txt"), ("train/neg/a.txt", "/etc/passwd")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
        for name in ("../../train/pos/b.txt", "/train/neg/b.txt", "train/neg/c.txt"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"bad"))
    found = read_reviews(path)["train"]
    assert found == Labelled(["bad"] * 3, ["pos", "neg", "neg"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.tar", "secret.txt"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"train/pos/0.txt": "good"}, "has texts of 1 labels to learn from: it needs train/<label>"),
        ({"neg/0.txt": "bad"}, "has texts of 0 labels"),
        (TEXTS | {"test/odd/0.txt": "odd"}, "test has the label 'odd', and train has none"),
    ],
)
def test_what_is_no_collection(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_reviews(write_folder(tmp_path, texts))


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*Give a folder with train/pos"):
        read_reviews(tmp_path / "none")
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    archive = write_archive(tmp_path / "reviews.tar.gz", folder)
    (folder / "train/pos/0_9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"aclImdb/train/pos/0_9\.txt: not UTF-8 .*byte 3"):
        read_reviews(folder)
    whole = archive.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive", b"", whole[:20] + b"?" * 9 + whole[29:]):
        archive.write_bytes(content)
        with pytest.raises(ValueError, match="is no tar archive, or not a whole one"):
            read_reviews(archive)


@pytest.mark.parametrize("kind", ["", "gz", "bz2", "xz"])
def test_an_archive_that_was_cut_or_spoiled_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"reviews.tar.{kind}"
    with tarfile.open(path, f"w:{kind}") as archive:
        archive.add(write_folder(tmp_path / "aclImdb", TEXTS), "aclImdb")
    whole, counts = path.read_bytes(), {part: len(rows.texts) for part, rows in read_reviews(path).items()}
    middle = len(whole) // 2
    for content in (whole[: middle - middle % 512], whole[:-11000], whole[:middle] + b"?" * 40 + whole[middle + 40 :]):
        path.write_bytes(content)
        if kind or b"?" not in content:
            with pytest.raises(ValueError, match=r"is no tar archive, or not a whole one|UTF-8"):  # what is read first
                read_reviews(path)
    for place in range(0, len(whole), max(1, len(whole) // 30)):  # no byte is spoiled unseen
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(ValueError):
            assert {part: len(rows.texts) for part, rows in read_reviews(path).items()} == counts


@pytest.mark.parametrize("place", ["train/new/", "train/new/deeper/0.txt", "train/new/0.text", "test/pos/"])
def test_a_label_without_a_text_is_named(tmp_path: Path, place: str) -> None:
    mine = write_folder(tmp_path / "mine", {f"train/{label}/0.txt": "a film" for label in ("neg", "pos")})
    write_folder(mine, {place: "a film"}) if place[-1] != "/" else (mine / place).mkdir(parents=True)
    for path in (mine, write_archive(tmp_path / "mine.tar.gz", mine)):
        with pytest.raises(ValueError, match=rf"{place[:9].rstrip('/')} has no \.txt file right in it"):
            read_reviews(path)


def test_a_label_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", TEXTS | {f"train/{os.fsdecode(b'caf' + bytes([0xE9]))}/0.txt": "a film"})
    for path in (folder, write_archive(tmp_path / "mine.tar.gz", folder)):
        with pytest.raises(
            ValueError, match=r"the name of the folder train/'caf\\udce9' is not UTF-8: rename it"
        ) as caught:
            read_reviews(path)
        str(caught.value).encode()  # it can be printed


@pytest.mark.parametrize("around", ["train", "val", "test", "test/aclImdb", "train/val/test", "mine/train"])
def test_folders_around_may_be_called_like_a_part(tmp_path: Path, around: str) -> None:
    expected = read_reviews(write_folder(tmp_path / "aclImdb", TEXTS))
    write_folder(tmp_path / "new" / around, TEXTS)
    first = tmp_path / "new" / around.partition("/")[0]
    for path in (first, tmp_path / "new" / around, write_archive(tmp_path / "new.tar.gz", first, first.name)):
        assert read_reviews(path) == expected


def test_ones_own_validation_texts_are_taken(tmp_path: Path) -> None:
    counts = {"train": 9, "val": 2}
    texts = {f"{part}/{label}/{i}.txt": f"{part} {i}" for part, n in counts.items() for label in "ab" for i in range(n)}
    parts = read_reviews(write_folder(tmp_path, texts))
    assert split_reviews(parts, "val").texts == ["val 0", "val 1"] * 2
    assert len(split_reviews(parts, "train").texts) + len(split_reviews(parts, "test").texts) == 18


def test_a_zip_is_called_one_but_not_an_archive_that_ends_in_one(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "reviews.zip", "w") as archive:
        archive.writestr("train/pos/0.txt", "good")
    with pytest.raises(ValueError, match="is a zip archive: unpack it"):
        read_reviews(tmp_path / "reviews.zip")
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    with tarfile.open(tmp_path / "reviews.tar", "w") as archive:
        archive.add(folder, "aclImdb")
        archive.add(tmp_path / "reviews.zip", "aclImdb/more.zip")
    assert read_reviews(tmp_path / "reviews.tar") == read_reviews(folder)


def test_folders_and_archives_take_and_refuse_the_same(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    expected = read_reviews(folder)["train"]
    os.link(folder / "train/pos/0_9.txt", folder / "train/pos/2_9.TXT")  # tar stores it as a hard link
    os.mkfifo(folder / "train/pos/3_9.txt")
    (folder / "train/pos/4_9.txt").symlink_to(folder / "train/pos/0_9.txt")
    for name in ("._0_9.txt", ".DS_Store", "Thumbs.db"):
        (folder / "train/pos" / name).write_bytes(b"\xff\0")
    for name in ("__MACOSX/train/neg", ".git/train/neg", "train/.hidden"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0.txt").write_bytes(b"\xff\0")
    archive = write_archive(tmp_path / "reviews.tar.gz", folder)
    for path in (folder, archive):
        assert read_reviews(path)["train"] == Labelled([*expected.texts, "a very good film"], [*expected.labels, "pos"])
    (folder / "train/pos/5_9.txt").write_bytes(bytes(reviews.LONGEST_REVIEW + 1))
    for path in (folder, write_archive(tmp_path / "large.tar.gz", folder)):
        with pytest.raises(ValueError, match=r"pos/5_9\.txt has more than 1,048,576 bytes"):
            read_reviews(path)
    with pytest.raises(FileNotFoundError, match=r"there is no .*Give a folder"):
        read_reviews(folder / "train/pos/3_9.txt")


@pytest.mark.parametrize("rare", [1, 2, 3, 5])
@pytest.mark.parametrize("tested", [False, True])
def test_no_label_is_held_out_whole(rare: int, tested: bool) -> None:
    for count in (4, 20, 57):
        labels = ["neg"] * count + ["pos"] * count + ["zzz"] * rare
        parts = {"train": Labelled([str(i) for i in range(len(labels))], labels)}
        parts |= {"test": Labelled(["x"], ["pos"])} if tested else {}
        found = {split: set(split_reviews(parts, split).labels) for split in reviews.SPLITS}
        assert found["train"] == {"neg", "pos", "zzz"}
        assert found["val"] == {"neg", "pos"} | ({"zzz"} if rare > 2 - tested else set())
        assert tested or found["test"] == {"neg", "pos"} | ({"zzz"} if rare > 1 else set())
    with pytest.raises(ValueError, match=r"no label has a text to hold out: 2 texts, each of another label"):
        split_reviews({"train": Labelled(["a", "b"], ["pos", "neg"])}, "train")


@given(st.integers(7, 60), st.booleans())
def test_splits_share_nothing_and_lose_nothing(count: int, tested: bool) -> None:
    parts = {"train": Labelled([str(i) for i in range(count)], [str(i % 3) for i in range(count)])}
    if tested:
        parts["test"] = Labelled(["x"], ["0"])
    found = {split: split_reviews(parts, split) for split in reviews.SPLITS}
    texts = [text for split in found.values() for text in split.texts]
    assert sorted(texts) == sorted([*parts["train"].texts, *(["x"] if tested else [])])
    assert all(
        label == str(int(text) % 3) for s in found.values() for text, label in zip(*s, strict=True) if text != "x"
    )
    assert found == {split: split_reviews(parts, split) for split in reviews.SPLITS}
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        split_reviews(parts, "dev")


def test_known_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"put train\.pos and train\.neg"):
        load_reviews("rt_polarity", "train")
    with pytest.raises(ValueError, match="unknown reviews 'yelp'; there are rt_polarity, imdb"):
        load_reviews("yelp", "train")
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    archive = write_archive(tmp_path / "aclImdb_v1.tar.gz", folder)
    monkeypatch.setattr(reviews, "download", lambda *_: archive)
    assert load_reviews("imdb", "test").texts == ["dull", "witty"]
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    for name in ("imdb", "rt_polarity"):
        (tmp_path / name).mkdir()
    for place in (folder, archive):
        moved = place.rename(tmp_path / "imdb" / place.name)
        assert load_reviews("imdb", "test").texts == ["dull", "witty"]
        moved.rename(place)
    for label in ("pos", "neg"):
        lines = "".join(f"{label} {i}\n" for i in range(20))
        (tmp_path / "rt_polarity" / f"train.{label}").write_text(lines)
    sizes = [len(load_reviews("rt_polarity", split).texts) for split in reviews.SPLITS]
    assert sizes == [33, 3, 4]
    found = load_reviews("rt_polarity", "train")
    assert all(text.startswith(label) for text, label in zip(*found, strict=True))


def test_rt_polarity_as_it_is(multi30k: Path) -> None:
    if not (multi30k.parent / "rt_polarity" / "train.pos").is_file():
        pytest.skip("needs rt_polarity beside Multi30k")
    assert [len(load_reviews("rt_polarity", split).texts) for split in reviews.SPLITS] == [7774, 863, 959]


def test_imdb_is_downloaded_with_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pooch = SimpleNamespace(os_cache=lambda name: name, retrieve=lambda *args, **how: calls.append(args) or "here")
    monkeypatch.setitem(sys.modules, "pooch", pooch)
    assert data.download("imdb", reviews.IMDB_URL, "file", reviews.IMDB_MD5) == Path("here")
    assert calls == [(reviews.IMDB_URL, "md5:7c2ac02c03563afcf9b574c7e56c153a")]


# Learning


def make_task(max_length: int = 7) -> ClassificationTask:
    labelled = Labelled(
        ["a very good film", "bad", "good", "bad and so very dull that one sleeps", ""],
        ["pos", "neg", "pos", "neg", "odd"],
    )
    tokenizer = WordTokenizer.train([labelled.texts], ["en"], min_freq=1)
    return ClassificationTask(tokenizer, labelled, Labelled(["good", "bad"], ["pos", "neg"]), "en", max_length)


def test_long_texts_are_cut_and_empty_ones_are_unknown() -> None:
    task = make_task(max_length=3)
    assert [len(row) for row in task.sources] == [3, 1, 1, 3, 1] and task.sources[-1] == [UNK]
    assert task.labels == ["neg", "odd", "pos"] and task.classes == [[2], [0], [2], [0], [1]]
    assert encode_texts([" "], task.tokenizer, "en", 3) == [[UNK]]
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
    found = {}
    for name, parts in (("all", [(ids, classes)]), ("parts", [(ids[:1], classes[:1]), (ids[1:], classes[1:])])):
        torch.manual_seed(0)
        model = make_model(vocab_size=len(task.tokenizer), max_length=7)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = task.update(model, parts, optimizer, TrainingOptions(plain=plain))
        found[name] = loss, model.state_dict()
        with torch.no_grad():
            torch.manual_seed(0)
            before = make_model(vocab_size=len(task.tokenizer), max_length=7)
            assert loss == pytest.approx(F.cross_entropy(before(ids), classes, label_smoothing=0.1).item(), rel=1e-5)
    assert_close(found["all"][1], found["parts"][1])


def test_no_weight_moves_when_the_loss_is_no_number() -> None:
    task = make_task()
    model = make_model(vocab_size=len(task.tokenizer))
    with torch.no_grad():
        model.output.bias[0] = torch.nan
    before = model.embedding.weight.clone()
    with pytest.raises(ValueError, match="the loss is nan"):
        task.update(model, task.batches(100), make_optimizer(model), TrainingOptions())
    assert torch.equal(model.embedding.weight, before)


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
    with pytest.raises(ValueError, match="'c' is none of the model's classes: a, b"):
        accuracy(probabilities, ["a", "a", "c"], ["a", "b"])
    with pytest.raises(ValueError, match="2 labels of 3 texts"):
        accuracy(probabilities, ["a", "a"], ["a", "b"])


# Commands

GOOD, BAD = ("good", "witty", "bright", "warm"), ("bad", "dull", "dark", "cold")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small collection, and a run that has learned it."""
    folder = tmp_path_factory.mktemp("reviews")
    texts = {}
    for part, noun in (("train", "film"), ("train", "play"), ("train", "story"), ("train", "book"), ("test", "film")):
        for label, words in (("pos", GOOD), ("neg", BAD)):
            for word in words:
                texts[f"{part}/{label}/{noun}_{word}.txt"] = f"this {noun} is {word}"
                texts[f"{part}/{label}/{noun}_very_{word}.txt"] = f"a very {word} {noun} it is"
    write_folder(folder / "mine", texts)
    assert main(arguments(folder, "run", "--epochs", "12")) == 0
    return folder


def arguments(folder: Path, out: str, *more: str) -> list[str]:
    """Give the arguments that train on the reviews in a folder."""
    small = ["--batch-tokens", "60", "--warmup", "5", "--precision", "fp32"]
    return ["train", "--reviews", str(folder / "mine"), "--out", str(folder / out), *small, *more]


def test_a_run_says_what_it_does_and_keeps_what_it_needs(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(learned, "again", "--epochs", "1", "--plain")) == 0
    out = capsys.readouterr().out
    assert out.startswith("chosen for reviews: --preset reviews --dropout 0.5 --schedule linear --rate 0.11 ")
    assert "58 training and 6 validation texts of 2 labels" in out
    assert re.search(r"epoch  1\.00 .* validation accuracy \d+\.\d% ", out)
    config = json.loads((learned / "again" / "config.json").read_text())
    assert config["labels"] == ["neg", "pos"] and config["language"] == "en" and config["model"]["classes"] == 2


def test_it_has_learned_and_says_so(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(learned / "run")
    assert main(["evaluate", run, "--reviews", str(learned / "mine"), "--precision", "fp32"]) == 0
    assert capsys.readouterr().out == "16 texts: accuracy 100.0% ± 0.0%\n"
    assert main(["classify", run, "--precision", "fp32", "a very dull play it is", "this book is warm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["neg", "pos"]
    assert all(0.5 < float(line.split("\t")[1]) <= 1 for line in lines)


def test_lines_of_standard_input_stay_lines(
    learned: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"this film is bright\n\nthis film is cold"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert main(["classify", str(learned / "run"), "--precision", "fp32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("pos") and lines[2].startswith("neg")


def test_a_run_that_goes_on_is_the_one_that_never_stopped(learned: Path) -> None:
    assert main(arguments(learned, "stopped", "--epochs", "1", "--schedule", "noam")) == 0
    assert main(["train", "--resume", "--out", str(learned / "stopped"), "--epochs", "2"]) == 0
    assert main(arguments(learned, "whole", "--epochs", "2", "--schedule", "noam")) == 0
    weights = [(learned / run / "model.safetensors").read_bytes() for run in ("stopped", "whole")]
    assert weights[0] == weights[1]


def test_models_of_other_tasks_are_named(learned: Path, run, capsys: pytest.CaptureFixture[str]) -> None:
    mine, other = str(learned / "run"), run.out
    for command, message in (
        (["translate", mine, "good"], "is for classification, not for translation: use classify"),
        (["generate", mine, "good"], "is for classification, not for generation: use classify"),
        (["classify", other, "good"], "is for translation, not for classification: use translate"),
        (["evaluate", other, "--reviews", str(learned / "mine")], "is for translation, not for classification"),
        (["train", "--resume", "--out", mine, "--reviews", other], "has texts of 0 labels to learn from"),
    ):
        assert main(command) == 2
        assert message in capsys.readouterr().err
