"""Files that survive a crash: written whole or not at all, and one process at a time in a folder."""

import errno
import hashlib
import os
import secrets
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

LOCK, SOFT_LOCK = ".lock", ".locked"  # the second one where the system has no locks for files
LACKING = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # what a disk does not offer
UNFINISHED = ".unfinished"  # ends the name of a file that is being written
OURS = ".written-by-the-course"  # in a folder of a reader's: the checksum and name of each file that is not
MADE = ".made-by-the-course"  # in a folder that may be emptied


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and onto the disk before this ends; makes the folder if need be.

    The content goes into a new file beside it, which then takes the other's place (a symbolic link's, too). A process
    killed meanwhile leaves that new file behind; `remove_leftovers` deletes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            _to_the_disk(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name != "nt":  # Windows opens no folder; elsewhere a power cut might undo the renaming
        descriptor = os.open(path.parent, os.O_RDONLY)
        _to_the_disk(descriptor)
        os.close(descriptor)


def _to_the_disk(descriptor: int) -> None:
    """Wait until what was written is on the disk, unless the disk cannot tell."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in LACKING:
            raise


def write_ours(folder: Path, contents: Mapping[str, bytes], inputs: Sequence[str | Path] = ()) -> None:
    """Write files, by name, into a folder that may be a reader's, or none: `OURS` there lists them.

    A FileExistsError names the one that would replace an input, or what is not, as it stands, in that list.
    """
    listed = folder / OURS
    ours = set(listed.read_text("utf-8").splitlines()) if listed.exists() else set()
    for path in filter(os.path.lexists, map(folder.joinpath, contents)):
        kept = path.is_file() and f"{checksum([path.read_bytes()])} {path.name}" in ours  # not a folder or dead link
        if not kept or any(map(path.samefile, inputs)):
            raise FileExistsError(f"{path} is yours and would be overwritten: give another folder, or rename the file.")
    ours |= {f"{checksum([content])} {name}" for name, content in contents.items()}
    for name, content in {OURS: "\n".join(ours).encode(), **contents}.items():
        write_whole(folder / name, content)


def emptied(folder: Path) -> Path:
    """Make a folder, or empty one that was made so, and return it; a FileExistsError says that it holds another's."""
    if folder.exists() and not (folder / MADE).exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} was not made by the course: give a new folder, or remove this one yourself.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MADE).touch()
    for path in set(folder.iterdir()) - {folder / MADE}:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return folder


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
    try:
        with warnings.catch_warnings(action="ignore"):  # the library says so where it takes a soft lock itself
            try:
                held = FileLock(folder / LOCK, timeout=0).acquire()
            except OSError as error:
                if error.errno not in LACKING:
                    raise
                held = SoftFileLock(folder / SOFT_LOCK, timeout=0).acquire()
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
