"""The exercises of chapter 11, evaluation."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.diagnosis import Exercise, compare


def bleu_on_paper(answer: Any) -> str | None:
    """Words 4/5, pairs 2/4, 5 words against 6: e^(1 − 6/5) · √(4/5 · 2/4)."""
    brevity, mean = math.exp(1 - 6 / 5), math.sqrt(4 / 5 * 2 / 4)
    known = {
        "clip: an n-gram counts at most as often as the reference has it.": brevity * math.sqrt(1 * 3 / 4),
        "you clipped the words; clip the pairs too: the dog stands twice here, once there.": (
            brevity * math.sqrt(4 / 5 * 3 / 4)
        ),
        "each n-gram of the translation counts up to as often as the reference has it: the twice, dog once.": (
            brevity * math.sqrt(3 / 5 * 2 / 4)
        ),
        "the brevity penalty is missing: 5 words against 6.": mean,
        "the brevity penalty is e^(1 − r/c), with c, the translation's length, below the line.": (
            math.exp(1 - 5 / 6) * mean
        ),
        "the brevity penalty is e^(1 − r/c), not c/r.": 5 / 6 * mean,
        "this is the arithmetic mean of the precisions: take the square root of their product.": (
            brevity * (4 / 5 + 2 / 4) / 2
        ),
        "take the square root of the product of the two precisions.": brevity * mean**2,
        "with two precisions the root is a square root, not a fourth root.": brevity * mean**0.5,
    }
    found = torch.as_tensor(answer, dtype=torch.float32)
    if 0 < float(found) < 1:
        return "BLEU is usually given times 100."
    mistakes = {text: torch.tensor(round(100 * wrong, 1)) for text, wrong in known.items()}
    return compare(found.round(decimals=1), torch.tensor(round(100 * brevity * mean, 1)), mistakes, by_hand=True)


def count_ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Count the sequences of n tokens."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu_of(
    translations: list[list[str]],
    references: list[list[list[str]]],
    *,
    clip: str = "largest",
    length: Callable[[int, list[int]], int] = lambda c, lengths: min(lengths, key=lambda r: (abs(r - c), r)),
    brevity: Callable[[int, int], float] = lambda c, r: math.exp(min(0.0, 1 - r / c)),
    mean: str = "geometric",
    largest: int = 4,
) -> float:
    """BLEU of a corpus with several references, with a choice of what is usually got wrong."""
    precisions = []
    for n in range(1, largest + 1):
        matched = total = 0
        for ours, several in zip(translations, references, strict=True):
            found, wanted = count_ngrams(ours, n), Counter[tuple[str, ...]]()
            for theirs in several:
                counts = count_ngrams(theirs, n)
                wanted = wanted + counts if clip == "sum" else wanted | counts
            if clip == "sets":
                matched += len(found.keys() & wanted.keys())
            elif clip == "none":
                matched += sum(count for gram, count in found.items() if gram in wanted)
            elif clip == "one":
                matched += max((found & count_ngrams(theirs, n)).total() for theirs in several)
            else:
                matched += (found & wanted).total()
            total += found.total()
        precisions.append(matched / total if total else 0.0)
    c = sum(map(len, translations))
    r = sum(
        length(len(ours), [len(theirs) for theirs in several])
        for ours, several in zip(translations, references, strict=True)
    )
    if mean == "geometric":
        return 100 * brevity(c, r) * math.prod(precisions) ** (1 / largest)
    return 100 * brevity(c, r) * sum(precisions) / largest


CORPUS = (
    [
        ["the", "dog", "sees", "the", "red", "ball", "on", "the", "red", "floor"],
        ["two", "men", "play", "chess", "in", "the", "park", "in", "the", "park"],
        ["a", "girl", "sings", "a", "song"],
    ],
    [
        [
            ["the", "dog", "sees", "the", "red", "ball", "on", "the", "old", "wooden", "floor", "of", "the", "hall"],
            ["on", "the", "red", "floor", "we", "see", "a", "dog", "by", "a", "hall", "and", "it", "has", "a", "ball"],
        ],
        [
            ["two", "men", "play", "chess", "on", "a", "bench", "in", "the", "park"],
            ["two", "men", "sit", "on", "a", "bench", "and", "play", "chess"],
        ],
        [
            ["a", "girl", "sings", "a", "little", "song", "for", "her", "many", "friends"],
            ["the", "little", "girl", "sings", "a", "song"],
            ["a", "girl", "sings", "songs"],
        ],
    ],
)


def bleu_from_scratch(answer: Callable[..., float]) -> str | None:
    """Corpus BLEU with several references: clipped by the largest count, pooled, geometric, closest length."""

    def each(translations: list[list[str]], references: list[list[list[str]]]) -> float:
        scores = [bleu_of([t], [r]) for t, r in zip(translations, references, strict=True)]
        return sum(scores) / len(scores)

    mistakes: dict[str, Callable[..., float]] = {
        "off by a factor 100: give BLEU as 0 … 100.": lambda t, r: bleu_of(t, r) / 100,
        "this is the mean of the sentences' BLEUs: add up the counts of all sentences first.": each,
        "only the first reference counts: use all of them.": lambda t, r: bleu_of(t, [one[:1] for one in r]),
        "the counts of the references are added up: take the largest of them.": lambda t, r: bleu_of(t, r, clip="sum"),
        "each sentence is matched with one reference only: take the largest count n-gram by n-gram.": (
            lambda t, r: bleu_of(t, r, clip="one")
        ),
        "r takes the shortest reference: take the one whose length is closest to the translation's.": (
            lambda t, r: bleu_of(t, r, length=lambda c, lengths: min(lengths))
        ),
        "r takes the longest reference: take the one whose length is closest to the translation's.": (
            lambda t, r: bleu_of(t, r, length=lambda c, lengths: max(lengths))
        ),
        "r takes the first reference: take the one whose length is closest to the translation's.": (
            lambda t, r: bleu_of(t, r, length=lambda c, lengths: lengths[0])
        ),
        "of two references equally close in length, r takes the shorter.": (
            lambda t, r: bleu_of(t, r, length=lambda c, lengths: min(lengths, key=lambda r: (abs(r - c), -r)))
        ),
        "a repeated n-gram counts too often: at most as often as a reference has it.": (
            lambda t, r: bleu_of(t, r, clip="none")
        ),
        "each n-gram counts once only; count it up to as often as a reference has it.": (
            lambda t, r: bleu_of(t, r, clip="sets")
        ),
        "the brevity penalty is missing.": lambda t, r: bleu_of(t, r, brevity=lambda c, r: 1.0),
        "the brevity penalty has the lengths swapped: exp(1 − r/c), with c for the translation.": (
            lambda t, r: bleu_of(t, r, brevity=lambda c, r: math.exp(1 - c / r))
        ),
        "the brevity penalty is exp(1 − r/c), not c/r.": lambda t, r: bleu_of(t, r, brevity=lambda c, r: c / r),
        "this is the arithmetic mean of the precisions: take the fourth root of their product.": (
            lambda t, r: bleu_of(t, r, mean="arithmetic")
        ),
        "the n-grams go up to 4.": lambda t, r: bleu_of(t, r, largest=3),
    }
    reference = CORPUS[1][0][0]
    long = ([[*reference, "and", "so", "on"]], [[reference]])
    without = (
        [["a", "man", "runs", "on", "grass"]],
        [[["a", "man", "walks", "on", "grass"], ["a", "man", "on", "grass"]]],
    )
    for (translations, references), remark in (
        (CORPUS, ""),
        (long, "a translation that is longer than its reference: "),
        (without, "a corpus without a matching 3-gram, BLEU 0: "),
    ):
        found = answer(translations, references)
        if found is None:
            return "your function returned None: does it end in a return?"
        if isinstance(found, bool) or not isinstance(found, int | float):
            return f"expected a number, got {type(found).__name__}."
        diagnosis = compare(
            torch.tensor(float(found)),
            torch.tensor(bleu_of(translations, references)),
            {text: torch.tensor(float(wrong(translations, references))) for text, wrong in mistakes.items()},
            tolerance=1e-3,
        )
        if diagnosis:
            return remark + diagnosis
    return None


def p_of(
    ours: Tensor,
    theirs: Tensor,
    score: Callable[[Tensor], float],
    *,
    one_sided: bool = False,
    strictly: bool = False,
    with_itself: bool = True,
    paired: bool = True,
    pooled: bool = True,
) -> float:
    """The exact p of a paired exchange, with a choice of what is usually got wrong."""

    def corpus(rows: Tensor) -> float:
        return float(score(rows.sum(dim=0))) if pooled else sum(float(score(row)) for row in rows) / len(rows)

    real = corpus(ours) - corpus(theirs)
    count = reached = 0
    for exchange in itertools.product([False, True], repeat=len(ours)):
        if not with_itself and not any(exchange):
            continue
        swap = torch.tensor(exchange)[:, None]
        first, second = torch.where(swap, theirs, ours), torch.where(swap, ours, theirs)
        difference = corpus(first) - (corpus(second) if paired else corpus(theirs))
        size, least = (difference, real) if one_sided else (abs(difference), abs(real))
        reached += size > least + 1e-9 if strictly else size >= least - 1e-9
        count += 1
    return reached / count


def exact_test(answer: Callable[..., float]) -> str | None:
    """The share of all exchanges whose difference is at least as large as the real one."""

    def score(summed: Tensor) -> float:
        """A precision and a penalty for length, as in BLEU, so that the sum of the scores is not the score of sums."""
        matched, written, wanted = summed.tolist()
        return 100 * matched / written * math.exp(min(0.0, 1 - wanted / written))

    generator = torch.Generator().manual_seed(3)
    wanted = torch.randint(6, 13, (7,), generator=generator)
    systems = []
    for skill in (0.4, 0.8):
        written = wanted + torch.randint(-3, 4, (7,), generator=generator)
        matched = (written * (skill * torch.rand(7, generator=generator) + 0.2)).long()
        systems.append(torch.stack([matched, written, wanted], dim=1))
    mistakes: dict[str, dict[str, bool]] = {
        "count differences in either direction: compare absolute values.": {"one_sided": True},
        "an exchange that makes exactly the real difference counts as well: at least as large.": {"strictly": True},
        "the way without any exchange is one of the 2ⁿ; leave it in.": {"with_itself": False},
        "what one system gets the other gives: exchange in both.": {"paired": False},
        "add up the counts of all sentences, then score once.": {"pooled": False},
    }
    for ours, theirs in (systems, systems[::-1]):
        found = answer(ours, theirs, score)
        if isinstance(found, Tensor) and found.dim() == 0:
            found = found.item()
        if isinstance(found, bool) or not isinstance(found, int | float):
            return f"expected a number, got {type(found).__name__}."
        diagnosis = compare(
            torch.tensor(float(found), dtype=torch.float64),
            torch.tensor(p_of(ours, theirs, score), dtype=torch.float64),
            {
                **{
                    text: torch.tensor(p_of(ours, theirs, score, **change), dtype=torch.float64)
                    for text, change in mistakes.items()
                },
                "this is how many; p is the share of all 2ⁿ.": torch.tensor(
                    128 * p_of(ours, theirs, score), dtype=torch.float64
                ),
                "this is 1 − p.": torch.tensor(1 - p_of(ours, theirs, score), dtype=torch.float64),
            },
            tolerance=1e-6,
        )
        if diagnosis:
            return diagnosis
    return None


def ensemble(answer: Callable[..., Tensor]) -> str | None:
    """The logarithm of the mean probability, also where probabilities are too small for 32 bits."""
    logits = 2 * torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(0))
    far = logits.clone()
    far[..., 2] -= 200.0  # e⁻²⁰⁰ is 0 in 32 bits
    for given, remark in ((logits, ""), (far, "with a very improbable token: ")):
        apart = given.log_softmax(dim=-1)
        expected = apart.logsumexp(dim=0) - math.log(3)
        mistakes = {
            "these are probabilities: give their logarithms.": expected.exp(),
            "you averaged the logits: average the probabilities, after each model's softmax.": (
                given.mean(dim=0).log_softmax(dim=-1)
            ),
            "these are mean logits: average the probabilities, after each model's softmax.": given.mean(dim=0),
            "this is the mean of the logarithms; you need the logarithm of the mean.": apart.mean(dim=0),
            "this is the sum of the probabilities: divide by the number of models, that is subtract its logarithm.": (
                apart.logsumexp(dim=0)
            ),
            "each model's logits need their own softmax before they are joined.": given.logsumexp(dim=0) - math.log(3),
            "normalise each model by itself, not the sum of exponentials of all.": (
                given.logsumexp(dim=0).log_softmax(dim=-1)
            ),
        }
        found = answer(given.clone())
        if isinstance(found, Tensor) and found.shape == expected.shape and (found == -math.inf).any():
            return "a probability was too small for 32 bits: do not leave the logarithms (torch.logsumexp)."
        diagnosis = compare(found, expected, mistakes)
        if diagnosis:
            return remark + diagnosis
    return None


def best_head(weights: Tensor, by: int, *, wraps: bool = False, lowest: bool = False) -> tuple[int, int]:
    """The (layer, head) with the largest mean weight `by` places to the right, with a choice of mistakes."""
    if wraps:
        length = weights.size(-1)
        places = (torch.arange(length) + by) % length
        means = weights[..., torch.arange(length), places].mean(dim=-1)
    else:
        means = weights.diagonal(by, dim1=-2, dim2=-1).mean(dim=-1)
    layer, head = divmod(int(means.argmin() if lowest else means.argmax()), weights.size(1))
    return layer, head


def head_that_looks(answer: Callable[..., tuple[int, int]]) -> str | None:
    """The head with the largest mean on a diagonal of its map."""
    weights = (2 * torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(5))).softmax(dim=-1)
    planted = ((0, 3, -1, 0.7), (0, 2, -1, 0.5), (2, 1, -1, 0.6), (1, 2, 2, 0.8), (0, 1, 1, 0.9))
    for layer, head, offset, weight in planted:
        for row in range(5):
            weights[layer, head, row] = 0.25 * (1 - weight)
            if 0 <= row + offset < 5:
                weights[layer, head, row, row + offset] = weight
    weights[2, 1, 0] = torch.tensor([0.0, 0, 0, 0, 1])  # one back from position 0 there is nothing, but round the end
    weights[1, 0] = 0.8 * torch.eye(5) + 0.2 * torch.ones(4).diag(-1)  # all of it right of what is two back
    weights = weights / weights.sum(dim=-1, keepdim=True)
    for by in (-1, 2, 1):
        expected = best_head(weights, by)
        found = answer(weights.clone(), by)
        if found is None:
            return "your function returned None: does it end in a return?"
        if isinstance(found, int) or (isinstance(found, Tensor) and found.dim() == 0):
            flat = int(found) == expected[0] * 4 + expected[1]
            return "this is the flat index: give the layer and the head (divmod)." if flat else "give (layer, head)."
        if not isinstance(found, tuple | list | Tensor) or len(found) != 2:
            return "give two numbers, (layer, head)."
        pair = (int(found[0]), int(found[1]))
        if pair == expected:
            continue
        known = {
            "the head comes second: (layer, head).": expected[::-1],
            "that head looks in the other direction: rows look, columns are looked at.": best_head(weights, -by),
            "a position without such a token does not count; you went round the end.": best_head(
                weights, by, wraps=True
            ),
            "that is the smallest weight, not the largest.": best_head(weights, by, lowest=True),
            "count from 0.": (expected[0] + 1, expected[1] + 1),
            "you summed a triangle of the map; take one diagonal.": divmod(
                int(weights.triu(by).sum(dim=(-1, -2)).argmax()), weights.size(1)
            ),
            "you counted rows; take the mean of the weights themselves.": divmod(
                int((weights.argmax(dim=-1) == torch.arange(5) + by).sum(dim=-1).argmax()), weights.size(1)
            ),
        }
        for diagnosis, wrong in known.items():
            if pair == wrong:
                return f"by = {by}: {diagnosis}"
        return f"by = {by}: expected {expected}, got {pair}."
    return None


EXERCISES = {
    "11.1": Exercise("BLEU on paper", bleu_on_paper),
    "11.2": Exercise("BLEU with several references", bleu_from_scratch),
    "11.3": Exercise("An exact test", exact_test),
    "11.4": Exercise("An ensemble's log-probabilities", ensemble),
    "11.5": Exercise("Find the head that looks back", head_that_looks),
}
