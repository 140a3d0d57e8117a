"""`check`: what it says of an answer that raises, prints, never ends, or changes the notebook's surroundings."""

import contextlib
import decimal
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import shapes
import torch
from once import once

from annotated_course import exercises
from annotated_course.exercises import EXERCISES, check, is_untouched, limits, settings


def verdict(capsys: pytest.CaptureFixture[str], number: str, answer: object) -> str:
    """The one line that `check` prints."""
    check(number, answer)
    (line,) = capsys.readouterr().out.splitlines()
    return line


def scaled_in_place(query, key, value):
    query /= query.size(-1) ** 0.5
    return (query @ key.transpose(-2, -1)).softmax(-1) @ value


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

    assert is_untouched(Stub)
    assert not is_untouched(Begun)
    assert not is_untouched(Derived)


def test_a_function_that_returns_a_constant_or_nothing_is_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    def constant(query, key, value):
        return 3

    assert verdict(capsys, "01.2", constant).startswith("✗")
    assert verdict(capsys, "01.2", lambda query, key, value: print(end="")).startswith("✗")
    assert verdict(capsys, "01.2", None).startswith("✗")


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyError("first\nsecond"), "KeyError"), (NotImplementedError, "NotImplementedError: no message (line")],
)
def test_what_a_reader_raises_is_one_line(error: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def careless(query, key, value):
        raise error

    assert f"your code raised {said}" in verdict(capsys, "01.2", careless)


def test_what_a_reader_raises_names_their_own_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exercises, "NOT_THEIRS", (*exercises.NOT_THEIRS, shapes.__file__))

    def careless(query, key, value):
        helper(query)

    def helper(query):
        torch.ones(2, 3) @ query[:1].unsqueeze(0).expand(1, 5, 4)  # raises within torch, and this is the line

    line = verdict(capsys, "01.2", careless)
    number = helper.__code__.co_firstlineno + 1
    assert f" (line {number}: torch.ones(2, 3) @ query[:1]" in line and line.endswith("this is the line)")
    assert "(line" not in verdict(capsys, "01.1", "four")  # raised in the course's own code


@pytest.mark.parametrize("number", ["03.2", "16.5"])
def test_what_an_answer_sets_reaches_no_later_check(capsys: pytest.CaptureFixture[str], number: str) -> None:
    def careless(*given):
        answer = EXERCISES[number].right(*given)
        torch.set_default_dtype(torch.float64)
        return answer

    EXERCISES[number].results.clear()
    check(number, careless)
    capsys.readouterr()
    assert verdict(capsys, number, EXERCISES[number].right).startswith("✓")
    EXERCISES[number].results.clear()


@pytest.mark.parametrize("error", [SystemExit("enough"), GeneratorExit("enough"), BaseException("enough")])
def test_what_ends_a_program_does_not_end_the_notebook(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def impatient(query, key, value):
        raise error

    line = verdict(capsys, "01.2", impatient)
    assert line.startswith(f"✗ 01.2 Attention from scratch: your code raised {type(error).__name__}: enough (line ")
    assert line.endswith(": raise error)")


@pytest.mark.parametrize("inner", [ValueError, SystemExit])
def test_an_exception_whose_text_cannot_be_read_is_reported(
    inner: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise inner

        __repr__ = __str__

    def careless(query, key, value):
        raise BrokenError

    assert "your code raised BrokenError: its message cannot be read (line" in verdict(capsys, "01.2", careless)


def test_a_long_message_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    def talkative(query, key, value):
        raise ValueError("x" * 100_000)

    assert len(verdict(capsys, "01.2", talkative)) < 1000


def test_an_interruption_is_the_reader_s_own() -> None:
    def interrupted(query, key, value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("01.2", interrupted)


def stubborn(query, key, value):
    while True:
        with suppress(Exception):
            query = query + 1


def very_stubborn(query, key, value):
    while True:
        with suppress(BaseException):
            query = query + 1


def endless_message(query, key, value):
    class EndlessError(Exception):
        def __str__(self) -> str:
            while True:
                pass

    raise EndlessError


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no time limit on this system")
@pytest.mark.parametrize("answer", [stubborn, very_stubborn, endless_message])
def test_a_loop_that_never_ends_is_stopped(answer: object, capsys: pytest.CaptureFixture[str]) -> None:
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    check("01.2", answer, seconds=0.1)
    line = capsys.readouterr().out
    assert line.endswith("your code was still running after 0.1 s: does a loop never end?\n")
    assert line.count("\n") == 1
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (handler, timer)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no time limit on this system")
def test_somebody_else_s_timer_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    rung = []
    old = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 30.0)
        check("01.2", stubborn, seconds=0.1)
        assert 29.0 < signal.getitimer(signal.ITIMER_REAL)[0] < 29.95
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        check("01.2", stubborn, seconds=0.1)
        signal.sigtimedwait([], 0.1)  # its time has passed meanwhile: it goes off at once
        assert rung == [True]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_outside_the_main_thread_there_is_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=check, args=("01.1", [4.0, 9.0]), kwargs={"seconds": 0.1})
    thread.start()
    thread.join()
    assert capsys.readouterr().out == "✓ 01.1 One row by hand\n"


def test_what_an_answer_prints_is_cut_and_comes_before_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(query, key, value):
        print("scores")
        print("x" * 9_999, end="")

    check("01.2", chatty)
    first, long, rest, line = capsys.readouterr().out.splitlines()
    assert (first, long) == ("scores", "x" * 4_993)
    assert rest == "… and 5,006 more characters that your code printed"
    assert line.startswith("✗ 01.2 Attention from scratch: your function returned None")


@pytest.mark.parametrize(
    "use",
    [
        lambda: sys.stdout.buffer.write("ü\n".encode()),
        lambda: sys.stdout.buffer.writelines([b"\xc3", b"\xbc\n"]),
        lambda: os.write(sys.stdout.fileno(), "ü\n".encode()),
        lambda: print(b"\xc3\xbc".decode(sys.stdout.encoding.lower())),
        lambda: print("ü", flush=True, end="" if sys.stdout.isatty() else "\n"),
    ],
)
def test_an_answer_may_use_all_that_a_stream_has(use: Callable[[], object], capfd: pytest.CaptureFixture[str]) -> None:
    def printing(query, key, value):
        use()
        return scaled_in_place(query, key, value)

    check("01.2", printing)
    *printed, line = capfd.readouterr().out.splitlines()
    assert line == "✓ 01.2 Attention from scratch"
    assert printed and set(printed) == {"ü"}


def test_settings_and_random_numbers_are_those_of_the_notebook_afterwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def meddling(query, key, value):
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)
        torch.set_num_threads(threads + 1)
        torch.manual_seed(1), np.random.seed(1), random.seed(1)
        raise ValueError

    threads = torch.get_num_threads()
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    try:
        verdict(capsys, "01.2", meddling)
        assert torch.get_default_dtype() == torch.float32
        assert torch.is_grad_enabled()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == state[1:]


def attribute(owner: Any, name: str, value: Any) -> tuple[Callable[[], None], Callable[[], Any]]:
    """A change of an attribute, and how to read it."""
    return lambda: setattr(owner, name, value), lambda: getattr(owner, name)


MATMUL = torch.backends.cuda.matmul
MODULES = torch.nn.modules.module
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "device": (lambda: torch.set_default_device("meta"), lambda: torch.empty(0).device),
    "device context": (lambda: torch.device("meta").__enter__(), lambda: torch.empty(0).device),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), torch.get_deterministic_debug_mode),
    "warn only": (lambda: torch.set_deterministic_debug_mode("warn"), torch.get_deterministic_debug_mode),
    "matmul": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False), torch.is_anomaly_enabled),
    "denormal": (lambda: torch.set_flush_denormal(True), lambda: (torch.tensor(1e-40) * 1).item()),
    "tensor's text": (lambda: torch.set_printoptions(precision=1), lambda: str(torch.tensor(0.123456))),
    "array's text": (lambda: np.set_printoptions(precision=1), lambda: str(np.array(0.123456))),
    "array's errors": (lambda: np.seterr(all="raise"), np.geterr),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "environment": (lambda: os.environ.update(ANNOTATED_X="1"), lambda: dict(os.environ)),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "warnings": (lambda: warnings.simplefilter("ignore"), warnings.filters.copy),
    "tf32": attribute(MATMUL, "allow_tf32", True),
    "tf32, as precision": (lambda: setattr(MATMUL, "allow_tf32", True), torch.get_float32_matmul_precision),
    "reduced": attribute(MATMUL, "allow_bf16_reduced_precision_reduction", False),
    "cudnn": attribute(torch.backends.cudnn, "benchmark", True),
    "cudnn tf32": attribute(torch.backends.cudnn, "allow_tf32", False),
    "cudnn off": attribute(torch.backends.cudnn, "enabled", False),
    "mkldnn": (lambda: torch._C._set_mkldnn_enabled(False), torch._C._get_mkldnn_enabled),
    "validation": attribute(torch.distributions.Distribution, "_validate_args", False),
    "hooks": (lambda: MODULES.register_module_forward_hook(print), lambda: list(MODULES._global_forward_hooks)),
    "logging off": (lambda: logging.disable(50), lambda: logging.root.manager.disable),
    "logging": (lambda: logging.basicConfig(level=10, force=True), lambda: logging.root.level),
    "handlers": (lambda: logging.basicConfig(level=10, force=True), logging.root.handlers.copy),
    "path": (lambda: setattr(sys, "path", ["elsewhere"]), lambda: (id(sys.path), sys.path.copy())),
    "argv": (lambda: sys.argv.append("--more"), sys.argv.copy),
    "stdin": attribute(sys, "stdin", None),
    "stdout": attribute(sys, "stdout", None),
    "stderr": attribute(sys, "stderr", None),
    "excepthook": attribute(sys, "excepthook", print),
    "interrupt": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), lambda: signal.getsignal(signal.SIGINT)),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 3), lambda: decimal.getcontext().prec),
    "style": (lambda: plt.style.use("ggplot"), lambda: dict(plt.rcParams)),
    "figures": (lambda: plt.figure(), plt.get_fignums),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("end", ["returns", "raises", "runs on"])
def test_a_setting_that_an_answer_changes_is_as_before_afterwards(
    name: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, read = CHANGES[name]
    before = read()

    def meddling(query, key, value):
        change()
        if end == "raises":
            raise ValueError
        while end == "runs on":
            pass
        return value

    check("01.2", meddling, seconds=0.02)
    assert read() == before


def test_a_figure_that_was_open_stays_open(capsys: pytest.CaptureFixture[str]) -> None:
    def drawing(query, key, value):
        plt.subplots()
        return scaled_in_place(query, key, value)

    figure = plt.figure()
    try:
        assert verdict(capsys, "01.2", drawing).startswith("✓")
        assert plt.get_fignums() == [figure.number] and plt.gcf() is figure
    finally:
        plt.close(figure)


@once
def test_plots_that_an_answer_loads_are_as_usual_afterwards_and_no_check_loads_them() -> None:
    code = """if True:
        import sys
        from annotated_course.exercises import check

        def drawing(query, key, value):
            import matplotlib.pyplot as plt

            plt.rcParams["font.size"] = 33
            plt.figure()

        check("01.1", [4, 9])
        assert "matplotlib" not in sys.modules
        check("01.2", drawing)
        from matplotlib import pyplot

        assert pyplot.rcParams["font.size"] == 10 and not pyplot.get_fignums()
        """
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "MPLBACKEND": "agg"}, check=True)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no time limit on this system")
@once
def test_an_alarm_at_whatever_moment_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    files = (exercises.__file__, limits.__file__, settings.__file__, contextlib.__file__, signal.__file__)
    left = moment = 0

    def step(frame: FrameType, *_: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        if signal.getsignal(signal.SIGALRM) != handler:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGALRM)
        return step

    while left <= 0:  # until a check has ended before its moment came
        moment += 1
        left = moment
        before = sys.gettrace()
        sys.settrace(step)  # calls it before each line
        try:
            check("01.1", [4, 9])
        finally:
            sys.settrace(before)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert signal.getsignal(signal.SIGALRM) == handler
    assert moment > 20


def test_settings_of_the_notebook_change_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with torch.no_grad():
            for number in ("01.1", "01.5", "04.5"):
                assert verdict(capsys, number, EXERCISES[number].right).startswith("✓")
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.empty(0).device.type == "meta"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
