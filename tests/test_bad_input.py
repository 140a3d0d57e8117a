"""Bad input: what a user types wrong or finds damaged ends in status 2 and one line, and nothing has changed."""

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from annotated.__main__ import main
from annotated_workbench import commands
from annotated_workbench.checkpoint import save_tensors
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.files import locked

DELIVERED = DATA_FOLDER / "checkpoints"
OWN = "train --source {de} --target {en} --out {new} --preset tiny --vocab-size 280 --epochs 1"
LINES = (Path(__file__).parent / "bad_input.txt").read_text(encoding="utf-8").split("\n\n", 1)[1].splitlines()
CASES = list(zip(LINES[::2], LINES[1::2], strict=True))
CPU = "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory\nstack"
TOO_LITTLE = "not enough memory (*): try a smaller model, batch or beam."


@pytest.fixture(scope="module")
def names(corpus, run, tmp_path_factory):
    """What the cases name: good and bad files, and copies of a run with something wrong in each."""
    root = tmp_path_factory.mktemp("bad")
    names = {name: root / name for name in ("run", "folder", "none", "new", "pipe", "link", "locked", "cut_states")}
    names |= {"root": root, "de": root / "my.de", "en": root / "my.en", "latin_name": root / "r\udcfcn"}
    names |= {"delivered": DELIVERED / "de-en", "writer": DELIVERED / "shakespeare"}
    shutil.copytree(corpus, root, dirs_exist_ok=True)
    shutil.copytree(run.out, root / "run")
    for name in ("folder", "cut_states"):
        names[name].mkdir()
    os.mkfifo(names["pipe"])
    names["link"].symlink_to(names["none"])
    german = names["de"].read_bytes()
    names["cut_gz"] = root / "cut.gz"
    names["cut_gz"].write_bytes(gzip.compress(german)[:-9])
    contents = {
        "twice_packed": gzip.compress(gzip.compress(german)),
        "short": german.split(b"\n", 1)[1],
        "other": german.replace(b"Hund", b"Dackel"),
        "empty": b"",
        "blank": german.replace(b"\n", b"\n\n", 1),
        "unseen": german.replace(b"\n", "\n\u00ad\u2060\n".encode(), 1),
        "latin": german.decode().encode("latin-1"),
        "one": b"A dog.\n",
        "letter": "e\u0301".encode(),
        "long": b"Hund " * 600 + b"\n",
    }
    for name, content in contents.items():
        names[name] = root / f"{name}.txt"
        names[name].write_bytes(content)

    def copy(name: str, without: str = "") -> Path:
        names[name] = root / name
        names[name].mkdir()
        for file in {"model.safetensors", "config.json", "tokenizer.json"} - {without}:
            shutil.copy(root / "run" / file, names[name])
        return names[name]

    config = json.loads((root / "run" / "config.json").read_text())
    tensors = load_file(root / "run" / "model.safetensors")
    first = min(tensors)
    copy("copied")
    for kind, file in {"weights": "model.safetensors", "config": "config.json", "tokenizer": "tokenizer.json"}.items():
        copy(f"no_{kind}", without=file)
        cut = copy(f"cut_{kind}") / file
        cut.write_bytes(cut.read_bytes()[:-5])
    changes = {"unknown_kind": {"architecture": "mamba"}, "no_languages": {"src": None}}
    changes["turned"] = {"src": "en", "tgt": "de"}
    for name, change in changes.items():
        changed = {key: value for key, value in (config | change).items() if value is not None}
        (copy(name) / "config.json").write_text(json.dumps(changed))
    shutil.copy(names["delivered"] / "tokenizer.json", copy("other_tokenizer"))
    save_file(tensors | {first: tensors[first] * torch.nan}, copy("nan_weights") / "model.safetensors")
    save_file(tensors | {"stray": torch.ones(3)}, copy("other_weights") / "model.safetensors")
    save_tensors(copy("older") / "state.safetensors", tensors, {"progress": {}, "metrics": []})
    (names["cut_states"] / "state.safetensors").write_bytes((root / "run" / "state.safetensors").read_bytes()[:-5])
    with locked(names["locked"]):
        yield {name: str(path) for name, path in names.items()} | {"very_long": "Hund " * 600}


def everything(folder: str) -> dict[str, tuple[int, ...]]:
    """What lies in a folder: each path with its inode, size and time of change."""
    found = ((path, path.lstat()) for path in Path(folder).rglob("*"))
    return {str(path): (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found if path.name != ".lock"}


def assert_is_refused(names, arguments, message, capsys) -> None:
    before = everything(names["root"])
    assert main(arguments) == 2
    error = capsys.readouterr().err
    expected = re.escape(f"annotated: {message.format(**names)}\n").replace(r"\*", ".*")
    assert re.fullmatch(expected, error), error
    assert everything(names["root"]) == before, "something has changed"


@pytest.mark.parametrize(("case", "message"), CASES)
def test_bad_input_ends_in_one_line_that_names_it_and_changes_nothing(names, case, message, capsys):
    arguments = [word.replace("''", "").format(**names) for word in case.replace("$OWN", OWN).split()]
    assert_is_refused(names, arguments, message.strip(), capsys)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError(CPU), TOO_LITTLE),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), TOO_LITTLE),
        (MemoryError(), TOO_LITTLE),
        (OSError(5, "Input/output\nerror"), "[Errno 5] Input/output error"),
    ],
)
def test_too_little_memory_and_errors_within_are_one_line(names, capsys, monkeypatch, error, message):
    monkeypatch.setattr(commands.generate, "load_model", Mock(side_effect=error))
    assert_is_refused(names, ["generate", names["run"], "Hund"], message, capsys)
    with pytest.raises(type(error)):
        main(["generate", names["run"], "Hund", "--debug"])


@pytest.mark.parametrize("error", [ValueError("too many values"), OSError("unwritten"), RuntimeError("shapes")])
def test_a_mistake_within_is_not_told_as_one_of_the_reader_s(names, monkeypatch, error):
    monkeypatch.setattr(commands.generate, "load_model", Mock(side_effect=error))
    with pytest.raises(type(error), match=str(error)):
        main(["generate", names["run"], "Hund"])
