"""Do the tests bite? Plant known bugs, one at a time, in a copy of the project and see what goes red.

    python tests/benchmarks/planted_bugs.py [name …]

For each bug the copy's notebooks show the planted code (as `make sync` would) and are compared with their saved
outputs. A notebook and its module carry the same name, so a bug in `attention.py` is put to `01_attention.ipynb`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ABOUT_THE_REPOSITORY = ("environment", "notebooks", "planted_bugs", "sync")


class Bug(NamedTuple):
    """One change that makes the module wrong: in `file`, the text `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str


BUGS = [
    Bug("√d_k removed", "attention.py", " / math.sqrt(query.size(-1))", ""),
    Bug(
        "mask flipped",
        "attention.py",
        "scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(~mask, 0.0)",
        "scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(mask, 0.0)",
    ),
    Bug(
        "softmax over the queries",
        "attention.py",
        "weights = scores.softmax(dim=-1)",
        "weights = scores.softmax(dim=-2)",
    ),
    Bug(
        "padding hides queries", "masking.py", "(ids != pad_id)[:, None, None, :]", "(ids != pad_id)[:, None, :, None]"
    ),
    Bug("one future token seen", "masking.py", ".tril()", ".tril(1)"),
    Bug(
        "heads cut across positions",
        "multi_head.py",
        "x.unflatten(-1, (self.heads, -1)).transpose(1, 2)",
        "x.reshape(x.size(0), self.heads, x.size(1), -1)",
    ),
    Bug("wrong exponent", "positional_encoding.py", "torch.float64) / d_model)", "torch.float64) / (d_model - 2))"),
    Bug(
        "pre-norm unannounced",
        "encoder.py",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return x + self.dropout(sublayer(self.norm(x)))",
    ),
    Bug("dropout not made up for", "encoder.py", "x * kept / (1 - self.p)", "x * kept"),
    Bug(
        "cross-attention unmasked",
        "decoder.py",
        "attend(queries, keys, values, src_mask)",
        "attend(queries, keys, values)",
    ),
    Bug("embeddings not scaled", "transformer.py", "embedding(ids) * math.sqrt(self.config.d_model)", "embedding(ids)"),
    Bug("cached step at position 0", "transformer.py", "start = cache.length if cache else 0", "start = 0"),
    Bug("first two rates equal", "training.py", "step * warmup**-1.5", "max(step - 1, 1) * warmup**-1.5"),
    Bug("padding given mass", "training.py", "possible -= 1", "possible -= 0"),
    Bug("dropout while decoding", "decoding.py", "model.eval()", "model.train()"),
    Bug(
        "end symbol ignored",
        "decoding.py",
        "done = (tokens == EOS) | (ids.size(1) > limits)",
        "done = ids.size(1) > limits",
    ),
    Bug("length penalty off by one", "decoding.py", "((5 + length) / 6)", "((4 + length) / 6)"),
    Bug("padding id ignored", "masking.py", "ids != pad_id", "ids != 0"),
    Bug("masks joined by OR", "masking.py", "torch.logical_and", "torch.logical_or"),
    Bug("start ignored", "positional_encoding.py", "self.table[start:end]", "self.table[: x.size(1)]"),
    Bug("dropout in eval mode", "encoder.py", "if not self.training or self.p == 0:", "if self.p == 0:"),
    Bug("dropout keeps p", "encoder.py", "kept = draws >=", "kept = draws <"),
    Bug("source mask lost", "encoder.py", "x = layer(x, mask)", "x = layer(x)"),
    Bug("cache not reordered", "decoder.py", "old[used] = old[used][rows]", "pass"),
    Bug("cached memory not dropped", "decoder.py", "if sentences is not None:", "if False:"),
    Bug("embeddings N(0, 1)", "transformer.py", "std=self.config.d_model**-0.5", "std=1.0"),
    Bug("no dropout on embeddings", "transformer.py", "return self.dropout(self.positions(", "return (self.positions("),
    Bug("big drops 0.1", "transformer.py", "heads=16, dropout=0.3", "heads=16, dropout=0.1"),
    Bug("loss on padding", "training.py", "loss = losses.masked_fill(~counts, 0.0).sum()", "loss = losses.sum()"),
    Bug("target not shifted", "training.py", "    target = tgt[:, 1:]\n", "    target = tgt[:, :-1]\n"),
    Bug("gradients kept", "training.py", "    optimizer.zero_grad()\n", ""),
    Bug("only the projection learns", "training.py", "    states.backward(leaf.grad)\n", ""),
    Bug("Adam's usual betas", "training.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.999)"),
    Bug("no dropout after validation", "loop.py", "    model.train()\n", ""),
    Bug("resumed with other random numbers", "loop.py", '    torch.set_rng_state(tensors["random"])\n', ""),
    Bug("average of one more", "checkpoint.py", "total / len(paths)", "total / (len(paths) + 1)"),
    Bug("padding may be chosen", "decoding.py", "log_probs[:, [PAD, BOS]]", "log_probs[:, [BOS]]"),
    Bug("end found outside the beam", "decoding.py", "ended[:, :beam].nonzero()", "ended.nonzero()"),
    Bug("one token too many", "decoding.py", "(ids.size(1) > limits)", "(ids.size(1) > limits + 1)"),
    Bug("BLEU lower-cased", "decoding.py", "BLEU(lowercase=lowercase)", "BLEU(lowercase=True)"),
]


def copy_project(folder: Path) -> Path:
    """Copy what the tests and the notebooks read.

    Args:
        folder: an empty folder.
    """
    for name in ("annotated", "data", "notebooks", "tests", "tools"):
        if (ROOT / name).exists():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def plant(bug: Bug, project: Path) -> None:
    """Put the bug into a copy of the project, and into the notebooks that show the code.

    Args:
        bug: what to change.
        project: a folder that `copy_project` filled.

    Raises:
        ValueError: the old text is not in the file exactly once.
    """
    path = project / "annotated" / bug.file
    text = path.read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} holds {text.count(bug.old)} times, not once: {bug.old}")
    path.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    subprocess.run([sys.executable, "tools/sync.py"], cwd=project, check=True, capture_output=True)


def is_red(project: Path, *arguments: str) -> bool:
    """Run pytest in a copy of the project, with the copy's package: False if all passed, True if a test failed.

    Args:
        project: a folder that `copy_project` filled.
        arguments: what to hand to pytest.

    Raises:
        RuntimeError: pytest did not run the tests at all.
    """
    environment = os.environ | {"PYTHONPATH": str(project), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", *arguments]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result.returncode == 1


def unit_tests_are_red(project: Path, file: str) -> bool:
    """Run the tests of one file, and if these see nothing, all others but those about the repository itself.

    Args:
        project: a folder that `copy_project` filled.
        file: the file of the module that was changed, such as "attention.py".
    """
    others = (f"--ignore=tests/test_{name}.py" for name in ABOUT_THE_REPOSITORY)
    return is_red(project, f"tests/test_{file}") or is_red(project, "tests", *others)


def notebook_is_red(project: Path, notebook: str) -> bool:
    """Compare a notebook with its saved outputs, as strictly as `make test` does.

    Args:
        project: a folder that `copy_project` filled.
        notebook: its path in the project.
    """
    sanitize = ["--nbval-sanitize-with", "tests/nbval_sanitize.cfg"]
    return is_red(project, "--nbval", "--nbval-current-env", "--nbval-cell-timeout", "300", *sanitize, notebook)


def notebooks_about(file: str) -> list[str]:
    """List the lessons on a file of the module, as paths in the project.

    Args:
        file: the name of the file, such as "attention.py".
    """
    return [path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"notebooks/*_{file.removesuffix('.py')}.ipynb")]


def report(names: Iterable[str]) -> bool:
    """Print a table: which bug turns what red. True if each is found by the unit tests and by its notebooks.

    Args:
        names: the bugs to plant; none for all.

    Raises:
        ValueError: a name is not known, or a bug no longer fits the code.
    """
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        raise ValueError(f"no bug called {', '.join(unknown)}; there are: {', '.join(bug.name for bug in BUGS)}")
    print(f"{'bug':<40} {'unit tests':<12} notebooks", flush=True)
    found = True
    for bug in BUGS:
        if names and bug.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            project = copy_project(Path(folder))
            plant(bug, project)
            unit = unit_tests_are_red(project, bug.file)
            lessons = {notebook: notebook_is_red(project, notebook) for notebook in notebooks_about(bug.file)}
        found = found and unit and all(lessons.values())
        shown = ", ".join(f"{Path(name).stem} {'red' if red else 'GREEN'}" for name, red in lessons.items())
        print(f"{bug.name:<40} {'red' if unit else 'GREEN':<12} {shown or '–'}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(not report(sys.argv[1:]))
