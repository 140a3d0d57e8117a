"""The command line: reads a command and its options, runs it, and turns errors into one line and an exit status."""

import argparse
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from annotated import __version__
from annotated_workbench.commands import classify, evaluate, export, generate, train, translate
from annotated_workbench.commands.options import PROGRAM, Command, add_options, complete
from annotated_workbench.commands.shared import tell
from annotated_workbench.run_folder import STATE

COMMANDS = {
    "train": train.COMMAND,
    "translate": translate.COMMAND,
    "generate": generate.COMMAND,
    "classify": classify.COMMAND,
    "evaluate": evaluate.COMMAND,
    "export": export.COMMAND,
}
PACKAGES = str(Path(__file__).parents[1] / "annotated")  # how the paths of our packages begin
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # in a RuntimeError of PyTorch


def main(arguments: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one of the commands, and return its exit status.

    0, or what the command returns; 2 after a one-line error; 130 after an interruption; 141 where nobody reads the
    output. An error that no input explains is raised, with --debug every error.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, and the next file to be opened would get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's has not; the locale's encoding may lack characters
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # none can be written, and packages that are imported ask for its name alone
        tempfile.tempdir = os.curdir
    args = argparse.Namespace()
    try:
        args = parse(arguments, commands)
        status = args.run(args)
        sys.stdout.flush()
        return status or 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try to write the rest at its end
        return 141
    except KeyboardInterrupt:
        tell(f"annotated: interrupted{_way_on(args)}.")
        return 130
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        message = _in_a_line(error)
        if message is None or "--debug" in arguments:
            raise
        tell(f"annotated: {message}")
        return 2


def _in_a_line(error: Exception) -> str | None:
    """Say what is wrong; None if that is neither bad input nor a lack of memory, but a mistake within."""
    message = str(error)
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or any(text in message for text in OUT_OF_MEMORY):
        return f"not enough memory ({message.partition(chr(10))[0] or 'Python'}): try a smaller model, batch or beam."
    *_, innermost = traceback.extract_tb(error.__traceback__)
    # What we refuse we raise ourselves. The system's errors have a number or a class of their own; texts, an encoding.
    ours = innermost.filename.startswith(PACKAGES) and (innermost.line or "raise").startswith("raise")
    unnumbered = type(error) is OSError and not error.errno
    theirs = isinstance(error, OSError | UnicodeError | ModuleNotFoundError) and not unnumbered
    return " ".join(message.split()) if (ours or theirs) and not isinstance(error, RuntimeError) else None


def _way_on(args: argparse.Namespace) -> str:
    """Tell how to go on with an interrupted training."""
    if not hasattr(args, "resume") or not (Path(args.out) / STATE).exists():
        return ""
    return f": {PROGRAM} train --resume --out {shlex.quote(args.out)} goes on from the start of this epoch"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def parse(arguments: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> argparse.Namespace:
    """Read a command, and its options and words in any order."""
    parser = _Parser(
        prog=PROGRAM,
        description="Train a Transformer, translate, continue text, sort it, evaluate.",
        epilog=f"{PROGRAM} train --help shows examples; so does each of the others.",
    )
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in commands.items():
        words = [settings.get("metavar", word) for word, settings in command.words.items()]
        examples = [f"  {PROGRAM} {name} {example}".rstrip() for example in command.examples]
        subparser = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            usage=" ".join([PROGRAM, name, "[options]", *words]),  # argparse's own would take ten lines
            epilog="\n".join(["examples:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.set_defaults(command=name, run=command.run)
        add_options(subparser, command)
    if len(arguments) > 1 and arguments[0] == "--debug":  # of every command, and so it may stand before it
        arguments = [arguments[1], *arguments[:1], *arguments[2:]]
    if not arguments or arguments[0] not in commands:
        parser.parse_args(arguments[:1])  # shows the help or the version, or says what is wrong
    name, *rest = arguments
    return complete(commands[name], subparsers.choices[name], rest)
