"""The exercises of chapter 12, model variations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil, sqrt
from statistics import mean, variance
from typing import Any

import torch
from torch import Tensor

from annotated.config import TransformerConfig
from annotated_course.exercises.exercise import Exercise, as_numbers, calls, each, is_same

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


def per_word(parts: list[tuple[int, int, float]]) -> float:
    """One perplexity per word from the tokens, the words and the perplexity per token of several parts."""
    t, w, perplexities = torch.tensor(parts, dtype=torch.float64).T
    n = perplexities.log()
    return float((t @ n / w.sum()).exp())


PARTS = [[(30, 20, 4.0)], [(10, 10, 5.0)], [(100, 60, 8.0), (40, 40, 3.0), (90, 30, 6.0)], [(7, 2, 2.0), (50, 40, 9.0)]]
RULE = "(t @ n / w.sum()).exp()"
WRONG_RULES = {
    "this is the loss per word; the perplexity is e to it.": ".exp() →",
    "this is per token: share the whole loss out over the words.": "w.sum → t.sum",
    "the perplexity does not grow in proportion to the tokens per word: the loss does.": (
        f"{RULE} → (t @ n / t.sum()).exp() * t.sum() / w.sum()"
    ),
    "the ratio is upside down: a word has more tokens, so its loss is larger.": (
        "/ w.sum() → / t.sum() * w.sum() / t.sum()"
    ),
    "you averaged the parts' perplexities; add up their losses.": f"{RULE} → w @ (n * t / w).exp() / w.sum()",
    "the parts are not equally long, and perplexities are no sums: add up their losses.": (
        f"{RULE} → (n * t / w).exp().mean()"
    ),
    "the parts are not equally long: a part counts by its tokens.": "t @ n → n.mean() * t.sum()",
    "a part's loss counts once for each of its tokens, not of its words.": "t @ n → w @ n",
}
EXERCISES["12.2"] = Exercise(
    "Per token, per word",
    right=per_word,
    cases={f"parts {parts}: ": calls(parts) for parts in PARTS},
    mistakes=WRONG_RULES,
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


EXERCISES["12.3"] = Exercise(
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


def shuffled_share(base: Sequence[float], row: Sequence[float]) -> float:
    """The share of all ways to deal the runs that are at least as extreme as the last one, which happened."""
    pot, changes = [*base, *row], []
    for places in combinations(range(len(pot)), len(row)):
        others = [run for i, run in enumerate(pot) if i not in places]
        changes.append(mean([pot[i] for i in places]) - mean(others))
    extreme = [abs(change) >= abs(changes[-1]) - 1e-9 for change in changes]
    return sum(extreme) / len(changes)


WRONG_SHARES = {
    "that counts changes in one direction only; a test for any difference takes absolute values.": "abs( → (",
    "a deal as extreme as the one that happened counts too: ≥, not >.": ">= → >; - 1e-9 → + 1e-9",
    "the deal that happened is one of the possible ones: count it as well.": "sum(extreme) → sum(extreme[:-1])",
    "compare the means: the rows may have different numbers of runs, and sums do not know that.": "mean( → sum(",
}
DEALS = [([40.0, 41.0, 42.0], [43.0, 44.0, 46.0]), ([40.0, 41.0, 42.5], [41.5, 43.0, 40.5, 44.0])]
DEALS += [([43.0, 40.0], [39.0, 38.5, 41.0]), ([1.0, 2.0, 4.0], [3.0, 1.5, 2.5])]
EXERCISES["12.5"] = Exercise(
    "Deal the runs again",
    right=shuffled_share,
    cases={f"{base} against {row}: ": calls(base, row) for base, row in DEALS},
    mistakes=WRONG_SHARES,
)
