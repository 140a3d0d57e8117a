"""Exercises that say at once what is wrong: `check("01.3", answer)` in a notebook. `progress()` shows what is solved.

A chapter's exercises live in `chapter_NN.py`, in a table `EXERCISES` by number; `exercise.py` says what an exercise is.
"""

import codecs
import decimal
import dis
import gc
import io
import logging
import os
import random
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from types import EllipsisType, FunctionType
from typing import Any

import numpy as np
import torch

from annotated_course.exercises.done import SOLVED, WORK, record, solved

CHAPTERS = [
    import_module(f"{__name__}.{path.stem}") for path in sorted(Path(__file__).parent.glob("chapter_[0-9][0-9].py"))
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
    line, the first few thousand characters of it. Random numbers, the settings in `SETTINGS` and the warning filters,
    the folder and decimal precision are as before afterwards, and figures that it opened are closed. What else it
    changes stays so: the contents of a figure that was open, matplotlib's backend, other modules' own names. A right
    answer in the working copy is noted, for `progress`.

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
    printed = _Beginning(sys.stdout)
    try:
        with _kept_settings(), redirect_stdout(printed.text()):
            diagnosis = _limited(seconds, partial(_diagnosis, exercise.diagnose, answer))
    except _TimeIsUpError:
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


class _TimeIsUpError(BaseException):
    """The time of a check is over; no Exception, which a reader's own code may catch."""


def _diagnosis(diagnose: Any, answer: object) -> str | None:
    try:
        return diagnose(answer)
    except (KeyboardInterrupt, _TimeIsUpError):
        raise
    except BaseException as error:  # whatever a reader's code raises is an answer to report, SystemExit too
        try:
            message = next(iter(str(error).splitlines()), "no message")
        except (KeyboardInterrupt, _TimeIsUpError):
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


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return partial(getattr, owner, name), partial(setattr, owner, name)


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # "cpu" would slow down each call


def _collection(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Treat an attribute that is a list or table: both which it is and what it holds, as either may be changed."""

    def get() -> tuple[Any, Any]:
        return getattr(owner, name), getattr(owner, name).copy()

    def put(before: tuple[Any, Any]) -> None:
        collection, content = before
        collection.clear()
        (collection.extend if isinstance(content, list) else collection.update)(content)
        setattr(owner, name, collection)

    return get, put


def _set_modes(before: list[Any]) -> None:
    while torch.overrides._get_current_function_mode_stack():
        torch.overrides._pop_mode()
    for mode in before:
        torch.overrides._push_mode(mode)


def _set_interrupt(before: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _plot_settings() -> dict[str, Any]:
    """Read matplotlib's, if somebody has loaded it, but for the backend, which any other way of reading would load."""
    matplotlib = sys.modules.get("matplotlib")
    return {**dict(dict.items(matplotlib.rcParams)), "backend": None} if matplotlib else {}


def _set_plots(before: dict[str, Any]) -> None:
    matplotlib = sys.modules["matplotlib"]
    usual = before or dict(dict.items(matplotlib.rcParamsOrig))
    dict.update(matplotlib.rcParams, {name: value for name, value in usual.items() if name != "backend"})


def _figures() -> list[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot.get_fignums() if pyplot else []


def _close_figures(before: list[int]) -> None:
    for number in set(_figures()) - set(before):
        sys.modules["matplotlib.pyplot"].close(number)


# What an answer may change: how it is read and how it is set. Restored from the last to the first.
SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.overrides._get_current_function_mode_stack, _set_modes),  # `with torch.device(...)` that was not left
    (lambda: torch.empty(0).device, _set_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),  # and cuda.matmul.allow_tf32
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    _attribute(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    _attribute(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "deterministic", "benchmark", "allow_tf32")),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.autograd.set_detect_anomaly(*before),
    ),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),
    (
        lambda: dict(vars(torch._tensor_str.PRINT_OPTS)),
        lambda before: torch.set_printoptions(**before),
    ),
    _attribute(torch.distributions.Distribution, "_validate_args"),
    *(
        (_collection if hasattr(hooks, "clear") else _attribute)(torch.nn.modules.module, name)
        for name, hooks in vars(torch.nn.modules.module).items()
        if name.startswith("_global_")
    ),
    (np.geterr, lambda before: np.seterr(**before)),
    (np.get_printoptions, lambda before: np.set_printoptions(**before)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    *(_collection(owner, name) for owner, name in ((os, "environ"), (sys, "path"), (sys, "argv"))),
    *(_attribute(sys, name) for name in ("stdin", "stdout", "stderr", "excepthook", "displayhook")),
    (partial(signal.getsignal, signal.SIGINT), _set_interrupt),
    (lambda: logging.root.manager.disable, logging.disable),
    (logging.root.getEffectiveLevel, logging.root.setLevel),
    _collection(logging.root, "handlers"),
    (_plot_settings, _set_plots),
    (_figures, _close_figures),
    (gc.isenabled, lambda before: gc.enable() if before else gc.disable()),
]


@contextmanager
def _kept_settings() -> Iterator[None]:
    """Check with torch's usual settings, and afterwards restore those of the notebook, and its random numbers."""

    def restore(get: Callable[[], Any], put: Callable[[Any], Any], before: Any) -> None:
        if get() != before:  # some are slow to set
            put(before)

    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())  # comes last: restoring the rest may draw some
        stack.callback(np.random.set_state, np.random.get_state())
        for get, put in SETTINGS:
            stack.callback(restore, get, put, get())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(chdir("."))
        stack.enter_context(decimal.localcontext())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        torch.set_default_dtype(torch.float32)
        if torch.empty(0).device.type != "cpu":
            torch.set_default_device(None)
        torch.set_grad_enabled(True)
        yield


def _limited(seconds: float, function: Callable[[], str | None]) -> str | None:
    """Call a function; raise `_TimeIsUpError` in it after some seconds, and each second again while it catches that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return function()
    running = False

    def stop(*_: object) -> None:
        if running:
            raise _TimeIsUpError

    began = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)  # somebody else's timer waits
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            running = True
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            return function()
        finally:
            running = False
    finally:  # not in the one above, which an alarm may still leave
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        if left:  # it goes on, and goes off at once where its time has passed
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), interval)


class _Beginning(io.RawIOBase):
    """Pass on the beginning of what is printed; count the rest, which would fill the notebook."""

    name = "<stdout>"

    def __init__(self, stream: Any, room: int = 5000) -> None:
        self.stream, self.room, self.left_out, self.last = stream, room, 0, "\n"
        self.decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def text(self) -> io.TextIOWrapper:
        """Give a stream with all that a usual one has, its `buffer` and `encoding` too."""
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", newline="", write_through=True)

    def writable(self) -> bool:
        """Say what the text stream asks for."""
        return True

    def fileno(self) -> int:
        """Give the number of the stream behind, if it has one."""
        return self.stream.fileno()

    def write(self, data: Any) -> int:
        """Pass on what there is room for."""
        text = self.decoder.decode(data)
        shown = text[: self.room]
        self.stream.write(shown)
        self.room -= len(shown)
        self.left_out += len(text) - len(shown)
        self.last = shown[-1:] or self.last
        return len(data)

    def end(self) -> None:
        """End the last line, and say how much is left out."""
        if self.last != "\n":
            self.stream.write("\n")
        if self.left_out:
            self.stream.write(f"… and {self.left_out:,} more characters that your code printed\n")


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
