"""Bad input: what a user types wrong or finds damaged ends in status 2 and one line, and nothing has changed."""

import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from annotated.__main__ import main
from annotated_workbench import commands
from annotated_workbench.checkpoint import save_tensors
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.files import locked
from annotated_workbench.vocabulary import SPECIALS


@pytest.fixture(scope="module")
def names(corpus, run, tmp_path_factory):
    """What the cases name: good and bad files, and copies of a run with something wrong in each."""
    root = tmp_path_factory.mktemp("bad")
    names = {"root": root, "de": root / "my.de", "en": root / "my.en", "run": root / "run", "folder": root / "folder"}
    names |= {name: root / name for name in ("none", "new", "pipe", "link", "dangling")}
    names["delivered"] = DATA_FOLDER / "checkpoints" / "de-en"
    shutil.copytree(corpus, root, dirs_exist_ok=True)
    shutil.copytree(run.out, root / "run")
    names["folder"].mkdir()
    os.mkfifo(names["pipe"])
    names["link"].symlink_to(names["en"])
    names["dangling"].symlink_to(names["none"])

    def file(name: str, content: bytes) -> None:
        names[name] = root / f"{name}.txt"
        names[name].write_bytes(content)

    german = names["de"].read_bytes()
    file("short", german.split(b"\n", 1)[1])
    file("other", german.replace(b"Hund", b"Dackel"))
    file("empty", b"")
    file("blank", german.replace(b"\n", b"\n\n", 1))
    file("latin", german.decode().encode("latin-1"))
    file("utf16", german.decode().encode("utf-16"))
    file("one", b"A dog.\n")
    file("long", b"Hund " * 600 + b"\n")

    def copy(name: str, *files: str, without: tuple[str, ...] = ()) -> Path:
        names[name] = root / name
        names[name].mkdir()
        for file in files or ("model.safetensors", "config.json", "tokenizer.json"):
            if file not in without:
                shutil.copy(root / "run" / file, names[name])
        return names[name]

    def spoil_config(name: str, info: dict | None = None, remove: tuple[str, ...] = (), **sizes) -> None:
        path = copy(name) / "config.json"
        config = json.loads(path.read_text()) | (info or {})
        config = {key: value for key, value in config.items() if key not in remove}
        config["model"] |= sizes
        path.write_text(json.dumps(config))

    def spoil(name: str, file: str, content: bytes) -> None:
        (copy(name) / file).write_bytes(content)

    weights = (root / "run" / "model.safetensors").read_bytes()
    tokenizer = json.loads((root / "run" / "tokenizer.json").read_text())
    copy("copied")
    copy("no_weights", without=("model.safetensors",))
    copy("no_config", without=("config.json",))
    copy("no_tokenizer", without=("tokenizer.json",))
    spoil("cut_weights", "model.safetensors", weights[:-5])
    spoil("cut_config", "config.json", b'{"model": {')
    spoil("list_config", "config.json", b"[1, 2]")
    spoil("deep_config", "config.json", b"[" * 10**5)
    spoil_config("text_size", d_ff="256")
    spoil_config("yes_size", layers=True)
    spoil_config("huge_width", d_model=10**9)
    spoil_config("huge_layers", layers=10**9)
    spoil_config("huge_length", max_length=10**9)
    spoil_config("padded", pad_id=3)
    spoil_config("no_languages", remove=("src", "tgt"))
    spoil_config("unknown_kind", {"architecture": "mamba"})
    spoil("cut_tokenizer", "tokenizer.json", b'{"model": {')
    spoil("list_tokenizer", "tokenizer.json", b"[]")
    spoil("other_tokenizer", "tokenizer.json", (names["delivered"] / "tokenizer.json").read_bytes())
    spoil("text_words", "tokenizer.json", b'{"words": "Hund", "languages": ["de", "en"]}')
    spoil("number_words", "tokenizer.json", json.dumps({"words": [*SPECIALS, 5], "languages": ["de", "en"]}).encode())
    spoil("no_model_tokenizer", "tokenizer.json", json.dumps(tokenizer | {"model": 5}).encode())
    vocabulary = {word.replace("<eos>", "<end>"): number for word, number in tokenizer["model"]["vocab"].items()}
    wrong = tokenizer | {"model": tokenizer["model"] | {"vocab": vocabulary}, "added_tokens": []}
    spoil("wrong_specials", "tokenizer.json", json.dumps(wrong).encode())
    tensors = load_file(root / "run" / "model.safetensors")
    first = min(tensors)
    save_file(tensors | {first: tensors[first] * torch.nan}, copy("nan_weights") / "model.safetensors")
    save_file(tensors | {"stray": torch.ones(3)}, copy("other_weights") / "model.safetensors")

    for name in ("checkpoints", "cut_states", "old_state"):
        names[name] = root / name
        names[name].mkdir()
    shutil.copytree(root / "run" / "checkpoints", names["checkpoints"] / "checkpoints")
    for name in ("state.safetensors", "state-before.safetensors"):
        (names["cut_states"] / name).write_bytes((root / "run" / name).read_bytes()[:-5])
    save_tensors(names["old_state"] / "state.safetensors", {"w": torch.ones(1)}, {"progress": {}, "metrics": []})
    names["locked"] = root / "locked"
    with locked(names["locked"]):
        yield {name: str(path) for name, path in names.items()} | {
            "very_long": "Hund " * 600,
            "megabyte": "x" * 10**6,
            "pid": str(os.getpid()),
            "host": os.uname().nodename,
        }


OWN = "train --source {de} --target {en} --out {new} --preset tiny --vocab-size 280 --epochs 1"
LINES = (Path(__file__).parent / "bad_input.txt").read_text(encoding="utf-8").split("\n\n", 1)[1].splitlines()
CASES = list(zip(LINES[::2], LINES[1::2], strict=True))


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


def test_there_are_many_cases():
    assert len({case for case, _ in CASES}) == len(CASES) > 120


@pytest.mark.parametrize(("case", "message"), CASES)
def test_bad_input_ends_in_one_line_that_names_it_and_changes_nothing(names, case, message, capsys):
    arguments = [word.replace("''", "").format(**names) for word in case.replace("$OWN", OWN).split()]
    assert_is_refused(names, arguments, message.strip(), capsys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Ein B\xe4r\n", "standard input, line 1: not UTF-8 (*). Convert it to UTF-8."),
        ("Ein Bär".encode("utf-16"), "standard input, line 1: not UTF-8 (*). Convert it to UTF-8."),
        (b"Ein Hund\rEin Mann\r\n", "standard input, line 1: a CR inside, with which old Macs ended lines. *"),
        (
            "Ein Hund".encode("utf-16-le"),
            "standard input, line 1: a NUL byte, as in UTF-16, not in a text. Convert it to UTF-8.",
        ),
        (b"Hund\nHund\nHund \xff", "standard input, line 3: not UTF-8 (*). Convert it to UTF-8."),
        (b"Hund\n" + b"x" * 2**21, "standard input, line 2 has more than 1,048,576 bytes: give sentences."),
        (b"Hund " * 600, "text 1 is 2401 tokens long and the model takes 512: split it into sentences."),
    ],
    ids=["latin-1", "utf-16", "cr", "nul", "later", "no end", "long"],
)
def test_bad_standard_input(names, content, message, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert_is_refused(names, ["translate", names["run"], "--beam", "0"], message, capsys)


def test_an_argument_that_is_not_utf_8(names, capsys):
    message = r"the argument 'Ein B\udce4r' is not UTF-8: set the terminal to UTF-8."
    assert_is_refused(names, ["translate", names["run"], os.fsdecode(b"Ein B\xe4r")], message, capsys)


def test_too_little_memory_is_one_line(names, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory\nstack")

    monkeypatch.setattr(commands.translate, "translate", fail)
    message = "not enough memory ([enforce fail *): try a smaller model, batch or beam."
    assert_is_refused(names, ["translate", names["run"], "Hund"], message, capsys)


def test_a_rate_that_bursts_the_weights_keeps_the_state_it_began_with(names, tmp_path, capsys):
    files = ["--source", names["de"], "--target", names["en"], "--preset", "tiny", "--vocab-size", "280"]
    out = tmp_path / "run"
    words = ["train", *files, "--out", str(out), "--epochs", "2", "--batch-tokens", "100", "--rate", "1e30"]
    assert main(words) == 2
    assert re.search(r"update \d+: the loss is (nan|inf): nothing was changed\..* --resume", capsys.readouterr().err)
    assert {path.name for path in out.iterdir()} == {".lock", "state.safetensors", "tokenizer.json"}
    assert main(["train", "--resume", "--out", str(out), "--rate", "1"]) == 0
    assert main(["translate", str(out), "Hund"]) == 0
