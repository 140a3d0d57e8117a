"""The command line: python -m annotated train | translate | generate | classify | evaluate | progress | doctor | …"""

import argparse
import os
import sys
from collections.abc import Sequence

# Before torch loads: threads that wait in a loop for their next work crawl where anything else is running.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from annotated_workbench import command_line
from annotated_workbench.commands.options import Command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the course's own among them, and return its exit status."""
    further = {
        "progress": Command("list the exercises that you have solved in work/", show_progress, ("",)),
        "doctor": Command(
            "examine a Transformer that you built yourself; exit status 1 if something is wrong with it",
            examine,
            ("my_model.py:MyTransformer",),
            {
                "model": dict(
                    metavar="FILE.py:NAME",
                    help="a class, or a function, that makes the model; or a Recipe that says more",
                )
            },
        ),
        "bench": Command(
            "measure this machine for a minute or two, and tell how long lessons and trainings will take on it",
            measure,
            ("",),
            {"file": dict(nargs="?", help="of figures of machines, to add this one's to")},
        ),
    }
    return command_line.main(arguments, further)


def show_progress(_: argparse.Namespace) -> None:
    """Show what is solved; the exercises load when they are asked for."""
    from annotated_course.exercises import progress

    progress()


def examine(args: argparse.Namespace) -> int:
    """Examine a model; the doctor comes when called."""
    from annotated_course.doctor import command

    return command(args)


def measure(args: argparse.Namespace) -> None:
    """Measure the machine."""
    from annotated_course.bench import command

    command(args)


if __name__ == "__main__":
    sys.exit(main())
