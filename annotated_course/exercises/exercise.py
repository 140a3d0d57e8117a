"""An exercise as data: a right answer, the cases that answers are run on, and the known mistakes with what to tell."""

import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotated_course import comparison
from annotated_course.comparison import IN_ANOTHER_ORDER, described, kind
from annotated_course.exercises.settings import kept_settings
from annotated_course.own_line import own_line
from annotated_course.promises import broken

Run = Callable[[Any], Any]  # takes an answer, returns what is compared
FAILED = object()


class WrongFormError(Exception):
    """What a case raises where an answer is not even of the kind that can be compared; says so in its text."""

    def __init__(self, told: str, *given: Any) -> None:
        super().__init__(f"{told}; got {described(*given)}." if given else told)


class AnyOf(tuple[Any, ...]):
    """Several wrong answers that earn the same sentence."""

    def __new__(cls, *wrong: Any) -> "AnyOf":
        """Take the answers one by one."""
        return super().__new__(cls, wrong)


@dataclass(frozen=True)
class Exercise:
    """What a reader is asked for, and what is usually got wrong: the mistakes that people make, mostly five.

    Any other wrong answer is told where it differs, and by which two numbers.

    Args:
        title: the exercise's name in its lesson.
        right: a right answer: a value, a function or a class.
        cases: how answers are run: for each case what a diagnosis begins with, mostly nothing, and a function of the
            answer whose result must be that of the right one; none, where `examine` says it all.
        mistakes: a sentence to tell, and the wrong answer that earns it, or `AnyOf` several. The first one counts whose
            result is the reader's. A string with an arrow changes the source of the right answer: "a + b → a - b".
        forbids: what the card rules out, as `promises.broken` takes it, and what to do: "softmax loop: use sums."
        examine: what no comparison sees: tells what is wrong with an answer that passes all cases, or None.
        caught: for the tests, a part of what `examine` says, and the wrong answer that earns it, or `AnyOf` several.
        tolerance: how far a number may be off, absolutely and relatively.
        by_hand: the numbers themselves are the answer, so that no diagnosis tells them.
        copies: whether to call it with copies of what it is given.
    """

    title: str
    right: Any
    cases: Mapping[str, Run] = field(default_factory=dict)
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    forbids: str = ""
    examine: Callable[[Any], str | None] = lambda answer: None
    caught: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-4
    by_hand: bool = False
    copies: bool = True
    results: dict[tuple[int, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def diagnose(self, answer: Any) -> str | None:
        """Say what is wrong with an answer, or None if it is right."""
        wanted = "class" if isinstance(self.right, type) else "function" * callable(self.right)
        made = isinstance(answer, nn.Module)  # callable, too
        if wanted and (made or not callable(answer) or isinstance(answer, type) > (wanted == "class")):
            return f"expected the {wanted} itself, by its name, without brackets or quotes; got {described(answer)}."
        watched = Watched(answer, self.copies) if wanted else answer
        try:
            return self.diagnosis(watched)
        except WrongFormError as error:
            return str(error)
        except Exception as error:
            if own_line(error):
                raise
            return self.misfit(watched, error)

    def misfit(self, answer: Any, error: Exception) -> str:
        """Say what is wrong with an answer of which our own code can make nothing."""
        if not isinstance(answer, Watched):
            return f"expected {kind(self.right)}, got {described(answer)}."
        if answer.at_work:
            return f"{next(iter(str(error).splitlines()), error)}: begin as the stub does, with the same arguments."
        if isinstance(self.right, type):
            return f"what it makes, {kind(answer.returned)}, is not what card and stub describe: {error}."
        right = Watched(self.right)
        next(iter(self.cases.values()), self.examine)(right)
        return f"your function returned {described(answer.returned)}, expected {described(right.returned)}."

    def diagnosis(self, answer: Any) -> str | None:
        """Compare an answer's results with the right ones, case by case."""
        remarks = list(self.cases)
        for place, remark in enumerate(remarks):
            expected, given = self.result(self.right, remark), self.run(answer, remark)
            if is_same(given, expected, self.tolerance):
                continue
            known = wrong_answers(self.mistakes, self.right)
            suspects = [(told, wrong) for told, wrong in known if self.matches(given, wrong, remark)]
            for later in remarks[place + 1 :]:  # several mistakes may look alike here
                if len(suspects) > 1:
                    more = self.attempt(answer, later)
                    suspects = [one for one in suspects if self.matches(more, one[1], later)] or suspects
            return remark + (suspects[0][0] if suspects else difference(given, expected, self.tolerance, self.by_hand))
        names, _, instead = self.forbids.partition(": ")
        if names and (found := broken(names, answer.answer, lambda: self.run(answer, remarks[0]))):
            return f"the result is right, but {found}, which the card rules out: {instead}"
        return self.examine(answer)

    def run(self, answer: Any, remark: str) -> Any:
        """Run an answer on a case; what it sets reaches none of the known answers, whose results are kept."""
        with kept_settings():
            return self.cases[remark](answer)

    def attempt(self, answer: Any, remark: str) -> Any:
        """Run an answer on a case that it need not survive."""
        try:
            return self.run(answer, remark)
        except Exception:
            return FAILED

    def result(self, known: Any, remark: str) -> Any:
        """Run the right answer or a known mistake on a case; only once, for the next check needs the result, too."""
        if (id(known), remark) not in self.results:
            self.results[id(known), remark] = self.attempt(known, remark)
        return self.results[id(known), remark]

    def matches(self, given: Any, wrong: Any, remark: str) -> bool:
        """Tell whether a result is that of a known mistake."""
        expected = self.result(wrong, remark)
        return expected is not FAILED and is_same(given, expected, self.tolerance)


def wrong_answers(table: Mapping[str, Any], right: Any) -> Iterator[tuple[str, Any]]:
    """List each sentence of a table with each wrong answer that earns it."""
    for sentence, wrong in table.items():
        for one in wrong if isinstance(wrong, AnyOf) else (wrong,):
            yield sentence, slip(right, one) if isinstance(one, str) and "→" in one else one


source_of = cache(inspect.getsource)  # of a class it is slow to find


@cache
def slip(right: Callable[..., Any], changes: str) -> Any:
    """Change the source of a function or class from the top of its file, when it is first called.

    Changes are such as "* 2 → + 2; - 1 →", each made wherever it fits: one expression in place of another, or none.
    """

    @cache
    def written() -> Any:
        source, names = source_of(right), dict(vars(sys.modules[right.__module__]))
        for change in changes.split(";"):
            old, new = (part.strip() for part in change.split("→"))
            if old not in source:
                raise ValueError(f"{old!r} does not stand in {right.__name__}.")
            source = source.replace(old, new)
        exec(compile(source, __file__, "exec"), names)
        return names[right.__name__]

    if isinstance(right, type):  # a class stays a class: `check` treats it unlike a function
        return type(right.__name__, (), {"__new__": lambda cls, *given: written()(*given)})
    return lambda *given, **named: written()(*given, **named)


def calls(*given: Any, **named: Any) -> Run:
    """Make a case of what to call an answer with."""
    return lambda answer: answer(*given, **named)


def called(remark: str, *given: tuple[Any, ...]) -> dict[str, Run]:
    """Make a case of each of several calls; the remark has a {} for each argument."""
    return {remark.format(*one): calls(*one) for one in given}


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Draw from a standard normal distribution, the same numbers every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def keeping(*given: Any) -> Run:
    """Make a case that refuses an answer which changes what it is given; for `copies=False`."""

    def run(answer: Any) -> Any:
        own = copy.deepcopy(given)
        result = answer(*own)
        for place, pair in enumerate(zip(own, given, strict=True)):
            if not is_same(*pair, 0.0):
                raise WrongFormError(f"your function changed argument {place}, counted from 0: make a new tensor.")
        return result

    return run


def in_32_bits(result: Any) -> Any:
    """Round a tensor of floats to 32 bits, so that it may come in 64."""
    return result.float() if isinstance(result, Tensor) and result.is_floating_point() else result


def as_numbers(answer: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Read the numbers that an exercise by hand asks for, in whatever form they come."""
    try:
        return torch.as_tensor(answer, dtype=dtype)
    except Exception:
        raise WrongFormError("expected numbers, as a list such as [1.5, 2]", answer) from None


def parts(run: Run, *names: str, place: str = "") -> dict[str, Run]:
    """Make a case of each of several results that an answer gives; `place` says where it was run."""

    def part(i: int) -> Run:
        def read(answer: Any) -> Any:
            results = run(answer)
            if results is not None and not (isinstance(results, tuple | list) and len(results) == len(names)):
                raise WrongFormError(f"expected {len(names)} things, {', '.join(names)}", results)
            return results and results[i]

        return read

    return {f"{place}{name}: ": part(i) for i, name in enumerate(names)}


def by_hand(title: str, right: Any, mistakes: Mapping[str, Any], tolerance: float = 0.006) -> Exercise:
    """Make an exercise of numbers by hand, of which a wrong one makes all wrong."""
    return Exercise(title, right, {"": as_numbers}, mistakes, tolerance=tolerance, by_hand=True)


def on_paper(
    title: str, right: list[Any], mistakes: Mapping[str, Any], names: Sequence[str] = (), tolerance: float = 1e-4
) -> Exercise:
    """Make an exercise of several numbers by hand; a mistake is a place, counted from 0, and a wrong number there."""
    names = names or [f"number {place}" for place in range(len(right))]
    cases = parts(lambda answer: as_numbers(answer, torch.float64).tolist(), *names)
    tables: dict[str, Any] = {}
    for sentence, wrong in mistakes.items():
        pairs = wrong if isinstance(wrong, AnyOf) else (wrong,)
        tables[sentence] = AnyOf(*([*right[:place], number, *right[place + 1 :]] for place, number in pairs))
    return Exercise(title, right, cases, tables, tolerance=tolerance, by_hand=True)


class Watched:
    """An answer that is called with copies; what it `returned` last, and whether it is still `at_work`."""

    def __init__(self, answer: Callable[..., Any], copies: bool = True) -> None:
        self.answer, self.copies, self.at_work, self.returned = answer, copies, False, cast(Any, None)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the answer."""
        self.at_work = True
        self.returned = self.answer(*map(copied, given) if self.copies else given, **named)
        self.at_work = False
        return self.returned


def copied(value: Any) -> Any:
    """Copy a tensor, list or dictionary."""
    if isinstance(value, Tensor):
        return value.clone()
    return copy.deepcopy(value) if isinstance(value, list | dict) else value


def is_same(given: Any, expected: Any, tolerance: float = 1e-4) -> bool:
    """Tell whether two results are equal, in type and shape and within the tolerance."""
    return comparison.difference(given, expected, tolerance, strict=True) is None


def difference(given: Any, expected: Any, tolerance: float = 1e-4, by_hand: bool = False) -> str:
    """Say how a result differs from the expected one, where no known mistake explains it."""
    text = comparison.difference(given, expected, tolerance, strict=True) or "no difference"
    if given is None:
        return "your function returned None: does it end in a return?"
    if by_hand and isinstance(expected, Tensor) and text[:2] != "at" and expected.shape != given.shape:
        count = f"{expected.numel()} numbers, in a list" if expected.dim() else "one number"
        return f"expected {count}, got {described(given.tolist())}."
    if by_hand:
        order = text.partition(IN_ANOTHER_ORDER)[1].removeprefix(": ")
        return order or f"{text.partition(', expected')[0]} is not right"
    if isinstance(given, Tensor) and text.startswith("at") and given.is_floating_point():
        if (expected.isfinite() & ~given.isfinite()).any():
            return f"{text}: does an exponential overflow, or is there a logarithm of 0, or a division by 0?"
        factor = float((given * expected).sum() / (expected * expected).sum())
        if factor and is_same(given, factor * expected, tolerance):
            return f"{text}; all numbers are off by the factor {factor:.4g}"
    return text


def no_larger(most: int, told: str, *given: Any) -> Callable[[Any], str | None]:
    """Make an `examine` that runs an answer once more and tells of a tensor with more than so many numbers, {}."""

    def examine(answer: Any) -> str | None:
        with LargestTensor() as seen:
            answer(*given)
        return told.format(seen.largest) if seen.largest > most else None

    return examine


class LargestTensor(TorchFunctionMode):
    """Within this context, note how many numbers the largest tensor holds that any torch function returns.

    And `most`: how many numbers all such tensors hold together that are alive at once, views counted like others; and
    `dtypes`, one for each tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.most = 0
        self.alive: dict[int, weakref.ref[Tensor]] = {}
        self.dtypes: list[torch.dtype] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and look at what it returns."""
        result = func(*args, **(kwargs or {}))
        new = [one for one in (result if isinstance(result, tuple | list) else (result,)) if isinstance(one, Tensor)]
        self.dtypes += [one.dtype for one in new]
        self.alive |= {id(one): weakref.ref(one) for one in new}
        there = {key: tensor.numel() for key, reference in self.alive.items() if (tensor := reference()) is not None}
        self.alive = {key: self.alive[key] for key in there}
        self.largest = max(self.largest, *(one.numel() for one in new), 0)
        self.most = max(self.most, sum(there.values()))
        return result
