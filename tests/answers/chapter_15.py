"""Wrong answers to the exercises of chapter 15, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch.nn import functional as F

from annotated_course.exercises.chapter_15 import bits_in, interval_of, share_of_likeliest, windows

LN_2 = math.log(2)
UNITS = [1.5, 1.5 * LN_2, 2**2.5, 1.25]


def units(**change):
    """The right four numbers, with some of them changed, by place."""
    return [change.get(f"at_{i}", value) for i, value in enumerate(UNITS)]


def cut(**change) -> Callable:
    """The cut by a share of the likeliest, with a mistake in it."""
    return lambda logits, temperature, share: share_of_likeliest(logits, temperature, share, **change)


def cut_by_logits(logits, temperature, share):
    """Right: compare logits, then one softmax."""
    scaled = logits / temperature
    bound = scaled.amax(dim=-1, keepdim=True) + (math.log(share) if share else -math.inf)
    return scaled.masked_fill(scaled < bound, -math.inf).softmax(dim=-1)


def cut_by_exponentials(logits, temperature, share):
    """Right but for large logits."""
    e = (logits / temperature).exp()
    e = e * (e >= share * e.amax(dim=-1, keepdim=True) * (1 - 1e-6))
    return e / e.sum(dim=-1, keepdim=True)


def cut_by_minus_infinity(logits, temperature, share):
    """Right but for a share of 0, whose logarithm Python does not take."""
    scaled = logits / temperature
    bound = scaled.amax(dim=-1, keepdim=True) + math.log(share)
    return scaled.masked_fill(scaled < bound, -math.inf).softmax(dim=-1)


def cut_to_one(logits, temperature, share):
    """Where several are the likeliest, the first alone stays."""
    p = cut()(logits, temperature, share)
    return F.one_hot(p.argmax(dim=-1), p.size(-1)).to(p.dtype) if share == 1 else p


def cut_by_row(logits, temperature, share):
    """Right: row by row."""
    rows = []
    for row in logits.reshape(-1, logits.size(-1)):
        p = (row / temperature).softmax(dim=0)
        p = torch.where(p >= share * p.max() * (1 - 1e-6), p, torch.zeros(()))
        rows.append(p / p.sum())
    return torch.stack(rows).view(logits.shape)


def losses(*, stride=None, drop=None, reduce=lambda found: torch.cat(found).mean(), whole_only=False, first_too=False):
    """The loss with overlapping windows, with a mistake in it."""

    def loss(predict, ids, window):
        half = window // 2
        step, skip = (half if stride is None else stride(window)), (half if drop is None else drop(window))
        found = []
        for start, end, first in windows(len(ids) - 1, window, step, skip):
            if whole_only and start and end - start < window:
                continue
            logs = predict(ids[start:end])
            rows = -logs[torch.arange(end - start), ids[start + 1 : end + 1]]
            found.append(rows[half if first_too else first :])
        return float(reduce(found))

    return loss


def loss_token_by_token(predict, ids, window):
    """Right: find each token's window by itself."""
    total = 0.0
    for t in range(1, len(ids)):
        start = 0 if t <= window else (t - 1 - window // 2) // (window // 2) * (window // 2)
        total -= float(predict(ids[start:t])[-1, ids[t]])
    return total / (len(ids) - 1)


def loss_of_all_at_once(predict, ids, window):
    return float(-predict(ids[:-1])[torch.arange(len(ids) - 1), ids[1:]].mean())


def loss_of_the_same_token(predict, ids, window):
    """The token itself in place of the next one."""
    total = 0.0
    for start, end, first in windows(len(ids) - 1, window, window // 2, window // 2):
        rows = -predict(ids[start:end])[torch.arange(end - start), ids[start:end]]
        total += float(rows[first:].sum())
    return total / (len(ids) - 1)


def over_read(reduce):
    """The right nats, reduced in another way."""
    return losses(reduce=lambda found: reduce(torch.cat(found)))


def keep_and_rest(keep=None, rest=None) -> Callable:
    """Speculative decoding with another way to keep, or another rest."""

    def answer(target, draft):
        kept = torch.where(draft > 0, target / draft, 1.0).clamp(max=1)
        missing = (target - draft).clamp(min=0)
        total = missing.sum(dim=-1, keepdim=True)
        right = torch.where(total > 1e-7, missing / total, target)
        return (
            kept if keep is None else keep(target, draft),
            right if rest is None else rest(target, draft, kept, missing),
        )

    return answer


def summed(x):
    return x / x.sum(dim=-1, keepdim=True)


def rest_evenly(target, draft, keep, missing):
    """Right: where nothing is missing, evenly."""
    missing = torch.where(missing.sum(-1, keepdim=True) > 1e-7, missing, torch.ones_like(missing))
    return summed(missing)


def keep_by_minimum(target, draft):
    """Right: min(target, draft) / draft; where draft is 0, never."""
    return torch.minimum(target, draft) / draft.clamp(min=1e-30)


class Exact:
    """Right: intervals as fractions."""

    def encode(self, ids, counts):
        return bits_in(*interval_of(ids, counts))

    def decode(self, bits, length, counts):
        place, ids = Fraction(int(bits or "0", 2), 2 ** len(bits)), []
        for _ in range(length):
            parts = counts(list(ids))
            total, below, token = sum(parts), 0, 0
            while Fraction(below + parts[token], total) <= place:
                below += parts[token]
                token += 1
            place = (place - Fraction(below, total)) / Fraction(parts[token], total)
            ids.append(token)
        return ids


class WholeNumbers(Exact):
    """Right: whole numbers over a common denominator; bits of which every continuation lies inside."""

    def encode(self, ids, counts):
        low, width, below = 0, 1, 1
        for i, token in enumerate(ids):
            parts = counts(list(ids[:i]))
            low, width, below = (
                low * sum(parts) + width * sum(parts[:token]),
                width * parts[token],
                below * sum(parts),
            )
        n = 0
        while True:
            number = -((-low << n) // below)
            if (number + 1) * below <= (low + width) << n:
                return format(number, f"0{n}b") if n else ""
            n += 1


class Floats(Exact):
    def encode(self, ids, counts):
        low, width = 0.0, 1.0
        for i, token in enumerate(ids):
            parts = counts(list(ids[:i]))
            low += width * sum(parts[:token]) / sum(parts)
            width *= parts[token] / sum(parts)
        n = math.ceil(-math.log2(width)) if width else 1000
        number = math.ceil(Fraction(low) * 2**n)
        return format(number, f"0{n}b") if n else ""


class FloatDecoder(Exact):
    def decode(self, bits, length, counts):
        place, ids = sum(int(bit) * 2.0 ** -(i + 1) for i, bit in enumerate(bits)), []
        for _ in range(length):
            parts = counts(list(ids))
            place *= sum(parts)
            token = 0
            while token < len(parts) - 1 and place >= parts[token]:
                place -= parts[token]
                token += 1
            place /= max(parts[token], 1)
            ids.append(token)
        return ids


class RoundsDown(Exact):
    def encode(self, ids, counts):
        low, width = interval_of(ids, counts)
        n = len(bits_in(low, width))
        return format(math.floor(low * 2**n), f"0{n}b") if n else ""


class TheEnd(Exact):
    def encode(self, ids, counts):
        low, width = interval_of(ids, counts)
        n = len(bits_in(low, width)) + 3
        number = math.floor((low + width) * 2**n)
        return format(min(number, 2**n - 1), f"0{n}b")


class Backwards(Exact):
    def encode(self, ids, counts):
        return bits_in(*interval_of(ids[::-1], counts))


class Wasteful(Exact):
    def encode(self, ids, counts):
        return bits_in(*interval_of(ids, counts), more=8)


class IncludesTheEnd(Exact):
    def decode(self, bits, length, counts):
        place, ids = Fraction(int(bits or "0", 2), 2 ** len(bits)), []
        for _ in range(length):
            parts = counts(list(ids))
            token = 0
            place *= sum(parts)
            while place > parts[token]:
                place -= parts[token]
                token += 1
            place = place / parts[token] if parts[token] else place
            ids.append(token)
        return ids


class AlwaysTheSameCounts(Exact):
    def encode(self, ids, counts):
        return bits_in(*interval_of(ids, lambda before: counts([])))


class OneTooFew(Exact):
    def decode(self, bits, length, counts):
        return super().decode(bits, max(0, length - 1), counts)


class Numbers(Exact):
    def encode(self, ids, counts):
        return [int(bit) for bit in super().encode(ids, counts)]


class NothingEncoded(Exact):
    def encode(self, ids, counts):
        super().encode(ids, counts)


class NothingDecoded(Exact):
    def decode(self, bits, length, counts):
        super().decode(bits, length, counts)


class Remembers(Exact):
    """Decodes nothing: it has kept what it encoded."""

    def encode(self, ids, counts):
        self.ids = ids
        return super().encode(ids, counts)

    def decode(self, bits, length, counts):
        return self.ids


WRONG = [
    ("15.1", units(at_0=12), "first number: this is the whole text"),
    ("15.1", units(at_0=1.5 * LN_2), "first number: these are nats"),
    ("15.1", units(at_0=2**1.5), "first number: this is the perplexity"),
    ("15.1", units(at_0=12 / 7), "not seven"),
    ("15.1", units(at_0=-1.5), "the sign"),
    ("15.1", units(at_0=-math.log2(3.375 / 8)), "mean probability"),
    ("15.1", units(at_1=1.5 / LN_2), "second number: a nat is more than a bit"),
    ("15.1", units(at_1=1.5), "times ln 2 they are nats"),
    ("15.1", units(at_1=12 * LN_2), "second number: this is the whole text"),
    ("15.1", units(at_1=1.5 * math.log10(2)), "base 10"),
    ("15.1", units(at_2=2**1.25), "third number: this is the perplexity a character"),
    ("15.1", units(at_2=2.5), "third number: these are the bits a token"),
    ("15.1", units(at_2=math.exp(2.5)), "do not mix"),
    ("15.1", units(at_2=1024), "mean over the four tokens"),
    ("15.1", units(at_2=4 / 0.9375), "one over the mean"),
    ("15.1", units(at_3=2.5), "fourth number: these are the bits a token"),
    ("15.1", units(at_3=10), "fourth number: this is the whole text"),
    ("15.1", units(at_3=1.25 * LN_2), "fourth number: these are nats"),
    ("15.1", units(at_3=1), r"fourth number: it is not 1\."),
    ("15.1", UNITS[:3], "give four numbers"),
    ("15.1", "1.5, 1.04", "raised (ValueError|TypeError)"),
    ("15.2", cut(unsummed=True), "sum to 1 again"),
    ("15.2", cut(absolute=True), "not share itself"),
    ("15.2", cut(cold=True), "with temperature 2: the temperature is missing"),
    ("15.2", cut(inverse=True), "with temperature 2: logits are divided"),
    ("15.2", cut(cut_first=True), "first the temperature, then the cut"),
    ("15.2", cut(over_all=True), "a likeliest token of its own"),
    ("15.2", cut(complement=True), r"not \(1 − share\) times"),
    ("15.2", cut(again=True), "a second softmax"),
    ("15.2", cut(zeros_again=True), "e⁰"),
    ("15.2", cut(strict=True), "share 1, .*exactly so much stays"),
    ("15.2", cut_by_exponentials, "around 1000: the result holds NaN"),
    (
        "15.2",
        cut_by_minus_infinity,
        "raised ValueError: math domain error|raised ValueError: expected a positive input",
    ),
    ("15.2", cut_to_one, "equally likely: at index"),
    ("15.2", lambda z, t, s: cut()(z, t, s)[..., :3], "expected shape"),
    ("15.2", lambda z, t, s: cut()(z, t, s).tolist(), "expected a tensor, got list"),
    ("15.2", lambda z, t, s: print(end=""), "does it end in a return"),
    ("15.3", losses(stride=lambda w: w, drop=lambda w: 0), "30 tokens, window 8: windows that do not overlap"),
    ("15.3", losses(drop=lambda w: 0), "all predictions of all windows count"),
    ("15.3", losses(first_too=True), "of the first window, too"),
    ("15.3", losses(whole_only=True), "the last, shorter window is missing"),
    ("15.3", losses(reduce=lambda found: torch.stack([x.mean() for x in found]).mean()), "mean over the windows"),
    ("15.3", losses(drop=lambda w: w // 2 + 1), "one row too many"),
    ("15.3", losses(drop=lambda w: w // 2 - 1), "one row too few"),
    ("15.3", losses(stride=lambda w: 1, drop=lambda w: w - 1), "one token apart"),
    ("15.3", over_read(torch.sum), "this is the sum"),
    ("15.3", over_read(lambda x: x.mean() / LN_2), "these are bits"),
    ("15.3", over_read(lambda x: -x.mean()), "the sign"),
    ("15.3", over_read(lambda x: x.sum() / (len(x) + 1)), "the first is not predicted"),
    ("15.3", over_read(lambda x: x.mean().exp()), "this is the perplexity"),
    ("15.3", over_read(lambda x: -(-x).exp().mean()), "logarithms already"),
    ("15.3", loss_of_all_at_once, "raised ValueError: predict was given 29 tokens"),
    ("15.3", loss_of_the_same_token, "expected .*, got"),
    ("15.3", lambda predict, ids, window: losses()(lambda x: predict(x[None])[0], ids, window), "of one window"),
    ("15.3", lambda predict, ids, window: [losses()(predict, ids, window)], "expected a number, got list"),
    ("15.3", lambda predict, ids, window: print(end=""), "does it end in a return"),
    ("15.4", keep_and_rest(keep=lambda p, q: p / q), "keep: above 1"),
    ("15.4", keep_and_rest(keep=lambda p, q: (p >= q).float()), "not never"),
    ("15.4", keep_and_rest(keep=lambda p, q: p), "Divide by draft"),
    ("15.4", keep_and_rest(keep=lambda p, q: (q / p).clamp(max=1)), "the other way round"),
    ("15.4", keep_and_rest(keep=lambda p, q: torch.ones_like(p)), "what comes out is the draft"),
    ("15.4", keep_and_rest(keep=lambda p, q: torch.zeros_like(p)), "never sooner"),
    ("15.4", keep_and_rest(keep=torch.minimum), r"return keep"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: p), "rest: this is target itself"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: missing), "rest: what is missing must be made"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: missing / missing.sum()), "over all rows"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: summed((q - p).clamp(min=0))), "draft is above target"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: summed((p - q).abs())), "too much of is not missing"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: q), "rest: this is draft itself"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: missing.softmax(dim=-1)), "miss nothing a share"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: summed(p * (1 - keep))), "NaN|target − draft · keep"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: torch.full_like(p, 1 / p.size(-1))), "evenly"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: summed(missing)), "agree in one row: rest holds NaN"),
    ("15.4", keep_and_rest(rest=lambda p, q, keep, missing: p - q), "no entry below 0"),
    ("15.4", lambda p, q: keep_and_rest()(p, q)[0], "return two tensors"),
    ("15.4", lambda p, q: tuple(one.tolist() for one in keep_and_rest()(p, q)), "expected a tensor, got list"),
    ("15.4", lambda p, q: (keep_and_rest()(p, q)[0].sum(-1), p), r"keep: expected shape \(4, 6\), got \(4,\)"),
    ("15.4", lambda p, q: keep_and_rest()(p, q)[::-1], "keep: "),
    ("15.4", lambda p, q: print(end=""), "does it end in a return"),
    ("15.5", Floats, "does a float take part"),
    ("15.5", FloatDecoder, "does a float take part"),
    ("15.5", RoundsDown, "below the interval: round up"),
    ("15.5", TheEnd, "the end of the interval, which is not included"),
    ("15.5", Backwards, "read backwards"),
    ("15.5", Wasteful, "it has 11 bits"),
    ("15.5", IncludesTheEnd, "A part's beginning belongs to it|raised"),
    ("15.5", AlwaysTheSameCounts, "ask counts anew"),
    ("15.5", OneTooFew, "expected 2 tokens, got 1"),
    ("15.5", Numbers, "a string of 0 and 1"),
    ("15.5", NothingEncoded, "encode returned None"),
    ("15.5", NothingDecoded, "decode returned None"),
    ("15.5", Remembers, "AttributeError: .*no attribute 'ids'"),
    ("15.5", Exact(), "hand over the class"),
]

RIGHT = [
    ("15.1", UNITS),
    ("15.1", [1.5, 1.04, 5.66, 1.25]),
    ("15.1", torch.tensor(UNITS)),
    ("15.2", cut()),
    ("15.2", cut_by_logits),
    ("15.2", cut_by_row),
    ("15.2", lambda logits, temperature, share: cut()(logits.double(), temperature, share)),
    ("15.3", losses()),
    ("15.3", loss_token_by_token),
    ("15.3", lambda predict, ids, window: torch.tensor(losses()(predict, ids, window))),
    ("15.4", keep_and_rest()),
    ("15.4", keep_and_rest(rest=rest_evenly)),
    ("15.4", keep_and_rest(keep=keep_by_minimum)),
    ("15.4", lambda p, q: list(keep_and_rest()(p.double(), q.double()))),
    ("15.5", Exact),
    ("15.5", WholeNumbers),
]
