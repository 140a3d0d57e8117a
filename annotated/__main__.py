"""The command line: python -m annotated train | translate | generate | classify | evaluate | progress | doctor | …"""

import argparse
import os
import sys
from collections.abc import Sequence

# Before torch loads: threads that wait in a loop for their next work crawl where anything else is running.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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


def bench(args: argparse.Namespace) -> None:
    """Measure the machine."""
    from annotated_course.bench import command

    command(args)


FILE_AND_NAME = dict(metavar="FILE.py:NAME", help="a class, or a function, that makes the model; or a Recipe")
COURSE = {
    "progress": Command("list the exercises that you have solved in work/", progress, ("",)),
    "doctor": Command(
        "examine a Transformer that you built yourself; exit status 1 if something is wrong with it",
        doctor,
        ("my_model.py:MyTransformer",),
        {"model": FILE_AND_NAME},
    ),
    "bench": Command(
        "measure this machine for a minute or two, and tell how long lessons and trainings will take on it",
        bench,
        ("",),
        {"file": dict(nargs="?", help="to keep the figures in")},
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the course's own among them, and return its exit status."""
    return command_line.main(arguments, COURSE)


if __name__ == "__main__":
    sys.exit(main())
