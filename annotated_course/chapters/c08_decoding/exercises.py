"""The exercises of chapter 08, decoding."""

import heapq
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated.config import BOS, EOS, PAD
from annotated_course.exercises.exercise import Exercise, WrongFormError, by_hand, calls, draw, slip

EXERCISES: dict[str, Exercise] = {}
Table = Callable[[list[int]], Tensor]  # from the ids so far to log P of each token that may come next
Sentence = tuple[list[int], float]  # ids without <eos>, and a score or a log P with it


def beginnings(answer: Any) -> list[str]:
    """Read two beginnings, in whatever case and with whatever spaces."""
    if not isinstance(answer, list | tuple) or len(answer) != 2 or not all(isinstance(one, str) for one in answer):
        raise WrongFormError('give a list of two beginnings, such as ["a bird", "the bird"]', answer)
    return [" ".join(one.lower().split()) for one in answer]


EXERCISES["08.1"] = Exercise(
    "One step of a beam by hand",
    right=["the cat", "a cat"],
    cases={"": beginnings},
    mistakes={
        "these two are right; the more probable one comes first.": ["a cat", "the cat"],
        "the bird has 0.4 · 0.3 = 0.12; a cat has 0.5 · 0.36 = 0.18.": ["the cat", "the bird"],
        "you extended the best beginning only: the continuations of all compete.": ["a cat", "a dog"],
        "a finished sentence is set aside; go on with the unfinished ones.": ["the cat", "a <eos>"],
    },
    by_hand=True,
)

ALPHA = math.log(1.6) / math.log(2)  # as the bases are (5 + 7)/6 = 2 and (5 + 19)/6 = 4
EXERCISES["08.2"] = by_hand(
    "Where two sentences are level",
    ALPHA,
    {
        "|Y| counts <eos> as well: 7 and 19 tokens.": math.log(1.6) / math.log(23 / 11),
        "divide ln 1.6 by ln (4/2): the bases are (5 + |Y|) / 6, not |Y|.": math.log(1.6) / math.log(19 / 7),
        "this is 2^α. Take the logarithm to get α.": 1.6,
        "this is −α: with a negative one the short sentence would win by more.": -ALPHA,
    },
)


def nucleus(logits: Tensor, temperature: float, p: float) -> Tensor:
    """The distribution that nucleus sampling draws from."""
    whole = (logits / temperature).softmax(-1)
    ordered, order = whole.sort(descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(whole).scatter(-1, order, (before < p).float())
    return whole * kept / (whole * kept).sum(-1, keepdim=True)


LOGITS = 2 * draw(3, 9)
EXERCISES["08.3"] = Exercise(
    "Drawing from the nucleus",
    right=nucleus,
    cases={f"temperature {t}, p = {p}: ": calls(LOGITS, t, p) for t, p in ((1.5, 0.5), (0.6, 0.8), (1.0, 0.05))},
    mistakes={
        "nothing was cut off.": "* kept →",
        "the probabilities must sum to 1 again: divide by what is left.": "/ (whole * kept).sum(-1, keepdim=True) →",
        "the token that reaches p belongs to the nucleus: keep a token if the sum BEFORE it is below p.": "- ordered →",
        "divide the logits by the temperature; you multiplied.": "logits / → logits *",
    },
    forbids="loop: sort and add up along the last axis.",
)


def random_table(seed: int, vocab: int = 9, end: float = 0.0) -> Table:
    """A model to search in: the next token depends on all before it; `end` is added to the logit of <eos>."""

    def next_log_probs(ids: list[int]) -> Tensor:
        number = seed
        for token in ids:
            number = (101 * number + int(token)) % 2**31
        logits = 2 * draw(vocab, seed=number)
        logits[[PAD, BOS]] = -math.inf
        logits[EOS] += end
        return logits.log_softmax(-1)

    return next_log_probs


def score(total: float, length: int, alpha: float) -> float:
    """The score of a sentence, whose length counts <eos> as well."""
    return total / ((5 + length) / 6) ** alpha


def finished(next_log_probs: Table, beam: int, alpha: float, limit: int, word: int) -> list[Sentence]:
    """What a beam search finishes, best first; each sentence holds the word, which is any where it is −1.

    A beam is kept for each of two groups: the beginnings that have the word, and those that have not.
    """
    unfinished: list[Sentence] = [([], 0.0)]
    found: list[Sentence] = []
    for length in range(1, limit + 1):
        candidates = [
            ([*ids, token], total + step)
            for ids, total in unfinished
            for token, step in enumerate(next_log_probs(ids).tolist())
            if step > -math.inf
        ]
        candidates.sort(key=lambda one: -one[1])
        holding = [one for one in candidates if word in (-1, *one[0])]
        waiting = [one for one in candidates if word not in (-1, *one[0])]
        ranked = holding[:beam]
        found += [(ids[:-1], score(total, length, alpha)) for ids, total in ranked if ids[-1] == EOS]
        unfinished = []
        for group in (holding, waiting):
            unfinished += [one for one in group if one[0][-1] != EOS][:beam]
        found.sort(key=lambda one: -one[1])
        bound = max((total for _, total in unfinished), default=-math.inf)
        if not unfinished or (found and found[0][1] >= score(bound, limit, alpha)):
            break
    return found


def with_word(next_log_probs: Table, beam: int, alpha: float, limit: int, word: int, search: Any = finished) -> Any:
    """Find the best sentence that holds a word."""
    return next(iter(search(next_log_probs, beam, alpha, limit, word)), None)


FIRST = "or (found and found[0][1] >= score(bound, limit, alpha)) → or found"
OF_ALL = "ranked = holding → ranked = candidates; if ids[-1] == EOS → if ids[-1] == EOS and word in (-1, *ids)"
SEARCHES = {
    "the length penalty has no effect.": "length, alpha → length, 0.0; limit, alpha) → limit, 0.0)",
    "|Y| counts <eos> as well.": "total, length → total, length - 1; bound, limit → bound, limit - 1",
    "keep a beam for each: those with the word, and those without.": f"{OF_ALL}; (holding, waiting) → [candidates]",
    "rank an <eos> among the continuations that have the word, not among all.": OF_ALL,
    "the beam shrinks when a sentence finishes: keep as many unfinished ones.": "in group if → in group[:beam] if",
    "it stops at the first finished sentence, although a better one may come.": FIRST,
    "leave <eos> out of the ids you return.": "return found → return [([*ids, EOS], total) for ids, total in found]",
}
SETTINGS = [
    (seed, beam, alpha, 3 + seed % 6)
    for seed in (0, 3, 4, 5, 9, 10, 11, 18)  # tables on which each of these mistakes shows
    for beam, alpha in ((3, 0.6), (2, 1.4), (4, 0.0))
]


WIDE = "with a beam so wide that nothing is dropped, the best sentence is lost: "
EXERCISES["08.4"] = Exercise(
    "The best with a given word",
    right=with_word,
    cases={
        f"random_table({seed}, end=0.5), beam {beam}, α = {alpha}, limit 6, word {word}: ": (
            calls(random_table(seed, end=0.5), beam, alpha, 6, word)
        )
        for seed, beam, alpha, word in SETTINGS
    }
    | {WIDE: calls(random_table(17), 2000, 0.6, 4, 5)},
    mistakes={told: partial(with_word, search=slip(finished, changes)) for told, changes in SEARCHES.items()},
    caught={WIDE: lambda table, beam, *rest: with_word(table, min(beam, 4), *rest)},
)


TABLES = [191, 1, 2, 3, 13, 331]  # greedy search ends on the first; on the last a beam takes over 120 calls


def examine_proof(answer: Callable[..., Sentence]) -> str | None:
    """Count the calls of the model, and see how long the beginnings are."""
    for seed in TABLES:
        table, asked = random_table(seed, vocab=8, end=-3.0), list[int]()
        answer(lambda ids, table=table, asked=asked: asked.append(len(ids)) or table(ids), 5)
        if max(asked, default=0) >= 5:
            return f"you extend beginnings of {max(asked)} tokens; with <eos> they would be longer than limit = 5."
        if len(asked) > 120:
            return (
                f"the sentence is right, but it took {len(asked)} calls of the model. A beginning that is already less "
                "probable than your best finished sentence can never win: leave it out."
            )
    return None


def best_first(next_log_probs: Table, limit: int) -> Sentence:
    """Extend the most probable beginning until that is a sentence."""
    queue: list[tuple[float, list[int]]] = [(0.0, [])]
    while True:
        cost, ids = heapq.heappop(queue)
        if ids[-1:] == [EOS]:
            return ids[:-1], -cost
        if len(ids) < limit:
            for token, step in enumerate(next_log_probs(ids).tolist()):
                heapq.heappush(queue, (cost - step, [*ids, token]))


def spoiled(change: Callable[..., Any]) -> Any:
    """Find the best sentence, and change it: what is returned from the model, the ids and their log P."""
    return lambda table, limit: change(table, *best_first(table, limit))


EXERCISES["08.5"] = Exercise(
    "The best sentence, proved",
    right=best_first,
    cases={f"random_table({i}, vocab=8, end=-3.0), limit 5: ": calls(random_table(i, 8, -3.0), 5) for i in TABLES},
    mistakes={
        "leave <eos> out of the ids you return.": spoiled(lambda table, ids, log_p: ([*ids, EOS], log_p)),
        "this is log P of <eos> alone: add up all steps.": spoiled(lambda table, ids, _: (ids, table(ids)[EOS].item())),
        "this is what greedy search finds.": lambda table, limit: slip(finished, FIRST)(table, 1, 0.0, limit, -1)[0],
    },
    examine=examine_proof,
    caught={
        "you extend beginnings of 5 tokens": spoiled(lambda table, ids, log_p: (table([3] * 5), (ids, log_p))[1]),
        "it took 151 calls": lambda table, limit: finished(table, 60, 0.0, limit, -1)[0],
    },
)
