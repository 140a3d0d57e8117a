"""Wrong answers to the exercises of chapter 11, each with a pattern of its diagnosis; and other right answers."""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch

from annotated.course.exercises.chapter_11 import changes_with_errors, shuffled_share


def nats_with(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Sequence[float]], torch.Tensor]:
    """An answer to 14.2 that works on a tensor."""
    return lambda values: change(torch.tensor(values))


def in_numpy(values):
    return np.log(np.array(values)) - math.log(values[0])


def errors_with(**switches) -> Callable[[Sequence[Sequence[float]]], list[tuple[float, float]]]:
    """The changes and errors of a table with one of the usual mistakes."""
    return lambda groups: changes_with_errors(groups, **switches)


def errors_with_numpy(groups):
    squares = sum(np.var(group) * len(group) for group in groups)
    variance = squares / sum(len(group) - 1 for group in groups)
    base, *rows = groups
    changes = [np.mean(row) - np.mean(base) for row in rows]
    return np.array(
        [(c, np.sqrt(variance * (1 / len(row) + 1 / len(base)))) for c, row in zip(changes, rows, strict=True)]
    )


def errors_for_equal_runs(groups):
    error = errors_with_numpy([groups[0], groups[0], *groups[1:]])[0]
    variance = errors_with_numpy(groups)[0, 1] ** 2 / (1 / len(groups[1]) + 1 / len(groups[0]))
    base = len(groups[0])
    assert error[0] == 0
    return [(change, math.sqrt(variance * 2 / base)) for change, _ in errors_with_numpy(groups)]


def errors_without_return(groups):
    errors_with_numpy(groups)


def runs(factor: float, whole: Callable[[float], int] = math.ceil) -> Callable[[float, float], int]:
    """A number of runs from a factor before (s / effect)²."""
    return lambda effect, sd: whole(round(factor * (sd / effect) ** 2, 9))


def counting_up(effect, sd):
    n = 1
    while 2 * sd * math.sqrt(2 / n) > effect + 1e-9:
        n += 1
    return n


def runs_without_return(effect, sd):
    counting_up(effect, sd)


def dealt(**switches: bool) -> Callable[[Sequence[float], Sequence[float]], float]:
    """The permutation test with one of the usual mistakes."""
    return lambda base, row: shuffled_share(base, row, **switches)


def share_without_return(base, row):
    shuffled_share(base, row)


WRONG = [
    ("11.1", [3, 1.31, 1.0], r"not by 3 \+ 4"),
    ("11.1", [3, 1.41, 1.08], r"not by 6"),
    ("11.1", [3, 1.47, 1.12], r"not the two variances evenly"),
    ("11.1", [3, 2.4, 1.18], r"still a variance"),
    ("11.1", [3, 1.55, 0.77], r"the row's 1/4 alone"),
    ("11.1", [3, 1.55, 0.89], r"base's 1/3 alone"),
    ("11.1", [3, 1.55, 1.26], r"four runs"),
    ("11.1", [3, 2.12, 1.62], r"mean of all seven"),
    ("11.1", [-3, 1.55, 1.18], r"row minus base"),
    ("11.1", [3, 1.55], r"expected shape \(3,\)"),
    ("11.2", nats_with(torch.log), r"subtract base's"),
    ("11.2", nats_with(lambda ppl: -(ppl / ppl[0]).log()), r"sign is reversed"),
    ("11.2", nats_with(lambda ppl: ppl - ppl[0]), r"differences of perplexities"),
    ("11.2", nats_with(lambda ppl: ppl / ppl[0]), r"logarithm is missing"),
    ("11.2", nats_with(lambda ppl: (ppl / ppl[0]).log2()), r"these are bits"),
    ("11.2", nats_with(lambda ppl: (ppl / ppl[0]).log10()), r"log₁₀"),
    ("11.2", nats_with(lambda ppl: (ppl / ppl.roll(1)).log() * (ppl != ppl[0])), r"the one above it"),
    ("11.3", errors_with(squared=True), r"still variances"),
    ("11.3", errors_with(own=0), r"runs − 1, not of runs"),
    ("11.3", errors_with(even=True), r"every row counts the same"),
    ("11.3", errors_with(roots=True), r"averaged standard deviations"),
    ("11.3", errors_with(base=False), r"base's mean is uncertain"),
    ("11.3", errors_for_equal_runs, r"its own number of runs"),
    ("11.3", lambda groups: [(-change, error) for change, error in changes_with_errors(groups)], r"row minus base"),
    ("11.3", lambda groups: [pair[::-1] for pair in changes_with_errors(groups)], r"error comes second"),
    ("11.3", lambda groups: [(0.0, 0.0), *changes_with_errors(groups)], r"not compared with itself"),
    ("11.3", lambda groups: [statistics.stdev(group) for group in groups[1:]], r"raised StatisticsError"),
    ("11.3", errors_without_return, r"returned None"),
    ("11.4", runs(4), r"both means are uncertain"),
    ("11.4", runs(2), r"one standard error; two"),
    ("11.4", runs(1), r"one mean"),
    ("11.4", runs(8, math.floor), r"round up: with fewer"),
    ("11.4", runs(8, round), r"nearest whole number"),
    ("11.4", runs(8, lambda n: int(n) + 1), r"do not add a run"),
    ("11.4", lambda effect, sd: 8 * (sd / effect) ** 2, r"whole numbers"),
    ("11.4", lambda effect, sd: 3, r"two standard errors are"),
    ("11.4", runs_without_return, r"returned None"),
    ("11.5", dealt(two_sided=False), r"absolute values"),
    ("11.5", dealt(equal=False), r"≥, not >"),
    ("11.5", dealt(observed=False), r"count it as well"),
    ("11.5", dealt(mean=False), r"compare the means"),
    ("11.5", share_without_return, r"returned None"),
]
RIGHT = [
    ("11.1", torch.tensor([3.0, 1.55, 1.18])),
    ("11.1", (3, 1.5492, 1.1832)),
    ("11.2", in_numpy),
    ("11.2", lambda values: [math.log(value / values[0]) for value in values]),
    ("11.3", errors_with_numpy),
    ("11.4", counting_up),
    ("11.5", dealt()),
]
