"""The exercises of chapter 15, generation."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.diagnosis import Exercise, compare


def units(answer: Any) -> str | None:
    """Bits a character, nats a token, the perplexity a token and the bits a character of two models."""
    found = torch.as_tensor(answer, dtype=torch.float64)
    if found.shape != (4,):
        return (
            "give four numbers: bits a character and nats a token of the first model, then perplexity a token and bits "
            "a character of the second."
        )
    right = torch.tensor([1.5, 1.5 * math.log(2), 2**2.5, 1.25], dtype=torch.float64)
    first = {
        12.0: "this is the whole text; divide by its eight characters.",
        1.5 * math.log(2): "these are nats; bits are logarithms to the base 2.",
        2**1.5: "this is the perplexity; the bits are its logarithm to the base 2.",
        12 / 7: "eight characters, not seven: the probability 1 costs 0 bits, but it is a character.",
        -1.5: "the sign: a probability below 1 costs more than 0 bits, −log₂ p.",
        -math.log2(sum((0.5, 0.5, 0.25, 1, 0.125, 0.5, 0.25, 0.25)) / 8): (
            "this is the logarithm of the mean probability; the mean of the logarithms is wanted."
        ),
    }
    second = {
        12 * math.log(2): "this is the whole text; divide by the number of tokens.",
        1.5 / math.log(2): "a nat is more than a bit: multiply the bits by ln 2, do not divide.",
        1.5: "these are bits; times ln 2 they are nats.",
        1.5 * math.log10(2): "this is the logarithm to the base 10; nats are natural ones.",
    }
    third = {
        2**1.25: "this is the perplexity a character; the second model has four tokens.",
        2.5: "these are the bits a token; the perplexity is 2 to their power.",
        math.e**2.5: "2 to the power of the bits, or e to the power of the nats; do not mix them.",
        1024.0: "this is 2 to the power of all bits; take the mean over the four tokens first.",
        4 / (1 / 4 + 1 / 8 + 1 / 2 + 1 / 16): (
            "this is one over the mean of the probabilities; the perplexity has the mean of the logarithms."
        ),
    }
    fourth = {
        2.5: "these are the bits a token; the text has eight characters.",
        10.0: "this is the whole text; divide by its eight characters.",
        1.25 * math.log(2): "these are nats; bits are wanted.",
    }
    names = ("the first number", "the second number", "the third number", "the fourth number")
    for i, (name, mistakes) in enumerate(zip(names, (first, second, third, fourth), strict=True)):
        known = {text: torch.tensor(value, dtype=torch.float64) for value, text in mistakes.items()}
        if diagnosis := compare(found[i], right[i], known, tolerance=3e-3, by_hand=True):
            return f"{name}: {diagnosis}"
    return None


def share_of_likeliest(logits: Tensor, temperature: float, share: float, **change: Any) -> Tensor:
    """The cut by a share of the likeliest, with a choice of mistakes."""
    scaled = logits if change.get("cold") else logits / temperature
    if change.get("inverse"):
        scaled = logits * temperature
    p = scaled.softmax(dim=-1)
    judged = logits.softmax(dim=-1) if change.get("cut_first") else p
    most = judged.amax(dim=-1, keepdim=True)
    if change.get("over_all"):
        most = judged.amax()
    bound = share * most
    if change.get("absolute"):
        bound = torch.full_like(most, share)
    if change.get("complement"):
        bound = (1 - share) * most
    keep = judged > bound if change.get("strict") else judged >= bound * (1 - 1e-9)
    p = p.masked_fill(~keep, 0.0)
    if change.get("again"):
        return p.masked_fill(~keep, -math.inf).softmax(dim=-1)
    if change.get("zeros_again"):
        return p.softmax(dim=-1)
    return p if change.get("unsummed") else p / p.sum(dim=-1, keepdim=True)


def cut_below_a_share(answer: Callable[[Tensor, float, float], Tensor]) -> str | None:
    """Batches of logits, temperatures, forbidden tokens, equal logits, logits around 1000, shares 0 and 1."""
    generator = torch.Generator().manual_seed(3)
    rows = 1.2 * torch.randn(2, 3, 7, generator=generator)
    forbidden = rows.clone()
    forbidden[..., 2] = -math.inf
    ties = torch.tensor([[1.0, 3, 3, 0, 3, 1], [0, 0, 0, 0, 0, 0]])
    cases: list[tuple[str, Tensor, float, float]] = [
        ("", rows, 1.0, 0.2),
        ("with temperature 2: ", rows, 2.0, 0.3),
        ("with temperature ½: ", rows, 0.5, 0.05),
        ("with forbidden tokens: ", forbidden, 1.0, 0.1),
        ("share 0, with forbidden tokens: ", forbidden, 1.0, 0.0),
        ("share 1, where several are equally likely: ", ties, 1.0, 1.0),
        ("with logits around 1000: ", rows + 1000, 1.0, 0.2),
    ]
    for remark, logits, temperature, share in cases:
        given = (logits.double(), temperature, share)
        expected = share_of_likeliest(*given).float()
        mistakes = {
            "at least share times the largest: a token that has exactly so much stays.": share_of_likeliest(
                *given, strict=True
            ),
            "what is left must be made to sum to 1 again.": share_of_likeliest(*given, unsummed=True),
            "the bound is share times the largest probability, not share itself.": share_of_likeliest(
                *given, absolute=True
            ),
            "the temperature is missing.": share_of_likeliest(*given, cold=True),
            "logits are divided by the temperature, not multiplied.": share_of_likeliest(*given, inverse=True),
            "first the temperature, then the cut: yours judges the probabilities without it.": share_of_likeliest(
                *given, cut_first=True
            ),
            "each row has a likeliest token of its own; you compare with the largest of all rows.": share_of_likeliest(
                *given, over_all=True
            ),
            "a token stays if it has at least share times the largest, not (1 − share) times.": share_of_likeliest(
                *given, complement=True
            ),
            "divide what is left by its sum; a second softmax bends it.": share_of_likeliest(*given, again=True),
            "divide what is left by its sum; a second softmax bends it, and gives the cut tokens e⁰.": (
                share_of_likeliest(*given, zeros_again=True)
            ),
        }
        known = {text: wrong.float() for text, wrong in mistakes.items() if wrong.isfinite().all()}
        found = answer(logits.clone(), temperature, share)
        if isinstance(found, Tensor) and found.is_floating_point():
            found = found.float()
        if isinstance(found, Tensor) and found.shape == expected.shape and found.isnan().any():
            for text, wrong in mistakes.items():  # rows of which nothing is left are 0 / 0
                if torch.allclose(found, wrong.float(), atol=1e-4, equal_nan=True):
                    return remark + text
        if diagnosis := compare(found, expected, known):
            return remark + diagnosis
    return None


class Reader:
    """Predicts from all that it is given: what a window cuts off changes what it says."""

    def __init__(self, vocab: int, window: int):
        generator = torch.Generator().manual_seed(vocab)
        self.vectors = torch.randn(vocab, 8, generator=generator, dtype=torch.float64)
        self.output = torch.randn(8, vocab, generator=generator, dtype=torch.float64)
        self.window = window

    def __call__(self, ids: Tensor) -> Tensor:
        """Give log-probabilities (length, vocab) of each next token."""
        if ids.dim() != 1:
            raise ValueError(f"predict takes the tokens of one window, (length,); got shape {tuple(ids.shape)}.")
        if not 0 < len(ids) <= self.window:
            raise ValueError(f"predict was given {len(ids)} tokens; it reads 1 to {self.window}.")
        ages = (torch.arange(len(ids))[:, None] - torch.arange(len(ids))).clamp(min=0)
        weights = torch.where(ages.tril() + torch.eye(len(ids)) > 0, 0.8**ages, 0.0).double()
        return ((weights @ self.vectors[ids]) @ self.output / 3).log_softmax(dim=-1)


def windows(read: int, window: int, stride: int, drop: int) -> Iterator[tuple[int, int, int]]:
    """Where each window begins and ends, and from which of its rows on predictions count."""
    start = 0
    while True:
        yield start, min(start + window, read), drop if start else 0
        if start + window >= read:
            return
        start += stride


def overlapping(predict: Reader, ids: Tensor, window: int, **change: Any) -> Tensor:
    """The nats of the predictions that count, one after the other, with a choice of mistakes."""
    half, read = window // 2, len(ids) - 1
    stride, drop = change.get("stride", half), change.get("drop", half)
    found = []
    for start, end, first in windows(read, window, stride, drop):
        if change.get("whole_only") and end - start < window and start:
            continue
        first = half if change.get("first_too") else first
        logs = predict(ids[start:end])
        found.append(-logs[torch.arange(end - start), ids[start + 1 : end + 1]][first:])
    if change.get("by_window"):
        found = [one.mean()[None] for one in found if len(one)]
    return torch.cat(found)


def loss_with_a_past(answer: Callable[[Callable[[Tensor], Tensor], Tensor, int], Any]) -> str | None:
    """Texts shorter than a window, of exactly one, with short last windows, windows of two."""
    generator = torch.Generator().manual_seed(0)
    for length, window in ((30, 8), (9, 8), (6, 8), (2, 8), (13, 8), (14, 8), (21, 4), (10, 2)):
        predict = Reader(11, window)
        ids = torch.randint(11, (length,), generator=generator)
        right = overlapping(predict, ids, window)
        remark = f"{length} tokens, window {window}: "
        found = answer(predict, ids.clone(), window)
        if found is None:
            return "your function returned None: does it end in a return?"
        if isinstance(found, str | list | tuple | bool):
            return f"{remark}expected a number, got {type(found).__name__}."
        found = torch.as_tensor(found, dtype=torch.float64)
        results: dict[str, dict[str, Any]] = {
            "windows that do not overlap: each next one begins half a window later.": dict(stride=window, drop=0),
            "all predictions of all windows count: from the second window on, only the second half.": dict(drop=0),
            "of the first window, too, only the second half counts: the first predictions are lost.": dict(
                first_too=True
            ),
            "the last, shorter window is missing.": dict(whole_only=True),
            "the mean over the windows: take it over the tokens, for the windows count for unequally many.": dict(
                by_window=True
            ),
            "one row too many is left out in each window: its second half has window / 2 predictions.": dict(
                drop=window // 2 + 1
            ),
            "one row too few is left out: some tokens count twice.": dict(drop=window // 2 - 1),
            "the windows begin one token apart: half a window is wanted.": dict(stride=1, drop=window - 1),
        }
        mistakes = {
            "this is the sum; divide by the number of predicted tokens.": right.sum(),
            "these are bits; nats are natural logarithms.": right.mean() / math.log(2),
            "the sign: −ln p is above 0.": -right.mean(),
            "divide by the number of predicted tokens; the first is not predicted.": right.sum() / length,
            "this is the perplexity; its logarithm is wanted.": right.mean().exp(),
            "predict gives logarithms already; another softmax changes nothing, another logarithm does.": (
                -(-right).exp().mean()
            ),
        }
        for text, change in results.items():
            values = overlapping(predict, ids, window, **change)
            if len(values):
                mistakes[text] = values.mean()
        if diagnosis := compare(found, right.mean(), mistakes):
            return remark + diagnosis
    return None


def wrong_rests(target: Tensor, draft: Tensor, keep: Tensor) -> dict[str, Tensor]:
    """What is usually drawn from in place of the right thing."""
    missing = (target - draft).clamp(min=0)

    def summed(x: Tensor) -> Tensor:
        return x / x.sum(dim=-1, keepdim=True)

    return {
        "this is target itself: what came by way of the draft would come twice. Draw what is missing.": target,
        "what is missing must be made to sum to 1.": missing,
        "the sum is taken over all rows; each row sums to 1 for itself.": missing / missing.sum(),
        "this is where draft is above target; what is missing is where target is above draft.": summed(
            (draft - target).clamp(min=0)
        ),
        "|target − draft|: what draft has too much of is not missing.": summed((target - draft).abs()),
        "this is draft itself.": draft,
        "softmax gives the tokens that miss nothing a share, too: divide by the sum.": missing.softmax(dim=-1),
        "this is target · (1 − keep): a token is missing target − draft · keep.": summed(target * (1 - keep)),
        "this is evenly distributed.": torch.full_like(target, 1 / target.size(-1)),
    }


def accept_or_draw(answer: Callable[[Tensor, Tensor], Any]) -> str | None:
    """Batches, probabilities of 0 on either side, disjoint models, models that agree."""
    generator = torch.Generator().manual_seed(0)
    paper = torch.tensor([[0.75, 0.25]]), torch.tensor([[0.5, 0.5]])
    logits = 1.5 * torch.randn(2, 4, 6, generator=generator)
    target, draft = logits.softmax(dim=-1).unbind()
    with_zeros, without = target.clone(), draft.clone()
    with_zeros[:, 1] = 0
    without[:, 4] = 0
    zeros = with_zeros / with_zeros.sum(-1, keepdim=True), without / without.sum(-1, keepdim=True)
    disjoint = torch.tensor([[0.5, 0.5, 0, 0]]), torch.tensor([[0, 0, 0.5, 0.5]])
    mixed = torch.stack((target[0], draft[1])), torch.stack((target[0], target[1]))
    cases = [
        ("", target, draft),
        ("on paper's example: ", *paper),
        ("one row alone, (vocab): ", target[0], draft[0]),
        ("with three axes: ", target.view(2, 2, 6), draft.view(2, 2, 6)),
        ("with probabilities of 0: ", *zeros),
        ("where the two share no token: ", *disjoint),
        ("where the models agree in one row: ", *mixed),
    ]
    for remark, p, q in cases:
        found = answer(p.clone(), q.clone())
        if found is None:
            return "your function returned None: does it end in a return?"
        if not (isinstance(found, tuple | list) and len(found) == 2):
            return "return two tensors: keep and rest."
        for name, one in zip(("keep", "rest"), found, strict=True):
            if not isinstance(one, Tensor):
                return f"{remark}{name}: expected a tensor, got {type(one).__name__}."
            if one.shape != p.shape:
                return f"{remark}{name}: expected shape {tuple(p.shape)}, got {tuple(one.shape)}."
            if not one.is_floating_point():
                return f"{remark}{name}: expected {p.dtype}, got {one.dtype}."
        keep, rest = (one.to(p.dtype) for one in found)
        drafted = q > 0
        right = torch.where(drafted, (p / q.clamp(min=1e-30)).clamp(max=1), 1.0)
        if keep[drafted].isnan().any() or rest.isnan().any():
            which = "keep" if keep[drafted].isnan().any() else "rest"
            return f"{remark}{which} holds NaN: 0 / 0. Where the two agree nothing is missing: give any one."
        keep = torch.where(drafted, keep, right)  # elsewhere it is free
        wrong_keeps = {
            "above 1 no probability may be: min(1, target / draft).": p / q.clamp(min=1e-30),
            "a token that draft gives too much must still be kept as often as target allows, not never.": (
                (p >= q).to(p.dtype)
            ),
            "this is target; then a token comes with the probability target · draft. Divide by draft.": p,
            "this is draft / target; the other way round.": (q / p.clamp(min=1e-30)).clamp(max=1),
            "this keeps everything: what comes out is the draft.": torch.ones_like(p),
            "this keeps nothing. It would be right, but never sooner: keep as often as possible.": torch.zeros_like(p),
            "this is draft · keep, the probability that a token comes by way of the draft; return keep.": (
                torch.minimum(p, q)
            ),
        }
        known = {text: torch.where(drafted, wrong, right) for text, wrong in wrong_keeps.items()}
        if diagnosis := compare(keep, right, known):
            return f"{remark}keep: {diagnosis}"
        if not torch.allclose(rest.sum(dim=-1), torch.ones(()), atol=1e-4) or (rest < -1e-6).any():
            for text, wrong in wrong_rests(p, q, right).items():
                if wrong.shape == rest.shape and torch.allclose(rest, wrong, atol=1e-5):
                    return f"{remark}rest: {text}"
            return f"{remark}rest: it is no distribution: no entry below 0, and each row sums to 1."
        missing = (p - q).clamp(min=0)
        needed = missing.sum(dim=-1, keepdim=True) > 1e-6  # where the models agree, any distribution will do
        expected = torch.where(needed, missing / missing.sum(dim=-1, keepdim=True).clamp(min=1e-30), rest)
        alike = {text: torch.where(needed, wrong, rest) for text, wrong in wrong_rests(p, q, right).items()}
        if diagnosis := compare(rest, expected, alike):
            return f"{remark}rest: {diagnosis}"
    return None


Counts = Callable[[list[int]], list[int]]


def interval_of(ids: Sequence[int], counts: Counts) -> tuple[Fraction, Fraction]:
    """Where a text's interval begins, and how wide it is."""
    low, width = Fraction(0), Fraction(1)
    for i, token in enumerate(ids):
        weights = counts(list(ids[:i]))
        low += width * Fraction(sum(weights[:token]), sum(weights))
        width *= Fraction(weights[token], sum(weights))
    return low, width


def fewest_bits(width: Fraction) -> int:
    """The smallest n with 2⁻ⁿ ≤ width: so many bits hold a number of every interval of this width."""
    n = max(0, width.denominator.bit_length() - width.numerator.bit_length() - 1)
    while width * 2**n < 1:
        n += 1
    return n


def bits_in(low: Fraction, width: Fraction, more: int = 0) -> str:
    """The first number of an interval that few bits can write; some more bits than needed."""
    n = fewest_bits(width) + more
    number = -((-low.numerator * 2**n) // low.denominator)
    return format(number, f"0{n}b") if n else ""


class Growing:
    """Counts that depend on all tokens before, like a model: each token that has come counts one more."""

    def __init__(self, first: Sequence[int], grows: bool = True, step: int = 1):
        self.first, self.grows, self.step = list(first), grows, step

    def __call__(self, before: list[int]) -> list[int]:
        """Give the counts after some tokens."""
        if not isinstance(before, list | tuple):
            raise TypeError(f"counts takes the list of the tokens so far; got {type(before).__name__}.")
        if not self.grows:
            return list(self.first)
        found = list(self.first)
        for token in before:
            found[token] += self.step
        if before:
            found[before[-1]] += 3
        return found


def code_cases() -> Iterator[tuple[str, list[int], Growing]]:
    """A name, a text and its counts."""
    generator = torch.Generator().manual_seed(0)

    def text(length: int, tokens: Sequence[int]) -> list[int]:
        return [tokens[i] for i in torch.randint(len(tokens), (length,), generator=generator).tolist()]

    yield "on paper's example: ", [2, 0], Growing((1, 1, 2), grows=False)
    yield "three tokens, the same counts each time: ", [0, 1, 2, 1], Growing((1, 1, 2), grows=False)
    yield "counts that depend on the tokens before: ", text(12, range(4)), Growing((1, 2, 1, 3))
    yield "where a token has the count 0: ", [2, 0, 2, 2, 0], Growing((2, 0, 3, 0), grows=False)
    yield "where one token is certain: ", [1] * 6, Growing((0, 5, 0), grows=False)
    yield "a text of no tokens: ", [], Growing((1, 1))
    yield "a text of 300 tokens: ", text(300, range(5)), Growing((1, 1, 1, 1, 1))
    yield "where a token is very likely: ", [0] * 60 + [1] + [0] * 60, Growing((999, 1), grows=False)


def codes(answer: Any) -> str | None:
    """Round trips, sizes, and decoding what somebody else has encoded, at both ends of the interval."""
    if not isinstance(answer, type):
        return "hand over the class Coder itself."
    for remark, ids, counts in code_cases():
        low, width = interval_of(ids, counts)
        bits = answer().encode(list(ids), counts)
        if bits is None:
            return "encode returned None: does it end in a return?"
        if not isinstance(bits, str) or set(bits) - {"0", "1"}:
            return f"{remark}encode returns a string of 0 and 1; got {bits!r:.60}."
        number = Fraction(int(bits or "0", 2), 2 ** len(bits))
        if not low <= number < low + width:
            return remark + _outside(ids, counts, number, low, width)
        cost = -math.log2(width.numerator) + math.log2(width.denominator)
        if len(bits) > cost + 2 + 1e-9:
            return (
                f"{remark}the number lies in the interval, but it has {len(bits)} bits; −log₂ p + 2 is {cost + 2:.1f}."
            )
        others = {
            "encode's own bits": bits,
            "the fewest bits": bits_in(low, width),
            "20 bits more than needed": bits_in(low, width, more=20),
            "a number at the upper end of the interval": _last_bits(low, width),
        }
        for name, some in others.items():
            found = answer().decode(some, len(ids), counts)  # who receives the bits has nothing else
            if found is None:
                return "decode returned None: does it end in a return?"
            if isinstance(found, Tensor):
                found = found.tolist()
            if list(found) != ids:
                return f"{remark}decode, given {name}: {_first_difference(list(found), ids, counts)}"
    return None


def _last_bits(low: Fraction, width: Fraction) -> str:
    """The last number below the end of an interval, of four bits more than needed."""
    n = fewest_bits(width) + 4
    end = (low + width) * 2**n
    return format(-(-end.numerator // end.denominator) - 1, f"0{n}b")


def _outside(ids: Sequence[int], counts: Counts, number: Fraction, low: Fraction, width: Fraction) -> str:
    """Say why a number is not in a text's interval, with the likeliest reason."""
    if number == low + width:
        return "the bits give the end of the interval, which is not included."
    backwards = interval_of(ids[::-1], counts)
    if backwards[0] <= number < sum(backwards):
        return "the bits lie in the interval of the text read backwards: begin with its first token."
    unmoved = interval_of(ids, lambda before: counts([]))
    if unmoved[0] <= number < sum(unmoved):
        return "the counts change with the text: for each token ask counts anew, with the tokens before it."
    if fewest_bits(width) > 40 and abs(number - low) < Fraction(1, 2**30):
        return (
            "the bits are right at the beginning, then not: does a float take part? It has 53 bits. Use whole numbers "
            "or Fraction."
        )
    if number < low:
        return "the bits give a number below the interval: round up to the next multiple of 2⁻ⁿ, not down."
    return "the bits give a number that is not in the text's interval."


def _first_difference(found: list[Any], ids: list[int], counts: Counts) -> str:
    if len(found) != len(ids):
        return f"expected {len(ids)} tokens, got {len(found)}."
    place = next(i for i, (one, other) in enumerate(zip(found, ids, strict=True)) if one != other)
    if counts(ids[:place])[found[place]] == 0:
        return f"token {place} is {found[place]}, whose count is 0: an interval of no width holds nothing."
    if fewest_bits(interval_of(ids[: place + 1], counts)[1]) > 40:
        return f"right up to token {place}, then {found[place]} in place of {ids[place]}: does a float take part?"
    return (
        f"token {place}: expected {ids[place]}, got {found[place]}. A part's beginning belongs to it, its end does not."
    )


EXERCISES = {
    "15.1": Exercise("Bits, nats, perplexity", units),
    "15.2": Exercise("A share of the likeliest", cut_below_a_share),
    "15.3": Exercise("No token without a past", loss_with_a_past),
    "15.4": Exercise("A small model writes, a large one agrees", accept_or_draw),
    "15.5": Exercise("A text in as many bits as it has", codes),
}
