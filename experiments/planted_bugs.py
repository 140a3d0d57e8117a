"""Do the tests bite? Plant known bugs, one at a time, in a copy of the project and see what goes red.

    python -m experiments.planted_bugs [name …]

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

from tools.sync import PACKAGES, ROOT

ABOUT_THE_REPOSITORY = [
    "environment",
    "handout",
    "machines",
    "mutations",
    "notebooks",
    "planted_bugs",
    "reading",
    "run",
    "site",
    "sync",
]
ENOUGH = 0.75  # the share of the bugs that the lessons must catch

# A lesson and its file carry the same name, such as `attention.py` and `01_attention.ipynb`; these stand in another's.
LESSONS_ON_MORE_FILES = {
    "config": "decoder",
    "transformer": "decoder",
    "data": "training",
    "vocabulary": "training",
    "runs": "training",
    "run_folder": "training",
    "checkpoint": "evaluation",
    "metrics": "evaluation",
    "classifier": "classification",
    "language_model": "generation",
}
OWN_TESTS = {"config": "transformer", "fast/attention": "fast_transformer", "fast/residual": "fast_transformer"}
OWN_TESTS |= {"fast/cache": "fast_transformer", "fast/translator": "fast_transformer"}
OWN_TESTS |= {"models/classifier": "classification", "annotated_workbench/limits": "command_line"}
OWN_TESTS |= {"annotated_workbench/run_folder": "runs", "annotated_workbench/training_options": "runs"}
COMMANDS = ("classify", "evaluate", "generate", "options", "shared", "train", "translate")
OWN_TESTS |= {f"annotated_workbench/commands/{name}": "command_line" for name in COMMANDS}


class Bug(NamedTuple):
    """One change that makes the module wrong: in `file`, the text `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str


BUGS = [
    Bug("√d_k removed", "annotated/attention.py", " / math.sqrt(query.size(-1))", ""),
    Bug(
        "mask flipped",
        "annotated/attention.py",
        "scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)",
        "scores.masked_fill(mask, lowest).softmax(dim=-1).masked_fill(mask, 0.0)",
    ),
    Bug(
        "softmax over the queries",
        "annotated/attention.py",
        "return scores.softmax(dim=-1)\n",
        "return scores.softmax(dim=-2)\n",
    ),
    Bug(
        "padding hides queries",
        "annotated/masking.py",
        "(ids != pad_id)[:, None, None, :]",
        "(ids != pad_id)[:, None, :, None]",
    ),
    Bug("one future token seen", "annotated/masking.py", ".tril()", ".tril(1)"),
    Bug(
        "heads cut across positions",
        "annotated/multi_head.py",
        "x.unflatten(-1, (self.heads, -1)).transpose(1, 2)",
        "x.reshape(x.size(0), self.heads, x.size(1), -1)",
    ),
    Bug(
        "wrong exponent",
        "annotated/positional_encoding.py",
        "torch.float64) / d_model)",
        "torch.float64) / (d_model - 2))",
    ),
    Bug(
        "pre-norm unannounced",
        "annotated/encoder.py",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return x + self.dropout(sublayer(self.norm(x)))",
    ),
    Bug("dropout not made up for", "annotated/encoder.py", "x * kept / (1 - self.p)", "x * kept"),
    Bug(
        "cross-attention unmasked",
        "annotated/decoder.py",
        "attend(x, keys, values, src_mask)",
        "attend(x, keys, values)",
    ),
    Bug(
        "embeddings not scaled",
        "annotated/transformer.py",
        "embedding(ids) * math.sqrt(self.config.d_model)",
        "embedding(ids)",
    ),
    Bug(
        "cached step at position 0",
        "annotated/transformer.py",
        "start = 0 if cache is None else cache.length",
        "start = 0",
    ),
    Bug("first two rates equal", "annotated/training.py", "step * warmup**-1.5", "max(step - 1, 1) * warmup**-1.5"),
    Bug("padding given mass", "annotated/training.py", "        q[..., pad_id] = 0.0\n", ""),
    Bug("dropout while decoding", "annotated/decoding.py", "model.train(False)", "model.train(True)"),
    Bug(
        "end symbol ignored",
        "annotated/decoding.py",
        "done = done | (tokens == EOS) | (ids.size(1) > limits)",
        "done = done | (ids.size(1) > limits)",
    ),
    Bug("length penalty off by one", "annotated/decoding.py", "((5 + length) / 6)", "((4 + length) / 6)"),
    Bug("padding id ignored", "annotated/masking.py", "ids != pad_id", "ids != 0"),
    Bug("masks joined by OR", "annotated/masking.py", "torch.logical_and", "torch.logical_or"),
    Bug("start ignored", "annotated/positional_encoding.py", "self.table[start:end]", "self.table[: x.size(1)]"),
    Bug("dropout in eval mode", "annotated/encoder.py", "if not self.training or self.p == 0:", "if self.p == 0:"),
    Bug("dropout keeps p", "annotated/encoder.py", ">= self.p", "< self.p"),
    Bug("source mask lost", "annotated/encoder.py", "x = layer(x, mask)", "x = layer(x)"),
    Bug("cache not reordered", "annotated/decoder.py", "layer.tokens = tuple(x[rows] for x in layer.tokens)", "pass"),
    Bug(
        "cached memory not dropped",
        "annotated/decoder.py",
        "layer.memory = tuple(x[rows] for x in layer.memory)",
        "pass",
    ),
    Bug("embeddings N(0, 1)", "annotated/transformer.py", "std=self.config.d_model**-0.5", "std=1.0"),
    Bug(
        "no dropout on embeddings",
        "annotated/transformer.py",
        "return self.dropout(self.positions(",
        "return (self.positions(",
    ),
    Bug("big drops 0.1", "annotated/config.py", "heads=16, dropout=0.3", "heads=16, dropout=0.1"),
    Bug(
        "loss on padding",
        "annotated/training.py",
        "total = losses.masked_fill(~asked, 0.0).sum()",
        "total = losses.sum()",
    ),
    Bug(
        "target not shifted",
        "annotated/training.py",
        "model(src, tgt[:, :-1]), tgt[:, 1:]",
        "model(src, tgt[:, :-1]), tgt[:, :-1]",
    ),
    Bug("gradients kept", "annotated/training.py", "    optimizer.zero_grad()\n", ""),
    Bug(
        "only the projection learns",
        "annotated/fast/training.py",
        "        states.backward(torch.cat([chunk.grad for chunk in chunks]))\n",
        "        pass\n",
    ),
    Bug("Adam's usual betas", "annotated/training.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.999)"),
    Bug("no dropout after validation", "annotated_workbench/runs.py", "    run.model.train()\n", ""),
    Bug(
        "resumed with other random numbers",
        "annotated_workbench/run_folder.py",
        '    torch.set_rng_state(tensors["random"])\n',
        "",
    ),
    Bug("average of one more", "annotated_workbench/checkpoint.py", "total / len(paths)", "total / (len(paths) + 1)"),
    Bug("padding may be chosen", "annotated/decoding.py", "log_probs[:, [PAD, BOS]]", "log_probs[:, [BOS]]"),
    Bug("end found outside the beam", "annotated/decoding.py", "ended[:beam].nonzero()", "ended.nonzero()"),
    Bug("one token too many", "annotated/decoding.py", "(ids.size(1) > limits)", "(ids.size(1) > limits + 1)"),
    Bug("BLEU lower-cased", "annotated_workbench/metrics.py", "lowercase=lowercase, tok", "lowercase=True, tok"),
    Bug(
        "scaled by the values' width",
        "annotated/attention.py",
        "math.sqrt(query.size(-1))",
        "math.sqrt(value.size(-1))",
    ),
    Bug(
        "queries projected like keys",
        "annotated/multi_head.py",
        "self.split(self.W_q(query))",
        "self.split(self.W_k(query))",
    ),
    Bug("values made from keys", "annotated/multi_head.py", "self.split(self.W_v(value))", "self.split(self.W_v(key))"),
    Bug(
        "positions counted from 1",
        "annotated/positional_encoding.py",
        "torch.arange(length, ",
        "torch.arange(1, length + 1, ",
    ),
    Bug("all sines", "annotated/positional_encoding.py", "(angle.sin(), angle.cos())", "(angle.sin(), angle.sin())"),
    Bug("no activation", "annotated/encoder.py", "self.W_2(self.activation(self.W_1(x)))", "self.W_2(self.W_1(x))"),
    Bug(
        "unbiased variance, eps outside the root",
        "annotated/encoder.py",
        "correction=0)\n        return self.gain * (x - mean) / (variance + self.eps).sqrt()",
        "correction=1)\n        return self.gain * (x - mean) / (variance.sqrt() + self.eps)",
    ),
    Bug(
        "layers share weights",
        "annotated/encoder.py",
        "nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))",
        "nn.ModuleList([EncoderLayer(config)] * config.layers)",
    ),
    Bug("cache does not advance", "annotated/fast/cache.py", "        self.length = end\n", ""),
    Bug("future seen by the decoder", "annotated/decoder.py", "keys, values, tgt_mask)", "keys, values)"),
    Bug(
        "target embeddings not tied",
        "annotated/transformer.py",
        "self.tgt_embedding.weight = self.output.weight = self.src_embedding.weight",
        "self.output.weight = self.src_embedding.weight",
    ),
    Bug(
        "padding on the left",
        "annotated_workbench/data.py",
        "[*row, *[PAD] * (longest - len(row))]",
        "[*[PAD] * (longest - len(row)), *row]",
    ),
    Bug(
        "batches of unlike lengths",
        "annotated_workbench/data.py",
        "for key in (difference, longer):",
        "for key in (difference,):",
    ),
    Bug(
        "sources without <eos>",
        "annotated_workbench/data.py",
        "encoded.sources.append([*source, EOS])",
        "encoded.sources.append(source)",
    ),
    Bug(
        "merges from the source alone",
        "annotated_workbench/vocabulary.py",
        "in chain.from_iterable(sides) if len",
        "in sides[0] if len",
    ),
    Bug(
        "one occurrence more needed", "annotated_workbench/vocabulary.py", "if count >= min_freq", "if count > min_freq"
    ),
    Bug(
        "heads merged across positions",
        "annotated/multi_head.py",
        "mixed.transpose(1, 2).flatten(2)",
        "mixed.reshape(*query.shape[:2], -1)",
    ),
    Bug(
        "mask not handed on",
        "annotated/multi_head.py",
        "attention(queries, keys, values, mask)",
        "attention(queries, keys, values)",
    ),
    Bug(
        "learned table never learns",
        "annotated/positional_encoding.py",
        "nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)",
        "torch.randn(max_length, d_model) * d_model**-0.5",
    ),
    Bug(
        "dropout on the sum",
        "annotated/encoder.py",
        "self.norm(x + self.dropout(sublayer(x)))",
        "self.norm(self.dropout(x + sublayer(x)))",
    ),
    Bug(
        "no last norm in pre-norm",
        "annotated/encoder.py",
        "self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()",
        "self.norm = nn.Identity()",
    ),
    Bug(
        "one cache for all layers",
        "annotated/decoder.py",
        "super().__init__(LayerCache() for _ in range(layers))",
        "super().__init__([LayerCache()] * layers)",
    ),
    Bug(
        "hypotheses mixed",
        "annotated/fast/cache.py",
        "torch.eye(hypotheses, device=x.device)",
        "torch.ones(hypotheses, hypotheses, device=x.device)",
    ),
    Bug(
        "causal only in training",
        "annotated/transformer.py",
        "device=tgt.device)[start:]",
        "device=tgt.device)[start:] | (not self.training)",
    ),
    Bug(
        "logits scaled in training",
        "annotated/transformer.py",
        "return self.output(states)",
        "return self.output(states) * (self.config.d_model**-0.5 if self.training else 1)",
    ),
    Bug("no position sees itself", "annotated/masking.py", ".tril()", ".tril(-1)"),
    Bug("peak at half", "annotated/training.py", "min(step**-0.5,", "min((2 * step) ** -0.5,"),
    Bug(
        "each part by its own tokens",
        "annotated/fast/training.py",
        "smoothing, 1 / tokens)",
        "smoothing, 1 / max(1, int(counts.sum())))",
    ),
    Bug(
        "last batch lost",
        "annotated_workbench/data.py",
        "Batches(sources, targets, groups)\n",
        "Batches(sources, targets, groups[:-1])\n",
    ),
    Bug(
        "moments not resumed",
        "annotated_workbench/run_folder.py",
        'optimizer.load_state_dict({"state": moments,',
        'optimizer.load_state_dict({"state": {},',
    ),
    Bug(
        "beams keep a stranger's cache",
        "annotated/decoding.py",
        "cache.select(parents[kept])",
        "cache.select(parents[kept].sort().values)",
    ),
    Bug(
        "best token of the wrong group",
        "annotated/fast/decoding.py",
        "best.gather(1, places // GROUP)",
        "best.gather(1, places % best.size(1))",
    ),
    Bug(
        "limit counts padding",
        "annotated/decoding.py",
        "(src_mask.sum(dim=-1).flatten() + max_extra)",
        "(src_mask.sum(dim=-1).flatten() * 0 + src_mask.size(-1) + max_extra)",
    ),
    Bug(
        "search stops at the first end",
        "annotated/decoding.py",
        "if best is not None and log_probs[0].item() / length_penalty(limit, alpha) <= best.score:",
        "if best is not None:",
    ),
    Bug(
        "only the last checkpoint",
        "annotated_workbench/checkpoint.py",
        "sums.get(name, 0) + weight.double()",
        "weight.double() * len(paths)",
    ),
    Bug(
        "gradient of a softmax without its sum",
        "annotated/fast/attention.py",
        "products.addcmul_(wide, products.sum(dim=-1, keepdim=True), value=-1)",
        "products",
    ),
    Bug(
        "dropout's factor forgotten in the weights",
        "annotated/fast/transformer.py",
        "add_norm(x, sublayer(x, scale), residual.norm, p)",
        "add_norm(x, sublayer(x, 1.0), residual.norm, p)",
    ),
    Bug(
        "dropped gradients come through", "annotated/fast/residual.py", "of_x if kept is None else of_x * kept", "of_x"
    ),
    Bug(
        "padding in the mean",
        "annotated/models/classifier.py",
        "real.sum(dim=1, keepdim=True)",
        "real.size(1) * real[:, :1]",
    ),
    Bug(
        "a text's padding is read",
        "annotated/models/classifier.py",
        "self.encoder(x, padding_mask(ids))",
        "self.encoder(x)",
    ),
    Bug(
        "a sum for a mean",
        "annotated/models/classifier.py",
        "sums / real.sum(dim=1, keepdim=True).clamp(min=1)",
        "sums",
    ),
    Bug(
        "words hidden in evaluation",
        "annotated/models/classifier.py",
        "self.config.word_dropout if self.training else 0.0",
        "self.config.word_dropout",
    ),
    Bug(
        "a writer sees ahead",
        "annotated/models/language_model.py",
        "device=ids.device)[start:]",
        "device=ids.device)[start:] | True",
    ),
    Bug(
        "a cached word at position 0",
        "annotated/models/language_model.py",
        "math.sqrt(self.config.d_model), start)",
        "math.sqrt(self.config.d_model))",
    ),
    Bug(
        "temperature upside down",
        "annotated/models/language_model.py",
        "(below / temperature)",
        "(below * temperature)",
    ),
    Bug("a nucleus one too large", "annotated/models/language_model.py", "before >= top_p", "before > top_p"),
    Bug(
        "the last token is never drawn", "annotated/models/language_model.py", "* ends[..., -1:]", "* ends[..., -2:-1]"
    ),
    Bug("smoothing in the loss alone", "annotated/fast/training.py", "new_tensor(-scale * uniform)", "new_tensor(0.0)"),
]


def copy_project(folder: Path) -> Path:
    """Copy what the tests and the notebooks read.

    Args:
        folder: an empty folder.
    """
    for name in (*PACKAGES, "data", "experiments", "notebooks", "tests", "tools"):
        if (ROOT / name).exists():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            )
    for name in ("pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def plant(bug: Bug, project: Path) -> None:
    """Put the bug into a copy of the project, and into the notebooks that show the code.

    Args:
        bug: what to change.
        project: a folder that `copy_project` filled.

    Raises:
        ValueError: the old text is not in the file exactly once.
    """
    path = project / bug.file
    text = path.read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} holds {text.count(bug.old)} times, not once: {bug.old}")
    path.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "tools.sync"], cwd=project, check=True, capture_output=True)


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
        file: the file that was changed, such as "annotated/attention.py".
    """
    others = (f"--ignore=tests/test_{name}.py" for name in ABOUT_THE_REPOSITORY)
    return is_red(project, f"tests/test_{own_tests(file)}.py") or is_red(project, "tests", *others)


def own_tests(file: str) -> str:
    """Name the tests of a file, a path in the project: they carry its name, and that of its room if it is `fast`."""
    name = file.removesuffix(".py").removeprefix("annotated/")
    return OWN_TESTS.get(name, name.replace("/", "_") if name.startswith("fast/") else Path(name).name)


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
        file: its path in the project, such as "annotated/attention.py".
    """
    name = "speed" if file.startswith("annotated/fast/") else Path(file).stem
    (path,) = ROOT.glob(f"notebooks/[0-9][0-9]_{LESSONS_ON_MORE_FILES.get(name, name)}.ipynb")
    return path.relative_to(ROOT).as_posix()


def try_out(bug: Bug) -> tuple[bool, bool]:
    """Plant a bug in a copy of the project; tell whether the unit tests are red, and whether the lesson is.

    Args:
        bug: what to plant.

    Raises:
        ValueError: the bug no longer fits the code.
    """
    with tempfile.TemporaryDirectory() as folder:
        project, lesson = copy_project(Path(folder)), lesson_about(bug.file)
        plant(bug, project)
        return unit_tests_are_red(project, bug.file), notebook_is_red(project, lesson)


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
    print(f"{'bug':<44} {'unit tests':<12} lesson", flush=True)
    by_tests = by_lessons = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for bug, (unit, lesson) in zip(bugs, pool.map(try_out, bugs), strict=True):
            by_tests += unit
            by_lessons += lesson
            verdict = f"{Path(lesson_about(bug.file)).stem} {'red' if lesson else 'GREEN'}"
            print(f"{bug.name:<44} {'red' if unit else 'GREEN':<12} {verdict}", flush=True)
    print(f"of {len(bugs)} bugs the unit tests find {by_tests}, the lessons {by_lessons}")
    return by_tests == len(bugs) and by_lessons >= ENOUGH * len(bugs)


if __name__ == "__main__":
    sys.exit(not report(sys.argv[1:]))
