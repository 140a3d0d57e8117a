"""Pairs that do not fit into memory: their ids lie in files, and a batch reads its own when it is its turn.

A folder holds, of each side, the ids of all rows one after the other (`source.ids`), where each row ends
(`source.ends`), and in `ids.json`, written last, what they were made from. What stays in memory are the lengths.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from annotated_workbench.data import Lines, Pairs, encode_pairs, require_aligned, require_some
from annotated_workbench.files import checksum, locked, remove_leftovers, write_whole
from annotated_workbench.vocabulary import Tokenizer

SIDES = ("source", "target")
NOTE = "ids.json"
PAIRS_AT_ONCE = 20_000  # that are read, encoded and written together


class MappedRows(Sequence[Any]):
    """Rows of ids in files, as `encode_files` leaves them; `lengths` are in memory.

    Args:
        folder: where they are.
        side: "source" or "target".
        tokens: how many the tokenizer has; an id lies below.
    """

    def __init__(self, folder: Path, side: str, tokens: int):
        self.path, self.tokens = folder / f"{side}.ids", tokens
        self._ids = np.memmap(self.path, dtype_of(tokens), "r")
        self._ends = np.memmap(folder / f"{side}.ends", np.int64, "r")
        self.lengths = torch.from_numpy(np.diff(self._ends, prepend=0).astype(np.int32))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: Any) -> Any:
        row = self._ids[self._ends[i - 1] if i else 0 : self._ends[i]].tolist()
        if max(row) >= self.tokens:  # a checksum would have to read all files first
            raise ValueError(
                f"{self.path} is damaged: it holds the id {max(row)}, and the tokenizer has {self.tokens} tokens. "
                "Remove it: the ids are made anew."
            )
        return row


def dtype_of(tokens: int) -> type[np.unsignedinteger]:
    """Choose the type that ids are written in, by the number of tokens."""
    return np.uint16 if tokens <= 2**16 else np.uint32


def file_checksum(path: Path) -> str:
    """Sum up what a file holds."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_files(
    folder: str | Path, source: Path, target: Path, tokenizer: Tokenizer, src: str, tgt: str, max_length: int
) -> tuple[MappedRows, MappedRows]:
    """Turn two aligned files into files of ids, unless they are there: as `encode_pairs` does, without too long pairs.

    What was made from something else, be it another length, or was cut off, is made anew.

    Args:
        folder: for the ids; made if it does not exist.
        source, target: UTF-8, one sentence a line.
        tokenizer: encodes both.
        src, tgt: their languages.
        max_length: the most positions of a pair.

    Raises:
        FileNotFoundError: a file is missing.
        BlockingIOError: another process makes ids there.
        ValueError: a line is bad, the files have different numbers of lines, or no pair is short enough.
    """
    folder, pairs = Path(folder), Pairs(Lines(source), Lines(target))
    require_aligned(pairs, (source, target))
    made_from = {
        "sentences to translate": file_checksum(source),
        "translations": file_checksum(target),
        "tokens": checksum([tokenizer.content()]),
        "languages": [src, tgt],
        "longest pair": max_length,
    }
    with locked(folder):
        remove_leftovers(folder)
        if not _is_made(folder, made_from):
            (folder / NOTE).unlink(missing_ok=True)
            sizes = _encode(folder, pairs, tokenizer, src, tgt, max_length)
            write_whole(folder / NOTE, json.dumps({"made from": made_from, "sizes": sizes}, indent=2).encode())
    source_rows, target_rows = (MappedRows(folder, side, len(tokenizer)) for side in SIDES)
    return source_rows, target_rows


def _is_made(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Tell whether the ids are there, whole and made from the same; say why not where there are any."""
    if not any((folder / f"{side}.ids").exists() for side in SIDES):
        return False
    try:
        note = json.loads((folder / NOTE).read_bytes())
        damaged = any((folder / name).stat().st_size != size for name, size in note["sizes"].items())
        changed = [name for name, value in made_from.items() if note["made from"].get(name) != value]
    except (AttributeError, FileNotFoundError, KeyError, TypeError, ValueError, RecursionError):
        damaged, changed = True, []
    if damaged:
        print(f"{folder} holds ids that are damaged or were cut off: making them anew.", flush=True)
    elif changed:
        print(f"{folder} holds ids that were made from other {' and '.join(changed)}: making them anew.", flush=True)
    return not damaged and not changed


def _encode(folder: Path, pairs: Pairs, tokenizer: Tokenizer, src: str, tgt: str, max_length: int) -> dict[str, int]:
    """Write the files of ids, some pairs at a time, onto the disk; return how many bytes each has."""
    from tqdm.auto import tqdm

    names = [f"{side}.{kind}" for side in SIDES for kind in ("ids", "ends")]
    dtype, written = dtype_of(len(tokenizer)), [0, 0]
    with ExitStack() as stack:
        for name in names:
            (folder / name).unlink(missing_ok=True)  # a training that still reads them keeps them
        files = {name: stack.enter_context(open(folder / name, "xb")) for name in names}
        bar = stack.enter_context(tqdm(total=len(pairs.source), desc="tokens", unit=" pairs", disable=None))
        rest = zip(*pairs, strict=True)
        while some := list(islice(rest, PAIRS_AT_ONCE)):
            sources, targets, _ = encode_pairs(
                Pairs(*map(list, zip(*some, strict=True))), tokenizer, src, tgt, max_length, drop_long=True
            )
            for number, (side, rows) in enumerate(zip(SIDES, (sources, targets), strict=True)):
                ends = written[number] + np.cumsum([len(row) for row in rows], dtype=np.int64)
                files[f"{side}.ids"].write(np.fromiter(chain.from_iterable(rows), dtype).tobytes())
                files[f"{side}.ends"].write(ends.tobytes())
                written[number] += sum(map(len, rows))
            bar.update(len(some))
        require_some(written[0], len(pairs.source), max_length)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return {name: (folder / name).stat().st_size for name in names}
