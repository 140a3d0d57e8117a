"""The command line: reads a command and its options, runs it, and turns errors into one line and an exit status."""

import argparse
import linecache
import os
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import torch

from annotated import __version__
from annotated_workbench.commands import classify, evaluate, export, generate, train, translate
from annotated_workbench.commands.options import PROGRAM, Command, add_options, complete
from annotated_workbench.run_folder import METRICS

COMMANDS = {
    "train": train.COMMAND,
    "translate": translate.COMMAND,
    "generate": generate.COMMAND,
    "classify": classify.COMMAND,
    "evaluate": evaluate.COMMAND,
    "export": export.COMMAND,
}
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # in a RuntimeError of PyTorch


def main(arguments: Sequence[str] | None = None, further: Mapping[str, Command] = MappingProxyType({})) -> int:
    """Run one command, or one of `further` packages, and return its exit status.

    0, or what the command returns; 2 after a one-line error; 130 after an interruption; 141 where nobody reads the
    output. With --debug, or ANNOTATED_DEBUG=1, an error is raised instead of being told in one line.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    args = argparse.Namespace()
    try:
        args = parse(arguments, further)
        status = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except KeyboardInterrupt:
        print(f"annotated: interrupted{_way_on(args)}.", file=sys.stderr)
        return 130
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        if "--debug" in arguments or os.environ.get("ANNOTATED_DEBUG"):
            raise
        return _fail(_told(error))
    return status or 0


def _told(error: Exception) -> str:
    """Say in one line what is wrong; raise the error again if it is neither bad input nor a lack of memory."""
    message = str(error)
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or any(text in message for text in OUT_OF_MEMORY):
        return f"not enough memory ({message.partition(chr(10))[0] or 'Python'}): try a smaller model, batch or beam."
    if isinstance(error, RuntimeError):
        raise error
    if isinstance(error, ValueError) and not _is_raised_here(error):
        return f"unexpected {type(error).__name__}: {message} (--debug shows where it comes from)"
    return message


def _is_raised_here(error: BaseException) -> bool:
    """Tell whether a `raise` of ours chose the message; others do not know what a user did."""
    if error.__cause__:
        return _is_raised_here(error.__cause__)
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    code = linecache.getline(frame.f_code.co_filename, line)
    return frame.f_globals["__name__"].startswith("annotated") and code.lstrip().startswith("raise ")


def _fail(message: str) -> int:
    print(f"annotated: {' '.join(message.split())}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return 2


def _drop_output() -> None:
    """Let unwritten output go nowhere: Python would try to write it again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _way_on(args: argparse.Namespace) -> str:
    """Tell how to go on with an interrupted training."""
    if not hasattr(args, "resume") or not (Path(args.out) / METRICS).exists():
        return ""
    return f": {PROGRAM} train --resume --out {shlex.quote(args.out)} goes on from the last whole epoch"


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help with the defaults that say something, and with examples line by line."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        says_something = action.default not in (None, []) and action.default is not False
        return super()._get_help_string(action) if says_something else action.help


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def parse(arguments: Sequence[str], further: Mapping[str, Command] = MappingProxyType({})) -> argparse.Namespace:
    """Read a command, and its options and words in any order."""
    commands = COMMANDS | {**further}
    parser = _Parser(
        prog=PROGRAM,
        description="Train a Transformer, translate, continue text, sort it, evaluate.",
        epilog=f"{PROGRAM} train --help shows examples; so does each of the others.",
    )
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in commands.items():
        _add_command(subparsers, name, command)
    if not arguments or arguments[0] not in commands:
        parser.parse_args(arguments[:1])  # shows the help or the version, or says what is wrong
    name, *rest = arguments
    return complete(commands[name], subparsers.choices[name], rest)


def _add_command(subparsers: "argparse._SubParsersAction[_Parser]", name: str, command: Command) -> None:
    words = _Parser(prog=f"{PROGRAM} {name} [options]", add_help=False)
    for word, settings in command.words.items():
        words.add_argument(word, **settings)
    subparser = subparsers.add_parser(
        name,
        help=command.summary,
        description=command.summary,
        usage=words.format_usage().removeprefix("usage: "),  # all options by name would be ten lines
        epilog="\n".join(["examples:", *(f"  {PROGRAM} {name} {words}".rstrip() for words in command.examples)]),
        formatter_class=_Help,
        parents=[words],
    )
    subparser.set_defaults(command=name, run=command.run)
    add_options(subparser, command)
