"""Wrong answers to the exercises of chapter 08, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch

from annotated.config import EOS
from annotated.course.exercises.chapter_08 import every_sentence, nucleus_of, search


def nucleus_by_loop(logits, temperature, p):
    """The nucleus, token by token."""
    rows = []
    for row in (logits / temperature).softmax(-1).tolist():
        kept, total = [0.0] * len(row), 0.0
        for token in sorted(range(len(row)), key=lambda i: -row[i]):
            if total < p:
                kept[token] = row[token]
            total += row[token]
        rows.append([one / sum(kept) for one in kept])
    return torch.tensor(rows)


def searched(**change) -> Callable[..., list[tuple[list[int], float]]]:
    """Beam search with a mistake in it."""
    return lambda next_log_probs, beam, alpha, limit, n: search(next_log_probs, beam, alpha, limit, n, **change)


def stops_at_n(next_log_probs, beam, alpha, limit, n):
    return search(next_log_probs, beam, alpha, limit, n, stop_at=n)


def with_end(next_log_probs, beam, alpha, limit, n):
    return [([*ids, EOS], score) for ids, score in search(next_log_probs, beam, alpha, limit, n)]


def worst_first(next_log_probs, beam, alpha, limit, n):
    return search(next_log_probs, beam, alpha, limit, n)[::-1]


def only_ids(next_log_probs, beam, alpha, limit, n):
    return [ids for ids, _ in search(next_log_probs, beam, alpha, limit, n)]


def without_return(next_log_probs, beam, alpha, limit, n):
    search(next_log_probs, beam, alpha, limit, n)


def greedily(next_log_probs, limit):
    ids, total = [], 0.0
    while len(ids) < limit:
        step, token = next_log_probs(ids).max(-1)
        total += step.item()
        if token == EOS:
            break
        ids.append(token.item())
    return ids, total


def by_beam(next_log_probs, limit):
    return next(iter(search(next_log_probs, 8, 0.0, limit, 1)), ([], -99.0))


def depth_first(next_log_probs, limit):
    """Try everything that is not yet less probable than the best sentence so far."""
    best = ([], -math.inf)

    def go_on(ids, total):
        nonlocal best
        for token, step in enumerate(next_log_probs(ids).tolist()):
            if total + step > best[1]:
                if token == EOS:
                    best = (ids, total + step)
                elif len(ids) + 1 < limit:
                    go_on([*ids, token], total + step)

    go_on([], 0.0)
    return best


WRONG = [
    ("08.1", ["a cat", "the cat"], "more probable one comes first"),
    ("08.1", ["a cat", "a dog"], "extended the best beginning only"),
    ("08.1", ["the cat", "a <eos>"], "set aside"),
    ("08.1", ["the cat", "the bird"], "the bird has 0.4"),
    ("08.1", ["a cat", "the <eos>"], "is finished"),
    ("08.1", ["cat", "cat"], "multiply each"),
    ("08.1", 0.24, "list of two"),
    ("08.2", 0.64, "counts <eos>"),
    ("08.2", 0.475, r"\|Y\|\^α"),
    ("08.2", 1.6, "Take the logarithm"),
    ("08.2", -0.678, "−α"),
    ("08.2", 1.475, "1/α"),
    ("08.2", 0.47, r"\|Y\|\^α|divide it by"),
    ("08.2", "0.68", "raised (ValueError|TypeError)"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p, renormalise=False), "sum to 1 again"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p, last=False), "BEFORE"),
    ("08.3", lambda x, t, p: nucleus_of(x, 1 / t, p), "you multiplied"),
    ("08.3", lambda x, t, p: nucleus_of(x, 1.0, p), "no effect"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p, cut_first=True), "temperature comes first"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p, rising=True), "least probable"),
    ("08.3", lambda x, t, p: (x / t).softmax(-1), "nothing was cut off"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p).sort(-1, descending=True).values, "sorted order"),
    ("08.3", lambda x, t, p: nucleus_of(x, t, p)[0], "expected shape"),
    ("08.4", searched(penalty=lambda length: 1.0), "no effect"),
    ("08.4", searched(penalty=lambda length: (4 + length) / 6), "one short"),
    ("08.4", searched(penalty=float), r"divide by \|Y\|\^α"),
    ("08.4", searched(each_keeps=True), "let the continuations of all compete"),
    ("08.4", searched(finished_within=99), "does not count as finished"),
    ("08.4", searched(end_extends=True), "is extended further"),
    ("08.4", searched(shrinks=True), "the beam shrinks"),
    ("08.4", searched(stop_at=1), "at the first finished"),
    ("08.4", stops_at_n, "as soon as n are finished"),
    ("08.4", with_end, "leave <eos> out"),
    ("08.4", worst_first, "wrong order"),
    ("08.4", only_ids, "list of pairs"),
    ("08.4", lambda next_log_probs, beam, alpha, limit, n: [], r"beam 3, α = 0\.6.*expected \[.*got \[\]"),
    ("08.4", without_return, "return"),
    ("08.5", greedily, "what greedy search finds|sentences are more probable|no sentence of at most"),
    ("08.5", by_beam, r"sentences are more probable than yours"),
    ("08.5", lambda table, limit: every_sentence(table, limit)[0], r"781 calls"),
    ("08.5", lambda table, limit: every_sentence(table, limit)[3], "3 sentences are more probable"),
    (
        "08.5",
        lambda table, limit: ([*depth_first(table, limit)[0], EOS], depth_first(table, limit)[1]),
        "leave <eos> out",
    ),
    ("08.5", lambda table, limit: (depth_first(table, limit)[0], 0.0), "Does it include <eos>"),
    ("08.5", lambda table, limit: depth_first(table, limit)[0], "two things|TypeError"),
]

RIGHT = [
    ("08.1", ("The cat", "a  cat")),
    ("08.2", 0.68),
    ("08.2", 0.678),
    ("08.3", nucleus_by_loop),
    ("08.4", searched()),
    ("08.5", depth_first),
]
