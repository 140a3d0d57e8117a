"""The exercises of chapter 22, scale."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.attention import attention_weights
from annotated.masking import causal_mask
from annotated.models.relative_positions import rotate
from annotated_course.exercises.exercise import AnyOf, Exercise, Run, WrongFormError, calls, on_paper

EXERCISES: dict[str, Exercise] = {}
EXPONENT = math.log(2.5) / math.log(8)
EXERCISES["22.1"] = on_paper(
    "Three points, one curve",
    [2.22, 2.3 - 0.2 * 0.4 / 0.6, EXPONENT, 2.3**2 / 2.5],
    {
        "the drops 0.5 and 0.2 shrink; the next one isn't 0.2 again.": (0, 2.1),
        "a drop is what the loss loses: subtract it.": (0, 2.38),
        "that is one step further; all the later steps take more: 0.08 + 0.032 + …": (1, 2.22),
        "the drops still to come begin with 0.08, the next one.": AnyOf((1, 2.3 - 0.2 / 0.6), (1, 2.22 - 0.08 / 0.6)),
        "0.4 is 8 to the power of −a, not a.": AnyOf((2, 0.4), (2, 0.6)),
        "a loss that falls has a positive exponent, with the minus written before it.": (2, -EXPONENT),
        "the sizes grow by a factor of 8, not of e.": (2, math.log(2.5)),
        "a straight line through logarithms has equal ratios, not equal differences.": (3, 2.1),
    },
    names=["the loss at 512 million", "E", "a", "what a straight line says"],
    tolerance=2e-3,
)


def best_split(budget: float, A: float, a: float, B: float, b: float) -> tuple[float, float]:
    """Where one per cent more parameters, paid with one per cent less text, gains nothing more."""
    ratio = (a * A / (b * B)) ** (1 / (a + b))
    size = ratio * (budget / 6) ** (b / (a + b))
    return size, budget / 6 / size


EXERCISES["22.2"] = Exercise(
    "A budget, split",
    right=best_split,
    cases={
        "": calls(6e6, 2.0, 0.5, 2.0, 0.5),
        "where the two terms differ in their exponents: ": calls(6e9, 3.0, 0.3, 3.0, 0.6),
        "where they differ in their factors: ": calls(3e8, 8.0, 0.4, 2.0, 0.4),
        "Chinchilla's budget: ": calls(5.76e23, 482.01, 0.3478, 2085.43, 0.3658),
    },
    mistakes={
        "a training costs 6 operations for each parameter and token; you took one.": "budget / 6 → budget",
        "the exponents are swapped: a small a wants N to grow faster.": "b / (a + b) → a / (a + b)",
        "half of the exponents each is right only where a = b.": "b / (a + b) → 0.5",
        "the *slopes* balance, a·A·N^−a = b·B·D^−b; you balanced the terms themselves.": "a * A / (b * B) → A / B",
        "first the parameters, then the tokens.": "return size, budget / 6 / size → return budget / 6 / size, size",
        "the ratio is upside down: a large A asks for a large model.": "a * A / (b * B) → b * B / (a * A)",
    },
    tolerance=1e-3,
)

EXERCISES["22.3"] = on_paper(
    "Where does it look, and what does it cost?",
    [3.0, (1 / 5 + 1 / 6 + 1 / 7) / 3, 5.0, math.log(630)],
    {
        "that is where the symbol stood; the head looks at what came after it.": (0, 2.0),
        "from place 4 on, a place shares its attention among itself and all before it: 5, 6 and 7.": AnyOf(
            (1, (1 / 4 + 1 / 5 + 1 / 6) / 3), (1, 1 / 7), (1, 3 / 7)
        ),
        "the right answer stands 24 places back, not 25: one after the same symbol.": AnyOf((2, 6.0), (2, 4.0)),
        "the other 63 symbols share 0.1.": AnyOf((3, math.log(640)), (3, math.log(10)), (3, math.log(64))),
        "a loss is −ln p, and p is below 1.": (3, -math.log(630)),
    },
    tolerance=2e-3,
)


def prefix_matching(weights: Tensor, ids: Tensor) -> Tensor:
    """The mean weight on what came after the same symbol."""
    same = ids[:, :, None] == ids[:, None, :]
    due = F.pad(same, (1, 0))[:, :, :-1]
    right = due.tril()
    again = same.tril(-1).any(dim=-1)
    return (weights * right).sum(dim=-1)[again].mean()


def attending(texts: int, length: int, symbols: int, ahead: bool = False) -> Run:
    """Make a case of random weights, causal or not, on random texts."""
    dice = torch.Generator().manual_seed(length)
    ids = torch.randint(symbols, (texts, length), generator=dice)
    scores = 2 * torch.randn(texts, length, length, generator=dice)
    mask = torch.ones_like(scores, dtype=torch.bool) if ahead else causal_mask(length)
    return calls(scores.masked_fill(~mask, -math.inf).softmax(dim=-1), ids)


EXERCISES["22.4"] = Exercise(
    "The score of any text",
    right=prefix_matching,
    cases={
        "": attending(3, 12, 5),
        "one text, in which symbols stand beside themselves: ": attending(1, 9, 2),
        "texts with few repeats: ": attending(4, 10, 40),
        "a head that looks ahead, too: ": attending(2, 11, 4, ahead=True),
    },
    mistakes={
        "these are the places of the same symbol; what came after it stands one further.": "due.tril() → same.tril(-1)",
        "this is what came before the same symbol: shift the other way.": "due.tril() → same.roll(-1, -1).tril()",
        "places whose symbol is new have nothing to look for: leave them out of the mean.": "[again] →",
        "the mean of all texts together, not of the texts' means.": lambda weights, ids: torch.stack(
            [prefix_matching(w[None], i[None]) for w, i in zip(weights, ids, strict=True)]
        ).nanmean(),
        "what lies after a place never counts: keep the lower triangle.": "due.tril() → due",
        "a symbol may stand beside itself: the diagonal of the lower triangle belongs to it.": ".tril() → .tril(-1)",
    },
    forbids="loop: compare all pairs of places at once.",
)


def look_back(d_k: int) -> tuple[Tensor, Tensor]:
    """Turn the key one place further than the query."""
    query = 1000 * torch.ones(d_k, dtype=torch.float64)
    return query, rotate(query[None], start=1)[0]


def looking_back(d_k: int) -> Run:
    """Make a case of where each place looks most, and whether enough."""

    def run(answer: Any) -> list[Any]:
        vectors = answer(d_k)
        if not isinstance(vectors, tuple | list) or [getattr(one, "shape", None) for one in vectors] != [(d_k,)] * 2:
            raise WrongFormError(f"expected a query and a key, both ({d_k},) for d_k = {d_k}", vectors)
        query, key = (rotate(one.double().expand(64, -1)) for one in vectors)
        weights = attention_weights(query, key, causal_mask(64))[1:]
        enough = weights.diagonal().min() >= 0.9
        return [(weights.argmax(dim=-1) - torch.arange(1, 64)).tolist(), "at least 0.9" if enough else "less than 0.9"]

    return run


EXERCISES["22.5"] = Exercise(
    "One place back, by hand",
    right=look_back,
    cases={f"d_k = {d_k}: ": looking_back(d_k) for d_k in (32, 16, 8, 2)},
    mistakes={
        "equal vectors match at their own place: turn the key one further.": "rotate(query[None], start=1)[0] → query",
        "the key is turned the wrong way: it matches one place ahead, which is hidden.": "start=1 → start=-1",
        "the right places, but softmax does not decide: longer vectors.": AnyOf("1000 → 1", "1000 → 3"),
    },
)
