"""The exercises of chapter 14, classification."""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated_course.exercises import exercise
from annotated_course.exercises.exercise import Exercise, Run, calls, each, keeping, resulting

EXERCISES: dict[str, Exercise] = {}

LN_2 = math.log(2)


def by_hand(first: float = 3.0, second: float = 2.0, bias: float = LN_2, third: float | None = None) -> list[float]:
    """The mean of the states and the probability of class 1, from other means, another bias, or simply another one."""
    logits = torch.tensor([first * LN_2 / 3, second * LN_2, bias])
    return [first, second, float(logits.softmax(dim=0)[1]) if third is None else third]


WRONG_NUMBERS = {
    "the padding is in the mean: three tokens are real.": dict(first=4.2, second=1.6),
    "the sum is divided by all five places: three tokens are real.": dict(first=1.8, second=1.2),
    "this is the sum; divide it by the number of tokens.": dict(first=9.0, second=6.0),
    "this is the largest of each feature, not the mean.": dict(first=5.0, second=3.0),
    "the bias of class 2 is missing.": dict(bias=0.0),
    "the third number is the logit of class 1: exponentials, divided by their sum.": dict(third=2 * LN_2),
    "the third number is the exponential of class 1: divide it by the sum of the three.": dict(third=4.0),
    "the third number is the logarithm of the probability.": dict(third=-LN_2),
    "the third number is the probability of class 0 or 2; classes are counted from 0.": dict(third=0.25),
}
EXERCISES["14.1"] = Exercise(
    "Three classes by hand",
    right=by_hand(),
    cases={"": exercise.as_numbers},
    mistakes=each(by_hand, WRONG_NUMBERS),
    tolerance=2e-3,
    by_hand=True,
)


def largest(states: Tensor, real: Tensor) -> Tensor:
    """The largest real value of each feature, 0 where there is none."""
    return torch.where(real.any(dim=1, keepdim=True), unlimited(states, real), 0.0)


def unlimited(states: Tensor, real: Tensor) -> Tensor:
    """The largest real value of each feature, −∞ where there is none."""
    return states.masked_fill(~real[..., None], -math.inf).amax(dim=1)


def wrong_pools(x: Tensor, real: Tensor) -> dict[str, Tensor]:
    """What is usually taken for the largest real values, and what that gives."""
    kept = x.masked_fill(~real[..., None], 0.0)
    over_features = x.masked_fill(~real[..., None], -math.inf).amax(dim=2)
    return {
        "padding counts: it may hold larger values than the tokens.": x.amax(dim=1),
        "values below 0 are lost: padding is replaced by 0, or the result is cut off there.": kept.amax(dim=1),
        "this is the mean of the tokens, not the largest.": kept.sum(1) / real.sum(1, keepdim=True).clamp(min=1),
        "this is the sum of the tokens, not the largest.": kept.sum(dim=1),
        "you took the largest of the padding: True means real.": largest(x, ~real),
        "you took the largest of the padding (True means real), and −∞ where there is none.": unlimited(x, ~real),
        "this is the smallest, not the largest.": -largest(-x, real),
        "the largest is that of each feature over the tokens (dim=1), not over features.": over_features,
        "values below 0 are lost: the largest may be one of them.": largest(x, real).clamp(min=0),
    }


def pooling(x: Tensor, real: Tensor) -> Run:
    """Make a case in which huge negative numbers look like −∞, all results with NaN alike, and so all tuples."""

    def run(answer: Any) -> Any:
        found = keeping(x, real)(answer)
        if isinstance(found, tuple):
            return "a tuple"
        return exercise.nan_throughout(found.clamp(min=-1e4)) if isinstance(found, Tensor) else found

    return run


BEHIND = torch.tensor([5, 3, 2, 1])[:, None] > torch.arange(5)
EMPTY = BEHIND & torch.tensor([True, True, False, True])[:, None]
STATES = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0)) + 9 * ~BEHIND[..., None]
BELOW = STATES - 900 * BEHIND[..., None]
POOLS = {
    "": (STATES, BEHIND),
    "where all real values lie below 0: ": (BELOW, BEHIND),
    "where padding stands in front: ": (STATES.flip(1), BEHIND.flip(1)),
    "where a text has no token: ": (BELOW, EMPTY),
    "where NaN stands at the padding: ": (STATES.where(BEHIND[..., None], math.nan), BEHIND),
    "where NaN stands at the padding, and a text has no token: ": (STATES.where(EMPTY[..., None], math.nan), EMPTY),
}
EXERCISES["14.2"] = Exercise(
    "The largest in place of the mean",
    right=largest,
    cases={remark: pooling(*given) for remark, given in POOLS.items()},
    mistakes={
        "your function changed what it was given: make a new tensor (masked_fill, not masked_fill_).": (
            lambda x, real: largest(x.masked_fill_(~real[..., None], -math.inf), real)
        ),
        "expected a tensor, got a tuple: max(dim=…) also returns places; take amax, or .values.": (
            lambda x, real: x.max(dim=1)
        ),
        "it stays at −∞ (or a huge negative number); zeros are wanted.": unlimited,
        "NaN came through: replace padding (masked_fill, where); NaN times 0 is NaN.": (
            lambda x, real: largest(x, real) + 0 * x.sum(dim=1)
        ),
    }
    | resulting(wrong_pools, STATES, BEHIND),
    copies=False,
)


def patches(images: Tensor, size: int) -> Tensor:
    """Cut pictures into patches."""
    batch, height, width = images.shape
    axes = images.reshape(batch, height // size, size, width // size, size)
    return axes.permute(0, 1, 3, 2, 4).reshape(batch, -1, size**2)


SHAPES = {(3, 8, 8): 2, (2, 4, 8): 2, (2, 9, 6): 3, (1, 3, 5): 1, (2, 4, 4): 4}
EXERCISES["14.3"] = Exercise(
    "Cut a picture into patches",
    right=patches,
    cases={
        f"{shape}, size {size}: ": calls(torch.arange(1.0 * math.prod(shape)).view(shape), size)
        for shape, size in SHAPES.items()
    },
    mistakes={
        "the numbers are only counted off: that cuts a row of pixels into pieces. A patch holds several rows.": (
            "axes.permute(0, 1, 3, 2, 4) → images"
        ),
        "the patches stand column by column; they are wanted row by row.": "0, 1, 3, 2, 4 → 0, 3, 1, 2, 4",
        "in each patch the pixels stand column by column; they are wanted row by row.": "0, 1, 3, 2, 4 → 0, 1, 3, 4, 2",
        "patches and pixels both stand column by column: you have turned the picture.": "0, 1, 3, 2, 4 → 0, 3, 1, 4, 2",
        "these are pixels that are `size` apart, not neighbours: the inner axis of each pair is the pixel's.": (
            "height // size, size, width // size, size → size, height // size, size, width // size; "
            "1, 3, 2, 4 → 2, 4, 1, 3"
        ),
        "the rows of patches and the rows in them are exchanged.": "0, 1, 3, 2, 4 → 0, 2, 3, 1, 4",
        "this is (batch, pixels, patches): exchange the last two axes.": "size**2) → size**2).mT",
        "two axes too many: join rows and columns of patches, and rows and columns of pixels.": (
            ".reshape(batch, -1, size**2) →"
        ),
    },
)


def bayes(counts: Tensor, labels: Tensor, new: Tensor, classes: int) -> Tensor:
    """Naive Bayes in the logarithm."""
    own = F.one_hot(labels, classes).double()  # (text, class)
    words, prior = own.T @ counts.double(), own.mean(dim=0)
    shares = (words + 1) / (words + 1).sum(dim=1, keepdim=True)
    logs = new.double() @ shares.log().T + prior.log()
    return logs.softmax(dim=1).float()


def texts(classes: int, known: int, words: int, new: int, least: int = 0) -> Run:
    """Make a case of some texts, of which the first new one is empty, and all others have each word `least` times."""
    generator = torch.Generator().manual_seed(2)
    counts = torch.poisson(torch.rand(known, words, generator=generator) * 1.2, generator=generator)
    counts[:, -1] = 0  # a word that no training text has
    labels = torch.randint(classes, (known,), generator=generator)
    labels[: classes + 2] = torch.tensor([*range(classes), 0, 0])
    asked = torch.poisson(torch.rand(new, words, generator=generator) * 1.5, generator=generator)
    asked[1, -1] += 1
    asked += least
    asked[0] = 0
    return lambda answer: exercise.nan_throughout(exercise.in_32_bits(answer(counts, labels, asked, classes)))


WRONG_BAYES = {
    "p(c) is missing: the share of the training texts that have class c.": "+ prior.log() →",
    "p(c) is the share of the texts, not of the words.": (
        "own.mean(dim=0) → own.T @ counts.sum(dim=1).double() / counts.sum()"
    ),
    "the one is added to the words' counts, not to p(c).": (
        "own.mean(dim=0) → (own.sum(dim=0) + 1) / (len(labels) + classes)"
    ),
    "the one is added above only; below, each word of the vocabulary adds one, too.": "/ (words + 1) → / words",
    "add 1 to each count before you divide: a word never seen would forbid the class.": "words + 1 → words + 1e-9",
    "p(w | c) is divided by the words of its own class, not of all classes together.": (
        "sum(dim=1, keepdim=True) → sum()"
    ),
    "a word that stands twice counts twice; you count whether it is there.": (
        "counts.double() → counts.sign().double(); new.double() → new.sign().double()"
    ),
    "these are logarithms; probabilities are wanted.": ".softmax(dim=1) →",
    "these are logarithms; probabilities are wanted, that is, no logarithm of them.": "logs.softmax → logs.log_softmax",
    "NaN: the products have become 0, and 0 / 0 is no number. Add logarithms.": (
        "logs.softmax(dim=1) → (logs.exp() / logs.exp().sum(dim=1, keepdim=True))"
    ),
    "all is 0: the products have become too small. Add logarithms.": (
        "logs.softmax(dim=1) → (logs.exp() / logs.exp().sum(dim=1, keepdim=True).clamp(min=1e-30))"
    ),
    "these are products, which do not sum to 1: divide each by its text's sum.": "softmax(dim=1) → exp()",
    "the probabilities sum to 1 over the texts; they should over the classes.": "softmax(dim=1) → softmax(dim=0)",
    "this is (class, text): exchange the axes.": "softmax(dim=1) → softmax(dim=1).T",
    "NaN: is a count of 0 divided, or its logarithm multiplied by 0? Add 1 to each count.": "words + 1 → words",
}
EXERCISES["14.4"] = Exercise(
    "A baseline that may win",
    right=bayes,
    cases={
        "": texts(2, 7, 5, new=4),
        "three classes: ": texts(3, 11, 6, new=5),
        "texts of thousands of words: ": texts(2, 6, 9, new=3, least=1000),
    },
    mistakes=WRONG_BAYES,
)


GOOD = ("good", "bad")


def what_tells(text: str, zeros: int, ones: int) -> str:
    """Say why a bag of bigrams is not balanced, with the likeliest reason."""
    words = ["<", *text.split(" ")]
    before, after = (words[words.index("not") + step] for step in (-1, 1))
    counted = f"of the texts with the bigrams of {text!r:.80}, {zeros} have label 0 and {ones} have label 1"
    if after in GOOD:
        return f"{counted}: 'not {after}' is a bigram itself. Put a word between, in both clauses."
    if before in ("<", ","):
        return f"{counted}: 'not' stands at the edge of its clause; what is beside it tells which clause it is in."
    same = "the word before it and the word after it must be the same in both clauses."
    return f"{counted}. Where 'not' goes, the bigrams around the gap change: {same}"


def examine_corpus(answer: Callable[[], Any]) -> str | None:
    """Count the whole list: form, labels, bags of bigrams, and the place of "not"."""
    found = answer()
    if found is None:
        return exercise.difference(found, [])
    for one in (found := list(found)):
        if not (isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str) and one[1] in (0, 1)):
            return f"each entry is a pair (text, label), a string and 0 or 1; got {one!r:.80}."
    if len(found) < 16:
        return f"at least 16 texts are wanted; got {len(found)}."
    often, count = Counter(text for text, _ in found).most_common(1)[0]
    if count > 1:
        return f"the texts must all be different; {often!r:.80} is there more than once."
    bags: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    places: dict[int, list[int]] = defaultdict(list)
    for text, label in found:
        words = text.split(" ")
        if not {"", "<", ">"}.isdisjoint(words):
            return f"words are separated by single spaces, and < and > are no words: {text!r:.80}."
        for word in (",", "not", *GOOD):
            if words.count(word) != 1:
                return f"{word!r} must stand exactly once in each text: {text!r:.80}."
        place = words.index("not")
        follow = [GOOD.index(word) for word in words[place:] if word in GOOD]
        if not follow:
            return f"after 'not' neither 'good' nor 'bad' follows: {text!r:.80}."
        if label != follow[0]:
            return f"the label is 0 if 'good' comes first after 'not', 1 if 'bad' does: {text!r:.80} has {int(label)}."
        bags[frozenset(Counter(itertools.pairwise(["<", *words, ">"])).items())].append((text, follow[0]))
        places[place].append(follow[0])
    for alike in bags.values():
        ones = sum(label for _, label in alike)
        if 2 * ones != len(alike):
            return what_tells(alike[0][0], len(alike) - ones, ones)
    for place, labels in sorted(places.items()):
        ones = sum(labels)
        if 2 * ones != len(labels):
            return (
                f"the bigrams tell nothing, but the place of 'not' does: of the texts that have it at place {place}, "
                f"{len(labels) - ones} have label 0 and {ones} have label 1. Let either clause come first."
            )
    return None


def reviews() -> list[tuple[str, int]]:
    """A corpus: each adverb, each pair of things, each order, and either word after "not"."""
    found = []
    pairs = itertools.permutations(("plot", "cast", "music"), 2)
    for adverb, things, order, negated in itertools.product(("really", "very"), pairs, (GOOD, GOOD[::-1]), GOOD):
        clauses = [
            f"the {thing} was {'not ' * (word == negated)}{adverb} {word}"
            for thing, word in zip(things, order, strict=True)
        ]
        found.append((" , ".join(clauses), GOOD.index(negated)))
    return found


def rewritten(change: Callable[[str], str]) -> Any:
    """A corpus whose texts are changed; those with one adverb, which stay different without it."""
    return lambda: [(change(text), label) for text, label in reviews()[:24]]


EXERCISES["14.5"] = Exercise(
    "A corpus that no bigram can sort",
    right=reviews,
    cases={},
    examine=examine_corpus,
    caught={
        "each entry is a pair (text, label)": lambda: [text for text, _ in reviews()],
        "a string and 0 or 1; got": lambda: [(text, str(label)) for text, label in reviews()],
        "at least 16 texts are wanted; got 12": lambda: reviews()[:12],
        "must all be different": lambda: reviews() * 2,
        "after 'not' neither 'good' nor 'bad' follows": lambda: [(f"good , bad not {i}", 0) for i in range(16)],
        "the label is 0 if 'good' comes first": lambda: [(text, 1 - label) for text, label in reviews()],
        "the place of 'not' does": lambda: [one for one in reviews() if one[0].index("good") < one[0].index("bad")],
        "single spaces": rewritten(lambda text: text.replace(" ", "  ")),
        "',' must stand exactly once": rewritten(lambda text: text.replace(" , ", ", ")),
        "' is a bigram itself": rewritten(lambda text: text.replace("really ", "")),
        "at the edge of its clause": rewritten(lambda text: re.sub(r"the (\w+) was ([a-z ]+)\b", r"\2 \1", text)),
        "must be the same in both clauses": rewritten(lambda text: text.replace("really bad", "so bad")),
    },
)
