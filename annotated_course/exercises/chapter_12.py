"""The exercises of chapter 12, model variations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import ceil, sqrt
from statistics import mean, stdev, variance
from typing import Any

import torch
from torch import Tensor

from annotated.config import TransformerConfig
from annotated_course.exercises.exercise import AnyOf, Exercise, as_numbers, calls, each, is_same, listed

EXERCISES: dict[str, Exercise] = {}


def three_numbers(squared: float = 2.4, share: float = 7 / 12, change: float = 3.0, root: Any = sqrt) -> Tensor:
    """Give a change, the deviation for a variance, and the change's standard error."""
    return torch.tensor([change, root(squared), sqrt(squared * share)])


WRONG_ERRORS = {
    "each row loses one run for its mean: divide 2 + 10 by 2 + 3, not by 3 + 4.": 12 / 7,
    "two means were taken, not one: divide 2 + 10 by 2 + 3, not by 6 (or did you average the two "
    "deviations, which gives the same digits? Pool the squares).": 12 / 6,
    "a row counts by its runs less one: pool the squares, 2 + 10, not the two variances evenly.": (2 / 2 + 10 / 3) / 2,
    "the distances are from each row's own mean, not from the mean of all seven.": variance([0, 1, 2, 2, 3, 5, 6]),
    "the second number is still a variance: take the root.": dict(root=float),
    "both means are uncertain: 1/3 + 1/4, not the row's 1/4 alone.": dict(share=1 / 4),
    "both means are uncertain: 1/3 + 1/4, not base's 1/3 alone.": dict(share=1 / 3),
    "the row has four runs: 1/3 + 1/4, not 2/3.": dict(share=2 / 3),
    "the change is row minus base: here positive.": dict(change=-3.0),
}
EXERCISES["12.1"] = Exercise(
    "A standard error by hand",
    right=three_numbers(),
    cases={"": as_numbers},
    mistakes=each(three_numbers, WRONG_ERRORS),
    tolerance=0.006,
    by_hand=True,
)


def per_word(parts: list[tuple[int, int, float]], rule: Any = lambda t, w, n: (t @ n / w.sum()).exp()) -> float:
    """One perplexity by a rule for tokens, words and nats per token, each a vector with an entry for each part."""
    tokens, words, perplexities = torch.tensor(parts, dtype=torch.float64).T
    return float(rule(tokens, words, perplexities.log()))


PARTS = [[(30, 20, 4.0)], [(10, 10, 5.0)], [(100, 60, 8.0), (40, 40, 3.0), (90, 30, 6.0)], [(7, 2, 2.0), (50, 40, 9.0)]]
WRONG_RULES = {
    "this is the loss per word; the perplexity is e to it.": lambda t, w, n: t @ n / w.sum(),
    "this is per token: share the whole loss out over the words.": lambda t, w, n: (t @ n / t.sum()).exp(),
    "the perplexity does not grow in proportion to the tokens per word: the loss does.": (
        lambda t, w, n: (t @ n / t.sum()).exp() * t.sum() / w.sum()
    ),
    "the ratio is upside down: a word has more tokens, so its loss is larger.": (
        lambda t, w, n: (t @ n / t.sum() * w.sum() / t.sum()).exp()
    ),
    "you averaged the parts' perplexities; add up their losses.": lambda t, w, n: w @ (n * t / w).exp() / w.sum(),
    "the parts are not equally long, and perplexities are no sums: add up their losses.": (
        lambda t, w, n: (n * t / w).exp().mean()
    ),
    "the parts are not equally long: a part counts by its tokens.": (
        lambda t, w, n: (n.mean() * t.sum() / w.sum()).exp()
    ),
    "a part's loss counts once for each of its tokens, not of its words.": lambda t, w, n: (w @ n / w.sum()).exp(),
}
EXERCISES["12.2"] = Exercise(
    "Per token, per word",
    right=per_word,
    cases={f"parts {parts}: ": calls(parts) for parts in PARTS},
    mistakes=each(lambda rule: partial(per_word, rule=rule), WRONG_RULES),
)

Groups = Sequence[Sequence[float]]  # each row's runs
Changes = list[tuple[float, float]]  # with their standard errors


def pooled(groups: Groups, lost: int = 1) -> float:
    """Pool the squared distances from each row's own mean, each row with so many runs lost."""
    squares = sum((run - mean(group)) ** 2 for group in groups for run in group)
    return squares / sum(len(group) - lost for group in groups)


def changes_with_errors(groups: Groups, pool: Any = pooled, share: Any = lambda n, b: 1 / n + 1 / b) -> Changes:
    """Each row's change from the first one, and its standard error, maybe with another variance of runs or of means."""
    base, *rows = groups
    return [(mean(row) - mean(base), sqrt(pool(groups) * share(len(row), len(base)))) for row in rows]


WRONG_VARIANCES = {
    "each row loses one run for its mean: divide by the sum of runs − 1, not of runs.": dict(
        pool=lambda g: pooled(g, 0)
    ),
    "every row counts the same in your variance; a row counts by its runs less one.": dict(
        pool=lambda groups: mean(variance(group) for group in groups if len(group) > 1)
    ),
    "you averaged standard deviations; pool the squares, and take the root at the end.": dict(
        pool=lambda groups: mean(stdev(group) for group in groups if len(group) > 1) ** 2
    ),
    "base's mean is uncertain as well: 1/n of the row plus 1/n of base.": dict(share=lambda n, b: 1 / n),
    "each row has its own number of runs; you used base's for all.": dict(share=lambda n, b: 2 / b),
}
WRONG_PAIRS = {
    "the errors are still variances; take the root.": lambda pairs: [(change, error**2) for change, error in pairs],
    "a change is row minus base, not base minus row.": lambda pairs: [(-change, error) for change, error in pairs],
    "the error comes second, the change first.": lambda pairs: [(error, change) for change, error in pairs],
}
EXERCISES["12.3"] = Exercise(
    "Errors for a whole table",
    right=changes_with_errors,
    cases={"": listed(calls([[40.0, 41.0, 43.0, 44.0], [30.0, 36.0], [50.0], [55.0], [20.0, 20.5, 21.0]]))},
    mistakes={
        "you gave 5 pairs for 5 rows: base is not compared with itself.": AnyOf(
            lambda groups: [(0.0, 0.0), *changes_with_errors(groups)],
            lambda groups: [(0.0, sqrt(pooled(groups) / 2)), *changes_with_errors(groups)],
        ),
    }
    | each(lambda change: lambda groups: change(changes_with_errors(groups)), WRONG_PAIRS)
    | each(lambda **switch: partial(changes_with_errors, **switch), WRONG_VARIANCES),
)


def cheapest(rows: int, ratio: float) -> tuple[int, int]:
    """The runs of base and of each other row with the smallest total, and of these with the smallest error."""
    room = (ratio / 3) ** 2 + 1e-9  # 1/b + 1/n may be no larger
    pairs = [(ceil(1 / (room - 1 / n) - 1e-9), n) for n in range(1, 1000) if 1 / n < room]
    return min(pairs, key=lambda pair: (pair[0] + rows * pair[1], 1 / pair[0] + 1 / pair[1]))


BAD_DEALS: dict[str, Callable[[int, float], Any]] = {
    "base has as many runs as another row, but a run for each of the others costs more.": (
        lambda rows, ratio: [ceil(18 / ratio**2 - 1e-9)] * 2
    ),
    "base's mean is uncertain as well: 1/b + 1/n, not 1/n alone.": lambda rows, ratio: [1, ceil(9 / ratio**2 - 1e-9)],
    "two standard errors fit into the effect; three must.": lambda rows, ratio: cheapest(rows, 3 / 2 * ratio),
    "one standard error fits into the effect; three must.": lambda rows, ratio: cheapest(rows, 3 * ratio),
    "base's runs come first, then those of each other row.": lambda rows, ratio: cheapest(rows, ratio)[::-1],
}


def examine_runs(answer: Callable[[int, float], Any]) -> str | None:
    """Look for known mistakes, then at each pair: whole numbers, three errors within the effect, the total."""
    cases = [(14, 1.0), (14, 1.5), (1, 1.0), (4, 2.0), (30, 1.2), (9, 0.7), (4, 4.5)]
    given = [answer(*case) for case in cases]
    for sentence, wrong in BAD_DEALS.items():
        if is_same(given, [wrong(*case) for case in cases]):
            return sentence
    for (rows, ratio), pair in zip(cases, given, strict=True):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return f"for {rows} rows you gave {pair!r}; give a pair, (runs of base, runs of each other row)."
        if any(runs != int(runs) or runs < 1 for runs in pair):
            return f"for {rows} rows you gave {pair!r}: runs come in whole numbers, from 1 on."
        b, n = map(int, pair)
        if (three := 3 * sqrt(1 / b + 1 / n)) > ratio + 1e-6:
            return f"with {(b, n)} runs three standard errors are {three:.3f} s; the effect is {ratio} s."
        runs, fewest = (one[0] + rows * one[1] for one in ((b, n), cheapest(rows, ratio)))
        if (b, n) != cheapest(rows, ratio):
            better = f"{fewest}." if fewest < runs else "as many and a smaller error."
            return f"for {rows} rows and {ratio} s you gave {(b, n)}, {runs} runs in all; there is a pair with {better}"
    return None


EXERCISES["12.4"] = Exercise(
    "Where to spend the runs",
    right=cheapest,
    cases={},
    examine=examine_runs,
    caught={
        **BAD_DEALS,
        "for 14 rows you gave 50; give a pair": lambda rows, ratio: 50,
        "runs come in whole numbers, from 1 on": lambda rows, ratio: (50.5, 11),
        "with (3, 3) runs three standard errors are 2.449 s; the effect is 1.0 s": lambda rows, ratio: (3, 3),
        "205 runs in all; there is a pair with 204.": lambda rows, ratio: (51, 11),
        "there is a pair with as many and a smaller error": lambda rows, ratio: (36, 12),
    },
)


def extreme(changes: Sequence[float]) -> list[bool]:
    """Tell which changes are at least as large as the last one, up or down."""
    return [abs(change) >= abs(changes[-1]) - 1e-9 for change in changes]


def shuffled_share(base: Sequence[float], row: Sequence[float], reached: Any = extreme, size: Any = mean) -> float:
    """The share of all ways to deal the runs that are at least as extreme as the last one, which happened."""
    pot, changes = [*base, *row], []
    for places in combinations(range(len(pot)), len(row)):
        others = [run for i, run in enumerate(pot) if i not in places]
        changes.append(size([pot[i] for i in places]) - size(others))
    return sum(reached(changes)) / len(changes)


WRONG_SHARES = {
    "that counts changes in one direction only; a test for any difference takes absolute values.": dict(
        reached=lambda changes: [change >= changes[-1] - 1e-9 for change in changes]
    ),
    "a deal as extreme as the one that happened counts too: ≥, not >.": dict(
        reached=lambda changes: [abs(change) > abs(changes[-1]) + 1e-9 for change in changes]
    ),
    "the deal that happened is one of the possible ones: count it as well.": dict(reached=lambda c: extreme(c)[:-1]),
    "compare the means: the rows may have different numbers of runs, and sums do not know that.": dict(size=sum),
}
DEALS = [([40.0, 41.0, 42.0], [43.0, 44.0, 46.0]), ([40.0, 41.0, 42.5], [41.5, 43.0, 40.5, 44.0])]
DEALS += [([43.0, 40.0], [39.0, 38.5, 41.0]), ([1.0, 2.0, 4.0], [3.0, 1.5, 2.5])]
EXERCISES["12.5"] = Exercise(
    "Deal the runs again",
    right=shuffled_share,
    cases={f"{base} against {row}: ": calls(base, row) for base, row in DEALS},
    mistakes=each(lambda **switch: partial(shuffled_share, **switch), WRONG_SHARES),
)


def heads_of(config: TransformerConfig) -> tuple[int, int, int]:
    """Give the number of heads that a configuration leads to, and the widths of their keys and values."""
    whole = config.d_model // config.heads
    return config.heads, config.d_k or whole, config.d_v or whole


def two_causes(base: TransformerConfig, heads: int, width: int) -> list[TransformerConfig]:
    """Give base, another number of heads alone, another width alone, both."""
    _, d_k, d_v = heads_of(base)
    narrow = replace(base, d_k=width, d_v=width)
    return [base, replace(base, heads=heads, d_k=d_k, d_v=d_v), narrow, replace(narrow, heads=heads)]


NAMES = ("base", "the model with another number of heads", "the model with heads of another width", "the one with both")
SMALL = TransformerConfig(100, d_model=128, d_ff=512, heads=4, layers=3)
DESIGNS = [(SMALL, 16, 8), (replace(SMALL, d_k=16, dropout=0.3), 8, 4), (replace(SMALL, heads=8, d_k=8, d_v=24), 2, 64)]


def examine_causes(answer: Callable[[TransformerConfig, int, int], Any]) -> str | None:
    """Look at what each model changes: what is one change is up to the configuration."""
    for base, heads, width in DESIGNS:
        given = answer(base, heads, width)
        if not isinstance(given, list | tuple) or not all(isinstance(one, TransformerConfig) for one in given):
            return "give a list of TransformerConfig, such as dataclasses.replace makes from base."
        if len(given) != 4:
            return f"you gave {len(given)} configurations; the study has four: base, each cause alone, both."
        expected = [heads_of(one) for one in two_causes(base, heads, width)]
        for name, config, wanted in zip(NAMES, given, expected, strict=True):
            found = heads_of(config)
            if replace(config, heads=base.heads, d_k=base.d_k, d_v=base.d_v) != base:
                return f"{name} changes more than its heads and their width."
            if found == wanted:
                continue
            if found == (wanted[0], *(base.d_model // heads,) * 2) and config.d_k is None:
                return f"{name} has heads of width {found[1]}: without d_k and d_v they get d_model / heads. Give both."
            if found[:2] == wanted[:2]:
                return f"{name} has the right keys, but values of width {found[2]}, not {wanted[2]}: mind d_v."
            if found[::2] == wanted[::2]:
                return f"{name} has the right values, but keys of width {found[1]}, not {wanted[1]}: mind d_k."
            if found in expected:
                return f"{name} is not in its place: the order is base, number alone, width alone, both."
            return f"{name} has {found[0]} heads with (d_k, d_v) = {found[1:]}, not {wanted[0]} with {wanted[1:]}."
    return None


def design(place: int, **changes: Any) -> Any:
    """The right design with changes in one of its models."""
    return lambda *given: [replace(one, **changes) if i == place else one for i, one in enumerate(two_causes(*given))]


EXERCISES["12.6"] = Exercise(
    "Design an ablation",
    right=two_causes,
    cases={},
    examine=examine_causes,
    caught={
        "give a list of TransformerConfig": lambda *given: list(given),
        "you gave 3 configurations; the study has four": lambda *given: two_causes(*given)[1:],
        "is not in its place": lambda *given: [two_causes(*given)[i] for i in (0, 2, 1, 3)],
        "base changes more than its heads": design(0, dropout=0.2),
        "number of heads has heads of width 8: without d_k and d_v they get": design(1, d_k=None, d_v=None),
        "heads of another width has the right keys, but values of width 32, not 8": design(2, d_v=None),
        "the one with both has the right values, but keys of width 7, not 8": design(3, d_k=7),
        "the one with both has 3 heads": design(3, heads=3),
    },
)
