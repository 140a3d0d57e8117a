"""Exercises that say at once what is wrong: `check("01.3", answer)` in a notebook. `progress()` shows what is solved.

A chapter's exercises live in `chapters/cNN_name/exercises.py`, in a table `EXERCISES` by number; `exercise.py` says
what an exercise is.
"""

import dis
import textwrap
from importlib import import_module
from pathlib import Path
from types import EllipsisType, FunctionType

from annotated_course.exercises.done import SOLVED, WORK, record, solved
from annotated_course.exercises.exercise import Exercise
from annotated_course.exercises.limits import TimeIsUpError, time_limit
from annotated_course.exercises.settings import kept_settings
from annotated_course.own_line import own_line

FILES = sorted((Path(__file__).parents[1] / "chapters").glob("c[0-9][0-9]_*/exercises.py"))
CHAPTERS = {path.parent.name[1:3]: f"annotated_course.chapters.{path.parent.name}.exercises" for path in FILES}


def exercises_of(chapter: str) -> dict[str, Exercise]:
    """Load the exercises of a chapter, "07", by their numbers."""
    exercises: dict[str, Exercise] = import_module(CHAPTERS[chapter]).EXERCISES
    return exercises


def all_exercises() -> dict[str, Exercise]:
    """Load the exercises of all chapters, by their numbers."""
    return {number: exercise for chapter in CHAPTERS for number, exercise in exercises_of(chapter).items()}


def check(number: str, answer: object, *, seconds: float = 60.0) -> None:
    """Print one line on an answer: ○ not attempted yet, ✓ right, or ✗ with a diagnosis.

    An answer is untouched while it is `...`, a function whose body is `...`, or a class whose methods all are. An error
    that an answer raises is reported with the reader's own line. What `settings.py` lists is as before
    afterwards. A right answer in the working copy is noted, for `progress`.

    Args:
        number: the exercise, chapter and place: "01.3".
        answer: the value, function or class that the exercise asks for.
        seconds: how long the check may take; the slowest right answer takes about one.

    Raises:
        ValueError: there is no such exercise.
    """
    if number[:2] not in CHAPTERS:
        raise ValueError(f"there is no exercise {number!r}; the chapters are {', '.join(CHAPTERS)}.")
    exercises = exercises_of(number[:2])
    if number not in exercises:
        raise ValueError(f"there is no exercise {number!r}; there are {', '.join(exercises)}.")
    exercise = exercises[number]
    if is_untouched(answer):
        print(f"○ {number} not attempted yet: {exercise.title}")
        return
    try:
        with kept_settings(), time_limit(seconds):
            diagnosis = exercise.diagnose(answer)
    except TimeIsUpError:
        diagnosis = f"your code was still running after {seconds:g} s: does a loop never end?"
    except (Exception, SystemExit) as error:  # whatever a reader's code raises is an answer to report
        message, line = next(iter(str(error).splitlines()), "no message"), own_line(error)
        place = f" (line {line.lineno}: {line.line:.200})" if line else ""
        diagnosis = f"your code raised {type(error).__name__}: {message:.500}{place}"
    if diagnosis is not None:
        verdict = f"✗ {number} {exercise.title}: {diagnosis}"
        print(textwrap.fill(verdict, 95, break_long_words=False, break_on_hyphens=False))  # Lab breaks within words
        return
    print(f"✓ {number} {exercise.title}")
    try:
        record(number)
    except OSError as error:
        print(f"It could not be noted as solved: {error}")


def progress() -> None:
    """Print, for each chapter, which exercises are solved (●), and what comes next where one is begun."""
    try:
        done = solved() & all_exercises().keys()
    except OSError as error:
        print(f"{SOLVED} cannot be read ({error.strerror}): move it elsewhere, and what you solve is noted anew.")
        return
    for chapter in CHAPTERS:
        exercises = exercises_of(chapter)
        left = [number for number in exercises if number not in done]
        marks = "".join("○" if number in left else "●" for number in exercises)
        begun = 0 < len(left) < len(exercises)
        print(f"{chapter}  {marks:8}{f' next: {left[0]} {exercises[left[0]].title}' if begun else ''}".rstrip())
    where = f"kept in {SOLVED}" if done else f"counted is what you solve in {WORK}, which `make lab` in a clone makes"
    print(f"{len(done)} of {len(all_exercises())} exercises solved; {where}")


def is_untouched(answer: object) -> bool:
    """Tell whether an answer is still its stub: `...`, or a function whose whole body is `...`, or a class of these.

    A function that only forgot its `return` is an attempt; so the code is compared, not the result.
    """
    if isinstance(answer, type):
        methods = [member for member in vars(answer).values() if isinstance(member, FunctionType)]
        return bool(methods) and all(is_untouched(method) for method in methods)
    if not isinstance(answer, FunctionType):
        return isinstance(answer, EllipsisType)
    bodies = (answer, lambda: None)
    steps = [[step.opname for step in dis.get_instructions(body) if step.opname != "NOP"] for body in bodies]
    return steps[0] == steps[1] and set(answer.__code__.co_consts) <= {None, answer.__doc__}
