"""Files that survive a crash: whole or not at all, on the disk in the right order; and folders with a lock."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from once import once

from annotated_workbench import files
from annotated_workbench.files import locked, remove_leftovers, write_whole

pytestmark = once


def test_a_file_is_replaced_and_not_overwritten(tmp_path):
    file, same = tmp_path / "file", tmp_path / "same"
    write_whole(file, b"older")
    same.hardlink_to(file)
    write_whole(file, b"old")
    # Whoever still reads the older one reads all of it.
    assert (file.read_bytes(), same.read_bytes()) == (b"old", b"older")


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, moment):
    file = tmp_path / "file"
    write_whole(file, b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_content_and_name_reach_the_disk_in_this_order(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace

    def note_fsync(descriptor):
        mode = os.fstat(descriptor).st_mode
        done.append("folder" if stat.S_ISDIR(mode) else os.fstat(descriptor).st_size)
        fsync(descriptor)

    def note_replace(path, target):
        done.append("renamed")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_whole(tmp_path / "file", b"seven..")
    assert done == [7, "renamed", "folder"]


def test_a_new_file_has_the_usual_rights(tmp_path):
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_planted_under_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * 2 * count)
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".0000000000000000.tmp").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_temporary_names_cannot_be_guessed(tmp_path, monkeypatch):
    names, replace = set(), Path.replace

    def note(path, target):
        names.add(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", note)
    for _ in range(20):
        write_whole(tmp_path / "file", b"")
    assert len(names) == 20


def test_leftovers_are_those_of_write_whole_alone(tmp_path):
    names = [".0123456789abcdef.tmp", ".mine.tmp", "0123456789abcdef.tmp", ".0123456789abcdeg.tmp", ".lock"]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "none")
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])


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
        with (
            pytest.raises(BlockingIOError, match=f"run is in use by process {process.pid} on "),
            locked(tmp_path / "run"),
        ):
            pass
        process.kill()
    with locked(tmp_path / "run"):
        pass


def test_the_lock_follows_no_link(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"\.lock"), locked(tmp_path):
        pass
    assert (tmp_path / "precious").read_bytes() == b"precious"
