"""Pairs that do not fit into memory: their ids lie in a file that is mapped, and a batch reads its own when needed.

The file holds source, target, source, target, …: each row ends in <eos>, which occurs nowhere else. Its name is a
checksum of all that the ids are made from, so that ids of something else, which stay, are never taken for these.
"""

import hashlib
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from annotated.config import EOS
from annotated_workbench.data import Lines, Pairs, encode_pairs, require_aligned, require_some
from annotated_workbench.files import checksum, remove_leftovers, whole_file
from annotated_workbench.vocabulary import Tokenizer

PAIRS_AT_ONCE = 20_000  # pairs are read, encoded and written in blocks of this size


class MappedRows(Sequence[Any]):
    """Rows of ids in a file; in memory are the places where each starts and ends."""

    def __init__(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray):
        self._ids, self._starts, self._ends = ids, starts, ends
        self.lengths = torch.from_numpy(ends - starts)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: Any) -> Any:
        return self._ids[self._starts[i] : self._ends[i]].tolist()


def file_checksum(path: Path) -> str:
    """Sum up what a file holds."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_files(
    folder: str | Path, source: Path, target: Path, tokenizer: Tokenizer, src: str, tgt: str, max_length: int
) -> tuple[MappedRows, MappedRows]:
    """Turn two aligned files into a file of ids, unless it is there: as `encode_pairs` does, without too long pairs.

    Errors as for `Lines`, or no pair is short enough.
    """
    folder, pairs = Path(folder), Pairs(Lines(source), Lines(target))
    require_aligned(pairs, (source, target))
    made_from = file_checksum(source), file_checksum(target), src, tgt, str(max_length)
    path = folder / f"{checksum([tokenizer.content(), *(part.encode() for part in made_from)])}.ids"
    dtype = np.uint16 if len(tokenizer) <= 2**16 else np.uint32
    if not path.exists():
        remove_leftovers(folder)
        _encode(path, dtype, pairs, tokenizer, src, tgt, max_length)
    ids = np.memmap(path, dtype, "r")
    ends = np.flatnonzero(ids == EOS) + 1
    starts = np.concatenate(([0], ends[:-1]))
    return MappedRows(ids, starts[0::2], ends[0::2]), MappedRows(ids, starts[1::2], ends[1::2])


def _encode(path: Path, dtype: Any, pairs: Pairs, tokenizer: Tokenizer, src: str, tgt: str, max_length: int) -> None:
    """Write the ids, some pairs at a time; the file gets its name when it is whole and on the disk."""
    from tqdm.auto import tqdm

    rest, kept = zip(*pairs, strict=True), 0
    with whole_file(path) as file, tqdm(total=len(pairs.source), desc="tokens", unit=" pairs", disable=None) as bar:
        while some := list(islice(rest, PAIRS_AT_ONCE)):
            part = Pairs(*map(list, zip(*some, strict=True)))
            sources, targets, _ = encode_pairs(part, tokenizer, src, tgt, max_length, drop_long=True)
            rows = chain.from_iterable(zip(sources, targets, strict=True))
            file.write(np.fromiter(chain.from_iterable(rows), dtype).tobytes())
            kept += len(sources)
            bar.update(len(some))
        require_some(kept, len(pairs.source), max_length)
