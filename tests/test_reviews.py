"""Collections of labelled texts: folders, the known ones, and how they are split."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from once import once

from annotated_workbench import reviews
from annotated_workbench.data import Labelled
from annotated_workbench.reviews import load_reviews, read_reviews, split_reviews

pytestmark = once

TEXTS = {
    "train/pos/0_9.txt": "a very good film",
    "train/pos/1_8.txt": "good<br /><br />and  witty",
    "train/neg/0_2.txt": "a very bad film",
    "train/neg/1_1.txt": "bad and dull",
    "train/unsup/0_0.txt": "who knows",
    "test/neg/0_3.txt": "cliche\u0301",
    "test/pos/0_7.txt": "witty",
    "train/urls_pos.txt": "http://example.org",
    "README.txt": "read me",
    "train/pos/._0_9.txt": "what a system leaves",
    "train/pos/deeper/0.txt": "no review",
}


def write_folder(folder: Path, texts: dict[str, str]) -> Path:
    """Write texts into files under a folder."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_folders_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "aclImdb", TEXTS)
    train = ["a very bad film", "bad and dull", "a very good film", "good and witty"], ["neg", "neg", "pos", "pos"]
    expected = {"train": Labelled(*train), "test": Labelled(["cliché", "witty"], ["neg", "pos"])}
    assert read_reviews(folder) == read_reviews(tmp_path) == expected
    (folder / "train/pos/0_9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"aclImdb/train/pos/0_9\.txt: not UTF-8 .*byte 3"):
        read_reviews(folder)


def test_what_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"neg/1.TXT": "bad", "neg/2.csv": "x", "neg/4.txt": "\u200b<br />", "dull.csv": "x", "urls_neg.txt": "x"}
    folder = write_folder(tmp_path / "mine", {f"train/{name}": text for name, text in texts.items()})
    with pytest.raises(ValueError, match="has texts of 1 labels to learn from: it needs train/<label>"):
        read_reviews(folder)
    names = ", ".join(f"{folder}/train/{name}" for name in ("dull.csv", "neg/2.csv", "neg/4.txt"))
    assert capsys.readouterr().out.startswith(f"3 left out, such as {names}: texts are train/<label>/<name>.txt")


def test_ones_own_validation_texts_are_taken(tmp_path: Path) -> None:
    counts = {"train": 9, "val": 2}.items()
    texts = {f"{part}/{label}\u0301/{i}.txt": f"{part} {i}" for part, n in counts for label in "ae" for i in range(n)}
    parts = read_reviews(write_folder(tmp_path, texts))
    assert split_reviews(parts, "val") == Labelled(["val 0", "val 1"] * 2, ["á", "á", "é", "é"])
    assert len(split_reviews(parts, "train").texts) + len(split_reviews(parts, "test").texts) == 18


@given(st.integers(30, 60), st.booleans())
def test_splits_share_nothing_and_lose_nothing(count: int, tested: bool) -> None:
    parts = {"train": Labelled([str(i) for i in range(count)], [str(i % 3) for i in range(count)])}
    if tested:
        parts["test"] = Labelled(["99"], ["0"])
    found = {split: split_reviews(parts, split) for split in reviews.SPLITS}
    texts = [text for split in found.values() for text in split.texts]
    assert sorted(texts) == sorted([*parts["train"].texts, *(["99"] if tested else [])])
    assert all(label == str(int(text) % 3) for part in found.values() for text, label in zip(*part, strict=True))
    assert found == {split: split_reviews(parts, split) for split in reviews.SPLITS}
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        split_reviews(parts, "dev")


def test_sentences_about_films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"put train\.pos and train\.neg"):
        load_reviews("rt_polarity", "train")
    with pytest.raises(ValueError, match="unknown reviews 'yelp'; there are rt_polarity"):
        load_reviews("yelp", "train")
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    lines = {f"rt_polarity/train.{label}": "".join(f"{label} {i}\n" for i in range(20)) for label in ("pos", "neg")}
    write_folder(tmp_path, lines)
    found = {split: load_reviews("rt_polarity", split) for split in reviews.SPLITS}
    assert [len(part.texts) for part in found.values()] == [33, 3, 4]
    assert all(text.startswith(label) for part in found.values() for text, label in zip(*part, strict=True))


def test_rt_polarity_as_it_is(multi30k: Path) -> None:
    if not (multi30k.parent / "rt_polarity" / "train.pos").is_file():
        pytest.skip("needs rt_polarity beside Multi30k")
    assert [len(load_reviews("rt_polarity", split).texts) for split in reviews.SPLITS] == [7774, 863, 959]
