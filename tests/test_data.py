"""Corpora, files of one's own, and batches."""

import gzip
import hashlib
import os
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pooch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from once import once

from annotated.config import BOS, EOS, PAD, UNK
from annotated_workbench import data
from annotated_workbench.commands.shared import tell_doubles
from annotated_workbench.data import Batch, Pairs, load_corpus, make_batches, pad, read_lines
from annotated_workbench.tasks import TranslationTask
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer

pytestmark = once
LENGTHS = st.lists(st.tuples(st.integers(1, 13), st.integers(2, 17)), min_size=1, max_size=60)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


SURROUNDED = [b"Ein\nHund", b"Ein\nHund\n", b"Ein\r\nHund\r\n", b" Ein \t\n\tHund  \n"]
SURROUNDED += [b"\xef\xbb\xbfEin\nHund\n", b"Ein\n\xef\xbb\xbfHund\n"]  # of two files put together


@pytest.mark.parametrize("content", SURROUNDED)
def test_lines_come_without_what_surrounds_them(tmp_path, content):
    assert read_lines(write(tmp_path / "my.de", content)) == ["Ein", "Hund"]
    for separator in "\u2028\u2029\u0085\v\f\x1c":  # inside a line
        path = write(tmp_path / "other.de", content.replace(b"in", f"i{separator}n".encode()))
        assert read_lines(path) == [f"Ei{separator}n", "Hund"]


@pytest.mark.parametrize(("name", "pack"), [("my.gz", gzip.compress), ("my.gz", bytes), ("my.de", gzip.compress)])
def test_a_packed_file_and_a_pipe_are_read_alike_whatever_the_name(tmp_path, name, pack):
    content = "\n".join(f"Sa\u0308tz {i}" for i in range(50)).encode()
    reader, writer = os.pipe()
    with open(reader):
        with open(writer, "wb") as file:
            file.write(pack(content))
        path = write(tmp_path / name, pack(content))
        assert read_lines(path) == read_lines(f"/dev/fd/{reader}") == [f"Sätz {i}" for i in range(50)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A Multi30k of one sentence pair a split on a server of our own, an empty cache, and no ANNOTATED_DATA."""
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path / "server")) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        registry = ""
        for line in data.DOWNLOADS.read_text(encoding="utf-8").splitlines()[1:]:
            file, name = line.split()[0], line.split()[0].partition("/")[2]
            content = gzip.compress(f"{name.removesuffix('.gz')}\n".encode())
            write(tmp_path / "server" / name, content)
            registry += f"{file} {hashlib.sha256(content).hexdigest()} http://127.0.0.1:{server.server_port}/{name}\n"
        monkeypatch.setattr(data, "DOWNLOADS", write(tmp_path / "downloads.txt", registry))
        monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("ANNOTATED_DATA", raising=False)
        yield tmp_path
        server.shutdown()


def cached(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("cache/annotated/multi30k/*"))


def test_multi30k_is_downloaded_once(home):
    assert load_corpus("multi30k", "val") == (["val.de"], ["val.en"])
    assert cached(home) == ["val.de.gz", "val.en.gz"]
    (home / "server" / "val.de.gz").unlink()
    assert load_corpus("multi30k", "val", src="en", tgt="de") == (["val.en"], ["val.de"])


def test_captions_in_either_direction_and_shakespeare_come_with_the_repository():
    pairs = load_corpus("grammar", "val")
    assert len(pairs.source) == len(pairs.target) >= 500 and "ein" in pairs.source[0].lower()
    assert load_corpus("grammar", "val", "en", "de") == (pairs.target, pairs.source)
    training, held_out = data.split_text(data.load_text("tinyshakespeare"))
    assert (len(training), len(held_out)) == (1_003_854, 111_540) and training.startswith("First Citizen:\n")


def test_a_wrong_path_to_ones_own_multi30k_is_an_error_and_no_download(home, monkeypatch):
    write(home / "mine" / "multi30k" / "val.de", "Mein Hund.\n")
    for folder, missing in (("typo", "val.de"), ("mine", "val.en")):
        monkeypatch.setenv("ANNOTATED_DATA", str(home / folder))
        with pytest.raises(FileNotFoundError, match=rf"no .*{folder}/multi30k/{missing}\. Correct ANNOTATED_DATA"):
            load_corpus("multi30k", "val")
    assert cached(home) == []


def test_a_wrong_checksum_names_both_and_keeps_nothing(home):
    wrong = gzip.compress(b"val.de \n")
    write(home / "server" / "val.de.gz", wrong)
    got = hashlib.sha256(wrong).hexdigest()
    with pytest.raises(ValueError, match=rf"val\.de\.gz is not the file it was.*{got}.*ANNOTATED_DATA"):
        load_corpus("multi30k", "val")
    assert cached(home) == []


def test_no_network_says_where_to_put_the_files(home):
    registry = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", data.DOWNLOADS.read_text(encoding="utf-8"))
    write(data.DOWNLOADS, registry)  # nobody answers at port 9 of this machine
    with pytest.raises(FileNotFoundError, match=r"cannot download .*put train\.de, .*en into a folder multi30k and"):
        load_corpus("multi30k", "train")
    assert cached(home) == []


def test_all_that_is_downloaded_has_a_checksum_and_an_address_that_is_kept():
    rows = [line.split() for line in data.DOWNLOADS.read_text(encoding="utf-8").splitlines()[1:]]
    files = {f"multi30k/{split}.{language}.gz" for split in data.CORPORA["multi30k"] for language in ("de", "en")}
    assert {file for file, _, _ in rows} == files
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for _, checksum, _ in rows)
    assert all(url.startswith("https://") and url.endswith(file.partition("/")[2]) for file, _, url in rows)


def test_holding_out_splits_the_pairs_by_the_seed_alone_on_every_torch():
    pairs = Pairs(list("abcdefghijk"), list("ABCDEFGHIJK"))
    assert data.hold_out(pairs, 3, seed=5) == ((list("bcdeghik"), list("BCDEGHIK")), (list("afj"), list("AFJ")))
    assert data.hold_out(pairs, 3, seed=6)[1] != (["a", "f", "j"], ["A", "F", "J"])


def test_what_is_held_out_and_also_learned_is_counted_whatever_its_case_punctuation_and_form(capsys):
    tell_doubles(Pairs(["Ein K\u00e4fer.", "x"], ["A bee.", "y"]), Pairs(["ein ka\u0308fer", "x"], ["a BEE", "z"]))
    assert capsys.readouterr().out.startswith("Careful: 1 of the 2 held out for validation are also in the training")


def test_pairs_that_are_not_translated_are_counted(tmp_path, capsys):
    path = write(tmp_path / "my.de", "Ein Hund.\nJa.\nOK.\n")
    data.read_pairs(path, write(tmp_path / "my.en", "Ein Hund.\r\nYes.\r\nOK."))
    assert capsys.readouterr().out.startswith(f"Careful: 2 of the 3 lines in {path} stand untranslated in {tmp_path}")


def test_long_pairs_are_named_or_dropped_on_demand():
    words = WordTokenizer(Vocabulary([*SPECIALS, "ein", "Hund", "a", "dog", "runs"]), ["de", "en"])
    pairs = Pairs(["ein Hund", "ein"], ["a dog", "a dog runs runs"])
    assert data.encode_pairs(pairs, words, "de", "en", max_length=5).kept == [0, 1]
    with pytest.raises(ValueError, match=r"line 2 \('ein' …\) is 5 tokens long .*limit is 4.*Shorten"):
        data.encode_pairs(pairs, words, "de", "en", max_length=4)
    pairs = Pairs(["ein", "ein Hund", "Hund"], ["a", "a dog runs", "cat"])
    encoded = data.encode_pairs(pairs, words, "de", "en", max_length=3, drop_long=True)
    assert encoded == ([[4, EOS], [5, EOS]], [[BOS, 6, EOS], [BOS, UNK, EOS]], [0, 2])
    with pytest.raises(ValueError, match="no pair of 3 fits into 1 tokens"):
        TranslationTask(words, pairs, pairs, "de", "en", max_length=1)


def test_padding_goes_to_the_right():
    ids = pad([[4, 5, 2], [6, 7, 8, 9, 2]])
    assert torch.equal(ids, torch.tensor([[4, 5, 2, PAD, PAD], [6, 7, 8, 9, 2]]))
    assert ids.dtype == pad([[]]).dtype == torch.int64
    assert data.padding_share([Batch(ids, pad([[1, 2], [1]]))]) == 3 / 14


def numbered(lengths: list[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of these lengths, whose ids tell which pair they belong to."""
    return [[i + 4] * s for i, (s, _) in enumerate(lengths)], [[i + 4] * t for i, (_, t) in enumerate(lengths)]


@given(LENGTHS, st.integers(17, 90), st.none() | st.integers(0, 2**31))
def test_batches_hold_each_pair_once_within_the_budget(lengths, max_tokens, seed):
    sources, targets = numbered(lengths)
    rows = []
    for batch in make_batches(sources, targets, max_tokens, seed=seed):
        for ids in batch:
            assert ids.dtype == torch.int64 and ids.numel() <= max_tokens
            assert (ids != PAD).any(dim=0).all()  # no column is padding alone
        for pair in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
            rows.append(tuple(row[: len(row) - row.count(PAD)] for row in pair))
    assert sorted(rows) == sorted(zip(sources, targets, strict=True))


def test_batches_by_hand():
    sources, targets = numbered([(3, 2), (1, 2), (5, 7), (2, 2), (4, 2), (4, 3), (6, 7)])
    batches = make_batches(sources, targets, max_tokens=8)
    # Longer sides 3, 2, 7, 2, 4, 4, 7. A third row beside the 2s, of 3, would make 9. Rows of 3 and 4 make 8: they fit.
    src = [[[7, 7], [5, PAD]], [[4, 4, 4, PAD], [8, 8, 8, 8]], [[9] * 4], [[6] * 5], [[10] * 6]]
    tgt = [[[7, 7], [5, 5]], [[4, 4], [8, 8]], [[9] * 3], [[6] * 7], [[10] * 7]]
    assert [(batch.src.tolist(), batch.tgt.tolist()) for batch in batches] == list(zip(src, tgt, strict=True))


def test_a_seed_mixes_equal_pairs_and_the_order_of_batches_the_same_on_every_torch():
    sources, targets = numbered([(2, 3)] * 5 + [(5, 7)] * 2)
    numbers = [[row[0] - 4 for row in batch.src.tolist()] for batch in make_batches(sources, targets, 7, seed=1)]
    assert numbers == [[3, 2], [4], [5], [6], [0, 1]]
