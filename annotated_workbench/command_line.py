"""The command line: train, translate, generate, classify, evaluate."""

import argparse
import ctypes
import math
import operator
import os
import reprlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn

from annotated import __version__
from annotated.config import UNK
from annotated.decoding import ALPHA, BEAM, MAX_EXTRA
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import in_bfloat16
from annotated.fast.memory import keep_memory
from annotated.fast.training import bf16_is_fast
from annotated.models.language_model import HOTTEST, generate
from annotated_workbench.architectures import ARCHITECTURES, PRESETS, TASKS, make_model
from annotated_workbench.checkpoint import load_run, load_translator, require_task
from annotated_workbench.classification import classify
from annotated_workbench.data import (
    CORPORA,
    DATA_FOLDER,
    TEXTS,
    Labelled,
    Pairs,
    hold_out,
    load_corpus,
    load_text,
    read_pairs,
    read_text,
    sentence,
    split_text,
)
from annotated_workbench.distributed import in_turn, is_first, joined, processes, tokenizer_of_first
from annotated_workbench.files import write_whole
from annotated_workbench.mapped import Lines, MappedTask
from annotated_workbench.metrics import accuracy, bleu, chrf, log_probs, loss_per_token, text_loss
from annotated_workbench.reviews import REVIEWS, load_reviews, read_reviews, split_reviews
from annotated_workbench.runs import (
    LARGEST_BATCH,
    METRICS,
    SCHEDULES,
    TrainingOptions,
    defaults_for,
    fit,
    load_settings,
    require_new,
)
from annotated_workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import (
    LARGEST_VOCABULARY,
    TOKENIZER,
    CharacterTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)

Commands = Mapping[str, tuple[str, Callable[[argparse.Namespace], None]]]  # by name: what it does, and what does it
NONE: Commands = {}

PROGRAM = "annotated" if Path(sys.argv[0]).stem == "annotated" else "python -m annotated"
TRY = {"translation": "translate", "generation": "generate", "classification": "classify"}
DEFAULTS = TrainingOptions()
# What is chosen where it is not given, by task.
GENERATION = {  # tried on tinyshakespeare for 15 minutes of two cores
    "preset": "characters",
    "dropout": 0.1,
    "batch_tokens": 1024,
    "schedule": "linear",
    "warmup": 100,
    "rate": 0.25,
    "smoothing": 0.0,
    "average": 1,
}
CLASSIFICATION = {  # tried on the validation part of rt_polarity
    "preset": "reviews",
    "dropout": 0.5,
    "epochs": 8,
    "batch_tokens": 1500,
    "schedule": "linear",
    "warmup": 100,
    "rate": 0.11,
    "average": 1,
    "vocab_size": 4000,
}
TOKENIZERS = {  # what fits a task, its default first
    "translation": ("bpe", "words"),
    "generation": ("characters",),
    "classification": ("words", "bpe"),
}
MANY = 10**9  # of whatever is counted
UNSURE = 0.65  # nats a token of its own translation; the model of the course is surer of nine captions in ten
LONGEST_LINE = 2**20  # bytes
READ_AT_ONCE = 2**15  # bytes of standard input, some hundred sentences: they are translated together

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
    ("ensemble", True): (("plain",), "only the fast forms of models compute together"),
    ("source", True): (("split",), "only a corpus has splits"),
}
FILES = ("text", "reviews", "source", "target")
OWN = ("corpus", "tokenizer", "vocab_size", *FILES)  # what a run keeps; of files, which there are


def main(arguments: Sequence[str] | None = None, further: Commands = NONE) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: the command and its options; those of this process unless given.
        further: commands of other rooms, which this one does not know.

    Returns:
        0; 2 after a one-line error for bad input; 130 after an interruption; 141 where nobody reads the output.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    args = argparse.Namespace(command=None)
    try:
        for argument in arguments:
            _require_utf_8(argument)
        args = _parse(arguments, further)
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
        return _fail(str(error) or "not enough memory")
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return _fail(f"not enough memory ({str(error).splitlines()[0]}): try a smaller model, batch or beam.")
    except KeyboardInterrupt:
        print(f"annotated: interrupted{_what_is_kept(args) if args.command == 'train' else ''}.", file=sys.stderr)
        return 130
    return 0


def _require_utf_8(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the argument {argument!r} is not UTF-8: set the terminal to UTF-8.") from None


def _fail(message: str) -> int:
    print(f"annotated: {' '.join(message.split())}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return 2


def _what_is_kept(args: argparse.Namespace) -> str:
    """Tell how to go on with a run that was interrupted: there is a way once an epoch is whole."""
    if (Path(args.out) / METRICS).exists():
        return f": {PROGRAM} train --resume --out {_typed(args.out)} goes on from the last whole epoch"
    return " before an epoch was whole: nothing is learned yet; start again, in another --out"


def _typed(path: str) -> str:
    """Write a path as one must type it."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _drop_output() -> None:
    """Let what is still to be written go nowhere, or Python would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_train(args: argparse.Namespace) -> None:
    """Train a model from scratch, or go on with a run, in as many processes as `torchrun` started."""
    with joined(_device(args.device)) as device:
        _train(args, device)


def _train(args: argparse.Namespace, device: torch.device) -> None:
    if not args.resume:
        require_new(args.out)
    fitting = TOKENIZERS[args.task]
    if args.tokenizer not in fitting:
        raise ValueError(f"--tokenizer {args.tokenizer} is not for {args.task}: there is {', '.join(fitting)}.")
    args.src = args.src or ("en" if args.task == "classification" else "de")
    bf16 = _bf16(args)
    keep_memory()
    with in_turn():  # one downloads, and the others find it
        material = MATERIALS[args.task](args)
    if chosen := _choose(args, material.defaults):
        print(f"chosen for {material.kind}: {chosen}")
    old = args.resume and (Path(args.out) / TOKENIZER).exists()
    tokenizer = tokenizer_of_first(lambda: load_tokenizer(args.out) if old else material.make_tokenizer())
    given = {field.name: getattr(args, field.name) for field in fields(TrainingOptions) if field.name != "bf16"}
    options = TrainingOptions(**{name: value for name, value in given.items() if value is not None}, bf16=bf16)
    model = _new_model(args, len(tokenizer), material.changes).to(device)
    print(
        f"{material.size}, {len(tokenizer):,} tokens in the vocabulary, {sum(p.numel() for p in model.parameters()):,} "
        f"parameters, {device.type}, {'bfloat16' if bf16 else 'float32'}, {torch.get_num_threads()} threads"
        f"{f' in each of {processes()} processes' * (processes() > 1)}",
        flush=True,
    )
    other = ("command", "run", "resume", "out", "texts")
    settings = {name: value for name, value in vars(args).items() if name not in other}
    config: Any = model.config
    task = material.make_task(tokenizer, config.max_length)
    fit(model, task, args.out, options=options, settings=settings, resume=args.resume)
    if is_first():
        print(f"Try it: {PROGRAM} {TRY[args.task]} {_typed(args.out)}")


def _task(args: argparse.Namespace) -> str:
    """Tell the task: what the corpus or files are for, of which there must be one; and that of --task, if it is given.

    Raises:
        ValueError: nothing is given to learn from or to score by, or several things; or it is for another task.
    """
    other = "target" if args.command == "train" else "reference"
    pair = args.source, getattr(args, other)
    if sum(map(bool, (args.corpus, args.text, args.reviews, any(pair)))) != 1 or any(pair) != all(pair):
        raise ValueError(f"{args.command} needs one of --corpus, --text, --reviews, or --source and --{other}.")
    if args.text or args.corpus in TEXTS:
        follows = "generation"
    elif args.reviews or args.corpus in REVIEWS:
        follows = "classification"
    else:
        follows = "translation"
    if vars(args).get("task") not in (None, follows):
        raise ValueError(
            f"--task {args.task} does not fit: translation learns from --source and --target or from a corpus of pairs "
            f"({', '.join(CORPORA)}), generation from --text or {', '.join(TEXTS)}, classification from --reviews or "
            f"{', '.join(REVIEWS)}."
        )
    return follows


class Material(NamedTuple):
    """What a corpus, or the user's files, hold for a task.

    Args:
        kind: what it is, to say for what options were chosen.
        size: how much it is.
        defaults: options to take where none are given.
        make_tokenizer: learns the tokens from it.
        make_task: makes the task, given a tokenizer and the most tokens that the model sees.
        changes: what it demands of the model's configuration.
    """

    kind: str
    size: str
    defaults: dict[str, Any]
    make_tokenizer: Callable[[], Tokenizer]
    make_task: Callable[[Tokenizer, int], Task]
    changes: dict[str, Any]


def _pairs(args: argparse.Namespace) -> Material:
    if args.mapped:
        return _mapped(args)
    pairs, val = _training_pairs(args)
    count = len(pairs.source)
    return Material(
        f"{count:,} pairs (the fewer, the smaller model and batches)",
        f"{count:,} training and {len(val.source):,} validation pairs",
        defaults_for(count),
        lambda: _new_tokenizer(args, pairs, (args.src, args.tgt)),
        lambda tokenizer, length: TranslationTask(tokenizer, pairs, val, args.src, args.tgt, length),
        {},
    )


def _mapped(args: argparse.Namespace) -> Material:
    if args.corpus or not (args.val_source and args.val_target):
        raise ValueError("--mapped is for --source and --target, with --val-source and --val-target.")
    sides = Lines(args.source), Lines(args.target)
    val, count = read_pairs(args.val_source, args.val_target), len(sides[0])
    return Material(
        f"{count:,} pairs",
        f"{count:,} training and {len(val.source):,} validation pairs",
        defaults_for(count),
        lambda: _new_tokenizer(args, sides, (args.src, args.tgt)),
        lambda tokenizer, length: MappedTask(
            tokenizer, args.mapped, args.source, args.target, val, args.src, args.tgt, length
        ),
        {},
    )


def _text(args: argparse.Namespace) -> Material:
    text, val = split_text(read_text(args.text) if args.text else load_text(args.corpus))
    return Material(
        "text",
        f"{len(text):,} training and {len(val):,} validation characters",
        GENERATION,
        lambda: CharacterTokenizer.train(text),
        lambda tokenizer, length: TextTask(tokenizer, text, val, length),
        {},
    )


def _reviews(args: argparse.Namespace) -> Material:
    reviews, val = (_review_split(args, split) for split in ("train", "val"))
    return Material(
        "reviews",
        f"{len(reviews.texts):,} training and {len(val.texts):,} validation texts of {len(set(reviews.labels))} labels",
        CLASSIFICATION,
        lambda: _new_tokenizer(args, [reviews.texts], [args.src]),
        lambda tokenizer, length: ClassificationTask(tokenizer, reviews, val, args.src, length),
        {"classes": len(set(reviews.labels))},
    )


MATERIALS = {"translation": _pairs, "generation": _text, "classification": _reviews}


def _review_split(args: argparse.Namespace, split: str) -> Labelled:
    return split_reviews(read_reviews(args.reviews), split) if args.reviews else load_reviews(args.corpus, split)


def _new_tokenizer(args: argparse.Namespace, sides: Sequence[Sequence[str]], languages: Sequence[str]) -> Tokenizer:
    if args.tokenizer == "bpe":
        return SubwordTokenizer.train(sides, languages, args.vocab_size)
    return WordTokenizer.train(sides, languages)


def _choose(args: argparse.Namespace, defaults: dict[str, Any]) -> str:
    """Set the options that are not given; return them as one would write them."""
    chosen = {name: value for name, value in defaults.items() if getattr(args, name) is None}
    if args.tokenizer != "bpe":
        chosen.pop("vocab_size", None)
    if args.preset in ("base", "big"):
        chosen.pop("dropout", None)  # the paper says which
    for name, value in chosen.items():
        setattr(args, name, value)
    return " ".join(f"{_option(name)} {value}" for name, value in chosen.items())


def _new_model(args: argparse.Namespace, vocab_size: int, changes: dict[str, Any]) -> nn.Module:
    """Make a new model of the size and with the switches that are given."""
    by_task = {row.task: row.presets for row in ARCHITECTURES.values() if args.preset in row.presets}
    if args.task not in by_task:
        fitting = [name for row in ARCHITECTURES.values() if row.task == args.task for name in row.presets]
        raise ValueError(
            f"--preset {args.preset} is for {', '.join(by_task)}: for {args.task} there is {', '.join(fitting)}."
        )
    changes = changes if args.dropout is None else changes | {"dropout": args.dropout}
    changes = changes | {"norm_first": True} if args.norm_first else changes
    torch.manual_seed(args.seed)
    return make_model(PRESETS[args.preset](vocab_size, **changes))


def run_translate(args: argparse.Namespace) -> None:
    """Translate the arguments, or the lines of standard input as they come."""
    model, tokenizer, info = _load(args)
    done = 0
    for texts in [args.texts] if args.texts else _standard_input(f"Sentences to translate from {info['src']}"):
        try:
            translations = translate(model, tokenizer, texts, info["src"], **_search(args))
        except ValueError as error:
            raise ValueError(f"after {done} lines: {error}" if done else str(error)) from None
        for translation in translations:
            print(_one_line(translation))
        sys.stdout.flush()
        if (args.texts or sys.stdin.isatty()) and not args.ensemble:
            for text in _unsure(model, tokenizer, Pairs(list(texts), translations), info, args.plain):
                print(
                    f"annotated: unsure of {text!r}: a model knows only what is like the sentences it learned from.",
                    file=sys.stderr,
                )
        done += len(texts)
        _return_memory()


def _unsure(model: nn.Module, tokenizer: Tokenizer, pairs: Pairs, info: dict[str, Any], plain: bool) -> list[str]:
    """Find the texts whose translations the model itself takes for unlikely."""
    found = log_probs(model, tokenizer, pairs, info["src"], info["tgt"], plain=plain)
    lengths = [len(ids) + 1 for ids in tokenizer.encode_batch(pairs.target, info["tgt"])]
    return [text for text, p, length in zip(pairs.source, found, lengths, strict=True) if text and -p / length > UNSURE]


def _one_line(text: str) -> str:
    """Keep line n of the output the translation of line n of the input, even if a model writes a line's end."""
    return text.replace("\n", " ")


def _return_memory() -> None:
    """Give freed memory back to the system: in glibc's pieces, a long input would take more and more."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _standard_input(what: str) -> Iterator[list[str]]:
    """Read standard input, some lines at a time: all that is there, and no more than `READ_AT_ONCE` bytes.

    Args:
        what: what someone at a terminal is asked for.
    """
    stream: Any = sys.stdin.buffer
    prompt = "> " if sys.stdin.isatty() else ""
    if prompt:
        print(f"{what}, one a line; Ctrl-D ends.", file=sys.stderr)
    rest, number = b"", 0
    while content := _ask(prompt, stream):
        *lines, rest = (rest + content).split(b"\n")
        if lines:
            yield _decoded(lines, number)
            number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"standard input, line {number + 1} has more than {LONGEST_LINE:,} bytes: give sentences.")
    if rest:
        yield _decoded([rest], number)
    if prompt:
        print(file=sys.stderr)


def _ask(prompt: str, stream: Any) -> bytes:
    print(prompt, end="", file=sys.stderr, flush=True)
    return stream.read1(READ_AT_ONCE)


def _decoded(lines: list[bytes], before: int) -> list[str]:
    return [sentence(line, f"standard input, line {number}") for number, line in enumerate(lines, start=before + 1)]


def run_generate(args: argparse.Namespace) -> None:
    """Print a text and what a model adds to it."""
    model, tokenizer = _load_language_model(args)
    known = tokenizer.vocabulary
    text = args.texts[0] if args.texts else "\n" if "\n" in known else known.words[UNK + 1]
    if unknown := sorted(set(text) - set(known.words)):
        raise ValueError(f"the model has never seen {unknown[0]!r}: begin with characters of the text it learned from.")
    writer: Any = model if args.plain else accelerate(model)
    ids = torch.tensor([tokenizer.encode(text, "")], dtype=torch.int64)
    how = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(args.seed)
    print(tokenizer.decode(generate(writer, ids.to(device), args.count, **how, generator=generator)[0]))


def _load_language_model(args: argparse.Namespace) -> tuple[nn.Module, CharacterTokenizer]:
    model, tokenizer, _ = _load_for(args, "generation")
    if not isinstance(tokenizer, CharacterTokenizer):
        raise ValueError(f"{args.model} was not trained on characters: train it anew.")
    return model, tokenizer


def _load_for(args: argparse.Namespace, task: str) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    model, tokenizer, info = load_run(args.model)
    require_task(model, task, args.model)
    model = in_bfloat16(model) if _bf16(args) else model
    return model.to(_device(args.device)), tokenizer, info


def run_classify(args: argparse.Namespace) -> None:
    """Print the likeliest label and its probability for each argument, or for lines of standard input as they come."""
    model, tokenizer, info = _load_for(args, "classification")
    for texts in [args.texts] if args.texts else _standard_input(f"Texts to sort, in {info['language']}"):
        found = classify(model, tokenizer, texts, info["language"], plain=args.plain)
        for probability, place in zip(*found.max(dim=-1), strict=True):
            print(f"{info['labels'][place]}\t{probability:.2f}")
        sys.stdout.flush()


def _evaluate_reviews(args: argparse.Namespace) -> None:
    """Print the share of texts that a classifier sorts rightly."""
    labelled = _review_split(args, args.split or "test")
    model, tokenizer, info = _load_for(args, "classification")
    found = classify(model, tokenizer, labelled.texts, info["language"], plain=args.plain)
    share = accuracy(found, labelled.labels, info["labels"])
    error = math.sqrt(share * (1 - share) / len(labelled.texts))
    print(f"{len(labelled.texts):,} texts: accuracy {share:.1%} ± {error:.1%}")


def _evaluate_text(args: argparse.Namespace) -> None:
    """Print a language model's loss: on a text, or on the part of a corpus that was held out in training."""
    text = read_text(args.text) if args.text else split_text(load_text(args.corpus))[1]
    model, tokenizer = _load_language_model(args)
    ids = torch.tensor(tokenizer.encode(text, ""))
    if len(ids) < 2:
        raise ValueError(f"a text of {len(ids)} tokens has nothing to predict.")
    loss = text_loss(model, ids, plain=args.plain)
    print(
        f"{len(ids):,} tokens, {int((ids == UNK).sum()):,} of them unknown: loss {loss:.3f} nats a token, "
        f"{loss / math.log(2):.3f} bits, perplexity {math.exp(loss):.2f}"
    )


def run_evaluate(args: argparse.Namespace) -> None:
    """Translate a test set and score it, or measure the loss on a text, or sort texts and count."""
    if args.task == "generation":
        return _evaluate_text(args)
    if args.task == "classification":
        return _evaluate_reviews(args)
    output = None if args.output is None else Path(args.output)
    if output is not None:
        _require_new(output)
    model, tokenizer, info = _load(args)
    if args.corpus:
        pairs = load_corpus(args.corpus, args.split or CORPORA[args.corpus][-1], info["src"], info["tgt"])
    else:
        pairs = read_pairs(args.source, args.reference)
    translations = translate(model, tokenizer, pairs.source, info["src"], **_search(args))
    if output is not None:
        _require_new(output)
        write_whole(output, "".join(f"{_one_line(text)}\n" for text in translations).encode())
    for source, reference, translation in list(zip(*pairs, translations, strict=True))[: args.show]:
        print(f"source       {source}\nreference    {reference}\ntranslation  {translation}\n")
    scores = {"BLEU": bleu(translations, pairs.target, info["tgt"]), "chrF": chrf(translations, pairs.target)}
    for name, (score, signature) in scores.items():
        print(f"{name} {score:.2f}  {signature}")
    try:
        loss = loss_per_token(model, tokenizer, pairs, info["src"], info["tgt"], plain=args.plain)
    except ValueError as error:
        print(f"loss not computed: {error}")
    else:
        print(f"loss {loss:.3f} nats a token of this vocabulary, perplexity {math.exp(loss):.2f}")


def _require_new(path: Path) -> None:
    """Raise an error unless a new file can be written at `path`: what is there may be the reference, or a device."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"--output {path} exists: delete it, or choose another.")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise FileNotFoundError(f"--output {path}: there is no folder {path.parent} to write into.")


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help with the defaults that say something, and with examples line by line."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default not in (None, False, []) else action.help


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def _parse(arguments: Sequence[str], further: Commands = NONE) -> argparse.Namespace:
    """Read a command, and its options and words in any order; after "--" all are words.

    Raises:
        ValueError: something is wrong, or an option would do nothing.
    """
    commands = COMMANDS | {name: Command(*row, {}, "", ("",)) for name, row in further.items()}
    parser, parsers = _parser(commands)
    if not arguments or arguments[0] not in commands:
        parser.parse_args(arguments[:1])  # shows the help or the version, or says what is wrong
    name, *words = arguments
    command, run, names = parsers[name], commands[name].run, commands[name].words
    end = words.index("--") if "--" in words else len(words)
    defaults = {action.dest: action.default for action in command._actions}
    # What is None after this was not given, whatever its default.
    given, found = command.parse_known_args(words[:end], argparse.Namespace(**dict.fromkeys(defaults)))
    if unknown := [word for word in found if word.startswith("-") and word != "-"]:
        command.error(f"unrecognized arguments: {' '.join(unknown)}; words that begin with - go after --")
    found += words[end + 1 :]
    if "model" in names and not "".join(found[:1]):
        command.error("the model is missing: give the folder of a run")
    if len(found) > len(names) and "..." not in "".join(names):
        command.error(f"unrecognized arguments: {' '.join(found[len(names) :])}")
    args = argparse.Namespace(command=name, run=run, texts=found)
    if "model" in names:
        args.model = _run_folder(found.pop(0))
    return _settle(args, defaults, {option: value for option, value in vars(given).items() if value is not None})


def _settle(args: argparse.Namespace, defaults: dict[str, Any], typed: dict[str, Any]) -> argparse.Namespace:
    """Complete what was typed, and refuse what would do nothing."""
    kept = load_settings(typed["out"]) if typed.get("resume") else {}
    for name in OWN if kept else ():  # a run would go on with these
        own = kept.get(name)
        if typed.get(name, own) != own and (own is None or name not in FILES):  # files may have moved
            raise ValueError(
                f"the run in {typed['out']} was started with {name}={own}, not {typed[name]}: leave {_option(name)} "
                "away, or start another run in another --out."
            )
    vars(args).update(defaults | kept | typed)
    if args.command in ("train", "evaluate"):
        args.task = _task(args)
    else:
        args.task = {command: task for task, command in TRY.items()}.get(args.command)
    if args.command == "train":
        args.tokenizer = args.tokenizer or TOKENIZERS[args.task][0]
    for name in typed:
        if args.task not in (tasks := ONLY_FOR.get(name, (args.task,))):
            raise ValueError(f"{_option(name)} is for {' and '.join(tasks)}, not for {args.task}.")
    for (other, value), (idle, why) in IDLE.items():
        found = getattr(args, other, None)
        for name in idle:
            if name in typed and (bool(found) if value is True else found) == value:
                beside = _option(other) + f" {value}" * (value is not True)
                raise ValueError(f"{_option(name)} does nothing beside {beside}: {why}.")
    return args


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number(kind: type[int] | type[float], **limits: int | float) -> Callable[[str], int | float]:
    """Make a type for argparse: a number within limits, each named as in `WITHIN`."""

    def number(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{reprlib.repr(text)} is no {what}") from None
        if not all(WITHIN[name](value, limit) for name, limit in limits.items()):
            wanted = " and ".join(f"{name.replace('_', ' ')} {limit:,}" for name, limit in limits.items())
            raise argparse.ArgumentTypeError(f"{reprlib.repr(value)} must be {wanted}")
        return value

    return number


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the empty text names nothing")
    return text


def _run_folder(text: str) -> str:
    """Find a run; those that come with the course, from any folder."""
    path, delivered = Path(_name(text)), DATA_FOLDER / "checkpoints"
    if path.exists() or Path("data/checkpoints") not in path.parents:
        return text
    if not delivered.is_dir():
        raise FileNotFoundError(f"there is no {text} here: it comes with the repository, not with the package.")
    return str(delivered / path.name)


WITHIN = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
COUNT = _number(int, at_least=1, at_most=MANY)
COUNT_OR_NONE = _number(int, at_least=0, at_most=MANY)
SHARE = _number(float, at_least=0, below=1)
NUCLEUS = _number(float, above=0, at_most=1)
ALPHAS = _number(float, at_least=0, at_most=100)
HEAT = _number(float, at_least=0, at_most=HOTTEST)
MINUTES = _number(float, above=0, at_most=1_000_000)  # two years
RATE = _number(float, above=0, at_most=1e30)  # what float32 holds, with room for an optimizer's factors
WIDTH = _number(int, at_least=0, at_most=100)  # wider beams find worse translations, and need memory
SEED = _number(int, at_least=0, at_most=2**32 - 1)
BATCH = _number(int, at_least=1, at_most=LARGEST_BATCH)
VOCABULARY = _number(int, at_least=1, at_most=LARGEST_VOCABULARY)

OPTIONS: dict[str, dict[str, Any]] = {
    "task": dict(choices=TASKS, help="what to learn; follows from the corpus"),
    "corpus": dict(choices=[*CORPORA, *TEXTS, *REVIEWS], help="a corpus of the course"),
    "text": dict(type=_name, help="your own text to continue; in training, its last tenth is held out"),
    "reviews": dict(
        type=_name, help="your own texts to sort: train/<label>/*.txt, perhaps test/, in a folder or archive"
    ),
    "source": dict(type=_name, help="your own sentences, UTF-8, one a line"),
    "target": dict(type=_name, help="their translations, line by line"),
    "reference": dict(type=_name, help="their translations, line by line"),
    "val-source": dict(type=_name, help="sentences for validation; held out from --source unless given"),
    "val-target": dict(type=_name, help="their translations"),
    "mapped": dict(type=_name, metavar="DIR", help="keep the pairs' ids in files here: for more than memory holds"),
    "src": dict(type=_name, help="language to translate from, de unless given, or of reviews, en unless given"),
    "tgt": dict(type=_name, default="en", help="language to translate into"),
    "out": dict(type=_name, required=True, help="folder of the run"),
    "resume": dict(action="store_true", help="go on with the run in --out, with its settings"),
    "preset": dict(choices=PRESETS, help="size of the model, or the LSTM it replaced; follows from the corpus"),
    "dropout": dict(type=SHARE, help="probability of dropping; follows from the corpus"),
    "norm-first": dict(
        action="store_true", help="LayerNorm before each sub-layer, not after it, as it always is but in translation"
    ),
    "tokenizer": dict(
        choices=("bpe", "words", "characters"),
        help="bpe unless given, characters to continue text, words to sort texts",
    ),
    "vocab-size": dict(type=VOCABULARY, help="number of subwords; follows from the corpus"),
    "epochs": dict(type=COUNT, help="passes over the training pairs at most; follows from the corpus"),
    "max-minutes": dict(type=MINUTES, help="minutes of training at most, validation included"),
    "batch-tokens": dict(type=BATCH, help="ids a side in a batch, padding included; follows from the corpus"),
    "accumulate": dict(type=COUNT, default=DEFAULTS.accumulate, help="batches per update"),
    "schedule": dict(
        choices=SCHEDULES,
        help="of the learning rate: the paper's, or linear to 0 where epochs or minutes end (with --resume and more of "
        "them, it jumps up); follows from the task",
    ),
    "warmup": dict(type=COUNT, help="updates until the highest rate; follows from the corpus"),
    "rate": dict(type=RATE, help="factor on the paper's learning rate; 1, or less in a short run"),
    "smoothing": dict(type=SHARE, help="label smoothing; follows from the task"),
    "average": dict(type=COUNT, help="last checkpoints, one an epoch, to average; follows from the task"),
    "seed": dict(type=SEED, default=DEFAULTS.seed, help="of weights, batches and dropout, or of what is drawn"),
    "count": dict(type=COUNT, default=500, help="tokens to add"),
    "temperature": dict(type=HEAT, default=1.0, help="below 1 the likely gets likelier; 0 takes the likeliest"),
    "top-k": dict(type=COUNT, help="draw from the k likeliest tokens only"),
    "top-p": dict(type=NUCLEUS, help="draw from the likeliest tokens that hold this probability only"),
    "split": dict(help="its split; the last one, its test set, unless given"),
    "show": dict(type=COUNT_OR_NONE, default=0, help="translations to print beside their references"),
    "output": dict(type=_name, help="file for the translations"),
    "ensemble": dict(
        type=_run_folder,
        action="append",
        default=[],
        metavar="RUN",
        help="folder of a run to average the probabilities with, of another seed; may be given again",
    ),
    "beam": dict(type=WIDTH, default=BEAM, help="hypotheses per sentence; 0 decodes greedily"),
    "alpha": dict(type=ALPHAS, default=ALPHA, help="exponent of the length penalty"),
    "max-extra": dict(
        type=COUNT_OR_NONE, default=MAX_EXTRA, help="tokens by which a translation may be longer than its source"
    ),
    "device": dict(default="auto", help="auto, cpu, cuda, cuda:1, mps …; auto takes a GPU where there is one"),
    "precision": dict(choices=("auto", "fp32", "bf16"), default="auto", help="auto takes bf16 where it is fast"),
    "plain": dict(action="store_true", help="compute by the paper's own files as they are printed: slower, in float32"),
}


class Command(NamedTuple):
    """A command.

    Args:
        what: it does.
        run: does it.
        words: what it takes beside options: how usage shows each, and what it is; of one with "...", any number.
        options: names of `OPTIONS`.
        examples: of all that follows its name.
    """

    what: str
    run: Callable[[argparse.Namespace], None]
    words: dict[str, str]
    options: str
    examples: tuple[str, ...]


COMMANDS = {
    "train": Command(
        "train a model from scratch",
        run_train,
        {},
        "task corpus text reviews source target val-source val-target mapped src tgt out resume preset dropout "
        "norm-first tokenizer vocab-size epochs max-minutes batch-tokens accumulate schedule warmup rate smoothing "
        "average seed device precision plain",
        (
            "--corpus captions --out runs/captions",
            "--source my.de --target my.en --src de --tgt en --out runs/mine",
            "--text my.txt --out runs/writer --max-minutes 15 --epochs 100",
            "--reviews my-reviews --out runs/critic",
            "--resume --out runs/mine --max-minutes 30",
        ),
    ),
    "translate": Command(
        "translate sentences",
        run_translate,
        {"model": "folder of a run", "[texts ...]": "sentences; lines of standard input unless given"},
        "ensemble beam alpha max-extra device precision plain",
        (
            'data/checkpoints/de-en "Ein Mann mit Hut spielt auf der Straße Gitarre."',
            "data/checkpoints/de-en                    # asks for sentences",
            "data/checkpoints/de-en < my.de > my.en",
        ),
    ),
    "generate": Command(
        "continue a text",
        run_generate,
        {
            "model": "folder of a run that learned from a text",
            "[text]": "its beginning; the end of a line unless given",
        },
        "count temperature top-k top-p seed device precision plain",
        ('runs/writer "Once upon a time"', 'runs/writer --temperature 0.7 --count 2000 "Once upon a time"'),
    ),
    "classify": Command(
        "sort texts",
        run_classify,
        {"model": "folder of a run that learned from reviews", "[texts ...]": "lines of standard input unless given"},
        "device precision plain",
        ('runs/critic "Not bad at all."', "runs/critic < texts.txt"),
    ),
    "evaluate": Command(
        "score a model on a test set",
        run_evaluate,
        {"model": "folder of a run"},
        "corpus text reviews split source reference show output ensemble beam alpha max-extra device precision plain",
        (
            "data/checkpoints/de-en --corpus multi30k --show 3",
            "runs/mine --source test.de --reference test.en",
            "runs/writer --text other.txt",
        ),
    ),
}


def _parser(commands: Mapping[str, Command]) -> tuple[_Parser, dict[str, _Parser]]:
    """Make the parser that lists the commands, and each command's own."""
    parser = _Parser(
        prog=PROGRAM,
        description="Train a Transformer, translate, continue text, sort it, evaluate.",
        epilog=f"{PROGRAM} train --help shows examples; so does each of the others.",
    )
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    listed = parser.add_subparsers(dest="command", required=True)
    for name, (what, _, words, options, examples) in commands.items():
        command = listed.add_parser(
            name,
            help=what,
            description=what,
            usage=" ".join((PROGRAM, name, "[options]", *words)),
            epilog="\n".join(("examples:", *(f"  {PROGRAM} {name} {example}".rstrip() for example in examples))),
            formatter_class=_Help,
        )
        if words:
            command.add_argument_group("words", "\n".join(f"{word:<22}{what}" for word, what in words.items()))
        for option in options.split():
            command.add_argument(f"--{option}", **OPTIONS[option])
    return parser, listed.choices


def _search(args: argparse.Namespace) -> dict[str, Any]:
    return {"beam": args.beam, "alpha": args.alpha, "max_extra": args.max_extra, "plain": args.plain}


def _bf16(args: argparse.Namespace) -> bool:
    if args.precision != "auto":
        return args.precision == "bf16"
    return not args.plain and bf16_is_fast(_device(args.device))


def _device(name: str) -> torch.device:
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    usable = [*(["cuda"] if gpus else []), *gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise ValueError(f"device {name!r} is not usable here; there are {', '.join(usable)}. Try --device auto.")
    return torch.device(name)


def _training_pairs(args: argparse.Namespace) -> tuple[Pairs, Pairs]:
    if any((args.val_source, args.val_target)) and not all((args.source, args.val_source, args.val_target)):
        raise ValueError("--val-source and --val-target go together, and with --source and --target.")
    if args.corpus:
        train_pairs, val = (load_corpus(args.corpus, split, args.src, args.tgt) for split in ("train", "val"))
        return train_pairs, val
    pairs = read_pairs(args.source, args.target)
    if args.val_source:
        return pairs, read_pairs(args.val_source, args.val_target)
    return hold_out(pairs, min(1000, max(1, len(pairs.source) // 20)))  # the same for every --seed


def _load(args: argparse.Namespace) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    model, tokenizer, info = load_translator([args.model, *args.ensemble])
    model = in_bfloat16(model) if _bf16(args) else model
    return model.to(_device(args.device)), tokenizer, info
