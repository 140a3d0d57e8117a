"""The exercises of chapter 11, evaluation."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from itertools import product
from math import exp, log, sqrt
from operator import or_
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.exercise import Exercise, Run, as_numbers, calls, draw

EXERCISES: dict[str, Exercise] = {}


def read_bleu(answer: Any) -> Tensor | str:
    """Round a BLEU to one decimal; all below 1 look alike."""
    bleu = as_numbers(answer)
    return "a part of 1" if 0 < bleu < 1 else bleu.round(decimals=1)


MEAN, BREVITY = 100 * sqrt(4 / 5 * 2 / 4), exp(1 - 6 / 5)  # words 4/5, pairs 2/4, 5 words against 6
EXERCISES["11.1"] = Exercise(
    "BLEU on paper",
    right=BREVITY * MEAN,
    cases={"": read_bleu},
    mistakes={
        "BLEU is usually given times 100.": BREVITY * MEAN / 100,
        "clip: an n-gram counts at most as often as the reference has it.": BREVITY * 100 * sqrt(1 * 3 / 4),
        "the brevity penalty is missing: 5 words against 6.": MEAN,
        "the brevity penalty is e^(1 − r/c), with c, the translation's length, below the line.": exp(1 / 6) * MEAN,
        "this is the arithmetic mean of the precisions: take the square root of their product.": BREVITY * 65,
    },
    by_hand=True,
)


def ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    """Count the sequences of n tokens."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def counted(translation: list[str], references: list[list[str]]) -> list[int]:
    """Count for BLEU with several references: the two lengths, then matches and total for n from 1 to 4."""
    lengths = [len(reference) for reference in references]
    closest = min(lengths, key=lambda r: (abs(r - len(translation)), r))
    row = [len(translation), closest]
    for n in (1, 2, 3, 4):
        written, wanted = ngrams(translation, n), [ngrams(reference, n) for reference in references]
        row += [(written & reduce(or_, wanted)).total(), written.total()]
    return row


def letters(translation: str, *references: str) -> Run:
    """Make a case of a translation with its references, written with a letter for each word."""
    return calls(list(translation), [list(reference) for reference in references])


EXERCISES["11.2"] = Exercise(
    "Several references",
    right=counted,
    cases={
        "": letters("tdstrbotrf", "otrfWSadBahni", "tdstrbotlwf", "HabXrbotSQmnopvw"),
        "with repeated words: ": letters("2mpcitkitk", "2mpcoaeitk", "2mxoaenpc"),
        "with references of 4, 6 and 10 words: ": letters("agzay", "agzajyquMF", "tjgzay", "agzY"),
    },
    mistakes={
        "only the first reference counts: use all of them.": "in references] → in references[:1]]",
        "the references' counts are added up: take the largest.": "reduce(or_, wanted) → sum(wanted, Counter())",
        "the n-grams are matched with one reference only: take the largest count n-gram by n-gram.": (
            "(written & reduce(or_, wanted)).total() → max((written & one).total() for one in wanted)"
        ),
        "of two references equally close in length, r takes the shorter.": "), r) → ), -r)",
    },
)


def p_of(ours: Tensor, theirs: Tensor, score: Callable[[Tensor], float]) -> float:
    """The p of a paired exchange over all ways, of which the first one leaves the systems as they are."""
    swaps = torch.tensor([*product([False, True], repeat=len(ours))])[:, :, None]  # (way, sentence, 1)
    first, second = torch.where(swaps, theirs, ours), torch.where(swaps, ours, theirs)
    scores = [(score(a.sum(0)), score(b.sum(0))) for a, b in zip(first, second, strict=True)]
    differences = torch.tensor([a - b for a, b in scores], dtype=torch.float64)
    reached = differences.abs() >= differences[0].abs() - 1e-9
    return float(reached.double().mean())


def precision(counts: Tensor) -> float:
    """Give the share of matches: the share of sums is not the mean of shares."""
    return float(counts[0] / counts[1])


# Of a system that writes too much, and of one that does not: what matches of each sentence, and what is written.
ONE = torch.tensor([[2, 12], [4, 11], [1, 6], [7, 13], [4, 9], [4, 9], [5, 11]])
OTHER = torch.tensor([[4, 14], [3, 11], [2, 6], [7, 9], [1, 5], [3, 13], [2, 10]])
EXERCISES["11.3"] = Exercise(
    "An exact test",
    right=p_of,
    cases={"": calls(ONE, OTHER, precision), "with the systems exchanged: ": calls(OTHER, ONE, precision)},
    mistakes={
        "either direction counts: compare absolute values.": "= differences.abs() → = differences; [0].abs() → [0]",
        "an exchange that makes exactly the real difference counts as well: at least as large.": ">= → >; - 1e → + 1e",
        "what a system gets the other gives: exchange in both.": "(swaps, ours, theirs) → (swaps, theirs, theirs)",
    },
    tolerance=1e-6,
)


LOGITS = 2 * draw(3, 2, 6)
IMPROBABLE = torch.tensor([0.0, 0, 200, 0, 0, 0])  # e⁻²⁰⁰ is 0 in 32 bits


def ensemble(logits: Tensor) -> Tensor:
    """The logarithm of the models' mean probability."""
    return logits.log_softmax(-1).logsumexp(0) - log(len(logits))


EXERCISES["11.4"] = Exercise(
    "An ensemble's log-probabilities",
    right=ensemble,
    cases={"": calls(LOGITS), "with a very improbable token: ": calls(LOGITS - IMPROBABLE)},
    mistakes={
        "average the probabilities, not the logits.": lambda logits: logits.mean(0).log_softmax(-1),
        "take the logarithm of the mean, not the mean of the logarithms.": "logsumexp(0) - log(len(logits)) → mean(0)",
        "each model's logits need their own softmax before they are joined.": ".log_softmax(-1) →",
        "a probability was too small for 32 bits: use logsumexp.": lambda logits: logits.softmax(-1).mean(0).log(),
    },
)


def best(weights: Tensor, by: int) -> tuple[int, int]:
    """The (layer, head) whose mean weight `by` places to the right is the largest."""
    scores = weights.diagonal(by, dim1=-2, dim2=-1).mean(-1)
    layer, head = divmod(int(scores.argmax()), weights.size(1))
    return layer, head


# With this seed every mistake gives another head, whatever the direction.
MAPS = (2 * draw(4, 5, 6, 6, seed=8174)).softmax(-1)
EXERCISES["11.5"] = Exercise(
    "Find the head that looks back",
    right=best,
    cases={f"by = {by}: ": calls(MAPS, by) for by in (-1, 2, 1)},
    mistakes={
        "this is the flat index: give layer and head (divmod).": "return layer, head → return int(scores.argmax())",
        "that head looks in the other direction: rows look, columns are looked at.": "diagonal(by → diagonal(-by",
        "a position without such a token does not count; you went round.": "diagonal(by → roll(-by, -1).diagonal(0",
    },
)
