"""The command line: reads a command and its options, runs it, and turns errors into one line and an exit status."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from annotated import __version__
from annotated_workbench.architectures import USES
from annotated_workbench.commands import classify, evaluate, generate, train, translate
from annotated_workbench.commands.options import (
    OPTIONS,
    PROGRAM,
    TOKENIZERS,
    Command,
    refuse_another_run,
    refuse_idle,
    run_folder,
    task_of,
)
from annotated_workbench.commands.shared import typed_path
from annotated_workbench.data import is_utf_8
from annotated_workbench.run_folder import METRICS, load_settings

NONE: Mapping[str, Command] = MappingProxyType({})

COMMANDS = {
    "train": train.COMMAND,
    "translate": translate.COMMAND,
    "generate": generate.COMMAND,
    "classify": classify.COMMAND,
    "evaluate": evaluate.COMMAND,
}


def main(arguments: Sequence[str] | None = None, further: Mapping[str, Command] = NONE) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: the command and its options; those of this process unless given.
        further: commands of other rooms, which this one does not know.

    Returns:
        0, or what the command returns; 2 after a one-line error for bad input; 130 after an interruption; 141 where
        nobody reads the output.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    args = argparse.Namespace(command=None)
    try:
        for argument in arguments:
            if not is_utf_8(argument):
                raise ValueError(f"the argument {argument!r} is not UTF-8: set the terminal to UTF-8.")
        args = _parse(arguments, further)
        status = args.run(args)
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
    return status or 0


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
        return f": {PROGRAM} train --resume --out {typed_path(args.out)} goes on from the last whole epoch"
    return " before an epoch was whole: nothing is learned yet; start again, in another --out"


def _drop_output() -> None:
    """Let what is still to be written go nowhere, or Python would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help with the defaults that say something, and with examples line by line."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default not in (None, False, []) else action.help


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def _make_parser(commands: Mapping[str, Command]) -> tuple[_Parser, dict[str, _Parser]]:
    """Make the parser that lists the commands, and each command's own."""
    parser = _Parser(
        prog=PROGRAM,
        description="Train a Transformer, translate, continue text, sort it, evaluate.",
        epilog=f"{PROGRAM} train --help shows examples; so does each of the others.",
    )
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in commands.items():
        subparser = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            usage=" ".join((PROGRAM, name, "[options]", *command.words)),
            epilog="\n".join(["examples:", *(f"  {PROGRAM} {name} {words}".rstrip() for words in command.examples)]),
            formatter_class=_Help,
        )
        if command.words:
            words = "\n".join(f"{word:<22}{meaning}" for word, meaning in command.words.items())
            subparser.add_argument_group("words", words)
        for option in command.options.split():
            subparser.add_argument(f"--{option}", **OPTIONS[option])
    return parser, subparsers.choices


def _parse(arguments: Sequence[str], further: Mapping[str, Command] = NONE) -> argparse.Namespace:
    """Read a command, and its options and words in any order; after "--" all are words."""
    commands = COMMANDS | {**further}
    parser, subparsers = _make_parser(commands)
    if not arguments or arguments[0] not in commands:
        parser.parse_args(arguments[:1])  # shows the help or the version, or says what is wrong
    name, *rest = arguments
    command, subparser = commands[name], subparsers[name]
    end = rest.index("--") if "--" in rest else len(rest)
    defaults = {action.dest: action.default for action in subparser._actions if action.dest != "help"}
    # What is None after this was not typed, whatever its default.
    given, words = subparser.parse_known_args(rest[:end], argparse.Namespace(**dict.fromkeys(defaults)))
    typed = {option: value for option, value in vars(given).items() if value is not None}
    if unknown := [word for word in words if word.startswith("-") and word != "-"]:
        subparser.error(f"unrecognized arguments: {' '.join(unknown)}; words that begin with - go after --")
    words += rest[end + 1 :]
    if "model" in command.words and not "".join(words[:1]):
        subparser.error("the model is missing: give the folder of a run")
    if len(words) > len(command.words) and "..." not in "".join(command.words):
        subparser.error(f"unrecognized arguments: {' '.join(words[len(command.words) :])}")
    args = argparse.Namespace(command=name, run=command.run, texts=words)
    if "model" in command.words:
        args.model = run_folder(words.pop(0))
    return _complete(args, defaults, typed)


def _complete(args: argparse.Namespace, defaults: dict[str, Any], typed: dict[str, Any]) -> argparse.Namespace:
    """Add what was not typed, and refuse what would do nothing."""
    kept = load_settings(typed["out"]) if typed.get("resume") else {}
    if kept:
        refuse_another_run(kept, typed)
    vars(args).update(defaults | kept | typed)
    if args.command in ("train", "evaluate"):
        args.task = task_of(args)
    else:
        args.task = {command: task for task, command in USES.items()}.get(args.command)
    if args.command == "train":
        args.tokenizer = args.tokenizer or TOKENIZERS[args.task][0]
    refuse_idle(args, typed)
    return args
