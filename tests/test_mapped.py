"""Pairs whose ids lie in files: the same batches and losses as from memory, made once, made anew where cut off."""

import json
from pathlib import Path

import pytest
import torch

from annotated.__main__ import main
from annotated_workbench import mapped
from annotated_workbench.data import Lines, encode_pairs, make_batches, read_lines, read_pairs
from annotated_workbench.files import locked
from annotated_workbench.mapped import MappedRows, encode_files
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer
from tests.runs import train_arguments

WORDS = ["eins", "zwei", "drei", "one", "two", "three"]
LENGTH = 9


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer(Vocabulary([*SPECIALS, *WORDS]), ("de", "en"))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch) -> None:
    monkeypatch.setattr(mapped, "PAIRS_AT_ONCE", 10)


def write_pairs(folder: Path, count: int = 57, last: str = "eins") -> list[Path]:
    """Write pairs of one to ten words, a few of them too long; the source has a BOM and ends without a newline."""
    drawn = torch.randint(3, (count, 2, 10), generator=torch.Generator().manual_seed(1)).tolist()
    rows = [
        [[WORDS[3 * side + i] for i in row[: 1 + (n * (side + 2)) % 10]] for n, row in enumerate(part)]
        for side, part in enumerate(zip(*drawn, strict=True))
    ]
    source, target = ([" ".join(row) for row in side] for side in rows)
    source[10] = "\ufeff" + source[10]  # a BOM where no file begins is text, also where lines are read in tens
    paths = [folder / "my.de", folder / "my.en"]
    paths[0].write_text("\ufeff" + "\r\n".join([*source[:-1], last]), encoding="utf-8")
    paths[1].write_text("".join(f"{text} \n" for text in target), encoding="utf-8")
    return paths


def encode(folder: Path, paths: list[Path], words, languages=("de", "en"), longest=LENGTH) -> tuple[MappedRows, ...]:
    return encode_files(folder / "ids", *paths, words, *languages, longest)


def rows_of(sides) -> list[list[list[int]]]:
    return [list(side) for side in sides]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture
def paths(tmp_path) -> list[Path]:
    return write_pairs(tmp_path)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("budget", [LENGTH + 1, 23, 10**6])
def test_rows_and_batches_are_those_from_memory(tokenizer, tmp_path, paths, seed, budget):
    ours, theirs = (
        encode(tmp_path, paths, tokenizer),
        encode_pairs(read_pairs(*paths), tokenizer, "de", "en", LENGTH, drop_long=True),
    )
    assert rows_of(ours) == [theirs.sources, theirs.targets]
    assert [side.lengths.tolist() for side in ours] == [list(map(len, side)) for side in theirs[:2]]
    batches, expected = make_batches(*ours, budget, seed=seed), make_batches(*theirs[:2], budget, seed=seed)
    for some, all_of_them in ((batches, expected), (batches[1:4], expected[1:4])):
        for batch, other in zip(some, all_of_them, strict=True):
            assert all(torch.equal(side, its) for side, its in zip(batch, other, strict=True))


def test_what_is_made_is_not_made_again(tokenizer, tmp_path, paths, monkeypatch, capsys):
    before = rows_of(encode(tmp_path, paths, tokenizer))
    monkeypatch.setattr(mapped, "encode_pairs", None)
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("chunks", [0, 3])
def test_what_was_cut_off_is_made_anew_and_said(tokenizer, tmp_path, paths, monkeypatch, capsys, chunks):
    left, whole = chunks, mapped.encode_pairs

    def stop(*args, **options):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return whole(*args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mapped, "encode_pairs", stop)
        encode(tmp_path, paths, tokenizer)
    encode(tmp_path, paths, tokenizer)
    assert "holds ids that are damaged or were cut off: making them anew." in capsys.readouterr().out
    (tmp_path / "new").mkdir()
    encode(tmp_path / "new", paths, tokenizer)
    assert content(tmp_path / "ids") == content(tmp_path / "new" / "ids")


@pytest.mark.parametrize("what", ["sentences to translate", "translations", "tokens", "languages", "longest pair"])
def test_what_was_made_from_something_else_is_made_anew(tokenizer, tmp_path, paths, capsys, what):
    encode(tmp_path, paths, tokenizer)
    words, languages, longest = tokenizer, ("de", "en"), LENGTH
    if what == "tokens":
        words = WordTokenizer(Vocabulary([*SPECIALS, *reversed(WORDS)]), languages)
    elif what == "languages":
        languages = ("de", "de")
    elif what == "longest pair":
        longest = 5
    elif what == "translations":
        paths[1].write_text(paths[1].read_text().replace("one", "two", 1))
    else:
        write_pairs(tmp_path, last="zwei")
    ours = rows_of(encode(tmp_path, paths, words, languages, longest))
    assert f"holds ids that were made from other {what}: making them anew." in capsys.readouterr().out
    assert ours == rows_of(encode_pairs(read_pairs(*paths), words, *languages, longest, drop_long=True)[:2])


def test_who_still_reads_the_old_ids_keeps_them(tokenizer, tmp_path, paths):
    old = encode(tmp_path, paths, tokenizer)
    before = rows_of(old)
    encode(tmp_path, write_pairs(tmp_path, count=12), tokenizer)
    assert rows_of(old) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda ids: (ids / "source.ids").unlink(),
        lambda ids: (ids / "target.ends").write_bytes((ids / "target.ends").read_bytes()[:-8]),
        lambda ids: (ids / "ids.json").unlink(),
        lambda ids: (ids / "ids.json").write_bytes((ids / "ids.json").read_bytes()[:-9]),
        *(lambda ids, text=text: (ids / "ids.json").write_bytes(text) for text in (b"", b"[]", b"{}", b"[" * 10**5)),
        lambda ids: (ids / "ids.json").write_text(json.dumps({"sizes": {}, "made from": 5})),
    ],
)
def test_damaged_ids_are_made_anew(tokenizer, tmp_path, paths, capsys, damage):
    before = rows_of(encode(tmp_path, paths, tokenizer))
    damage(tmp_path / "ids")
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before
    assert "holds ids that are damaged or were cut off: making them anew." in capsys.readouterr().out


@pytest.mark.parametrize("side", [0, 1])
def test_an_id_that_no_token_has_is_named(tokenizer, tmp_path, paths, side):
    before = rows_of(encode(tmp_path, paths, tokenizer))
    path = tmp_path / "ids" / ("source.ids", "target.ids")[side]
    path.write_bytes(b"\xff" * 4 + path.read_bytes()[4:])
    with pytest.raises(ValueError, match=rf"{path.name} is damaged: .* id 65535, and .* has 10 tokens\. Remove"):
        list(encode(tmp_path, paths, tokenizer)[side])
    path.unlink()
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before


def test_two_do_not_make_ids_in_one_folder(tokenizer, tmp_path, paths):
    with locked(tmp_path / "ids"), pytest.raises(BlockingIOError, match="ids is in use by another process"):
        encode(tmp_path, paths, tokenizer)


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (13, b"\n", r"my\.en, line 13: empty\."),
        (24, b"\xff\n", r"my\.en, line 24: not UTF-8"),
        (57, b"", r"my\.de has 57 lines and .*my\.en has 56\."),
        (57, b"one\none\ntwo\n", r"my\.de has 57 lines and .*my\.en has 59\."),
    ],
)
def test_a_bad_line_is_named_as_in_memory(tokenizer, tmp_path, paths, line, replacement, message):
    lines = paths[1].read_bytes().splitlines(keepends=True)
    paths[1].write_bytes(b"".join([*lines[: line - 1], replacement, *lines[line:]]))
    errors = []
    for read in (lambda: read_pairs(*paths), lambda: encode(tmp_path, paths, tokenizer)):
        with pytest.raises(ValueError, match=message) as caught:
            read()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_nothing_fits(tokenizer, tmp_path, paths):
    with pytest.raises(ValueError, match="no pair of 57 fits into 1 tokens"):
        encode(tmp_path, paths, tokenizer, longest=1)


def test_lines_are_read_as_often_as_they_are_asked_for(paths):
    lines = Lines(paths[0])
    assert list(lines) == list(lines) == read_lines(paths[0])
    assert (len(lines), lines[31]) == (57, read_lines(paths[0])[31])


def test_the_command_line_trains_on_them_as_from_memory_and_resumes(corpus, tmp_path):
    val = [f"--val-{side}={corpus / name}" for side, name in (("source", "my.de"), ("target", "my.en"))]
    at_once, in_halves = tmp_path / "memory", tmp_path / "mapped"
    assert main(train_arguments(corpus, at_once, *val, "--epochs", "2")) == 0
    assert main(train_arguments(corpus, in_halves, *val, "--mapped", str(tmp_path / "ids"), "--epochs", "1")) == 0
    assert main(["train", "--resume", "--out", str(in_halves), "--epochs", "2"]) == 0
    losses, weights = (
        [f(out) for out in (at_once, in_halves)]
        for f in (
            lambda out: [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()],
            lambda out: (out / "model.safetensors").read_bytes(),
        )
    )
    assert losses[0] == losses[1] and weights[0] == weights[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--corpus captions --mapped ids", "--mapped is for --source and --target, with --val-source"),
        ("--source my.de --target my.en --mapped ids", "--mapped is for --source and --target, with --val-source"),
        ("--text my.de --mapped ids", "--mapped is for translation, not for generation"),
    ],
)
def test_what_cannot_be_mapped_is_said(tmp_path, capsys, words, message):
    assert main(["train", "--out", str(tmp_path / "run"), *words.split()]) == 2
    assert message in capsys.readouterr().err
