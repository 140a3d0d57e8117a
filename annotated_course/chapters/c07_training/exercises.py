"""The exercises of chapter 07, training."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated.training import noam_rate
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, draw, keeping, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["07.1"] = on_paper(
    "The schedule read backwards",
    [50.0, 400.0, 32_000.0, 2**-1.5],
    {
        "the earlier update comes first.": AnyOf((0, 400.0), (1, 50.0)),
        "on the way up the rate is proportional to the update: half the peak is half the way.": (0, 25.0),
        "the rate falls with the square root: half of it takes four times as many updates.": (1, 200.0),
        "the peak is (d_model · warmup)^−0.5: the product must be the base model's, 512 · 4,000.": (2, 500.0),
        "the wrong way round: the longer the warm-up, the slower the rise.": (3, 2**1.5),
    },
    tolerance=0.005,
)


def smoothed(logits: Tensor, target: Tensor, e: float, pad_id: int) -> Tensor:
    """The mean cross-entropy with a smoothed target, of which the right token gets exactly 1 − ε."""
    v, counts = logits.size(-1), target != pad_id
    real = (torch.arange(v) != pad_id).float()
    sharp = F.one_hot(target, v).float()
    wrong = real * (1 - sharp)
    q = (1 - e) * sharp + e / (v - 2) * wrong
    losses = -(q * logits.log_softmax(-1)).sum(-1)
    return losses[counts].mean()


OTHER_LOSSES = {
    "this is the loss without smoothing.": "* sharp + e / (v - 2) * wrong → * sharp / (1 - e)",
    "this is section 3's convention: here the right token keeps 1 − ε.": "e / (v - 2) * wrong → e / (v - 1) * real",
    "this is PyTorch's convention; ε goes to all but padding and the right token.": "e / (v - 2) * wrong → e / v",
    "padding still gets its share of ε.": "/ (v - 2) * wrong → / (v - 1) * (1 - sharp)",
    "the positions whose answer is padding still count.": "losses[counts] → losses",
}
LOGITS = draw(3, 5, 7)
TARGET = torch.tensor([[1, 6, 2, 5, 5], [3, 1, 4, 5, 5], [6, 2, 5, 5, 5]])
LOSSES = {"": calls(LOGITS, TARGET, 0.3, 5), "with large logits: ": calls(300 * LOGITS, TARGET, 0.3, 5)}
EXERCISES["07.2"] = Exercise("The other convention", smoothed, LOSSES, OTHER_LOSSES, "cross_entropy: write q yourself.")


def merges(counts: Mapping[str, int], limit: int) -> list[tuple[str, str]]:
    """Byte-pair merges."""
    words = [(list(word), count) for word, count in counts.items()]
    learned: list[tuple[str, str]] = []
    while len(learned) < limit:
        pairs = Counter(pair for parts, count in words for pair in pairwise(parts) for _ in range(count))
        if not pairs:
            break
        learned.append(min(pairs, key=lambda pair: (-pairs[pair], pair)))
        words = [(joined(parts, learned[-1]), count) for parts, count in words]
    return learned


def joined(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair wherever it stands; where it overlaps itself, once."""
    result, i = [], 0
    while i < len(parts):
        found = tuple(parts[i : i + 2]) == pair
        result.append("".join(pair) if found else parts[i])
        i += 2 if found else 1
    return result


MERGES = {
    "each word is counted once; a pair counts as often as its word occurs.": "(list(word), count) → (list(word), 1)",
    "pairs are counted across the end of a word; a merge stays inside a word.": (
        "[(list(word), count) for word, count in counts.items()] → [([*''.join(w * n for w, n in counts.items())], 1)]"
    ),
    "a draw must go to the pair that comes first alphabetically.": "min(pairs → max(pairs; (-pairs → (pairs",
}
WORDS: list[tuple[dict[str, int], int]] = [
    ({"Haus": 6, "Bau": 5, "Maus": 4, "Hausmaus": 2, "Fledermaus": 1}, 5),
    ({"aaaa": 3, "aaab": 2, "ba": 4}, 5),
    ({"das": 3, "dass": 5, "nass": 2, "dann": 1, "wann": 1, "kann": 1}, 5),
    ({"cababa": 2, "cbcaba": 6, "bcbab": 5, "baaab": 5, "bba": 3}, 8),  # here "a b" is not always the pieces a, b
]
EXERCISES["07.3"] = Exercise(
    "Learn the merges",
    right=merges,
    cases={f"for the counts {counts}, {limit} merges asked: ": calls(counts, limit) for counts, limit in WORDS}
    | {"stop when no pair is left: {'ab': 1} allows one merge, however many are asked: ": calls({"ab": 1}, 3)},
    mistakes=MERGES,
)


def smallest_budget(lengths: Sequence[int], limit: int) -> int:
    """Find the smallest budget that needs no more batches than allowed.

    Sentences sorted by length, each batch filled as long as the next one fits: no other grouping needs fewer batches.
    Neighbours in length may always stand together, and what fits still does after a sentence is left out.
    """
    budget = max(lengths) - 1
    batches = limit + 1
    while batches > limit:
        budget += 1
        batches, rows = 0, [0]
        for length in sorted(lengths):
            rows.append(length)
            if not batches or len(rows) * max(rows) > budget:
                batches, rows = batches + 1, [length]
    return budget


LENGTHS = [([4, 12, 5, 11], 2), ([3, 12, 4, 11, 3, 5, 9, 3], 3), ([3, 20, 5], 3), ([7], 1)]
MANY = torch.randint(3, 21, (97,), generator=torch.Generator().manual_seed(0)).tolist()
EXERCISES["07.4"] = Exercise(
    "The smallest budget",
    right=smallest_budget,
    cases={f"for lengths {lengths} and at most {limit} batches: ": calls(lengths, limit) for lengths, limit in LENGTHS}
    | {f"for 97 sentences and at most {limit} batches: ": calls(MANY, limit) for limit in (1, 4, 12, 31, 97, 200)},
    mistakes={
        "that is for the sentences as they come; group those of similar length.": "sorted(lengths) → lengths",
        "you counted without the padding: a batch takes rows × longest row.": "len(rows) * max(rows) → sum(rows)",
        "a batch may take exactly the budget: one place less will do.": "> budget → >= budget",
        "tokens / limit leaves no place for padding.": lambda ns, limit: max(*ns, 1, math.ceil(sum(ns) / limit)),
    },
)


def adam(weight: Tensor, gradients: list[Tensor], rates: list[float], betas: Any, eps: float) -> Tensor:
    """The weight after Adam's updates."""
    b1, b2 = betas
    m = v = torch.zeros_like(weight)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        m_hat = m / (1 - b1**t)
        v_hat = v / (1 - b2**t)
        weight = weight - rate * m_hat / (v_hat.sqrt() + eps)
    return weight


GRADIENTS = draw(6, 3, 5)
SIZES = (1.0, 0.2, 3.0, 0.02, 0.5, 0.1)
RATES = [0.1, 0.2, 0.3, 0.2, 0.15, 0.1]
UPDATES = (torch.ones(3, 5), [size * g for size, g in zip(SIZES, GRADIENTS, strict=True)], RATES, (0.8, 0.95), 0.05)
EXERCISES["07.5"] = Exercise(
    "Adam from scratch",
    right=adam,
    cases={"": keeping(*UPDATES)},
    mistakes={
        "the correction of m and v is missing: divide them by 1 − β^t.": "/ (1 - b1**t) →; / (1 - b2**t) →",
        "ε stands outside the root: √v̂ + ε.": "(v_hat.sqrt() + eps) → (v_hat + eps).sqrt()",
        "divide by the root of v̂, not by v̂.": "v_hat.sqrt() → v_hat",
        "t counts from 1: the first update divides by 1 − β, not by 1 − β².": "start=1 → start=2",
    },
    forbids="torch.optim: write section 5's three formulas.",
    caught={"your function changed argument 0": "weight = weight - rate → weight -= rate"},
    copies=False,
)


RATE_FAULTS = ("right", "late", "from 0", "per part", "restarted", "factor")


def logged_rates(
    fault: str, d_model: int, warmup: int, updates: int, *, parts: int = 2, restart: int = 0, factor: float = 0.7
) -> list[float]:
    """Log the rate of each update of a run with one of `RATE_FAULTS`.

    An update may have several `parts`, at each of which the step is counted; the step may begin anew at update
    `restart`, counted from 1 and by default a little past the middle; or a `factor` is on all rates.
    """
    restart = restart or updates * 7 // 12

    def rate(step: int) -> float:
        if step == 1 and fault in ("late", "from 0"):
            return 1e-3 if fault == "late" else 0.0
        resumed = step if step < restart else step - restart + 1
        counted = {"late": step - 1, "from 0": step - 1, "per part": parts * step, "restarted": resumed}
        return (factor if fault == "factor" else 1.0) * noam_rate(counted.get(fault, step), d_model, warmup)

    return [rate(step) for step in range(1, updates + 1)]


def named(rates: Sequence[float], d_model: int, warmup: int) -> str:
    """Name what happened to a schedule, by the ratios of its rates to the right ones."""
    ratios = [rate / noam_rate(step, d_model, warmup) for step, rate in enumerate(rates, start=1)]
    if all(math.isclose(ratio, ratios[0]) for ratio in ratios):
        return "right" if math.isclose(ratios[0], 1) else "factor"
    if rates[0] in (0, 1e-3):
        return "late" if rates[0] else "from 0"
    return "restarted" if math.isclose(ratios[0], 1) else "per part"


LOGS: list[tuple[str, dict[str, Any]]] = [
    *((fault, {}) for fault in RATE_FAULTS),
    *(("per part", {"parts": parts}) for parts in (3, 8)),
    *(("restarted", {"restart": restart}) for restart in (2, 5, 40, 120)),
    *(("factor", {"factor": factor}) for factor in (0.5, 2.0, 2**-0.5, 1.01)),
]
EXERCISES["07.6"] = Exercise(
    "Six curves of the rate",
    right=named,
    cases={
        f"a log of the kind {fault!r}{options or ''}, warm-up {warmup} (look at the ratio to the right rates): ": calls(
            logged_rates(fault, d_model, warmup, updates, **options), d_model, warmup
        )
        for d_model, warmup, updates in ((64, 20, 120), (512, 30, 150))
        for fault, options in LOGS
    },
    caught={
        "warm-up 20 (look at the ratio to the right rates): 'from 0', expected 'late'": '"late" if → "from 0" if',
        "'right', expected 'late'": lambda *log: "right",
    },
)
