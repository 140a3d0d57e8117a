"""The command line: python -m annotated train | translate | generate | classify | evaluate | progress | doctor | …"""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:  # a copy.py or torch.py in the reader's folder isn't meant
    sys.path.sort(key=sys.path[0].__eq__)
# Before torch loads: threads that wait in a loop for their next work crawl where anything else is running.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
from collections.abc import Sequence

from annotated_workbench import command_line
from annotated_workbench.commands.options import Command


def progress(_: argparse.Namespace) -> None:
    """Show what is solved; what the course needs is imported when it is called, here and below."""
    from annotated_course.exercises import progress

    progress()


def doctor(args: argparse.Namespace) -> int:
    """Examine a model."""
    from annotated_course.doctor import command

    return command(args)


MODEL = {"model": dict(metavar="FILE.py:NAME", help="a class, or a function, that makes the model; or a Recipe")}
EXAMINE = "examine a Transformer that you built yourself; exit status 1 if something is wrong with it"
COURSE = {
    "progress": Command("list the exercises that you have solved in work/", progress, ("",)),
    "doctor": Command(EXAMINE, doctor, ("my_model.py:MyTransformer",), MODEL),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the course's own among them, and return its exit status."""
    return command_line.main(arguments, command_line.COMMANDS | COURSE)


if __name__ == "__main__":
    sys.exit(main())
