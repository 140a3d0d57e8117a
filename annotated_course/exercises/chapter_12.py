"""The exercises of chapter 12, model variations."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from annotated.config import TransformerConfig
from annotated_course.exercises.diagnosis import Exercise, compare


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
            "two means were taken, not one: divide 2 + 10 by 2 + 3, not by 6 (or did you average the two "
            "deviations, which gives the same digits? Pool the squares).": numbers(12 / 6),
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
        by_hand=True,
    )


def per_word(answer: Callable[[Sequence[tuple[int, int, float]]], float]) -> str | None:
    """Perplexities per token of several parts of a test set, turned into one perplexity per word."""
    cases = [
        [(30, 20, 4.0)],
        [(10, 10, 5.0)],
        [(100, 60, 8.0), (40, 40, 3.0), (90, 30, 6.0)],
        [(7, 2, 2.0), (50, 40, 9.0)],
    ]

    def nats(parts: Sequence[tuple[int, int, float]]) -> float:
        return sum(tokens * math.log(ppl) for tokens, _, ppl in parts)

    def words(parts: Sequence[tuple[int, int, float]]) -> int:
        return sum(part[1] for part in parts)

    def tokens(parts: Sequence[tuple[int, int, float]]) -> int:
        return sum(part[0] for part in parts)

    def of_parts(parts: Sequence[tuple[int, int, float]]) -> list[float]:
        return [ppl ** (tokens / words) for tokens, words, ppl in parts]

    def spread(parts: Sequence[tuple[int, int, float]], weight: int) -> float:
        """The mean of the parts' perplexities per word, weighted by their words (1) or evenly (2)."""
        weights = [part[1] if weight == 1 else 1 for part in parts]
        return sum(w * ppl for w, ppl in zip(weights, of_parts(parts), strict=True)) / sum(weights)

    def mean_loss_to_word(parts: Sequence[tuple[int, int, float]]) -> float:
        return math.exp(statistics.mean(math.log(part[2]) for part in parts) * tokens(parts) / words(parts))

    mistakes: dict[str, Callable[[Sequence[tuple[int, int, float]]], float]] = {
        "this is the loss per word; the perplexity is e to it.": lambda parts: nats(parts) / words(parts),
        "this is per token: share the whole loss out over the words.": lambda parts: math.exp(
            nats(parts) / tokens(parts)
        ),
        "the perplexity does not grow in proportion to the tokens per word: the loss does.": lambda parts: (
            math.exp(nats(parts) / tokens(parts)) * tokens(parts) / words(parts)
        ),
        "the ratio is upside down: a word has more tokens, so its loss is larger.": lambda parts: math.exp(
            nats(parts) / tokens(parts) * words(parts) / tokens(parts)
        ),
        "you averaged the parts' perplexities; add up their losses.": lambda parts: spread(parts, 1),
        "the parts are not equally long, and perplexities are no sums: add up their losses.": lambda parts: spread(
            parts, 2
        ),
        "the parts are not equally long: a part counts by its tokens.": mean_loss_to_word,
        "a part's loss counts once for each of its tokens, not of its words.": lambda parts: math.exp(
            sum(part[1] * math.log(part[2]) for part in parts) / words(parts)
        ),
    }
    given = [answer(parts) for parts in cases]
    if any(value is None for value in given):
        return "your function returned None: does it end in a return?"
    expected = torch.tensor([math.exp(nats(parts) / words(parts)) for parts in cases])
    wrong = {diagnosis: torch.tensor([mistake(parts) for parts in cases]) for diagnosis, mistake in mistakes.items()}
    return compare(_numbers(given), expected, wrong)


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


def cheapest(rows: int, ratio: float, *, limit: float = 3.0, equal: bool = False, base: bool = True) -> tuple[int, int]:
    """The runs of base and of each other row with the smallest total; the switches make the usual mistakes."""
    room = (ratio / limit) ** 2 + 1e-9  # 1/b + 1/n may be no larger
    best, n = (math.inf, math.inf, (0, 0)), 0
    while rows * (n := n + 1) < best[0]:
        left = room - 1 / n
        if not base:
            b = 1
            if left < 0:
                continue
        elif left <= 0:
            continue
        else:
            b = math.ceil(1 / left - 1e-9)
        if equal:
            b = n
            if 2 / n > room:
                continue
        best = min(best, (b + rows * n, 1 / b + 1 / n, (b, n)))
    return best[2]


def runs_to_make(answer: Callable[[int, float], tuple[int, int]]) -> str | None:
    """How to deal runs to base and to the other rows, so that three standard errors fit into an effect."""
    cases = [(14, 1.0), (14, 1.5), (1, 1.0), (4, 2.0), (30, 1.2), (9, 0.7), (4, 4.5)]
    mistakes: dict[str, Callable[[int, float], tuple[int, int]]] = {
        "base has as many runs as another row, but a run for each of the others costs more.": lambda rows, ratio: (
            cheapest(rows, ratio, equal=True)
        ),
        "base's mean is uncertain as well: 1/b + 1/n, not 1/n alone.": lambda rows, ratio: cheapest(
            rows, ratio, base=False
        ),
        "two standard errors fit into the effect; three must.": lambda rows, ratio: cheapest(rows, ratio, limit=2.0),
        "one standard error fits into the effect; three must.": lambda rows, ratio: cheapest(rows, ratio, limit=1.0),
        "base's runs come first, then those of each other row.": lambda rows, ratio: cheapest(rows, ratio)[::-1],
    }
    given = [answer(*case) for case in cases]
    if any(pair is None for pair in given):
        return "your function returned None: does it end in a return?"
    for (rows, _), pair in zip(cases, given, strict=True):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return f"for {rows} rows you gave {pair!r}; give a pair, (runs of base, runs of each other row)."
        if any(runs != int(runs) or runs < 1 for runs in pair):
            return f"for {rows} rows you gave {pair!r}: runs come in whole numbers, from 1 on."
    pairs = [(int(b), int(n)) for b, n in given]
    right = [cheapest(*case) for case in cases]
    if pairs == right:
        return None
    for diagnosis, mistake in mistakes.items():
        if pairs == [mistake(*case) for case in cases]:
            return diagnosis
    for (rows, ratio), (b, n), best in zip(cases, pairs, right, strict=True):
        three = 3 * math.sqrt(1 / b + 1 / n)
        if three > ratio + 1e-6:
            return f"with {(b, n)} runs three standard errors are {three:.3f} s; the effect is {ratio} s."
        if (b, n) != best:
            total = best[0] + rows * best[1]
            return (
                f"for {rows} rows and {ratio} s you gave {(b, n)}, {b + rows * n} runs in all; there is a pair with "
                + (f"{total}." if total < b + rows * n else "as many and a smaller error.")
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


def two_causes(answer: Callable[[TransformerConfig, int, int], Sequence[TransformerConfig]]) -> str | None:
    """Base, another number of heads alone, another width alone, both: what is one change is up to the configuration."""
    small = TransformerConfig(100, d_model=128, d_ff=512, heads=4, layers=3)
    cases = [
        (small, 16, 8),
        (replace(small, d_k=16, dropout=0.3), 8, 4),
        (replace(small, heads=8, d_k=8, d_v=24), 2, 64),
    ]
    names = (
        "base",
        "the model with another number of heads",
        "the model with heads of another width",
        "the one with both",
    )
    for base, heads, width in cases:
        given = answer(base, heads, width)
        if given is None:
            return "your function returned None: does it end in a return?"
        if not isinstance(given, list | tuple) or not all(isinstance(one, TransformerConfig) for one in given):
            return "give a list of TransformerConfig, such as dataclasses.replace makes from base."
        if len(given) != 4:
            return f"you gave {len(given)} configurations; the study has four: base, each cause alone, both."
        own = _widths(base)
        expected = [(base.heads, *own), (heads, *own), (base.heads, width, width), (heads, width, width)]
        for name, config, wanted in zip(names, given, expected, strict=True):
            found = (config.heads, *_widths(config))
            if replace(config, heads=base.heads, d_k=base.d_k, d_v=base.d_v) != base:
                return f"{name} changes more than its heads and their width."
            if found == wanted:
                continue
            if config.heads == wanted[0] and found[1:] == (base.d_model // heads,) * 2 and config.d_k is None:
                return f"{name} has heads of width {found[1]}: without d_k and d_v they get d_model / heads. Give both."
            if found[:2] == wanted[:2]:
                return f"{name} has the right keys, but values of width {found[2]}, not {wanted[2]}: mind d_v."
            if found[0] == wanted[0] and found[2] == wanted[2]:
                return f"{name} has the right values, but keys of width {found[1]}, not {wanted[1]}: mind d_k."
            if found in expected:
                return f"{name} is not in its place: the order is base, number alone, width alone, both."
            return f"{name} has {found[0]} heads with (d_k, d_v) = {found[1:]}, not {wanted[0]} with {wanted[1:]}."
    return None


def _widths(config: TransformerConfig) -> tuple[int, int]:
    """The widths of a head's keys and values that a configuration leads to."""
    whole = config.d_model // config.heads
    return config.d_k or whole, config.d_v or whole


def _numbers(answer: Any) -> Tensor:
    return torch.as_tensor(answer, dtype=torch.float32)


EXERCISES = {
    "12.1": Exercise("A standard error by hand", error_by_hand),
    "12.2": Exercise("Per token, per word", per_word),
    "12.3": Exercise("Errors for a whole table", all_errors),
    "12.4": Exercise("Where to spend the runs", runs_to_make),
    "12.5": Exercise("Deal the runs again", shuffled),
    "12.6": Exercise("Design an ablation", two_causes),
}
