"""The exercises of chapter 11, evaluation."""

from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from itertools import product
from math import exp, log, prod, sqrt
from operator import add, or_
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.exercise import Exercise, Run, as_numbers, calls, listed

EXERCISES: dict[str, Exercise] = {}


def read_bleu(answer: Any) -> Tensor | str:
    """Round a BLEU to one decimal; all below 1 look alike."""
    found = as_numbers(answer)
    return "a part of 1" if 0 < found < 1 else found.round(decimals=1)


MEAN, BREVITY = 100 * sqrt(4 / 5 * 2 / 4), exp(1 - 6 / 5)  # words 4/5, pairs 2/4, 5 words against 6
EXERCISES["11.1"] = Exercise(
    "BLEU on paper",
    right=BREVITY * MEAN,
    cases={"": read_bleu},
    mistakes={
        "BLEU is usually given times 100.": BREVITY * MEAN / 100,
        "clip: an n-gram counts at most as often as the reference has it.": BREVITY * 100 * sqrt(1 * 3 / 4),
        "you clipped the words; clip the pairs too: the dog stands twice here, once there.": (
            BREVITY * 100 * sqrt(4 / 5 * 3 / 4)
        ),
        "each n-gram of the translation counts up to as often as the reference has it: the twice, dog once.": (
            BREVITY * 100 * sqrt(3 / 5 * 2 / 4)
        ),
        "the brevity penalty is missing: 5 words against 6.": MEAN,
        "the brevity penalty is e^(1 − r/c), with c, the translation's length, below the line.": exp(1 / 6) * MEAN,
        "the brevity penalty is e^(1 − r/c), not c/r.": 5 / 6 * MEAN,
        "this is the arithmetic mean of the precisions: take the square root of their product.": BREVITY * 65,
        "take the square root of the product of the two precisions.": BREVITY * MEAN**2 / 100,
        "with two precisions the root is a square root, not a fourth root.": BREVITY * 10 * sqrt(MEAN),
    },
    by_hand=True,
)


def ngrams(tokens: list[str], n: int) -> Counter:
    """Count the sequences of n tokens."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def geometric(precisions: list[float]) -> float:
    """Give the geometric mean, also of zeros."""
    return prod(precisions) ** (1 / len(precisions))


def bleu(
    *given: Any,
    matches: Callable[[Counter, list[Counter]], int] = lambda found, several: (found & reduce(or_, several)).total(),
    better: Callable[[int, int], Any] = lambda c, r: (abs(r - c), r),
    combine: Callable[[list[float], int, int], float] = lambda p, c, r: exp(min(0.0, 1 - r / c)) * geometric(p),
) -> float:
    """BLEU of translations with several references each, maybe with another rule for one of its parts."""
    pairs = list(zip(*given, strict=True))
    precisions = []
    for n in (1, 2, 3, 4):
        counts = [(ngrams(ours, n), [ngrams(theirs, n) for theirs in several]) for ours, several in pairs]
        precisions.append(sum(matches(*one) for one in counts) / sum(found.total() for found, _ in counts))
    lengths = [(len(ours), min(map(len, several), key=partial(better, len(ours)))) for ours, several in pairs]
    return 100 * combine(precisions, *map(sum, zip(*lengths, strict=True)))


def corpus(*sentences: tuple[str, list[str]]) -> Run:
    """Make a case of translations with their references, written with a letter for each word."""
    return calls([list(ours) for ours, _ in sentences], [[list(one) for one in several] for _, several in sentences])


EXERCISES["11.2"] = Exercise(
    "BLEU with several references",
    right=bleu,
    cases={
        "": corpus(
            ("tdstrbotrf", ["tdstrbotlwfvth", "otrfWSadBahniHab"]),
            ("2mpcitkitk", ["2mpcoaeitk", "2mxoaenpc"]),
            ("agzay", ["agzajyquMF", "tjgzay", "agzY"]),
        ),
        "a translation that is longer than its reference: ": corpus(("tdstrbotlwfvthxyz", ["tdstrbotlwfvth"])),
        "a corpus without a matching 3-gram, BLEU 0: ": corpus(("amrog", ["amwog", "amog"])),
    },
    mistakes={
        "off by a factor 100: give BLEU as 0 … 100.": lambda t, r: bleu(t, r) / 100,
        "this is the mean of the sentences' BLEUs: add up the counts of all sentences first.": (
            lambda t, r: mean(bleu([ours], [several]) for ours, several in zip(t, r, strict=True))
        ),
        "only the first reference counts: use all of them.": lambda t, r: bleu(t, [several[:1] for several in r]),
        "the counts of the references are added up: take the largest of them.": (
            partial(bleu, matches=lambda found, several: (found & reduce(add, several)).total())
        ),
        "each sentence is matched with one reference only: take the largest count n-gram by n-gram.": (
            partial(bleu, matches=lambda found, several: max((found & one).total() for one in several))
        ),
        "a repeated n-gram counts too often: at most as often as a reference has it.": (
            partial(bleu, matches=lambda found, several: sum(found[gram] for gram in reduce(or_, several)))
        ),
        "each n-gram counts once only; count it up to as often as a reference has it.": (
            partial(bleu, matches=lambda found, several: len(found.keys() & reduce(or_, several)))
        ),
        "of two references equally close in length, r takes the shorter.": (
            partial(bleu, better=lambda c, r: (abs(r - c), -r))
        ),
        "the brevity penalty is missing.": partial(bleu, combine=lambda p, c, r: geometric(p)),
        "the brevity penalty has the lengths swapped: exp(1 − r/c), with c for the translation.": (
            partial(bleu, combine=lambda p, c, r: exp(1 - c / r) * geometric(p))
        ),
        "the brevity penalty is exp(1 − r/c), not c/r.": (
            partial(bleu, combine=lambda p, c, r: min(1.0, c / r) * geometric(p))
        ),
        "this is the arithmetic mean of the precisions: take the fourth root of their product.": (
            partial(bleu, combine=lambda p, c, r: exp(1 - r / c) * mean(p))
        ),
        "the n-grams go up to 4.": partial(bleu, combine=lambda p, c, r: exp(1 - r / c) * geometric(p[:3])),
    }
    | {
        f"r takes the {wrong} reference: take the one whose length is closest to the translation's.": (
            partial(bleu, better=better)
        )
        for wrong, better in (("shortest", lambda c, r: r), ("longest", lambda c, r: -r), ("first", lambda *_: 0))
    },
    tolerance=1e-3,
)


def extreme(differences: Tensor) -> Tensor:
    """Tell which differences are at least as large as the first one, in either direction."""
    return differences.abs() >= differences[0].abs() - 1e-9


def p_of(*given: Any, reached: Any = extreme, paired: bool = True, pooled: bool = True) -> float:
    """The p of a paired exchange over all ways, of which the first one leaves the systems as they are."""
    ours, theirs, score = given
    swaps = torch.tensor([*product([False, True], repeat=len(ours))])[:, :, None]  # (way, sentence, 1)
    both = torch.where(swaps, theirs, ours), torch.where(swaps & paired, ours, theirs)
    scores = [[score(one.sum(dim=0)) if pooled else mean(map(score, one)) for one in system] for system in both]
    first, second = torch.tensor(scores, dtype=torch.float64)
    return float(reached(first - second).double().mean())


def precision(counts: Tensor) -> float:
    """Give the share of matches: the share of sums is not the mean of shares."""
    return float(counts[0] / counts[1])


# Of a system that writes too much, and of one that does not: what matches of each sentence, and what is written.
ONE = torch.tensor([[2, 12], [4, 11], [1, 6], [7, 13], [4, 9], [4, 9], [5, 11]])
OTHER = torch.tensor([[4, 14], [3, 11], [2, 6], [7, 9], [1, 5], [3, 13], [2, 10]])
EXERCISES["11.3"] = Exercise(
    "An exact test",
    right=p_of,
    cases={
        "": calls(ONE, OTHER, precision),
        "with the systems exchanged: ": calls(OTHER, ONE, precision),
    },
    mistakes={
        "count differences in either direction: compare absolute values.": partial(p_of, reached=lambda d: d >= d[0]),
        "an exchange that makes exactly the real difference counts as well: at least as large.": (
            partial(p_of, reached=lambda d: d.abs() > d[0].abs() + 1e-9)
        ),
        "the way without any exchange is one of the 2ⁿ; leave it in.": (
            partial(p_of, reached=lambda d: extreme(d)[1:])
        ),
        "what one system gets the other gives: exchange in both.": partial(p_of, paired=False),
        "add up the counts of all sentences, then score once.": partial(p_of, pooled=False),
        "this is how many; p is the share of all 2ⁿ.": lambda *given: 2**7 * p_of(*given),
        "this is 1 − p.": lambda *given: 1 - p_of(*given),
    },
    tolerance=1e-6,
)


LOGITS = 2 * torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(0))
IMPROBABLE = torch.tensor([0.0, 0, 200, 0, 0, 0])  # e⁻²⁰⁰ is 0 in 32 bits
EXERCISES["11.4"] = Exercise(
    "An ensemble's log-probabilities",
    right=lambda x: x.log_softmax(-1).logsumexp(0) - log(len(x)),
    cases={"": calls(LOGITS), "with a very improbable token: ": calls(LOGITS - IMPROBABLE)},
    mistakes={
        "these are probabilities: give their logarithms.": lambda x: x.softmax(-1).mean(0),
        "you averaged the logits: average the probabilities, after each model's softmax.": (
            lambda x: x.mean(0).log_softmax(-1)
        ),
        "these are mean logits: average the probabilities, after each model's softmax.": lambda x: x.mean(0),
        "this is the mean of the logarithms; you need the logarithm of the mean.": lambda x: x.log_softmax(-1).mean(0),
        "this is the sum of the probabilities: divide by the number of models, that is subtract its logarithm.": (
            lambda x: x.log_softmax(-1).logsumexp(0)
        ),
        "each model's logits need their own softmax before they are joined.": lambda x: x.logsumexp(0) - log(len(x)),
        "normalise each model by itself, not the sum of exponentials of all.": lambda x: x.logsumexp(0).log_softmax(-1),
        "a probability was too small for 32 bits: do not leave the logarithms (torch.logsumexp).": (
            lambda x: x.softmax(-1).mean(0).log()
        ),
    },
)


def looks(weights: Tensor, by: int) -> Tensor:
    """Each head's mean weight `by` places to the right."""
    return weights.diagonal(by, dim1=-2, dim2=-1).mean(-1)


def best(weights: Tensor, by: int, score: Callable[[Tensor, int], Tensor] = looks) -> tuple[int, int]:
    """The (layer, head) with the largest score."""
    layer, head = divmod(int(score(weights, by).argmax()), weights.size(1))
    return layer, head


# With this seed every mistake gives another head, whatever the direction.
MAPS = (2 * torch.randn(4, 5, 6, 6, generator=torch.Generator().manual_seed(8174))).softmax(-1)
EXERCISES["11.5"] = Exercise(
    "Find the head that looks back",
    right=best,
    cases={f"by = {by}: ": listed(calls(MAPS, by)) for by in (-1, 2, 1)},
    mistakes={
        "this is the flat index: give the layer and the head (divmod).": lambda w, by: int(looks(w, by).argmax()),
        "the head comes second: (layer, head).": lambda w, by: best(w, by)[::-1],
        "that head looks in the other direction: rows look, columns are looked at.": lambda w, by: best(w, -by),
        "a position without such a token does not count; you went round the end.": (
            lambda w, by: best(w.roll(-by, dims=-1), 0)
        ),
        "that is the smallest weight, not the largest.": lambda w, by: best(-w, by),
        "count from 0.": lambda w, by: tuple(1 + place for place in best(w, by)),
        "you summed a triangle of the map; take one diagonal.": (
            partial(best, score=lambda w, by: w.triu(by).sum((-1, -2)))
        ),
        "you counted rows; take the mean of the weights themselves.": (
            partial(best, score=lambda w, by: (w.argmax(-1) == torch.arange(w.size(-1)) + by).sum(-1))
        ),
    },
)
