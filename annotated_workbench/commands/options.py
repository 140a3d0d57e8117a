"""The options of all commands, and what each may stand beside."""

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from annotated.decoding import ALPHA, BEAM, MAX_EXTRA
from annotated_workbench.architectures import PRESETS, TASKS, TaskName
from annotated_workbench.data import CORPORA, DATA_FOLDER, TEXTS
from annotated_workbench.limits import (
    BEAM_WIDTH,
    COUNT,
    COUNT_OR_NONE,
    LAYERS,
    LENGTH_PENALTY,
    NUCLEUS,
    SHARE,
    TEMPERATURE,
    VOCABULARY_SIZE,
)
from annotated_workbench.reviews import REVIEWS
from annotated_workbench.training_options import TrainingOptions

PROGRAM = "annotated" if Path(sys.argv[0]).stem == "annotated" else "python -m annotated"


class Command(NamedTuple):
    """A command: what it does, and the function that does it."""

    summary: str
    run: Callable[[Namespace], int | None]  # its exit status, 0 unless given
    words: dict[str, str]  # what it takes beside options: how usage shows each, and what it is; "...": any number
    options: str  # names of `OPTIONS`
    examples: tuple[str, ...]  # of all that follows its name


def name_of_file(text: str) -> str:
    """Take any text but the empty one, as a type for argparse."""
    if not text:
        raise ArgumentTypeError("the empty text names nothing")
    return text


def run_folder(text: str) -> str:
    """Find a run, as a type for argparse; those that come with the course, from any folder."""
    path, delivered = Path(name_of_file(text)), DATA_FOLDER / "checkpoints"
    if path.exists() or Path("data/checkpoints") not in path.parents:
        return text
    if not delivered.is_dir():
        raise FileNotFoundError(f"there is no {text} here: it comes with the repository, not with the package.")
    return str(delivered / path.name)


OPTIONS: dict[str, dict[str, Any]] = {
    "task": dict(choices=TASKS, help="what to learn; follows from the corpus"),
    "corpus": dict(choices=[*CORPORA, *TEXTS, *REVIEWS], help="a corpus of the course"),
    "text": dict(type=name_of_file, help="your own text to continue; in training, its last tenth is held out"),
    "reviews": dict(
        type=name_of_file, help="your own texts to sort: train/<label>/*.txt, perhaps test/, in a folder or archive"
    ),
    "source": dict(type=name_of_file, help="your own sentences, UTF-8, one a line"),
    "target": dict(type=name_of_file, help="their translations, line by line"),
    "reference": dict(type=name_of_file, help="their translations, line by line"),
    "val-source": dict(type=name_of_file, help="sentences for validation; held out from --source unless given"),
    "val-target": dict(type=name_of_file, help="their translations"),
    "mapped": dict(
        type=name_of_file, metavar="DIR", help="keep the pairs' ids in files here: for more than memory holds"
    ),
    "src": dict(type=name_of_file, help="language to translate from, de unless given, or of reviews, en unless given"),
    "tgt": dict(type=name_of_file, default="en", help="language to translate into"),
    "out": dict(type=name_of_file, required=True, help="folder of the run"),
    "resume": dict(action="store_true", help="go on with the run in --out, with its settings"),
    "preset": dict(choices=PRESETS, help="size of the model, or the LSTM it replaced; follows from the corpus"),
    "layers": dict(type=LAYERS, help="layers of each stack; the preset's unless given"),
    "dropout": dict(type=SHARE, help="probability of dropping; follows from the corpus"),
    "norm-first": dict(
        action="store_true", help="LayerNorm before each sub-layer, not after it, as it always is but in translation"
    ),
    "tokenizer": dict(
        choices=("bpe", "words", "characters"),
        help="bpe unless given, characters to continue text, words to sort texts",
    ),
    "vocab-size": dict(type=VOCABULARY_SIZE, help="number of subwords; follows from the corpus"),
    "count": dict(type=COUNT, default=500, help="tokens to add"),
    "temperature": dict(type=TEMPERATURE, default=1.0, help="below 1 the likely gets likelier; 0 takes the likeliest"),
    "top-k": dict(type=COUNT, help="draw from the k likeliest tokens only"),
    "top-p": dict(type=NUCLEUS, help="draw from the likeliest tokens that hold this probability only"),
    "split": dict(help="its split; the last one, its test set, unless given"),
    "show": dict(type=COUNT_OR_NONE, default=0, help="translations to print beside their references"),
    "output": dict(type=name_of_file, help="file for the translations"),
    "ensemble": dict(
        type=run_folder,
        action="append",
        default=[],
        metavar="RUN",
        help="folder of a run to average the probabilities with, of another seed; may be given again",
    ),
    "beam": dict(type=BEAM_WIDTH, default=BEAM, help="hypotheses per sentence; 0 decodes greedily"),
    "alpha": dict(type=LENGTH_PENALTY, default=ALPHA, help="exponent of the length penalty"),
    "max-extra": dict(
        type=COUNT_OR_NONE, default=MAX_EXTRA, help="tokens by which a translation may be longer than its source"
    ),
    "device": dict(default="auto", help="auto, cpu, cuda, cuda:1, mps …; auto takes a GPU where there is one"),
    "precision": dict(
        choices=("auto", "fp32", "bf16", "int8"),
        default="auto",
        help="auto takes bf16 where it is fast; int8, to translate on a CPU, is faster still",
    ),
}
for _field in fields(TrainingOptions):
    if _field.metadata:
        OPTIONS[_field.name.replace("_", "-")] = dict(_field.metadata)

# An option either acts or is refused. It is for all tasks but where this says which;
PAIRS_ONLY = (
    "source target val_source val_target mapped tgt norm_first reference show output ensemble beam alpha max_extra"
)
ONLY_FOR = {
    "text": ("generation",),
    "reviews": ("classification",),
    **dict.fromkeys(("src", "vocab_size", "split"), ("translation", "classification")),
    **dict.fromkeys(PAIRS_ONLY.split(), ("translation",)),
}
# and beside another option, with this value (True: with any), these would do nothing.
IDLE = {
    ("beam", 0): (("alpha",), "greedy search has no length penalty"),
    ("temperature", 0): (("top_k", "top_p", "seed"), "the likeliest token is taken, and none drawn"),
    ("top_k", 1): (("temperature", "top_p", "seed"), "the likeliest token is taken, and none drawn"),
    ("tokenizer", "words"): (("vocab_size",), "there are as many words as there are"),
    ("preset", "recurrent"): (("norm_first",), "the LSTM has no LayerNorm"),
    ("precision", "bf16"): (("plain",), "the paper's own files compute in float32"),
    ("precision", "int8"): (("plain",), "the paper's own files compute in float32"),
    ("ensemble", True): (("plain",), "only the fast forms of models compute together"),
    ("source", True): (("split",), "only a corpus has splits"),
}
TOKENIZERS = {  # what fits a task, its default first
    "translation": ("bpe", "words"),
    "generation": ("characters",),
    "classification": ("words", "bpe"),
}
FILES = ("text", "reviews", "source", "target")
KEPT = ("corpus", "tokenizer", "vocab_size", *FILES)  # what a run keeps; of files, which there are


def option_of(name: str) -> str:
    """Write the name of an option as it is typed."""
    return f"--{name.replace('_', '-')}"


def refuse_idle(args: Namespace, typed: dict[str, Any]) -> None:
    """Raise a ValueError if an option that was typed would do nothing, for the task or beside another option."""
    for name in typed:
        tasks = ONLY_FOR.get(name, (args.task,))
        if args.task not in tasks:
            raise ValueError(f"{option_of(name)} is for {' and '.join(tasks)}, not for {args.task}.")
    for (other, value), (idle, reason) in IDLE.items():
        given = getattr(args, other, None)
        for name in idle:
            if name in typed and (bool(given) if value is True else given) == value:
                beside = option_of(other) + ("" if value is True else f" {value}")
                raise ValueError(f"{option_of(name)} does nothing beside {beside}: {reason}.")


def refuse_another_run(kept: dict[str, Any], typed: dict[str, Any]) -> None:
    """Raise a ValueError if the settings that a run has kept are others than what was typed."""
    for name in KEPT:
        own = kept.get(name)
        if typed.get(name, own) != own and (own is None or name not in FILES):  # files may have moved
            raise ValueError(
                f"the run in {typed['out']} was started with {name}={own}, not {typed[name]}: leave {option_of(name)} "
                "away, or start another run in another --out."
            )


def task_of(args: Namespace) -> TaskName:
    """Tell the task: what the corpus or files are for, of which there must be one; --task, if given, must agree."""
    other = "target" if args.command == "train" else "reference"
    pair = args.source, getattr(args, other)
    if sum(map(bool, (args.corpus, args.text, args.reviews, any(pair)))) != 1 or any(pair) != all(pair):
        raise ValueError(f"{args.command} needs one of --corpus, --text, --reviews, or --source and --{other}.")
    if args.text or args.corpus in TEXTS:
        task: TaskName = "generation"
    elif args.reviews or args.corpus in REVIEWS:
        task = "classification"
    else:
        task = "translation"
    if args.command == "train" and args.task not in (None, task):
        raise ValueError(
            f"--task {args.task} does not fit: translation learns from --source and --target or from a corpus of pairs "
            f"({', '.join(CORPORA)}), generation from --text or {', '.join(TEXTS)}, classification from --reviews or "
            f"{', '.join(REVIEWS)}."
        )
    return task
