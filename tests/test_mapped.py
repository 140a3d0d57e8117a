"""Pairs whose ids lie in files: the same batches and losses as from memory, made once, gone on with where cut off."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.__main__ import main
from annotated_workbench import mapped
from annotated_workbench.data import Pairs, encode_pairs, make_batches, padding_share, read_lines, read_pairs
from annotated_workbench.files import locked
from annotated_workbench.mapped import Lines, MappedPairs, MappedTask, encode_files
from annotated_workbench.runs import TrainingOptions, fit
from annotated_workbench.tasks import TranslationTask
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer
from tests.processes import make_model
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


def encode(around: Path, paths: list[Path], words, **changes) -> MappedPairs:
    given = {"folder": around / "ids", "source": paths[0], "target": paths[1], "src": "de", "tgt": "en"}
    return encode_files(**(given | {"tokenizer": words, "max_length": LENGTH} | changes))


def rows_of(pairs: MappedPairs) -> list[list[list[int]]]:
    return [[side(i) for i in range(len(pairs))] for side in (pairs.source, pairs.target)]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_the_rows_are_those_of_the_pairs_in_memory(tokenizer, tmp_path):
    paths = write_pairs(tmp_path)
    found = encode(tmp_path, paths, tokenizer)
    expected = encode_pairs(read_pairs(*paths), tokenizer, "de", "en", LENGTH, drop_long=True)
    assert 10 < len(found) == len(expected.kept) < found.note.lines == 57
    assert rows_of(found) == [expected.sources, expected.targets]
    assert [side.tolist() for side in found.lengths] == [
        list(map(len, expected.sources)),
        list(map(len, expected.targets)),
    ]


def same(ours, theirs) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("seed", [None, 0, 7])
@pytest.mark.parametrize("budget", [LENGTH + 1, 23, 64, 10**6])
def test_the_batches_are_those_from_memory(tokenizer, tmp_path, seed, budget):
    pairs = encode(tmp_path, write_pairs(tmp_path), tokenizer)
    ours, theirs = pairs.batches(budget, seed=seed), make_batches(*rows_of(pairs), budget, seed=seed)
    assert len(ours) == len(theirs)
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert all(same(a, b) for a, b in zip(ours[1:4], theirs[1:4], strict=True))
    assert padding_share(ours) == pytest.approx(padding_share(theirs))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(2, 9)), min_size=1, max_size=40),
    st.integers(9, 40),
    st.integers(0, 9),
)
def test_whatever_the_lengths_the_groups_are_those_from_memory(lengths, budget, seed):
    sources = [[n + 4] * source for n, (source, _) in enumerate(lengths)]
    targets = [[n + 4] * target for n, (_, target) in enumerate(lengths)]
    pairs = MappedPairs.__new__(MappedPairs)
    pairs.lengths = [np.array(side, dtype=np.int32) for side in zip(*lengths, strict=True)]
    batches = pairs.batches(budget, seed=seed)
    found = [batches.order[slice(*group)].tolist() for group in batches.groups]
    assert found == [(batch.src[:, 0] - 4).tolist() for batch in make_batches(sources, targets, budget, seed=seed)]


def test_a_pair_above_the_budget_is_named(tokenizer, tmp_path):
    pairs = encode(tmp_path, write_pairs(tmp_path), tokenizer)
    longest = max(int(side.max()) for side in pairs.lengths)
    with pytest.raises(ValueError, match=f"a pair has {longest} tokens; max_tokens = {longest - 1} must hold any one"):
        pairs.batches(longest - 1)


def test_the_losses_are_those_from_memory_bit_for_bit(tokenizer, tmp_path):
    paths = write_pairs(tmp_path)
    val = Pairs(["eins zwei"], ["one two"])
    tasks = (
        TranslationTask(tokenizer, read_pairs(*paths), val, "de", "en", LENGTH),
        MappedTask(tokenizer, tmp_path / "ids", *paths, val, "de", "en", LENGTH),
    )
    options = TrainingOptions(epochs=2, batch_tokens=40, accumulate=2, warmup=5)
    runs = [
        fit(make_model("translation", task, 0.1), task, tmp_path / str(i), options=options)
        for i, task in enumerate(tasks)
    ]
    assert [line["loss"] for line in runs[0]] == [line["loss"] for line in runs[1]]
    weights = [(tmp_path / str(i) / "model.safetensors").read_bytes() for i in range(2)]
    assert weights[0] == weights[1]


def test_what_is_made_is_not_made_again(tokenizer, tmp_path, monkeypatch, capsys):
    paths = write_pairs(tmp_path)
    before = rows_of(encode(tmp_path, paths, tokenizer))
    monkeypatch.setattr(mapped, "encode_kept", None)
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("chunks", [0, 1, 3])
@pytest.mark.parametrize("when", ["encode_kept", "write_note"])
def test_what_was_cut_off_goes_on(tokenizer, tmp_path, monkeypatch, capsys, chunks, when):
    paths = write_pairs(tmp_path)
    encode(tmp_path, paths, tokenizer, folder=tmp_path / "whole")
    left, whole = chunks + (when == "write_note"), getattr(mapped, when)  # the first note is written before all

    def stop(*args, **options):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return whole(*args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mapped, when, stop)
        encode(tmp_path, paths, tokenizer)
    encode(tmp_path, paths, tokenizer)
    assert content(tmp_path / "ids") == content(tmp_path / "whole")
    assert f"holds the ids of {10 * chunks} pairs: going on from there." in capsys.readouterr().out


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("what", ["sentences to translate", "translations", "tokens", "languages", "longest pair"])
def test_what_was_made_from_something_else_is_made_anew(tokenizer, tmp_path, monkeypatch, capsys, what, finished):
    paths = write_pairs(tmp_path)
    with monkeypatch.context() as patch:
        if not finished:
            patch.setattr(mapped, "encode_kept", None)
        try:
            encode(tmp_path, paths, tokenizer)
        except TypeError:
            assert not finished
    changes = {
        "tokens": {"tokenizer": WordTokenizer(Vocabulary([*SPECIALS, *reversed(WORDS)]), ("de", "en"))},
        "languages": {"tgt": "de"},
        "longest pair": {"max_length": 5},
    }.get(what, {})
    if what == "sentences to translate":
        write_pairs(tmp_path, last="zwei")
    if what == "translations":
        paths[1].write_text(paths[1].read_text().replace("one", "two", 1))
    ours = encode(tmp_path, paths, tokenizer, **changes)
    assert f"holds ids that were made from other {what}: making them anew." in capsys.readouterr().out
    theirs = encode(tmp_path, paths, tokenizer, folder=tmp_path / "new", **changes)
    assert content(tmp_path / "ids") == content(tmp_path / "new")
    assert rows_of(ours) == rows_of(theirs)


def test_who_still_reads_the_old_ids_keeps_them(tokenizer, tmp_path):
    old = encode(tmp_path, write_pairs(tmp_path), tokenizer)
    before = rows_of(old)
    encode(tmp_path, write_pairs(tmp_path, count=12), tokenizer)
    assert rows_of(old) == before


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-8]), lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["source.ids", "target.ends"])
def test_damaged_ids_are_made_anew(tokenizer, tmp_path, capsys, name, damage):
    paths = write_pairs(tmp_path)
    before = rows_of(encode(tmp_path, paths, tokenizer))
    damage(tmp_path / "ids" / name)
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before
    assert "holds ids that are damaged: making them anew." in capsys.readouterr().out


def without(path: Path) -> bytes:
    note = json.loads(path.read_bytes())
    return json.dumps({name: value for name, value in note.items() if name != "rows"}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        *(
            lambda path, content=content: content
            for content in (b"", b"{}", b"[]", b"5", b'{"a": 1}', b"\xff\0", b"[" * 10**5)
        ),
        lambda path: path.read_bytes()[:-9],
        lambda path: path.read_bytes().replace(b"uint16", b"object"),
        lambda path: re.sub(rb'("rows": )', rb"\1-", path.read_bytes()),
        lambda path: re.sub(rb'("ids": \[)\s*\d+,', rb"\1", path.read_bytes()),
        without,
    ],
)
def test_a_damaged_note_is_made_anew(tokenizer, tmp_path, capsys, damage):
    paths = write_pairs(tmp_path)
    before = rows_of(encode(tmp_path, paths, tokenizer))
    (tmp_path / "ids" / "ids.json").write_bytes(damage(tmp_path / "ids" / "ids.json"))
    with pytest.raises(ValueError, match=r"ids\.json is damaged\. Remove it"):
        MappedPairs(tmp_path / "ids", len(tokenizer))
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before
    assert "holds ids that are damaged: making them anew." in capsys.readouterr().out


@pytest.mark.parametrize("side", ["source", "target"])
def test_an_id_that_no_token_has_is_named(tokenizer, tmp_path, side):
    paths = write_pairs(tmp_path)
    before = rows_of(encode(tmp_path, paths, tokenizer))
    path = tmp_path / "ids" / f"{side}.ids"
    path.write_bytes(b"\xff" * 4 + path.read_bytes()[4:])
    with pytest.raises(
        ValueError, match=rf"{side}\.ids is damaged: it holds the id 65535, and .* has 10 tokens\. Remove"
    ):
        list(encode(tmp_path, paths, tokenizer).batches(64))
    path.unlink()
    assert rows_of(encode(tmp_path, paths, tokenizer)) == before


def test_two_do_not_make_ids_in_one_folder(tokenizer, tmp_path):
    with locked(tmp_path / "ids"), pytest.raises(BlockingIOError, match="ids is in use by process"):
        encode(tmp_path, write_pairs(tmp_path), tokenizer)


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (13, b"\n", r"my\.en, line 13: empty\."),
        (24, b"\xff\n", r"my\.en, line 24: not UTF-8"),
        (57, b"", r"my\.de has 57 lines and .*my\.en has 56\."),
        (57, b"one\none\ntwo\n", r"my\.de has 57 lines and .*my\.en has 59\."),
    ],
)
def test_a_bad_line_is_named_as_in_memory(tokenizer, tmp_path, line, replacement, message):
    paths = write_pairs(tmp_path)
    lines = paths[1].read_bytes().splitlines(keepends=True)
    paths[1].write_bytes(b"".join([*lines[: line - 1], replacement, *lines[line:]]))
    errors = []
    for read in (lambda: read_pairs(*paths), lambda: encode(tmp_path, paths, tokenizer)):
        with pytest.raises(ValueError, match=message) as caught:
            read()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_nothing_fits(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="no pair of 57 fits into 1 tokens"):
        encode(tmp_path, write_pairs(tmp_path), tokenizer, max_length=1)


def test_lines_are_read_as_often_as_they_are_asked_for(tmp_path):
    path = write_pairs(tmp_path)[0]
    lines = Lines(path)
    assert list(lines) == list(lines) == read_lines(path)
    assert (len(lines), lines[0], lines[31]) == (57, read_lines(path)[0], read_lines(path)[31])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Lines(tmp_path / "none")
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"my\.de has no lines"):
        Lines(path)


def test_the_command_line_trains_on_them_as_from_memory_and_resumes(corpus, tmp_path, capsys):
    val = [f"--val-{side}={corpus / name}" for side, name in (("source", "my.de"), ("target", "my.en"))]
    losses = []
    for name, more in (("memory", []), ("mapped", ["--mapped", str(tmp_path / "ids")])):
        out = tmp_path / name
        assert main(train_arguments(corpus, out, *val, *more, "--epochs", "1")) == 0
        assert main(["train", "--resume", "--out", str(out), "--epochs", "2"]) == 0
        losses.append([json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()])
    assert losses[0] == losses[1]
    printed = re.findall(r"\d+ batches an epoch, .*", capsys.readouterr().out)
    assert len(printed) == 4 and len(set(printed)) == 2


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
