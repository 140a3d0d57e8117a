"""The exercises of chapter 14, classification."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated_course.exercises.exercise import AnyOf, Exercise, Run, calls, draw, in_32_bits, keeping, on_paper

EXERCISES: dict[str, Exercise] = {}
EXERCISES["14.1"] = on_paper(
    "Three classes by hand",
    [3.0, 2.0, 0.5],
    {
        "the padding is in the mean: three tokens are real.": AnyOf((0, 4.2), (1, 1.6)),
        "the sum is divided by all five places: three tokens are real.": AnyOf((0, 1.8), (1, 1.2)),
        "this is the sum; divide it by the number of tokens.": AnyOf((0, 9.0), (1, 6.0)),
        "the bias of class 2 is missing.": (2, 4 / 7),
        "this is the logit of class 1: exponentials, divided by their sum.": (2, 2 * math.log(2)),
    },
    tolerance=2e-3,
)


def largest(states: Tensor, real: Tensor) -> Tensor:
    """The largest real value of each feature, 0 where there is none."""
    values = states.masked_fill(~real[..., None], -math.inf).amax(dim=1)
    return values.where(real.any(dim=1, keepdim=True), 0.0)


PADDED = torch.tensor([5, 3, 2, 1])[:, None] > torch.arange(5)
EMPTY = PADDED & torch.tensor([True, True, False, True])[:, None]
STATES = draw(4, 5, 3) + 9 * ~PADDED[..., None]
BELOW = STATES - 900 * PADDED[..., None]
POOLS = {
    "": (STATES, PADDED),
    "where all real values lie below 0: ": (BELOW, PADDED),
    "where padding stands in front: ": (STATES.flip(1), PADDED.flip(1)),
    "where a text has no token: ": (BELOW, EMPTY),
    "where NaN stands at the padding: ": (STATES.where(PADDED[..., None], math.nan), PADDED),
    "where NaN stands at the padding, and a text has no token: ": (STATES.where(EMPTY[..., None], math.nan), EMPTY),
}
EXERCISES["14.2"] = Exercise(
    "The largest in place of the mean",
    right=largest,
    cases={remark: keeping(*given) for remark, given in POOLS.items()},
    mistakes={
        "padding counts: it may hold larger values than the tokens.": lambda states, real: states.amax(dim=1),
        "values below 0 are lost: padding is replaced by 0, or the result is cut off there.": "-math.inf → 0.0",
        "the largest is that of each feature over the tokens (dim=1), not over features.": "amax(dim=1) → amax(dim=2)",
        "it stays at −∞; zeros are wanted.": ".where(real.any(dim=1, keepdim=True), 0.0) →",
    },
    caught={"your function changed argument 0, counted from 0": "masked_fill → masked_fill_"},
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
        "a patch holds several rows; you cut a row of pixels into pieces.": "axes.permute(0, 1, 3, 2, 4) → images",
        "in each patch the pixels stand column by column; they are wanted row by row.": "0, 1, 3, 2, 4 → 0, 1, 3, 4, 2",
        "join rows and columns of patches, and those of pixels.": ".reshape(batch, -1, size**2) →",
    },
    forbids="unfold pixel_unshuffle conv2d loop: split the axes, exchange them, and join them again.",
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
    return lambda answer: in_32_bits(answer(counts, labels, asked, classes))


EXERCISES["14.4"] = Exercise(
    "A baseline that may win",
    right=bayes,
    cases={
        "": texts(2, 7, 5, new=4),
        "three classes: ": texts(3, 11, 6, new=5),
        "texts of thousands of words: ": texts(2, 6, 9, new=3, least=1000),
    },
    mistakes={
        "the products have become 0, and 0 / 0 is NaN. Add logarithms.": "logs.softmax → logs.exp().log().softmax",
        "p(c) is missing: the share of the training texts that have class c.": "+ prior.log() →",
        "add 1 to each count before you divide: a word never seen would forbid the class.": "words + 1 → words",
        "these are logarithms; probabilities are wanted.": AnyOf(".softmax(dim=1) →", ".softmax → .log_softmax"),
    },
)


GOOD = ("good", "bad")


def examine_corpus(answer: Callable[[], Any]) -> str | None:
    """Look at form and labels, then whether bigrams or the place of "not" tell a label."""
    alike: dict[Hashable, list[int]] = defaultdict(list)  # the labels of the texts that share bigrams, or the place
    example = {}
    for entry in (corpus := list(answer())):
        if not (isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], str)):
            return f"each entry is a pair (text, label), a string and 0 or 1; got {entry!r:.80}."
        text, label = entry
        words = text.split(" ")
        if not {"", "<", ">"}.isdisjoint(words) or any(words.count(word) != 1 for word in (",", "not", *GOOD)):
            return f"each text has ',', 'not', 'good' and 'bad' once, single spaces, and no < or >: {text!r:.80}."
        place = words.index("not")
        if [label] != [GOOD.index(word) for word in words[place:] if word in GOOD][:1]:
            return f"the label is 0 if 'good' comes first after 'not', 1 if 'bad' does: {text!r:.80} has {label!r:.80}."
        bigrams = frozenset(Counter(itertools.pairwise(["<", *words, ">"])).items())
        for key in (bigrams, place):
            alike[key].append(label)
            example[key] = text
    if len({text for text, _ in corpus}) < max(16, len(corpus)):
        return f"at least 16 texts are wanted, all different; got {len(corpus)}."
    for key, labels in sorted(alike.items(), key=lambda item: isinstance(item[0], int)):  # bigrams first
        zeros, ones = labels.count(0), labels.count(1)
        if zeros != ones:
            texts, hint = f"the bigrams of {example[key]!r:.80}", "Put the same words around 'not' in both clauses."
            if isinstance(key, int):
                texts, hint = f"'not' at place {key}", "Let either clause come first."
            return f"of the texts with {texts}, {zeros} have label 0 and {ones} have label 1. {hint}"
    return None


def reviews() -> list[tuple[str, int]]:
    """A corpus: each adverb, each pair of things, each order, and either word after "not"."""
    corpus = []
    pairs = itertools.permutations(("plot", "cast", "music"), 2)
    for adverb, things, order, negated in itertools.product(("really", "very"), pairs, (GOOD, GOOD[::-1]), GOOD):
        clauses = [
            f"the {thing} was {'not ' * (word == negated)}{adverb} {word}"
            for thing, word in zip(things, order, strict=True)
        ]
        corpus.append((" , ".join(clauses), GOOD.index(negated)))
    return corpus


def rewritten(old: str, new: str) -> Any:
    """A corpus in whose texts something is replaced; those with one adverb, which stay different without it."""
    return lambda: [(text.replace(old, new), label) for text, label in reviews()[:24]]


EXERCISES["14.5"] = Exercise(
    "A corpus that no bigram can sort",
    right=reviews,
    examine=examine_corpus,
    caught={
        "each entry is a pair (text, label)": lambda: [text for text, _ in reviews()],
        "at least 16 texts are wanted, all different; got 12": lambda: reviews()[:12],
        "the label is 0 if 'good' comes first": lambda: [(text, 1 - label) for text, label in reviews()],
        "each text has ',', 'not', 'good' and 'bad' once": rewritten(" , ", ", "),
        "Put the same words around 'not' in both": AnyOf(rewritten("really ", ""), rewritten("really bad", "so bad")),
        "Let either clause come first": lambda: [one for one in reviews() if one[0].find("good") < one[0].find("bad")],
    },
)
