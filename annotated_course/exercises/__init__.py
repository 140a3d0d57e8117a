"""Exercises that say at once what is wrong: `check("01.3", answer)` in a notebook. `progress()` shows what is solved.

A chapter's exercises are in `chapters/cNN_name/exercises.py`, a table `EXERCISES` by number; `exercise.py` says what an
exercise is.
"""

import dis
import os
import sys
import sysconfig
import traceback
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from types import EllipsisType, FunctionType
from typing import Any

from annotated_course.exercises.done import SOLVED, WORK, record, solved
from annotated_course.exercises.limits import Beginning, TimeIsUpError, limited
from annotated_course.exercises.settings import kept_settings

CHAPTERS = [
    import_module(f"annotated_course.chapters.{path.parent.name}.exercises")
    for path in sorted((Path(__file__).parents[1] / "chapters").glob("c[0-9][0-9]_*/exercises.py"))
]
EXERCISES = {number: exercise for chapter in CHAPTERS for number, exercise in chapter.EXERCISES.items()}
# Where the code is that readers did not write: Python's, the packages', the course's own.
NOT_THEIRS = (
    *(
        str(Path(__file__).parents[2] / name) + os.sep
        for name in ("annotated", "annotated_course", "annotated_workbench")
    ),
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def check(number: str, answer: object, *, seconds: float = 60.0) -> None:
    """Print one line on an answer: ○ not attempted yet, ✓ right, or ✗ with a diagnosis.

    An answer is untouched while it is `...`, a function whose body is `...`, or a class whose methods all are. Whatever
    an answer raises is reported, with its type, its message and the reader's own line. What it prints comes before the
    line, the first few thousand characters of it. What `settings.py` lists is as before afterwards, and figures that it
    opened are closed. What else it changes stays so: an open figure's contents, matplotlib's backend, other modules'
    names. A right answer in the working copy is noted, for `progress`.

    Args:
        number: the exercise, chapter and place: "01.3".
        answer: the value, function or class that the exercise asks for.
        seconds: how long the check may take; the slowest right answer takes about one. No limit on Windows, or in any
            thread but the main one.

    Raises:
        ValueError: there is no such exercise.
    """
    if number not in EXERCISES:
        raise ValueError(f"there is no exercise {number!r}; there are {', '.join(EXERCISES)}.")
    exercise = EXERCISES[number]
    if is_untouched(answer):
        print(f"○ {number} not attempted yet: {exercise.title}")
        return
    printed = Beginning(sys.stdout)
    try:
        with kept_settings(), redirect_stdout(printed.text()):
            diagnosis = limited(seconds, partial(_diagnosis, exercise.diagnose, answer))
    except TimeIsUpError:
        diagnosis = f"your code was still running after {seconds:g} s: does a loop never end?"
    printed.end()
    if diagnosis is not None:
        print(f"✗ {number} {exercise.title}: {diagnosis}")
        return
    print(f"✓ {number} {exercise.title}")
    try:
        record(number)
    except OSError as error:
        print(f"It could not be noted as solved: {error}")


def progress() -> None:
    """Print, for each chapter, which exercises are solved (●), and what comes next where one is begun."""
    try:
        done = solved() & EXERCISES.keys()
    except OSError as error:
        print(f"{SOLVED} cannot be read ({error.strerror}): move it elsewhere, and what you solve is noted anew.")
        return
    for chapter in CHAPTERS:
        numbers = list(chapter.EXERCISES)
        marks = "".join("●" if number in done else "○" for number in numbers)
        begun = 0 < marks.count("●") < len(marks)
        first = numbers[marks.find("○")]
        print(f"{numbers[0][:2]}  {marks:8}{f' next: {first} {EXERCISES[first].title}' if begun else ''}".rstrip())
    where = f"kept in {SOLVED}" if done else f"counted is what you solve in {WORK}, which `make lab` makes and opens"
    print(f"{len(done)} of {len(EXERCISES)} exercises solved; {where}")


def _diagnosis(diagnose: Any, answer: object) -> str | None:
    try:
        return diagnose(answer)
    except (KeyboardInterrupt, TimeIsUpError):
        raise
    except BaseException as error:  # whatever a reader's code raises is an answer to report, SystemExit too
        try:
            message = next(iter(str(error).splitlines()), "no message")
        except (KeyboardInterrupt, TimeIsUpError):
            raise
        except BaseException:
            message = "its message cannot be read"
        return f"your code raised {type(error).__name__}: {message[:500]}{_place(error)}"


def _place(error: BaseException) -> str:
    """Give the innermost of the reader's own lines on the way to an error, if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not frame.filename.startswith(NOT_THEIRS):
            return f" (line {frame.lineno}: {frame.line[:200]})"
    return ""


def is_untouched(answer: object) -> bool:
    """Tell whether an answer is still its stub: `...`, or a function whose whole body is `...`, or a class of these.

    A function that only forgot its `return` is an attempt; so the code is compared, not the result.

    Args:
        answer: the value, function or class that the exercise asks for.
    """
    if isinstance(answer, type):
        methods = [member for member in vars(answer).values() if isinstance(member, FunctionType)]
        return bool(methods) and all(is_untouched(method) for method in methods)
    if not isinstance(answer, FunctionType):
        return isinstance(answer, EllipsisType)
    bodies = (answer, lambda: None)
    steps = [[step.opname for step in dis.get_instructions(body) if step.opname != "NOP"] for body in bodies]
    return steps[0] == steps[1] and set(answer.__code__.co_consts) <= {None, answer.__doc__}
