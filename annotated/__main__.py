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


def bench(args: argparse.Namespace) -> None:
    """Measure the machine."""
    from annotated_course.bench import command

    command(args)


MODEL = {"model": dict(metavar="FILE.py:NAME", help="a class, or a function, that makes the model; or a Recipe")}
FIGURES = {"file": dict(nargs="?", help="a new file for the figures of this machine")}
EXAMINE = "examine a Transformer that you built yourself; exit status 1 if something is wrong with it"
MEASURE = "measure this machine for a minute or two, and tell how long lessons and trainings will take on it"
COURSE = {
    "progress": Command("list the exercises that you have solved in work/", progress, ("",)),
    "doctor": Command(EXAMINE, doctor, ("my_model.py:MyTransformer",), MODEL),
    "bench": Command(MEASURE, bench, ("",), FIGURES),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the course's own among them, and return its exit status."""
    return command_line.main(arguments, command_line.COMMANDS | COURSE)


if __name__ == "__main__":
    sys.exit(main())
