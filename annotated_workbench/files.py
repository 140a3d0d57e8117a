"""Files that survive a crash: written whole or not at all, and one process at a time in a folder."""

import fcntl
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and onto the disk before this returns; makes the folder if need be.

    The content goes into a new file beside it, whose name nobody can guess, and then takes the other's place. A process
    killed meanwhile leaves that new file behind; `remove_leftovers` finds it.

    Args:
        path: the file to write or replace. A symbolic link is replaced, not followed.
        content: its bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of names onto the disk: without that, a power cut may undo a finished renaming."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Delete what `write_whole` left in a folder, whose lock one holds, when its process was killed."""
    for path in folder.glob(".*.tmp"):
        if re.fullmatch(r"\.[0-9a-f]{16}\.tmp", path.name):
            path.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Work in a folder that no other process works in; the lock goes with the process, however that ends.

    Args:
        folder: made if it does not exist.

    Raises:
        BlockingIOError: another process works there; says which.
        NotADirectoryError: the folder is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(f"{folder} is a file: give a folder.") from None
    with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().strip() or "another process"
            raise BlockingIOError(f"{folder} is in use by {owner}: wait until it ends, or choose another.") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def checksum(parts: Iterable[bytes]) -> str:
    """Sum up what the parts are and where one ends."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8) + part)
    return total.hexdigest()[:16]
