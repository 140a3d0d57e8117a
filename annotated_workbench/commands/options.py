"""The options of all commands, a row each, and which of them go together."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from annotated.decoding import ALPHA, BEAM, MAX_EXTRA
from annotated_workbench import limits
from annotated_workbench.architectures import PRESETS, TaskName
from annotated_workbench.data import CORPORA, DATA_FOLDER, TEXTS
from annotated_workbench.export import EXPORTS
from annotated_workbench.reviews import REVIEWS
from annotated_workbench.run_folder import read_state
from annotated_workbench.training_options import TrainingOptions

PROGRAM = "annotated" if Path(sys.argv[0]).stem == "annotated" else "python -m annotated"


class Command(NamedTuple):
    """A command: what it does, and the function that does it."""

    summary: str
    run: Callable[[Namespace], int | None]  # its exit status, 0 unless given
    examples: tuple[str, ...]  # of all that follows its name
    words: Mapping[str, dict[str, Any]] = {}  # arguments of argparse for what stands beside options
    options: str = ""  # names of `OPTIONS`
    only: Mapping[str, str] = {}  # by task, or several: the names of options for that alone


def name_text(text: str) -> str:
    """Take any name in UTF-8 but the empty one, whatever the locale reads it as, as a type for argparse."""
    if not text:
        raise ArgumentTypeError("the empty text names nothing")
    try:
        return os.fsencode(text).decode()
    except UnicodeEncodeError:  # not typed, but from the settings of a run
        return text
    except UnicodeDecodeError:  # neither our files nor safetensors take such names
        raise ArgumentTypeError(f"{text!r} is not UTF-8: rename it, or choose a locale of UTF-8") from None


def path_text(text: str) -> str:
    """Take a name as the system's functions need it, as a type for argparse."""
    return os.fsdecode(name_text(text).encode())


def run_folder(text: str) -> str:
    """Find a run, as a type for argparse; those that come with the course, from any folder."""
    path = Path(text := path_text(text))
    if path.exists() or Path("data/checkpoints") not in path.parents:
        return text
    return str(DATA_FOLDER / "checkpoints" / path.name)


MODEL = {"model": dict(type=run_folder, help="folder of a run")}
TEXTS_TO_READ = {"texts": dict(nargs="*", default=[], help="texts; lines of standard input unless given")}
COMPUTE = "device precision plain"
SEARCH = "ensemble beam alpha max-extra"

OPTIONS: dict[str, dict[str, Any]] = {
    "corpus": dict(choices=[*CORPORA, *TEXTS, *REVIEWS], help="a corpus of the course"),
    "text": dict(type=path_text, help="your own text to continue; in training, its last tenth is held out"),
    "reviews": dict(type=path_text, help="your own texts to sort: train/<label>/*.txt, perhaps test/, in a folder"),
    "source": dict(type=path_text, help="your own sentences, UTF-8, one a line"),
    "target": dict(type=path_text, help="their translations, line by line"),
    "reference": dict(type=path_text, help="their translations, line by line"),
    "val-source": dict(type=path_text, help="sentences for validation; held out from --source unless given"),
    "val-target": dict(type=path_text, help="their translations"),
    "src": dict(type=name_text, help="language to translate from, de unless given, or of reviews, en unless given"),
    "tgt": dict(type=name_text, help="language to translate into, en unless given"),
    "out": dict(type=path_text, required=True, help="folder to write"),
    "to": dict(choices=EXPORTS, required=True, help="the engine"),
    "resume": dict(action="store_true", help="go on with the run in --out, with its settings"),
    "init": dict(type=run_folder, metavar="RUN", help="begin with a run's model; a low --rate keeps more of it"),
    "preset": dict(choices=PRESETS, help="size of the model, or the LSTM it replaced; follows from the corpus"),
    "layers": dict(type=limits.LAYERS, help="layers of each stack; the preset's unless given"),
    "dropout": dict(type=limits.SHARE, help="probability of dropping; follows from the corpus"),
    "norm-first": dict(action="store_true", help="LayerNorm before each sub-layer, as it always is but in translation"),
    "tokenizer": dict(choices=("bpe", "words"), help="bpe unless given, words to sort texts"),
    "vocab-size": dict(type=limits.VOCABULARY_SIZE, help="number of subwords; follows from the corpus"),
    "count": dict(type=limits.COUNT, default=500, help="tokens to add"),
    "temperature": dict(type=limits.TEMPERATURE, default=1.0, help="below 1 favours the likely; 0 takes the best"),
    "top-k": dict(type=limits.COUNT, help="draw from the k likeliest tokens only"),
    "top-p": dict(type=limits.NUCLEUS, help="draw from the likeliest tokens that hold this probability only"),
    "split": dict(help="part of the corpus or the reviews; the last one, the test set, unless given"),
    "show": dict(type=limits.COUNT_OR_NONE, default=0, help="translations to print beside their references"),
    "ensemble": dict(type=run_folder, action="append", default=[], metavar="RUN", help="a run to average with; repeat"),
    "beam": dict(type=limits.BEAM_WIDTH, default=BEAM, help="hypotheses per sentence; 0 decodes greedily"),
    "nbest": dict(type=limits.COUNT, help="translations of each, at most --beam, after its number and their scores"),
    "alpha": dict(type=limits.LENGTH_PENALTY, default=ALPHA, help="exponent of the length penalty"),
    "max-extra": dict(type=limits.COUNT_OR_NONE, default=MAX_EXTRA, help="tokens that a translation may have more"),
    "device": dict(default="auto", help="auto, cpu, cuda, cuda:1, mps …; auto takes a GPU where there is one"),
    "precision": dict(choices=("auto", "fp32", "bf16"), default="auto", help="auto takes bf16 where it is fast"),
}
OPTIONS |= {field.name.replace("_", "-"): dict(field.metadata) for field in fields(TrainingOptions) if field.metadata}
for option in OPTIONS.values():
    if option.get("default") not in (None, []):
        option["help"] += " (default: %(default)s)"


def add_options(parser: ArgumentParser, command: Command) -> None:
    """Give a parser what a command takes, the options for some tasks alone under a heading of their own."""
    for word, settings in command.words.items():
        parser.add_argument(word, **settings)
    for name in command.options.split():
        parser.add_argument(f"--{name}", **OPTIONS[name])
    for tasks, names in command.only.items():
        group = parser.add_argument_group(f"for {tasks.replace(' ', ' and ')} only")
        for name in names.split():
            group.add_argument(f"--{name}", **OPTIONS[name])
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")


def complete(command: Command, parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """Read a command's arguments; add a run's settings to --resume, and the task; refuse what is for other tasks."""
    args = parser.parse_intermixed_args(arguments)
    if getattr(args, "resume", False):
        kept = read_state(args.out)[1]["settings"]
        parser.set_defaults(**kept)
        args = parser.parse_intermixed_args(arguments)
        for name in ("corpus", "init", "tokenizer", "vocab_size"):  # what else must stay, the run itself knows
            if (typed := getattr(args, name)) != kept.get(name):
                raise ValueError(
                    f"the run in {args.out} was started with {name}={kept.get(name)}, not {typed}: leave that away, or "
                    "start another run in another --out."
                )
    if "corpus" in args:
        args.task = task_of(args)
    for tasks, names in command.only.items():
        for name in names.split():
            place = name.replace("-", "_")
            if getattr(args, place) != parser.get_default(place) and args.task not in tasks.split():
                raise ValueError(f"--{name} is for {tasks.replace(' ', ' and ')}, not for {args.task}.")
    return args


def task_of(args: Namespace) -> TaskName:
    """Tell what a corpus or files are for; raise a ValueError unless there is one of them."""
    other = "target" if args.command == "train" else "reference"
    pair = args.source, getattr(args, other)
    if sum(map(bool, (args.corpus, args.text, args.reviews, any(pair)))) != 1 or any(pair) != all(pair):
        raise ValueError(f"{args.command} needs one of --corpus, --text, --reviews, or --source and --{other}.")
    if args.text or args.corpus in TEXTS:
        return "generation"
    return "classification" if args.reviews or args.corpus in REVIEWS else "translation"
