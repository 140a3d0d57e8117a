"""The exercises of chapter 08, decoding."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.config import BOS, EOS, PAD
from annotated.course.exercises.diagnosis import Exercise, compare

NextLogProbs = Callable[[list[int]], Tensor]


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
            "this divides by |Y|^α; the penalty is ((5 + |Y|) / 6)^α.": torch.tensor(math.log(1.6) / math.log(19 / 7)),
            "this is 2^α. Take the logarithm to get α.": torch.tensor(1.6),
            "this is −α: with a negative one the short sentence would win by more.": torch.tensor(-expected),
            "this is 1/α: log P is divided by the base to the power of α.": torch.tensor(1 / expected),
            "this is the logarithm of 1.6; divide it by the logarithm of 4/2.": torch.tensor(math.log(1.6)),
        },
        tolerance=0.006,
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
        diagnosis = compare(answer(logits.clone(), temperature, p), expected, mistakes)
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
    n: int,
    *,
    penalty: Callable[[int], float] = lambda length: (5 + length) / 6,
    each_keeps: bool = False,
    finished_within: int = 1,
    end_extends: bool = False,
    shrinks: bool = False,
    stop_at: int | None = None,
) -> list[tuple[list[int], float]]:
    """The n best of a beam search, with a choice of what is usually got wrong."""
    unfinished: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in unfinished:
            own = [([*ids, t], total + s) for t, s in enumerate(next_log_probs(ids).tolist()) if s > -math.inf]
            candidates += sorted(own, key=lambda one: -one[1])[:1] if each_keeps and length > 1 else own
        candidates.sort(key=lambda one: -one[1])
        inside = candidates[: beam * finished_within]
        finished += [(ids[:-1], total / penalty(length) ** alpha) for ids, total in inside if ids[-1] == EOS]
        if shrinks:
            unfinished = [one for one in candidates[:beam] if one[0][-1] != EOS]
        elif end_extends:
            unfinished = candidates[:beam]
        else:
            unfinished = [one for one in candidates if one[0][-1] != EOS][:beam]
        finished.sort(key=lambda one: -one[1])
        if not unfinished or (stop_at is not None and len(finished) >= stop_at):
            break
        if len(finished) >= n and finished[n - 1][1] >= unfinished[0][1] / penalty(limit) ** alpha:
            break
    return finished[:n]


def same_list(found: Any, expected: list[tuple[list[int], float]]) -> bool:
    """Tell whether two n-best lists hold the same sentences and scores."""
    return len(found) == len(expected) and all(
        list(map(int, ours)) == theirs and math.isclose(float(score), wanted, abs_tol=1e-4)
        for (ours, score), (theirs, wanted) in zip(found, expected, strict=True)
    )


def n_best(answer: Callable[..., list[tuple[list[int], float]]]) -> str | None:
    """Beam search for one sentence, on tables of random probabilities, against a reference."""
    cases = [
        (random_table(s, end=-1.0), b, a, 6, n) for s in range(6) for b, a, n in ((3, 0.6, 1), (2, 1.4, 2), (4, 0.0, 3))
    ]
    found = [answer(*case) for case in cases]
    if any(one is None for one in found):
        return "your function returned None: does it end in a return?"
    for one in found:
        shaped = isinstance(one, list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in one)
        if not shaped:
            return "return a list of pairs: (ids, score), best first."
    expected = [search(*case) for case in cases]
    wrong = [i for i in range(len(cases)) if not same_list(found[i], expected[i])]
    if not wrong:
        wide = (random_table(9), 2000, 0.6, 4, 5)  # nothing is dropped: the true five best of all
        every = search(*wide)
        return (
            None if same_list(answer(*wide), every) else "with a beam so wide that nothing is dropped, some are lost."
        )
    mistakes: dict[str, dict[str, Any]] = {
        "the length penalty has no effect.": {"penalty": lambda length: 1.0},
        "|Y| counts <eos> as well: your lengths are one short.": {"penalty": lambda length: (4 + length) / 6},
        "you divide by |Y|^α; the penalty is ((5 + |Y|) / 6)^α.": {"penalty": lambda length: float(length)},
        "each beginning keeps its own best continuation: let the continuations of all compete.": {"each_keeps": True},
        "an <eos> outside the best `beam` candidates does not count as finished.": {"finished_within": 99},
        "a beginning that ended in <eos> is extended further: set it aside.": {"end_extends": True},
        "the beam shrinks when a hypothesis finishes: go on with the best `beam` unfinished ones.": {"shrinks": True},
        "it stops as soon as n are finished, although a better one may come.": {"stop_at": -1},
        "it stops at the first finished hypothesis, although a better one may come.": {"stop_at": 1},
    }
    for diagnosis, change in mistakes.items():
        if all(
            same_list(found[i], search(*case, **(change if change != {"stop_at": -1} else {"stop_at": case[4]})))
            for i, case in enumerate(cases)
        ):
            return diagnosis
    if all(
        same_list([(list(map(int, ids))[:-1], score) for ids, score in f], e)
        for f, e in zip(found, expected, strict=True)
    ):
        return "leave <eos> out of the ids you return."
    if all(same_list([(ids, score) for ids, score in f][::-1], e) for f, e in zip(found, expected, strict=True)):
        return "best first: your list is in the wrong order."
    _, beam, alpha, limit, n = cases[wrong[0]]
    ours, theirs = found[wrong[0]], expected[wrong[0]]
    shown = [([int(i) for i in ids], round(float(score), 3)) for ids, score in ours]
    wanted = [(ids, round(score, 3)) for ids, score in theirs]
    return f"beam {beam}, α = {alpha}, limit {limit}, n = {n}: expected {wanted}, got {shown}."


def every_sentence(next_log_probs: NextLogProbs, limit: int) -> list[tuple[list[int], float]]:
    """All sentences of at most `limit` tokens, <eos> included, most probable first."""
    return search(next_log_probs, 10**6, 0.0, limit, 10**6)


def exact_search(answer: Callable[..., tuple[list[int], float]]) -> str | None:
    """The most probable sentence, proved, with few calls of the model."""
    limit = 5
    for seed in (0, 1, 2, 3, 13):
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
        if not same_list([(ids, log_prob)], [(best_ids, best)]):
            if ids == [*best_ids, EOS]:
                return "leave <eos> out of the ids you return."
            if ids == best_ids:
                return f"the ids are right; their log P is {best:.3f}, got {log_prob:.3f}. Does it include <eos>?"
            greedy = search(table, 1, 0.0, limit, 1, stop_at=1)
            if same_list([(ids, log_prob)], greedy):
                return f"this is what greedy search finds, log P {log_prob:.3f}; there is a sentence with {best:.3f}."
            rank = next((i for i, pair in enumerate(everything) if pair[0] == ids), None)
            if rank is None:
                return f"these ids are no sentence of at most {limit} tokens, <eos> included: {ids}."
            return f"{rank} sentences are more probable than yours: the best has log P {best:.3f}, got {log_prob:.3f}."
        if calls and max(calls) >= limit:
            return (
                f"you extend beginnings of {max(calls)} tokens; with <eos> they would be longer than limit = {limit}."
            )
        if len(calls) > 200:
            return (
                f"the sentence is right, but it took {len(calls)} calls of the model. A beginning that is already less "
                "probable than your best finished sentence can never win: leave it out."
            )
    return None


EXERCISES = {
    "08.1": Exercise("One step of a beam by hand", beam_step_by_hand),
    "08.2": Exercise("Where two sentences are level", level_alpha),
    "08.3": Exercise("Drawing from the nucleus", nucleus),
    "08.4": Exercise("The n best", n_best),
    "08.5": Exercise("The best sentence, proved", exact_search),
}
