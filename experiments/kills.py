"""Does a training survive being killed? Kills it before every file operation that it makes.

    python -m experiments.kills [--every 1]

Trains a small model on sixty pairs: once undisturbed, then again and again with `kill -9` before one operation, going
on with --resume (or anew, where not even a first state was there). Each ends with the files of the undisturbed run, but
for the times. Between two operations nothing changes on the disk but a file that nobody reads yet.
"""

import argparse
import contextlib
import itertools
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from annotated.__main__ import main as command
from annotated_workbench.checkpoint import load_tensors
from tests.runs import train_arguments, write_corpus

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir")  # as Python announces them to `sys.addaudithook`
OPTIONS = ["--epochs", "4", "--average", "2", "--batch-tokens", "400"]  # four, so that a checkpoint is deleted, too


def main() -> int:
    """Print how many killed runs ended like the undisturbed one; return 0 if all did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--every", type=int, default=1, help="1 tries every operation, 5 each fifth")
    every = parser.parse_args().every
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, different = Path(name), []
        write_corpus(folder)
        if train(folder, folder / "whole") != 0:
            raise RuntimeError("the undisturbed training failed: try `python -m annotated train` by hand.")
        expected = content(folder / "whole")
        for number in itertools.count():
            out = folder / f"operation-{number * every}"
            if train(folder, out, kill_before=number * every) != -signal.SIGKILL:
                break  # the run has fewer operations
            if train(folder, out) not in (0, None) or content(out) != expected:
                different.append(out.name)
            print(f"{out.name}: {'differs' if out.name in different else 'the same'}", flush=True)
    print(f"{number} kills before a file operation; ended differently: {different or 'none'}")
    return int(bool(different))


def train(folder: Path, out: Path, kill_before: int | None = None) -> int | None:
    """Train in a process of its own, from where `out` stands; return its exit status, negative if it was killed.

    Args:
        kill_before: the number of the file operation before which the process is killed, counted from 0.

    Returns:
        None where there is nothing left to do.
    """
    state = out / "state.safetensors"
    has_state = state.exists()
    if has_state and load_tensors(state)[1]["progress"]["epoch"] == int(OPTIONS[1]):
        return None
    arguments = ["train", "--resume", "--out", str(out)] if has_state else train_arguments(folder, out, *OPTIONS)
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            if kill_before is not None:
                kill_at(out, kill_before)
            os._exit(command(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at(out: Path, number: int) -> None:
    """Kill this process before its operation of that number which changes something in the folder."""
    numbers = itertools.count()

    def hook(event: str, args: tuple) -> None:
        if event not in OPERATIONS or not str(args[0]).startswith(str(out)):
            return
        writes = event != "open" or (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def content(out: Path) -> dict[str, object]:
    """All that a run left: names, weights bit for bit, settings and metrics without the times."""
    files: dict[str, object] = {}
    for path in (path for path in out.rglob("*") if path.is_file() and path.name != ".lock"):
        if path.suffix == ".safetensors":
            left: object = {key: tensor.numpy().tobytes() for key, tensor in load_file(path).items()}
        elif path.suffix == ".jsonl":
            left = re.sub('"(minutes|tokens_per_second)": [^,}]+', "", path.read_text(encoding="utf-8"))
        else:
            left = path.read_bytes()
        files[path.relative_to(out).as_posix()] = left
    return files


if __name__ == "__main__":
    sys.exit(main())
