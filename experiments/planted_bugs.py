"""Do the tests bite? Plant known bugs, one at a time, in a copy of the project and see what goes red.

    python experiments/planted_bugs.py [name …]

For each bug the copy's notebooks show the planted code (as `make sync` would), and the lesson on the planted file is
compared with its saved outputs. The unit tests must catch every bug, the lessons three quarters: what goes wrong only
in a corner, or only after an hour of training, is not a lesson's business.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ABOUT_THE_REPOSITORY = ("environment", "machines", "mutations", "notebooks", "planted_bugs", "run", "sync")
ENOUGH = 0.75  # the share of the bugs that the lessons must catch

# A lesson and its file carry the same name, such as `attention.py` and `01_attention.ipynb`; these stand in another's.
LESSONS_ON_MORE_FILES = {
    "transformer": "decoder",
    "data": "training",
    "vocabulary": "training",
    "runs": "training",
    "checkpoint": "decoding",
}


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
        "scores.masked_fill(~mask, lowest).softmax(dim=-1, dtype=precision).masked_fill(~mask, 0.0)",
        "scores.masked_fill(mask, lowest).softmax(dim=-1, dtype=precision).masked_fill(mask, 0.0)",
    ),
    Bug(
        "softmax over the queries",
        "attention.py",
        "weights = scores.softmax(dim=-1, dtype=precision)",
        "weights = scores.softmax(dim=-2, dtype=precision)",
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
        "change = self.dropout(sublayer(x))",
        "return x + self.dropout(sublayer(self.norm(x)))",
    ),
    Bug("dropout not made up for", "encoder.py", "(x * kept).div_(1 - self.p)", "x * kept"),
    Bug(
        "cross-attention unmasked",
        "decoder.py",
        "attend(x, keys, values, src_mask)",
        "attend(x, keys, values)",
    ),
    Bug("embeddings not scaled", "transformer.py", "embedding(ids) * math.sqrt(self.config.d_model)", "embedding(ids)"),
    Bug("cached step at position 0", "transformer.py", "start = 0 if cache is None else cache.length", "start = 0"),
    Bug("first two rates equal", "training.py", "step * warmup**-1.5", "max(step - 1, 1) * warmup**-1.5"),
    Bug("padding given mass", "training.py", "possible = sum(part.size(-1) for part in parts)", "possible = vocab"),
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
    Bug("dropout keeps p", "encoder.py", "torch.ge(", "torch.lt("),
    Bug("source mask lost", "encoder.py", "x = layer(x, mask)", "x = layer(x)"),
    Bug("cache not reordered", "decoder.py", "self.written = self.written[rows]", "pass"),
    Bug("cached memory not dropped", "decoder.py", "if sentences is not None:", "if False:"),
    Bug("embeddings N(0, 1)", "transformer.py", "std=self.config.d_model**-0.5", "std=1.0"),
    Bug("no dropout on embeddings", "transformer.py", "return self.dropout(self.positions(", "return (self.positions("),
    Bug("big drops 0.1", "transformer.py", "heads=16, dropout=0.3", "heads=16, dropout=0.1"),
    Bug("loss on padding", "training.py", "loss = losses.masked_fill(~counts, 0.0).sum()", "loss = losses.sum()"),
    Bug("target not shifted", "training.py", "    target = tgt[:, 1:]\n", "    target = tgt[:, :-1]\n"),
    Bug("gradients kept", "training.py", "    optimizer.zero_grad()\n", ""),
    Bug("only the projection learns", "training.py", "    states.backward(leaf.grad)\n", ""),
    Bug("Adam's usual betas", "training.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.999)"),
    Bug("no dropout after validation", "workbench/runs.py", "    model.train()\n", ""),
    Bug("resumed with other random numbers", "workbench/runs.py", '    torch.set_rng_state(tensors["random"])\n', ""),
    Bug("average of one more", "workbench/checkpoint.py", "total / len(paths)", "total / (len(paths) + 1)"),
    Bug("padding may be chosen", "decoding.py", "totals[..., [PAD, BOS]]", "totals[..., [BOS]]"),
    Bug("end found outside the beam", "decoding.py", "ended[:, :beam].nonzero()", "ended.nonzero()"),
    Bug("one token too many", "decoding.py", "(ids.size(1) > limits)", "(ids.size(1) > limits + 1)"),
    Bug("BLEU lower-cased", "decoding.py", "BLEU(lowercase=lowercase)", "BLEU(lowercase=True)"),
    Bug("scaled by the values' width", "attention.py", "math.sqrt(query.size(-1))", "math.sqrt(value.size(-1))"),
    Bug("queries projected like keys", "multi_head.py", "self._split(self.W_q(query))", "self._split(self.W_k(query))"),
    Bug("values made from keys", "multi_head.py", "self._split(self.W_v(value))", "self._split(self.W_v(key))"),
    Bug("positions counted from 1", "positional_encoding.py", "torch.arange(length, ", "torch.arange(1, length + 1, "),
    Bug("all sines", "positional_encoding.py", "(angle.sin(), angle.cos())", "(angle.sin(), angle.sin())"),
    Bug("no activation", "encoder.py", "self.W_2(self.activation(self.W_1(x)))", "self.W_2(self.W_1(x))"),
    Bug(
        "unbiased variance, eps outside the root",
        "encoder.py",
        "return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)",
        "return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.bias",
    ),
    Bug("layers share weights", "encoder.py", "for _ in range(layers))", "for _ in range(1)) * layers"),
    Bug("cache does not advance", "decoder.py", "        self.length = end\n", ""),
    Bug("future seen by the decoder", "decoder.py", "keys, values, tgt_mask)", "keys, values)"),
    Bug(
        "target embeddings not tied",
        "transformer.py",
        "self.tgt_embedding.weight = self.output.weight = self.src_embedding.weight",
        "self.output.weight = self.src_embedding.weight",
    ),
    Bug(
        "padding on the left",
        "workbench/data.py",
        "[*row, *[PAD] * (longest - len(row))]",
        "[*[PAD] * (longest - len(row)), *row]",
    ),
    Bug("batches of unlike lengths", "workbench/data.py", "for i in sorted(order, key=by_length):", "for i in order:"),
    Bug(
        "sources without <eos>",
        "workbench/data.py",
        "encoded.sources.append([*source, EOS])",
        "encoded.sources.append(source)",
    ),
    Bug(
        "merges from the source alone",
        "workbench/vocabulary.py",
        "in chain.from_iterable(pairs) if len",
        "in pairs[0] if len",
    ),
    Bug("one occurrence more needed", "workbench/vocabulary.py", "if count >= min_freq", "if count > min_freq"),
    Bug(
        "heads merged across positions",
        "multi_head.py",
        "mixed.transpose(1, 2).flatten(2)",
        "mixed.reshape(*query.shape[:2], -1)",
    ),
    Bug(
        "mask not handed on",
        "multi_head.py",
        "keys, values, mask, return_weights=True)",
        "keys, values, return_weights=True)",
    ),
    Bug(
        "learned table never learns",
        "positional_encoding.py",
        "nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)",
        "torch.randn(max_length, d_model) * d_model**-0.5",
    ),
    Bug(
        "dropout on the sum",
        "encoder.py",
        "change = self.dropout(sublayer(x))",
        "return self.norm(self.dropout(x + sublayer(x)))",
    ),
    Bug(
        "no last norm in pre-norm",
        "encoder.py",
        "self.norm = LayerNorm(d_model) if norm_first else nn.Identity()",
        "self.norm = nn.Identity()",
    ),
    Bug(
        "one cache for all layers",
        "decoder.py",
        "super().__init__(LayerCache(capacity) for _ in range(layers))",
        "super().__init__([LayerCache(capacity)] * layers)",
    ),
    Bug(
        "hypotheses mixed",
        "decoder.py",
        "torch.eye(hypotheses, device=x.device)",
        "torch.ones(hypotheses, hypotheses, device=x.device)",
    ),
    Bug(
        "causal only in training",
        "transformer.py",
        "combine(causal_mask(tgt.size(1), device=tgt.device), padding",
        "combine(causal_mask(tgt.size(1), device=tgt.device) if self.training else None, padding",
    ),
    Bug(
        "logits scaled in training",
        "transformer.py",
        "return self.output(states)",
        "return self.output(states) * (self.config.d_model**-0.5 if self.training else 1)",
    ),
    Bug("no position sees itself", "masking.py", ".tril()", ".tril(-1)"),
    Bug("peak at half", "training.py", "min(step**-0.5,", "min((2 * step) ** -0.5,"),
    Bug(
        "each part by its own tokens",
        "training.py",
        "_add_gradients(model, batch, smoothing, tokens, bf16) for",
        "_add_gradients(model, batch, smoothing, tokens / len(batches), bf16) for",
    ),
    Bug("last batch lost", "workbench/data.py", "for group in groups]\n", "for group in groups[:-1]]\n"),
    Bug(
        "moments not resumed",
        "workbench/runs.py",
        'optimizer.load_state_dict({"state": moments,',
        'optimizer.load_state_dict({"state": {},',
    ),
    Bug(
        "beams keep a stranger's cache",
        "decoding.py",
        "* beginnings + parents)",
        "* beginnings + torch.arange(beam) % beginnings)",
    ),
    Bug(
        "best token of the wrong group",
        "decoding.py",
        "best.gather(1, places // GROUP)",
        "best.gather(1, places % best.size(1))",
    ),
    Bug(
        "limit counts padding",
        "decoding.py",
        "(src_mask.sum(dim=-1).flatten() + max_extra)",
        "(src_mask.sum(dim=-1).flatten() * 0 + src.size(1) + max_extra)",
    ),
    Bug(
        "search stops at the first end",
        "decoding.py",
        "sentence not in best or best[sentence].score < log_prob / length_penalty(limit, alpha)",
        "sentence not in best",
    ),
    Bug(
        "only the last checkpoint",
        "workbench/checkpoint.py",
        "sums.get(name, 0) + weight.double()",
        "weight.double() * len(paths)",
    ),
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
    return is_red(project, f"tests/test_{Path(file).name}") or is_red(project, "tests", *others)


def notebook_is_red(project: Path, notebook: str) -> bool:
    """Compare a notebook with its saved outputs, as strictly as `make test` does.

    Args:
        project: a folder that `copy_project` filled.
        notebook: its path in the project.
    """
    return is_red(project, "--nbval", notebook)


def lesson_about(file: str) -> str:
    """Find the lesson on a file of the module, as a path in the project.

    Args:
        file: the name of the file, such as "attention.py".
    """
    name = Path(file).stem
    (path,) = ROOT.glob(f"notebooks/*_{LESSONS_ON_MORE_FILES.get(name, name)}.ipynb")
    return path.relative_to(ROOT).as_posix()


def try_out(bug: Bug) -> tuple[bool, bool]:
    """Plant a bug in a copy of the project; tell whether the unit tests are red, and whether the lesson is.

    Args:
        bug: what to plant.

    Raises:
        ValueError: the bug no longer fits the code.
    """
    with tempfile.TemporaryDirectory() as folder:
        project = copy_project(Path(folder))
        plant(bug, project)
        return unit_tests_are_red(project, bug.file), notebook_is_red(project, lesson_about(bug.file))


def report(names: Iterable[str]) -> bool:
    """Print a table: which bug turns what red. True if the unit tests find all bugs and the lessons enough of them.

    Args:
        names: the bugs to plant; none for all.

    Raises:
        ValueError: a name is not known, or a bug no longer fits the code.
    """
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        raise ValueError(f"no bug called {', '.join(unknown)}; there are: {', '.join(bug.name for bug in BUGS)}")
    bugs = [bug for bug in BUGS if not names or bug.name in names]
    print(f"{'bug':<40} {'unit tests':<12} lesson", flush=True)
    by_tests = by_lessons = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for bug, (unit, lesson) in zip(bugs, pool.map(try_out, bugs), strict=True):
            by_tests += unit
            by_lessons += lesson
            verdict = f"{Path(lesson_about(bug.file)).stem} {'red' if lesson else 'GREEN'}"
            print(f"{bug.name:<40} {'red' if unit else 'GREEN':<12} {verdict}", flush=True)
    print(f"{by_tests} of {len(bugs)} found by the unit tests, {by_lessons} by the lessons")
    return by_tests == len(bugs) and by_lessons >= ENOUGH * len(bugs)


if __name__ == "__main__":
    sys.exit(not report(sys.argv[1:]))
