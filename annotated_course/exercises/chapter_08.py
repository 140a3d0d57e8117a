"""The exercises of chapter 08, decoding."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.config import BOS, EOS, PAD
from annotated_course.exercises.diagnosis import Exercise, compare

NextLogProbs = Callable[[list[int]], Tensor]
Sentence = tuple[list[int], float]  # ids without <eos>, and a score or a log P with it


def beam_step_by_hand(answer: Any) -> str | None:
    """Beginnings "a" (0.5) and "the" (0.4), beam 2: "a <eos>" is second, and finished; "a cat", the third, goes on."""
    if not isinstance(answer, list | tuple) or len(answer) != 2 or not all(isinstance(one, str) for one in answer):
        return 'give a list of two beginnings, such as ["a bird", "the bird"].'
    found = [" ".join(one.lower().split()) for one in answer]
    if found == ["the cat", "a cat"]:
        return None
    if sorted(found) == ["a cat", "the cat"]:
        return "these two are right; the more probable one comes first."
    known = {
        ("the cat", "the bird"): "the bird has 0.4 · 0.3 = 0.12; a cat has 0.5 · 0.36 = 0.18.",
        ("a cat", "a dog"): "you extended the best beginning only: the continuations of all compete.",
        ("the cat", "a <eos>"): "a finished sentence is set aside; the search goes on with the best unfinished ones.",
    }
    for wrong, diagnosis in known.items():
        if sorted(found) == sorted(wrong):
            return diagnosis
    if any(one.endswith("<eos>") for one in found):
        return "a beginning that ends in <eos> is finished: list those that are extended next."
    return "multiply each beginning's probability by that of the next word, sort all six, leave out <eos>, keep two."


def level_alpha(answer: Any) -> str | None:
    """2^α = 1.6, as the bases are (5 + 7)/6 = 2 and (5 + 19)/6 = 4."""
    expected = math.log(1.6) / math.log(2)
    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        torch.tensor(expected),
        {
            "|Y| counts <eos> as well: 7 and 19 tokens.": torch.tensor(math.log(1.6) / math.log(23 / 11)),
            "this is ln 1.6, still to be divided by ln (4/2); or it has |Y|^α in place of ((5 + |Y|) / 6)^α.": (
                torch.tensor(math.log(1.6))  # ln 1.6 / ln (19/7) is the same to three digits
            ),
            "this is 2^α. Take the logarithm to get α.": torch.tensor(1.6),
            "this is −α: with a negative one the short sentence would win by more.": torch.tensor(-expected),
            "this is 1/α: log P is divided by the base to the power of α.": torch.tensor(1 / expected),
        },
        tolerance=0.006,
        by_hand=True,
    )


def nucleus_of(
    logits: Tensor,
    temperature: float,
    p: float,
    *,
    last: bool = True,
    renormalise: bool = True,
    cut_first: bool = False,
    rising: bool = False,
) -> Tensor:
    """The nucleus of a softmax, with a choice of what is usually got wrong."""
    probabilities = (logits / (1 if cut_first else temperature)).softmax(-1)
    ordered, order = probabilities.sort(dim=-1, descending=not rising)
    before = ordered.cumsum(-1) - (ordered if last else 0)
    kept = torch.zeros_like(probabilities).scatter(-1, order, (before < p).float())
    if cut_first:
        probabilities = (logits / temperature).softmax(-1)
    chosen = probabilities * kept
    return chosen / chosen.sum(-1, keepdim=True) if renormalise else chosen


def nucleus(answer: Callable[..., Tensor]) -> str | None:
    """The distribution that nucleus sampling draws from, for a batch of logits."""
    logits = 2 * torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    for temperature, p in ((1.5, 0.5), (0.6, 0.8), (1.0, 0.05)):
        expected = nucleus_of(logits, temperature, p)
        mistakes = {
            "nothing was cut off.": (logits / temperature).softmax(-1),
            "the probabilities must sum to 1 again: divide by what is left.": (
                nucleus_of(logits, temperature, p, renormalise=False)
            ),
            "the token that reaches p belongs to the nucleus: keep a token if the sum BEFORE it is below p.": (
                nucleus_of(logits, temperature, p, last=False)
            ),
            "divide the logits by the temperature; you multiplied.": nucleus_of(logits, 1 / temperature, p),
            "the temperature has no effect.": nucleus_of(logits, 1.0, p),
            "the temperature comes first: choose the nucleus from the tempered probabilities.": (
                nucleus_of(logits, temperature, p, cut_first=True)
            ),
            "you kept the least probable tokens: sort in falling order.": (
                nucleus_of(logits, temperature, p, rising=True)
            ),
            "your probabilities are in sorted order: put each back to its token (scatter).": (
                expected.sort(dim=-1, descending=True).values
            ),
        }
        mistakes = {text: wrong for text, wrong in mistakes.items() if not wrong.isnan().any()}
        found = answer(logits.clone(), temperature, p)
        if isinstance(found, Tensor) and bool((found == -math.inf).any()):
            return "these are logits or logarithms, with −∞ for what is left out: return probabilities, with 0."
        diagnosis = compare(found, expected, mistakes)
        if diagnosis:
            return f"temperature {temperature}, p = {p}: {diagnosis}"
    return None


def random_table(seed: int, vocab: int = 9, end: float = 0.0) -> NextLogProbs:
    """A model to search in: the next token depends on all before it; `end` is added to the logit of <eos>."""

    def next_log_probs(ids: list[int]) -> Tensor:
        number = seed
        for token in ids:
            number = (101 * number + int(token)) % 2**31
        logits = 2 * torch.randn(vocab, generator=torch.Generator().manual_seed(number))
        logits[[PAD, BOS]] = -math.inf
        logits[EOS] += end
        return logits.log_softmax(-1)

    return next_log_probs


def search(
    next_log_probs: NextLogProbs,
    beam: int,
    alpha: float,
    limit: int,
    word: int | None = None,
    *,
    penalty: Callable[[int], float] = lambda length: (5 + length) / 6,
    common: bool = False,
    finished_within: int = 1,
    rank_in_all: bool = False,
    shrinks: bool = False,
    stop: str = "bound",
) -> list[Sentence]:
    """What a beam search finishes, best first, with a choice of what is usually got wrong.

    With a word, only sentences that hold it are finished, and a beam is kept for each of two groups: the beginnings
    that have the word, and those that have not. It stops by the "bound", by that of those "with" the word, at the
    "first" finished one, or "never" before the limit.
    """
    unfinished: list[Sentence] = [([], 0.0)]
    finished: list[Sentence] = []
    for length in range(1, limit + 1):
        candidates = [
            ([*ids, token], total + step)
            for ids, total in unfinished
            for token, step in enumerate(next_log_probs(ids).tolist())
            if step > -math.inf
        ]
        candidates.sort(key=lambda one: -one[1])
        holding = [one for one in candidates if word is None or word in one[0]]
        waiting = [one for one in candidates if not (word is None or word in one[0])]
        groups = [candidates] if common else [holding, waiting]
        ranked = candidates if common or rank_in_all else holding
        for ids, total in ranked[: beam * finished_within]:
            if ids[-1] == EOS and (word is None or word in ids):
                finished.append((ids[:-1], total / penalty(length) ** alpha))
        unfinished = []
        for group in groups:
            going_on = [one for one in group if one[0][-1] != EOS]
            unfinished += [one for one in group[:beam] if one[0][-1] != EOS] if shrinks else going_on[:beam]
        finished.sort(key=lambda one: -one[1])
        watched = [total for ids, total in unfinished if stop != "with" or word in ids]
        bound = max(watched, default=-math.inf) / penalty(limit) ** alpha
        if not unfinished or (finished and stop != "never" and (stop == "first" or finished[0][1] >= bound)):
            break
    return finished


def same_sentence(found: Any, expected: Sentence | None) -> bool:
    """Tell whether two sentences have the same ids and the same number; None is one that was not found."""
    if found is None or expected is None:
        return found is expected
    return list(map(int, found[0])) == expected[0] and math.isclose(float(found[1]), expected[1], abs_tol=1e-4)


def with_word(answer: Callable[..., Sentence]) -> str | None:
    """Beam search for a sentence that holds a word, on tables of random probabilities, against a reference."""
    cases = [
        (random_table(seed, end=0.5), beam, alpha, 6, 3 + seed % 6)
        for seed in (0, 3, 4, 5, 9, 10, 11, 18)  # tables on which each mistake below shows
        for beam, alpha in ((3, 0.6), (2, 1.4), (4, 0.0))
    ]
    found = [answer(*case) for case in cases]
    if all(one is None for one in found):
        return "your function returned None: does it end in a return?"
    if not all(one is None or (isinstance(one, tuple | list) and len(one) == 2) for one in found):
        return "return two things: the ids, without <eos>, and the score."
    if not all(one is None or isinstance(one[0], tuple | list) for one in found):
        return "the ids come first, as a list; then the score."
    expected = [search(*case)[0] for case in cases]
    wrong = [i for i in range(len(cases)) if not same_sentence(found[i], expected[i])]
    if not wrong:
        table, limit, word = random_table(9), 4, 5
        wide = answer(table, 2000, 0.6, limit, word)  # nothing is dropped: the true best of all that hold the word
        scores = [(ids, p / ((6 + len(ids)) / 6) ** 0.6) for ids, p in every_sentence(table, limit) if word in ids]
        right = same_sentence(wide, max(scores, key=lambda one: one[1]))
        return None if right else "with a beam so wide that nothing is dropped, the best sentence is lost."
    mistakes: dict[str, dict[str, Any]] = {
        "the length penalty has no effect.": {"penalty": lambda length: 1.0},
        "|Y| counts <eos> as well: your lengths are one short.": {"penalty": lambda length: (4 + length) / 6},
        "you divide by |Y|^α; the penalty is ((5 + |Y|) / 6)^α.": {"penalty": lambda length: float(length)},
        "one beam for all: there, beginnings that have the word lose to those that have not. Keep a beam for each.": {
            "common": True
        },
        "an <eos> outside the best `beam` continuations of its group does not count as finished.": {
            "finished_within": 99
        },
        "rank an <eos> among the continuations that have the word, not among all.": {"rank_in_all": True},
        "the beam shrinks when a sentence finishes: go on with the best `beam` unfinished ones.": {"shrinks": True},
        "it stops at the first finished sentence, although a better one may come.": {"stop": "first"},
        "it stops when no beginning that has the word can win; one that still waits for it may.": {"stop": "with"},
    }
    later = [next(iter(search(*case[:3], case[3] + 1, case[4])), None) for case in cases]
    if all(same_sentence(one, other) for one, other in zip(found, later, strict=True)):
        return "you allow one token too many: `limit` counts <eos> as well."
    for diagnosis, change in mistakes.items():
        others = [next(iter(search(*case, **change)), None) for case in cases]
        if all(same_sentence(one, other) for one, other in zip(found, others, strict=True)):
            return diagnosis
    trimmed = [one if one is None else (list(map(int, one[0]))[:-1], one[1]) for one in found]
    if all(same_sentence(one, other) for one, other in zip(trimmed, expected, strict=True)):
        return "leave <eos> out of the ids you return."
    for one, case in zip(found, cases, strict=True):
        if one is None or not math.isfinite(float(one[1])):
            return f"beam {case[1]}, limit {case[3]}: your search finished nothing, and a sentence ends in time."
        if EOS in list(map(int, one[0])):
            return "a sentence that ended in <eos> is extended further: set it aside."
        if case[-1] not in list(map(int, one[0])):
            return f"the word {case[-1]} is not in {list(map(int, one[0]))}: only a sentence that holds it may win."
    _, beam, alpha, limit, word = cases[wrong[0]]
    best, one = expected[wrong[0]], found[wrong[0]]
    ours = None if one is None else (list(map(int, one[0])), round(float(one[1]), 3))
    wanted = (best[0], round(best[1], 3))
    return f"beam {beam}, α = {alpha}, limit {limit}, word {word}: expected {wanted}, got {ours}."


def every_sentence(next_log_probs: NextLogProbs, limit: int) -> list[Sentence]:
    """All sentences of at most `limit` tokens, <eos> included, with their log P, most probable first."""
    return search(next_log_probs, 10**6, 0.0, limit, stop="never")


def exact_search(answer: Callable[..., tuple[list[int], float]]) -> str | None:
    """The most probable sentence, proved, with few calls of the model."""
    limit = 5
    for seed in (0, 1, 2, 3, 13, 331):  # on the last, a beam finds the best only with more than 120 calls
        table = random_table(seed, vocab=8, end=-3.0)
        calls: list[int] = []

        def counted(ids: list[int], table: NextLogProbs = table, calls: list[int] = calls) -> Tensor:
            calls.append(len(ids))
            return table(ids)

        found = answer(counted, limit)
        if not isinstance(found, tuple | list) or len(found) != 2:
            return "return two things: the ids, without <eos>, and their log-probability."
        ids, log_prob = [int(i) for i in found[0]], float(found[1])
        everything = every_sentence(table, limit)
        best_ids, best = everything[0]
        if not same_sentence((ids, log_prob), (best_ids, best)):
            if ids == [*best_ids, EOS]:
                return "leave <eos> out of the ids you return."
            if ids == best_ids:
                if math.isclose(log_prob, math.exp(best), abs_tol=1e-4):
                    return f"the ids are right, but this is P; its logarithm is {best:.3f}."
                if math.isclose(log_prob, -best, abs_tol=1e-4):
                    return f"the ids are right, but the sign is not: log P is negative, {best:.3f}."
                if math.isclose(log_prob, float(table(ids)[EOS]), abs_tol=1e-4):
                    return f"this is log P of <eos> alone; that of the sentence adds up all steps, {best:.3f}."
                return f"the ids are right; their log P is {best:.3f}, got {log_prob:.3f}. Does it include <eos>?"
            greedy = search(table, 1, 0.0, limit, stop="first")
            if greedy and same_sentence((ids, log_prob), greedy[0]):
                return f"this is what greedy search finds, log P {log_prob:.3f}; there is a sentence with {best:.3f}."
            rank = next((i for i, pair in enumerate(everything) if pair[0] == ids), None)
            if rank is None:
                return f"these ids are no sentence of at most {limit} tokens, <eos> included: {ids}."
            return f"{rank} sentences are more probable than yours: the best has log P {best:.3f}, got {log_prob:.3f}."
        if calls and max(calls) >= limit:
            return (
                f"you extend beginnings of {max(calls)} tokens; with <eos> they would be longer than limit = {limit}."
            )
        if len(calls) > 120:
            return (
                f"the sentence is right, but it took {len(calls)} calls of the model. A beginning that is already less "
                "probable than your best finished sentence can never win: leave it out."
            )
    return None


EXERCISES = {
    "08.1": Exercise("One step of a beam by hand", beam_step_by_hand),
    "08.2": Exercise("Where two sentences are level", level_alpha),
    "08.3": Exercise("Drawing from the nucleus", nucleus),
    "08.4": Exercise("The best with a given word", with_word),
    "08.5": Exercise("The best sentence, proved", exact_search),
}
