"""Pairs that do not fit into memory: their ids lie in files, and a batch reads its own when it is its turn.

A folder holds, of each side, the ids of all rows one after the other (`source.ids`) and where each row ends
(`source.ends`), and in `ids.json` a `Note`. What stays in memory are the lengths.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from annotated.config import BOS, EOS
from annotated_workbench.data import (
    SENTENCES,
    Batch,
    Pairs,
    encode_kept,
    encode_pairs,
    pad,
    require_aligned,
    require_some,
    sentences,
)
from annotated_workbench.distributed import in_turn
from annotated_workbench.files import locked, remove_leftovers, write_whole
from annotated_workbench.tasks import Batches, TranslationTask, checksum, say_left_out, tokenizer_checksum
from annotated_workbench.vocabulary import Tokenizer

SIDES = ("source", "target")
NOTE = "ids.json"
PAIRS_AT_ONCE = 20_000  # that are read, encoded and written together


@dataclass
class Note:
    """What the files of ids were made from, and how far they are."""

    made_from: dict[str, Any]  # a checksum or setting by the name of what changes the ids
    dtype: str  # of an id
    done: bool
    lines: int  # that were read, short enough or not
    rows: int  # that are in the files
    read: list[int]  # bytes of each side's sentences
    ids: list[int]  # that were written of each side

    def sizes(self) -> dict[str, int]:
        """Tell how many bytes of each file are written for good."""
        width = np.dtype(self.dtype).itemsize
        ids = {f"{side}.ids": width * count for side, count in zip(SIDES, self.ids, strict=True)}
        return ids | {f"{side}.ends": 8 * self.rows for side in SIDES}


def write_note(folder: Path, note: Note) -> None:
    """Write a note whole or not at all."""
    write_whole(folder / NOTE, json.dumps(asdict(note), indent=2).encode())


def read_note(folder: Path) -> Note:
    """Read what `write_note` wrote.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    try:
        note = Note(**json.loads((folder / NOTE).read_bytes()))
        counts = [note.lines, note.rows, *note.read, *note.ids]
        whole = all(type(count) is int and count >= 0 for count in counts) and len(note.read) == len(note.ids) == 2
    except (TypeError, ValueError, RecursionError):
        whole = False
    if not (whole and type(note.done) is bool and type(note.made_from) is dict and note.dtype in ("uint16", "uint32")):
        raise ValueError(f"{folder / NOTE} is damaged. Remove it: the ids are made anew.")
    return note


class Lines(Sequence[str]):
    """The sentences of a UTF-8 file, as `read_lines` gives them, but read again whenever they are asked for.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no file {path}. Give {SENTENCES}.")
        if not self.path.stat().st_size:
            raise ValueError(f"{path} has no lines. Give {SENTENCES}.")

    def __len__(self) -> int:
        with open(self.path, "rb") as file:
            return sum(1 for _ in file)

    def __iter__(self) -> Iterator[str]:
        first = 1
        with open(self.path, "rb") as file:
            while lines := list(islice(file, PAIRS_AT_ONCE)):
                yield from sentences(b"".join(lines), self.path, first)
                first += len(lines)

    def __getitem__(self, index: Any) -> Any:
        """Read on until this sentence: slow."""
        return next(islice(self, index, None))


class MappedPairs:
    """Rows of ids in files, as `encode_files` leaves them.

    Args:
        folder: where they are.
        tokens: how many the tokenizer has; an id lies below.

    Raises:
        ValueError: the note there is damaged.
    """

    def __init__(self, folder: str | Path, tokens: int):
        self.folder, self.tokens = Path(folder), tokens
        self.note = read_note(self.folder)
        self._ids = [np.memmap(self.folder / f"{side}.ids", self.note.dtype, "r") for side in SIDES]
        self._ends = [np.memmap(self.folder / f"{side}.ends", np.int64, "r") for side in SIDES]
        source, target = (np.diff(ends, prepend=0).astype(np.int32) for ends in self._ends)
        self.lengths = [source + 1, target + 2]  # <eos>; <bos> and <eos>

    def __len__(self) -> int:
        return len(self.lengths[0])

    def source(self, i: int) -> list[int]:
        """Read the ids of a source, with <eos>."""
        return [*self._row(0, i), EOS]

    def target(self, i: int) -> list[int]:
        """Read the ids of a target, with <bos> and <eos>."""
        return [BOS, *self._row(1, i), EOS]

    def _row(self, side: int, i: int) -> list[int]:
        ends = self._ends[side]
        return self._ids[side][ends[i - 1] if i else 0 : ends[i]].tolist()

    def batches(self, max_tokens: int, *, seed: int | None = None) -> "MappedBatches":
        """Make the batches that `make_batches` makes of the same rows, without reading them.

        Args:
            max_tokens, seed: as there.

        Raises:
            ValueError: one pair alone is above the budget.
        """
        source, target = self.lengths
        longer = np.maximum(source, target)
        longest = int(longer.max())
        if longest > max_tokens:
            raise ValueError(f"a pair has {longest} tokens; max_tokens = {max_tokens} must hold any one pair.")
        generator = torch.Generator()
        order = np.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=generator.manual_seed(seed)).numpy()
        key = longer * np.int64(2 * longest + 1) + np.where(longer % 2, source - target, target - source)
        order = order[np.argsort(key[order], kind="stable")]
        starts = _starts(longer[order], max_tokens)
        groups = np.stack([starts, [*starts[1:], len(order)]], axis=1)
        if seed is not None:
            groups = groups[torch.randperm(len(groups), generator=generator).numpy()]
        return MappedBatches(self, order, groups)


def _starts(lengths: NDArray[np.int32], max_tokens: int) -> list[int]:
    """Cut ascending lengths into groups in which rows · longest ≤ max_tokens; return where each begins."""
    starts, start = [], 0
    while start < len(lengths):
        starts.append(start)
        following = lengths[start : start + max_tokens // int(lengths[start])]
        fits = np.arange(1, len(following) + 1) * following.astype(np.int64) <= max_tokens
        start += int(fits.sum())
    return starts


class MappedBatches(Sequence[Batch]):
    """Batches that are read when they are asked for.

    Args:
        pairs: where the rows are.
        order: numbers of rows, the rows of a batch side by side.
        groups: where in `order` each batch begins and ends.
    """

    def __init__(self, pairs: MappedPairs, order: NDArray[np.int64], groups: NDArray[np.int64]):
        self.pairs, self.order, self.groups = pairs, order, groups

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> "MappedBatches": ...

    def __getitem__(self, index: int | slice) -> "Batch | MappedBatches":
        if isinstance(index, slice):
            return MappedBatches(self.pairs, self.order, self.groups[index])
        rows = self.order[slice(*self.groups[index])].tolist()
        batch = Batch(pad([self.pairs.source(i) for i in rows]), pad([self.pairs.target(i) for i in rows]))
        for side, ids in zip(SIDES, batch, strict=True):
            if (largest := int(ids.max())) >= self.pairs.tokens:  # a checksum would have to read all files first
                raise ValueError(
                    f"{self.pairs.folder / f'{side}.ids'} is damaged: it holds the id {largest}, and the tokenizer has "
                    f"{self.pairs.tokens} tokens. Remove it: the ids are made anew."
                )
        return batch

    def padding_share(self) -> float:
        """Measure what `annotated_workbench.data.padding_share` does, from the lengths."""
        total = tokens = 0
        for begin, end in self.groups:
            for lengths in self.pairs.lengths:
                rows = lengths[self.order[begin:end]]
                total += len(rows) * int(rows.max())
                tokens += int(rows.sum())
        return (total - tokens) / total


def encode_files(
    folder: str | Path,
    source: str | Path,
    target: str | Path,
    tokenizer: Tokenizer,
    src: str,
    tgt: str,
    max_length: int,
) -> MappedPairs:
    """Turn two aligned files into files of ids; go on where an earlier call was cut off.

    Pairs that are too long are left out. What was made from something else, be it another length, is made anew.

    Args:
        folder: for the ids; made if it does not exist.
        source, target: UTF-8, one sentence a line.
        tokenizer: encodes both.
        src, tgt: their languages.
        max_length: the most positions of a pair, as in `encode_pairs`.

    Raises:
        FileNotFoundError: a file is missing.
        BlockingIOError: another process makes ids there.
        ValueError: a line is bad, the files have different numbers of lines, or no pair is short enough.
    """
    folder, paths = Path(folder), [Lines(path).path for path in (source, target)]
    made_from = {
        "sentences to translate": _file_checksum(paths[0]),
        "translations": _file_checksum(paths[1]),
        "tokens": tokenizer_checksum(tokenizer),
        "languages": [src, tgt],
        "longest pair": max_length,
    }
    with locked(folder):
        remove_leftovers(folder)
        note = _usable_note(folder, made_from)
        if note is None:
            note = Note(made_from, "uint16" if len(tokenizer) <= 2**16 else "uint32", False, 0, 0, [0, 0], [0, 0])
            (folder / NOTE).unlink(missing_ok=True)
            for name in note.sizes():
                (folder / name).unlink(missing_ok=True)  # a training that still reads them keeps them
                (folder / name).touch()
            write_note(folder, note)
        if not note.done:
            _encode_rest(folder, note, paths, tokenizer, src, tgt, max_length)
    return MappedPairs(folder, len(tokenizer))


def _usable_note(folder: Path, made_from: dict[str, Any]) -> Note | None:
    """Read how far the ids are that were made from the same; None where there are none. Say what is found."""
    try:
        note = read_note(folder)
        whole = all((folder / name).stat().st_size >= size for name, size in note.sizes().items())
    except (FileNotFoundError, ValueError):
        if not (folder / NOTE).exists():
            return None
        whole = False
    if not whole:
        problem = "are damaged"
    elif changed := [name for name, value in made_from.items() if note.made_from.get(name) != value]:
        problem = f"were made from other {' and '.join(changed)}"
    else:
        if not note.done:
            print(f"{folder} holds the ids of {note.lines:,} pairs: going on from there.", flush=True)
        return note
    print(f"{folder} holds ids that {problem}: making them anew.", flush=True)
    return None


def _encode_rest(
    folder: Path, note: Note, paths: list[Path], tokenizer: Tokenizer, src: str, tgt: str, max_length: int
) -> None:
    """Encode the pairs that the note does not count yet, some at a time, and note each time how far it is."""
    from tqdm.auto import tqdm

    with ExitStack() as files:
        texts = [files.enter_context(open(path, "rb")) for path in paths]
        for text, begin in zip(texts, note.read, strict=True):
            text.seek(begin)
        outputs = {name: files.enter_context(open(folder / name, "r+b")) for name in note.sizes()}
        for name, size in note.sizes().items():
            outputs[name].truncate(size)
            outputs[name].seek(size)
        total = paths[0].stat().st_size
        bar = files.enter_context(
            tqdm(total=total, initial=note.read[0], desc="tokens", unit="B", unit_scale=True, disable=None)
        )
        while any(parts := [list(islice(text, PAIRS_AT_ONCE)) for text in texts]):
            if len(parts[0]) != len(parts[1]):
                left = [len(part) + sum(1 for _ in text) for part, text in zip(parts, texts, strict=True)]
                require_aligned([note.lines + count for count in left], paths)
            pairs = (sentences(b"".join(part), path, note.lines + 1) for part, path in zip(parts, paths, strict=True))
            encoded = encode_kept(Pairs(*pairs), tokenizer, src, tgt, max_length, drop_long=True)
            bare = [row[:-1] for row in encoded.sources], [row[1:-1] for row in encoded.targets]
            for number, (side, rows) in enumerate(zip(SIDES, bare, strict=True)):
                ends = note.ids[number] + np.cumsum([len(row) for row in rows], dtype=np.int64)
                outputs[f"{side}.ids"].write(np.fromiter(chain.from_iterable(rows), note.dtype).tobytes())
                outputs[f"{side}.ends"].write(ends.tobytes())
                note.ids[number] += sum(map(len, rows))
            for file in outputs.values():
                file.flush()
                os.fsync(file.fileno())
            note.lines += len(parts[0])
            note.rows += len(encoded.kept)
            note.read = [text.tell() for text in texts]
            write_note(folder, note)
            bar.update(note.read[0] - bar.n)
    require_some(note.rows, note.lines, max_length)
    note.done = True
    write_note(folder, note)


def _file_checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class MappedTask(TranslationTask):
    """Learn to translate from pairs in files, which are read bit by bit; the batches are those of a `TranslationTask`.

    Args:
        tokenizer: turns the pairs into ids.
        folder: for the ids, as in `encode_files`.
        source, target: files of training pairs; too long ones are left out.
        val: validation pairs, decoded greedily; too long ones are left out.
        src, tgt: the languages.
        max_length: the longest source or target, in tokens.

    Raises:
        FileNotFoundError, BlockingIOError, ValueError: as `encode_files` does.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        folder: str | Path,
        source: str | Path,
        target: str | Path,
        val: Pairs,
        src: str,
        tgt: str,
        max_length: int,
    ):
        self.tokenizer, self.info = tokenizer, {"src": src, "tgt": tgt}
        short = encode_pairs(val, tokenizer, src, tgt, max_length, drop_long=True).kept
        with in_turn():
            self.pairs = encode_files(folder, source, target, tokenizer, src, tgt, max_length)
        say_left_out("training", len(self.pairs), self.pairs.note.lines, max_length)
        say_left_out("validation", len(short), len(val.source), max_length)
        self.val = Pairs(*([side[i] for i in short] for side in val))
        self.identity = self.info | {"ids": checksum([json.dumps(self.pairs.note.made_from).encode()])}

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: pairs of similar length, at most `batch_tokens` ids a side."""
        return self.pairs.batches(batch_tokens, seed=seed)
