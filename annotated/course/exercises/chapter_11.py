"""The exercises of chapter 11, model variations."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from annotated.course.exercises.diagnosis import Exercise, compare


def error_by_hand(answer: Any) -> str | None:
    """Base 40, 41, 42 and another row 42, 43, 45, 46: the change, the pooled deviation, its standard error."""
    base, row = [40.0, 41.0, 42.0], [42.0, 43.0, 45.0, 46.0]
    both = 1 / 3 + 1 / 4

    def numbers(variance: float, share: float = both, change: float = 3.0) -> Tensor:
        return torch.tensor([change, math.sqrt(variance), math.sqrt(variance * share)])

    variance = 12 / 5
    return compare(
        _numbers(answer),
        numbers(variance),
        {
            "each row loses one run for its mean: divide 2 + 10 by 2 + 3, not by 3 + 4.": numbers(12 / 7),
            "two means were taken, not one: divide 2 + 10 by 2 + 3, not by 6.": numbers(12 / 6),
            "a row counts by its runs less one: pool the squares, 2 + 10, not the two variances evenly.": numbers(
                (statistics.variance(base) + statistics.variance(row)) / 2
            ),
            "the second number is still a variance: take the root.": torch.tensor(
                [3.0, variance, math.sqrt(variance * both)]
            ),
            "both means are uncertain: 1/3 + 1/4, not the row's 1/4 alone.": numbers(variance, 1 / 4),
            "both means are uncertain: 1/3 + 1/4, not base's 1/3 alone.": numbers(variance, 1 / 3),
            "the row has four runs: 1/3 + 1/4, not 2/3.": numbers(variance, 2 / 3),
            "the distances are from each row's own mean, not from the mean of all seven.": numbers(
                statistics.variance(base + row)
            ),
            "the change is row minus base: here positive.": numbers(variance, change=-3.0),
        },
        tolerance=0.006,
    )


def nats(answer: Callable[[Sequence[float]], Tensor]) -> str | None:
    """Perplexities as changes of the loss from the first one, in nats per token."""
    values = [4.92, 5.29, 5.01, 4.33, 9.84]
    ppl = torch.tensor(values)
    mistakes = {
        "these are the losses themselves; subtract base's, the first one.": ppl.log(),
        "the sign is reversed: a row with a larger perplexity has a larger loss.": -(ppl / ppl[0]).log(),
        "these are differences of perplexities; the loss is their logarithm.": ppl - ppl[0],
        "this is the ratio of the perplexities; its logarithm is missing.": ppl / ppl[0],
        "these are bits; for nats take the natural logarithm.": (ppl / ppl[0]).log2(),
        "that is log₁₀; for nats take the natural logarithm.": (ppl / ppl[0]).log10(),
        "each row is compared with the one above it; compare it with base, the first one.": torch.cat(
            (torch.zeros(1), (ppl[1:] / ppl[:-1]).log())
        ),
    }
    return compare(_numbers(answer(values)), (ppl / ppl[0]).log(), mistakes)


def changes_with_errors(
    groups: Sequence[Sequence[float]],
    *,
    own: int = 1,
    even: bool = False,
    roots: bool = False,
    base: bool = True,
    squared: bool = False,
) -> list[tuple[float, float]]:
    """Each row's change from the first one, and its standard error; the switches make the usual mistakes."""
    several = [group for group in groups if len(group) > 1]
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in several)
    variance = squares / sum(len(group) - own for group in (several if own else groups))
    if even:
        variance = statistics.mean(map(statistics.variance, several))
    if roots:
        variance = statistics.mean(map(statistics.stdev, several)) ** 2
    first, *rows = groups
    errors = [variance * (1 / len(row) + (1 / len(first) if base else 0)) for row in rows]
    return [
        (statistics.mean(row) - statistics.mean(first), error if squared else math.sqrt(error))
        for row, error in zip(rows, errors, strict=True)
    ]


def all_errors(answer: Callable[[Sequence[Sequence[float]]], Sequence[tuple[float, float]]]) -> str | None:
    """Changes and standard errors of rows with different numbers of runs; a row of one run knows nothing of chance."""
    groups = [[40.0, 41.0, 43.0, 44.0], [30.0, 36.0], [50.0], [55.0], [20.0, 20.5, 21.0]]
    expected = torch.tensor(changes_with_errors(groups))
    equal = torch.tensor([math.sqrt((1 / 4 + 1 / 4) / (1 / len(row) + 1 / 4)) for row in groups[1:]])
    mistakes = {
        "the errors are still variances; take the root.": torch.tensor(changes_with_errors(groups, squared=True)),
        "each row loses one run for its mean: divide by the sum of runs − 1, not of runs.": torch.tensor(
            changes_with_errors(groups, own=0)
        ),
        "every row counts the same in your variance; a row counts by its runs less one.": torch.tensor(
            changes_with_errors(groups, even=True)
        ),
        "you averaged standard deviations; pool the squares, and take the root at the end.": torch.tensor(
            changes_with_errors(groups, roots=True)
        ),
        "base's mean is uncertain as well: 1/n of the row plus 1/n of base.": torch.tensor(
            changes_with_errors(groups, base=False)
        ),
        "each row has its own number of runs; you used base's for all.": expected
        * torch.stack((torch.ones(4), equal), dim=1),
        "a change is row minus base, not base minus row.": expected * torch.tensor([-1.0, 1.0]),
        "the error comes second, the change first.": expected.flip(1),
    }
    given = answer(groups)
    if given is None:
        return "your function returned None: does it end in a return?"
    if len(given) == len(groups):
        return f"you gave {len(given)} pairs for {len(groups)} rows: base is not compared with itself."
    return compare(_numbers(given), expected, mistakes)


def runs_needed(answer: Callable[[float, float], int]) -> str | None:
    """The smallest number of runs a row, so that two standard errors are no larger than the effect."""
    cases = [(1.0, 0.6), (0.3, 0.6), (0.5, 0.7), (2.0, 0.5), (1.0, 1.0), (0.25, 0.5)]

    def needed(effect: float, sd: float, factor: int = 8, whole: Callable[[float], int] = math.ceil) -> int:
        return whole(factor * (sd / effect) ** 2 - 1e-9)

    mistakes: dict[str, dict[str, Any]] = {
        "both means are uncertain: the variance of their difference is s² · (1/n + 1/n).": {"factor": 4},
        "that is one standard error; two of them must fit into the effect.": {"factor": 2},
        "that is one standard error of one mean; two errors of a difference must fit.": {"factor": 1},
        "round up: with fewer runs, two standard errors are larger than the effect.": {
            "whole": lambda n: math.floor(n + 2e-9)
        },
        "round up, always: the nearest whole number may be too few.": {"whole": round},
        "where two standard errors equal the effect, that is enough: do not add a run.": {
            "whole": lambda n: math.floor(n + 1e-6) + 1
        },
    }
    given = [answer(effect, sd) for effect, sd in cases]
    for (effect, sd), n in zip(cases, given, strict=True):
        if n is None:
            return "your function returned None: does it end in a return?"
        if n != int(n):
            return f"for an effect of {effect} and s = {sd} you gave {n}: runs come in whole numbers."
    for diagnosis, switches in mistakes.items():
        if given == [needed(*case, **switches) for case in cases]:
            return diagnosis
    for (effect, sd), n in zip(cases, given, strict=True):
        if n != needed(effect, sd):
            error = sd * math.sqrt(2 / n) if n > 0 else math.inf
            return (
                f"for an effect of {effect} and s = {sd} you gave {n}, where two standard errors are {2 * error:.2f}; "
                f"the smallest number is {needed(effect, sd)}."
            )
    return None


def shuffled_share(
    base: Sequence[float],
    row: Sequence[float],
    *,
    two_sided: bool = True,
    equal: bool = True,
    observed: bool = True,
    mean: bool = True,
) -> float:
    """The share of all ways to deal the runs that are at least as extreme; the switches make the usual mistakes."""
    values = [*base, *row]
    reached = []
    for places in combinations(range(len(values)), len(row)):
        chosen = [values[i] for i in places]
        others = [value for i, value in enumerate(values) if i not in places]
        size = statistics.mean if mean else sum
        reached.append(size(chosen) - size(others))
    if two_sided:
        reached = [abs(change) for change in reached]
    last = reached[-1]  # the last places are the row's own
    count = sum(change >= last - 1e-9 if equal else change > last + 1e-9 for change in reached)
    return (count if observed else count - 1) / len(reached)


def shuffled(answer: Callable[[Sequence[float], Sequence[float]], float]) -> str | None:
    """An exact permutation test of two rows, two-sided, the deal that happened included."""
    cases = [
        ([40.0, 41.0, 42.0], [43.0, 44.0, 46.0]),
        ([40.0, 41.0, 42.5], [41.5, 43.0, 40.5, 44.0]),
        ([43.0, 40.0], [39.0, 38.5, 41.0]),
        ([1.0, 2.0, 4.0], [3.0, 1.5, 2.5]),
    ]
    mistakes: dict[str, dict[str, Any]] = {
        "that counts changes in one direction only; a test for any difference takes absolute values.": {
            "two_sided": False
        },
        "a deal as extreme as the one that happened counts too: ≥, not >.": {"equal": False},
        "the deal that happened is one of the possible ones: count it as well.": {"observed": False},
        "compare the means: the rows may have different numbers of runs, and sums do not know that.": {"mean": False},
    }
    given = [answer(*case) for case in cases]
    if any(value is None for value in given):
        return "your function returned None: does it end in a return?"
    expected = torch.tensor([shuffled_share(*case) for case in cases])
    wrong = {
        diagnosis: torch.tensor([shuffled_share(*case, **switches) for case in cases])
        for diagnosis, switches in mistakes.items()
    }
    return compare(_numbers(given), expected, wrong)


def _numbers(answer: Any) -> Tensor:
    return torch.as_tensor(answer, dtype=torch.float32)


EXERCISES = {
    "11.1": Exercise("A standard error by hand", error_by_hand),
    "11.2": Exercise("Perplexity in nats", nats),
    "11.3": Exercise("Errors for a whole table", all_errors),
    "11.4": Exercise("How many runs", runs_needed),
    "11.5": Exercise("Deal the runs again", shuffled),
}
