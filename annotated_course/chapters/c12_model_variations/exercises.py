"""The exercises of chapter 12, model variations."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil, sqrt
from statistics import mean
from typing import Any

import torch

from annotated.config import TransformerConfig
from annotated_course.exercises.exercise import Exercise, Run, WrongFormError, called, calls, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["12.1"] = on_paper(
    "A standard error by hand",
    [3.0, sqrt(12 / 5), sqrt(12 / 5 * 7 / 12)],  # the change, the deviation of a run, the change's standard error
    {
        "the change is row minus base: here positive.": (0, -3.0),
        "each row loses one run for its mean: divide 2 + 10 by 2 + 3, not by 3 + 4.": (1, sqrt(12 / 7)),
        "a row counts by its runs less one: pool the squares, not the variances.": (1, sqrt((2 / 2 + 10 / 3) / 2)),
        "this is still a variance: take the root.": (1, 12 / 5),
        "both means are uncertain: 1/3 + 1/4, not the row's 1/4 alone.": (2, sqrt(12 / 5 / 4)),
    },
    tolerance=0.006,
)


def per_word(parts: list[tuple[int, int, float]]) -> float:
    """One perplexity per word from the tokens, the words and the perplexity per token of several parts."""
    t, w, perplexities = torch.tensor(parts, dtype=torch.float64).T
    n = perplexities.log()
    return float((t @ n / w.sum()).exp())


PARTS = [[(30, 20, 4.0)], [(10, 10, 5.0)], [(100, 60, 8.0), (40, 40, 3.0), (90, 30, 6.0)], [(7, 2, 2.0), (50, 40, 9.0)]]
EXERCISES["12.2"] = Exercise(
    "Per token, per word",
    right=per_word,
    cases={f"parts {parts}: ": calls(parts) for parts in PARTS},
    mistakes={
        "this is the loss per word; the perplexity is e to it.": ".exp() →",
        "this is per token: share the whole loss out over the words.": "w.sum → t.sum",
        "perplexities have no mean: add up their losses.": ("(t @ n / w.sum()).exp() → (n * t / w).exp().mean()"),
        "a part's loss counts once for each of its tokens, not of its words.": "t @ n → w @ n",
    },
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


def widths(base: TransformerConfig, heads: int, width: int) -> Run:
    """Make a case of what each model's heads are: how they are written is up to the configuration."""

    def run(answer: Any) -> list[tuple[int, int, int]]:
        study = answer(base, heads, width)
        for place, config in enumerate(study):
            if replace(config, heads=base.heads, d_k=base.d_k, d_v=base.d_v) != base:
                raise WrongFormError(f"model {place}, counted from 0, changes more than its heads and their width.")
        return [heads_of(config) for config in study]

    return run


def design(place: int, **changes: Any) -> Any:
    """The right study with changes in one of its models."""
    return lambda *given: [replace(one, **changes) if i == place else one for i, one in enumerate(two_causes(*given))]


SMALL = TransformerConfig(100, d_model=128, d_ff=512, heads=4, layers=3)
DESIGNS = [(SMALL, 16, 8), (replace(SMALL, d_k=16, dropout=0.3), 8, 4), (replace(SMALL, heads=8, d_k=8, d_v=24), 2, 64)]
EXERCISES["12.3"] = Exercise(
    "Design an ablation",
    right=two_causes,
    cases={
        f"heads, d_k, d_v = {heads_of(base)}, then {heads} heads, width {width}: ": widths(base, heads, width)
        for base, heads, width in DESIGNS
    },
    mistakes={
        "without d_k and d_v, other heads get another width: give both.": design(1, d_k=None, d_v=None),
        "values have a width, too: mind d_v.": design(2, d_v=None),
        "the order is base, number, width, both.": lambda *given: [two_causes(*given)[i] for i in (0, 2, 1, 3)],
    },
    caught={"model 0, counted from 0, changes": design(0, dropout=0.2), "(each a Transf": lambda *given: list(given)},
)


def cheapest(rows: int, ratio: float) -> tuple[int, int]:
    """The runs of base and of each other row with the smallest total, and of these with the smallest error."""
    room = (ratio / 3) ** 2 + 1e-9  # 1/b + 1/n may be no larger
    pairs = [(ceil(1 / (room - 1 / n) - 1e-9), n) for n in range(1, 1000) if 1 / n < room]
    return min(pairs, key=lambda pair: (pair[0] + rows * pair[1], 1 / pair[0] + 1 / pair[1]))


SPENT = [(14, 1.0), (14, 1.5), (1, 1.0), (4, 2.0), (30, 1.2), (9, 0.7), (4, 4.5)]
EXERCISES["12.4"] = Exercise(
    "Where to spend the runs",
    right=cheapest,
    cases=called("{} rows, an effect of {} s: ", *SPENT),
    mistakes={
        "base needs more runs than another row: they cost less.": lambda rows, ratio: [ceil(18 / ratio**2 - 1e-9)] * 2,
        "base's mean is uncertain as well: 1/b + 1/n.": lambda rows, ratio: [1, ceil(9 / ratio**2 - 1e-9)],
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


DEALS = [([40.0, 41.0, 42.0], [43.0, 44.0, 46.0]), ([40.0, 41.0, 42.5], [41.5, 43.0, 40.5, 44.0])]
DEALS += [([43.0, 40.0], [39.0, 38.5, 41.0]), ([1.0, 2.0, 4.0], [3.0, 1.5, 2.5])]
EXERCISES["12.5"] = Exercise(
    "Deal the runs again",
    right=shuffled_share,
    cases=called("{} against {}: ", *DEALS),
    mistakes={
        "that counts changes in one direction only; a test for any difference takes absolute values.": "abs( → (",
        "a deal as extreme as the one that happened counts too: ≥, not >.": ">= → >; - 1e-9 → + 1e-9",
        "the deal that happened is one of the possible ones: count it as well.": "sum(extreme) → sum(extreme[:-1])",
        "compare the means: the rows may have different numbers of runs, and sums do not know that.": "mean( → sum(",
    },
)
