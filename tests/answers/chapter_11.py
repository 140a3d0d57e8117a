"""Wrong answers to the exercises of chapter 11, each with a pattern of its diagnosis; and other right answers."""

import itertools
import math
from collections.abc import Callable

import torch

from annotated_course.exercises.chapter_11 import best_head, bleu_of, p_of


def scored(score: Callable[..., float]) -> Callable[..., float]:
    """BLEU of a corpus by a given rule."""
    return lambda translations, references: score(translations, references)


def mean_of_sentences(translations, references):
    return sum(bleu_of([t], [r]) for t, r in zip(translations, references, strict=True)) / len(translations)


def longer_of_two(translations, references):
    """Of two references equally close in length, the longer."""
    return bleu_of(translations, references, length=lambda c, lengths: min(lengths, key=lambda r: (abs(r - c), -r)))


def exchanged(**change) -> Callable[..., float]:
    """The exact test with a mistake in it."""
    return lambda ours, theirs, score: p_of(ours, theirs, score, **change)


def p_by_signs(ours, theirs, score):
    """The exact test, with halves of sum and difference."""
    total, half = (ours + theirs).double().sum(0), (ours - theirs).double() / 2
    real = abs(score(ours.sum(0)) - score(theirs.sum(0)))
    found = []
    for signs in itertools.product((1.0, -1.0), repeat=len(ours)):
        moved = (torch.tensor(signs, dtype=torch.double)[:, None] * half).sum(0)
        found.append(abs(score(total / 2 + moved) - score(total / 2 - moved)) >= real - 1e-9)
    return sum(found) / len(found)


def ensemble_by_mean(logits):
    """Probabilities in double precision, which holds e⁻²⁰⁰."""
    return logits.double().softmax(-1).mean(0).log().float()


def looks_by_loop(weights, by):
    means = {}
    for layer, heads in enumerate(weights):
        for head, one in enumerate(heads):
            looked = [one[i, i + by] for i in range(len(one)) if 0 <= i + by < len(one)]
            means[layer, head] = sum(looked) / len(looked)
    return max(means, key=means.get)


def rows_by_largest(weights, by):
    """The head with the most rows that look there most."""
    rows = (weights.argmax(-1) == torch.arange(weights.size(-1)) + by).sum(-1)
    return divmod(int(rows.argmax()), weights.size(1))


WRONG = [
    ("11.1", 70.9, "clip: an n-gram"),
    ("11.1", 63.4, "clip the pairs too"),
    ("11.1", 63.2, "brevity penalty is missing"),
    ("11.1", 74.7, "below the line"),
    ("11.1", 52.7, "not c/r"),
    ("11.1", 53.2, "arithmetic mean"),
    ("11.1", 32.7, "take the square root"),
    ("11.1", 65.1, "not a fourth root"),
    ("11.1", 44.8, "the twice, dog once"),
    ("11.1", 0.518, "times 100"),
    ("11.1", 51.7, r"it is not 51\.7\."),
    ("11.1", 52, r"it is not 52\."),
    ("11.1", "51.8", "raised (ValueError|TypeError)"),
    ("11.2", scored(lambda t, r: bleu_of(t, r) / 100), "factor 100"),
    ("11.2", mean_of_sentences, "mean of the sentences"),
    ("11.2", scored(lambda t, r: bleu_of(t, [one[:1] for one in r])), "only the first reference"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, clip="sum")), "are added up"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, clip="one")), "one reference only"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, length=lambda c, lengths: min(lengths))), "takes the shortest"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, length=lambda c, lengths: max(lengths))), "takes the longest"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, length=lambda c, lengths: lengths[0])), "takes the first"),
    ("11.2", longer_of_two, "equally close"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, clip="none")), "counts too often"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, clip="sets")), "once only"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, brevity=lambda c, r: 1.0)), "penalty is missing"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, brevity=lambda c, r: math.exp(1 - c / r))), "swapped"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, brevity=lambda c, r: min(1.0, c / r))), "not c/r"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, brevity=lambda c, r: math.exp(1 - r / c))), "longer than its reference"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, mean="arithmetic")), "arithmetic mean"),
    ("11.2", scored(lambda t, r: bleu_of(t, r, largest=3)), "up to 4"),
    ("11.2", scored(lambda t, r: max(bleu_of(t, r), 1e-1)), "without a matching 3-gram"),
    ("11.2", scored(lambda t, r: None), "return"),
    ("11.2", scored(lambda t, r: str(bleu_of(t, r))), "expected a number, got str"),
    ("11.3", exchanged(one_sided=True), "either direction"),
    ("11.3", exchanged(strictly=True), "at least as large"),
    ("11.3", exchanged(with_itself=False), "leave it in"),
    ("11.3", exchanged(paired=False), "exchange in both"),
    ("11.3", exchanged(pooled=False), "then score once"),
    ("11.3", lambda *given: 128 * p_of(*given), "how many"),
    ("11.3", lambda *given: p_of(*given) + 1 / 128, r"expected 0\.\d+, got 0"),
    ("11.3", lambda *given: 1 - p_of(*given), "1 − p"),
    ("11.3", lambda *given: p_of(*given) and None, "expected a number, got NoneType"),
    ("11.4", lambda x: x.mean(0).log_softmax(-1), "averaged the logits"),
    ("11.4", lambda x: x.mean(0), "mean logits"),
    ("11.4", lambda x: x.log_softmax(-1).mean(0), "logarithm of the mean"),
    ("11.4", lambda x: x.softmax(-1).mean(0), "give their logarithms"),
    ("11.4", lambda x: x.log_softmax(-1).logsumexp(0), "subtract its logarithm"),
    ("11.4", lambda x: x.logsumexp(0) - math.log(len(x)), "their own softmax"),
    ("11.4", lambda x: x.logsumexp(0).log_softmax(-1), "by itself"),
    ("11.4", lambda x: x.softmax(-1).mean(0).log(), "too small for 32 bits"),
    ("11.4", lambda x: ensemble_by_mean(x).dim() > 9 or None, "return"),
    ("11.5", lambda w, by: best_head(w, by)[::-1], "head comes second"),
    ("11.5", lambda w, by: best_head(w, -by), "other direction"),
    ("11.5", lambda w, by: best_head(w, by, wraps=True), "went round the end"),
    ("11.5", lambda w, by: best_head(w, by, lowest=True), "smallest"),
    ("11.5", lambda w, by: tuple(i + 1 for i in best_head(w, by)), "count from 0"),
    ("11.5", lambda w, by: w.diagonal(by, dim1=-2, dim2=-1).mean(-1).argmax(), "flat index"),
    ("11.5", lambda w, by: divmod(int(w.triu(by).sum((-1, -2)).argmax()), w.size(1)), "triangle"),
    ("11.5", rows_by_largest, "counted rows"),
    ("11.5", lambda w, by: (9, 9), r"expected \(\d, \d\), got \(9, 9\)"),
    ("11.5", lambda w, by: best_head(w, by) and None, "return"),
]

RIGHT = [
    ("11.1", 51.8),
    ("11.1", 51.78),
    ("11.2", scored(bleu_of)),
    ("11.3", exchanged()),
    ("11.3", p_by_signs),
    ("11.4", ensemble_by_mean),
    ("11.5", looks_by_loop),
]
