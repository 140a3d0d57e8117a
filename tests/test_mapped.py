"""Pairs whose ids lie in a file: the same batches and losses as from memory, and made once."""

import json
from pathlib import Path

import pytest
import torch
from once import once

from annotated.__main__ import main
from annotated_workbench import mapped
from annotated_workbench.data import encode_pairs, make_batches, read_pairs
from annotated_workbench.mapped import encode_files
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer
from tests.runs import train_arguments

pytestmark = once

WORDS = ["eins", "zwei", "drei", "one", "two", "three"]
TOKENIZER = WordTokenizer(Vocabulary([*SPECIALS, *WORDS]), ("de", "en"))
LENGTH = 9


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch) -> None:
    monkeypatch.setattr(mapped, "PAIRS_AT_ONCE", 10)


def write_pairs(folder: Path, last: str = "eins") -> list[Path]:
    """Write 57 pairs of one to ten words, a few of them too long; the source has a BOM and ends without a newline."""
    drawn = torch.randint(3, (57, 2, 10), generator=torch.Generator().manual_seed(1)).tolist()
    source, target = (
        [" ".join(WORDS[3 * side + i] for i in row[: 1 + (n * (side + 2)) % 10]) for n, row in enumerate(part)]
        for side, part in enumerate(zip(*drawn, strict=True))
    )
    paths = [folder / "my.de", folder / "my.en"]
    paths[0].write_text("\ufeff" + "\r\n".join([*source[:-1], last]), encoding="utf-8")
    paths[1].write_text("".join(f"{text} \n" for text in target), encoding="utf-8")
    return paths


@pytest.fixture
def paths(tmp_path) -> list[Path]:
    return write_pairs(tmp_path)


def encode(folder: Path, paths: list[Path], tokenizer=TOKENIZER, languages=("de", "en"), longest=LENGTH):
    sides = encode_files(folder / "ids", *paths, tokenizer, *languages, longest)
    expected = encode_pairs(read_pairs(*paths), tokenizer, *languages, longest, drop_long=True)[:2]
    assert [list(side) for side in sides] == list(expected)
    return sides, expected


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("budget", [LENGTH + 1, 23, 10**6])
def test_rows_and_batches_are_those_from_memory(tmp_path, paths, seed, budget):
    batches, expected = (make_batches(*sides, budget, seed=seed) for sides in encode(tmp_path, paths))
    for batch, other in zip(batches, expected, strict=True):
        assert all(torch.equal(side, its) for side, its in zip(batch, other, strict=True))


def test_what_was_cut_off_is_made_anew_and_what_is_whole_is_not(tmp_path, paths, monkeypatch):
    left, whole = iter(range(3)), mapped.encode_pairs
    with monkeypatch.context() as patch, pytest.raises(StopIteration):
        patch.setattr(mapped, "encode_pairs", lambda *args, **how: (next(left), whole(*args, **how))[1])
        encode(tmp_path, paths)
    encode(tmp_path, paths)
    monkeypatch.setattr(mapped, "encode_pairs", None)
    encode(tmp_path, paths)
    assert len(list((tmp_path / "ids").iterdir())) == 1


@pytest.mark.parametrize("what", ["source", "target", "tokens", "languages", "longest"])
def test_what_is_made_from_something_else_has_a_file_of_its_own(tmp_path, paths, what):
    encode(tmp_path, paths)
    changes = {
        "tokens": dict(tokenizer=WordTokenizer(Vocabulary([*SPECIALS, *reversed(WORDS)]), ("de", "en"))),
        "languages": dict(languages=("de", "de")),
        "longest": dict(longest=5),
    }.get(what, {})
    if what == "source":
        write_pairs(tmp_path, last="zwei")
    if what == "target":
        paths[1].write_text(paths[1].read_text().replace("one", "two", 1))
    encode(tmp_path, paths, **changes)
    assert len(list((tmp_path / "ids").iterdir())) == 2


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (13, b"\n", r"my\.en, line 13: empty\."),
        (24, b"\xff\n", r"my\.en, line 24: not UTF-8"),
        (57, b"", r"my\.de has 57 lines and .*my\.en has 56\."),
    ],
)
def test_bad_files_are_refused(tmp_path, paths, line, replacement, message):
    lines = paths[1].read_bytes().splitlines(keepends=True)
    paths[1].write_bytes(b"".join([*lines[: line - 1], replacement, *lines[line:]]))
    with pytest.raises(ValueError, match=message):
        encode(tmp_path, paths)
    with pytest.raises(ValueError, match="no pair of 57 fits into 1 tokens"):
        encode(tmp_path, write_pairs(tmp_path), longest=1)
    assert not (tmp_path / "ids").exists() or not list((tmp_path / "ids").iterdir())


def test_the_command_line_trains_on_them_as_from_memory_and_resumes(corpus, tmp_path):
    val = [f"--val-{side}={corpus / name}" for side, name in (("source", "my.de"), ("target", "my.en"))]
    memory, in_file = tmp_path / "memory", tmp_path / "mapped"
    assert main(train_arguments(corpus, memory, *val, "--epochs", "2")) == 0
    assert main(train_arguments(corpus, in_file, *val, "--mapped", str(tmp_path / "ids"), "--epochs", "1")) == 0
    assert main(["train", "--resume", "--out", str(in_file), "--epochs", "2"]) == 0
    losses = [
        [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        for out in (memory, in_file)
    ]
    assert losses[0] == losses[1]
    assert (memory / "model.safetensors").read_bytes() == (in_file / "model.safetensors").read_bytes()
