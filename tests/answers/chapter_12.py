"""Wrong answers to the exercises of chapter 12, each with a pattern of its diagnosis; and other right answers."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from annotated.config import TransformerConfig
from annotated_course.exercises.chapter_12 import changes_with_errors, cheapest, shuffled_share

Parts = Sequence[tuple[int, int, float]]


def shared_out(parts: Parts, over: int) -> float:
    """The whole loss, divided by the tokens (0) or by the words (1)."""
    return sum(part[0] * math.log(part[2]) for part in parts) / sum(part[over] for part in parts)


def tokens_per_word(parts: Parts) -> float:
    return sum(part[0] for part in parts) / sum(part[1] for part in parts)


def by_product(parts: Parts) -> float:
    words = sum(part[1] for part in parts)
    return float(np.prod([ppl ** (tokens / words) for tokens, _, ppl in parts]))


def words_of_parts(parts: Parts, even: bool) -> float:
    weights = [1 if even else words for _, words, _ in parts]
    return float(np.average([ppl ** (tokens / words) for tokens, words, ppl in parts], weights=weights))


def word_without_return(parts: Parts) -> None:
    by_product(parts)


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


def by_trying(rows, ratio):
    best = None
    for n in range(1, 200):
        for b in range(1, 400):
            error = 1 / b + 1 / n
            if 9 * error <= ratio**2 + 1e-9 and (best is None or (b + rows * n, error) < best[0]):
                best = (b + rows * n, error), (b, n)
    return best[1]


def by_the_root(rows, ratio):
    n = math.ceil(9 / ratio**2 * (1 + 1 / math.sqrt(rows)))
    return math.ceil(n * math.sqrt(rows)), n


def larger_error(rows, ratio):
    """As few runs, but of the pairs with that total the one with the largest error that is allowed."""
    b, n = cheapest(rows, ratio)
    pairs = [(b + rows * n - rows * m, m) for m in range(1, 200) if b + rows * n - rows * m >= 1]
    return max((1 / x + 1 / m, (x, m)) for x, m in pairs if 9 * (1 / x + 1 / m) <= ratio**2 + 1e-9)[1]


def runs_without_return(rows, ratio):
    by_trying(rows, ratio)


def one_width(base, heads, width):
    given = two_models(base, heads, width)
    return [*given[:2], replace(base, d_k=width), given[3]]


def two_models(base, heads, width):
    whole = base.d_model // base.heads
    own = {"d_k": base.d_k or whole, "d_v": base.d_v or whole}
    return [
        base,
        replace(base, heads=heads, **own),
        replace(base, d_k=width, d_v=width),
        replace(base, heads=heads, d_k=width, d_v=width),
    ]


def design(change: Callable[[list[TransformerConfig]], list[TransformerConfig]]) -> Callable[..., object]:
    """The right design, and then something done to it."""
    return lambda base, heads, width: change(two_models(base, heads, width))


def design_without_return(base, heads, width):
    two_models(base, heads, width)


def number_alone_by_itself(base, heads, width):
    given = two_models(base, heads, width)
    return [base, replace(base, heads=heads), *given[2:]]


def dealt(**switches: bool) -> Callable[[Sequence[float], Sequence[float]], float]:
    """The permutation test with one of the usual mistakes."""
    return lambda base, row: shuffled_share(base, row, **switches)


def share_without_return(base, row):
    shuffled_share(base, row)


WRONG = [
    ("12.1", [3, 1.31, 1.0], r"not by 3 \+ 4"),
    ("12.1", [3, 1.41, 1.08], r"not by 6"),
    ("12.1", [3, 1.47, 1.12], r"not the two variances evenly"),
    ("12.1", [3, 2.4, 1.18], r"still a variance"),
    ("12.1", [3, 1.55, 0.77], r"the row's 1/4 alone"),
    ("12.1", [3, 1.55, 0.89], r"base's 1/3 alone"),
    ("12.1", [3, 1.55, 1.26], r"four runs"),
    ("12.1", [3, 2.12, 1.62], r"mean of all seven"),
    ("12.1", [-3, 1.55, 1.18], r"row minus base"),
    ("12.1", [3, 1.55], r"expected shape \(3,\)"),
    ("12.2", lambda parts: shared_out(parts, 1), r"loss per word"),
    ("12.2", lambda parts: math.exp(shared_out(parts, 0)), r"this is per token"),
    ("12.2", lambda parts: math.exp(shared_out(parts, 0)) * tokens_per_word(parts), r"in proportion"),
    ("12.2", lambda parts: math.exp(shared_out(parts, 0) / tokens_per_word(parts)), r"upside down"),
    ("12.2", lambda parts: words_of_parts(parts, False), r"averaged the parts' perplexities"),
    ("12.2", lambda parts: words_of_parts(parts, True), r"perplexities are no sums"),
    (
        "12.2",
        lambda parts: math.exp(statistics.mean(math.log(part[2]) for part in parts) * tokens_per_word(parts)),
        r"counts by its tokens",
    ),
    (
        "12.2",
        lambda parts: math.exp(np.average([math.log(part[2]) for part in parts], weights=[p[1] for p in parts])),
        r"not of its words",
    ),
    ("12.2", word_without_return, r"returned None"),
    ("12.3", errors_with(squared=True), r"still variances"),
    ("12.3", errors_with(own=0), r"runs − 1, not of runs"),
    ("12.3", errors_with(even=True), r"every row counts the same"),
    ("12.3", errors_with(roots=True), r"averaged standard deviations"),
    ("12.3", errors_with(base=False), r"base's mean is uncertain"),
    ("12.3", errors_for_equal_runs, r"its own number of runs"),
    ("12.3", lambda groups: [(-change, error) for change, error in changes_with_errors(groups)], r"row minus base"),
    ("12.3", lambda groups: [pair[::-1] for pair in changes_with_errors(groups)], r"error comes second"),
    ("12.3", lambda groups: [(0.0, 0.0), *changes_with_errors(groups)], r"not compared with itself"),
    ("12.3", lambda groups: [statistics.stdev(group) for group in groups[1:]], r"raised StatisticsError"),
    ("12.3", errors_without_return, r"returned None"),
    ("12.4", lambda rows, ratio: (math.ceil(18 / ratio**2 - 1e-9),) * 2, r"base has as many runs"),
    ("12.4", lambda rows, ratio: (1, math.ceil(9 / ratio**2 - 1e-9)), r"1/n alone"),
    ("12.4", lambda rows, ratio: by_trying(rows, ratio * 1.5), r"two standard errors fit"),
    ("12.4", lambda rows, ratio: by_trying(rows, ratio * 3), r"one standard error fits"),
    ("12.4", lambda rows, ratio: by_trying(1, ratio), r"base has as many runs"),
    ("12.4", lambda rows, ratio: by_trying(rows, ratio)[::-1], r"base's runs come first"),
    ("12.4", by_the_root, r"\d+ runs in all; there is a pair with \d+\."),
    ("12.4", larger_error, r"as many and a smaller error"),
    ("12.4", lambda rows, ratio: (3, 3), r"three standard errors are 2\.449 s"),
    ("12.4", lambda rows, ratio: 18 / ratio**2, r"give a pair"),
    ("12.4", lambda rows, ratio: (9 / ratio**2 * 1.5, 27 / ratio**2), r"whole numbers"),
    ("12.4", runs_without_return, r"returned None"),
    ("12.5", dealt(two_sided=False), r"absolute values"),
    ("12.5", dealt(equal=False), r"≥, not >"),
    ("12.5", dealt(observed=False), r"count it as well"),
    ("12.5", dealt(mean=False), r"compare the means"),
    ("12.5", share_without_return, r"returned None"),
    ("12.6", number_alone_by_itself, r"number of heads has heads of width 8: without d_k and d_v"),
    ("12.6", one_width, r"right keys, but values of width 32"),
    ("12.6", lambda base, heads, width: two_models(base, heads, width)[1:], r"you gave 3 configurations"),
    ("12.6", design(lambda four: [four[0], four[2], four[1], four[3]]), r"not in its place"),
    ("12.6", design(lambda four: [replace(one, dropout=0.0) for one in four]), r"changes more than its heads"),
    ("12.6", design(lambda four: [*four[:3], replace(four[3], d_k=7)]), r"right values, but keys of width 7"),
    ("12.6", design(lambda four: [*four[:3], replace(four[3], heads=3)]), r"with both has 3 heads"),
    ("12.6", lambda base, heads, width: [base.heads, heads, width, 1], r"list of TransformerConfig"),
    ("12.6", design_without_return, r"returned None"),
]
RIGHT = [
    ("12.1", torch.tensor([3.0, 1.55, 1.18])),
    ("12.1", (3, 1.5492, 1.1832)),
    ("12.2", by_product),
    ("12.3", errors_with_numpy),
    ("12.4", by_trying),
    ("12.5", dealt()),
    ("12.6", two_models),
    ("12.6", lambda base, heads, width: tuple(two_models(base, heads, width))),
]
