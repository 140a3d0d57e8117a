"""Every exercise: its stub is seen as untouched, its solution passes, and wrong answers get a helpful diagnosis."""

import ast
import contextlib
import decimal
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch

from annotated_course import exercises
from annotated_course.exercises import CHAPTERS, EXERCISES, check, is_untouched, limits, settings
from annotated_course.exercises.chapter_12 import changes_with_errors, shuffled_share
from annotated_course.exercises.diagnosis import compare
from annotated_course.exercises.exercise import Exercise, wrong_answers

# Chapters in the old form have a module of answers with the same name.
OLD = [chapter.__name__.rpartition(".")[2] for chapter in CHAPTERS if "diagnosis" in Path(chapter.__file__).read_text()]
ANSWERS = [import_module(f"tests.answers.{name}") for name in OLD]
WRONG = [answer for answers in ANSWERS for answer in answers.WRONG]
NEW = {number: exercise for number, exercise in EXERCISES.items() if isinstance(exercise, Exercise)}
MISTAKES = [
    (number, sentence, answer)
    for number, exercise in NEW.items()
    for table in (exercise.mistakes, exercise.caught)
    for sentence, answer in wrong_answers(table)
]
RIGHT = [answer for answers in ANSWERS for answer in answers.RIGHT]
RIGHT += [(number, exercise.right) for number, exercise in NEW.items()]

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
BY_HAND = [  # the numbers are the answer
    *("10.1", "01.1", "02.1", "03.1", "04.1", "05.1", "06.1", "07.1", "08.2"),
    *("11.1", "12.1", "13.1", "14.1", "15.1", "16.1", "17.1", "18.1", "19.1"),
]
IMPORT = re.compile(r"^from annotated_course import .*\bcheck\b", re.MULTILINE)
CHECK = re.compile(r'^check\("(\d\d\.\d+)", (\w+)\)', re.MULTILINE)
SHAPE = re.compile(
    r"\((?:…|\w+)(?:, [^()]+|,)?\)|any shape|\bn [a-z]+"
)  # (batch, length), (d), of any shape, n changes


def code(path: Path) -> list[str]:
    """The sources of a notebook's code cells."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def notebook_for(number: str, folder: Path) -> Path:
    """The notebook of an exercise's chapter."""
    (path,) = folder.glob(f"{number[:2]}_*.ipynb")
    return path


def stub(number: str) -> str:
    """The source of what a reader completes: the cell before the check."""
    cells = code(notebook_for(number, NOTEBOOKS))
    return cells[next(i for i, cell in enumerate(cells) if f'check("{number}"' in cell) - 1]


def shows_shapes(source: str) -> bool:
    """Whether a stub has a docstring, with a shape where its signature speaks of tensors; `answer = ...` has none."""
    definition = ast.parse(source).body[0]
    if not isinstance(definition, ast.FunctionDef | ast.ClassDef):
        return True
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return bool(SHAPE.search(" ".join(docstrings)) if "Tensor" in source else docstrings[0])


def verdict(capsys: pytest.CaptureFixture[str], number: str, answer: object) -> str:
    """The one line that `check` prints."""
    check(number, answer)
    (line,) = capsys.readouterr().out.splitlines()
    return line


@pytest.mark.parametrize("number", EXERCISES)
def test_untouched_stub_is_not_attempted(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    cells = code(notebook_for(number, NOTEBOOKS))
    place = next(i for i, cell in enumerate(cells) if f'check("{number}"' in cell)
    namespace: dict[str, Any] = {}
    exec([cell for cell in cells if IMPORT.search(cell)][-1], namespace)  # where one who comes back starts
    exec(cells[place - 1], namespace)
    name = CHECK.search(cells[place])[2]
    line = verdict(capsys, number, namespace[name])
    assert line == f"○ {number} not attempted yet: {EXERCISES[number].title}"


@pytest.mark.parametrize(("number", "sentence", "answer"), MISTAKES)
def test_every_mistake_earns_its_own_sentence(
    number: str, sentence: str, answer: object, capsys: pytest.CaptureFixture[str]
) -> None:
    line = verdict(capsys, number, answer)
    assert line.startswith(f"✗ {number} {NEW[number].title}: ")
    told = [one for one in NEW[number].mistakes if line.endswith(f": {one}")]
    assert told == [sentence] if sentence in NEW[number].mistakes else sentence in line and not told


@pytest.mark.parametrize(("number", "answer", "pattern"), WRONG)
def test_wrong_answer_gets_a_diagnosis(
    number: str, answer: object, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = verdict(capsys, number, answer)
    assert line.startswith(f"✗ {number} {EXERCISES[number].title}: ")
    assert re.search(pattern, line)


def test_every_exercise_has_at_least_two_wrong_answers() -> None:
    wrong = [number for number, *_ in [*WRONG, *MISTAKES]]
    assert all(wrong.count(number) >= 2 for number in EXERCISES)


@pytest.mark.parametrize(("number", "answer"), RIGHT)
def test_another_right_answer_passes(number: str, answer: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, number, answer) == f"✓ {number} {EXERCISES[number].title}"


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


def test_what_a_reader_raises_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def careless(query, key, value):
        raise KeyError("first\nsecond")

    assert "your code raised KeyError" in verdict(capsys, "01.2", careless)

    def speechless(query, key, value):
        raise NotImplementedError

    assert "your code raised NotImplementedError: no message (line" in verdict(capsys, "01.2", speechless)


def test_what_a_reader_raises_names_their_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    def careless(query, key, value):
        helper(query)

    def helper(query):
        torch.ones(2, 3) @ query[:1].unsqueeze(0).expand(1, 5, 4)  # raises within torch, and this is the line

    line = verdict(capsys, "01.2", careless)
    number = helper.__code__.co_firstlineno + 1
    assert f" (line {number}: torch.ones(2, 3) @ query[:1]" in line and line.endswith("this is the line)")
    assert "(line" not in verdict(capsys, "01.1", "four")  # raised in the course's own code


@pytest.mark.parametrize("number", BY_HAND)
def test_a_diagnosis_does_not_tell_a_number_that_is_the_answer(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    cells = code(notebook_for(number, NOTEBOOKS / "solutions"))
    for cell in cells[: next(i for i, cell in enumerate(cells) if f'check("{number}"' in cell)]:
        exec(cell, namespace)
    capsys.readouterr()
    right = namespace["answer"]
    several = right if isinstance(right, list | tuple) else [right]
    for place, secret in enumerate(several):
        for wrong in (1.37 * secret + 0.11, secret - 3, 3 * secret + 1, 0.9 * secret):
            if np.isclose(wrong, secret, rtol=0.01):
                continue
            answer = [*several[:place], wrong, *several[place + 1 :]] if several is right else wrong
            diagnosis = re.sub(r"number \d", "", verdict(capsys, number, answer).split(": ", 1)[1])
            told = [float(one.replace(",", "")) for one in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e\+\d+)?", diagnosis)]
            assert not np.isclose(told, secret, rtol=2e-3).any(), diagnosis


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


CHANGES = {
    "device": (lambda: torch.set_default_device("meta"), lambda: torch.empty(0).device),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), torch.get_deterministic_debug_mode),
    "warn only": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.get_deterministic_debug_mode,
    ),
    "matmul": (
        lambda: torch.set_float32_matmul_precision("medium"),
        torch.get_float32_matmul_precision,
    ),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False), torch.is_anomaly_enabled),
    "denormal": (lambda: torch.set_flush_denormal(True), lambda: (torch.tensor(1e-40) * 1).item()),
    "tensor's text": (lambda: torch.set_printoptions(precision=1), lambda: str(torch.tensor(0.123456))),
    "array's text": (lambda: np.set_printoptions(precision=1), lambda: str(np.array(0.123456))),
    "array's errors": (lambda: np.seterr(all="raise"), np.geterr),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "environment": (lambda: os.environ.update(ANNOTATED_X="1"), lambda: dict(os.environ)),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "stdout": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
    "stderr": (lambda: setattr(sys, "stderr", None), lambda: sys.stderr),
    "warnings": (lambda: warnings.simplefilter("ignore"), warnings.filters.copy),
    "device context": (lambda: torch.device("meta").__enter__(), lambda: torch.empty(0).device),
    "tf32": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: (torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()),
    ),
    "reduced": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ),
    "cudnn tf32": (
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: torch.backends.cudnn.allow_tf32,
    ),
    "cudnn off": (lambda: setattr(torch.backends.cudnn, "enabled", False), lambda: torch.backends.cudnn.enabled),
    "mkldnn": (lambda: torch._C._set_mkldnn_enabled(False), torch._C._get_mkldnn_enabled),
    "validation": (
        lambda: torch.distributions.Distribution.set_default_validate_args(False),
        lambda: torch.distributions.Distribution._validate_args,
    ),
    "hooks": (
        lambda: torch.nn.modules.module.register_module_forward_hook(print),
        lambda: list(torch.nn.modules.module._global_forward_hooks),
    ),
    "logging off": (lambda: logging.disable(50), lambda: logging.root.manager.disable),
    "logging": (
        lambda: logging.basicConfig(level=10, force=True),
        lambda: (logging.root.level, logging.root.handlers.copy()),
    ),
    "path": (lambda: setattr(sys, "path", ["elsewhere"]), lambda: (id(sys.path), sys.path.copy())),
    "argv": (lambda: sys.argv.append("--more"), sys.argv.copy),
    "stdin": (lambda: setattr(sys, "stdin", None), lambda: sys.stdin),
    "excepthook": (lambda: setattr(sys, "excepthook", print), lambda: sys.excepthook),
    "interrupt": (
        lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGINT),
    ),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 3), lambda: decimal.getcontext().prec),
    "style": (lambda: plt.style.use("ggplot"), lambda: dict(plt.rcParams)),
    "figures": (lambda: plt.figure(), plt.get_fignums),
    "cudnn": (lambda: setattr(torch.backends.cudnn, "benchmark", True), lambda: torch.backends.cudnn.benchmark),
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

    check("01.2", meddling, seconds=0.05)
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
            for number, answer in RIGHT:
                if number in ("01.1", "01.5", "04.5"):
                    assert verdict(capsys, number, answer).startswith("✓")
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.empty(0).device.type == "meta"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def scaled_in_place(query, key, value):
    query /= query.size(-1) ** 0.5
    return (query @ key.transpose(-2, -1)).softmax(-1) @ value


def errors_without_base(groups):
    base = groups.pop(0)
    return changes_with_errors([base, *groups])


def share_of_one_list(base, row):
    runs = len(base)
    base += row
    return shuffled_share(base[:runs], row)


def layer_in_place(number: str) -> type[torch.nn.Module]:
    """The right layer of an exercise, which also writes its result over its input."""
    (layer,) = (answer for name, answer in RIGHT if name == number)

    class InPlace(layer):
        def forward(self, x, *others):
            return x.copy_(super().forward(x, *others))

    return InPlace


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("01.2", scaled_in_place),
        ("04.3", lambda x, gain, eps: x.mul_(gain / (x.square().mean(-1, keepdim=True) + eps).sqrt())),
        ("04.4", layer_in_place("04.4")),
        ("05.4", layer_in_place("05.4")),
        ("12.3", errors_without_base),
        ("12.5", share_of_one_list),
    ],
)
def test_a_right_answer_may_work_in_place(number: str, answer: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(capsys, number, answer) == f"✓ {number} {EXERCISES[number].title}"


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        ("01.2", lambda query, key, value: value.zero_()[..., :1, :].expand(*query.shape[:-1], -1)),
        ("04.3", lambda x, gain, eps: x.zero_()),
        ("07.5", lambda weight, gradients, *_: [g.zero_() for g in gradients] and weight.clone()),
    ],
)
def test_a_wrong_answer_cannot_make_itself_right(
    number: str, answer: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(capsys, number, answer).startswith("✗")


def test_unknown_exercise_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no exercise '99\.9'.*01\.1, 01\.2"):
        check("99.9", ...)


def test_compare_prefers_a_known_mistake_to_a_general_remark() -> None:
    expected = torch.tensor([[2.0, 3.0], [5.0, 7.0]])
    assert compare(expected + 1e-5, expected, {}) is None
    assert compare(expected.T, expected, {"transposed": expected.T}) == "transposed"
    assert compare(expected.T, expected, {}) == "at index (0, 1): expected 3.000, got 5.000."
    assert compare(expected.double(), expected, {}) == "expected torch.float32, got torch.float64."
    assert compare([2.0], expected, {}) == "expected a tensor, got list."
    assert compare(0 * expected, expected, {}) == "at index (1, 1): expected 7.000, got 0.000."


def test_exercises_are_numbered_without_gaps() -> None:
    for chapter in {number[:2] for number in EXERCISES}:
        numbers = [number for number in EXERCISES if number.startswith(chapter)]
        assert numbers == [f"{chapter}.{i + 1}" for i in range(len(numbers))]


@pytest.mark.parametrize("number", EXERCISES)
def test_stubs_show_their_shapes_in_a_docstring(number: str) -> None:
    assert shows_shapes(stub(number))


@pytest.mark.parametrize(
    "docstring", ["", '"""Mix the values."""', '"""Mix the values (those of the keys)."""', "# (batch, length)"]
)
def test_a_stub_without_shapes_is_noticed(docstring: str) -> None:
    assert not shows_shapes(f"def mix(query: Tensor, key: Tensor) -> Tensor:\n    {docstring}\n    ...")
    assert not shows_shapes(f"class Mixer:\n    {docstring}\n    def mix(self, query: Tensor) -> Tensor: ...")
    assert not shows_shapes("def count(heads: int) -> int: ...")
