"""The exercises of chapter 15, generation."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.exercise import AnyOf, Exercise, Run, WrongFormError, calls, in_32_bits, on_paper, parts

EXERCISES: dict[str, Exercise] = {}
LN_2 = math.log(2)
EXERCISES["15.1"] = on_paper(
    "Bits, nats, perplexity",
    [1.5, 1.5 * LN_2, 2**2.5, 1.25],
    {
        "these are nats; bits are logarithms to the base 2.": AnyOf((0, 1.5 * LN_2), (3, 1.25 * LN_2)),
        "eight characters, not seven: the probability 1 costs 0 bits, but is a character.": (0, 12 / 7),
        "these are bits; times ln 2 they are nats.": (1, 1.5),
        "2 to the power of the bits, or e to the power of the nats; do not mix them.": (2, math.exp(2.5)),
        "these are the bits per token; the text has eight characters.": (3, 2.5),
    },
    tolerance=3e-3,
)


def min_p(logits: Tensor, temperature: float, share: float) -> Tensor:
    """The cut by a share of the likeliest; where the two are equal but for rounding, a token stays."""
    p = (logits.double() / temperature).softmax(dim=-1)
    least = share * p.amax(dim=-1, keepdim=True) * (1 - 1e-9)
    kept = p.where(p >= least, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def probabilities(*given: Any) -> Run:
    """Make a case of probabilities, which may come in 64 bits."""
    return lambda answer: in_32_bits(answer(*given))


ROWS = 1.2 * torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(3))
TIES = torch.tensor([[1.0, 3, 3, 0, 3, 1], [0, 0, 0, 0, 0, 0]])
EXERCISES["15.2"] = Exercise(
    "A share of the likeliest",
    right=min_p,
    cases={
        "": probabilities(ROWS, 1.0, 0.2),
        "with temperature 2: ": probabilities(ROWS, 2.0, 0.3),
        "with temperature ½: ": probabilities(ROWS, 0.5, 0.05),
        "with forbidden tokens: ": probabilities(ROWS.masked_fill(torch.arange(7) == 2, -math.inf), 1.0, 0.1),
        "share 1, where several are equally likely: ": probabilities(TIES, 1.0, 1.0),
        "with logits around 1000: ": probabilities(ROWS + 1000, 1.0, 0.2),
    },
    mistakes={
        "at least share times the largest: a token that has exactly so much stays.": "* (1 - 1e-9) →; >= → >",
        "what is left must be made to sum to 1 again.": "return kept / kept.sum(dim=-1, keepdim=True) → return kept",
        "logits are divided by the temperature, not multiplied.": "/ temperature → * temperature",
        "each row has a likeliest token of its own.": "p.amax(dim=-1, keepdim=True) → p.amax()",
    },
)


Predict = Callable[[Tensor], Tensor]


def reader(window: int) -> Predict:
    """A model that predicts from all that it is given: what a window cuts off changes what it says."""
    vectors = torch.randn(11, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def predict(ids: Tensor) -> Tensor:
        if ids.dim() != 1:
            raise ValueError(f"predict takes the tokens of one window, (length,); got shape {tuple(ids.shape)}.")
        if not 0 < len(ids) <= window:
            raise ValueError(f"predict was given {len(ids)} tokens; it reads 1 to {window}.")
        return vectors[ids].cumsum(dim=0).log_softmax(dim=-1)

    return predict


def overlapping_loss(predict: Predict, ids: Tensor, window: int) -> float:
    """The mean over all tokens but the first, with windows that overlap by half."""
    half, read, nats = window // 2, len(ids) - 1, []
    for start in range(0, max(read - half, 1), half):
        end = min(start + window, read)
        log_p = predict(ids[start:end]).gather(1, ids[start + 1 : end + 1, None])[:, 0]
        nats.append(-log_p[half if start else 0 :])
    return float(torch.cat(nats).mean())


def a_text(length: int) -> Tensor:
    """Draw the ids of a text."""
    return torch.randint(11, (length,), generator=torch.Generator().manual_seed(length))


SIZES = ((30, 8), (9, 8), (6, 8), (2, 8), (13, 8), (14, 8), (21, 4), (10, 2))
EXERCISES["15.3"] = Exercise(
    "No token without a past",
    right=overlapping_loss,
    cases={f"{n} tokens, window {window}: ": calls(reader(window), a_text(n), window) for n, window in SIZES},
    mistakes={
        "windows overlap: each begins half a window later.": "half, 1), half → 0, 1), window; half if start else 0 → 0",
        "from the second window on, only the second half counts.": "half if start else 0 → 0",
        "of the first window, too, only the second half counts: the first predictions are lost.": "if start else 0 →",
        "divide by the number of predicted tokens; the first is not predicted.": "mean()) → sum() / len(ids))",
    },
)


def speculative(target: Tensor, draft: Tensor) -> tuple[Tensor, Tensor]:
    """How likely each drafted token is kept, and what is drawn from if it is not."""
    keep = torch.where(draft > 0, target / draft, 1.0).clamp(max=1)
    missing = (target - draft).clamp(min=0)
    total = missing.sum(dim=-1, keepdim=True)
    rest = torch.where(total > 1e-6, missing / total, target)
    return keep, rest


def drafts(target: Tensor, draft: Tensor) -> Run:
    """Make a case in which any number will do where nothing is drafted, any distribution where nothing is missing."""
    agree = (target - draft).clamp(min=0).sum(dim=-1, keepdim=True) <= 1e-6

    def run(answer: Any) -> Any:
        results = answer(target, draft)
        shapes = [getattr(result, "shape", None) for result in results] if isinstance(results, tuple | list) else []
        if shapes != [target.shape] * 2:
            return results
        keep, rest = map(in_32_bits, results)
        even = ((rest.sum(dim=-1, keepdim=True) - 1).abs() < 1e-4) & (rest > -1e-6).all(dim=-1, keepdim=True)
        return keep.masked_fill(draft == 0, 0.0), rest.masked_fill(agree & even, 0.0)

    return run


LOGITS = 1.5 * torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
TARGET, DRAFT = LOGITS.softmax(dim=-1)
MODELS = {
    "": (TARGET, DRAFT),
    "on paper's example: ": (torch.tensor([[0.75, 0.25]]), torch.tensor([[0.5, 0.5]])),
    "one row alone, (vocab): ": (TARGET[0], DRAFT[0]),
    "with probabilities of 0: ": tuple(
        LOGITS[model].masked_fill(torch.arange(6) == token, -math.inf).softmax(-1) for model, token in ((0, 1), (1, 4))
    ),
    "where the two share no token: ": (torch.tensor([[0.5, 0.5, 0, 0]]), torch.tensor([[0, 0, 0.5, 0.5]])),
    "where the models agree in one row: ": (TARGET, DRAFT.where(torch.arange(4)[:, None] > 0, TARGET)),
}
EXERCISES["15.4"] = Exercise(
    "A small model writes, a large one agrees",
    right=speculative,
    cases={
        remark: run
        for place, models in MODELS.items()
        for remark, run in parts(drafts(*models), "keep", "rest", place=place).items()
    },
    mistakes={
        "above 1 no probability may be: min(1, target / draft).": ".clamp(max=1) →",
        "this is target: divide by draft.": "return keep → return target",
        "what is missing must be made to sum to 1.": "missing / total → missing",
        "this is target itself: draw only what is missing.": "return keep, rest → return keep, target",
    },
)


Counts = Callable[[list[int]], list[int]]


def interval_of(ids: list[int], counts: Counts) -> tuple[Fraction, Fraction]:
    """Where a text's interval begins, and how wide it is."""
    low, width = Fraction(0), Fraction(1)
    for i, token in enumerate(ids):
        shares = counts(ids[:i])
        low += width * sum(shares[:token]) / sum(shares)
        width *= Fraction(shares[token], sum(shares))
    return low, width


def fewest_bits(width: Fraction) -> int:
    """The smallest n with 2⁻ⁿ ≤ width: so many bits hold a number of every interval of this width."""
    return (math.ceil(1 / width) - 1).bit_length()


def binary(number: int, n: int) -> str:
    """Write a number in n bits."""
    return format(number, f"0{n}b") if n else ""


class Coder:
    """Encodes a text as the first number in its interval, and decodes by where a number lies."""

    def encode(self, ids: list[int], counts: Counts) -> Any:
        """Write the bits of a text."""
        low, width = interval_of(ids, counts)
        n = fewest_bits(width)
        return binary(math.ceil(low * 2**n), n)

    def decode(self, bits: str, length: int, counts: Counts) -> Any:
        """Read so many tokens."""
        place, ids = Fraction(int(bits or "0", 2), 2 ** len(bits)), list[int]()
        for _ in range(length):
            shares = counts(list(ids))
            place *= sum(shares)
            token = next(token for token in range(len(shares)) if place < sum(shares[: token + 1]))
            place = (place - sum(shares[:token])) / shares[token]
            ids.append(token)
        return ids


def counting(*first: int, grows: bool = False) -> Counts:
    """Counts that may grow with the text: each token that has come counts one more, and the last one another three."""

    def counts(before: list[int]) -> list[int]:
        extra = [*before, *before[-1:] * 3] if grows else []
        return [count + extra.count(token) for token, count in enumerate(first)]

    return counts


def coding(ids: list[int], counts: Counts) -> dict[str, Run]:
    """Make the cases of a text: where its code lies, and what the numbers at both ends of its interval are read as."""
    low, width = interval_of(ids, counts)
    n = fewest_bits(width) + 20

    def encode(answer: Any) -> str:
        bits = answer().encode(list(ids), counts)
        if not isinstance(bits, str) or set(bits) - {"0", "1"}:
            raise WrongFormError(f"encode returns a string of 0 and 1; got {bits!r:.60}.")
        number = Fraction(int(bits or "0", 2), 2 ** len(bits))
        if not low <= number < low + width:
            return f"{float(number):.6g}, {'below' if number < low else 'not below the end of'} the text's interval"
        few = Fraction(2) ** (len(bits) - 2) * width <= 1  # at most −log₂ p + 2, without rounding
        return f"a number in the text's interval, in {'few enough' if few else len(bits)} bits"

    def decode(answer: Any, bits: str) -> Any:
        tokens = answer().decode(bits, len(ids), counts)  # a new coder: the receiver has nothing but the bits
        return tokens.tolist() if isinstance(tokens, Tensor) else tokens

    return {
        "encode: ": encode,
        "decode, given encode's own bits: ": lambda answer: decode(answer, answer().encode(list(ids), counts)),
        "decode, given the last number with 20 bits more: ": (
            lambda answer: decode(answer, binary(math.ceil((low + width) * 2**n) - 1, n))
        ),
    }


TEXTS: list[tuple[str, list[int], Counts]] = [
    ("on paper's example: ", [2, 0], counting(1, 1, 2)),
    ("three tokens, the same counts each time: ", [0, 1, 2, 1], counting(1, 1, 2)),
    ("counts that depend on the tokens before: ", [0, 3, 1, 2, 3, 3, 1, 0, 2, 1], counting(1, 2, 1, 3, grows=True)),
    ("where a token has the count 0: ", [2, 0, 2, 2, 0], counting(2, 0, 3, 0)),
    ("a text of 300 tokens: ", (a_text(300) % 5).tolist(), counting(1, 1, 1, 1, 1, grows=True)),
    ("where a token is very likely: ", [0] * 60 + [1] + [0] * 60, counting(999, 1)),
]
EXERCISES["15.5"] = Exercise(
    "A text in as many bits as it has",
    right=Coder,
    cases={remark + what: run for remark, ids, counts in TEXTS for what, run in coding(ids, counts).items()},
    mistakes={
        "round up to the next multiple of 2⁻ⁿ, not down.": "math.ceil → math.floor",
        "ask counts for each token, with the tokens before it.": "counts(list(ids)) → counts([])",
        "a float takes part, and has 53 bits: use whole numbers or Fraction.": "low * → float(low) *",
        "the beginning of a token's part belongs to it, the end does not.": "place < sum → place <= sum",
    },
)
