"""Files that survive a crash: whole or not at all, on the disk in the right order; and folders with a lock."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from once import once

from annotated_workbench.files import MADE, emptied, locked, write_ours, write_whole

pytestmark = once


def test_a_file_is_replaced_and_not_overwritten(tmp_path):
    file, same = tmp_path / "file", tmp_path / "same"
    write_whole(file, b"older")
    same.hardlink_to(file)
    write_whole(file, b"old")
    # Whoever still reads the older one reads all of it.
    assert (file.read_bytes(), same.read_bytes()) == (b"old", b"older")


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, owner, name):
    file = tmp_path / "file"
    write_whole(file, b"old")

    monkeypatch.setattr(owner, name, Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_content_and_name_reach_the_disk_in_this_order_with_the_usual_rights(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace

    def note_fsync(descriptor):
        status = os.fstat(descriptor)
        done.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        fsync(descriptor)

    def note_replace(path, target):
        done.append("renamed")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_whole(tmp_path / "file", b"seven..")
    assert done == [7, "renamed", "folder"]
    (tmp_path / "usual").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_disk_without_locks_that_cannot_sync_folders_will_do(tmp_path, monkeypatch, number):
    for owner, name in ((fcntl, "flock"), (os, "fsync")):
        monkeypatch.setattr(owner, name, Mock(side_effect=OSError(number, "not here")))
    with locked(tmp_path), pytest.raises(BlockingIOError, match="is in use by another process"):
        write_whole(tmp_path / "file", b"new")
        locked(tmp_path).__enter__()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_nothing_is_written_over_an_input_or_what_was_not_written_here(tmp_path):
    mine, ours, linked = tmp_path / "mine", tmp_path / "ours", tmp_path / "linked"
    mine.write_bytes(b"mine")
    for content in (b"one", b"two"):
        write_ours(tmp_path, {"ours": content})
    linked.symlink_to(ours)
    (tmp_path / "nowhere").symlink_to(tmp_path / "new")
    for name, inputs in (("mine", ()), ("linked", ()), ("nowhere", ()), ("ours", [linked])):
        with pytest.raises(FileExistsError, match=f"{name} is yours"):
            write_ours(tmp_path, {"new": b"", name: b"three"}, inputs)
    ours.write_bytes(b"changed")
    with pytest.raises(FileExistsError, match="ours is yours"):
        write_ours(tmp_path, {"ours": b"three"})
    assert (mine.read_bytes(), ours.read_bytes(), (tmp_path / "new").exists()) == (b"mine", b"changed", False)


def test_a_folder_is_emptied_only_if_it_was_made_here(tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.html").touch()
    (emptied(tmp_path / "www") / "old").mkdir()  # there was nothing to lose
    (tmp_path / "www" / "link").symlink_to(tmp_path / "mine")
    assert [path.name for path in emptied(tmp_path / "www").iterdir()] == [MADE]
    with pytest.raises(FileExistsError, match="mine was not made by the course: give a new folder"):
        emptied(tmp_path / "mine")
    assert (tmp_path / "mine" / "a.html").exists()


def test_a_folder_is_locked_until_its_process_ends_however_that_is(tmp_path):
    code = f"""
import pathlib, time
from annotated_workbench.files import locked
with locked(pathlib.Path({str(tmp_path / "run")!r})):
    print("locked", flush=True)
    time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match="run is in use by another process"), locked(tmp_path / "run"):
            pass
        process.kill()
    with locked(tmp_path / "run"):
        pass
    with locked(tmp_path / "run"):  # also after a proper end
        pass
