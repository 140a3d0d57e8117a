"""Files that survive a crash: written whole or not at all, and one process at a time in a folder."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

LOCK = ".lock"
UNFINISHED = ".unfinished"  # ends the name of a file that is being written


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, as `whole_file` does."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write it whole or not at all, and onto the disk before this ends; makes the folder if need be.

    The content goes into a new file beside it, which then takes the other's place (a symbolic link's, too). A process
    killed meanwhile leaves that new file behind; `remove_leftovers` deletes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name != "nt":  # Windows opens no folder; elsewhere a power cut might undo the renaming
        descriptor = os.open(path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Delete the unfinished files of killed processes; the caller holds the folder's lock."""
    for path in folder.glob(f".*{UNFINISHED}"):
        path.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, made if need be; the system frees the lock however this process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(f"{folder} is a file: give a folder.") from None
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        message = f"{folder} is in use by another process: wait until it ends, or choose another."
        raise BlockingIOError(message) from None
    with held:
        yield


def checksum(parts: Iterable[bytes]) -> str:
    """Give 16 hexadecimal digits of a SHA-256 over the parts and their lengths."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8) + part)
    return total.hexdigest()[:16]
