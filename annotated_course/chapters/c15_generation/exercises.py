"""The exercises of chapter 15, generation."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises import exercise
from annotated_course.exercises.exercise import AnyOf, Exercise, Run, calls, each, in_32_bits, resulting

EXERCISES: dict[str, Exercise] = {}

LN_2 = math.log(2)
UNITS = [1.5, 1.5 * LN_2, 2**2.5, 1.25]
WRONG_UNITS = {
    "these are nats; bits are logarithms to the base 2.": (0, 1.5 * LN_2),
    "this is the perplexity; the bits are its logarithm to the base 2.": (0, 2**1.5),
    "eight characters, not seven: the probability 1 costs 0 bits, but it is a character.": (0, 12 / 7),
    "the sign: a probability below 1 costs more than 0 bits, −log₂ p.": (0, -1.5),
    "this is the logarithm of the mean probability; the mean of the logarithms is wanted.": (0, -math.log2(3.375 / 8)),
    "this is the whole text; divide by the number of tokens.": (1, 12 * LN_2),
    "a nat is more than a bit: multiply the bits by ln 2, do not divide.": (1, 1.5 / LN_2),
    "these are bits; times ln 2 they are nats.": (1, 1.5),
    "this is the logarithm to the base 10; nats are natural ones.": (1, 1.5 * math.log10(2)),
    "this is the perplexity per character; the second model has four tokens.": (2, 2**1.25),
    "these are the bits per token; the perplexity is 2 to their power.": (2, 2.5),
    "2 to the power of the bits, or e to the power of the nats; do not mix them.": (2, math.exp(2.5)),
    "this is 2 to the power of all bits; take the mean over the four tokens first.": (2, 1024.0),
    "this is one over the mean of the probabilities; the perplexity has the mean of the logarithms.": (2, 4 / 0.9375),
    "these are the bits per token; the text has eight characters.": (3, 2.5),
    "these are nats; bits are wanted.": (3, 1.25 * LN_2),
}
NAMES = ("first", "second", "third", "fourth")
EXERCISES["15.1"] = Exercise(
    "Bits, nats, perplexity",
    right=UNITS,
    cases={f"the {name} number: ": run for name, run in zip(NAMES, exercise.numbers(4).values(), strict=True)},
    mistakes=each(lambda one: exercise.changed(UNITS, *one), WRONG_UNITS)
    | {"this is the whole text; divide by its eight characters.": AnyOf([12.0, *UNITS[1:]], [*UNITS[:3], 10.0])},
    tolerance=3e-3,
    by_hand=True,
)


def summed(x: Tensor) -> Tensor:
    """Make each row sum to 1."""
    return x / x.sum(dim=-1, keepdim=True)


def min_p(logits: Tensor, temperature: float, share: float) -> Tensor:
    """The cut by a share of the likeliest; where the two are equal but for rounding, a token stays."""
    p = (logits.double() / temperature).softmax(dim=-1)
    least = share * p.amax(dim=-1, keepdim=True) * (1 - 1e-9)
    kept = p.where(p >= least, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


DIVISION = "kept / kept.sum(dim=-1, keepdim=True)"
WRONG_CUTS = {
    "at least share times the largest: a token that has exactly so much stays.": "* (1 - 1e-9) →; >= → >",
    "what is left must be made to sum to 1 again.": f"{DIVISION} → kept",
    "the bound is share times the largest probability, not share itself.": ">= least → >= share",
    "the temperature is missing.": "/ temperature →",
    "logits are divided by the temperature, not multiplied.": "/ temperature → * temperature",
    "first the temperature, then the cut: yours judges the probabilities without it.": (
        "p.amax → logits.double().softmax(dim=-1).amax; p >= → logits.double().softmax(dim=-1) >="
    ),
    "each row has a likeliest token of its own; you compare with the largest of all rows.": (
        "p.amax(dim=-1, keepdim=True) → p.amax()"
    ),
    "a token stays if it has at least share times the largest, not (1 − share) times.": "share * p → (1 - share) * p",
    "divide what is left by its sum; a second softmax bends it.": (
        f"{DIVISION} → p.where(kept > 0, -math.inf).softmax(dim=-1)"
    ),
    "divide what is left by its sum; a second softmax bends it, and gives the cut tokens e⁰.": (
        f"{DIVISION} → kept.softmax(dim=-1)"
    ),
}


def probabilities(*given: Any) -> Run:
    """Make a case of probabilities, which may come in 64 bits."""
    return lambda answer: in_32_bits(answer(*given))


ROWS = 1.2 * torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(3))
FORBIDDEN = ROWS.masked_fill(torch.arange(7) == 2, -math.inf)
TIES = torch.tensor([[1.0, 3, 3, 0, 3, 1], [0, 0, 0, 0, 0, 0]])
CUTS = {
    "": (ROWS, 1.0, 0.2),
    "with temperature 2: ": (ROWS, 2.0, 0.3),
    "with temperature ½: ": (ROWS, 0.5, 0.05),
    "with forbidden tokens: ": (FORBIDDEN, 1.0, 0.1),
    "share 0, with forbidden tokens: ": (FORBIDDEN, 1.0, 0.0),
    "share 1, where several are equally likely: ": (TIES, 1.0, 1.0),
    "with logits around 1000: ": (ROWS + 1000, 1.0, 0.2),
}
EXERCISES["15.2"] = Exercise(
    "A share of the likeliest",
    right=min_p,
    cases={remark: probabilities(*given) for remark, given in CUTS.items()},
    mistakes=WRONG_CUTS,
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


WRONG_LOSSES = {
    "windows that do not overlap: each next one begins half a window later.": (
        "read - half, 1), half → read, 1), window; half if start else 0 → 0"
    ),
    "all predictions of all windows count: from the second window on, only the second half.": (
        "half if start else 0 → 0"
    ),
    "of the first window, too, only the second half counts: the first predictions are lost.": "if start else 0 →",
    "the last, shorter window is missing.": (
        "cat(nats) → cat([one for i, one in enumerate(nats) if not i or len(one) == half])"
    ),
    "the mean over the windows: take it over the tokens, for the windows count for unequally many.": (
        "torch.cat(nats) → torch.stack([one.mean() for one in nats])"
    ),
    "one row too many is left out in each window: its second half has window / 2 predictions.": "half if → half + 1 if",
    "one row too few is left out: some tokens count twice.": "half if → half - 1 if",
    "the windows begin one token apart: half a window is wanted.": (
        "read - half, 1), half → read - window + 1, 1), 1; half if → window - 1 if"
    ),
    "these are bits; nats are natural logarithms.": "mean()) → mean() / LN_2)",
    "the sign: −ln p is above 0.": "-log_p → log_p",
    "predict gives logarithms already; another softmax changes nothing, another logarithm does.": (
        "-log_p → -log_p.exp()"
    ),
    "this is the sum; divide by the number of predicted tokens.": "mean() → sum()",
    "divide by the number of predicted tokens; the first is not predicted.": "mean()) → sum() / len(ids))",
    "this is the perplexity; its logarithm is wanted.": "mean() → mean().exp()",
}


def a_text(length: int) -> Tensor:
    """Draw the ids of a text."""
    return torch.randint(11, (length,), generator=torch.Generator().manual_seed(length))


SIZES = ((30, 8), (9, 8), (6, 8), (2, 8), (13, 8), (14, 8), (21, 4), (10, 2))
EXERCISES["15.3"] = Exercise(
    "No token without a past",
    right=overlapping_loss,
    cases={
        f"{length} tokens, window {window}: ": calls(reader(window), a_text(length), window) for length, window in SIZES
    },
    mistakes=WRONG_LOSSES,
)


def speculative(target: Tensor, draft: Tensor) -> tuple[Tensor, Tensor]:
    """How likely each drafted token is kept, and what is drawn from if it is not."""
    missing = (target - draft).clamp(min=0)
    total = missing.sum(dim=-1, keepdim=True)
    return torch.where(draft > 0, target / draft, 1.0).clamp(max=1), torch.where(total > 1e-6, missing / total, target)


def wrong_drafts(target: Tensor, draft: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """What is usually got wrong about one of the two, and what that gives."""
    keep, rest = speculative(target, draft)
    missing = (target - draft).clamp(min=0)
    as_often = "a token that draft gives too much must still be kept as often as target allows, not never."
    divide = "this is target; then a token comes with the probability target · draft. Divide by draft."
    nothing = "this keeps nothing. It would be right, but never sooner: keep as often as possible."
    both = "this is draft · keep, the probability that a token comes by way of the draft; return keep."
    keeps = {
        "above 1 no probability may be: min(1, target / draft).": target / draft,
        as_often: (target >= draft).to(target.dtype),
        divide: target,
        "this is draft / target; the other way round.": (draft / target).clamp(max=1),
        "this keeps everything: what comes out is the draft.": torch.ones_like(target),
        nothing: torch.zeros_like(target),
        both: torch.minimum(target, draft),
    }
    twice = "this is target itself: what came by way of the draft would come twice. Draw what is missing."
    above = "this is where draft is above target; what is missing is where target is above draft."
    softmax = "softmax gives the tokens that miss nothing a share, too: divide by the sum."
    turned_down = "this is target · (1 − keep): a token is missing target − draft · keep."
    rests = {
        "it holds NaN: 0 / 0. Where the two agree nothing is missing: give any one.": summed(missing),
        "it is no distribution: no entry below 0, and each row sums to 1.": target - draft,
        twice: target,
        "what is missing must be made to sum to 1.": missing,
        "the sum is taken over all rows; each row sums to 1 for itself.": missing / missing.sum(),
        above: summed((draft - target).clamp(min=0)),
        "|target − draft|: what draft has too much of is not missing.": summed((target - draft).abs()),
        "this is draft itself.": draft,
        softmax: missing.softmax(dim=-1),
        turned_down: summed(target * (1 - keep)),
        "this is evenly distributed.": torch.full_like(target, 1 / target.size(-1)),
    }
    return {sentence: (wrong, rest) for sentence, wrong in keeps.items()} | {
        sentence: (keep, wrong) for sentence, wrong in rests.items()
    }


def free(found: Any, anywhere: Tensor) -> Any:
    """Put 0 wherever any number will do."""
    like = isinstance(found, Tensor) and found.shape == anywhere.shape
    return in_32_bits(found).masked_fill(anywhere, 0.0) if like else found


def kind_of(rest: Any) -> str:
    """Name what a rest is."""
    if not isinstance(rest, Tensor) or rest.isnan().any():
        return "NaN" if isinstance(rest, Tensor) else "no tensor"
    even = bool(((rest.sum(dim=-1) - 1).abs() < 1e-4).all() and (rest > -1e-6).all())
    return "a distribution" if even else "no distribution"


def drafts(remark: str, target: Tensor, draft: Tensor) -> dict[str, Run]:
    """Make the cases of a pair of models: any number will do where nothing is drafted, or nothing is missing."""
    agree = ((target - draft).clamp(min=0).sum(dim=-1, keepdim=True) <= 1e-6).expand_as(target)
    return {
        f"{remark}keep: ": lambda answer: free(answer(target, draft)[0], draft == 0),
        f"{remark}rest: ": lambda answer: kind_of(answer(target, draft)[1]),
        f"{remark}rest, number by number: ": lambda answer: free(answer(target, draft)[1], agree),
    }


def is_pair(answer: Any) -> bool | None:
    """Tell whether an answer returns two things, or nothing at all."""
    found = answer(TARGET, DRAFT)
    return None if found is None else isinstance(found, tuple | list) and len(found) == 2


TARGET, DRAFT = (1.5 * torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))).softmax(dim=-1)
FIRST = torch.arange(4)[:, None] == 0
MODELS = {
    "": (TARGET, DRAFT),
    "on paper's example: ": (torch.tensor([[0.75, 0.25]]), torch.tensor([[0.5, 0.5]])),
    "one row alone, (vocab): ": (TARGET[0], DRAFT[0]),
    "with three axes: ": (TARGET.view(2, 2, 6), DRAFT.view(2, 2, 6)),
    "with probabilities of 0: ": tuple(
        summed(p.masked_fill(torch.arange(6) == i, 0.0)) for p, i in ((TARGET, 1), (DRAFT, 4))
    ),
    "where the two share no token: ": (torch.tensor([[0.5, 0.5, 0, 0]]), torch.tensor([[0, 0, 0.5, 0.5]])),
    "where the models agree in one row: ": (TARGET, DRAFT.where(~FIRST, TARGET)),
}
EXERCISES["15.4"] = Exercise(
    "A small model writes, a large one agrees",
    right=speculative,
    cases={"": is_pair} | {key: run for remark, pair in MODELS.items() for key, run in drafts(remark, *pair).items()},
    mistakes={"return two tensors: keep and rest.": lambda target, draft: speculative(target, draft)[0]}
    | resulting(wrong_drafts, TARGET, DRAFT),
)


Counts = Callable[[list[int]], list[int]]


def interval_of(ids: Sequence[int], counts: Counts, number: Any = Fraction) -> tuple[Fraction, Fraction]:
    """Where a text's interval begins, and how wide it is."""
    low, width = number(0), number(1)
    for i, token in enumerate(ids):
        parts = counts(list(ids[:i]))
        low += width * sum(parts[:token]) / sum(parts)
        width = width * parts[token] / sum(parts)
    return Fraction(low), Fraction(width)


def fewest_bits(width: Fraction) -> int:
    """The smallest n with 2⁻ⁿ ≤ width: so many bits hold a number of every interval of this width."""
    return (math.ceil(1 / width) - 1).bit_length()


def bits_in(low: Fraction, width: Fraction, more: int = 0, whole: Callable[[Fraction], int] = math.ceil) -> str:
    """The first number of an interval that few bits can write; some more bits than needed."""
    n = fewest_bits(width) + more
    return format(whole(low * 2**n), f"0{n}b") if n else ""


def part_at(place: Any, parts: list[int]) -> int:
    """The token whose part a place lies in."""
    return next((token for token in range(len(parts)) if place < sum(parts[: token + 1])), len(parts) - 1)


def end_of(low: Fraction, width: Fraction) -> str:
    """The end of an interval, which is not in it."""
    return bits_in(low + width, width, 3)


def first_beginning(place: Any, parts: list[int]) -> int:
    """The first token whose part begins where that of the place does."""
    beginnings = [sum(parts[:token]) for token in range(len(parts))]
    return beginnings.index(max(one for one in beginnings if one <= place))


def part_before(place: Any, parts: list[int]) -> int:
    """The token whose part a place lies in, or ends at."""
    return next(token for token in range(len(parts)) if place <= sum(parts[: token + 1]))


class Coder:
    """Encodes a text as the first number in its interval, and decodes by where a number lies."""

    def encode(self, ids: list[int], counts: Counts) -> Any:
        """Write the bits of a text."""
        return bits_in(*interval_of(ids, counts))

    def decode(self, bits: str, length: int, counts: Counts) -> Any:
        """Read so many tokens."""
        place, ids = Fraction(int(bits or "0", 2), 2 ** len(bits)), list[int]()
        for _ in range(length):
            parts = counts(list(ids))
            token = part_at(place * sum(parts), parts)
            place = (place * sum(parts) - sum(parts[:token])) / (parts[token] or 1)
            ids.append(token)
        return ids


def counting(*first: int, grows: bool = False) -> Counts:
    """Counts that may grow with the text: each token that has come counts one more, and the last one another three."""

    def counts(before: list[int]) -> list[int]:
        if not isinstance(before, list | tuple):
            raise TypeError(f"counts takes the list of the tokens so far; got {type(before).__name__}.")
        extra = [*before, *before[-1:] * 3] if grows else []
        return [count + extra.count(token) for token, count in enumerate(first)]

    return counts


TEXTS: list[tuple[str, list[int], Counts]] = [
    ("on paper's example: ", [2, 0], counting(1, 1, 2)),
    ("three tokens, the same counts each time: ", [0, 1, 2, 1], counting(1, 1, 2)),
    ("counts that depend on the tokens before: ", [0, 3, 1, 2, 3, 3, 1, 0, 2, 1], counting(1, 2, 1, 3, grows=True)),
    ("where a token has the count 0: ", [2, 0, 2, 2, 0], counting(2, 0, 3, 0)),
    ("where one token is certain: ", [1] * 6, counting(0, 5, 0)),
    ("a text of no tokens: ", [], counting(1, 1)),
    ("a text of 300 tokens: ", (a_text(300) % 5).tolist(), counting(1, 1, 1, 1, 1, grows=True)),
    ("where a token is very likely: ", [0] * 60 + [1] + [0] * 60, counting(999, 1)),
]


def outside(ids: list[int], counts: Counts, number: Fraction) -> str:
    """Say why a number is not in a text's interval, with the likeliest reason."""

    def holds(low: Fraction, width: Fraction) -> bool:
        return low <= number < low + width

    low, width = interval_of(ids, counts)
    if number == low + width:
        return "the bits give the end of the interval, which is not included."
    if holds(*interval_of(ids[::-1], counts)):
        return "the bits lie in the interval of the text read backwards: begin with its first token."
    if holds(*interval_of(ids, lambda before: counts([]))):
        return "the counts change with the text: for each token ask counts anew, with the tokens before it."
    if fewest_bits(width) > 40 and abs(number - low) < Fraction(1, 2**30):
        exact = "Use whole numbers or Fraction."
        return f"the bits are right at the beginning, then not: does a float take part? It has 53 bits. {exact}"
    if number < low:
        return "the bits give a number below the interval: round up to the next multiple of 2⁻ⁿ, not down."
    return "the bits give a number that is not in the text's interval."


def slip(found: list[Any], ids: list[int], counts: Counts) -> str:
    """Say where a decoded text is wrong first."""
    if len(found) != len(ids):
        return f"expected {len(ids)} tokens, got {len(found)}."
    i = next(i for i, token in enumerate(ids) if found[i] != token)
    if counts(ids[:i])[found[i]] == 0:
        return f"token {i} is {found[i]}, whose count is 0: an interval of no width holds nothing."
    if fewest_bits(interval_of(ids[: i + 1], counts)[1]) > 40:
        return f"right up to token {i}, then {found[i]} in place of {ids[i]}: does a float take part?"
    return f"token {i}: expected {ids[i]}, got {found[i]}. A part's beginning belongs to it, its end does not."


def examine_coder(answer: Any) -> str | None:
    """Look at round trips and sizes, and decode what somebody else has encoded, at both ends of the interval."""
    if not isinstance(answer, type):
        return "hand over the class Coder itself."
    for remark, ids, counts in TEXTS:
        low, width = interval_of(ids, counts)
        bits = answer().encode(list(ids), counts)
        if not isinstance(bits, str) or set(bits) - {"0", "1"}:
            return f"{remark}encode returns a string of 0 and 1; got {bits!r:.60}."
        number = Fraction(int(bits or "0", 2), 2 ** len(bits))
        if not low <= number < low + width:
            return remark + outside(ids, counts, number)
        most = math.log2(width.denominator) - math.log2(width.numerator) + 2
        if len(bits) > most + 1e-9:
            size = f"it has {len(bits)} bits; −log₂ p + 2 is {most:.1f}."
            return f"{remark}the number lies in the interval, but {size}"
        for name, some in {
            "encode's own bits": bits,
            "the fewest bits": bits_in(low, width),
            "20 bits more than needed": bits_in(low, width, 20),
            "a number at the upper end of the interval": bits_in(low + width, width, 4, lambda end: math.ceil(end) - 1),
        }.items():
            found = answer().decode(some, len(ids), counts)  # who receives the bits has nothing else
            if found is None:
                return "decode returned None: does it end in a return?"
            found = found.tolist() if isinstance(found, Tensor) else list(found)
            if found != ids:
                return f"{remark}decode, given {name}: {slip(found, ids, counts)}"
    return None


EXERCISES["15.5"] = Exercise(
    "A text in as many bits as it has",
    right=Coder,
    cases={},
    examine=examine_coder,
    caught={
        "hand over the class Coder itself.": Coder(),
        "encode returns a string of 0 and 1": (
            "return bits_in(*interval_of(ids, counts)) → return list(bits_in(*interval_of(ids, counts)))"
        ),
        "the end of the interval, which is not included": "bits_in(*interval_of → end_of(*interval_of",
        "text read backwards": "interval_of(ids → interval_of(ids[::-1]",
        "ask counts anew": "interval_of(ids, counts) → interval_of(ids, lambda before: counts([]))",
        "then not: does a float take part?": "interval_of(ids, counts) → interval_of(ids, counts, float)",
        "below the interval: round up": "(ids, counts)) → (ids, counts), 0, math.floor)",
        "that is not in the text's interval": 'bits_in(*interval_of(ids, counts)) → "111"',
        "it has 11 bits; −log₂ p + 2 is 5.0.": "(ids, counts)) → (ids, counts), 8)",
        "decode returned None": "return ids → return None",
        "expected 2 tokens, got 1": "range(length) → range(length - 1)",
        "whose count is 0": "part_at( → first_beginning(",
        "in place of 2: does a float take part?": "place, ids = → place, ids = 1.0 *",
        "A part's beginning belongs to it": "part_at( → part_before(",
    },
)
