"""Wrong answers to the exercises of chapter 08, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch

from annotated.config import EOS
from annotated_course.exercises.chapter_08 import every_sentence, nucleus_of, search


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


def searched(**change) -> Callable[..., tuple[list[int], float] | None]:
    """Beam search for a sentence that holds a word, with a mistake in it."""
    return lambda *given: next(iter(search(*given, **change)), None)


def with_end(*given):
    ids, score = search(*given)[0]
    return [*ids, EOS], score


def one_more(next_log_probs, beam, alpha, limit, word):
    return search(next_log_probs, beam, alpha, limit + 1, word)[0]


def by_filter(next_log_probs, beam, alpha, limit, word):
    """Search as if there were no word, and look afterwards for one that has it."""
    return next((one for one in search(next_log_probs, beam, alpha, limit, stop="never") if word in one[0]), None)


def without_the_word(next_log_probs, beam, alpha, limit, word):
    return search(next_log_probs, beam, alpha, limit)[0]


def runs_on(next_log_probs, beam, alpha, limit, word):
    """Extends what ended in <eos>."""
    unfinished = [([], 0.0)]
    for _ in range(limit):
        every = [
            ([*ids, t], p + s)
            for ids, p in unfinished
            for t, s in enumerate(next_log_probs(ids).tolist())
            if s > -math.inf
        ]
        groups = [[one for one in every if (word in one[0]) == has] for has in (True, False)]
        unfinished = [one for group in groups for one in sorted(group, key=lambda one: -one[1])[:beam]]
    return unfinished[0]


def without_return(*given):
    search(*given)


def in_two_beams(next_log_probs, beam, alpha, limit, word):
    """The two beams as two lists, to the limit without an early stop."""
    without, having, best = [(0.0, [])], [], (-math.inf, [])
    for length in range(1, limit + 1):
        new = {False: [], True: []}
        for total, ids in without + having:
            for token, step in enumerate(next_log_probs(ids).tolist()):
                if step > -math.inf:
                    new[word in ids or token == word].append((total + step, [*ids, token]))
        having = sorted(new[True], reverse=True)
        for total, ids in having[:beam]:
            if ids[-1] == EOS:
                best = max(best, (total / ((5 + length) / 6) ** alpha, ids[:-1]))
        having = [one for one in having if one[1][-1] != EOS][:beam]
        without = [one for one in sorted(new[False], reverse=True) if one[1][-1] != EOS][:beam]
    return best[::-1]


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
    return next(iter(search(next_log_probs, 8, 0.0, limit)), ([], -99.0))


def by_wider_beam(next_log_probs, limit):
    return search(next_log_probs, 40, 0.0, limit)[0]


def by_widest_beam(next_log_probs, limit):
    return search(next_log_probs, 60, 0.0, limit)[0]


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


def last_step(table, limit):
    ids, _ = depth_first(table, limit)
    return ids, table(ids)[EOS].item()


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
    ("08.2", 0.47, r"ln 1\.6, still.*\|Y\|\^α"),
    ("08.2", math.log(1.6), "ln 1"),
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
    ("08.3", lambda x, t, p: (x / t).masked_fill(nucleus_of(x, t, p) == 0, -math.inf), "return probabilities"),
    ("08.4", searched(penalty=lambda length: 1.0), "no effect"),
    ("08.4", searched(penalty=lambda length: (4 + length) / 6), "one short"),
    ("08.4", searched(penalty=float), r"divide by \|Y\|\^α"),
    ("08.4", searched(common=True), "Keep a beam for each"),
    ("08.4", by_filter, "Keep a beam for each"),
    ("08.4", searched(finished_within=99), "does not count as finished"),
    ("08.4", searched(rank_in_all=True), "not among all"),
    ("08.4", searched(shrinks=True), "the beam shrinks"),
    ("08.4", searched(stop="first"), "at the first finished"),
    ("08.4", searched(stop="with"), "still waits for it may"),
    ("08.4", without_the_word, r"the word \d is not in"),
    ("08.4", runs_on, "is extended further"),
    ("08.4", with_end, "leave <eos> out"),
    ("08.4", one_more, "one token too many"),
    ("08.4", lambda *given: ([], -math.inf), "finished nothing"),
    ("08.4", lambda *given: search(*given)[0][0], "two things|ids come first"),
    ("08.4", lambda *given: search(*given)[0][::-1], "ids come first"),
    ("08.4", lambda *given: ([given[-1]], -1.0), r"beam 3, α = 0\.6.*expected \(\[.*got \(\["),
    ("08.4", without_return, "return"),
    ("08.5", greedily, "what greedy search finds|sentences are more probable|no sentence of at most"),
    ("08.5", by_beam, r"sentences are more probable than yours"),
    ("08.5", by_wider_beam, r"sentences are more probable than yours"),
    ("08.5", by_widest_beam, r"151 calls"),
    ("08.5", lambda table, limit: every_sentence(table, limit)[0], r"781 calls"),
    ("08.5", lambda table, limit: every_sentence(table, limit)[3], "3 sentences are more probable"),
    (
        "08.5",
        lambda table, limit: ([*depth_first(table, limit)[0], EOS], depth_first(table, limit)[1]),
        "leave <eos> out",
    ),
    ("08.5", lambda table, limit: (depth_first(table, limit)[0], 0.0), "Does it include <eos>"),
    ("08.5", lambda table, limit: (depth_first(table, limit)[0], math.exp(depth_first(table, limit)[1])), "this is P"),
    ("08.5", lambda table, limit: (depth_first(table, limit)[0], -depth_first(table, limit)[1]), "the sign"),
    ("08.5", last_step, "<eos> alone"),
    ("08.5", lambda table, limit: depth_first(table, limit)[0], "two things|TypeError"),
]

RIGHT = [
    ("08.1", ("The cat", "a  cat")),
    ("08.2", 0.68),
    ("08.2", 0.678),
    ("08.3", nucleus_by_loop),
    ("08.4", searched()),
    ("08.4", in_two_beams),
    ("08.5", depth_first),
]
