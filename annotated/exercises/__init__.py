"""Exercises that say at once what is wrong: `check("01.3", answer)` in a notebook.

A chapter's exercises live in `chapter_NN.py`: a function per exercise that returns a diagnosis, or None for a right
answer, and a table `EXERCISES` of them by number.
"""

import dis
from types import EllipsisType, FunctionType

from annotated.exercises import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    chapter_08,
    chapter_14,
)

CHAPTERS = (chapter_01, chapter_02, chapter_03, chapter_04, chapter_05, chapter_06, chapter_07, chapter_08, chapter_14)
EXERCISES = {number: exercise for chapter in CHAPTERS for number, exercise in chapter.EXERCISES.items()}


def check(number: str, answer: object) -> None:
    """Print one line on an answer: ○ not attempted yet, ✓ right, or ✗ with a diagnosis.

    An answer is untouched while it is `...`, a function whose body is `...`, or a class whose methods all are. A
    function that raises is reported, with the type and the message of what it raised.

    Args:
        number: the exercise, chapter and place: "01.3".
        answer: the value, function or class that the exercise asks for.

    Raises:
        ValueError: there is no such exercise.
    """
    if number not in EXERCISES:
        raise ValueError(f"there is no exercise {number!r}; there are {', '.join(EXERCISES)}.")
    exercise = EXERCISES[number]
    if is_untouched(answer):
        print(f"○ {number} not attempted yet: {exercise.title}")
        return
    try:
        diagnosis = exercise.diagnose(answer)
    except Exception as error:  # whatever a reader's code raises is an answer to report
        first_line = next(iter(str(error).splitlines()), "no message")
        diagnosis = f"your code raised {type(error).__name__}: {first_line}"
    print(f"✓ {number} {exercise.title}" if diagnosis is None else f"✗ {number} {exercise.title}: {diagnosis}")


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
