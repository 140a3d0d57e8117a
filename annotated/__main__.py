"""The command line: python -m annotated train | translate | generate | classify | evaluate | progress."""

import argparse
import os
import sys
from collections.abc import Sequence

# Before torch loads: threads that wait in a loop for their next work crawl where anything else is running.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from annotated_workbench import command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the course's own among them, and return its exit status."""
    further = {"progress": ("list the exercises that you have solved in work/", show_progress)}
    return command_line.main(arguments, further)


def show_progress(_: argparse.Namespace) -> None:
    """Show what is solved; the exercises load when they are asked for."""
    from annotated_course.exercises import progress

    progress()


if __name__ == "__main__":
    sys.exit(main())
