"""The command line: train, translate, generate, classify, evaluate."""

import argparse
import ctypes
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn

from annotated.config import UNK
from annotated.decoding import ALPHA, BEAM, MAX_EXTRA
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import in_bfloat16
from annotated.fast.memory import keep_memory
from annotated.fast.training import bf16_is_fast
from annotated.models.language_model import generate
from annotated.workbench.architectures import ARCHITECTURES, PRESETS, TASKS, make_model
from annotated.workbench.checkpoint import load_run, load_translator, require_task
from annotated.workbench.classification import classify
from annotated.workbench.data import (
    CORPORA,
    TEXTS,
    Labelled,
    Pairs,
    hold_out,
    load_corpus,
    load_text,
    read_pairs,
    read_text,
    split_text,
)
from annotated.workbench.distributed import in_turn, is_first, joined, processes, tokenizer_of_first
from annotated.workbench.files import write_whole
from annotated.workbench.mapped import Lines, MappedTask
from annotated.workbench.metrics import accuracy, bleu, chrf, log_probs, loss_per_token, text_loss
from annotated.workbench.reviews import REVIEWS, load_reviews, read_reviews, split_reviews
from annotated.workbench.runs import METRICS, SCHEDULES, TrainingOptions, defaults_for, fit, load_settings, require_new
from annotated.workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated.workbench.translation import translate
from annotated.workbench.vocabulary import (
    TOKENIZER,
    CharacterTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)

Commands = Mapping[str, tuple[str, Callable[[argparse.Namespace], None]]]  # by name: what it does, and what does it
NONE: Commands = {}

PROGRAM = "python -m annotated"
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
REVIEWS_HELP = "your own texts to sort: a folder, or archive of it, with train/<label>/*.txt, and test/ if you like"
LARGEST_BEAM = 100  # wider ones find worse translations, and their memory grows with it
ONE_OF = "evaluate needs one of --corpus, --text, --reviews, or --source and --reference."
UNSURE = 0.65  # nats a token of its own translation; the model of the course is surer of nine captions in ten
LONGEST_LINE = 2**20  # bytes
READ_AT_ONCE = 2**15  # bytes of standard input, some hundred sentences: they are translated together


def main(arguments: Sequence[str] | None = None, further: Commands = NONE) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: the command and its options; those of this process unless given.
        further: commands of other rooms, which this one does not know.

    Returns:
        0; 2 after a one-line error for bad input; 130 after an interruption; 141 where nobody reads the output.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else None
    args = argparse.Namespace()
    try:
        for argument in arguments:
            _require_utf_8(argument)
        args = _parse(_parser(further=further), arguments)
        if args.command == "train" and args.resume:
            # What the run was started with holds again, unless it is given anew.
            args = _parse(_parser(load_settings(args.out), further), arguments)
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except (ValueError, OSError, MemoryError) as error:
        return _fail(str(error) or "not enough memory")
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return _fail(f"not enough memory ({str(error).splitlines()[0]}): try a smaller model, batch or beam.")
    except KeyboardInterrupt:
        print(f"annotated: interrupted{_what_is_kept(args) if command == 'train' else ''}.", file=sys.stderr)
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
    if (Path(getattr(args, "out", "")) / METRICS).exists():
        return f": {PROGRAM} train --resume --out {shlex.quote(args.out)} goes on from the last whole epoch"
    return " before an epoch was whole: nothing is learned yet; start again, in another --out"


def _drop_output() -> None:
    """Let what is still to be written go nowhere, or Python would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_train(args: argparse.Namespace) -> None:
    """Train a model from scratch, or go on with a run, in as many processes as `torchrun` started."""
    with joined(_device(args.device)) as device:
        _train(args, device)


def _train(args: argparse.Namespace, device: torch.device) -> None:
    if args.resume:
        _require_same(args, load_settings(args.out))
    else:
        require_new(args.out)
    args.task = _task(args)
    if args.mapped and args.task != "translation":
        raise ValueError(f"--mapped is for pairs of sentences, not for {args.task}.")
    fitting = TOKENIZERS[args.task]
    args.tokenizer = args.tokenizer or fitting[0]
    if args.tokenizer not in fitting:
        raise ValueError(f"--tokenizer {args.tokenizer} is not for {args.task}: there is {', '.join(fitting)}.")
    if args.tokenizer != "bpe" and args.vocab_size is not None:
        raise ValueError("--vocab-size is for --tokenizer bpe: whole words and characters are as many as there are.")
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
    settings = {name: value for name, value in vars(args).items() if name not in ("command", "run", "resume", "out")}
    config: Any = model.config
    task = material.make_task(tokenizer, config.max_length)
    fit(model, task, args.out, options=options, settings=settings, resume=args.resume)
    if is_first():
        print(f"Try it: {PROGRAM} {TRY[args.task]} {shlex.quote(args.out)}")


def _task(args: argparse.Namespace) -> str:
    """Tell the task: what the corpus or files are for, which must be the one that is given, if one is."""
    if args.text or args.corpus in TEXTS:
        follows = "generation"
    elif args.reviews or args.corpus in REVIEWS:
        follows = "classification"
    else:
        follows = "translation"
    if args.task not in (None, follows):
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
    if args.corpus or not all((args.source, args.target, args.val_source, args.val_target)):
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
    if (args.text and args.corpus) or args.reviews or _pair_files(args):
        raise ValueError("to learn to continue text, train needs either --corpus or --text, and nothing else.")
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
    if (args.reviews and args.corpus) or _pair_files(args):
        raise ValueError("to learn to sort texts, train needs either --corpus or --reviews, and nothing else.")
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
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.items())


def _new_model(args: argparse.Namespace, vocab_size: int, changes: dict[str, Any]) -> nn.Module:
    """Make a new model of the size and with the switches that are given."""
    by_task = {row.task: row.presets for row in ARCHITECTURES.values() if args.preset in row.presets}
    if args.task not in by_task:
        fitting = [name for row in ARCHITECTURES.values() if row.task == args.task for name in row.presets]
        raise ValueError(
            f"--preset {args.preset} is for {', '.join(by_task)}: for {args.task} there is {', '.join(fitting)}."
        )
    changes = changes if args.dropout is None else changes | {"dropout": args.dropout}
    if args.norm_first:
        if args.preset == "recurrent":
            raise ValueError("--norm-first is for Transformers: the LSTM of --preset recurrent has no LayerNorm.")
        changes = changes | {"norm_first": True}
    torch.manual_seed(args.seed)
    return make_model(PRESETS[args.preset](vocab_size, **changes))


def _require_same(args: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Refuse to resume with another corpus or tokenizer than the run's; one's own files are compared by checksum."""
    for name in ("corpus", "tokenizer", "vocab_size"):
        if getattr(args, name) != settings.get(name):
            raise ValueError(
                f"the run in {args.out} was started with {name}={settings.get(name)}, not {getattr(args, name)}: leave "
                f"--{name.replace('_', '-')} away, or start another run in another --out."
            )


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
            for text in _unsure(model, tokenizer, Pairs(list(texts), translations), info):
                print(
                    f"annotated: unsure of {text!r}: a model knows only what is like the sentences it learned from.",
                    file=sys.stderr,
                )
        done += len(texts)
        _return_memory()


def _unsure(model: nn.Module, tokenizer: Tokenizer, pairs: Pairs, info: dict[str, Any]) -> list[str]:
    """Find the texts whose translations the model itself takes for unlikely."""
    found = log_probs(model, tokenizer, pairs, info["src"], info["tgt"])
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
    texts = []
    for number, line in enumerate(lines, start=before + 1):
        try:
            texts.append(line.decode("utf-8-sig" if number == 1 else "utf-8").strip())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input, line {number}: not UTF-8 ({error.reason}). Convert it to UTF-8."
            ) from None
    return texts


def run_generate(args: argparse.Namespace) -> None:
    """Print a text and what a model adds to it."""
    model, tokenizer = _load_language_model(args)
    unknown = sorted(set(args.text) - set(tokenizer.vocabulary.words))
    if unknown:
        raise ValueError(f"the model has never seen {unknown[0]!r}: begin with characters of the text it learned from.")
    writer: Any = model if args.plain else accelerate(model)
    ids = torch.tensor([tokenizer.encode(args.text, "")], dtype=torch.int64)
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
    if args.source or args.reference or args.text or (args.reviews and args.corpus):
        raise ValueError(ONE_OF)
    labelled = _review_split(args, args.split or "test")
    model, tokenizer, info = _load_for(args, "classification")
    found = classify(model, tokenizer, labelled.texts, info["language"], plain=args.plain)
    share = accuracy(found, labelled.labels, info["labels"])
    error = math.sqrt(share * (1 - share) / len(labelled.texts))
    print(f"{len(labelled.texts):,} texts: accuracy {share:.1%} ± {error:.1%}")


def _evaluate_text(args: argparse.Namespace) -> None:
    """Print a language model's loss: on a text, or on the part of a corpus that was held out in training."""
    if args.source or args.reference or args.reviews or (args.text and args.corpus):
        raise ValueError(ONE_OF)
    text = read_text(args.text) if args.text else split_text(load_text(args.corpus))[1]
    model, tokenizer = _load_language_model(args)
    ids = torch.tensor(tokenizer.encode(text, ""))
    if len(ids) < 2:
        raise ValueError(f"a text of {len(ids)} tokens has nothing to predict.")
    loss = text_loss(model, ids)
    print(
        f"{len(ids):,} tokens, {int((ids == UNK).sum()):,} of them unknown: loss {loss:.3f} nats a token, "
        f"{loss / math.log(2):.3f} bits, perplexity {math.exp(loss):.2f}"
    )


def run_evaluate(args: argparse.Namespace) -> None:
    """Translate a test set and score it, or measure the loss on a text, or sort texts and count."""
    if args.text or args.corpus in TEXTS:
        return _evaluate_text(args)
    if args.reviews or args.corpus in REVIEWS:
        return _evaluate_reviews(args)
    output = None if args.output is None else Path(args.output)
    if output is not None:
        _require_new(output)
    if args.corpus and not (args.source or args.reference):
        split = args.split or CORPORA[args.corpus][-1]
    elif not (args.source and args.reference and not args.corpus):
        raise ValueError(ONE_OF)
    elif args.split:
        raise ValueError("--split is for a --corpus; --source and --reference have none.")
    model, tokenizer, info = _load(args)
    if args.corpus:
        pairs = load_corpus(args.corpus, split, info["src"], info["tgt"])
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
        loss = loss_per_token(model, tokenizer, pairs, info["src"], info["tgt"])
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
        return super()._get_help_string(action) if action.default not in (None, False, [], "\n") else action.help


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse, and take texts after options, too, where argparse sees no place for them."""
    args, rest = parser.parse_known_args(arguments)
    end = rest.index("--") if "--" in rest else len(rest)  # behind it, all are sentences
    if rest and (
        args.command not in ("translate", "classify")
        or any(word.startswith("-") and word != "-" for word in rest[:end])
    ):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.texts += rest[:end] + rest[end + 1 :]
    return args


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Make a type for argparse: a whole number in a range."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value} must be at least {least}" + f" and at most {most}" * bool(most))
        return value

    return number


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the empty text is no path")
    return text


def _parser(train_defaults: dict | None = None, further: Commands = NONE) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Train a Transformer, translate, continue text, sort it, evaluate.",
        epilog=f"{PROGRAM} train --help shows examples; so does each of the others.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, *examples: str) -> argparse.ArgumentParser:
        epilog = "\n".join(["examples:", *(f"  {PROGRAM} {name} {example}".rstrip() for example in examples)])
        return commands.add_parser(name, help=what, description=what, epilog=epilog, formatter_class=_Help)

    command = add(
        "train",
        "train a model from scratch",
        "--corpus captions --out runs/captions",
        "--source my.de --target my.en --src de --tgt en --out runs/mine",
        "--text my.txt --out runs/writer --max-minutes 15 --epochs 100",
        "--reviews my-reviews --out runs/critic",
        "--resume --out runs/mine --max-minutes 30",
    )
    command.add_argument("--task", choices=TASKS, help="what to learn; follows from the corpus")
    command.add_argument("--corpus", choices=[*CORPORA, *TEXTS, *REVIEWS], help="a corpus of the course")
    command.add_argument("--text", type=_path, help="your own text to learn to continue; its last tenth is held out")
    command.add_argument("--reviews", type=_path, help=REVIEWS_HELP)
    command.add_argument("--source", type=_path, help="your own sentences, UTF-8, one a line")
    command.add_argument("--target", type=_path, help="their translations, line by line")
    command.add_argument(
        "--val-source", type=_path, help="sentences for validation; held out from --source unless given"
    )
    command.add_argument("--val-target", type=_path, help="their translations")
    command.add_argument(
        "--mapped", type=_path, metavar="DIR", help="keep the pairs' ids in files here: for more than memory holds"
    )
    command.add_argument("--src", help="language to translate from, de unless given, or of reviews, en unless given")
    command.add_argument("--tgt", default="en", help="language to translate into")
    command.add_argument("--out", type=_path, required=True, help="folder of the run")
    command.add_argument("--resume", action="store_true", help="go on with the run in --out, with its settings")
    command.add_argument(
        "--preset", choices=PRESETS, help="size of the model, or the LSTM it replaced; follows from the corpus"
    )
    command.add_argument("--dropout", type=float, help="probability of dropping; follows from the corpus")
    command.add_argument("--norm-first", action="store_true", help="LayerNorm before each sub-layer, not after it")
    command.add_argument(
        "--tokenizer",
        choices=("bpe", "words", "characters"),
        help="bpe unless given, characters to continue text, words to sort texts",
    )
    command.add_argument("--vocab-size", type=int, help="number of subwords; follows from the corpus")
    command.add_argument(
        "--epochs",
        type=int,
        help="passes over the training pairs at most; follows from the corpus",
    )
    command.add_argument("--max-minutes", type=float, help="minutes of training at most, validation included")
    command.add_argument(
        "--batch-tokens", type=int, help="ids a side in a batch, padding included; follows from the corpus"
    )
    command.add_argument("--accumulate", type=int, default=DEFAULTS.accumulate, help="batches per update")
    command.add_argument(
        "--schedule",
        choices=SCHEDULES,
        help="of the learning rate: the paper's, or linear to 0 where epochs or minutes end (with --resume and more of "
        "them, it jumps up); follows from the task",
    )
    command.add_argument("--warmup", type=int, help="updates until the highest rate; follows from the corpus")
    command.add_argument("--rate", type=float, help="factor on the paper's learning rate; 1, or less in a short run")
    command.add_argument("--smoothing", type=float, help="label smoothing; follows from the task")
    command.add_argument(
        "--average", type=int, help="last checkpoints, one an epoch, to average; follows from the task"
    )
    command.add_argument("--seed", type=int, default=DEFAULTS.seed, help="of weights, batches and dropout")
    _add_device(command)
    command.set_defaults(run=run_train, **(train_defaults or {}))

    command = add(
        "translate",
        "translate sentences",
        'data/checkpoints/de-en "Ein Mann mit Hut spielt auf der Straße Gitarre."',
        "data/checkpoints/de-en                    # asks for sentences",
        "data/checkpoints/de-en < my.de > my.en",
    )
    command.set_defaults(run=run_translate)
    command.add_argument("model", type=_path, help="folder of a run")
    command.add_argument("texts", nargs="*", help="sentences; lines of standard input unless given")
    _add_search(command)

    command = add(
        "generate",
        "continue a text",
        'runs/writer "Once upon a time"',
        "runs/writer --temperature 0.7 --count 2000",
    )
    command.set_defaults(run=run_generate)
    command.add_argument("model", type=_path, help="folder of a run that learned from a text")
    command.add_argument("text", nargs="?", default="\n", help="the beginning; the end of a line unless given")
    command.add_argument("--count", type=_whole(0), default=500, help="tokens to add")
    command.add_argument(
        "--temperature", type=float, default=1.0, help="below 1 the likely gets likelier; 0 takes the likeliest"
    )
    command.add_argument("--top-k", type=_whole(1), help="draw from the k likeliest tokens only")
    command.add_argument("--top-p", type=float, help="draw from the likeliest tokens that hold this probability only")
    command.add_argument("--seed", type=int, default=DEFAULTS.seed, help="of what is drawn")
    _add_device(command)

    command = add("classify", "sort texts", 'runs/critic "Not bad at all."', "runs/critic < texts.txt")
    command.set_defaults(run=run_classify)
    command.add_argument("model", type=_path, help="folder of a run that learned from reviews")
    command.add_argument("texts", nargs="*", help="texts; lines of standard input unless given")
    _add_device(command)

    command = add(
        "evaluate",
        "score a model on a test set",
        "data/checkpoints/de-en --corpus multi30k --show 3",
        "runs/mine --source test.de --reference test.en",
        "runs/writer --text other.txt",
    )
    command.set_defaults(run=run_evaluate)
    command.add_argument("model", type=_path, help="folder of a run")
    command.add_argument("--corpus", choices=[*CORPORA, *TEXTS, *REVIEWS], help="a corpus of the course")
    command.add_argument("--text", type=_path, help="your own text, for a model that continues text")
    command.add_argument("--reviews", type=_path, help=REVIEWS_HELP)
    command.add_argument("--split", help="its split; the last one, its test set, unless given")
    command.add_argument("--source", type=_path, help="your own sentences, UTF-8, one a line")
    command.add_argument("--reference", type=_path, help="their translations, line by line")
    command.add_argument("--show", type=_whole(0), default=0, help="translations to print beside their references")
    command.add_argument("--output", type=_path, help="file for the translations")
    _add_search(command)

    for name, (what, run) in further.items():
        add(name, what, "").set_defaults(run=run)
    return parser


def _add_search(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="RUN",
        help="folder of a run to average the probabilities with, of another seed; may be given again",
    )
    command.add_argument(
        "--beam", type=_whole(0, LARGEST_BEAM), default=BEAM, help="hypotheses per sentence; 0 decodes greedily"
    )
    command.add_argument("--alpha", type=float, default=ALPHA, help="exponent of the length penalty")
    command.add_argument(
        "--max-extra", type=int, default=MAX_EXTRA, help="tokens by which a translation may be longer than its source"
    )
    _add_device(command)


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", default="auto", help="auto, cpu, cuda, cuda:1, mps …; auto takes a GPU where there is one"
    )
    command.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="auto", help="auto takes bf16 where it is fast"
    )
    command.add_argument(
        "--plain", action="store_true", help="compute by the paper's own files as they are printed: slower, in float32"
    )


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
    files, val_files = [args.source, args.target], [args.val_source, args.val_target]
    if args.corpus and not any(files + val_files):
        train_pairs, val = (load_corpus(args.corpus, split, args.src, args.tgt) for split in ("train", "val"))
        return train_pairs, val
    if args.corpus or not all(files):
        raise ValueError("train needs either --corpus, or --source and --target.")
    if any(val_files) and not all(val_files):
        raise ValueError("--val-source and --val-target go together.")
    pairs = read_pairs(*files)
    if all(val_files):
        return pairs, read_pairs(*val_files)
    return hold_out(pairs, min(1000, max(1, len(pairs.source) // 20)))  # the same for every --seed


def _pair_files(args: argparse.Namespace) -> bool:
    return any((args.source, args.target, args.val_source, args.val_target))


def _load(args: argparse.Namespace) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    model, tokenizer, info = load_translator([args.model, *args.ensemble])
    model = in_bfloat16(model) if _bf16(args) else model
    return model.to(_device(args.device)), tokenizer, info
