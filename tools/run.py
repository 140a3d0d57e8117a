"""Run the course from end to end, whatever the machine: `make run`, or `python -m tools.run`.

Executes every notebook, as many at once as there are cores, four at most (the results go to `build/`), trains eight
epochs on the embedded corpus, and translates. Where a cell fails or prints something else than was saved, that is
reported, and the course goes on. The exit status is 0 if all was as saved, 1 if something differed, 2 if training or
translating failed.
"""

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from configparser import ConfigParser
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from tools.sync import ROOT, notebook_paths

MODEL = "build/captions"
# A fixed number of updates, so that a slow machine's model is as good as a fast one's; LayerNorm in front needs few.
TRAIN = f"""train --corpus captions --src de --tgt en --preset tiny --norm-first --dropout 0 --tokenizer words
    --batch-tokens 1200 --schedule linear --warmup 200 --epochs 8 --average 1 --out {MODEL}""".split()
EVALUATE = f"evaluate {MODEL} --corpus captions --split test --show 5".split()

SANITIZE = ConfigParser()
SANITIZE.read(ROOT / "tests" / "nbval_sanitize.cfg", encoding="utf-8")
QUIET = Config()  # the kernel's word on its unencrypted connection to this very machine helps nobody
QUIET.KernelManager.transport_encryption = "auto"


def main() -> int:
    """Run everything; return the exit status."""
    paths, differences = sorted(notebook_paths(), key=lambda path: path.name, reverse=True), []  # the longest first
    at_once = min(os.cpu_count() or 1, 4)  # each takes about a gigabyte
    print(f"Executing {len(paths)} notebooks, {at_once} at once", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(execute, path) for path in paths]):
            name, seconds, found = done.result()
            print(f"{name}: {seconds:.0f} s", *found, sep="\n", flush=True)
            differences += found
    shutil.rmtree(ROOT / MODEL, ignore_errors=True)
    for arguments in (TRAIN, EVALUATE):
        print("\npython -m annotated", *arguments, flush=True)
        if subprocess.run([sys.executable, "-m", "annotated", *arguments], cwd=ROOT).returncode:
            return 2
    if not differences:
        print("\nAll notebooks printed what they have saved.")
        return 0
    print("\nThe course ran to its end, but not all is as saved:", *differences, sep="\n")
    return 1


def execute(path: Path) -> tuple[str, float, list[str]]:
    """Execute a notebook, all of it even if cells fail, and save the result below `build/`.

    Returns:
        Its name, the seconds it took, and for each cell that failed or printed something else than it has saved: the
        notebook, the cell's number (from 0, code cells only), its section, and the line that failed or differs first.
    """
    began, name = time.perf_counter(), path.relative_to(ROOT / "notebooks").with_suffix("").as_posix()
    output = ROOT / "build" / path.relative_to(ROOT)
    saved = nbformat.read(path, as_version=4)
    executed = nbformat.from_dict(saved)
    settings = {"resources": {"metadata": {"path": path.parent}}, "config": QUIET}
    client = NotebookClient(executed, timeout=None, allow_errors=True, **settings)
    asyncio.run(client.async_execute(env=os.environ | {"OMP_NUM_THREADS": "1"}))
    output.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed, output)
    differences, section, number = [], "", 0
    for before, after in zip(saved.cells, executed.cells, strict=True):
        if after.cell_type == "code":
            if difference := compare(before, after):
                differences.append(f"{name}, cell {number} ({section}): {difference}")
            number += 1
        elif headings := re.findall(r"^#+ (.+)", after.source, re.MULTILINE):
            section = headings[-1]
    return name, time.perf_counter() - began, differences


def compare(saved: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> str | None:
    """Say what failed in an executed cell, or where its text first differs from the saved cell's; None if nothing."""
    for output in executed.outputs:
        if output.output_type == "error":
            plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
            place = re.search(r"^ *Cell In\[\d+\], line (\d+)", plain, re.MULTILINE)
            line = executed.source.splitlines()[int(place[1]) - 1 if place else 0].strip()
            return f"{line}\n    {output.ename}: {output.evalue.splitlines()[0] if output.evalue else ''}"
    for old, new in itertools.zip_longest(text_of(saved).splitlines(), text_of(executed).splitlines(), fillvalue=""):
        if old != new:
            return f"printed {new!r}, saved is {old!r}"
    return None


def text_of(cell: nbformat.NotebookNode) -> str:
    """Join what a cell printed or showed as text, with nbval's replacements; pictures are not compared."""
    text = ""
    for output in cell.outputs:
        displayed = output.get("data", {})
        text += output.get("text", "")
        text += "".join(f"{displayed[kind]}\n" for kind in ("text/plain", "text/html") if kind in displayed)
    for rule in SANITIZE.sections():
        text = re.sub(SANITIZE[rule]["regex"], SANITIZE[rule]["replace"], text)
    return text


if __name__ == "__main__":
    sys.exit(main())
