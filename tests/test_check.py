"""`check`: what it says of an answer that raises, prints, never ends, or changes the notebook's surroundings."""

import random
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from once import once

from annotated_course.exercises import check, exercises_of, is_untouched

pytestmark = once

attend = exercises_of("01")["01.2"].right
SETTINGS: dict[str, Callable[[], Any]] = {
    "dtype": torch.get_default_dtype,
    "gradients": torch.is_grad_enabled,
    "threads": torch.get_num_threads,
    "warnings": lambda: list(warnings.filters),
    "random numbers": lambda: (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()),
}
ENDLESS = r"✗ 01\.2 .*: your code was still running after 0\.1 s: does a loop never end\?\n"
OWN_LINE = r" \(line \d+: torch\.nn\.functional\.cross_entropy\(query, torch.*\)\)"  # not one within torch


def test_a_class_is_untouched_until_one_of_its_methods_is_written() -> None:
    class Stub:
        """What to build."""

        def __init__(self, width): ...

        def forward(self, x): ...

    class Begun(Stub):
        def forward(self, x):
            self.x = x

    class Derived(torch.nn.Linear):
        """Nothing of its own: an answer."""

    assert is_untouched(Stub) and is_untouched(...)
    assert not is_untouched(Begun) and not is_untouched(Derived) and not is_untouched(None)
    assert not is_untouched(lambda query, key, value: print(end=""))


def test_an_unknown_exercise_names_the_known_ones_and_an_interruption_is_the_reader_s_own() -> None:
    with pytest.raises(KeyboardInterrupt):
        check("01.2", raises(KeyboardInterrupt()))
    with pytest.raises(ValueError, match=r"no exercise '99\.9'; the chapters are 00, 01"):
        check("99.9", ...)
    with pytest.raises(ValueError, match=r"no exercise '01\.9'; there are 01\.1, 01\.2"):
        check("01.9", ...)


def stubborn(query, key, value):
    with suppress(BaseException):  # catches the first alarm
        while True:
            query = query + 1
    while True:
        with suppress(Exception):
            query = query + 1


def in_torch(query, key, value):
    torch.nn.functional.cross_entropy(query, torch.zeros(99).long())


def raises(error: BaseException) -> Callable[..., Any]:
    def answer(query, key, value):
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (lambda query, key, value: print("here") or attend(query, key, value), r"(here\n){3}✓ 01\.2 .*\n"),
        (in_torch, rf"✗ 01\.2 Attention from scratch: your code raised ValueError: [^✓✗]*{OWN_LINE}\n"),
        (raises(KeyError("a\nb")), r"✗ .*: your code raised KeyError: 'a\\nb' \(line \d+: raise error\)\n"),
        (raises(SystemExit("enough")), r"✗ .*: your code raised SystemExit: enough \(line \d+: raise error\)\n"),
        (raises(ValueError("x" * 100_000)), r"✗ .*ValueError: x{500} \(line.*\n"),
        (stubborn, ENDLESS),
    ],
)
def test_what_check_prints(answer: object, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    check("01.2", answer, seconds=0.1 if answer is stubborn else 60.0)
    assert re.fullmatch(printed.replace(" ", r"\s"), capsys.readouterr().out)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0, 0))


@pytest.mark.parametrize("end", ["returns", "raises", "runs on"])
def test_settings_and_random_numbers_are_those_of_the_notebook_afterwards(end: str) -> None:
    def meddling(query, key, value):
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.manual_seed(1), np.random.seed(1), random.seed(1)
        warnings.simplefilter("ignore")
        if end == "raises":
            raise ValueError
        while end == "runs on":
            pass

    before = {name: read() for name, read in SETTINGS.items()}
    check("01.2", meddling, seconds=0.1)
    assert {name: read() for name, read in SETTINGS.items()} == before


def test_settings_of_the_notebook_change_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            check("01.2", attend)
    finally:
        torch.set_default_dtype(torch.float32)
    assert capsys.readouterr().out == "✓ 01.2 Attention from scratch\n"


def test_a_check_loads_its_own_chapter_alone() -> None:
    code = """import sys; from annotated_course import check; check("01.1", [4, 9])
print([name for name in sorted(sys.modules) if ".chapters.c" in name], "matplotlib" in sys.modules)"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    names = ["annotated_course.chapters.c01_attention", "annotated_course.chapters.c01_attention.exercises"]
    assert said == ["✓ 01.1 One row by hand", f"{names} False"]
