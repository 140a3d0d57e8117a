"""Do the tests bite? Plant known bugs, one at a time, in a copy of the project and see what goes red.

    python -m experiments.planted_bugs [name …]

The bugs are those that people make, one or two in each file of the paper and in the fast form. The copy's notebooks
show the planted code, as `make sync` would. The file's own tests must catch every bug: the first that does is named.
Beside it stands whether the lesson on it differs from its saved outputs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools.sync import ROOT


class Bug(NamedTuple):
    """One change that makes the module wrong: in `file`, the text `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str


BUGS = [
    Bug("√d_k removed", "attention", " / math.sqrt(query.size(-1))", " / math.sqrt(1)"),
    Bug("softmax over the queries", "attention", "return scores.softmax(dim=-1)\n", "return scores.softmax(dim=-2)\n"),
    Bug("one future token seen", "masking", ".tril()", ".tril(1)"),
    Bug("padding hides queries", "masking", "(ids != pad_id)[:, None, None, :]", "(ids != pad_id)[:, None, :, None]"),
    Bug("values made from keys", "multi_head", "self.split(self.W_v(value))", "self.split(self.W_v(key))"),
    Bug("all sines", "positional_encoding", "(angle.sin(), angle.cos())", "(angle.sin(), angle.sin())"),
    Bug("unbiased variance", "encoder", "correction=0)", "correction=1)"),
    Bug("dropout not made up for", "encoder", "x * kept / (1 - self.p)", "x * kept"),
    Bug("cross-attention unmasked", "decoder", "attend(x, keys, values, src_mask)", "attend(x, keys, values)"),
    Bug("cache not reordered", "decoder", "layer.tokens = tuple(x[rows] for", "layer.tokens = tuple(x for"),
    Bug(
        "embeddings not scaled",
        "transformer",
        "embedding(ids) * math.sqrt(self.config.d_model)",
        "embedding(ids) * math.sqrt(1)",
    ),
    Bug("cached step at position 0", "transformer", "0 if cache is None else cache.length", "0"),
    Bug("first two rates equal", "training", "step * warmup**-1.5", "max(step - 1, 1) * warmup**-1.5"),
    Bug(
        "target not shifted", "training", "model(src, tgt[:, :-1]), tgt[:, 1:]", "model(src, tgt[:, :-1]), tgt[:, :-1]"
    ),
    Bug("length penalty off by one", "decoding", "((5 + length) / 6)", "((4 + length) / 6)"),
    Bug("a stranger's cache", "decoding", "cache.select(parents[kept])", "cache.select(parents[kept].sort().values)"),
    Bug("big drops 0.1", "config", "heads=16, dropout=0.3", "heads=16, dropout=0.1"),
    Bug("mean over all positions", "fast/training", "bf16=bf16) / tokens", "bf16=bf16) / (tokens + 1)"),
]
TESTS = {"config": "transformer", "fast/training": "fast_training"}  # where they are called otherwise than the file
OF_ALL = ("models", "errors")  # tests of every file
LESSONS = {"config": "05", "transformer": "05", "fast/training": "13"}


def main() -> int:
    """Print which tests and lessons each bug turns red; return 0 if the tests catch all."""
    bugs = [bug for bug in BUGS if len(sys.argv) == 1 or bug.name in sys.argv[1:]]
    verdicts = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for bug, verdict in zip(bugs, pool.map(try_out, bugs), strict=True):
            verdicts.append(verdict)
            print(f"{bug.name:<26} lesson {'red  ' if verdict[1] else 'green'} {verdict[0] or 'MISSED'}", flush=True)
    by_tests, by_lessons = (sum(map(bool, column)) for column in zip(*verdicts, strict=True))
    print(f"of {len(bugs)} bugs the tests find {by_tests}, the lessons {by_lessons}")
    return int(by_tests < len(bugs))


def try_out(bug: Bug) -> tuple[str, str]:
    """Plant a bug in a copy of the project; name what fails first in the file's tests and in its lesson, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        project = copy_project(Path(folder))
        (project / "annotated" / f"{bug.file}.py").write_text(planted(bug), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "tools.sync"], cwd=project, check=True, capture_output=True)
        lesson = f"{LESSONS.get(bug.file, '[0-9][0-9]')}_{'*' if bug.file in LESSONS else bug.file}.ipynb"
        (notebook,) = (project / "notebooks").glob(lesson)
        tests = (f"tests/test_{name}.py" for name in (TESTS.get(bug.file, bug.file), *OF_ALL))
        return first_failure(project, *tests), first_failure(project, "--nbval", notebook)


def copy_project(folder: Path) -> Path:
    """Copy the files that git knows, as they are now, into a folder."""
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def planted(bug: Bug) -> str:
    """Return a file's text with a bug in it; raise a ValueError if the old text isn't there exactly once."""
    text = (ROOT / "annotated" / f"{bug.file}.py").read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} holds {text.count(bug.old)} times, not once: {bug.old}")
    return text.replace(bug.old, bug.new)


def first_failure(project: Path, *arguments: str | Path) -> str:
    """Run pytest in a copy of the project, with the copy's package; name the test that fails, "" where none does.

    Raises:
        RuntimeError: it runs no tests at all.
    """
    environment = os.environ | {"PYTHONPATH": str(project), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", *map(str, arguments)]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)[0] if result.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
